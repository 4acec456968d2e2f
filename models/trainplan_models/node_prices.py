"""What a node-hour costs at a time: its price, and what changes it from a date on.

The one place that reads ``resources.price_changes``: the optimization, the bill, the report and the
simulation all ask here.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models import costs
from trainplan_models.base import InputError

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.case_resources import PriceChange
    from trainplan_models.catalog import Catalog, Pool
    from trainplan_models.plan import Segment

FloatArray = NDArray[np.float64]
HELD = ("owned", "grant")
"""Billing modes of what is already there; only a change that names it reaches its price."""


@dataclass(frozen=True, slots=True)
class NodePrice:
    """Price of a node-hour over time."""

    starts_s: tuple[float, ...]
    """From when on each price holds, in seconds from day 0; the first is 0."""
    usd_per_node_h: tuple[float, ...]

    @property
    def changes(self) -> bool:
        """Whether there is more than one price."""
        return len(self.starts_s) > 1

    def at(self, moment_s: float) -> float:
        """Price at a moment."""
        return self.usd_per_node_h[max(bisect_right(self.starts_s, moment_s) - 1, 0)]

    def pieces(self, start_s: float, end_s: float) -> tuple[tuple[float, float, float], ...]:
        """Start, end and price of the parts of a span; one part where it has no length."""
        edges = [start_s, *(t for t in self.starts_s if start_s < t < end_s), end_s]
        return tuple((a, b, self.at(a)) for a, b in pairwise(edges))

    def mean(self, start_s: FloatArray | float, end_s: FloatArray | float) -> FloatArray:
        """Mean price over each span; over one without length the price at its start."""
        start, end = np.asarray(start_s, dtype=float), np.asarray(end_s, dtype=float)
        starts, usd = np.array(self.starts_s), np.array(self.usd_per_node_h)
        paid = np.concatenate([[0.0], np.cumsum(np.diff(starts) * usd[:-1])])

        def price(moment: FloatArray) -> NDArray[np.intp]:
            return np.maximum(np.searchsorted(starts, moment, side="right") - 1, 0)

        def until(moment: FloatArray) -> FloatArray:
            return np.asarray(paid[price(moment)] + (moment - starts[price(moment)]) * usd[price(moment)])

        length = end - start
        over = (until(end) - until(start)) / np.where(length > 0.0, length, 1.0)
        return np.asarray(np.where(length > 0.0, over, usd[price(start)]))


def node_price(
    case: Case,
    pool: str,
    place: tuple[str, str],
    mode: str,
    usd_per_node_h: float,
    dated: tuple[PriceChange, ...] = (),
) -> NodePrice:
    """Price of a node-hour of a pool under a billing mode over time.

    Args:
        case: its ``resources.price_changes`` are applied in the order they are written in.
        pool: ``cloud/region/instance_type``, or the name of what is owned.
        place: cloud and region.
        mode: billing mode.
        usd_per_node_h: the price where nothing changes it, discounts taken off.
        dated: what the catalogue says of its days (see ``dated_changes``); the case's changes follow it.
    """
    names = {pool, *place, "/".join(place)}
    spans = [
        (change, *_span_s(case, change))
        for change in (*dated, *case.resources.price_changes)
        if (not change.billing or mode in change.billing)
        and (names & set(change.pools) or (not change.pools and mode not in HELD))
    ]
    moments = sorted({0.0, *(t for _, since, until in spans for t in (since, until) if t < inf)})
    starts: list[float] = []
    prices: list[float] = []
    for moment in moments:
        usd = usd_per_node_h
        for change, since, until in spans:
            if since <= moment < until:
                usd = change.applied(usd)
        if not prices or usd != prices[-1]:
            starts.append(moment)
            prices.append(usd)
    return NodePrice(tuple(starts), tuple(prices))


def _span_s(case: Case, change: PriceChange) -> tuple[float, float]:
    until = case.seconds_from_start(change.until)
    return case.seconds_from_start(change.since) or 0.0, inf if until is None else until


# Prices of the catalogue


def usd_per_node_h(pool: str, mode: str, case: Case, pools: Mapping[str, Pool]) -> float | None:
    """Price of a node-hour in the catalogue, less the discount; None where it is not sold."""
    known = pools.get(pool)
    return (
        None if known is None or mode not in known.usd_per_node_h else costs.node_usd_per_h(case, known, mode)
    )


def price_over_time(pool: str, mode: str, case: Case, pools: Mapping[str, Pool]) -> NodePrice | None:
    """As ``usd_per_node_h``, with what changes it at a date."""
    usd, known = usd_per_node_h(pool, mode, case, pools), pools.get(pool)
    if usd is None or known is None:
        return None
    return node_price(case, pool, (known.cloud, known.region), mode, usd, dated_changes(case, known, mode))


def dated_changes(case: Case, pool: Pool, mode: str) -> tuple[PriceChange, ...]:
    """Prices of the catalogue that hold between days only, as changes of a price in the case.

    Raises:
        InputError: there are some, and the case has no ``start``.
    """
    from datetime import date, timedelta

    from trainplan_models.case_resources import PriceChange

    found = []
    for row in (row for row in pool.dated if row.mode == mode):
        if case.start is None:
            message = f"{pool.name} has a price for certain days ({row.source}), and the case has no day 0"
            raise InputError(case.problem("start", message, "Add a start, like `start: 2026-09-01`."))
        start = date.fromisoformat(str(case.start)[:10]).isoformat()
        after = row.valid_until and (date.fromisoformat(row.valid_until) + timedelta(days=1)).isoformat()
        if after and after <= start:
            continue
        usd = row.usd_per_node_h * (1.0 - costs.discount_frac(case, pool.cloud, pool.name))
        told = {"from": row.valid_from} if row.valid_from > start else {"from": "0 days"}
        told |= {"to": after} if after else {}
        found.append(
            PriceChange.model_validate(
                {**told, "pools": [pool.name], "billing": [mode], "price": f"{usd!r} USD/hour"}
            )
        )
    return tuple(found)


def segment_price(
    segment: Segment, mode: str, case: Case, catalog: Catalog, pools: Mapping[str, Pool]
) -> NodePrice:
    """Price over time of the nodes of a segment, were they used under a mode that is not bought first.

    What the catalogue does not sell costs what the plan says; what is held, what the case says.
    """
    if catalog.modes[mode].paid != "held":
        known = price_over_time(segment.pool, mode, case, pools)
        return NodePrice((0.0,), (segment.usd_per_node_h,)) if known is None else known
    names = (segment.pool, segment.cloud)
    owned = next((owned for owned in case.resources.owned if owned.name in names), None)
    usd = 0.0 if owned is None else owned.node_usd_per_h or 0.0
    return node_price(case, segment.pool, (segment.cloud, segment.region), mode, usd)
