"""``trainplan check CASE``: is the case well-formed, and how large is the decision it asks for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from trainplan.cli.options import AsJson, CaseFile, CatalogDirectory, Overrides

if TYPE_CHECKING:
    from trainplan.assembly import Assembly
    from trainplan.report.document import Document
    from trainplan_models.case import Case

INFEASIBLE = 3


@dataclass(frozen=True, slots=True)
class TaskSize:
    """How much there is to choose from for one task."""

    task: str
    kind: str
    model: str
    tokens: float
    """Over all rounds; 0 where work is not counted in tokens."""
    after: tuple[str, ...]
    options: int
    pools: int
    accelerators: tuple[str, ...]
    modes: tuple[str, ...]
    fewest_nodes: int
    most_nodes: int


@dataclass(frozen=True, slots=True)
class Sizes:
    """How large the decision is."""

    pools: int
    accelerators: tuple[str, ...]
    modes: tuple[str, ...]
    layouts_evaluated: int
    options: int
    windows: int
    horizon_days: float
    purchases: int
    """Commitments that could be bought, by size and start."""
    tasks: tuple[TaskSize, ...]
    removed: tuple[tuple[str, str, int], ...]
    """Task (empty: pools, for all tasks), rule, count."""


def check(
    case: CaseFile, overrides: Overrides = None, catalog: CatalogDirectory = None, as_json: AsJson = False
) -> None:
    """Validate a case and say what would be decided."""
    from trainplan.assembly import assemble
    from trainplan.cli.inputs import load_case, load_catalog

    asked = load_case(case, overrides)
    sizes = sizes_of(assemble(asked, load_catalog(catalog)))
    stuck = [size.task for size in sizes.tasks if not size.options]
    _print(asked, sizes, ok=not stuck, as_json=as_json)
    if stuck:
        if not as_json:
            sys.stderr.write(f"nothing that the case allows can run: {', '.join(stuck)}\n")
        raise typer.Exit(INFEASIBLE)


def _print(asked: Case, sizes: Sizes, *, ok: bool, as_json: bool) -> None:
    from dataclasses import asdict

    from trainplan.cli.output import print_document, print_json

    if as_json:
        print_json({"status": "ok" if ok else "infeasible", "case": asked.name, **asdict(sizes)})
        return
    print_document(document_of(asked, sizes))


def sizes_of(assembly: Assembly) -> Sizes:
    """What an assembled problem holds."""
    spec = assembly.spec
    removed = [
        (task, rule, count)
        for task, rules in assembly.removed.items()
        for rule, count in rules.most_common()
        if count
    ]
    return Sizes(
        pools=len(assembly.sites),
        accelerators=tuple(sorted({site.accelerator.name for site in assembly.sites})),
        modes=tuple(sorted({mode for site in assembly.sites for mode in site.usd_per_node_h})),
        layouts_evaluated=assembly.evaluated,
        options=len(spec.options),
        windows=len(spec.windows),
        horizon_days=spec.windows[-1][1],
        purchases=len(spec.products),
        tasks=tuple(_task_size(assembly, number) for number in range(len(assembly.works))),
        removed=tuple(removed),
    )


def _task_size(assembly: Assembly, number: int) -> TaskSize:
    work = assembly.works[number]
    options = [i for i, option in enumerate(assembly.spec.options) if option.task == number]
    details = [detail for i in options if (detail := assembly.details[i]) is not None]
    nodes = [assembly.spec.options[i].nodes for i in options] or [0]
    return TaskSize(
        task=work.task.name,
        kind=work.task.kind,
        model=work.task.model if isinstance(work.task.model, str) else "",
        tokens=work.tokens,
        after=tuple(work.task.after),
        options=len(options),
        pools=len({detail.site.name for detail in details}),
        accelerators=tuple(sorted({detail.site.accelerator.name for detail in details})),
        modes=tuple(sorted({detail.mode for detail in details})),
        fewest_nodes=min(nodes),
        most_nodes=max(nodes),
    )


def document_of(asked: Case, sizes: Sizes) -> Document:
    """The sizes for people."""
    from trainplan.report.document import Column, Document, Section, Table
    from trainplan.report.reasons import POOLS

    tasks = Table(
        title="To choose from, by task",
        columns=(
            Column("Task"),
            Column("Kind"),
            Column("Model"),
            Column("Tokens", numeric=True),
            Column("After", wraps=True),
            Column("Options", numeric=True),
            Column("Pools", numeric=True),
            Column("Nodes, with spares", numeric=True),
            Column("Accelerators", numeric=True),
        ),
        rows=tuple(_task_row(size) for size in sizes.tasks),
        note="An option is a pool, a node count with its best layout and checkpoints, and a billing mode.",
    )
    removed = Table(
        title="Ruled out",
        columns=(Column("Task"), Column("Removed", numeric=True), Column("Because", wraps=True)),
        rows=tuple((task or POOLS, f"{count:,}", rule) for task, rule, count in sizes.removed),
    )
    return Document(
        title=f"Case: {asked.name}",
        sections=(
            Section(title="Asked", facts=_asked(asked)),
            Section(title="To decide", facts=_decided(sizes), tables=(tasks, removed)),
        ),
    )


def _task_row(size: TaskSize) -> tuple[str, ...]:
    from trainplan.report import wording

    nodes = f"{size.fewest_nodes}" if size.fewest_nodes == size.most_nodes else ""
    return (
        size.task,
        size.kind,
        size.model or "-",
        wording.tokens(size.tokens) if size.tokens else "-",
        ", ".join(size.after) or "-",
        f"{size.options:,}",
        f"{size.pools:,}",
        nodes or f"{size.fewest_nodes} to {size.most_nodes}",
        f"{len(size.accelerators)}",
    )


def _asked(asked: Case) -> tuple[tuple[str, str], ...]:
    from trainplan.report import wording

    def or_none(text: Any, words: str) -> str:
        return "none" if text is None else words

    deadline_s, budget_usd, lost_s = asked.deadline_s, asked.budget_usd, asked.max_lost_work_s
    return (
        ("Question", asked.question),
        ("Deadline", or_none(deadline_s, wording.duration(deadline_s or 0.0))),
        ("Budget", or_none(budget_usd, f"{wording.usd(budget_usd or 0.0)} USD")),
        ("Reliability", wording.percent(asked.reliability)),
        ("Most lost work", or_none(lost_s, wording.duration(lost_s or 0.0))),
    )


def _decided(sizes: Sizes) -> tuple[tuple[str, str], ...]:
    return (
        ("Pools", f"{sizes.pools:,}"),
        ("Accelerators", f"{len(sizes.accelerators)}: {', '.join(sizes.accelerators)}"),
        ("Billing modes", f"{len(sizes.modes)}: {', '.join(sizes.modes)}"),
        ("Layouts evaluated", f"{sizes.layouts_evaluated:,}"),
        ("Options", f"{sizes.options:,}"),
        ("Time windows", f"{sizes.windows:,} up to day {sizes.horizon_days:.1f}"),
        ("Commitments on offer", f"{sizes.purchases:,}"),
    )
