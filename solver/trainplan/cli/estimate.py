"""``trainplan estimate``: throughput, memory, time and cost of one configuration, or the ranked table of a pool."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from trainplan.cli.options import AsJson, CaseFile, CatalogDirectory, Overrides

if TYPE_CHECKING:
    from collections.abc import Mapping

    from trainplan.report.document import Document, Table
    from trainplan.sites import Site
    from trainplan.works import Work
    from trainplan_models.calibration import Calibration
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog
    from trainplan_models.estimating import Change, Estimate, Machine
    from trainplan_models.plan import Layout

GIB = 2.0**30
INFEASIBLE = 3
SHOWN = 10
DEFAULT_INTERVAL_S = 3600.0
ALIASES = {"mbs": "micro_batch", "zero": "zero_stage", "sp": "sequence_parallel"}
KEYS = (
    "dp",
    "tp",
    "pp",
    "vp",
    "cp",
    "ep",
    "zero_stage",
    "shard_group",
    "micro_batch",
    "recompute",
    "sequence_parallel",
)


@dataclass(frozen=True, slots=True)
class Question:
    """What is estimated."""

    work: Work
    site: Site
    machine: Machine
    calibration: Calibration | None
    interval_s: float


def estimate(
    case: CaseFile,
    task: Annotated[
        str | None, typer.Option("--task", help="The task; needed when the case has several.")
    ] = None,
    on: Annotated[
        str | None, typer.Option("--on", metavar="POOL", help="cloud/region/instance or an owned cluster.")
    ] = None,
    nodes: Annotated[int | None, typer.Option("--nodes", min=1, help="Number of nodes.")] = None,
    layout: Annotated[
        str | None,
        typer.Option("--layout", metavar="tp=4,pp=2,...", help="One layout; without it the best are ranked."),
    ] = None,
    calibrate: Annotated[
        Path | None,
        typer.Option(
            "--calibrate", metavar="FILE", help="Rows you measured, to learn your own factors from."
        ),
    ] = None,
    overrides: Overrides = None,
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Throughput, memory breakdown, cost and time of one configuration; the ranked table without --layout."""
    from trainplan.cli.inputs import load_case, load_catalog
    from trainplan_models.calibration import calibrate as learn
    from trainplan_models.estimating import estimate_layout, nearest_fit, ranked
    from trainplan_models.measurements import read_rows

    asked, known = load_case(case, overrides), load_catalog(catalog)
    learnt = learn(read_rows(calibrate), known) if calibrate is not None else None
    question = _question(asked, known, task, on, nodes, learnt)
    setup = question.work.setup
    assert setup is not None
    wanted: Layout | None
    if layout is not None:
        wanted = parse_layout(layout, question)
        found = [estimate_layout(setup, wanted, question.machine, learnt)]
        removed: Mapping[str, int] = {}
    else:
        found, removed = ranked(setup, question.machine, SHOWN, learnt)
        wanted = found[0].layout if found else None
    change = None
    if layout is not None and wanted is not None and not found[0].fits:
        change = nearest_fit(setup, wanted, question.machine)
    elif not found:
        change = nearest_fit(setup, _plain_layout(question), question.machine)
    _print(question, found, removed, change, as_json=as_json)
    if not found or not found[0].fits:
        raise typer.Exit(INFEASIBLE)


def _question(
    asked: Case,
    known: Catalog,
    task: str | None,
    on: str | None,
    nodes: int | None,
    learnt: Calibration | None,
) -> Question:
    from trainplan.works import works_of
    from trainplan_models.base import InputError, Problem
    from trainplan_models.estimating import Machine

    works = {work.task.name: work for work in works_of(asked, known) if work.setup is not None}
    if task is None and len(works) == 1:
        task = next(iter(works))
    if task is None or task not in works:
        names = ", ".join(works) or "none trains a model"
        raise InputError(
            Problem(
                f"no such task: {task!r}" if task else "name the task", key="--task", fix=f"Tasks: {names}"
            )
        )
    site = _site(asked, known, on)
    machine = Machine(site.accelerator, site.node, nodes or 1)
    if nodes is None:
        raise InputError(Problem("is missing", key="--nodes", fix="Give the number of nodes, e.g. --nodes 8"))
    return Question(
        _on(works[task], site), site, machine, learnt, asked.checkpoints.interval_s or DEFAULT_INTERVAL_S
    )


def _on(work: Work, site: Site) -> Work:
    """The work with the framework and the precision that run on the site's chips."""
    from dataclasses import replace

    from trainplan_models.base import InputError, Problem
    from trainplan_models.efficiency import precision_on
    from trainplan_models.frameworks import framework_on

    assert work.setup is not None
    framework = framework_on(work.setup.framework, site.accelerator.vendor)
    if framework is None:
        message = f"{work.setup.framework} does not run on {site.accelerator.name}"
        raise InputError(Problem(message, key=f"tasks.{work.task.name}.framework", fix="Use auto"))
    precision = precision_on(work.setup.precision, site.accelerator)
    if precision is None:
        message = f"{site.accelerator.name} has no {work.setup.precision}"
        raise InputError(Problem(message, key=f"tasks.{work.task.name}.precision", fix="Use bf16"))
    return replace(work, setup=replace(work.setup, framework=framework, precision=precision))


def _site(asked: Case, known: Catalog, on: str | None) -> Site:
    from difflib import get_close_matches

    from trainplan.sites import Site, find_sites
    from trainplan_models.base import InputError, Problem
    from trainplan_models.network import Place

    sites = {site.name: site for site in find_sites(asked, known)[0]}
    if on is not None and on in sites:
        return sites[on]
    pools = known.pools()
    if on is not None and on in pools:
        pool = pools[on]
        return Site(
            pool.name, Place(pool.cloud, pool.region), pool.node, pool.accelerator, dict(pool.usd_per_node_h)
        )
    names = [*sites, *pools]
    near = get_close_matches(on or "", names, n=3, cutoff=0.4) or list(sites)[:5]
    raise InputError(
        Problem(
            f"no such pool: {on!r}" if on else "name the pool",
            key="--on",
            fix=f"For example {', '.join(near)}",
        )
    )


def _plain_layout(question: Question) -> Layout:
    from trainplan_models.plan import Layout

    devices = question.machine.nodes * question.machine.node.accelerators
    setup = question.work.setup
    return Layout(dp=devices, precision=setup.precision if setup else "bf16")


def parse_layout(text: str, question: Question) -> Layout:
    """A layout written as ``tp=4,pp=2``; ``dp`` follows from the nodes.

    Raises:
        InputError: unknown key, not a number, or a degree that is not legal here, with the valid ones.
    """
    from trainplan_models.base import InputError, Problem
    from trainplan_models.estimating import illegal
    from trainplan_models.layout import RECOMPUTE, rules_of
    from trainplan_models.plan import Layout

    values: dict[str, Any] = {}
    setup = question.work.setup
    assert setup is not None
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        key, _, value = part.partition("=")
        key = ALIASES.get(key.strip(), key.strip())
        if key not in KEYS:
            raise InputError(Problem(f"unknown key {key!r}", key="--layout", fix=f"Known: {', '.join(KEYS)}"))
        if key == "recompute":
            if value not in RECOMPUTE:
                raise InputError(
                    Problem(f"recompute is {value!r}", key="--layout", fix=f"One of {', '.join(RECOMPUTE)}")
                )
            values[key] = value
        elif not value.strip().isdigit():
            raise InputError(Problem(f"{key} is {value!r}", key="--layout", fix="Give a whole number"))
        else:
            values[key] = int(value)
    rules = rules_of(setup.framework)
    values.setdefault("zero_stage", max(rules.zero_stages))
    values["sequence_parallel"] = bool(
        values.get("sequence_parallel", rules.sequence_parallel and values.get("tp", 1) > 1)
    )
    inner = values.get("tp", 1) * values.get("pp", 1) * values.get("cp", 1)
    devices = question.machine.nodes * question.machine.node.accelerators
    values.setdefault("dp", max(devices // max(inner, 1), 1))
    chosen = Layout(precision=setup.precision, **values)
    wrong = illegal(setup, chosen, question.machine)
    if chosen.accelerators != devices:
        wrong.insert(0, f"dp*tp*pp*cp is {chosen.accelerators}, the nodes have {devices} accelerators")
    if wrong:
        raise InputError([Problem(message, key="--layout") for message in wrong])
    return chosen


def _print(
    question: Question,
    found: list[Estimate],
    removed: Mapping[str, int],
    change: Change | None,
    *,
    as_json: bool,
) -> None:
    from trainplan.cli.estimate_records import as_record, calibration_record, change_record
    from trainplan.cli.output import print_document, print_json

    records = [as_record(question, item) for item in found]
    if as_json:
        print_json(
            {
                "task": question.work.task.name,
                "pool": question.site.name,
                "nodes": question.machine.nodes,
                "estimates": records,
                "removed": dict(removed),
                "nearest": None if change is None else change_record(change),
                "calibration": calibration_record(question.calibration),
            }
        )
        return
    document = _document(question, found, records, removed, change)
    print_document(document)
    if not found:
        sys.stderr.write("nothing fits\n")


def _document(
    question: Question,
    found: list[Estimate],
    records: list[dict[str, Any]],
    removed: Mapping[str, int],
    change: Change | None,
) -> Document:
    from trainplan.cli.estimate_tables import layouts, memory, removals, times
    from trainplan.report.document import Document, Section

    sections = []
    if records:
        sections.append(Section(title="Estimate", facts=_facts(question, found[0], records[0])))
    if len(records) > 1:
        sections.append(Section(title="Layouts that fit, fastest first", tables=(layouts(found, records),)))
    if records:
        tables: list[Table] = [times(records[0]), memory(records[0])]
        sections.append(Section(title="Where time and memory go", tables=tuple(tables)))
    if change is not None:
        words = ", ".join(change.changed) or "none"
        peak = f"{change.peak_bytes / GIB:.1f} GiB"
        text = f"Nearest that fits: {words}; {change.tokens_per_s:,.0f} tokens/s, peak {peak}."
        sections.append(Section(title="What to change", paragraphs=(text,)))
    if removed:
        sections.append(Section(title="Ruled out", tables=(removals(removed),)))
    name = f"{question.work.task.name} on {question.machine.nodes} x {question.site.name}"
    return Document(title=name, sections=tuple(sections))


def _facts(question: Question, best: Estimate, record: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    from trainplan.report import wording

    rates, days = record["tokens_per_s"], record["days"]
    facts = [
        ("Layout", wording.layout_words(best.layout)),
        ("Tokens per second", f"{rates['p50']:,.0f} (P10 {rates['p10']:,.0f}, P90 {rates['p90']:,.0f})"),
        ("MFU", wording.percent(best.mfu_frac)),
        ("Step", f"{record['step_s']:.3f} s"),
    ]
    if days["p50"] is not None:
        facts.append(
            (
                "Training time",
                f"{days['p50']:.2f} days (P10 {days['p10']:.2f}, P90 {days['p90']:.2f}), without failures",
            )
        )
    if record["usd"] is not None:
        facts.append(("Compute at the cheapest mode", f"{wording.usd(record['usd'])} USD"))
    fit = "fits" if best.fits else f"does not fit, {record['over_gib']:.1f} GiB too much"
    facts.append(("Memory", f"{record['peak_gib']:.1f} of {record['usable_gib']:.1f} GiB usable: {fit}"))
    known = (
        best.error_class
        if best.error_measured
        else f"{best.error_class}, widened: this class was not measured"
    )
    facts.append(("Error band from", known))
    if question.calibration is not None:
        for name, item in question.calibration.factors.items():
            facts.append(
                (
                    f"Calibrated {name}",
                    f"factor {item.factor:.3f} from {item.rows} rows; median error "
                    f"{wording.percent(item.median_error_before)} -> {wording.percent(item.median_error_after)}",
                )
            )
        if question.calibration.unused:
            facts.append(("Rows not used", f"{len(question.calibration.unused)}"))
    return tuple(facts)
