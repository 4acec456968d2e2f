"""Where a plan contradicts itself, the case or the prices."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING

from trainplan_models import costs
from trainplan_models.accounting import commitment_groups, commitment_use, total_usd
from trainplan_models.node_prices import price_over_time
from trainplan_models.plan import Placement, Plan, Purchase
from trainplan_models.reliability import DAY_S

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import BillingMode

_CENT = 0.0051
_DAY_SLACK = 1e-6


def plan_problems(plan: Plan, case: Case, catalog: Catalog, tolerance: float = 1e-3) -> list[str]:
    """Every contradiction found; empty when there is none.

    Checked are prices, the use, price and terms of commitments, the amounts stored, the arithmetic of the cost
    lines, and the total.

    Args:
        plan: with its cost lines.
        case: what was asked.
        catalog: the prices.
        tolerance: relative difference that is let pass.
    """
    return [
        *_prices(plan, case, catalog, tolerance),
        *_commitments(plan, catalog, tolerance),
        *_terms(plan, case, catalog),
        *_stored(plan, case, tolerance),
        *_lines(plan),
    ]


def _differs(told: float, should: float, tolerance: float) -> bool:
    return abs(told - should) > tolerance * max(abs(told), abs(should), 1e-9)


def _prices(plan: Plan, case: Case, catalog: Catalog, tolerance: float) -> Iterator[str]:
    pools = catalog.pools()
    bought = {(buy.pool, buy.mode) for buy in plan.purchases}
    for s in plan.segments:
        paid = catalog.modes[s.mode].paid
        if paid == "per-hour":
            known = price_over_time(s.pool, s.mode, case, pools)
            price = 0.0 if known is None else float(known.mean(s.start_s, s.end_s))
            if known is None:
                yield f"{s.task} runs on {s.mode} {s.pool}, which nobody sells"
            elif _differs(s.usd_per_node_h, price, tolerance):
                told = f"{s.task} pays {s.usd_per_node_h:g} USD an hour on {s.mode} {s.pool}"
                yield f"{told}, the price is {price:g}"
        elif paid == "committed" and (s.pool, s.mode) not in bought:
            yield f"{s.task} runs on {s.mode} {s.pool}, of which nothing is bought"
    for buy in plan.purchases:
        known = price_over_time(buy.pool, buy.mode, case, pools)
        should = 0.0 if known is None else known.at(buy.start_s) * buy.bought_node_h
        if known is None:
            yield f"{buy.mode} {buy.pool} is bought, which nobody sells"
        elif _differs(buy.usd, should, tolerance):
            yield f"{buy.mode} {buy.pool} costs {buy.usd:.2f} USD, should be {should:.2f}"


def _commitments(plan: Plan, catalog: Catalog, tolerance: float) -> Iterator[str]:
    for segments, purchases in commitment_groups(plan):
        used, _ = commitment_use(segments, purchases)
        tail_s = catalog.modes[purchases[0].mode].unusable_tail_s
        usable = [buy.model_copy(update={"end_s": buy.end_s - tail_s}) for buy in purchases]
        uncovered = commitment_use(segments, usable)[1]
        name = f"{purchases[0].mode} {purchases[0].pool}"
        bought = math.fsum(buy.nodes * buy.count * (buy.end_s - buy.start_s) / 3600.0 for buy in purchases)
        told = math.fsum(buy.bought_node_h for buy in purchases)
        if _differs(told, bought, tolerance):
            yield f"{told:.6g} node-hours of {name} are said to be bought, should be {bought:.6g}"
        if uncovered > tolerance * bought:
            yield f"{uncovered:.6g} node-hours on {name} are run and not bought"
        told = math.fsum(buy.used_node_h for buy in purchases)
        swept = math.fsum(hours for by_task in used for hours in by_task.values())
        if abs(told - swept) > tolerance * bought:
            yield f"{told:.6g} node-hours of {name} are said to be used, should be {swept:.6g}"


def _terms(plan: Plan, case: Case, catalog: Catalog) -> Iterator[str]:
    """Lengths, sizes, days ahead and numbers of nodes in which something is not sold."""
    for _, purchases in commitment_groups(plan):
        mode = catalog.modes[purchases[0].mode]
        name = f"{mode.mode} {purchases[0].pool}"
        for buy in purchases:
            yield from (f"{name} {wrong}" for wrong in _terms_of(buy, mode))
        quota = next((q for q in case.resources.quotas if q.pool == purchases[0].pool), None)
        allowed = None if quota is None else getattr(quota, mode.quota_key.replace("-", "_"), None)
        limits = [limit for limit in (mode.max_nodes, allowed) if limit is not None]
        most = max(
            sum(b.nodes * b.count for b in purchases if b.start_s <= at.start_s < b.end_s) for at in purchases
        )
        if limits and most > min(limits):
            yield f"{most} nodes of {name} are bought for the same time, at most {min(limits)} may be"


def _terms_of(buy: Purchase, mode: BillingMode) -> Iterator[str]:
    days, start_days = (buy.end_s - buy.start_s) / DAY_S, buy.start_s / DAY_S
    sold = mode.durations_days
    # What is sold in one length and keeps its nodes until the end of it is renewed.
    terms = max(round(days / sold[0]), 1) if len(sold) == 1 and mode.unusable_tail_s == 0.0 else 1
    if sold and not any(abs(days - terms * length) < _DAY_SLACK for length in sold):
        yield f"is bought for {days:g} days, a length in which it is not sold"
    if mode.sizes_nodes and buy.nodes not in mode.sizes_nodes:
        yield f"is bought as {buy.nodes} nodes, a size in which it is not sold"
    if mode.max_lead_days is not None and start_days > mode.max_lead_days + _DAY_SLACK:
        yield f"begins {start_days:g} days ahead, at most {mode.max_lead_days:g} can be booked"
    upfront_usd = buy.usd * mode.upfront_frac
    if abs(buy.upfront_usd - upfront_usd) > _CENT:
        yield f"takes {buy.upfront_usd:.2f} USD up front, should be {upfront_usd:.2f}"


def _stored(plan: Plan, case: Case, tolerance: float) -> Iterator[str]:
    """What is stored against what the segments write."""
    kept = case.checkpoints
    recent = milestones = copies = 0.0
    for s in plan.segments:
        lasted_s, size = s.end_s - s.start_s, s.checkpoint.size_bytes
        recent += (kept.keep_last + 1) * size * lasted_s
        milestones += lasted_s * costs.milestones_per_s(case) * size
        copies += kept.keep_last * size * lasted_s if kept.copy_to_second_region else 0.0

    def placed(what: str) -> list[Placement]:
        return [placement for placement in plan.placements if placement.what == what]

    for what, told, should, unit in (
        ("checkpoints", math.fsum(p.size_bytes * p.held_s for p in placed("checkpoints")), recent, "byte-s"),
        ("milestones", math.fsum(p.size_bytes for p in placed("milestones")), milestones, "bytes"),
        (
            "second-region copies",
            math.fsum(p.size_bytes * p.held_s for p in placed("second-region copy")),
            copies,
            "byte-s",
        ),
    ):
        if told < should * (1.0 - tolerance):
            yield f"{told:.6g} {unit} of {what} are stored, the segments write {should:.6g}"


def _lines(plan: Plan) -> Iterator[str]:
    for line in plan.cost_lines:
        if abs(line.quantity * line.unit_usd - line.usd) > _CENT:
            yield f"{line.category}, {line.item}: {line.quantity:g} x {line.unit_usd:g} is not {line.usd:.2f}"
    total = total_usd(plan.cost_lines)
    if abs(total - plan.total_usd) > _CENT:
        yield f"the cost lines sum to {total:.2f} USD, the total says {plan.total_usd:.2f}"
