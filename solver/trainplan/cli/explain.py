"""``trainplan explain PLAN``: why a plan is what it is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainplan.cli.options import AsJson, CatalogDirectory

if TYPE_CHECKING:
    from trainplan.explain import Explanation
    from trainplan.probing import Tolerance
    from trainplan.report.document import Document, Table

DAY_S = 86400.0


def explain(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan.json that plan -o wrote.", show_default=False)
    ],
    workers: Annotated[int, typer.Option(metavar="N", min=0, help="Processes; 0 for one per core.")] = 0,
    time_limit: Annotated[str, typer.Option(metavar="TIME", help="Longest time for each solve.")] = "60s",
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Say what else there was, what holds a plan back, and how firmly it stands."""
    from trainplan.cli.inputs import load_catalog, load_plan, seconds
    from trainplan.cli.output import print_document, print_json
    from trainplan.cli.progress import Progress

    limit_s = seconds(time_limit, "--time-limit")
    answer = load_plan(plan)
    known = load_catalog(catalog)
    with Progress() as progress:
        progress("loading the solver")
        from trainplan.explain import explain as work_out

        found = work_out(answer, known, time_limit_s=limit_s, workers=workers, progress=progress)
    if as_json:
        print_json(found.model_dump(mode="json"))
        return

    print_document(document_of(found))


def document_of(found: Explanation) -> Document:
    """An explanation as tables."""
    from trainplan.report.document import Document, Section

    facts = (
        ("Question", found.question),
        ("Cost", f"{found.total_usd:,.2f} USD"),
        ("Finish", f"day {found.finish_s / DAY_S:.2f}"),
    )
    return Document(
        title=f"Why: {found.case}",
        sections=(
            Section(title="The plan", facts=facts),
            Section(title="Why this and not that", tables=(_alternatives(found),)),
            Section(title="What binds", tables=(_worths(found),)),
            Section(title="How firmly it stands", tables=(_tolerances(found),)),
            Section(title="Next-best plans of another kind", tables=(_next_best(found),)),
        ),
    )


def _alternatives(found: Explanation) -> Table:
    from trainplan.report.document import Column, Table

    columns = (
        Column("Kind"),
        Column("Instead"),
        Column("USD", numeric=True),
        Column("Finish", numeric=True),
        Column("Why not", wraps=True),
    )
    rows = tuple(
        (
            other.kind,
            other.name,
            "-" if other.usd is None else f"{other.usd:,.2f}",
            "-" if other.finish_s is None else f"day {other.finish_s / DAY_S:.2f}",
            other.reason,
        )
        for other in found.alternatives
    )
    return Table(title="Alternatives", columns=columns, rows=rows)


def _worths(found: Explanation) -> Table:
    from trainplan.report.document import Column, Table

    columns = (
        Column("Limit"),
        Column("Step"),
        Column("Binds"),
        Column("One step more", wraps=True),
        Column("One step less", wraps=True),
    )
    rows = tuple(
        (
            worth.limit,
            worth.step,
            "yes" if worth.binds else "no",
            _moved(worth.more_usd, worth.more_finish_s),
            _moved(worth.less_usd, worth.less_finish_s),
        )
        for worth in found.worths
    )
    return Table(title="What one step of each limit is worth", columns=columns, rows=rows)


def _moved(usd: float | None, finish_s: float | None) -> str:
    if usd is None or finish_s is None:
        return "no plan"
    if abs(usd) < 0.01 and abs(finish_s) < 60.0:
        return "nothing changes"
    return f"{usd:+,.2f} USD, {finish_s / DAY_S:+.2f} days"


def _tolerances(found: Explanation) -> Table:
    from trainplan.report.document import Column, Table

    columns = (Column("What"), Column("Decision changes at"), Column("To", wraps=True))
    rows = tuple((one.what, _turning(one), one.becomes or "-") for one in found.tolerances)
    note = "Factors of what is assumed; looked at from an eighth to eight times."
    return Table(title="How far it may move", columns=columns, rows=rows, note=note)


def _turning(one: Tolerance) -> str:
    if one.factor is None:
        return f"not, however much {one.way}"
    return f"x {one.factor:.2f}" if one.becomes else f"x {one.factor:.2f}: no plan"


def _next_best(found: Explanation) -> Table:
    from trainplan.report.document import Column, Table

    columns = (
        Column("USD", numeric=True),
        Column("More", numeric=True),
        Column("Finish", numeric=True),
        Column("Plan", wraps=True),
    )
    rows = tuple(
        (
            f"{other.total_usd:,.2f}",
            f"{other.more_usd:+,.2f}",
            f"day {other.finish_s / DAY_S:.2f}",
            "; ".join(other.decision),
        )
        for other in found.next_best
    )
    return Table(title="Plans that do without part of what this one uses", columns=columns, rows=rows)
