"""A user's own rows over the shipped ones."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from difflib import get_close_matches
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog import tables
from trainplan_models.catalog.reading import R, Sheet, Table, read_table
from trainplan_models.catalog.records import (
    BillingMode,
    Commitment,
    DatedPrice,
    NodeType,
    Offer,
    Row,
    SpotBand,
)

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

PAID = ("per-hour", "committed", "held")


@dataclass(frozen=True, slots=True)
class Own:
    """The tables of a user's directory."""

    directory: Path
    sheets: dict[str, Sheet[Any]]

    def sheet(self, table: Table[R]) -> Sheet[R] | None:
        """One of them, None where the user has none."""
        return self.sheets.get(table.kind)


def read_directory(directory: Path, shipped: Traversable) -> Own:
    """Read every table of a directory.

    Raises:
        InputError: with every mistake of every file.
    """
    if not directory.is_dir():
        fix = "Name a directory with files such as offers.csv"
        raise InputError(Problem("no such directory", file=str(directory), fix=fix))
    problems = list(_strange_files(directory, shipped))
    sheets: dict[str, Sheet[Any]] = {}
    for table in tables.TABLES.values():
        try:
            sheet = read_table(table, directory)
        except InputError as error:
            problems += error.problems
        else:
            if sheet is not None:
                sheets[table.kind] = sheet
    if problems:
        raise InputError(problems)
    return Own(directory, sheets)


def _strange_files(directory: Path, shipped: Traversable) -> Iterator[Problem]:
    known = sorted(file.name for file in shipped.iterdir() if file.name.endswith(".csv"))
    known = sorted({*known, *(table.file_name for table in tables.TABLES.values())})
    for path in sorted(directory.glob("*.csv")):
        if path.name not in known:
            near = get_close_matches(path.name, known, n=1)
            fix = f"Did you mean {near[0]}?" if near else f"Files are {', '.join(known)}"
            yield Problem("no table of the catalogue has this name", file=str(path), fix=fix)


def merge(table: Table[R], shipped: list[R], own: Sheet[R] | None) -> list[R]:
    """Shipped rows that no own row replaces, then the own rows."""
    if own is None:
        return shipped
    replaced = {table.group_of(row) for row in own.rows}
    return [row for row in shipped if table.group_of(row) not in replaced] + own.rows


def check_references(catalog: Catalog, own: Own) -> None:
    """Check that own rows name what exists.

    Raises:
        InputError: with every row that does not.
    """
    problems = []
    for sheet in own.sheets.values():
        for row, line in zip(sheet.rows, sheet.lines, strict=True):
            for key, message, fix in mistakes(catalog, row):
                problems.append(Problem(message, key=key, file=sheet.file, line=line, fix=fix))
    if problems:
        raise InputError(problems)


def mistakes(catalog: Catalog, row: Row) -> Iterator[tuple[str, str, str]]:
    """What a row refers to and the catalogue lacks: column, message, fix."""
    if isinstance(row, NodeType) and catalog.find_accelerator(row.accelerator) is None:
        near = get_close_matches(row.accelerator, catalog.accelerators, n=1)
        fix = f"Did you mean {near[0]}?" if near else "Add it to accelerators.csv"
        yield "accelerator", f"unknown accelerator {row.accelerator!r}", fix
    if isinstance(row, (Offer, SpotBand, Commitment, DatedPrice)):
        yield from _machine_mistakes(catalog, row)
    if isinstance(row, (Offer, Commitment, DatedPrice)) and row.mode not in catalog.modes:
        yield "mode", f"unknown billing mode {row.mode!r}", f"Modes are {', '.join(catalog.modes)}"
    if isinstance(row, Commitment) and (row.usd_per_node_h is None) == (row.discount_frac is None):
        yield "usd_per_node_h", "a price or a discount is needed, and not both", ""
    if isinstance(row, DatedPrice):
        yield from _dated_mistakes(catalog, row)
    if isinstance(row, BillingMode) and row.paid not in PAID:
        yield "paid", f"{row.paid!r} is not one of {', '.join(PAID)}", ""


def _dated_mistakes(catalog: Catalog, row: DatedPrice) -> Iterator[tuple[str, str, str]]:
    wrong = [key for key in ("valid_from", "valid_until") if not _is_day_or_empty(getattr(row, key))]
    for key in wrong:
        yield key, f"{getattr(row, key)!r} is no date", "Write it as 2026-08-31"
    if not row.valid_from and not row.valid_until:
        fix = "Fill in the first day, the last day or both; a price without dates is a row of offers.csv"
        yield "valid_from", "the price holds all the time", fix
    elif not wrong and row.valid_until and row.valid_until < row.valid_from:
        yield "valid_until", "the price ends before it begins", "Write a day from `valid_from` on"
    known = catalog.pools().get(row.pool)
    if row.mode in catalog.modes and (known is None or row.mode not in known.usd_per_node_h):
        message = f"{row.pool} has no {row.mode} price for the days on which this one does not hold"
        yield "mode", message, "Add a price without dates as well"


def _is_day_or_empty(text: str) -> bool:
    try:
        return not text or date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def _machine_mistakes(
    catalog: Catalog, row: Offer | SpotBand | Commitment | DatedPrice
) -> Iterator[tuple[str, str, str]]:
    any_type = isinstance(row, Commitment) and row.instance_type == "*"
    if not any_type and (row.cloud, row.instance_type) not in catalog.nodes:
        types = [instance_type for cloud, instance_type in catalog.nodes if cloud == row.cloud]
        near = get_close_matches(row.instance_type, types, n=1)
        fix = f"Did you mean {near[0]}?" if near else "Add the machine to nodes.csv"
        yield "instance_type", f"no machine {row.instance_type!r} in {row.cloud}", fix
