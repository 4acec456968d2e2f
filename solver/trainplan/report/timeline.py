"""The plan over time: a Gantt chart, the use of each pool, peaks, and the budget line by week."""

from __future__ import annotations

import math

from trainplan.report import wording
from trainplan.report.document import Column, Section, Table
from trainplan_models.over_time import Bar, PoolUse, end_of, gantt, pool_use, spend_by_week
from trainplan_models.peaks import READS, STORED, UNITS, WRITES, demand_by_week
from trainplan_models.plan import Peak, Plan

DAY_S = 86_400.0
CELLS = 48
FULL, PARTLY, IDLE, NOTHING = "#", "+", "-", "."
FULL_FRAC, LEAST_FRAC = 0.995, 0.005
ALARM_FRAC = 0.20
"""How far above its planned peak storage or traffic has to be before it is an alarm."""

GANTT = (Column("What"), Column("Nodes", numeric=True), Column("From"), Column("To"), Column("Bar"))
POOL_USE = (
    Column("Pool"),
    Column("Billing"),
    Column("From"),
    Column("To"),
    Column("Average nodes", numeric=True),
    Column("Peak nodes", numeric=True),
    Column("Average there", numeric=True),
    Column("Not used", numeric=True),
)
PEAKS = (
    Column("What"),
    Column("Pool"),
    Column("Peak", numeric=True),
    Column("Average", numeric=True),
    Column("Offered", numeric=True),
    Column("Peak reached"),
    Column("Remark"),
)
DEMAND = (
    Column("From"),
    Column("Accelerators, peak", numeric=True),
    Column("average", numeric=True),
    Column("Storage, peak", numeric=True),
    Column("average", numeric=True),
    Column("Writes, peak", numeric=True),
    Column("average", numeric=True),
    Column("Reads, peak", numeric=True),
    Column("average", numeric=True),
)
SPEND = (
    Column("From"),
    Column("To"),
    Column("USD", numeric=True),
    Column("Sum USD", numeric=True),
    Column("Warn above USD", numeric=True),
    Column("Stop above USD", numeric=True),
    Column("Mostly for"),
)


def timeline(plan: Plan) -> Section | None:
    """What runs and is bought when, and how far it is used."""
    if not plan.segments:
        return None
    bars = gantt(plan, CELLS)
    cell_s = end_of(plan) / CELLS
    chart = Table(
        title="Gantt chart",
        columns=GANTT,
        rows=tuple(_bar_row(plan, bar) for bar in bars),
        note=(
            f"One character is {wording.duration(cell_s)}. {FULL} all nodes at work, {PARTLY} some of them or "
            f"part of the time, {IDLE} bought and not used, {NOTHING} nothing there."
        ),
    )
    use = Table(
        title="Use of each pool",
        columns=POOL_USE,
        rows=tuple(_use_row(plan, *run) for run in _runs(pool_use(plan))),
        note="Nodes with spares. Weeks alike are one row. There: bought, owned, granted or within quota.",
    )
    return Section(title="Timeline", tables=(chart, use))


def _bar_row(plan: Plan, bar: Bar) -> tuple[str, ...]:
    return (
        bar.name,
        f"{max(bar.there_nodes, default=0.0):,.0f}",
        wording.moment(plan, bar.start_s),
        wording.moment(plan, bar.end_s),
        bar_text(bar),
    )


def bar_text(bar: Bar) -> str:
    """One character a cell."""
    most = max(bar.there_nodes, default=0.0)
    text = ""
    for there, used in zip(bar.there_nodes, bar.used_nodes, strict=True):
        if there <= LEAST_FRAC * most:
            text += NOTHING
        elif bar.purchase and used <= LEAST_FRAC * there:
            text += IDLE
        else:
            text += FULL if used >= FULL_FRAC * most else PARTLY
    return text


def _runs(uses: tuple[PoolUse, ...]) -> list[tuple[PoolUse, PoolUse]]:
    """First and last of periods that follow each other and are alike."""
    runs: list[tuple[PoolUse, PoolUse]] = []
    for use in uses:
        if runs:
            first, last = runs[-1]
            alike = (last.pool, last.mode, last.peak_nodes, last.offered_nodes)
            same = alike == (use.pool, use.mode, use.peak_nodes, use.offered_nodes)
            if same and last.end_s == use.start_s and abs(use.average_nodes - last.average_nodes) < 0.05:
                runs[-1] = (first, use)
                continue
        runs.append((use, use))
    return runs


def _use_row(plan: Plan, first: PoolUse, last: PoolUse) -> tuple[str, ...]:
    there = f"{first.offered_nodes:,.1f}" if math.isfinite(first.offered_nodes) else "no limit"
    return (
        first.pool,
        first.mode,
        wording.moment(plan, first.start_s),
        wording.moment(plan, last.end_s),
        f"{first.average_nodes:,.1f}",
        str(first.peak_nodes),
        there,
        f"{first.idle_nodes:,.1f}" if math.isfinite(first.offered_nodes) else "-",
    )


def peaks(plan: Plan) -> Section | None:
    """The busiest moments, against what the pools offer, and what each week asks for."""
    if not plan.segments:
        return None
    tables = []
    if plan.peaks:
        rows = tuple(_peak_row(plan, peak) for peak in plan.peaks)
        tables.append(Table(title="Peaks by pool", columns=PEAKS, rows=rows))
    weeks = demand_by_week(plan)
    rows = tuple(
        (
            wording.moment(plan, week.start_s),
            *(
                _amount(amount, UNITS[kind])
                for kind in UNITS
                for amount in (week.peak[kind], week.average[kind])
            ),
        )
        for week in weeks
    )
    tables.append(Table(title="Asked for by week", columns=DEMAND, rows=rows))
    over = [peak for peak in plan.peaks if exceeds(peak)]
    paragraphs = [
        f"{peak.what} of {peak.pool}: {_amount(peak.peak, peak.unit)} are asked for and "
        f"{_amount(peak.offered or 0.0, peak.unit)} offered."
        for peak in over
    ] or ["No peak is above what its pool is known to offer."]
    return Section(title="Peaks", paragraphs=tuple(paragraphs), tables=tuple(tables))


def exceeds(peak: Peak) -> bool:
    """Whether more is asked of a pool than it offers."""
    return peak.offered is not None and peak.peak > peak.offered * (1.0 + 1e-6)


def _peak_row(plan: Plan, peak: Peak) -> tuple[str, ...]:
    offered = "not limited" if peak.offered is None else _amount(peak.offered, peak.unit)
    return (
        peak.what,
        peak.pool or "all together",
        _amount(peak.peak, peak.unit),
        _amount(peak.average, peak.unit),
        offered if peak.pool else "-",
        wording.moment(plan, peak.at_s),
        "more than is offered" if exceeds(peak) else "",
    )


def _amount(value: float, unit: str) -> str:
    if unit == "accelerators":
        return f"{value:,.0f}"
    if math.isinf(value):
        return "not limited"
    return f"{wording.size(value)}/s" if unit == "bytes/s" else wording.size(value)


def budget_line(plan: Plan) -> Section | None:
    """Spend by week, the lines to hold it against, and the alarms."""
    if not plan.cost_lines or not plan.segments:
        return None
    rows = []
    weeks = spend_by_week(plan)
    for week in weeks:
        most = max(week.by_category_usd, key=lambda name: week.by_category_usd[name], default="")
        rows.append(
            (
                wording.moment(plan, week.start_s),
                wording.moment(plan, week.end_s),
                wording.usd(week.usd),
                wording.usd(week.cumulative_usd),
                wording.usd(week.warning_usd),
                wording.usd(week.stop_usd),
                most,
            )
        )
    table = Table(
        title="Spend by week",
        columns=SPEND,
        rows=tuple(rows),
        total=("Total", "", wording.usd(weeks[-1].cumulative_usd), "", "", "", ""),
        note=(
            "Counted when it is paid: purchases up front or over their term, used or not. Above the stop line "
            "the budget left does not pay for the rest of the plan; the warning line is half way there."
        ),
    )
    return Section(title="Budget line", facts=tuple(_alarms(plan)), tables=(table,))


def _alarms(plan: Plan) -> list[tuple[str, str]]:
    facts = []
    budget = plan.case.get("budget_usd")
    if budget is None:
        facts.append(("Budget", "none given; the stop line is 10 % above the plan"))
    else:
        facts.append(("Budget", f"{wording.usd(budget)} USD"))
    for peak in plan.peaks:
        if not peak.pool and peak.what in (STORED, WRITES, READS):
            level = _amount(peak.peak * (1.0 + ALARM_FRAC), peak.unit)
            facts.append((f"Alarm for {peak.what}", f"above {level}"))
    traffic_gb = sum(
        line.quantity for line in plan.cost_lines if (line.category, line.unit) == ("network", "GB")
    )
    if traffic_gb > 0.0:
        level = wording.size(traffic_gb * 1e9 * (1.0 + ALARM_FRAC))
        facts.append(("Alarm for paid traffic", f"above {level} in all"))
    return facts
