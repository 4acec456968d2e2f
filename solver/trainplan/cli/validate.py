"""``trainplan validate``: the performance and memory models against measurements."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainplan.cli.options import AsJson, CatalogDirectory

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainplan.report.document import Document, Table

ATTRIBUTION = (
    "Shipped rows are facts from public sources named in each row (Apache-2.0, MIT and BSD repositories, papers); "
    "results of MLPerf Training submissions were taken from the MLCommons result repositories and are unverified by "
    "MLCommons. MLPerf is a trademark of MLCommons."
)


def validate(
    throughput: Annotated[
        Path | None, typer.Option("--throughput", metavar="FILE", help="Measured throughput, a CSV file.")
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option("--memory", metavar="FILE", help="Measured peak memory and fit or not, a CSV file."),
    ] = None,
    runs: Annotated[
        Path | None,
        typer.Option("--runs", metavar="FILE", help="Published runs with their duration, a CSV file."),
    ] = None,
    plot: Annotated[
        Path | None, typer.Option("--plot", metavar="FILE", help="Write a scatter plot (SVG).")
    ] = None,
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Predict measured rows from their layouts alone and print the errors; without files, the rows that ship."""
    from trainplan.cli.inputs import load_catalog
    from trainplan.cli.output import print_document, print_json, write_files
    from trainplan_models.measurements import read_rows
    from trainplan_models.validation import shipped
    from trainplan_models.validation import validate as hold_against

    own = any((throughput, memory, runs))

    def rows(path: Path | None, name: str) -> list[dict[str, str]]:
        if path is not None:
            return read_rows(path)
        return [] if own else shipped(name)

    result = hold_against(
        rows(throughput, "throughput"), rows(memory, "memory"), rows(runs, "runs"), load_catalog(catalog)
    )
    if plot is not None:
        from trainplan_models.scatter import scatter_svg

        write_files(plot.parent, {plot.name: scatter_svg(result.rows)})
        sys.stderr.write(f"wrote {plot}\n")
    report = result.to_json()
    if as_json:
        print_json(report)
        return
    print_document(document_of(report, own=own))


def document_of(report: Mapping[str, Any], *, own: bool) -> Document:
    """The figures for people."""
    from trainplan.report.document import Document, Section

    summary = report["summary"]
    errors = [
        _errors(title, summary[key])
        for title, key in (
            ("Throughput by generation, precision and kind of model", "by_generation"),
            ("By accelerator", "by_accelerator"),
            ("By precision", "by_precision"),
            ("By source", "by_source"),
            ("By size", "by_size"),
            ("By software generation", "by_software"),
        )
        if summary[key]
    ]
    sections = [Section(title="Judged", facts=_facts(report))]
    if errors:
        sections.append(Section(title="Throughput", tables=tuple(errors)))
    if summary["sweeps"]:
        sections.append(Section(title="Layouts", tables=(_sweeps(summary["sweeps"]),)))
    if summary["fit"]:
        sections.append(Section(title="Memory", tables=(_confusion(summary["fit"]),)))
    sections.append(Section(title="Software generations", tables=(_software(),)))
    if summary["not_judged"]:
        sections.append(Section(title="Not judged", tables=(_reasons(summary["not_judged"]),)))
    if not own:
        sections.append(Section(title="Sources", paragraphs=(ATTRIBUTION,)))
    return Document(title="Model against measurements", sections=tuple(sections))


def _facts(report: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    from trainplan.report import wording

    summary = report["summary"]
    facts = [
        (
            "Rows",
            f"{len(report['rows']):,} throughput, {len(report['memory_rows']):,} memory, "
            f"{len(report['run_rows']):,} runs",
        )
    ]
    for name, key in (
        ("Throughput", "throughput"),
        ("Reinforcement learning steps", "reinforcement_learning"),
        ("Peak memory", "peak_memory"),
        ("Duration of runs", "runs"),
    ):
        if found := summary[key]:
            facts.append(
                (
                    name,
                    f"median error {wording.percent(found['median'])}, 90 % of rows within "
                    f"{wording.percent(found['p90'])}, bias {wording.percent(found['bias'])} ({found['count']:,} rows)",
                )
            )
    if summary["median_rank_correlation"] is not None:
        facts.append(
            ("Rank correlation in layout sweeps", f"{summary['median_rank_correlation']:.2f} (median)")
        )
        facts.append(
            ("Regret of the predicted best layout", f"{wording.percent(summary['median_regret'])} (median)")
        )
    if summary["runs_inside_band"] is not None:
        facts.append(("Runs inside their P10..P90 band", wording.percent(summary["runs_inside_band"])))
    return tuple(facts)


def _errors(title: str, classes: Mapping[str, Mapping[str, float]]) -> Table:
    from trainplan.report import wording
    from trainplan.report.document import Column, Table

    return Table(
        title=title,
        columns=(
            Column("Class"),
            Column("Rows", numeric=True),
            Column("Median error", numeric=True),
            Column("90th percentile", numeric=True),
            Column("Bias", numeric=True),
        ),
        rows=tuple(
            (
                name,
                f"{found['count']:,}",
                wording.percent(found["median"]),
                wording.percent(found["p90"]),
                wording.percent(found["bias"]),
            )
            for name, found in classes.items()
        ),
    )


def _sweeps(sweeps: Mapping[str, Mapping[str, float]]) -> Table:
    from trainplan.report import wording
    from trainplan.report.document import Column, Table

    return Table(
        title="Rows that differ only in their layout",
        columns=(
            Column("Sweep", wraps=True),
            Column("Rows", numeric=True),
            Column("Rank correlation", numeric=True),
            Column("Regret", numeric=True),
        ),
        rows=tuple(
            (
                name,
                f"{found['count']:,}",
                f"{found['rank_correlation']:.2f}",
                wording.percent(found["regret"]),
            )
            for name, found in sweeps.items()
        ),
        note="Regret: what the layout predicted to be best loses against the one measured to be best.",
    )


def _confusion(fit: Mapping[str, float]) -> Table:
    from trainplan.report import wording
    from trainplan.report.document import Column, Table

    return Table(
        title="Fits or does not",
        columns=(
            Column("Measured"),
            Column("Said to fit", numeric=True),
            Column("Said not to", numeric=True),
        ),
        rows=(
            ("fits", f"{fit['fit_said_fit']:,}", f"{fit['fit_said_oom']:,}"),
            ("out of memory", f"{fit['oom_said_fit']:,}", f"{fit['oom_said_oom']:,}"),
        ),
        note=f"{wording.percent(fit['right'])} right.",
    )


def _software() -> Table:
    from trainplan.report.document import Column, Table
    from trainplan_models.efficiency import software_rows

    return Table(
        title="",
        columns=(
            Column("Software"),
            Column("Since"),
            Column("Efficiency factor", numeric=True),
            Column("What it is", wraps=True),
        ),
        rows=tuple(
            (
                f"{row.software} (current)" if row.current else row.software,
                row.since,
                f"{row.compute_factor:.2f}",
                row.note,
            )
            for row in software_rows().values()
        ),
        note="Plans stand for the current generation of their framework; rows are judged by the one they ran on.",
    )


def _reasons(reasons: Mapping[str, int]) -> Table:
    from trainplan.report.document import Column, Table

    return Table(
        title="Rows by reason",
        columns=(Column("Rows", numeric=True), Column("Reason", wraps=True)),
        rows=tuple((f"{count:,}", reason) for reason, count in reasons.items()),
    )
