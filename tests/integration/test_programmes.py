"""Programmes over calendar time: what is closed stays closed, and large problems get the plans of small ones."""

from __future__ import annotations

import pytest

from trainplan import large
from trainplan.aggregate import without_calendar
from trainplan.assembly import assemble
from trainplan.highs import Session
from trainplan.plan_making import Maker
from trainplan.planning import plan
from trainplan.solve import Solver
from trainplan.thin import thinned
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan

DAY_S = 86400.0


def programme(*, resources: str = "", deadline: str = "60 days", tokens: str = "60B tokens") -> Case:
    return case_from_text(
        f"""
name: programme
deadline: {deadline}
tasks:
  - {{name: one, kind: pretrain, model: llama-3.2-1b, tokens: {tokens}, sequence_length: 8192,
     global_batch: 2M tokens}}
  - {{name: one-sft, kind: sft, tokens: 1B tokens, sequence_length: 8192, rounds: 2, after: [one]}}
  - {{name: two, kind: continue, model: llama-3-8b, tokens: 30B tokens, sequence_length: 8192, release: 4 days}}
resources:
  accelerators: [H100-SXM]
  clouds: [aws]
  regions: [us-east-1]
  billing: [on-demand, capacity-block]
  max_nodes: 4
  node_counts: [1 node, 2 nodes, 4 nodes]
{resources}
people: {{engineers: 2}}
"""
    )


def planned(case: Case) -> Plan:
    return plan(case, builtin(), compare=False, promise=False)


def test_nothing_runs_in_a_freeze_and_the_work_is_done_around_it() -> None:
    free = planned(programme())
    frozen = planned(programme(resources="  freezes: [{from: day 1, to: day 3}]"))
    for segment in frozen.segments:
        assert segment.end_s <= 1 * DAY_S + 1.0 or segment.start_s >= 3 * DAY_S - 1.0
    assert frozen.total_usd >= free.total_usd
    done = {task: sum(s.work_frac for s in frozen.segments if s.task == task) for task in ("one", "two")}
    assert done == pytest.approx({"one": 1.0, "two": 1.0}, rel=1e-4)


def test_a_freeze_of_another_cloud_changes_nothing() -> None:
    free = planned(programme())
    elsewhere = planned(programme(resources="  freezes: [{from: day 1, to: day 3, pools: [gcp]}]"))
    assert elsewhere.total_usd == pytest.approx(free.total_usd, rel=2e-4)


def test_a_block_over_a_freeze_is_paid_all_the_same() -> None:
    case = programme(resources="  freezes: [{from: day 6, to: day 9}]")
    found = planned(case)
    for block in found.purchases:
        assert block.bought_node_h == pytest.approx(
            block.nodes * block.count * (block.end_s - block.start_s) / 3600.0
        )


@pytest.mark.parametrize(
    "resources",
    ["", "  freezes: [{from: day 2, to: day 3}]", "  price_changes: [{from: day 3, to: day 9, rise: 50%}]"],
)
def test_screening_finds_the_plan_that_all_options_give(resources: str) -> None:
    spec = assemble(programme(resources=resources), builtin()).spec
    options, _ = thinned(spec)
    with Session() as session:
        whole = Solver(spec, session, 60.0, options).solve()
        found = large.solve_large(spec, session, options, 60.0)
    assert whole.decision is not None
    assert found.outcome.decision is not None
    assert found.outcome.decision.usd >= whole.bound * (1.0 - 1e-6)
    assert found.outcome.decision.usd <= whole.decision.usd * (1.0 + large.GAP_FRAC + 1e-6)
    assert found.outcome.bound <= whole.decision.usd * (1.0 + 1e-6)
    assert found.outcome.gap_frac <= large.GAP_FRAC
    assert f"all {len(spec.options):,} options" in found.outcome.scope


def test_a_calendar_cut_off_keeps_what_is_before_it() -> None:
    spec = assemble(programme(), builtin()).spec
    shorter = large.cut_off(spec, 6.0)
    assert shorter.windows == ((0.0, 4.0), (4.0, 6.0))
    assert all(len(r.held_nodes) == 2 for r in shorter.resources)
    assert large.cut_off(spec, 59.5) is spec


def test_a_calendar_over_other_windows_keeps_its_prices() -> None:
    spec = assemble(
        programme(resources="  price_changes: [{from: day 6, to: day 10, cut: 25%}]"), builtin()
    ).spec
    number = next(n for n, r in enumerate(spec.resources) if r.mode == "on-demand")
    # Day 14 is where blocks come in longer steps.
    assert spec.windows == ((0.0, 4.0), (4.0, 6.0), (6.0, 10.0), (10.0, 14.0), (14.0, 60.0))
    assert spec.resources[number].price_factor == (1.0, 1.0, 0.75, 1.0, 1.0)
    assert large.cut_off(spec, 8.0).resources[number].price_factor == (1.0, 1.0, 0.75)
    fine = large.refined(spec, 2.0)
    for (start, end), factor in zip(fine.windows, fine.resources[number].price_factor, strict=True):
        assert factor == (0.75 if start >= 6.0 and end <= 10.0 else 1.0)
    assert without_calendar(spec).resources[number].price_factor == (0.75,)
    assert all(r.price_factor == () for r in spec.resources if r.mode == "capacity-block")


def many(count: int = 9) -> Case:
    tasks = "\n".join(
        f"  - {{name: t{k}, kind: sft, model: llama-3.2-1b, tokens: 1B tokens, sequence_length: 8192}}"
        for k in range(count)
    )
    return case_from_text(
        f"name: many\ndeadline: 20 days\ntasks:\n{tasks}\nresources:\n  accelerators: [H100-SXM]\n"
        "  clouds: [aws]\n  regions: [us-east-1]\n  billing: [on-demand]\n  max_nodes: 12\n"
        "  node_counts: [1 node, 2 nodes]\npeople: {engineers: 1}\n"
    )


def test_many_tasks_side_by_side_are_planned_within_the_ceiling() -> None:
    found = planned(many())
    for moment in {s.start_s for s in found.segments}:
        at_work = [s for s in found.segments if s.start_s <= moment < s.end_s]
        assert sum(s.nodes + s.spare_nodes for s in at_work) <= 12


def test_a_wide_problem_is_put_together_and_bounded() -> None:
    assembly = assemble(many(), builtin())
    options, forgiven_usd = thinned(assembly.spec)
    assert assembly.spec.wide
    with Session() as session:
        found = large.solve_large(assembly.spec, session, options, 20.0)
        made = Maker(assembly, found.solver, forgiven_usd).plan(found.outcome)
    assert found.outcome.decision is not None
    assert 0.0 < found.outcome.bound <= found.outcome.decision.usd
    assert made.solver.gap_frac < 0.5


def test_only_what_no_option_can_do_is_called_infeasible() -> None:
    assembly = assemble(programme(deadline="1 day", tokens="600B tokens"), builtin())
    options, _ = thinned(assembly.spec)
    with Session() as session:
        hopeless = large.solve_large(assembly.spec, session, options, 20.0)
    assert hopeless.outcome.decision is None
    assert hopeless.outcome.state == "infeasible"
