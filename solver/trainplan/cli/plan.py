"""``trainplan plan CASE``: the main job."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainplan.cli.options import AsJson, CaseFile, CatalogDirectory, Overrides

if TYPE_CHECKING:
    from trainplan_models.plan import Plan

NOT_PROVEN = 4


def plan(
    case: CaseFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", metavar="DIR", help="Write plan.json and report.md into this directory."
        ),
    ] = None,
    question: Annotated[
        str | None,
        typer.Option(
            metavar="QUESTION", help="cheapest, fastest, most-tokens or safest; replaces the case's question."
        ),
    ] = None,
    overrides: Overrides = None,
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
    time_limit: Annotated[
        str, typer.Option(metavar="TIME", help="Longest time to search for the best plan.")
    ] = "60s",
    quiet: Annotated[
        bool, typer.Option("--quiet", "-q", help="Print nothing but errors; for use with --output.")
    ] = False,
) -> None:
    """Find the best plan for a case, verify it, and print the report.

    Ctrl-C during the search ends it with the best plan found so far; a second one ends the command.
    """
    from trainplan.cli.inputs import load_case, load_catalog, seconds
    from trainplan.cli.progress import Progress

    limit_s = seconds(time_limit, "--time-limit")
    asked = load_case(case, overrides, question)
    with Progress(quiet=quiet) as progress:
        progress("reading the catalogue")
        known = load_catalog(catalog)
        progress("loading the solver")
        from trainplan.highs import Session
        from trainplan.planning import plan as decide

        with Session(keep_best=True) as session:
            answer = decide(asked, known, time_limit_s=limit_s, progress=progress, session=session)
    publish(answer, output=output, as_json=as_json, quiet=quiet)
    if answer.status != "optimal":
        if not quiet:
            until = "when it was stopped" if session.stopped else f"within {time_limit}"
            sys.stderr.write(f"not proven optimal {until}; the plan is the best one found\n")
        raise typer.Exit(NOT_PROVEN)


def publish(answer: Plan, *, output: Path | None, as_json: bool, quiet: bool) -> None:
    """Write and print a plan in the forms asked for."""
    from trainplan import report
    from trainplan.cli.output import print_json, print_text, write_files

    if output is not None:
        texts = {"plan.json": answer.model_dump_json(indent=2) + "\n", "report.md": report.markdown(answer)}
        written = write_files(output, texts)
        if not quiet:
            sys.stderr.write(f"written: {', '.join(map(str, written))}\n")
    if as_json:
        print_json(answer.model_dump(mode="json"))
    elif not quiet:
        print_text(
            lambda width, colour, ascii_only: report.terminal(
                answer, width=width, colour=colour, ascii_only=ascii_only
            )
        )
