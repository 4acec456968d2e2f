"""Prices as lists give them, turned into offers; wrong ones are kept out.

A list has a row for each zone. What passes the rules becomes one offer for each region, instance type and
billing mode: the cheapest zone. What does not is reported with the rule and the reason, never corrected.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import date
from statistics import median
from typing import TYPE_CHECKING

from trainplan_models.base import Problem
from trainplan_models.catalog.dates import price_age_days
from trainplan_models.catalog.price_rules import (
    DEFINED_DURATION,
    FLEX_START,
    LEVEL_RULES,
    ON_DEMAND,
    OWN_RULES,
    RULES,
    SAME_PRICE_FRAC,
    SPOT,
    Levels,
    PriceRow,
    Quote,
    Rule,
    defined_duration,
)
from trainplan_models.catalog.records import Accelerator, Commitment, DroppedOffer, NodeType, Offer

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

__all__ = ["RULES", "Imported", "PriceRow", "import_offers", "price_age_days", "stale_prices"]

MEMORY_TOLERANCE_FRAC = 0.25
"""The memory a list gives an accelerator may be off by this much before that is reported."""

GIB_BYTES = 2.0**30


@dataclass(frozen=True, slots=True)
class Imported:
    """What became of a price list."""

    offers: tuple[Offer, ...]
    dropped: tuple[DroppedOffer, ...]
    nodes: tuple[NodeType, ...]
    """Machines with an offer that the catalogue does not know."""
    warnings: tuple[Problem, ...]
    ignored: int
    """Rows without an accelerator."""


def import_offers(
    rows: Iterable[PriceRow], known: Catalog | None = None, *, today: date | None = None
) -> Imported:
    """Turn price rows into offers, and say what was left out and why.

    Args:
        rows: one for each zone and machine.
        known: its accelerators and machines say what a row should look like; its on-demand offers say,
            together with the list, what prices are usual. None for the shipped catalogue.
        today: day from which the age of prices is counted; None for the current day.
    """
    if known is None:
        from trainplan_models.catalog import builtin

        known = builtin()
    dropped: list[DroppedOffer] = []
    quotes: list[Quote] = []
    checked: list[tuple[PriceRow, Accelerator]] = []
    ignored = 0
    for row in rows:
        if not row.accelerator or row.accelerators == 0:
            ignored += 1
            continue
        chip, rule, reason = _chip_of(row, known)
        if chip is None:
            dropped += [_dropped(row, mode, usd, rule, reason) for mode, usd in _prices(row)]
            continue
        checked.append((row, chip))
        for mode, usd in _prices(row):
            if usd is None:
                reason = "sold by capacity block or reservation only, or not at all"
                dropped.append(_dropped(row, mode, None, "no-on-demand-price", reason))
            else:
                quotes.append(Quote(row, mode, usd, chip.name))
    kept = _screen(quotes, known, dropped)
    offers = tuple(_cheapest(kept))
    nodes = tuple(_new_nodes(checked, {offer.instance_type for offer in offers}, known))
    warnings = (*stale_prices(offers, known.default("prices.stale_days"), today), *_odd_memory(checked))
    return Imported(offers, tuple(dropped), nodes, warnings, ignored)


def _prices(row: PriceRow) -> Iterator[tuple[str, float | None]]:
    yield ON_DEMAND, row.on_demand_usd_per_h
    if row.spot_usd_per_h is not None:
        yield SPOT, row.spot_usd_per_h


def _chip_of(row: PriceRow, known: Catalog) -> tuple[Accelerator | None, str, str]:
    """The chip in the machine, or the rule and reason why the row cannot be used."""
    named = known.find_accelerator(row.accelerator)
    node = known.nodes.get((row.cloud, row.instance_type))
    if node is None:
        if named is None:
            return None, "unknown-accelerator", f"{row.accelerator!r} is not in the catalogue"
        if not (0 < row.accelerators == int(row.accelerators) <= named.scaleup_devices * 16):
            return None, "accelerator-count", f"{row.accelerators:g} accelerators in one machine"
        return named, "", ""
    chip = known.accelerator(node.accelerator)
    if row.accelerators != node.accelerators:
        reason = f"{row.accelerators:g} accelerators listed, the machine has {node.accelerators}"
        return None, "accelerator-count", reason
    if named is not None and named.generation != chip.generation:
        reason = f"{row.accelerator!r} listed, the machine has {chip.name}"
        return None, "wrong-accelerator", reason
    return chip, "", ""


def _dropped(row: PriceRow, mode: str, usd: float | None, rule: str, reason: str) -> DroppedOffer:
    return DroppedOffer(
        cloud=row.cloud,
        region=row.region,
        zone=row.zone,
        instance_type=row.instance_type,
        mode=mode,
        usd_per_node_h=usd if usd is not None and math.isfinite(usd) else None,
        rule=rule,
        reason=reason,
        source=row.source,
        as_of=row.as_of,
    )


def _screen(quotes: list[Quote], known: Catalog, dropped: list[DroppedOffer]) -> list[Quote]:
    """The quotes that pass every rule; the others are added to ``dropped``."""
    sound = list(_passing(quotes, OWN_RULES, Levels(), dropped))
    highest = _highest(sound, known)
    levels = Levels(highest)
    renamed = [_asdefined_duration(quote, levels, dropped) for quote in sound]
    levels.median_usd = medians_usd(renamed, known)
    return list(_passing(renamed, LEVEL_RULES, levels, dropped))


def _passing(
    quotes: Iterable[Quote], rules: dict[str, Rule], levels: Levels, dropped: list[DroppedOffer]
) -> Iterator[Quote]:
    for quote in quotes:
        for name, rule in rules.items():
            reason = rule(quote, levels)
            if reason:
                dropped.append(_dropped(quote.row, quote.mode, quote.usd, name, reason))
                break
        else:
            yield quote


def _highest(quotes: Iterable[Quote], known: Catalog) -> dict[tuple[str, str], float]:
    highest: dict[tuple[str, str], float] = {}
    for offer in known.offers:
        if offer.mode == ON_DEMAND:
            machine = (offer.cloud, offer.instance_type)
            highest[machine] = max(highest.get(machine, 0.0), offer.usd_per_node_h)
    for quote in quotes:
        if quote.mode == ON_DEMAND:
            highest[quote.machine] = max(highest.get(quote.machine, 0.0), quote.usd)
    return highest


def _asdefined_duration(quote: Quote, levels: Levels, dropped: list[DroppedOffer]) -> Quote:
    reason = defined_duration(quote, levels)
    if not reason:
        return quote
    dropped.append(
        _dropped(quote.row, quote.mode, quote.usd, DEFINED_DURATION, f"{reason}; kept as flex-start")
    )
    note = "inferred: listed as on-demand, the amount is that of a defined duration"
    return Quote(quote.row, FLEX_START, quote.usd, quote.accelerator, note)


def medians_usd(quotes: Iterable[Quote], known: Catalog) -> dict[str, float]:
    """Median on-demand price of an accelerator-hour by chip, over quotes and the offers of a catalogue.

    Each machine counts once, whatever the number of its zones and regions.
    """
    by_machine: dict[tuple[str, tuple[str, str]], list[float]] = defaultdict(list)
    for offer in known.offers:
        if offer.mode == ON_DEMAND:
            node = known.node(offer.cloud, offer.instance_type)
            key = (known.accelerator(node.accelerator).name, (offer.cloud, offer.instance_type))
            by_machine[key].append(offer.usd_per_node_h / node.accelerators)
    for quote in quotes:
        if quote.mode == ON_DEMAND:
            by_machine[quote.accelerator, quote.machine].append(quote.usd_per_accelerator)
    by_chip: dict[str, list[float]] = defaultdict(list)
    for (chip, _), prices in by_machine.items():
        by_chip[chip].append(median(prices))
    return {chip: median(prices) for chip, prices in by_chip.items()}


def _cheapest(quotes: Iterable[Quote]) -> Iterator[Offer]:
    """One offer for each region, machine and mode."""
    zones: dict[tuple[str, str, str, str], list[Quote]] = defaultdict(list)
    for quote in quotes:
        zones[quote.row.cloud, quote.row.region, quote.row.instance_type, quote.mode].append(quote)
    for (cloud, region, instance_type, mode), found in sorted(zones.items()):
        best = min(found, key=lambda quote: (quote.usd, quote.row.zone))
        dearest = max(quote.usd for quote in found)
        notes = [best.note] if best.note else []
        if dearest > best.usd * (1.0 + SAME_PRICE_FRAC):
            notes.append(f"zone {best.row.zone}; other zones up to {dearest:g}")
        yield Offer(
            cloud=cloud,
            region=region,
            instance_type=instance_type,
            mode=mode,
            usd_per_node_h=best.usd,
            zones=len({quote.row.zone for quote in found}),
            source=best.row.source,
            as_of=best.row.as_of,
            note="; ".join(notes),
        )


def _new_nodes(
    checked: Iterable[tuple[PriceRow, Accelerator]], wanted: set[str], known: Catalog
) -> Iterator[NodeType]:
    seen = set(known.nodes)
    for row, chip in checked:
        machine = (row.cloud, row.instance_type)
        if machine in seen or row.instance_type not in wanted:
            continue
        seen.add(machine)
        yield NodeType(
            cloud=row.cloud,
            instance_type=row.instance_type,
            accelerator=chip.name,
            accelerators=int(row.accelerators),
            nic_bytes_per_s=0.0,
            vcpus=row.vcpus or None,
            host_memory_bytes=row.host_memory_bytes or None,
            scaleup_devices=min(int(row.accelerators), chip.scaleup_devices),
            source=row.source,
            as_of=row.as_of,
            note="price lists do not say the network: give nic_bytes_per_s to let it join a cluster",
        )


def stale_prices(
    rows: Iterable[Offer | Commitment], stale_days: float, today: date | None = None
) -> Iterator[Problem]:
    """One warning for each cloud, mode and date of prices that are old or have no date."""
    counts: dict[tuple[str, str, str], int] = defaultdict(int)
    for row in rows:
        counts[row.cloud, row.mode, row.as_of] += 1
    for (cloud, mode, as_of), count in sorted(counts.items()):
        age = price_age_days(as_of, today)
        what = f"{count} {mode} {'price' if count == 1 else 'prices'} of {cloud}"
        if age is None:
            yield Problem(f"{what}: {as_of!r} is no date", key="as_of", fix="Write it as 2026-08-31")
        elif age >= stale_days:
            yield Problem(
                f"{what}: at least {age:.0f} days old ({as_of})", key="as_of", fix="Import newer ones"
            )


def _odd_memory(checked: Iterable[tuple[PriceRow, Accelerator]]) -> Iterator[Problem]:
    seen = set()
    for row, chip in checked:
        listed = row.device_memory_bytes
        machine = (row.cloud, row.instance_type)
        if listed is None or machine in seen:
            continue
        seen.add(machine)
        if abs(listed / chip.memory_bytes - 1.0) > MEMORY_TOLERANCE_FRAC:
            gib = f"{listed / GIB_BYTES:.4g} GiB an accelerator listed"
            said = f"{gib}, {chip.name} has {chip.memory_bytes / GIB_BYTES:.4g}"
            yield Problem(
                f"{row.cloud} {row.instance_type}: {said}", key="memory", fix="The catalogue's is used"
            )
