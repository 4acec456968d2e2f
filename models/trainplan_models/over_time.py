"""A plan laid out over time: spend and nodes by week, and the bars of a Gantt chart.

Money is counted when it is paid. What is used by the hour is paid while it runs; of a purchase, the part
up front on its first day and the rest evenly over its term, used or not; what belongs to the programme
evenly until it ends. The weeks add up to the total of the plan, to the cent.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainplan_models import costs
from trainplan_models.accounting import purchase_item
from trainplan_models.at_work import SAME_TIME_S
from trainplan_models.plan import CostLine, Plan, Purchase, Segment

DAY_S = 86400.0
WEEK_S = 7.0 * DAY_S
MOST_PERIODS = 60
WEEKS_A_PERIOD = (1, 4, 13, 52)
RESERVE_FRAC = 0.10
"""How far above the plan the stop line lies where the case has no budget."""

Span = tuple[float, float, float]
"""Start and end in seconds from day 0, and the weight of the span."""
Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Spend:
    """What one period costs, and the lines to hold it against.

    Above ``stop_usd``, what is left of the budget does not pay for the rest of the plan any more;
    ``warning_usd`` lies half way there. Both are sums from day 0, like ``cumulative_usd``.
    """

    start_s: float
    end_s: float
    usd: float
    cumulative_usd: float
    warning_usd: float
    stop_usd: float
    by_category_usd: dict[str, float]
    by_task_usd: dict[str, float]


@dataclass(frozen=True, slots=True)
class PoolUse:
    """Nodes of one pool under one billing mode in one period, spares included."""

    pool: str
    mode: str
    start_s: float
    end_s: float
    average_nodes: float
    peak_nodes: int
    offered_nodes: float
    """Average of what is there: bought, owned, granted or within quota; ``inf`` where nothing limits it."""

    @property
    def idle_nodes(self) -> float:
        """What is there and not used, on average; 0 where nothing limits what is there."""
        return max(0.0, self.offered_nodes - self.average_nodes) if math.isfinite(self.offered_nodes) else 0.0


@dataclass(frozen=True, slots=True)
class Bar:
    """One row of a Gantt chart: how many nodes are there and in use in each of equally long cells."""

    name: str
    purchase: bool
    start_s: float
    end_s: float
    there_nodes: tuple[float, ...]
    """Average over each cell; of a segment, what it uses."""
    used_nodes: tuple[float, ...]


# Periods


def end_of(plan: Plan) -> float:
    """Seconds from day 0 until nothing runs and nothing is paid any more."""
    return max([plan.finish_s, *(buy.end_s for buy in plan.purchases)])


def periods(plan: Plan) -> tuple[tuple[float, float], ...]:
    """Weeks from day 0 (start, end in seconds); of a long plan, several weeks together."""
    end_s = max(end_of(plan), SAME_TIME_S)
    weeks = next(
        (n for n in WEEKS_A_PERIOD if math.ceil(end_s / (n * WEEK_S)) <= MOST_PERIODS), WEEKS_A_PERIOD[-1]
    )
    length_s = weeks * WEEK_S
    starts = [k * length_s for k in range(max(1, math.ceil(end_s / length_s - 1e-9)))]
    return tuple((start, min(start + length_s, end_s)) for start in starts)


def _shares(spans: Sequence[Span], edges: Floats) -> Floats:
    """Share of the spans' weight that falls before each edge; instants fall where they begin."""
    start, end, weight = (np.array(column, dtype=float) for column in zip(*spans, strict=True))
    length = np.maximum(end - start, 1e-9)
    passed = np.clip((edges[:, None] - start[None, :]) / length[None, :], 0.0, 1.0)
    return np.asarray(passed @ weight / weight.sum())


# Spend


def spend_by_week(plan: Plan) -> tuple[Spend, ...]:
    """What is paid in each period, with the warning and the stop line."""
    spans = periods(plan)
    edges = np.array([spans[0][0], *(end for _, end in spans)])
    # What is paid at the very start is paid in the first period, at the very end in the last.
    edges[0], edges[-1] = -1.0, edges[-1] + 1.0
    line_shares = [(line, np.diff(_shares(line_spans(plan, line), edges))) for line in plan.cost_lines]
    paid = sum((line.usd * share for line, share in line_shares), np.zeros(len(spans)))
    cumulative = np.round(np.cumsum(paid), 2)
    budget = plan.case.get("budget_usd")
    reserve = RESERVE_FRAC * plan.total_usd if budget is None else max(0.0, budget - plan.total_usd)

    def grouped(key: Callable[[CostLine], str], at: int) -> dict[str, float]:
        sums: dict[str, float] = {}
        for line, share in line_shares:
            if share[at] > 0.0:
                sums[key(line)] = sums.get(key(line), 0.0) + line.usd * float(share[at])
        return sums

    return tuple(
        Spend(
            start_s=start,
            end_s=end,
            usd=round(float(cumulative[k] - (cumulative[k - 1] if k else 0.0)), 2),
            cumulative_usd=float(cumulative[k]),
            warning_usd=round(float(cumulative[k]) + reserve / 2.0, 2),
            stop_usd=round(float(cumulative[k]) + reserve, 2),
            by_category_usd=grouped(lambda line: line.category, k),
            by_task_usd=grouped(lambda line: line.task, k),
        )
        for k, (start, end) in enumerate(spans)
    )


def line_spans(plan: Plan, line: CostLine) -> list[Span]:
    """When a cost line is paid; never empty."""
    bought = [buy for buy in plan.purchases if line.item == purchase_item(buy, plan.purchases)]
    if bought and line.unit == "node-hour" and line.fixed:
        return [span for buy in bought for span in payments(buy)]
    if line.category == costs.DELAY:
        return [(plan.finish_s - line.quantity * DAY_S, plan.finish_s, 1.0)]
    if line.category == costs.MIGRATION:
        starts = [s.start_s for s in plan.segments if s.cloud == line.item]
        return [(min(starts, default=0.0), min(starts, default=0.0), 1.0)]
    runs = [s for s in plan.segments if s.task == line.task]
    named = [s for s in runs if _names(line.item, s.pool)] or runs
    if named:
        if line.category == costs.NETWORK and line.unit == "GB":
            first_s = min(s.start_s for s in named)
            return [(first_s, first_s, 1.0)]
        if line.unit == "node-hour":
            billed = [s for s in named if s.on_the_bill == line.item] or named
            paid = [span for s in billed for span, usd in _priced(s) if math.isclose(usd, line.unit_usd)]
            return paid or [(s.start_s, s.end_s, _weight(s)) for s in billed]
        if line.category == costs.EXPERIMENTS and all(s.usd_per_node_h for s in named):
            return [(a, b, max(w * usd, 1e-9)) for s in named for (a, b, w), usd in _priced(s)]
        return [(s.start_s, s.end_s, _weight(s)) for s in named]
    times = [time for time in plan.tasks if time.task == line.task]
    if times:
        return [(times[0].start_s, times[0].start_s, 1.0)]
    return [(0.0, max(plan.finish_s, 0.0), 1.0)]


def _names(item: str, name: str) -> bool:
    return name in item


def _weight(segment: Segment) -> float:
    lasted_s = max(segment.end_s - segment.start_s, 1e-9)
    return max((segment.nodes + segment.spare_nodes) * lasted_s * segment.paid_frac, 1e-9)


def _priced(segment: Segment) -> list[tuple[Span, float]]:
    """The spans of a segment with the price of a node in each; what is not paid by the hour counts as 1."""
    starts = [price.start_s for price in segment.prices] or [segment.start_s]
    usd = [price.usd_per_node_h for price in segment.prices] or [segment.usd_per_node_h or 1.0]
    whole = max(segment.end_s - segment.start_s, 1e-9)
    return [
        ((a, b, _weight(segment) * (b - a) / whole), at_usd)
        for a, b, at_usd in zip(starts, [*starts[1:], segment.end_s], usd, strict=True)
    ]


def payments(buy: Purchase) -> list[Span]:
    """When a purchase is paid: the part up front on its first day, the rest evenly over its term."""
    rest = max(buy.usd - buy.upfront_usd, 0.0)
    spans = [(buy.start_s, buy.start_s, buy.upfront_usd), (buy.start_s, buy.end_s, rest)]
    return [span for span in spans if span[2] > 0.0] or [(buy.start_s, buy.end_s, 1.0)]


# Nodes


def nodes_in_use(segments: Iterable[Segment], moments: Floats) -> NDArray[np.int64]:
    """Nodes at work, spares included, right after each moment."""
    found = np.zeros(len(moments), dtype=np.int64)
    for s in segments:
        found += ((moments >= s.start_s) & (moments < s.end_s - SAME_TIME_S)) * (s.nodes + s.spare_nodes)
    return found


def pool_use(plan: Plan) -> tuple[PoolUse, ...]:
    """Use of each pool and mode in each period in which it is used or bought."""
    found = []
    keys = sorted({(s.pool, s.mode) for s in plan.segments} | {(b.pool, b.mode) for b in plan.purchases})
    for pool, mode in keys:
        segments = [s for s in plan.segments if (s.pool, s.mode) == (pool, mode)]
        purchases = [b for b in plan.purchases if (b.pool, b.mode) == (pool, mode)]
        spans = [(s.start_s, s.end_s) for s in segments] + [(b.start_s, b.end_s) for b in purchases]
        for start, end in periods(plan):
            if not any(a < end and b > start for a, b in spans):
                continue
            node_s = sum(
                (s.nodes + s.spare_nodes) * max(0.0, min(end, s.end_s) - max(start, s.start_s))
                for s in segments
            )
            inside = np.array([start, *(s.start_s for s in segments if start < s.start_s < end)])
            found.append(
                PoolUse(
                    pool=pool,
                    mode=mode,
                    start_s=start,
                    end_s=end,
                    average_nodes=node_s / (end - start),
                    peak_nodes=int(nodes_in_use(segments, inside).max(initial=0)),
                    offered_nodes=_average_offered(plan, pool, mode, start, end),
                )
            )
    return tuple(found)


def _average_offered(plan: Plan, pool: str, mode: str, start: float, end: float) -> float:
    """Nodes there on average over a period."""
    cuts = sorted({start, end, *(t for t in _steps(plan, pool) if start < t < end)})
    parts = [(b - a, offered_nodes(plan, pool, mode, a)) for a, b in itertools.pairwise(cuts)]
    return sum(length_s * nodes for length_s, nodes in parts) / (end - start)


def _steps(plan: Plan, pool: str) -> list[float]:
    """When what is there of an owned pool changes, or a purchase begins or ends."""
    found = [t for b in plan.purchases if b.pool == pool for t in (b.start_s, b.end_s)]
    for owned in plan.case.get("resources", {}).get("owned", ()):
        if owned["name"] == pool:
            found += [_seconds(entry["since"], plan.start) for entry in owned.get("free") or ()]
    return found


def offered_nodes(plan: Plan, pool: str, mode: str, at_s: float) -> float:
    """Nodes of a pool that are there under a mode at a moment; ``inf`` where nothing limits them."""
    bought = [b for b in plan.purchases if (b.pool, b.mode) == (pool, mode)]
    if bought:
        return float(sum(b.nodes * b.count for b in bought if b.start_s <= at_s < b.end_s))
    resources: Mapping[str, Any] = plan.case.get("resources", {})
    for owned in resources.get("owned", ()):
        if owned["name"] == pool:
            nodes = float(owned["nodes"])
            steps = [(_seconds(e["since"], plan.start), float(e["nodes"])) for e in owned.get("free") or ()]
            if steps:
                reached = [count for since, count in sorted(steps) if since <= at_s + SAME_TIME_S]
                nodes = reached[-1] if reached else 0.0
            return nodes
    for grant in resources.get("grants", ()):
        if grant["name"] == pool:
            return float(grant["nodes"])
    for quota in resources.get("quotas", ()):
        if quota["pool"] == pool:
            limit = quota.get(mode.replace("-", "_"))
            return math.inf if limit is None else float(limit)
    return math.inf


def _seconds(when: float | str, start: str | None) -> float:
    if not isinstance(when, str):
        return float(when)
    origin = date.fromisoformat(start) if start else date.fromisoformat(when)
    return (datetime.fromisoformat(when).date() - origin).days * DAY_S


# Bars


def gantt(plan: Plan, cells: int) -> tuple[Bar, ...]:
    """A bar for each segment, then one for each purchase, over ``cells`` equal parts of the whole time.

    Args:
        plan: what is drawn.
        cells: number of parts, at least 1.
    """
    edges = np.linspace(0.0, max(end_of(plan), SAME_TIME_S), cells + 1)
    bars = []
    for s in plan.segments:
        used = tuple(float(v) for v in (s.nodes + s.spare_nodes) * _cover(s.start_s, s.end_s, edges))
        bars.append(Bar(f"{s.task}: {s.pool} {s.mode}", False, s.start_s, s.end_s, used, used))
    for key in dict.fromkeys((b.pool, b.mode, b.start_s, b.end_s) for b in plan.purchases):
        pool, mode, start, end = key
        here = [b for b in plan.purchases if (b.pool, b.mode) == (pool, mode)]
        count = sum(b.nodes * b.count for b in here if (b.start_s, b.end_s) == (start, end))
        there = count * _cover(start, end, edges)
        everything = sum((b.nodes * b.count * _cover(b.start_s, b.end_s, edges) for b in here), 0.0 * there)
        runs = [s for s in plan.segments if (s.pool, s.mode) == (pool, mode)]
        use = sum(((s.nodes + s.spare_nodes) * _cover(s.start_s, s.end_s, edges) for s in runs), 0.0 * there)
        at_work = np.minimum(there, use * there / np.maximum(everything, 1e-9))
        bars.append(
            Bar(f"buy {mode} {pool}", True, start, end, tuple(map(float, there)), tuple(map(float, at_work)))
        )
    return tuple(bars)


def _cover(start_s: float, end_s: float, edges: Floats) -> Floats:
    """Share of each cell that a span covers."""
    inside = np.minimum(end_s, edges[1:]) - np.maximum(start_s, edges[:-1])
    return np.asarray(np.clip(inside, 0.0, None) / np.diff(edges))
