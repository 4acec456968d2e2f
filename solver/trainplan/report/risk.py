"""How sure the plan is: the simulated chance, what drives the spread, what more or less certainty costs."""

from __future__ import annotations

from trainplan.report import wording
from trainplan.report.document import Column, Section, Table
from trainplan_models.plan import Plan, Risk

LEAST_SPREAD_FRAC = 0.0005
METHODS = {
    "scenarios": "scenarios in the model",
    "margin": "a margin left free",
    "chance first": "scenarios in the model, chance before cost",
}
NOT_SIMULATED = "not simulated: P50 and P90 and the chance of being in time and in budget are not known"


def cost_facts(plan: Plan) -> list[tuple[str, str]]:
    """What to sign for: the mean over the simulated launches, before the bill as planned."""
    risk = plan.risk
    if risk is None:
        return []
    above = risk.cost_mean_usd / plan.total_usd - 1.0 if plan.total_usd > 0.0 else 0.0
    told = f", {wording.percent(above, 1)} above the plan" if above >= LEAST_SPREAD_FRAC else ""
    return [
        (
            "Expected cost",
            f"{wording.usd(risk.cost_mean_usd)} USD on average over {risk.scenarios_count:,} simulated launches{told}; "
            f"P50 {wording.usd(risk.cost_p50_usd)} USD, P90 {wording.usd(risk.cost_p90_usd)} USD",
        )
    ]


def chance_facts(plan: Plan) -> list[tuple[str, str]]:
    """The lines of the headline."""
    risk = plan.risk
    if risk is None:
        return [("Chance", NOT_SIMULATED)]
    finish = f"P50 {wording.moment(plan, risk.finish_p50_s)}, P90 {wording.moment(plan, risk.finish_p90_s)}"
    made = [("Made by", words)] if (words := method_words(plan)) else []
    return [("Chance", chance_words(plan, risk)), ("Finish, simulated", finish), *made]


def method_words(plan: Plan) -> str:
    """How a plan that keeps its promise was found, against what, and what that took."""
    if plan.risk is None or not plan.methods:
        return ""
    ways = "; ".join(
        f"{METHODS.get(way.name, way.name)}: chance {wording.percent(way.chance_frac, 1)} at "
        f"{wording.usd(way.expected_usd)} USD on average, {way.plans_count} "
        f"{'plan' if way.plans_count == 1 else 'plans'} in {way.seconds:.1f} s"
        for way in plan.methods
    )
    chosen = METHODS.get(plan.risk.method, "the plan as it was first made")
    return f"{chosen}, as the surest or least dear of what keeps the promise ({ways})"


def chance_words(plan: Plan, risk: Risk) -> str:
    """How often the plan kept its limits in scenarios it was not made for."""
    limited = {use.limit for use in plan.limits} & {"deadline", "budget"}
    if not limited:
        return "no deadline and no budget to keep"
    kept = f"done in time and in budget in {wording.percent(risk.chance_frac, 1)} of {risk.scenarios_count:,} fresh "
    margin = f", with {wording.percent(risk.margin_frac, 1)} left free for it" if risk.margin_frac else ""
    return f"{kept}scenarios ({wording.percent(risk.wanted_frac, 0)} wanted){margin}"


def risk(plan: Plan) -> Section | None:
    """Cost against risk; absent where the plan was not simulated."""
    found = plan.risk
    if found is None:
        return None
    facts = (
        ("In time", wording.percent(found.in_time_frac, 1)),
        ("In budget", wording.percent(found.in_budget_frac, 1)),
        (
            "Both",
            f"{wording.percent(found.chance_frac, 1)}, at least {wording.percent(found.chance_low_frac, 1)}",
        ),
        (
            "Effective time",
            f"{wording.percent(found.effective_time_frac, 1)} of the time in which nodes are held",
        ),
    )
    causes = Table(
        title="What drives the spread",
        columns=(Column("Cause"), Column("Of the finish", numeric=True), Column("Of the cost", numeric=True)),
        rows=tuple(
            (cause.name, wording.percent(cause.finish_share, 1), wording.percent(cause.cost_share, 1))
            for cause in found.causes
        ),
        note="Share of the variance each cause explains by itself.",
    )
    tables = [causes] if found.causes else []
    if len(found.tried) > 1:
        tables.append(_tried(plan, found))
    return Section(title="Cost against risk", facts=facts, tables=tuple(tables))


def _tried(plan: Plan, found: Risk) -> Table:
    return Table(
        title="Plans weighed against each other",
        columns=(
            Column("Left free", numeric=True),
            Column("Made by"),
            Column("Chance", numeric=True),
            Column("Expected USD", numeric=True),
            Column("Planned USD", numeric=True),
            Column("Planned finish"),
        ),
        rows=tuple(
            (
                wording.percent(point.margin_frac, 1),
                point.method,
                wording.percent(point.chance_frac, 1),
                wording.NOT_KNOWN if point.expected_usd is None else wording.usd(point.expected_usd),
                wording.usd(point.cost_usd),
                wording.moment(plan, point.finish_s),
            )
            for point in found.tried
        ),
        note="Left free: share of the time to the deadline (with scenarios: of each limit) that a plan must not use "
        "when all goes as planned. Expected USD: mean of the simulated cost.",
    )


def fallback_words(plan: Plan) -> tuple[str, ...]:
    """What to do when a segment falls behind."""
    if plan.risk is None or not plan.risk.fallback:
        return ("The plan has no rule for what to do when it falls behind.",)
    return tuple(f"Rule when it falls behind: {rule}" for rule in plan.risk.fallback)
