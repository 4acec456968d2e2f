"""The wanted reliability, kept: solve, simulate, tighten, solve again.

A plan is simulated in scenarios that the optimization never saw. Where it is done in time and in budget
less often than wanted, it is made again in one or both of two ways:

* with the scenarios in the model (``scenario_stage``), which weighs choices by their expected cost and knows which
  of them are late together;
* with a margin: a share of the time to the deadline (and, where the question spends the budget, of the budget)
  that the plan leaves free, the smallest that is enough, found by bisection.

Where neither keeps it, the surest plan is looked for: with the scenarios in the model, chance before cost, and
scenarios that tell apart what can be reached.

Of the plans that keep the promise when simulated, the one with the lowest simulated mean cost (or what else the
question asks for) is taken. The chance that is printed comes from scenarios with another seed than those the plan
was chosen on.
"""

from __future__ import annotations

from trainplan.plan_making import Maker
from trainplan.promise_search import (
    CHANCE_FIRST,
    IN_MODEL,
    MARGIN,
    SURE_FRAC,
    Search,
    Try,
    best_of,
    keeps,
    simulation_of,
)
from trainplan_models.plan import Plan, Risk, RiskCause, RiskPoint

PRINTED_SEED = 2
"""Not that of the search."""
CAUSES_KEPT = 8


def keep_promise(make: Maker, cheapest: Plan) -> Plan:
    """The best plan whose simulated chance is what the case wants, or the surest one there is.

    Args:
        make: makes plans of the problem.
        cheapest: the plan without any margin.
    """
    case = make.assembly.case
    search = Search(make)
    first = search.simulated(0.0, cheapest)
    surest = case.question == "safest"
    if not surest and first.chance_frac >= case.reliability:
        return _with_risk(make, first, search)
    wanted = case.reliability + SURE_FRAC
    if not make.solver.spec.wide:
        search.timed(IN_MODEL, lambda: search.in_scenarios(first, wanted, surest=surest))
    if search.small or not keeps(search.tries, wanted):
        way = search.surest if surest else search.least_margin
        search.timed(MARGIN, lambda: way(first, wanted))
    if not make.solver.spec.wide and not keeps(search.tries, wanted):
        search.timed(CHANCE_FIRST, lambda: search.surer(first, wanted))
    # A plan with more margin than the promise needs may still cost less on average: it is late less often.
    return _with_risk(make, best_of(search.tries, wanted, case.question), search)


def _with_risk(make: Maker, chosen: Try, search: Search) -> Plan:
    case = make.assembly.case
    fresh = simulation_of(make, chosen.plan, PRINTED_SEED)
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
