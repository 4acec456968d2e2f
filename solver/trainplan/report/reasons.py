"""Why this plan: what else was possible, which limits hold it, what was ruled out."""

from __future__ import annotations

from trainplan.report import wording
from trainplan.report.bill import Bill
from trainplan.report.document import Column, Section, Table
from trainplan_models.plan import Alternative, LimitUse, Plan, Removed

POOLS = "(pools)"
"""Stands for the task where whole pools were left out for all of them."""

ALTERNATIVES = (
    Column("Kind"),
    Column("Instead"),
    Column("USD", numeric=True),
    Column("Difference", numeric=True),
    Column("Finish"),
    Column("Why not", wraps=True),
)
LIMITS = (
    Column("Limit"),
    Column("Used", numeric=True),
    Column("Allowed", numeric=True),
    Column("Share", numeric=True),
    Column("Binds"),
)
REMOVED = (Column("Task"), Column("Configurations removed", numeric=True), Column("Because", wraps=True))


def alternatives(plan: Plan, bill: Bill) -> Section:
    """The best rejected plan of every accelerator, pool and billing mode, next to the chosen one."""
    if not plan.alternatives:
        return Section(
            title="Why this and not that",
            paragraphs=("No alternative was evaluated.",),
        )
    chosen = (
        "chosen",
        "this plan",
        wording.usd(bill.total_usd),
        "",
        wording.moment(plan, plan.finish_s),
        "",
    )
    rows = (chosen, *(_alternative(plan, bill, other) for other in plan.alternatives))
    table = Table(title="Alternatives", columns=ALTERNATIVES, rows=rows)
    return Section(title="Why this and not that", tables=(table,))


def _alternative(plan: Plan, bill: Bill, other: Alternative) -> tuple[str, ...]:
    if other.usd is None:
        cost, difference = "-", "-"
    else:
        more = other.usd - float(bill.total_usd)
        share = f" ({more / float(bill.total_usd):+.1%})" if bill.total_usd else ""
        cost, difference = wording.usd(other.usd), f"{more:+,.2f}{share}"
    finish = "-" if other.finish_s is None else wording.moment(plan, other.finish_s)
    return other.kind, other.name, cost, difference, finish, other.reason


def limits(plan: Plan) -> Section:
    """Every limit of the case and how much of it the plan uses."""
    if not plan.limits:
        return Section(title="Limits", paragraphs=("The case sets no limit.",))
    rows = tuple(_limit(use) for use in plan.limits)
    return Section(title="Limits", tables=(Table(title="Use of limits", columns=LIMITS, rows=rows),))


def _limit(use: LimitUse) -> tuple[str, ...]:
    return (
        use.limit,
        wording.limit_amount(use.used, use.unit),
        wording.limit_amount(use.allowed, use.unit),
        wording.percent(use.used / use.allowed) if use.allowed else "-",
        "yes" if use.binding else "no",
    )


def removed(plan: Plan) -> Section | None:
    """What was ruled out before the choice, by rule, the largest first."""
    rows = sorted((row for row in plan.removed if row.count), key=_removed_rank)
    if not rows:
        return None
    return Section(
        title="Ruled out",
        tables=(
            Table(
                title="Configurations by rule",
                columns=REMOVED,
                rows=tuple((row.task or POOLS, f"{row.count:,}", row.rule) for row in rows),
            ),
        ),
    )


def _removed_rank(row: Removed) -> tuple[str, int, str]:
    return row.task, -row.count, row.rule
