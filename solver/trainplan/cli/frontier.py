"""``trainplan frontier CASE``: cost against finish time, or against reliability."""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainplan.cli.options import AsJson, CaseFile, CatalogDirectory, Overrides, PointTimeLimit, Risk

if TYPE_CHECKING:
    from trainplan.frontier import Frontier
    from trainplan.report.document import Document


class Axis(StrEnum):
    """What cost is set against."""

    finish = "finish"
    reliability = "reliability"


Against = Annotated[Axis, typer.Option("--against", help="What cost is set against.", case_sensitive=False)]
Points = Annotated[int, typer.Option(metavar="N", min=2, help="Plans that are made at most.")]
Output = Annotated[
    Path | None,
    typer.Option(
        "--output", "-o", metavar="DIR", help="Write frontier.csv, .json, .svg and .html into this directory."
    ),
]


def frontier(
    case: CaseFile,
    against: Against = Axis.finish,
    points: Points = 24,
    overrides: Overrides = None,
    output: Output = None,
    risk: Risk = True,
    time_limit: PointTimeLimit = "60s",
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Show what finishing earlier, or more surely, costs."""
    from trainplan.cli.inputs import load_case, load_catalog, seconds
    from trainplan.cli.progress import Progress

    limit_s = seconds(time_limit, "--time-limit")
    asked = load_case(case, overrides)
    known = load_catalog(catalog)
    with Progress() as progress:
        progress("loading the solver")
        from trainplan.frontier import frontier as trace

        found = trace(
            asked,
            known,
            against=against.value,
            most_points=points,
            time_limit_s=limit_s,
            promise=risk,
            progress=progress,
        )
    if output is not None:
        _write(output, found)
    if as_json:
        from trainplan.cli.output import print_json

        print_json(found.model_dump(mode="json"))
        return
    from trainplan.cli.output import print_document

    print_document(document_of(found))


def _write(output: Path, found: Frontier) -> None:
    from trainplan.cli.output import write_files
    from trainplan.frontier_chart import html_of, svg_of

    texts = {
        "frontier.csv": csv_of(found),
        "frontier.json": found.model_dump_json(indent=2) + "\n",
        "frontier.svg": svg_of(found),
        "frontier.html": html_of(found) + "\n",
    }
    sys.stderr.write(f"written: {', '.join(map(str, write_files(output, texts)))}\n")


def csv_of(found: Frontier) -> str:
    """A line for each point, a header first."""
    import csv
    import io

    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(
        [
            "overrides",
            "expected_usd",
            "total_usd",
            "finish_days",
            "chance_frac",
            "within_budget",
            "corner",
            "decision",
        ]
    )
    for point in found.points:
        chance = "" if point.chance_frac is None else point.chance_frac
        days, words = point.finish_s / 86400.0, "; ".join(point.decision)
        writer.writerow(
            [
                "; ".join(point.overrides),
                "" if point.expected_usd is None else point.expected_usd,
                point.total_usd,
                days,
                chance,
                point.within_budget,
                point.corner,
                words,
            ]
        )
    return out.getvalue()


def document_of(found: Frontier) -> Document:
    """The points of a frontier as a table."""
    from trainplan.report.document import Column, Document, Section, Table

    simulated = any(point.expected_usd is not None for point in found.points)
    table = Table(
        title="Plans that are not beaten",
        columns=(
            Column("plan --set", wraps=True),
            *((Column("Expected USD", numeric=True),) if simulated else ()),
            Column("Planned USD", numeric=True),
            Column("Planned days", numeric=True),
            Column("Chance", numeric=True),
            Column("Corner"),
            Column("In budget"),
            Column("Plan", wraps=True),
        ),
        rows=tuple(
            (
                ", ".join(point.overrides),
                *((f"{point.usd:,.2f}",) if simulated else ()),
                f"{point.total_usd:,.2f}",
                f"{point.finish_s / 86400.0:.2f}",
                "-" if point.chance_frac is None else f"{point.chance_frac:.1%}",
                "yes" if point.corner else "no",
                "yes" if point.within_budget else "no",
                "; ".join(point.decision),
            )
            for point in found.points
        ),
        note="Each is what `plan` answers with these overrides. "
        + (
            "Compared by expected cost, the mean over simulated launches."
            if simulated
            else "Compared by planned cost: nothing was simulated."
        ),
    )
    title = f"{found.case}: cost against {'finish time' if found.against == 'finish' else 'reliability'}"
    return Document(title=title, sections=(Section(title="Frontier", tables=(table,)),))
