"""``trainplan simulate PLAN``: the plan against fresh scenarios, or its spot part on recorded capacity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from trainplan.cli.options import AsJson, CatalogDirectory

if TYPE_CHECKING:
    from trainplan.report.document import Document, Section, Table
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog
    from trainplan_models.plan import Plan
    from trainplan_models.simulation import Simulation
    from trainplan_models.simulation_trace import TraceReplay

SHOWN = ("p05", "p10", "p50", "p80", "p90", "p95", "p99")


def simulate(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan.json that plan -o wrote.", show_default=False)
    ],
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            "--trace",
            metavar="FILE",
            help="Recorded spot capacity to replay; several are zones recorded at the same time.",
        ),
    ] = None,
    scenarios: Annotated[
        int, typer.Option("--scenarios", metavar="N", min=100, max=1_000_000, help="Scenarios to draw.")
    ] = 10_000,
    seed: Annotated[
        int, typer.Option("--seed", metavar="S", min=0, help="The same seed gives the same numbers.")
    ] = 1,
    starts: Annotated[
        int, typer.Option("--starts", metavar="N", min=1, help="Start times in a recording.")
    ] = 100,
    preempted: Annotated[
        bool,
        typer.Option("--preempted", help="The recordings hold 1 where spot is lost, not where it is up."),
    ] = False,
    catalog: CatalogDirectory = None,
    as_json: AsJson = False,
) -> None:
    """Run a plan through scenarios it was not made from: when it ends, what it costs, how sure that is."""
    from trainplan.cli.inputs import load_catalog, load_plan
    from trainplan.cli.output import print_document, print_json
    from trainplan_models.case import Case

    answer, rows = load_plan(plan), load_catalog(catalog)
    case = Case.from_canonical(answer.case)
    found: Simulation | None = None
    replays: tuple[TraceReplay, ...] = ()
    if trace:
        replays = _replays(answer, case, rows, trace, preempted, starts)
    else:
        found = _simulation(answer, case, rows, scenarios, seed)
    if as_json:
        simulation = None if found is None else found.model_dump(mode="json")
        told = [replay.model_dump(mode="json") for replay in replays]
        print_json({"plan": answer.name, "simulation": simulation, "replays": told})
        return
    print_document(document_of(answer, case, found, replays))


def _simulation(plan: Plan, case: Case, catalog: Catalog, count: int, seed: int) -> Simulation:
    from trainplan.scenarios import for_plan
    from trainplan_models.simulation import simulate as run

    return run(plan, case, catalog, for_plan(plan, case, catalog, count, seed), seed)


def _replays(
    plan: Plan, case: Case, catalog: Catalog, files: Sequence[Path], preempted: bool, starts: int
) -> tuple[TraceReplay, ...]:
    from trainplan_models.simulation_trace import replay_plan
    from trainplan_models.traces import load_trace

    return replay_plan(plan, case, catalog, [load_trace(file, preempted) for file in files], starts)


def document_of(plan: Plan, case: Case, found: Simulation | None, replays: Sequence[TraceReplay]) -> Document:
    """The figures for people."""
    from trainplan.report.document import Document

    sections = [] if found is None else _simulated(plan, case, found)
    sections += [_replayed(replay) for replay in replays]
    return Document(title=f"Simulation of {plan.name}", sections=tuple(sections))


def _simulated(plan: Plan, case: Case, found: Simulation) -> list[Section]:
    from trainplan.report.document import Section
    from trainplan_models.units import format_quantity

    def time(seconds: float) -> str:
        return format_quantity(seconds, "s")

    facts = [
        ("Scenarios", f"{found.scenarios_count:,}, seed {found.seed}"),
        ("Asked for", f"{case.reliability:.0%} in time and in budget"),
        ("In time", f"{found.p_in_time:.1%}" + ("" if case.deadline_s else " (no deadline)")),
        ("In budget", f"{found.p_in_budget:.1%}" + ("" if case.budget_usd else " (no budget)")),
        ("Both", f"{found.p_both:.1%}, at least {found.p_both_low:.1%} with 95% confidence"),
        ("Useful time (ETTR)", f"{found.ettr_mean_frac:.1%} of the time nodes are held"),
        ("Failures", f"{found.failures_mean_count:.1f} in the mean"),
        ("Losses of spot", f"{found.preemptions_mean_count:.1f} in the mean"),
        ("Work lost", f"{time(found.lost_work_mean_s)} in the mean"),
    ]
    if found.fallback:
        facts.append(("On on-demand instead", f"{found.on_demand_share:.1%} of the hours planned on spot"))
    return [
        Section(title="Chances", facts=tuple(facts), paragraphs=found.fallback),
        Section(title="Outcomes", tables=(_outcomes(plan, found), _causes(found))),
    ]


def _outcomes(plan: Plan, found: Simulation) -> Table:
    from trainplan.report.document import Column, Table
    from trainplan_models.units import format_quantity

    def row(name: str, planned: str, values: Mapping[str, float], dimension: str) -> tuple[str, ...]:
        said = format_quantity if dimension == "s" else None
        texts = [said(values[p], "s") if said else f"{values[p]:,.0f} USD" for p in SHOWN]
        return (name, planned, *texts)

    rows = [
        row("finish", format_quantity(plan.finish_s, "s"), found.finish_quantiles_s, "s"),
        row("cost", f"{plan.total_usd:,.0f} USD", found.cost_quantiles_usd, "usd"),
    ]
    planned = {time.task: time.end_s for time in plan.tasks}
    if len(found.tasks) > 1:
        rows += [
            row(f"end of {task.task}", format_quantity(planned[task.task], "s"), task.end_quantiles_s, "s")
            for task in found.tasks
            if task.task in planned
        ]
    columns = [Column("What"), *(Column(name, numeric=True) for name in ("Planned", *map(str.upper, SHOWN)))]
    return Table("Planned and simulated", tuple(columns), tuple(rows))


def _causes(found: Simulation) -> Table:
    from trainplan.report.document import Column, Table

    rows = tuple(
        (cause.name, f"{cause.finish_share:.0%}", f"{cause.cost_share:.0%}") for cause in found.causes
    )
    columns = (Column("Cause"), Column("Of the finish", numeric=True), Column("Of the cost", numeric=True))
    note = "Share of the variance that each cause explains by itself; the last row is what is left."
    return Table("What brings the spread", columns, rows, note=note)


def _replayed(replay: TraceReplay) -> Section:
    from trainplan.report.document import Column, Section, Table
    from trainplan_models.units import format_quantity

    rows = tuple(
        (
            row.policy,
            f"{row.missed_count}",
            f"{row.cost_mean_usd:,.0f} USD",
            f"{row.saving_frac:.1%}",
            f"{row.preemptions_mean_count:.1f}",
        )
        for row in replay.policies
    )
    columns = (
        Column("Policy"),
        *(Column(name, numeric=True) for name in ("Missed", "Mean cost", "Saving", "Losses")),
    )
    facts = [
        ("Recordings", ", ".join(replay.traces)),
        ("Runs", f"{replay.runs_count} start times"),
        ("Nodes", f"{replay.nodes}, replayed as a gang of {replay.gang_nodes}"),
        (
            "Work",
            f"{format_quantity(replay.work_s, 's')}, to be done in {format_quantity(replay.deadline_s, 's')}",
        ),
        ("On-demand alone", f"{replay.on_demand_usd:,.0f} USD"),
    ]
    if replay.finish_quantiles_s:
        ends = (f"{p.upper()} {format_quantity(replay.finish_quantiles_s[p], 's')}" for p in ("p50", "p90"))
        facts.append(("Finish", ", ".join(ends)))
    return Section(
        title=f"{replay.task} on {replay.pool}",
        facts=tuple(facts),
        paragraphs=(replay.rule,),
        tables=(Table("Policies on the recordings", columns, rows),),
    )
