"""The first section: what to launch, what it costs, when it is done, how sure that is."""

from __future__ import annotations

from trainplan.report import wording
from trainplan.report.bill import Bill
from trainplan.report.document import Section
from trainplan.report.risk import chance_facts, cost_facts
from trainplan_models.plan import LimitUse, Plan, Segment

QUESTIONS = {
    "cheapest": "the cheapest plan within the limits",
    "fastest": "the fastest plan within the limits",
    "most-tokens": "the most tokens within the limits",
    "safest": "the safest plan within the limits",
}


def headline(plan: Plan, bill: Bill) -> Section:
    """What to launch and what comes of it."""
    facts = [("Question", QUESTIONS.get(plan.question, plan.question))]
    facts += [("Launch", launch_words(plan, segment)) for segment in plan.segments]
    facts += [
        *cost_facts(plan),
        ("Total cost", cost_words(plan, bill)),
        *rounds_facts(plan),
        ("Finish", finish_words(plan)),
        *chance_facts(plan),
        *efficiency_facts(plan, bill),
        ("Proof", proof_words(plan)),
        ("Prices of", price_words(plan)),
    ]
    return Section(title="Headline", facts=tuple(facts))


def launch_words(plan: Plan, segment: Segment) -> str:
    """One segment in one sentence."""
    accelerators = segment.nodes * segment.accelerators_per_node
    spares = f" + {segment.spare_nodes} spare" if segment.spare_nodes else ""
    nodes = "node" if segment.nodes + segment.spare_nodes == 1 else "nodes"
    return (
        f"{wording.task_words(segment)}: {segment.nodes}{spares} {nodes} of {segment.pool} "
        f"({accelerators} x {segment.accelerator}), {segment.mode}, "
        f"{wording.moment(plan, segment.start_s)} to {wording.moment(plan, segment.end_s)}, "
        f"{wording.layout_words(segment.layout)}"
    )


def limit_named(plan: Plan, name: str) -> LimitUse | None:
    """How much of the limit ``name`` is used; None where the case does not set it."""
    return next((use for use in plan.limits if use.limit == name), None)


def cost_words(plan: Plan, bill: Bill) -> str:
    """The total, and how far it is from the budget."""
    total = f"{wording.usd(bill.total_usd)} USD as planned"
    budget = limit_named(plan, "budget")
    if budget is None:
        return f"{total} (no budget given)"
    left = budget.allowed - budget.used
    if left < 0:
        return f"{total}, {wording.usd(-left)} USD above the budget"
    return f"{total}, {wording.usd(left)} USD below the budget"


def rounds_facts(plan: Plan) -> list[tuple[str, str]]:
    """What the plan costs with every round done, where the total counts those that are expected.

    As planned, like the total: simulated launches may cost more.
    """
    if plan.worst_usd is None:
        return []
    names = ", ".join(trial.task for trial in plan.trials)
    return [
        (
            "With every round",
            f"{wording.usd(plan.worst_usd)} USD as planned, if every round of {names} is done; "
            "the total cost counts the rounds expected",
        )
    ]


def finish_words(plan: Plan) -> str:
    """When the last task ends, and how far that is from the deadline."""
    finish = f"{wording.moment(plan, plan.finish_s)}, {wording.duration(plan.finish_s)} from day 0"
    deadline = limit_named(plan, "deadline")
    if deadline is None:
        return f"{finish} (no deadline given)"
    left_s = deadline.allowed - deadline.used
    if left_s < 0:
        return f"{finish}, {wording.duration(-left_s)} after the deadline"
    return f"{finish}, {wording.duration(left_s)} before the deadline"


def efficiency_facts(plan: Plan, bill: Bill) -> list[tuple[str, str]]:
    """Output and input of the programme: tokens, cost per token, accelerator-hours."""
    facts = []
    if plan.tokens > 0:
        per_million_usd = float(bill.total_usd) / (plan.tokens / 1e6)
        facts = [
            ("Tokens trained", wording.tokens(plan.tokens)),
            ("Cost per million", f"{wording.number(per_million_usd, 4)} USD per million effective tokens"),
        ]
    hours: dict[str, float] = {}
    for segment in plan.segments:
        devices = (segment.nodes + segment.spare_nodes) * segment.accelerators_per_node
        paid_h = (segment.end_s - segment.start_s) / 3600 * segment.paid_frac * segment.expected_frac
        hours[segment.accelerator] = hours.get(segment.accelerator, 0.0) + devices * paid_h
    if hours:
        words = ", ".join(f"{value:,.0f} {name}" for name, value in hours.items())
        facts.append(("Accelerator-hours", f"{words} (paid)"))
    return facts


def proof_words(plan: Plan) -> str:
    """How far the plan can be from the best one, and over which choice that is known."""
    solver = plan.solver
    gap = f"within {wording.percent(solver.gap_frac, 2)} of the best possible"
    scope = f"; the proof covers {solver.scope}" if solver.scope else ""
    if plan.status == "optimal":
        return f"proven {gap}{scope}"
    return f"best found, not proven optimal: {gap}{scope}"


def price_words(plan: Plan) -> str:
    """The dates of the prices used."""
    dates = sorted(set(plan.price_dates))
    return ", ".join(dates) if dates else wording.NOT_KNOWN


def warnings(plan: Plan) -> Section | None:
    """What the reader must know before acting."""
    if not plan.warnings:
        return None
    return Section(title="Warnings", paragraphs=plan.warnings)
