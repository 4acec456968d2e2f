"""What is doubtful in a catalogue, shipped rows and a user's alike."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Literal

from trainplan_models.base import Problem
from trainplan_models.catalog.dates import last_day
from trainplan_models.catalog.overlay import mistakes
from trainplan_models.catalog.price_rules import ON_DEMAND, PLAUSIBLE_FRAC, SAME_PRICE_FRAC, SPOT
from trainplan_models.catalog.records import Offer, Row, TransferPrice
from trainplan_models.prices import medians_usd, stale_prices

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One doubt."""

    severity: Severity
    """``error``: the row cannot be used; ``warning``: it may mislead; ``note``: good to know."""
    table: str
    problem: Problem


def findings(catalog: Catalog, today: date | None = None) -> list[Finding]:
    """Every doubt about a catalogue, errors first; where rows name what is not there, only these.

    Args:
        catalog: the rows.
        today: day from which the age of prices is counted; None for the current day.
    """
    dangling = list(_dangling(catalog))
    if dangling:
        return dangling
    stale_days = catalog.default("prices.stale_days")
    found = [
        *_spot_prices(catalog),
        *_odd_prices(catalog),
        *_brackets(catalog),
        *(Finding("warning", "offers", p) for p in stale_prices(catalog.offers, stale_days, today)),
        *(Finding("warning", "commitments", p) for p in stale_prices(catalog.commitments, stale_days, today)),
        *_undated(catalog),
        *_unverified(catalog),
        *_without_price(catalog),
    ]
    order = {"error": 0, "warning": 1, "note": 2}
    return sorted(found, key=lambda finding: order[finding.severity])


def _dangling(catalog: Catalog) -> Iterator[Finding]:
    tables: dict[str, tuple[Row, ...]] = {
        "nodes": tuple(catalog.nodes.values()),
        "offers": catalog.offers,
        "commitments": catalog.commitments,
        "spot_bands": catalog.spot_bands,
        "modes": tuple(catalog.modes.values()),
    }
    for table, rows in tables.items():
        for row in rows:
            for key, message, fix in mistakes(catalog, row):
                yield Finding("error", table, Problem(message, key=key, fix=fix))


def _spot_prices(catalog: Catalog) -> Iterator[Finding]:
    by_pool: dict[str, dict[str, Offer]] = defaultdict(dict)
    for offer in catalog.offers:
        by_pool[offer.pool][offer.mode] = offer
    for pool, offers in by_pool.items():
        spot, on_demand = offers.get(SPOT), offers.get(ON_DEMAND)
        if spot is None or on_demand is None:
            continue
        if spot.usd_per_node_h > on_demand.usd_per_node_h * (1.0 - SAME_PRICE_FRAC):
            message = f"spot {spot.usd_per_node_h:g} is not below on-demand {on_demand.usd_per_node_h:g}"
            yield Finding("warning", "offers", Problem(message, key=pool))


def _odd_prices(catalog: Catalog) -> Iterator[Finding]:
    medians = medians_usd((), catalog)
    for offer in catalog.offers:
        node = catalog.nodes.get((offer.cloud, offer.instance_type))
        chip = None if node is None else catalog.find_accelerator(node.accelerator)
        if node is None or chip is None or chip.name not in medians or offer.mode not in PLAUSIBLE_FRAC:
            continue
        low, high = PLAUSIBLE_FRAC[offer.mode]
        share = offer.usd_per_node_h / node.accelerators / medians[chip.name]
        if not low <= share <= high:
            message = f"{offer.mode} {offer.usd_per_node_h:g} is {share:.3g} times what {chip.name} costs"
            yield Finding("warning", "offers", Problem(message, key=offer.pool))


def _brackets(catalog: Catalog) -> Iterator[Finding]:
    groups: dict[tuple[str, str, str], list[TransferPrice]] = defaultdict(list)
    for row in catalog.transfers:
        groups[row.cloud, row.region, row.to].append(row)
    for (cloud, region, to), rows in groups.items():
        rows.sort(key=lambda row: row.from_gb)
        starts = [row.from_gb for row in rows]
        ends = [0.0, *(row.to_gb for row in rows)]
        if starts != ends[:-1] or ends[-1] is not None:
            message = "volume brackets have a gap, an overlap or an end"
            fix = "The first starts at 0, each starts where the one before ends, the last has no end"
            yield Finding("error", "transfers", Problem(message, key=f"{cloud}/{region} to {to}", fix=fix))


def _undated(catalog: Catalog) -> Iterator[Finding]:
    tables: dict[str, tuple[Row, ...]] = {
        "accelerators": tuple(catalog.accelerators.values()),
        "nodes": tuple(catalog.nodes.values()),
        "storage_tiers": catalog.tiers,
        "transfers": catalog.transfers,
        "failure_profiles": tuple(catalog.failures.values()),
        "spot_profiles": tuple(catalog.spot.values()),
        "defaults": tuple(catalog.defaults.values()),
        "models": tuple(catalog.models.values()),
    }
    for table, rows in tables.items():
        for as_of, count in Counter(row.as_of for row in rows if last_day(row.as_of) is None).items():
            fix = "Write it as 2026-08-31"
            yield Finding(
                "warning", table, Problem(f"{count} rows: {as_of!r} is no date", key="as_of", fix=fix)
            )


def _unverified(catalog: Catalog) -> Iterator[Finding]:
    names = sorted({tier.name for tier in catalog.tiers if not tier.verified})
    if names:
        message = f"prices of {len(names)} tiers were seen in no source: {', '.join(names)}"
        yield Finding("note", "storage_tiers", Problem(message, key="verified"))


def _without_price(catalog: Catalog) -> Iterator[Finding]:
    from trainplan_models.catalog import REFERENCE

    priced = {(pool.cloud, pool.node.instance_type) for pool in catalog.pools().values()}
    for cloud, instance_type in sorted(set(catalog.nodes) - priced):
        if cloud != REFERENCE:
            message = f"{cloud} {instance_type} has no usable price and cannot be chosen"
            yield Finding("note", "nodes", Problem(message, key="instance_type"))
