"""The bill of a plan, from its segments, purchases and placements alone.

Nothing here comes from the optimization: prices are looked up again in the catalogue, hours are those of
the segments. The quantities are

* **node-hours** of a segment: ``(nodes + spare_nodes) * (end - start) * paid_frac * expected_frac``;
* **programme days**: ``finish_s / 86400``;
* **used** node-hours of a commitment: what the segments in its pool and mode need, hour by hour, shared
  among the purchases in proportion to their nodes, and among tasks in proportion to what they run.

Each line is rounded to the cent, so that the total is the sum of what is printed.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

from trainplan_models import costs, network, storage
from trainplan_models.bill import Bill
from trainplan_models.checkpoint import weights_bytes
from trainplan_models.node_prices import price_over_time, segment_price, usd_per_node_h
from trainplan_models.plan import CostLine, Placement, Plan, Purchase, Segment
from trainplan_models.reliability import DAY_S, HOUR_S

if TYPE_CHECKING:
    from trainplan_models.case import Case, Task
    from trainplan_models.catalog import Catalog

_SAME_TIME_S = 1.0


def total_usd(lines: Iterable[CostLine]) -> float:
    """Sum of the lines, to the cent."""
    return round(math.fsum(line.usd for line in lines), 2)


def node_hours(segment: Segment) -> float:
    """Node-hours of a segment that are expected to be paid for, spares and set-up included."""
    hours = (segment.end_s - segment.start_s) / HOUR_S
    return (segment.nodes + segment.spare_nodes) * hours * segment.paid_frac * segment.expected_frac


def account(plan: Plan, case: Case, catalog: Catalog) -> list[CostLine]:
    """Every cost line of a plan, in the order of ``costs.CATEGORIES``.

    Args:
        plan: segments, purchases, placements and finish time are read; its cost lines are not.
        case: what was asked.
        catalog: the prices.

    Raises:
        InputError: the plan names a task, tier or mode that the case or the catalogue has not.
    """
    bill = Bill(plan, case, catalog, catalog.pools())
    _nodes(bill)
    _commitments(bill)
    _power(bill)
    _by_node_day(bill)
    _by_programme_day(bill)
    _placements(bill)
    _saves(bill)
    _traffic(bill)
    _once(bill)
    _experiments(bill)
    order = {category.name: place for place, category in enumerate(costs.CATEGORIES)}
    return sorted(bill.lines, key=lambda line: order[line.category])


# Nodes


def _nodes(bill: Bill) -> None:
    for segment in bill.plan.segments:
        paid = bill.paid(segment.mode)
        if paid == "committed":
            continue
        lasted_s = max(segment.end_s - segment.start_s, 1e-9)
        price = segment_price(segment, segment.mode, bill.case, bill.catalog, bill.pools)
        for start_s, end_s, usd in price.pieces(segment.start_s, segment.end_s):
            bill.add(
                costs.node_category(bill.task(segment.task).kind),
                segment.task,
                segment.on_the_bill,
                node_hours(segment) * (end_s - start_s) / lasted_s,
                "node-hour",
                usd,
                keep=True,
            )


def commitment_use(
    segments: Sequence[Segment], purchases: Sequence[Purchase]
) -> tuple[list[dict[str, float]], float]:
    """Node-hours of each purchase used by each task, and node-hours run that nothing bought covers.

    All segments and purchases given must be of one pool and mode.
    """
    spans = [(s.start_s, s.end_s) for s in segments] + [(buy.start_s, buy.end_s) for buy in purchases]
    times = sorted({time for span in spans for time in span})
    used: list[dict[str, float]] = [defaultdict(float) for _ in purchases]
    uncovered = 0.0
    for start, end in pairwise(times):
        hours = (end - start) / HOUR_S
        need: dict[str, float] = defaultdict(float)
        most = 0.0
        for segment in segments:
            if segment.start_s <= start and end <= segment.end_s:
                nodes = (segment.nodes + segment.spare_nodes) * segment.paid_frac
                need[segment.task] += nodes * segment.expected_frac
                most += nodes
        have = [
            buy.nodes * buy.count if buy.start_s <= start and end <= buy.end_s else 0 for buy in purchases
        ]
        wanted, bought = sum(need.values()), sum(have)
        if end - start > _SAME_TIME_S:
            uncovered += max(0.0, most - bought) * hours
        share = min(1.0, wanted / bought) if bought else 0.0
        for place, nodes in enumerate(have):
            for task, count in need.items():
                used[place][task] += nodes * share * hours * count / max(wanted, 1e-12)
    return used, uncovered


def purchase_item(buy: Purchase, purchases: Iterable[Purchase]) -> str:
    """What a purchase is called on the bill, told apart from others of its pool and mode in ``purchases``."""
    name = f"{buy.mode} {buy.pool}, {buy.count} x {buy.nodes} nodes"
    alike = {(b.start_s, b.end_s) for b in purchases if (b.pool, b.mode) == (buy.pool, buy.mode)}
    if len(alike) == 1:
        return name
    return f"{name} from day {buy.start_s / DAY_S:g} to {buy.end_s / DAY_S:g}"


def commitment_groups(plan: Plan) -> list[tuple[list[Segment], list[Purchase]]]:
    """Purchases by pool and mode, with the segments that run on them."""
    keys = sorted({(buy.pool, buy.mode) for buy in plan.purchases})
    return [
        (
            [s for s in plan.segments if (s.pool, s.mode) == key],
            [buy for buy in plan.purchases if (buy.pool, buy.mode) == key],
        )
        for key in keys
    ]


def _commitments(bill: Bill) -> None:
    for segments, purchases in commitment_groups(bill.plan):
        used, _ = commitment_use(segments, purchases)
        for buy, by_task in zip(purchases, used, strict=True):
            bought = buy.nodes * buy.count * (buy.end_s - buy.start_s) / HOUR_S
            known = price_over_time(buy.pool, buy.mode, bill.case, bill.pools)
            price = buy.usd / buy.bought_node_h if known is None else known.at(buy.start_s)
            unchanged = usd_per_node_h(buy.pool, buy.mode, bill.case, bill.pools) or price
            item = purchase_item(buy, purchases)
            for task, hours in sorted(by_task.items()):
                category = costs.node_category(bill.task(task).kind)
                bill.add(category, task, item, hours, "node-hour", price, fixed=True)
                if category == costs.COMPUTE:
                    bill.not_shared_usd[task] += hours * (price - unchanged)
            left = bought - math.fsum(by_task.values())
            bill.add(costs.UNUSED, "", item, left, "node-hour", price)


def _power(bill: Bill) -> None:
    for segment in bill.plan.segments:
        owned = bill.owned(segment)
        if owned is None:
            continue
        price = costs.power_usd_per_node_h(owned, bill.catalog)
        item, hours = f"electricity {segment.pool}", node_hours(segment)
        bill.add(costs.POWER, segment.task, item, hours, "node-hour", price)


# Rates


def _by_node_day(bill: Bill) -> None:
    case, catalog = bill.case, bill.catalog
    for segment in bill.plan.segments:
        days = node_hours(segment) / 24.0
        traffic = costs.log_traffic_usd_per_node_day(case, catalog, bill.place(segment).rented)
        for category, item, price in (
            (costs.LOGGING, "log ingestion", costs.log_ingest_usd_per_node_day(case, catalog)),
            (costs.LOGGING, "metrics", costs.monitoring_usd_per_node_day(case, catalog)),
            (costs.STORAGE, "logs kept", costs.log_storage_usd_per_node_day(case, catalog)),
            (costs.NETWORK, "log traffic", traffic),
        ):
            bill.add(category, segment.task, f"{item} {segment.pool}", days, "node-day", price)


def _by_programme_day(bill: Bill) -> None:
    case, catalog = bill.case, bill.catalog
    days = bill.plan.finish_s / DAY_S
    people = f"{case.people.engineers:g} engineers"
    for category, item, price in (
        (costs.PEOPLE, people, costs.people_usd_per_day(case, catalog)),
        (costs.PEOPLE, "platform operations", costs.operations_usd_per_day(case, catalog)),
        (costs.SECURITY, "security", costs.security_usd_per_day(case, catalog)),
        (costs.METADATA, "metadata database", costs.metadata_usd_per_day(case, catalog)),
        (
            costs.CPU_NODES,
            f"{case.overheads.cpu_nodes} CPU nodes",
            costs.cpu_nodes_usd_per_day(case, catalog),
        ),
    ):
        bill.add(category, "", item, days, "day", price)


# Storage


def dataset_read_bytes(plan: Plan, task: Task, pool: str) -> float:
    """Bytes of its dataset a task reads in the region of a pool: all of it in every round, by share of work."""
    regions = {(s.cloud, s.region) for s in plan.segments if s.pool == pool}
    share = math.fsum(
        s.work_frac for s in plan.segments if s.task == task.name and (s.cloud, s.region) in regions
    )
    return (
        0.0
        if task.dataset is None
        else task.dataset.size_bytes * task.dataset.format_factor * task.rounds * share
    )


def placement_charge(plan: Plan, case: Case, catalog: Catalog, placement: Placement) -> storage.StorageCharge:
    """What a placement costs, without what is written to it again and again (see :func:`saves`).

    Logs are charged by node-day, so that their placement costs nothing more.
    """
    region = next((s.region for s in plan.segments if s.pool == placement.pool), "")
    tier = storage.find_tier(catalog, placement.tier, region)
    if placement.what == "logs":
        return storage.storage_charge(tier, 0.0, 0.0)
    read = 0.0
    if placement.what == "dataset":
        task = next(task for task in case.tasks if task.name == placement.task)
        read = dataset_read_bytes(plan, task, placement.pool)
    object_bytes = catalog.default("storage.object_bytes")
    charge = storage.storage_charge(tier, placement.size_bytes, placement.held_s, read, object_bytes)
    if placement.what in ("dataset", "milestones"):
        return charge
    return replace(charge, requests=0.0, request_usd=0.0)


def _placements(bill: Bill) -> None:
    for placement in bill.plan.placements:
        charge = placement_charge(bill.plan, bill.case, bill.catalog, placement)
        item = f"{placement.what} on {placement.tier}"
        expected = bill.task(placement.task).expected_frac
        for name, quantity, unit, usd in (
            (item, charge.kept_gb_months, "GB-month", charge.kept_usd),
            (f"{item}: rest of the minimum duration", charge.unmet_gb_months, "GB-month", charge.unmet_usd),
            (f"{item}: retrieval", charge.read_gb, "GB", charge.retrieval_usd),
            (f"{item}: requests", charge.requests / 1e4, "10k requests", charge.request_usd),
        ):
            if quantity > 0:
                bill.add(costs.STORAGE, placement.task, name, quantity * expected, unit, usd / quantity)


def saves(segment: Segment) -> float:
    """Checkpoints written in a segment."""
    cycle_s = segment.checkpoint.interval_s + segment.checkpoint.blocking_s
    return (segment.end_s - segment.start_s) * segment.paid_frac / cycle_s if cycle_s > 0 else 0.0


def _second_region_tier(bill: Bill, segment: Segment) -> str | None:
    return next(
        (
            p.tier
            for p in bill.plan.placements
            if p.what == "second-region copy" and (p.task, p.pool) == (segment.task, segment.pool)
        ),
        None,
    )


def _saves(bill: Bill) -> None:
    object_bytes = bill.catalog.default("storage.object_bytes")
    for segment in bill.plan.segments:
        copied = (segment.end_s - segment.start_s) * costs.copies_per_s(bill.case)
        for what, name, count in (
            ("checkpoints written", segment.checkpoint.target, saves(segment)),
            ("copies written to the second region", _second_region_tier(bill, segment), copied),
        ):
            if not name or segment.checkpoint.size_bytes <= 0:
                continue
            tier = storage.find_tier(bill.catalog, name, segment.region)
            price = storage.save_requests_usd(tier, segment.checkpoint.size_bytes, object_bytes)
            item = f"{what} to {name}: requests"
            bill.add(costs.STORAGE, segment.task, item, count * segment.expected_frac, "save", price)


# Network


def _moved(bill: Bill, task: str, item: str, source: network.Place, to: network.Place, size: float) -> None:
    usd = network.move_usd(bill.catalog, source, to, size)
    gb = size / storage.GB_BYTES
    if gb > 0:
        bill.add(costs.NETWORK, task, f"{item} from {source} to {to}", gb, "GB", usd / gb)


def _traffic(bill: Bill) -> None:
    by_task: dict[str, list[Segment]] = defaultdict(list)
    leading = (segment for segment in bill.plan.segments if segment.leads)
    for segment in sorted(leading, key=lambda s: (s.start_s, s.end_s, s.pool)):
        by_task[segment.task].append(segment)
    for task in bill.case.tasks:
        runs = by_task[task.name]
        places = list(dict.fromkeys(bill.place(segment) for segment in runs))
        source = None if task.dataset is None else network.place_of_dataset(task.dataset, bill.case)
        if task.dataset is not None and source is not None:
            for place in places:
                _moved(bill, task.name, "dataset", source, place, task.dataset.size_bytes)
        for before, after in pairwise(runs):
            if after.start_s >= before.end_s - _SAME_TIME_S:
                here, there = bill.place(before), bill.place(after)
                _moved(bill, task.name, "checkpoint", here, there, before.checkpoint.size_bytes)
        for name in task.after:
            if runs and by_task[name]:
                last = max(by_task[name], key=lambda s: s.end_s)
                size = weights_bytes(last.checkpoint.size_bytes)
                _moved(bill, task.name, f"weights of {name}", bill.place(last), places[0], size)
    for segment in bill.plan.segments:
        count = (segment.end_s - segment.start_s) * costs.copies_per_s(bill.case) * segment.expected_frac
        if count == 0.0:
            continue
        usd = network.second_region_usd(bill.catalog, bill.place(segment), segment.checkpoint.size_bytes)
        bill.add(costs.NETWORK, segment.task, f"second-region copies of {segment.pool}", count, "copy", usd)


# Once, or in proportion


def _once(bill: Bill) -> None:
    for task in bill.case.tasks:
        category = costs.bought_category(task.kind)
        bill.add(category, task.name, "bought", task.expected_rounds, "round", task.cost_usd or 0.0)
    rented = {s.cloud for s in bill.plan.segments if bill.paid(s.mode) != "held"}
    for cloud in costs.new_clouds(bill.case, rented):
        bill.add(costs.MIGRATION, "", cloud, 1.0, "cloud", costs.migration_usd_per_cloud(bill.case))
    late = costs.delay_days(bill.case, bill.plan.finish_s)
    bill.add(costs.DELAY, "", "after the deadline", late, "day", costs.delay_usd_per_day(bill.case))


def _experiments(bill: Bill) -> None:
    base: dict[str, list[float]] = defaultdict(list)
    for line in bill.lines:
        if line.category == costs.COMPUTE:
            base[line.task].append(line.quantity * line.unit_usd)
    for task, parts in base.items():
        share = costs.experiments_frac(bill.case)
        shared_usd = math.fsum(parts) - bill.not_shared_usd[task]
        bill.add(costs.EXPERIMENTS, task, "share of training compute", shared_usd, "USD", share)
