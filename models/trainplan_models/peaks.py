"""What a plan asks of its pools at the busiest moment: accelerators, storage, writes and reads.

Between two events (a segment or an object begins or ends) everything is constant or grows evenly, so
looking at the moments of the events finds every peak.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from trainplan_models import storage
from trainplan_models.at_work import SAME_TIME_S, running
from trainplan_models.over_time import offered_nodes, periods
from trainplan_models.plan import Peak, Plan, Segment

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

ACCELERATORS, STORED, WRITES, READS = "accelerators", "storage", "checkpoint writes", "data reads"
UNITS = {ACCELERATORS: "accelerators", STORED: "bytes", WRITES: "bytes/s", READS: "bytes/s"}
EVERYWHERE = ""


@dataclass(frozen=True, slots=True)
class Stored:
    """Bytes of one kind that lie on a tier for a time; they grow evenly up to ``full_s``."""

    task: str
    pool: str
    what: str
    tier: str
    start_s: float
    full_s: float
    end_s: float
    size_bytes: float
    """Once it is full."""

    def bytes_at(self, moment_s: float) -> float:
        """Bytes that lie there at a moment."""
        if not self.start_s <= moment_s < self.end_s:
            return 0.0
        grown_s = self.full_s - self.start_s
        return self.size_bytes * (1.0 if grown_s <= 0.0 else min(1.0, (moment_s - self.start_s) / grown_s))

    def byte_seconds(self, start_s: float, end_s: float) -> float:
        """Bytes times seconds within a span."""
        cuts = sorted(
            {max(start_s, self.start_s), min(max(start_s, self.full_s), end_s), min(end_s, self.end_s)}
        )
        # Even growth: the mean over a part is the value in its middle.
        return sum(
            self.bytes_at((a + b) / 2.0) * (b - a) for a, b in zip(cuts, cuts[1:], strict=False) if b > a
        )


@dataclass(frozen=True, slots=True)
class Demand:
    """Peak and average of what all pools together are asked for in one period."""

    start_s: float
    end_s: float
    peak: dict[str, float]
    """By kind, in the unit of ``UNITS``."""
    average: dict[str, float]


def stored(plan: Plan) -> tuple[Stored, ...]:
    """Everything the plan keeps, from when to when."""
    keep_s = plan.case.get("checkpoints", {}).get("keep_for_s")
    found: list[Stored] = []
    for place in plan.placements:
        runs = [s for s in plan.segments if s.leads and (s.task, s.pool) == (place.task, place.pool)]
        runs = runs or [s for s in plan.segments if s.task == place.task]
        if not runs or place.what == "logs":
            continue
        if place.what == "dataset":
            regions = {(s.cloud, s.region) for s in runs}
            runs = [s for s in plan.segments if s.task == place.task and (s.cloud, s.region) in regions]
        else:
            # One placement a segment; they come in the order of the segments.
            before = [f for f in found if (f.task, f.pool, f.what) == (place.task, place.pool, place.what)]
            runs = [runs[min(len(before), len(runs) - 1)]]
        start, end = min(s.start_s for s in runs), max(s.end_s for s in runs)
        last, size = end, place.size_bytes
        if place.what == "milestones":
            last = end + place.held_s
            if keep_s is not None and keep_s < end - start:
                size *= keep_s / (end - start)
        found.append(
            Stored(
                task=place.task,
                pool=place.pool,
                what=place.what,
                tier=place.tier,
                start_s=start,
                full_s=min(start + size / place.size_bytes * (end - start), end)
                if place.what == "milestones" and place.size_bytes > 0.0
                else start,
                end_s=last,
                size_bytes=size,
            )
        )
    return tuple(found)


def write_bytes_per_s(segment: Segment) -> float:
    """While a checkpoint is on its way to where it is durable."""
    saved = segment.checkpoint
    return saved.size_bytes / saved.persist_s if saved.persist_s > 0.0 else 0.0


def average_write_bytes_per_s(segment: Segment) -> float:
    """Over the whole segment."""
    saved = segment.checkpoint
    cycle_s = saved.interval_s + saved.blocking_s
    return saved.size_bytes / cycle_s * segment.paid_frac if cycle_s > 0.0 else 0.0


def read_bytes_per_s(plan: Plan, segment: Segment) -> float:
    """What a segment reads of its dataset while it trains."""
    task: dict[str, Any] = next((t for t in plan.case.get("tasks", ()) if t.get("name") == segment.task), {})
    dataset = task.get("dataset")
    if not dataset or segment.work_frac <= 0.0 or segment.tokens <= 0.0:
        return 0.0
    tokens_a_round = segment.tokens / segment.work_frac / (task.get("rounds") or 1)
    size = float(dataset.get("size_bytes") or 0.0) * float(dataset.get("format_factor") or 1.0)
    return size / tokens_a_round * segment.tokens_per_s


def _asked(plan: Plan, kind: str, segments: Iterable[Segment], kept: Iterable[Stored], at_s: float) -> float:
    if kind == STORED:
        return sum(item.bytes_at(at_s) for item in kept if at_s < item.end_s - SAME_TIME_S)
    at_work = running(segments, at_s)
    if kind == ACCELERATORS:
        return float(sum((s.nodes + s.spare_nodes) * s.accelerators_per_node for s in at_work))
    if kind == WRITES:
        return sum(write_bytes_per_s(s) for s in at_work)
    return sum(read_bytes_per_s(plan, s) for s in at_work)


def _mean(
    plan: Plan, kind: str, segments: Sequence[Segment], kept: Iterable[Stored], span: tuple[float, float]
) -> float:
    start, end = span
    if kind == STORED:
        return sum(item.byte_seconds(start, end) for item in kept) / (end - start)
    total = 0.0
    for s in segments:
        inside_s = max(0.0, min(end, s.end_s) - max(start, s.start_s))
        if kind == ACCELERATORS:
            total += (s.nodes + s.spare_nodes) * s.accelerators_per_node * inside_s
        elif kind == WRITES:
            total += average_write_bytes_per_s(s) * inside_s
        else:
            total += read_bytes_per_s(plan, s) * s.goodput_frac * inside_s
    return total / (end - start)


def _moments(segments: Iterable[Segment], kept: Iterable[Stored]) -> list[float]:
    found = {t for s in segments for t in (s.start_s, s.end_s)}
    # Just before an object goes, it is at its fullest.
    for item in kept:
        found |= {item.start_s, item.full_s, math.nextafter(item.end_s - SAME_TIME_S, 0.0)}
    return sorted(found)


def demand_by_week(plan: Plan) -> tuple[Demand, ...]:
    """Peak and average of each kind in each period, over all pools."""
    kept = stored(plan)
    moments = _moments(plan.segments, kept)
    found = []
    for start, end in periods(plan):
        inside = [start, *(t for t in moments if start < t < end), math.nextafter(end, 0.0)]
        found.append(
            Demand(
                start_s=start,
                end_s=end,
                peak={k: max(_asked(plan, k, plan.segments, kept, t) for t in inside) for k in UNITS},
                average={k: _mean(plan, k, plan.segments, kept, (start, end)) for k in UNITS},
            )
        )
    return tuple(found)


def peaks(plan: Plan, catalog: Catalog) -> tuple[Peak, ...]:
    """Peak and average of each kind over the whole plan, for all pools together and for each.

    Args:
        plan: segments, placements and purchases are read.
        catalog: what tiers offer.
    """
    kept = stored(plan)
    found = []
    for pool in (EVERYWHERE, *sorted({s.pool for s in plan.segments})):
        segments = [s for s in plan.segments if pool in (EVERYWHERE, s.pool)]
        items = [item for item in kept if pool in (EVERYWHERE, item.pool)]
        span = (0.0, max(plan.finish_s, 1.0))
        for kind, unit in UNITS.items():
            asked = [(_asked(plan, kind, segments, items, t), -t) for t in _moments(segments, items)]
            peak, minus_at = max(asked, default=(0.0, 0.0))
            if peak <= 0.0:
                continue
            offered = None if pool == EVERYWHERE else _offered(plan, catalog, kind, pool, -minus_at)
            found.append(
                Peak(
                    what=kind,
                    pool=pool,
                    unit=unit,
                    peak=peak,
                    average=_mean(plan, kind, segments, items, span),
                    at_s=-minus_at,
                    offered=offered,
                )
            )
    return tuple(found)


def _offered(plan: Plan, catalog: Catalog, kind: str, pool: str, at_s: float) -> float | None:
    """What a pool offers of a kind at a moment; None where nothing limits it or it is not known."""
    there = [s for s in running(plan.segments, at_s) if s.pool == pool]
    if kind == ACCELERATORS:
        modes = {s.mode for s in there}
        nodes = sum(offered_nodes(plan, pool, mode, at_s) for mode in modes)
        per_node = max((s.accelerators_per_node for s in there), default=0)
        return nodes * per_node if math.isfinite(nodes) else None
    if kind == STORED:
        return storage_free_bytes(plan, pool)
    at_work = [s for s in there if s.leads]
    return sum(_throughput(plan, catalog, kind, s) for s in at_work) if at_work else None


def storage_free_bytes(plan: Plan, pool: str) -> float | None:
    """Storage that an owned pool has room for; None where the case does not say."""
    for owned in plan.case.get("resources", {}).get("owned", ()):
        if owned["name"] == pool:
            free = owned.get("storage_free_bytes")
            return None if free is None else float(free)
    return None


def _throughput(plan: Plan, catalog: Catalog, kind: str, segment: Segment) -> float:
    """What the tier of a segment's checkpoints, or of its dataset, gives its nodes."""
    what = "checkpoints" if kind == WRITES else "dataset"
    place = next((p for p in plan.placements if (p.task, p.what) == (segment.task, what)), None)
    name = segment.checkpoint.target if place is None or kind == WRITES else place.tier
    if not name:
        return math.inf
    tier = storage.find_tier(catalog, name, segment.region)
    capacity = 0.0 if place is None else place.size_bytes
    speed = storage.speeds(catalog)
    return float(storage.throughput_bytes_per_s(tier, segment.nodes, capacity, speed, write=kind == WRITES))
