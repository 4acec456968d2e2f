"""``trainplan what-if CASE --vary ...``: many cases at once, side by side."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainplan.cli.options import AsJson, CaseFile, CatalogDirectory, Overrides, PointTimeLimit, Risk

if TYPE_CHECKING:
    from trainplan.report.document import Document
    from trainplan.whatif import Row

NO_PLAN_AT_ALL = 3
KEPT = "what-if.jsonl"


Varied = Annotated[
    list[str] | None,
    typer.Option(
        "--vary",
        metavar="KEY=VALUES",
        help="Values of a key: deadline=20d..60d/5d or 'budget=400k USD,500k USD'. May be repeated.",
    ),
]
Scenarios = Annotated[
    Path | None, typer.Option("--scenarios", metavar="FILE", help="Named sets of overrides, a YAML file.")
]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output",
        "-o",
        metavar="DIR",
        help="Write what-if.csv and what-if.json here, and keep finished points, from which an interrupted "
        "sweep goes on.",
    ),
]
Xlsx = Annotated[bool, typer.Option("--xlsx", help="Write what-if.xlsx into the directory as well.")]
Workers = Annotated[
    int, typer.Option(metavar="N", min=0, help="Processes on this machine; 0 for one per core.")
]
Scheduler = Annotated[
    str, typer.Option(metavar="ADDRESS", help="Run on the Dask cluster of this scheduler, tcp://host:port.")
]


def what_if(
    case: CaseFile,
    vary: Varied = None,
    scenarios: Scenarios = None,
    overrides: Overrides = None,
    output: Output = None,
    xlsx: Xlsx = False,
    workers: Workers = 0,
    scheduler: Scheduler = "",
    risk: Risk = True,
    time_limit: PointTimeLimit = "60s",
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Plan a case under many changes, and set the answers side by side."""
    from trainplan.cli.inputs import load_case, load_catalog, seconds
    from trainplan.cli.progress import Progress

    limit_s = seconds(time_limit, "--time-limit")
    load_case(case, overrides)  # its mistakes are told once, not at every point
    load_catalog(catalog)
    from trainplan.comparison import records_of
    from trainplan.sweep_points import points_of
    from trainplan.whatif import CaseText, How, Store
    from trainplan.whatif import what_if as sweep

    points = points_of(vary or (), scenarios)
    with Progress() as progress:
        rows = sweep(
            CaseText.read(case, overrides or ()),
            points,
            catalog_directory=catalog,
            how=How(workers, scheduler, limit_s, promise=risk),
            store=Store() if output is None else Store(_kept_in(output)),
            progress=progress,
        )
    records = records_of(rows)
    if output is not None:
        _write(output, rows, xlsx=xlsx)
    if as_json:
        from trainplan.cli.output import print_json

        print_json({"points": records})
    else:
        _print(rows)
    if not any(row.total_usd is not None for row in rows):
        raise typer.Exit(NO_PLAN_AT_ALL)


def _kept_in(output: Path) -> Path:
    """The file of finished points in a directory, which is made if absent."""
    from trainplan_models.base import InputError, Problem

    try:
        output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(Problem(f"cannot write to {output}: {error.strerror}", key="--output")) from None
    return output / KEPT


def _write(output: Path, rows: Sequence[Row], *, xlsx: bool) -> None:
    from trainplan.cli.output import write_files
    from trainplan.comparison import csv_of, records_of, write_xlsx

    records = records_of(rows)
    full = [row.model_dump(mode="json", exclude={"key"}) for row in rows]
    texts = {
        "what-if.csv": csv_of(records),
        "what-if.json": json.dumps({"points": full}, indent=2, ensure_ascii=False) + "\n",
    }
    written = write_files(output, texts)
    if xlsx:
        write_xlsx(records, output / "what-if.xlsx")
        written.append(output / "what-if.xlsx")
    sys.stderr.write(f"written: {', '.join(map(str, written))}\n")


def _print(rows: Sequence[Row]) -> None:
    from trainplan.cli.output import print_document

    print_document(document_of(rows))


def document_of(rows: Sequence[Row]) -> Document:
    """The rows of a sweep as a table, only the inputs that differ beside the answers."""
    from trainplan.comparison import differing
    from trainplan.report.document import Column, Document, Section, Table

    keys = differing(rows)
    simulated = any(row.expected_usd is not None for row in rows)
    named = any(row.name and not _says_the_same(row, keys) for row in rows[1:])
    columns = (
        *((Column("Point"),) if named or not keys else ()),
        *(Column(key) for key in keys),
        Column("Expected USD" if simulated else "Planned USD", numeric=True),
        Column("Difference", numeric=True),
        *((Column("Planned USD", numeric=True),) if simulated else ()),
        Column("Planned days", numeric=True),
        Column("Difference", numeric=True),
        Column("Chance", numeric=True),
        Column("Plan", wraps=True),
    )
    body = tuple(
        (
            *((row.name,) if named or not keys else ()),
            *(row.changes.get(key, "(as it is)") for key in keys),
            *_results(row, rows[0], simulated=simulated),
        )
        for row in rows
    )
    table = Table(title="Points", columns=columns, rows=body, note=_note(simulated=simulated))
    failed = sum(row.total_usd is None for row in rows)
    facts = (("Points", f"{len(rows):,}"), ("Without a plan", f"{failed:,}"))
    return Document(title="What if", sections=(Section(title="Side by side", facts=facts, tables=(table,)),))


def _note(*, simulated: bool) -> str:
    expected = " Expected: mean over simulated launches." if simulated else " Nothing was simulated."
    return f"Differences are to the case as it is.{expected}"


def _says_the_same(row: Row, keys: Sequence[str]) -> bool:
    return row.name == ", ".join(f"{key}={row.changes[key]}" for key in keys if key in row.changes)


def _results(row: Row, base: Row, *, simulated: bool) -> tuple[str, ...]:
    """What a row tells, its cost as expected where plans were simulated."""
    usd, base_usd = (row.expected_usd, base.expected_usd) if simulated else (row.total_usd, base.total_usd)
    if row.total_usd is None or row.finish_s is None or usd is None:
        reason = row.reason.splitlines()[0] if row.reason else ""
        return (*("-",) * (6 if simulated else 5), f"{row.status}: {reason}")
    return (
        f"{usd:,.2f}",
        _apart(usd, base_usd, ",.2f"),
        *((f"{row.total_usd:,.2f}",) if simulated else ()),
        f"{row.finish_s / 86400.0:.2f}",
        _apart(row.finish_s / 86400.0, None if base.finish_s is None else base.finish_s / 86400.0, ".2f"),
        "-" if row.chance_frac is None else f"{row.chance_frac:.1%}",
        "; ".join(row.decision),
    )


def _apart(value: float, base: float | None, shown: str) -> str:
    if base is None:
        return "-"
    share = f" ({(value - base) / base:+.1%})" if base else ""
    return f"{format(value - base, '+' + shown)}{share}"
