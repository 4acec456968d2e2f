"""Negotiated prices and discounts, read from a table as rows that replace those of the catalogue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import Commitment, Offer
from trainplan_models.import_tables import amount_of, day_of, machine_of, read_table

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import NodeType

AMOUNTS = ("usd_per_node_h", "usd_per_accelerator_h", "discount")
PLAUSIBLE_FRAC = (0.05, 3.0)
"""A private price outside this share of the list price is taken for a mistake."""


@dataclass(frozen=True, slots=True)
class PrivatePrices:
    """Private prices as rows for a directory of a user's own catalogue."""

    offers: tuple[Offer, ...]
    commitments: tuple[Commitment, ...]
    warnings: tuple[Problem, ...]


def _shipped() -> Catalog:
    from trainplan_models.catalog import builtin

    return builtin()


def private_prices(path: Path, known: Catalog | None = None, source: str = "") -> PrivatePrices:
    """Negotiated prices from a table, as offers and commitments that replace those of the catalogue.

    Columns: ``cloud``, ``instance_type``, ``region`` (empty or ``*``: every region with an on-demand offer), ``mode``,
    one of ``usd_per_node_h``, ``usd_per_accelerator_h`` and ``discount`` (off the on-demand price, like ``12%``), and
    ``as_of``.

    Raises:
        InputError: with every mistake of the file, by line: a machine or mode that is not known, no or several prices,
            a price of zero or far from the list price, a date that is none.
    """
    known = known or _shipped()
    problems: list[Problem] = []
    rows: list[Offer | Commitment] = []
    for line, row in read_table(path):
        asked = _asked(row, known, path, line, problems)
        if asked is not None:
            rows += _private_rows(asked, known, source or path.name, path, line, problems)
    keys = Counter(_key(row) for row in rows)
    problems += [
        Problem(f"{' '.join(key)} is listed {n} times", file=str(path)) for key, n in keys.items() if n > 1
    ]
    if problems:
        raise InputError(problems)
    offers = tuple(row for row in rows if isinstance(row, Offer))
    commitments = tuple(row for row in rows if isinstance(row, Commitment))
    return PrivatePrices(offers, commitments, tuple(_spot_warnings(offers, known)))


def _key(row: Offer | Commitment) -> tuple[str, ...]:
    place = (row.region,) if isinstance(row, Offer) else row.regions
    return (row.cloud, row.instance_type, row.mode, *place)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One row of the table, checked."""

    cloud: str
    region: str
    node: NodeType
    mode: str
    as_of: str
    amounts: Mapping[str, float]


def _asked(
    row: Mapping[str, str], known: Catalog, path: Path, line: int, problems: list[Problem]
) -> _Asked | None:
    before = len(problems)
    cloud, machine, mode = (row.get(key, "").strip() for key in ("cloud", "instance_type", "mode"))
    node = machine_of(f"{cloud}/-/{machine}", known, path, line, problems)
    as_of = day_of(row.get("as_of", ""), "as_of", path, line, problems)
    if not row.get("as_of", "").strip():
        problems.append(
            Problem("no date", key="as_of", file=str(path), line=line, fix="Write it as 2026-08-31")
        )
    if mode not in known.modes or known.modes[mode].paid == "held":
        rented = ", ".join(name for name, rule in known.modes.items() if rule.paid != "held")
        message = f"no billing mode {mode!r}"
        problems.append(Problem(message, key="mode", file=str(path), line=line, fix=f"Known: {rented}"))
    amounts = {
        key: amount_of(row[key], key, path, line, problems) for key in AMOUNTS if row.get(key, "").strip()
    }
    if len(amounts) != 1:
        problems.append(Problem(f"one price is needed: {', '.join(AMOUNTS)}", file=str(path), line=line))
    if len(problems) > before or node is None:
        return None
    return _Asked(cloud, row.get("region", "").strip().removeprefix("*"), node, mode, as_of, amounts)


def _private_rows(
    asked: _Asked, known: Catalog, source: str, path: Path, line: int, problems: list[Problem]
) -> list[Offer | Commitment]:
    machine = asked.node.instance_type
    listed = {o.region: o.usd_per_node_h for o in known.offers if _is_list_price(o, asked.cloud, machine)}
    regions = [asked.region] if asked.region else sorted(listed)
    if not regions or ("discount" in asked.amounts and not any(region in listed for region in regions)):
        where = f" in {asked.region}" if asked.region else ""
        message = f"{asked.cloud} {machine} has no on-demand price{where} to go by"
        problems.append(Problem(message, file=str(path), line=line, fix="Give a region and a price"))
        return []
    shared: dict[str, Any] = {"mode": asked.mode, "cloud": asked.cloud, "instance_type": machine}
    shared |= {"source": source, "as_of": asked.as_of}
    found: list[Offer | Commitment] = []
    for region in regions:
        usd = _private_usd(asked.amounts, asked.node, listed.get(region))
        if usd is not None and _plausible(usd, listed.get(region), region, path, line, problems):
            note = f"private; list price {listed[region]:g}" if region in listed else "private"
            if known.modes[asked.mode].paid == "per-hour":
                found.append(Offer(**shared, region=region, usd_per_node_h=usd, note=note))
            else:
                found.append(Commitment(**shared, regions=(region,), usd_per_node_h=usd, note=note))
    return found


def _is_list_price(offer: Offer, cloud: str, machine: str) -> bool:
    return (offer.cloud, offer.instance_type, offer.mode) == (cloud, machine, "on-demand")


def _private_usd(amounts: Mapping[str, float], node: NodeType, listed: float | None) -> float | None:
    if "discount" in amounts:
        return None if listed is None else round(listed * (1.0 - amounts["discount"]), 6)
    if "usd_per_node_h" in amounts:
        return amounts["usd_per_node_h"]
    return round(amounts["usd_per_accelerator_h"] * node.accelerators, 6)


def _plausible(
    usd: float, listed: float | None, place: str, path: Path, line: int, problems: list[Problem]
) -> bool:
    low, high = PLAUSIBLE_FRAC
    if usd > 0 and (listed is None or low <= usd / listed <= high):
        return True
    why = "nothing is rented for nothing" if usd <= 0 else f"the list price in {place} is {listed:g}"
    fix = "Check whether it is for a node or an accelerator; capacity already paid for is `owned`"
    problems.append(Problem(f"{usd:g} USD an hour and node: {why}", file=str(path), line=line, fix=fix))
    return False


def _spot_warnings(offers: Iterable[Offer], known: Catalog) -> Iterator[Problem]:
    """Spot prices that are no lower than what on-demand costs in the same place."""
    own = tuple(offers)
    on_demand = {
        (o.cloud, o.region, o.instance_type): o.usd_per_node_h
        for o in (*known.offers, *own)
        if o.mode == "on-demand"
    }
    for offer in own:
        regular = on_demand.get((offer.cloud, offer.region, offer.instance_type))
        if known.modes[offer.mode].preemptible and regular is not None and offer.usd_per_node_h >= regular:
            yield Problem(
                f"{offer.pool}: {offer.mode} at {offer.usd_per_node_h:g} is not below on-demand ({regular:g})"
            )
