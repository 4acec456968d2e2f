"""The wanted reliability, kept: solve, simulate, tighten, solve again.

A plan is simulated in scenarios that the optimization never saw. Where it is done in time and in budget
less often than wanted, it is made again in one or both of two ways:

* with the scenarios in the model (``scenario_stage``), which weighs choices by their expected cost and knows which
  of them are late together;
* with a margin: a share of the time to the deadline (and, where the question spends the budget, of the budget)
  that the plan leaves free, the smallest that is enough, found by bisection.

Of the plans that keep the promise when simulated, the one with the lowest simulated mean cost (or what else the
question asks for) is taken. The chance that is printed comes from scenarios with another seed than those the plan
was chosen on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from math import inf

from trainplan.plan_making import Maker
from trainplan.scenarios import for_plan
from trainplan.solve import Solver
from trainplan_models.base import NoAnswerError, VerificationError
from trainplan_models.plan import Method, Plan, Risk, RiskCause, RiskPoint
from trainplan_models.simulation import Simulation, simulate
from trainplan_models.simulation_statistics import between

SEARCH_SEED, PRINTED_SEED = 1, 2
SCENARIOS = 10_000
SURE_FRAC = 0.002
"""How far above the wanted chance the search aims, so that fresh scenarios agree."""
CLOSE_FRAC = 0.01
"""A chance this little above the wanted one is not worth another solve."""
LEAST_STEP_FRAC = 0.002
MOST_STEPS = 12
MOST_TIGHTENED = 5
"""Solves of the scenario stage."""
MOST_TASKS, MOST_USES = 2, 1_500
"""Tasks, and pairs of an option and a window, with which a model is solved again and again; with more, the options
are screened first, and a margin is only tried where scenarios do not find a plan."""
MOST_MARGIN_S = 15.0
"""After this long no other margin is tried."""
CAUSES_KEPT = 8
WITHOUT, MARGIN, IN_MODEL = "as planned", "margin", "scenarios"


@dataclass(frozen=True, slots=True)
class _Try:
    margin_frac: float
    plan: Plan
    chance_frac: float
    expected_usd: float
    expected_finish_s: float
    late_q_frac: float
    """By what part of the deadline the scenario that decides the wanted chance is late; negative when in time."""
    finish_p90_s: float
    method: str = WITHOUT


def keep_promise(make: Maker, cheapest: Plan) -> Plan:
    """The best plan whose simulated chance is what the case wants, or the surest one there is.

    Args:
        make: makes plans of the problem.
        cheapest: the plan without any margin.
    """
    case = make.assembly.case
    search = _Search(make)
    first = search.simulated(0.0, cheapest)
    surest = case.question == "safest"
    if not surest and first.chance_frac >= case.reliability:
        return _with_risk(make, first, search)
    wanted = case.reliability + SURE_FRAC
    if not make.solver.spec.wide:
        search.timed(IN_MODEL, lambda: search.in_scenarios(first, wanted, surest=surest))
    if search.small or max(one.chance_frac for one in search.tries) < wanted:
        way = search.surest if surest else search.least_margin
        search.timed(MARGIN, lambda: way(first, wanted))
    # A plan with more margin than the promise needs may still cost less on average: it is late less often.
    return _with_risk(make, _best(search.tries, wanted, case.question), search)


def _best(found: list[_Try], wanted: float, question: str) -> _Try:
    """The plan to take: one that keeps the promise at the least, else the surest."""
    most = max(one.chance_frac for one in found)
    level = most - SURE_FRAC if question == "safest" else min(wanted, most)

    def goal(one: _Try) -> tuple[float, float]:
        if question == "fastest":
            return one.expected_finish_s, one.expected_usd
        return (-one.plan.tokens if question == "most-tokens" else 0.0), one.expected_usd

    return min((one for one in found if one.chance_frac >= level), key=goal)


def _is_tight(found: list[_Try], wanted: float) -> bool:
    """Whether a looser plan than the last one would have too low a chance, or would not cost less."""
    last, looser = found[-1], found[:-1]
    dearer = any(one.expected_usd >= last.expected_usd for one in looser)
    return last.chance_frac <= wanted + CLOSE_FRAC or dearer


class _Search:
    """Plans tried so far, each simulated on the same scenarios."""

    def __init__(self, make: Maker) -> None:
        self.make = make
        self.tries: list[_Try] = []
        self.methods: list[Method] = []
        uses = len(make.solver.inputs.uses)
        self.small = len(make.solver.spec.tasks) <= MOST_TASKS and uses <= MOST_USES
        self._solver: Solver | None = None

    def timed(self, name: str, way: Callable[[], _Try]) -> _Try:
        """What a method finds, with what it took written down."""
        before, started = len(self.tries), time.monotonic()
        found = way()
        self.methods.append(
            Method(
                name=name,
                plans_count=len(self.tries) - before,
                seconds=time.monotonic() - started,
                chance_frac=found.chance_frac,
                expected_usd=found.expected_usd,
            )
        )
        return found

    def simulated(self, margin_frac: float, plan: Plan, method: str = WITHOUT) -> _Try:
        """A plan with its chance."""
        for known in self.tries:
            if (known.plan.segments, known.plan.purchases) == (plan.segments, plan.purchases):
                tried = replace(known, margin_frac=margin_frac, plan=plan, method=method)
                self.tries.append(tried)
                return tried
        case = self.make.assembly.case
        found = _simulate(self.make, plan, SEARCH_SEED)
        late = 0.0
        if case.deadline_s is not None:
            late = between(found.finish_quantiles_s, case.reliability) / case.deadline_s - 1.0
        tried = _Try(
            margin_frac,
            plan,
            found.p_both,
            found.cost_mean_usd,
            found.finish_mean_s,
            late,
            found.finish_quantiles_s["p90"],
            method,
        )
        self.tries.append(tried)
        return tried

    def at(self, margin_frac: float) -> _Try | None:
        """The best plan that leaves a margin; None where there is none."""
        limits = self._limits(margin_frac)
        solver = self._margin_solver()
        outcome = solver.solve(limits=limits)
        if outcome.decision is None:
            return None
        if solver is not self.make.solver:
            scope = (
                f"{len({o for o, _ in solver.inputs.uses}):,} options kept of {len(solver.spec.options):,}"
            )
            outcome = replace(outcome, scope=scope)
        make = replace(self.make, solver=solver)
        try:
            return self.simulated(margin_frac, make.plan(outcome, limits), MARGIN)
        except VerificationError:
            # An answer that was cut short may not be exact enough to stand up; it is none then.
            return None

    def _margin_solver(self) -> Solver:
        """The plan's own; over fewer options where that takes too long to be asked again and again."""
        if self.small:
            return self.make.solver
        if self._solver is None:
            from trainplan.shortlist import shortlist

            whole = self.make.solver
            options = shortlist(whole.spec, sorted({o for o, _ in whole.inputs.uses}))
            self._solver = Solver(whole.spec, whole.session, whole.time_limit_s, options)
        return self._solver

    def _limits(self, margin_frac: float) -> dict[str, float]:
        """Limits on time, and on money where the question spends it, with the margin taken off."""
        spends = self.make.assembly.case.question in ("fastest", "most-tokens")
        units = {"days", "USD"} if spends else {"days"}
        return {
            limit.name: limit.upper * limit.per_unit * (1.0 - margin_frac)
            for limit in self.make.solver.ctx.limits
            if limit.unit in units
        }

    def in_scenarios(self, first: _Try, wanted: float, *, surest: bool) -> _Try:
        """The best plan of the model with scenarios that keeps the promise; else the surest of its plans."""
        found: list[_Try] = []
        for chance_first in (False, True):
            if chance_first or not surest:
                found += self._staged(first, wanted, chance_first)
            if any(one.chance_frac >= wanted for one in found):
                break
        return _best(found or [first], wanted, self.make.assembly.case.question)

    def _staged(self, first: _Try, wanted: float, chance_first: bool) -> list[_Try]:
        """Plans of the model with scenarios, its limits tightened until the promise is kept and no further."""
        from trainplan.scenario_stage import ScenarioStage

        found: list[_Try] = []
        tightened, step, low, high = 0.0, 2.0 * LEAST_STEP_FRAC, 0.0, inf
        try:
            stage = ScenarioStage(self.make, first.plan, wanted, surest=chance_first)
            for _ in range(1 if chance_first else MOST_TIGHTENED):
                plan = stage.at(tightened)
                if plan is not None and (not found or plan.segments != found[-1].plan.segments):
                    found.append(self.simulated(tightened, plan, IN_MODEL))
                if not found:
                    break
                if plan is None or found[-1].chance_frac >= wanted:
                    high = tightened
                    if tightened == 0.0 or (plan is not None and _is_tight(found, wanted)):
                        break
                else:
                    low = tightened
                ahead = low + max(found[-1].late_q_frac, step)
                tightened, step = ahead if high == inf else (low + high) / 2.0, 2.0 * step
                if high - low < LEAST_STEP_FRAC:
                    break
        except NoAnswerError:
            return found
        return found

    def least_margin(self, first: _Try, wanted: float) -> _Try:
        """The plan with the smallest margin whose chance is at least ``wanted``; else the surest found."""
        low, high = 0.0, 1.0
        margin, best = self._guess(first), first
        started = time.monotonic()
        for _ in range(MOST_STEPS):
            if time.monotonic() - started > MOST_MARGIN_S:
                break
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
        late_s = first.finish_p90_s
        if case.deadline_s is None or late_s <= case.deadline_s:
            return 0.1
        return min(0.5, 1.0 - case.deadline_s / late_s)

    def surest(self, first: _Try, _wanted: float) -> _Try:
        """The plan with the highest chance over a ladder of margins, the cheapest of equals."""
        found = [first]
        for step in range(1, 10):
            tried = self.at(step / 10.0)
            if tried is None:
                break
            found.append(tried)
        most = max(tried.chance_frac for tried in found)
        return min((t for t in found if t.chance_frac >= most - SURE_FRAC), key=lambda t: t.expected_usd)


def _simulate(make: Maker, plan: Plan, seed: int) -> Simulation:
    case, catalog = make.assembly.case, make.assembly.catalog
    return simulate(plan, case, catalog, for_plan(plan, case, catalog, SCENARIOS, seed), seed)


def _with_risk(make: Maker, chosen: _Try, search: _Search) -> Plan:
    case = make.assembly.case
    fresh = _simulate(make, chosen.plan, PRINTED_SEED)
    points = {
        (t.margin_frac, t.chance_frac, t.plan.total_usd, t.plan.finish_s, t.expected_usd, t.method)
        for t in search.tries
    }
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
            RiskPoint(margin_frac=m, chance_frac=c, cost_usd=usd, finish_s=s, expected_usd=mean, method=way)
            for m, c, usd, s, mean, way in sorted(points)
        ),
        method=chosen.method,
    )
    told: dict[str, object] = {
        "risk": risk,
        "expected_usd": fresh.cost_mean_usd,
        "methods": tuple(search.methods),
        "warnings": (*chosen.plan.warnings, *_warnings(risk)),
    }
    if chosen.method == MARGIN and chosen.margin_frac > 0.0:
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
