"""``trainplan catalog import``: prices for a catalogue of one's own; quotas, reservations and clusters for a case."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainplan.cli.options import CatalogDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from datetime import date

    from trainplan_models.catalog import Catalog
    from trainplan_models.catalog.records import DroppedOffer, Row
    from trainplan_models.imports import Holding

ImportFile = Annotated[
    Path,
    typer.Argument(
        metavar="FILE",
        help="A price list in SkyPilot's columns, a CSV of private prices, quotas or reservations, "
        "or the output of sinfo.",
        show_default=False,
    ),
]
AsOf = Annotated[
    str, typer.Option(metavar="DATE", help="Of when FILE is; needed where it has no column as_of.")
]
Output = Annotated[
    Path,
    typer.Option(
        "--output",
        "-o",
        help="Prices: a new directory for --catalog. Others: a new case file.",
        show_default=False,
    ),
]
Kind = Annotated[
    str,
    typer.Option(
        metavar="KIND", help="price-list, prices, quotas, reservations or sinfo; absent: told from FILE."
    ),
]
Cloud = Annotated[str, typer.Option(help="Whose price list; absent: the name of the file's folder.")]
Source = Annotated[str, typer.Option(help="Where FILE is from; absent: its name.")]
CaseToAddTo = Annotated[
    Path | None,
    typer.Option(
        "--case", metavar="CASE", help="The case to add quotas, reservations or clusters to; only read."
    ),
]
Start = Annotated[
    str | None,
    typer.Option(metavar="DATE", help="Day 0 of the case, if it has none and reservations have dates."),
]
GpuTypes = Annotated[
    list[str] | None,
    typer.Option(metavar="TYPE=NAME", help="What a GPU type of sinfo is in the catalogue. May be repeated."),
]

PRICES = ("price-list", "prices")


@dataclass(frozen=True, slots=True)
class _Asked:
    """What is imported and what is said about it."""

    file: Path
    output: Path
    source: str
    as_of: str
    known: Catalog


def import_file(
    file: ImportFile,
    output: Output,
    as_of: AsOf = "",
    kind: Kind = "",
    cloud: Cloud = "",
    source: Source = "",
    case: CaseToAddTo = None,
    start: Start = None,
    accelerator: GpuTypes = None,
    catalog: CatalogDirectory = None,
) -> None:
    """Read prices into a catalogue of your own, or quotas, reservations and Slurm clusters into a case.

    A price list or private prices become a new directory to give to --catalog; with --catalog DIR here the rows of DIR
    are taken along: they stay before those of a price list, and give way to private prices. Quotas, reservations and
    sinfo become a new case file, the one of --case with them added; entries it has already stay as they are.
    Nothing that exists is changed. What cannot be used is counted on stderr, with the reason.
    """
    from trainplan.cli.inputs import load_catalog

    found = _checked_kind(kind, file)
    _check(found, output, as_of, case)
    asked = _Asked(file, output, source or file.name, as_of, load_catalog(catalog))
    if found == "price-list":
        _price_list(asked, cloud, catalog)
    elif found == "prices":
        _private(asked, catalog)
    else:
        assert case is not None, "checked"
        _held(found, asked, case, start, accelerator or [])


def _checked_kind(word: str, file: Path) -> str:
    from difflib import get_close_matches

    from trainplan_models.base import InputError, Problem
    from trainplan_models.import_kinds import KINDS, kind_of

    if not word:
        return kind_of(file)
    if word not in KINDS:
        near = get_close_matches(word, KINDS, n=1)
        fix = f"Did you mean {near[0]}?" if near else f"Known: {', '.join(KINDS)}"
        raise InputError(Problem(f"no kind of import {word!r}", key="--kind", fix=fix))
    return word


def _check(kind: str, output: Path, as_of: str, case: Path | None) -> None:
    """Refuse what cannot be before anything is read.

    Raises:
        InputError: a date that is none, a place that is taken, a case that is needed or is not.
    """
    from trainplan_models.base import InputError, Problem
    from trainplan_models.catalog.dates import last_day

    problems = []
    if as_of and last_day(as_of) is None:
        problems.append(Problem(f"{as_of!r} is no date", key="--as-of", fix="Write it as 2026-08-31"))
    if not as_of and kind in ("price-list", "sinfo"):
        message = "the file does not say of when it is"
        problems.append(Problem(message, key="--as-of", fix="Give its date, like --as-of 2026-08-31"))
    if kind in PRICES:
        taken = sorted(path.name for path in output.glob("*.csv")) if output.is_dir() else []
        if taken or output.is_file():
            there = f"{output} has {', '.join(taken)} already" if taken else f"{output} is a file"
            fix = f"Name a new directory: yours are never changed; --catalog {output} takes its rows along"
            problems.append(Problem(there, key="--output", fix=fix))
    elif output.exists():
        fix = "Name a new file: yours is never changed"
        problems.append(Problem(f"{output} is there already", key="--output", fix=fix))
    if kind not in PRICES and case is None:
        fix = (
            "Name it with --case; for a new case, `trainplan init` takes --quotas, --reservations and --sinfo"
        )
        problems.append(Problem(f"{kind} belong to a case", key="--case", fix=fix))
    if kind in PRICES and case is not None:
        fix = "Leave --case out, and give the new directory to --catalog"
        problems.append(Problem("prices belong to a catalogue, not to a case", key="--case", fix=fix))
    if problems:
        raise InputError(problems)


def _price_list(asked: _Asked, cloud: str, own: Path | None) -> None:
    from trainplan_models.catalog.price_lists import read_price_list
    from trainplan_models.catalog.tables import DROPPED, NODES, OFFERS
    from trainplan_models.prices import import_offers

    imported = import_offers(read_price_list(asked.file, cloud, asked.source, asked.as_of), asked.known)
    rows = {OFFERS.kind: imported.offers, DROPPED.kind: imported.dropped, NODES.kind: imported.nodes}
    counts = f"{len(imported.offers)} offers, {len(imported.dropped)} prices left out"
    sys.stderr.write(f"{counts}, {imported.ignored} rows without an accelerator\n")
    _tell_rules(imported.dropped)
    sys.stderr.writelines(f"{warning}\n" for warning in imported.warnings)
    _write_catalog(asked, rows, own, new_ones_win=False)


def _tell_rules(dropped: Sequence[DroppedOffer]) -> None:
    """How many prices each rule left out, with the commonest reason."""
    counts = Counter(row.rule for row in dropped)
    for rule, count in counts.most_common():
        reasons = Counter(row.reason for row in dropped if row.rule == rule)
        reason, times = reasons.most_common(1)[0]
        more = "" if times == count else ", and others"
        sys.stderr.write(f"  {rule}: {count} ({reason}{more})\n")


def _private(asked: _Asked, own: Path | None) -> None:
    from trainplan_models.catalog.joining import with_siblings
    from trainplan_models.catalog.tables import COMMITMENTS, DATED_PRICES, OFFERS
    from trainplan_models.private_prices import private_prices

    found = private_prices(asked.file, asked.known, asked.source, asked.as_of)
    dated = f", {len(found.dated)} prices for certain days" if found.dated else ""
    sys.stderr.write(f"{len(found.offers)} offers, {len(found.commitments)} commitments{dated}\n")
    sys.stderr.writelines(f"warning: {warning}\n" for warning in found.warnings)
    commitments = with_siblings(found.commitments, asked.known)
    rows = {OFFERS.kind: found.offers, COMMITMENTS.kind: commitments, DATED_PRICES.kind: found.dated}
    _write_catalog(asked, rows, own, new_ones_win=True)


def _write_catalog(
    asked: _Asked, rows: Mapping[str, Sequence[Row]], own: Path | None, *, new_ones_win: bool
) -> None:
    from trainplan.cli.output import write_files
    from trainplan_models.catalog.joining import joined

    found = joined(rows, own, new_ones_win=new_ones_win)
    if found.kept:
        sys.stderr.write(f"{found.kept} rows of {own} stay, and the list has others for them\n")
    if found.replaced:
        sys.stderr.write(f"{found.replaced} rows of {own} give way to private prices\n")
    written = write_files(asked.output, found.texts)
    sys.stderr.write(f"written: {', '.join(map(str, written))}\n")


def _held(kind: str, asked: _Asked, case: Path, start: str | None, accelerators: list[str]) -> None:
    from trainplan.cli.case_additions import case_with, day0_of
    from trainplan.cli.held import accelerator_names, clusters, tell_left_out
    from trainplan.cli.output import write_files
    from trainplan_models.imports import quotas_from_csv, reservations_from_csv

    day0 = day0_of(case, _day(start))
    where = {"source": asked.source, "as_of": asked.as_of}
    if kind == "quotas":
        quotas = quotas_from_csv(asked.file, asked.known, **where)
        _refuse_undated(asked.file, quotas.found)
        tell_left_out(quotas.left_out)
        count = f"{len(quotas.found)} quotas"
        text, kept = case_with(case, asked.output, quotas=quotas.found)
    elif kind == "reservations":
        held = reservations_from_csv(asked.file, asked.known, start=_needed(day0, case), **where)
        _refuse_undated(asked.file, held.found)
        tell_left_out(held.left_out)
        count = f"{len(held.found)} reservations"
        text, kept = case_with(case, asked.output, owned=held.found, start=day0)
    else:
        pools = clusters(asked.file, accelerator_names(accelerators), asked.known, **where)
        count = f"{len(pools)} clusters"
        text, kept = case_with(case, asked.output, owned=pools)
    stay = f", of which {len(kept)} stay as the case has them: {', '.join(kept)}" if kept else ""
    sys.stderr.write(f"{count}{stay}\n")
    written = write_files(asked.output.parent, {asked.output.name: text})
    sys.stderr.write(f"written: {', '.join(map(str, written))}\n")


def _refuse_undated(file: Path, found: Sequence[Holding[Any]]) -> None:
    from trainplan_models.base import InputError, Problem

    if any(not holding.as_of for holding in found):
        message = "nothing says of when these are"
        fix = "Give --as-of 2026-08-31, or fill in a column as_of"
        raise InputError(Problem(message, key="as_of", file=str(file), fix=fix))


def _day(text: str | None) -> date | None:
    from datetime import date as day

    from trainplan_models.base import InputError, Problem

    try:
        return None if text is None else day.fromisoformat(text)
    except ValueError:
        problem = Problem(f"{text!r} is no date", key="--start", fix="Write it as 2026-08-31")
        raise InputError(problem) from None


def _needed(day0: date | None, case: Path) -> date:
    from trainplan_models.base import InputError, Problem

    if day0 is not None:
        return day0
    message = "the case does not say on which day it starts, and reservations have dates"
    fix = "Give --start 2026-08-31, or write `start:` in the case"
    raise InputError(Problem(message, key="start", file=str(case), fix=fix))
