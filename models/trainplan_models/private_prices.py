"""Negotiated prices and discounts, read from a table as rows that replace those of the catalogue."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import Commitment, DatedPrice, Offer
from trainplan_models.import_tables import (
    PROVENANCE,
    amount_of,
    day_of,
    machine_of,
    provenance_day,
    read_table,
)

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import NodeType

AMOUNTS = ("usd_per_node_h", "usd_per_accelerator_h", "discount")
DAYS = ("valid_from", "valid_until")
COLUMNS = ("cloud", "region", "instance_type", "mode", *AMOUNTS, *DAYS)
PLAUSIBLE_FRAC = (0.05, 3.0)
"""A private price outside this share of the list price is taken for a mistake."""


@dataclass(frozen=True, slots=True)
class PrivatePrices:
    """Private prices as rows for a directory of a user's own catalogue."""

    offers: tuple[Offer, ...]
    commitments: tuple[Commitment, ...]
    dated: tuple[DatedPrice, ...]
    """Prices that hold between days only."""
    warnings: tuple[Problem, ...]


def _shipped() -> Catalog:
    from trainplan_models.catalog import builtin

    return builtin()


def private_prices(
    path: Path, known: Catalog | None = None, source: str = "", as_of: str = ""
) -> PrivatePrices:
    """Negotiated prices from a table, as offers and commitments that replace those of the catalogue.

    Columns: ``cloud``, ``instance_type``, ``region`` (empty or ``*``: every region with an on-demand
    offer that has no line of its own), ``mode``,
    one of ``usd_per_node_h``, ``usd_per_accelerator_h`` and ``discount`` (off the on-demand price, like ``12%``),
    ``as_of`` and ``source`` where the arguments do not say it for all rows, and ``valid_from`` and ``valid_until``,
    the first and the last day on which the price holds, where it does not hold all the time.

    Raises:
        InputError: with every mistake of the file, by line: a machine or mode that is not known, no or several prices,
            a price of zero or far from the list price, a date that is none, days
            on which a price holds without another one for the rest.
    """
    known = known or _shipped()
    problems: list[Problem] = []
    rows: list[_Priced] = []
    for line, row in read_table(path, (*COLUMNS, *PROVENANCE)):
        asked = _asked(row, as_of, source or path.name, known, path, line, problems)
        if asked is not None:
            found = _private_rows(asked, known, path, line, problems)
            rows += [_Priced(one, not asked.region, line) for one in found]
    kept = _named_before_everywhere(rows)
    problems += _without_other_price(kept, known, path)
    first: dict[tuple[str, ...], int] = {}
    for one in kept:
        if first.setdefault(one.key, one.line) != one.line:
            message = f"{' '.join(one.key)} is there twice, first in line {first[one.key]}"
            problems.append(Problem(message, file=str(path), line=one.line, fix="Keep one of them"))
    if problems:
        raise InputError(problems)
    offers = tuple(one.row for one in kept if isinstance(one.row, Offer))
    commitments = tuple(one.row for one in kept if isinstance(one.row, Commitment))
    dated = tuple(one.row for one in kept if isinstance(one.row, DatedPrice))
    warnings = (*_spot_warnings(offers, known), *_following(offers, commitments, known))
    return PrivatePrices(offers, commitments, dated, warnings)


@dataclass(frozen=True, slots=True)
class _Priced:
    """A row for the catalogue, whether its line was for every region, and that line."""

    row: Offer | Commitment | DatedPrice
    everywhere: bool
    line: int

    @property
    def key(self) -> tuple[str, ...]:
        """What no two rows may share."""
        place = self.row.regions if isinstance(self.row, Commitment) else (self.row.region,)
        days = (self.row.valid_from, self.row.valid_until) if isinstance(self.row, DatedPrice) else ()
        return (self.row.cloud, self.row.instance_type, self.row.mode, *place, *days)


def _named_before_everywhere(rows: Iterable[_Priced]) -> list[_Priced]:
    """A price for one region wins over one for all of them."""
    priced = list(rows)
    named = {one.key for one in priced if not one.everywhere}
    return [one for one in priced if not (one.everywhere and one.key in named)]


def _without_other_price(rows: Iterable[_Priced], known: Catalog, path: Path) -> Iterator[Problem]:
    """Prices for certain days of what has no price on all others."""
    priced = list(rows)
    if not any(isinstance(one.row, DatedPrice) for one in priced):
        return
    sold = {(pool.name, mode) for pool in known.pools().values() for mode in pool.usd_per_node_h}
    for one in priced:
        row = one.row
        if isinstance(row, Offer):
            sold.add((row.pool, row.mode))
        elif isinstance(row, Commitment):
            sold |= {(f"{row.cloud}/{region}/{row.instance_type}", row.mode) for region in row.regions}
    for one in priced:
        if isinstance(one.row, DatedPrice) and (one.row.pool, one.row.mode) not in sold:
            message = (
                f"{one.row.pool} has no {one.row.mode} price for the days on which this one does not hold"
            )
            fix = "Add a line without dates as well"
            yield Problem(message, key="mode", file=str(path), line=one.line, fix=fix)


@dataclass(frozen=True, slots=True)
class _Asked:
    """One row of the table, checked."""

    cloud: str
    region: str
    node: NodeType
    mode: str
    as_of: str
    source: str
    amounts: Mapping[str, float]
    valid_from: str
    valid_until: str


def _asked(
    row: Mapping[str, str],
    as_of: str,
    source: str,
    known: Catalog,
    path: Path,
    line: int,
    problems: list[Problem],
) -> _Asked | None:
    before = len(problems)
    cloud, machine, mode = (row.get(key, "") for key in ("cloud", "instance_type", "mode"))
    node = machine_of(f"{cloud}/-/{machine}", known, path, line, problems)
    day = provenance_day(row, as_of, path, line, problems)
    if not day:
        fix = "Write it as 2026-08-31"
        problems.append(Problem("no date", key="as_of", file=str(path), line=line, fix=fix))
    if mode not in known.modes or known.modes[mode].paid == "held":
        rented = ", ".join(name for name, rule in known.modes.items() if rule.paid != "held")
        message = f"no billing mode {mode!r}"
        problems.append(Problem(message, key="mode", file=str(path), line=line, fix=f"Known: {rented}"))
    amounts = {key: amount_of(row[key], key, path, line, problems) for key in AMOUNTS if row.get(key)}
    if len(amounts) != 1:
        fix = f"Fill in one of {', '.join(AMOUNTS)}"
        problems.append(
            Problem(
                "one price is needed", key=next(iter(amounts), AMOUNTS[0]), file=str(path), line=line, fix=fix
            )
        )
    first, last = (day_of(row.get(key, ""), key, path, line, problems) for key in DAYS)
    if first and last and last < first:
        message = f"the price ends on {last}, before it begins on {first}"
        fix = "Write a day from `valid_from` on"
        problems.append(Problem(message, key="valid_until", file=str(path), line=line, fix=fix))
    if len(problems) > before or node is None:
        return None
    region = row.get("region", "").removeprefix("*")
    return _Asked(cloud, region, node, mode, day, row.get("source") or source, amounts, first, last)


def _private_rows(
    asked: _Asked, known: Catalog, path: Path, line: int, problems: list[Problem]
) -> list[Offer | Commitment | DatedPrice]:
    machine = asked.node.instance_type
    listed = {o.region: o.usd_per_node_h for o in known.offers if _is_list_price(o, asked.cloud, machine)}
    regions = [asked.region] if asked.region else sorted(listed)
    if not regions or ("discount" in asked.amounts and not any(region in listed for region in regions)):
        where = f" in {asked.region}" if asked.region else ""
        message = f"{asked.cloud} {machine} has no on-demand price{where} to go by"
        problems.append(Problem(message, file=str(path), line=line, fix="Give a region and a price"))
        return []
    shared: dict[str, Any] = {"mode": asked.mode, "cloud": asked.cloud, "instance_type": machine}
    shared |= {"source": asked.source, "as_of": asked.as_of}
    found: list[Offer | Commitment | DatedPrice] = []
    days = {"valid_from": asked.valid_from, "valid_until": asked.valid_until}
    for region in regions:
        usd = _private_usd(asked.amounts, asked.node, listed.get(region))
        if usd is not None and _plausible(usd, listed.get(region), region, path, line, problems):
            note = f"private; list price {listed[region]:g}" if region in listed else "private"
            if any(days.values()):
                found.append(DatedPrice(**shared, region=region, usd_per_node_h=usd, note=note, **days))
            elif known.modes[asked.mode].paid == "per-hour":
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


def _following(offers: Iterable[Offer], own: Iterable[Commitment], known: Catalog) -> Iterator[Problem]:
    """Modes whose price is a share off on-demand, and so falls with a private on-demand price."""
    priced = {(row.cloud, row.instance_type, row.mode) for row in own}
    for cloud, machine in sorted({(o.cloud, o.instance_type) for o in offers if o.mode == "on-demand"}):
        follows = {
            row.mode
            for row in known.commitments
            if row.cloud == cloud
            and row.instance_type in ("*", machine)
            and row.usd_per_node_h is None
            and (cloud, machine, row.mode) not in priced
        }
        if follows:
            what = f"{cloud} {machine}: {', '.join(sorted(follows))} stays a share off on-demand, now the private one"
            yield Problem(what, fix="Give it a line of its own if that is not what was agreed")
