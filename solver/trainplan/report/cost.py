"""What it costs: every line, and the same money by category, task, label and fixed or elastic."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from decimal import Decimal

from trainplan.report import wording
from trainplan.report.bill import Bill
from trainplan.report.document import Column, Section, Table
from trainplan_models.plan import CostLine, Plan

PROGRAMME = "(programme)"
UNLABELLED = "(none)"

LINES = (
    Column("Category"),
    Column("Task"),
    Column("Item", wraps=True),
    Column("Quantity", numeric=True),
    Column("Unit"),
    Column("USD/unit", numeric=True),
    Column("USD", numeric=True),
    Column("Kind"),
)


def cost(plan: Plan, bill: Bill) -> Section:
    """The bill, line by line and grouped; every table ends in the same total."""
    total = wording.usd(bill.total_usd)
    notes = []
    if bill.zero_lines:
        notes.append(f"{bill.zero_lines} lines that cost nothing are left out.")
    lines = Table(
        title="Line items",
        columns=LINES,
        rows=tuple(_line(line, amount) for line, amount in bill.lines),
        total=("Total", "", "", "", "", "", total, ""),
        note=" ".join(notes),
    )
    groups = [
        _grouped("By category", "Category", bill, bill.grouped(lambda line: line.category)),
        _grouped("By task", "Task", bill, bill.grouped(lambda line: line.task or PROGRAMME)),
        _grouped("Fixed and elastic", "Kind", bill, bill.grouped(_kind)),
    ]
    for label in label_keys(plan):
        groups.append(_grouped(f"By label: {label}", label, bill, bill.grouped(_owner(plan, label))))
    paragraphs: tuple[str, ...] = ()
    if bill.uncharged:
        paragraphs = (f"Nothing is charged for: {', '.join(bill.uncharged)}.",)
    return Section(title="Cost", paragraphs=paragraphs, tables=(lines, *groups))


def _line(line: CostLine, amount: Decimal) -> tuple[str, ...]:
    return (
        line.category,
        line.task or PROGRAMME,
        line.item,
        wording.number(line.quantity),
        line.unit,
        wording.number(line.unit_usd),
        wording.usd(amount),
        _kind(line),
    )


def _kind(line: CostLine) -> str:
    return "fixed" if line.fixed else "elastic"


def _grouped(title: str, heading: str, bill: Bill, groups: Iterable[tuple[str, Decimal]]) -> Table:
    def share(amount: Decimal) -> str:
        return wording.percent(float(amount / bill.total_usd)) if bill.total_usd else ""

    return Table(
        title=title,
        columns=(Column(heading), Column("USD", numeric=True), Column("Share", numeric=True)),
        rows=tuple((name, wording.usd(amount), share(amount)) for name, amount in groups),
        total=("Total", wording.usd(bill.total_usd), share(bill.total_usd)),
    )


def task_labels(plan: Plan) -> dict[str, dict[str, str]]:
    """Labels of every task of the case: its own over the programme's."""
    return {
        str(task.get("name", "")): {**plan.labels, **(task.get("labels") or {})}
        for task in plan.case.get("tasks", ())
    }


def label_keys(plan: Plan) -> list[str]:
    """Every label key in use, the programme's first."""
    keys = dict.fromkeys(plan.labels)
    for labels in task_labels(plan).values():
        keys.update(dict.fromkeys(labels))
    return list(keys)


def _owner(plan: Plan, key: str) -> Callable[[CostLine], str]:
    """Who a cost line belongs to under one label: its task's value, else the programme's."""
    programme = plan.labels.get(key, UNLABELLED)
    by_task = {task: labels.get(key, UNLABELLED) for task, labels in task_labels(plan).items()}
    return lambda line: by_task.get(line.task, programme)
