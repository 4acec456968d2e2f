"""What the result rests on: defaults, prices, model errors, and the solve behind it."""

from __future__ import annotations

from trainplan.report import wording
from trainplan.report.document import Column, Section, Table
from trainplan_models.plan import Plan

ASSUMPTIONS = (
    Column("Assumed"),
    Column("Value", wraps=True),
    Column("Effect", wraps=True),
    Column("Source", wraps=True),
    Column("As of"),
)


def assumptions(plan: Plan) -> Section:
    """Every default, price and model error that moved the result."""
    if not plan.assumptions:
        return Section(title="Assumptions", paragraphs=("No assumption was recorded.",))
    rows = tuple(
        (item.key, item.value, item.effect or "-", item.source, item.as_of or wording.NOT_KNOWN)
        for item in plan.assumptions
    )
    table = Table(title="Defaults, prices and model errors", columns=ASSUMPTIONS, rows=rows)
    return Section(title="Assumptions", tables=(table,))


def solve(plan: Plan) -> Section:
    """How the plan was found."""
    solver = plan.solver
    money = (
        ("Objective", f"{wording.usd(solver.objective_usd)} USD"),
        ("Bound", f"{wording.usd(solver.bound_usd)} USD"),
    )
    facts = (
        *(money if plan.question == "cheapest" else ()),
        ("Gap", wording.percent(solver.gap_frac, 3)),
        ("Bound holds over", solver.scope or "not stated"),
        ("Problem", f"{solver.columns:,} columns, {solver.rows:,} rows, {solver.nodes:,} nodes searched"),
        ("Time", f"{solver.seconds:.2f} s"),
        ("Versions", f"trainplan {plan.trainplan_version}, HiGHS {solver.highs_version}"),
    )
    return Section(title="Solve", facts=facts)
