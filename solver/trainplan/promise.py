"""The wanted reliability, kept: solve, simulate, tighten, solve again.

A plan is simulated in scenarios that the optimization never saw. Where it is done in time and in budget
less often than wanted, it is made again with a margin: a share of the time to the deadline (and, where the
question spends the budget, of the budget) that it leaves free. The smallest margin that keeps the promise is
found by bisection, since the plan with the smallest margin is the cheapest. The chance that is printed comes
from scenarios with another seed than those the margin was chosen on.
"""

from __future__ import annotations

from dataclasses import dataclass

from trainplan.plan_making import Maker
from trainplan.scenarios import for_plan
from trainplan_models.plan import Plan, Risk, RiskCause, RiskPoint
from trainplan_models.simulation import Simulation, simulate

SEARCH_SEED, PRINTED_SEED = 1, 2
SCENARIOS = 10_000
SURE_FRAC = 0.002
"""How far above the wanted chance the search aims, so that fresh scenarios agree."""
CLOSE_FRAC = 0.01
"""A chance this little above the wanted one is not worth another solve."""
LEAST_STEP_FRAC = 0.002
MOST_STEPS = 12
CAUSES_KEPT = 8


@dataclass(frozen=True, slots=True)
class _Try:
    margin_frac: float
    plan: Plan
    chance_frac: float


def keep_promise(make: Maker, cheapest: Plan) -> Plan:
    """The cheapest plan whose simulated chance is what the case wants, or the surest one there is.

    Args:
        make: makes plans of the problem.
        cheapest: the plan without any margin.
    """
    case = make.assembly.case
    search = _Search(make)
    first = search.simulated(0.0, cheapest)
    wanted = case.reliability
    if case.question == "safest":
        chosen = search.surest(first)
    elif first.chance_frac >= wanted:
        chosen = first
    else:
        chosen = search.least_margin(first, wanted + SURE_FRAC)
    return _with_risk(make, chosen, search.tries)


class _Search:
    """Plans tried so far, each simulated on the same scenarios."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.tries: list[_Try] = []

    def simulated(self, margin_frac: float, plan: Plan) -> _Try:
        """A plan with its chance."""
        found = _Try(margin_frac, plan, _simulate(self.make, plan, SEARCH_SEED).p_both)
        self.tries.append(found)
        return found

    def at(self, margin_frac: float) -> _Try | None:
        """The best plan that leaves a margin; None where there is none."""
        limits = self._limits(margin_frac)
        outcome = self.make.solver.solve(limits=limits)
        if outcome.decision is None:
            return None
        return self.simulated(margin_frac, self.make.plan(outcome, limits))

    def _limits(self, margin_frac: float) -> dict[str, float]:
        """Limits on time, and on money where the question spends it, with the margin taken off."""
        spends = self.make.assembly.case.question in ("fastest", "most-tokens")
        units = {"days", "USD"} if spends else {"days"}
        return {
            limit.name: limit.upper * limit.per_unit * (1.0 - margin_frac)
            for limit in self.make.solver.ctx.limits
            if limit.unit in units
        }

    def least_margin(self, first: _Try, wanted: float) -> _Try:
        """The plan with the smallest margin whose chance is at least ``wanted``; else the surest found."""
        low, high = 0.0, 1.0
        margin, best = self._guess(first), first
        for _ in range(MOST_STEPS):
            found = self.at(margin)
            if found is None:
                high = margin
            elif found.chance_frac >= wanted:
                best = found if best.chance_frac < wanted or found.margin_frac < best.margin_frac else best
                high = margin
                if found.chance_frac <= wanted + CLOSE_FRAC:
                    break
            else:
                best = found if found.chance_frac > best.chance_frac and best.chance_frac < wanted else best
                low = margin
            if high - low < LEAST_STEP_FRAC:
                break
            margin = (low + high) / 2.0
        return best

    def _guess(self, first: _Try) -> float:
        """A margin to begin with: what the slow tenth of the scenarios is late by."""
        case = self.make.assembly.case
        simulation = _simulate(self.make, first.plan, SEARCH_SEED)
        late_s = simulation.finish_quantiles_s["p90"]
        if case.deadline_s is None or late_s <= case.deadline_s:
            return 0.1
        return min(0.5, 1.0 - case.deadline_s / late_s)

    def surest(self, first: _Try) -> _Try:
        """The plan with the highest chance over a ladder of margins, the cheapest of equals."""
        found = [first]
        for step in range(1, 10):
            tried = self.at(step / 10.0)
            if tried is None:
                break
            found.append(tried)
        most = max(tried.chance_frac for tried in found)
        return min((t for t in found if t.chance_frac >= most - SURE_FRAC), key=lambda t: t.plan.total_usd)


def _simulate(make: Maker, plan: Plan, seed: int) -> Simulation:
    case, catalog = make.assembly.case, make.assembly.catalog
    return simulate(plan, case, catalog, for_plan(plan, case, catalog, SCENARIOS, seed), seed)


def _with_risk(make: Maker, chosen: _Try, tries: list[_Try]) -> Plan:
    case = make.assembly.case
    fresh = _simulate(make, chosen.plan, PRINTED_SEED)
    points = {(t.margin_frac, t.chance_frac, t.plan.total_usd, t.plan.finish_s) for t in tries}
    risk = Risk(
        wanted_frac=case.reliability,
        chance_frac=fresh.p_both,
        chance_low_frac=fresh.p_both_low,
        in_time_frac=fresh.p_in_time,
        in_budget_frac=fresh.p_in_budget,
        scenarios_count=fresh.scenarios_count,
        seed=fresh.seed,
        finish_p50_s=fresh.finish_quantiles_s["p50"],
        finish_p90_s=fresh.finish_quantiles_s["p90"],
        cost_mean_usd=fresh.cost_mean_usd,
        cost_p50_usd=fresh.cost_quantiles_usd["p50"],
        cost_p90_usd=fresh.cost_quantiles_usd["p90"],
        effective_time_frac=fresh.ettr_mean_frac,
        causes=tuple(
            RiskCause(name=c.name, finish_share=c.finish_share, cost_share=c.cost_share)
            for c in fresh.causes[:CAUSES_KEPT]
        ),
        fallback=fresh.fallback,
        margin_frac=chosen.margin_frac,
        tried=tuple(
            RiskPoint(margin_frac=m, chance_frac=c, cost_usd=usd, finish_s=s)
            for m, c, usd, s in sorted(points)
        ),
    )
    told: dict[str, object] = {"risk": risk, "warnings": (*chosen.plan.warnings, *_warnings(risk))}
    if chosen.margin_frac > 0.0:
        scope = f"{chosen.plan.solver.scope}, with {chosen.margin_frac:.1%} of the limits left free"
        told["solver"] = chosen.plan.solver.model_copy(update={"scope": scope})
    return chosen.plan.model_copy(update=told)


def _warnings(risk: Risk) -> tuple[str, ...]:
    if risk.chance_frac >= risk.wanted_frac - 0.02:
        return ()
    return (
        f"a chance of {risk.wanted_frac:.0%} cannot be promised under these limits: the surest plan found is done "
        f"in time and in budget in {risk.chance_frac:.1%} of {risk.scenarios_count:,} scenarios",
    )
