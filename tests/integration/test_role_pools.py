"""Reinforcement learning on separate pools: which are looked at, what they cost, and everything made from the plan."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainplan.assembly import Assembly, assemble
from trainplan.export import EXPORTERS, export
from trainplan.planning import plan
from trainplan.problem import Beside, Option
from trainplan.recourse import recourse_of
from trainplan.report.build import document
from trainplan.report.render_markdown import render
from trainplan.role_pools import front
from trainplan.scenarios import for_plan
from trainplan.separate_roles import TWO_PURCHASES
from trainplan.verify import verify
from trainplan_models.base import InputError, VerificationError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text, load_case
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan, Segment
from trainplan_models.reliability import job_mtbf_s
from trainplan_models.simulation import sample
from trainplan_models.simulation_trace import replay_plan
from trainplan_models.spot import availability_frac, profile_for
from trainplan_models.traces import Trace

CASES = Path(__file__).parents[2] / "cases"
P5, P4DE = "aws/us-east-1/p5.48xlarge", "aws/us-east-1/p4de.24xlarge"
USD_PER_NODE_H = {
    (P5, "on-demand"): 55.04,
    (P5, "spot"): 10.2397,
    (P4DE, "on-demand"): 27.44705,
    (P4DE, "spot"): 8.6505,
}


def asked(
    rollout: str = "", *, billing: str = "[on-demand, spot]", resources: str = "", task: str = ""
) -> Case:
    return case_from_text(
        f"""
name: roles
deadline: 20 days
tasks:
  - name: rl
    kind: rl
    model: llama-3-8b
    {task}
    rollout: {{prompts: 512, samples_per_prompt: 8, prompt_tokens: 1024, response_tokens: 4096, steps: 100, {rollout}}}
resources:
  accelerators: [H100-SXM, A100-SXM-80GB]
  clouds: [aws]
  regions: [us-east-1]
  billing: {billing}
  node_counts: [1 node, 2 nodes, 3 nodes, 4 nodes, 6 nodes, 8 nodes]
  {resources}
overheads: {{experiments: 10%}}
"""
    )


@pytest.fixture(scope="module")
def assembled() -> Assembly:
    return assemble(asked("max_staleness: 1"), builtin())


@pytest.fixture(scope="module")
def two_pools() -> tuple[Case, Plan]:
    case = load_case(CASES / "rl-two-pools.yaml")
    return case, plan(case, builtin(), compare=False)


def both(option: Option) -> list[Option | Beside]:
    return [option, *option.beside]


def parts(found: Plan) -> tuple[Segment, Segment]:
    lead = next(segment for segment in found.segments if segment.leads)
    return lead, found.beside(lead)[0]


def test_the_front_is_what_nothing_beats_spread_over_its_range() -> None:
    days = np.array([1.0, 2.0, 2.0, 3.0, 4.0, 5.0, np.inf])
    usd = np.array([9.0, 7.0, 8.0, 7.5, 6.0, 5.0, 0.0])
    assert front(days, usd) == [0, 1, 4, 5]
    assert front(days, usd, 2) == [0, 5]
    assert front(np.array([np.inf]), np.array([1.0])) == []


def test_an_option_on_two_pools_costs_what_both_do(assembled: Assembly) -> None:
    spec, checked = assembled.spec, 0
    for option, detail in zip(spec.options, assembled.details, strict=True):
        if detail is None or detail.rollout is None:
            continue
        own, other = spec.resources[option.resource], spec.resources[option.beside[0].resource]
        rollout = detail.rollout
        assert (own.mode, own.pool) == (detail.mode, detail.site.name)
        assert (other.mode, other.pool) == (rollout.mode, rollout.site.name)
        assert not assembled.catalog.modes[own.mode].preemptible
        if {(own.pool, own.mode), (other.pool, other.mode)} <= USD_PER_NODE_H.keys():
            usd = option.nodes * USD_PER_NODE_H[own.pool, own.mode] * 24.0
            usd += (
                (rollout.nodes + rollout.spares)
                * USD_PER_NODE_H[other.pool, other.mode]
                * 24.0
                * rollout.paid_frac
            )
            charged = [c for part in both(option) for c in part.daily]
            assert sum(x for name, x in charged if name == "compute") == pytest.approx(usd)
            assert sum(x for name, x in charged if name == "experiments and retries") == pytest.approx(
                0.1 * usd
            )
            checked += 1
    assert checked > 10


def test_a_job_on_two_pools_fails_and_waits_with_all_its_nodes(assembled: Assembly) -> None:
    failures, on_spot = assembled.world.failures, 0
    for detail in assembled.details:
        if detail is None or detail.rollout is None:
            continue
        rollout = detail.rollout
        profile = None
        if rollout.mode == "spot":
            node = rollout.site.node
            profile = profile_for(assembled.catalog, "aws", "us-east-1", node.instance_type)
            on_spot += 1
            assert rollout.paid_frac == pytest.approx(float(availability_frac(rollout.nodes, profile)))
            assert detail.goodput_frac < rollout.paid_frac
        nodes = detail.candidate.nodes + rollout.nodes
        rate = 1.0 / float(job_mtbf_s(nodes, failures))
        if profile is not None:
            rate += (
                profile.preemptions_per_node_h * rollout.nodes ** (1.0 - profile.gang_correlation) / 3600.0
            )
        assert detail.mtbf_s == pytest.approx(1.0 / rate)
        assert detail.paid_frac == 1.0
    assert on_spot > 5


@pytest.mark.parametrize(
    ("placement", "together", "separate"),
    [("any", True, True), ("together", True, False), ("separate", False, True)],
)
def test_a_case_may_say_where_to_generate(placement: str, together: bool, separate: bool) -> None:
    options = assemble(asked(f"placement: {placement}"), builtin()).spec.options
    assert any(not option.beside for option in options) == together
    assert any(option.beside for option in options) == separate


def test_what_trains_and_what_generates_keep_to_their_billing_chips_and_region() -> None:
    found = assemble(
        asked("billing: [spot], accelerators: [A100-SXM-80GB]", task="billing: [on-demand]"), builtin()
    )
    pairs = [d for d in found.details if d is not None and d.rollout is not None]
    assert pairs
    assert {d.mode for d in pairs} == {"on-demand"}
    assert {(d.rollout.mode, d.rollout.site.accelerator.name) for d in pairs if d.rollout} == {
        ("spot", "A100-SXM-80GB")
    }
    assert all(d.rollout.site.place == d.site.place for d in pairs if d.rollout)


def test_ceilings_and_quotas_hold_for_both_groups() -> None:
    quotas = f"quotas: [{{pool: {P5}, on-demand: 3 nodes, spot: 0 nodes}}, {{pool: {P4DE}, spot: 2 nodes}}]"
    found = assemble(asked(resources=f"{quotas}\n  max_nodes: 5"), builtin())
    limits = {(P5, "on-demand"): 3, (P5, "spot"): 0, (P4DE, "spot"): 2}
    seen = 0
    for option in found.spec.options:
        if not option.beside:
            continue
        seen += 1
        assert option.nodes <= 5
        working = 0
        for part in both(option):
            resource = found.spec.resources[part.resource]
            assert part.nodes <= limits.get((resource.pool, resource.mode), 5) + 1
            working += part.nodes
        assert working <= 5 + 2, "no more than spares on top"
    assert seen


def test_only_one_of_the_two_pools_is_bought() -> None:
    found = assemble(asked(billing="[reserved-1y, capacity-block, on-demand]"), builtin())
    bought = [
        {r for r, _ in option.taken if found.spec.resources[r].committed}
        for option in found.spec.options
        if option.beside
    ]
    assert any(len(resources) == 1 for resources in bought)
    assert all(len(resources) <= 1 for resources in bought)
    assert found.removed["rl"][TWO_PURCHASES] > 0


def test_separate_pools_are_taken_where_they_are_cheaper(two_pools: tuple[Case, Plan]) -> None:
    case, found = two_pools
    lead, other = parts(found)
    assert (lead.roles, other.roles) == (("scoring", "update"), ("rollout",))
    assert (lead.pool, lead.mode, other.pool, other.mode) == (P5, "on-demand", P4DE, "spot")
    hours = (lead.end_s - lead.start_s) / 3600.0
    usd = lead.nodes * hours * 55.04 + other.nodes * hours * other.paid_frac * 8.6505
    compute = [line for line in found.cost_lines if line.category == "compute"]
    assert sum(line.usd for line in compute) == pytest.approx(usd, abs=0.02)
    assert {line.item for line in compute} == {lead.on_the_bill, other.on_the_bill}
    together = case.model_copy(
        update={
            "tasks": tuple(
                task.model_copy(update={"rollout": task.rollout.model_copy(update={"placement": "together"})})
                for task in case.tasks
                if task.rollout is not None
            )
        }
    )
    assert plan(together, builtin(), compare=False, promise=False).total_usd > 2.0 * found.total_usd


def test_a_plan_on_two_pools_is_verified_with_both(two_pools: tuple[Case, Plan]) -> None:
    case, found = two_pools
    assembly = assemble(case, builtin())
    bill = found.solver.objective_usd
    verify(found, assembly, bill)
    lead, other = parts(found)
    for wrong, says in (
        ((lead,), "roles"),
        ((lead, other.model_copy(update={"end_s": other.end_s / 2.0})), "to its end"),
        ((lead, other.model_copy(update={"region": "us-west-2"})), "does not work beside"),
        ((lead, other.model_copy(update={"nodes": 17})), "17 nodes of"),
        ((lead.model_copy(update={"roles": ()}), other), "works for nothing"),
    ):
        with pytest.raises(VerificationError, match=says):
            verify(found.model_copy(update={"segments": wrong}), assembly, bill)


def test_the_simulation_pays_for_what_waits(two_pools: tuple[Case, Plan]) -> None:
    case, found = two_pools
    lead, other = parts(found)
    samples = sample(found, case, builtin(), for_plan(found, case, builtin(), 2_000, 1), 1)
    least_hours = samples.finish_s * 0.0 + other.nodes
    assert (samples.spot_node_hours + samples.fallback_node_hours > least_hours).all()
    # Whatever happens, the training nodes are held from start to end.
    held_usd = lead.nodes * 55.04 * samples.finish_s / 3600.0
    assert (samples.cost_usd > 0.9 * held_usd).all()
    assert float(samples.cost_usd.mean()) == pytest.approx(found.total_usd, rel=0.15)
    assert len(samples.rules) == 1
    assert P4DE in samples.rules[0]


def test_scenarios_know_both_pools(two_pools: tuple[Case, Plan]) -> None:
    case, _ = two_pools
    assembly = assemble(case, builtin())
    pair = next(o for o, option in enumerate(assembly.spec.options) if option.beside)
    recourse = recourse_of(assembly, [pair], 20, 0)
    assert len(recourse.time_factor[pair]) == len(recourse.weight)
    assert 0.9 < float(np.dot(recourse.weight, recourse.time_factor[pair])) < 1.5
    assert pair not in recourse.instead, "rollout.billing has no on-demand"
    wider = assemble(asked("billing: [spot, on-demand]", task="billing: [on-demand]"), builtin())
    on_spot = next(
        o
        for o, d in enumerate(wider.details)
        if d is not None and d.rollout is not None and d.rollout.mode == "spot"
    )
    instead = recourse_of(wider, [on_spot], 20, 0).instead[on_spot]
    assert instead.daily_usd > wider.spec.options[on_spot].daily_usd


def test_a_recorded_trace_is_replayed_on_the_nodes_that_generate(two_pools: tuple[Case, Plan]) -> None:
    case, found = two_pools
    _, other = parts(found)
    there = Trace("zone", 300.0, np.full(12 * 24 * 30, other.nodes))
    replays = replay_plan(found, case, builtin(), [there], 5)
    assert [(one.pool, one.nodes) for one in replays] == [(P4DE, other.nodes)]


def test_the_report_tells_the_roles_apart(two_pools: tuple[Case, Plan]) -> None:
    _, found = two_pools
    text = render(document(found))
    assert "rl (scoring and update): 2 nodes of" in text
    assert f"rl (rollout): {parts(found)[1].nodes} nodes of" in text
    assert "25 Gbit/s: new weights of a reinforcement learning step" in text


@pytest.mark.parametrize("target", sorted(set(EXPORTERS) - {"json"}))
def test_a_target_of_one_group_of_nodes_refuses_two(target: str, two_pools: tuple[Case, Plan]) -> None:
    _, found = two_pools
    with pytest.raises(InputError) as caught:
        export(found, target)
    told = str(caught.value)
    assert "placement: together" in told or "has no task for" in told


def test_the_plan_itself_is_exported_with_both_groups(two_pools: tuple[Case, Plan]) -> None:
    _, found = two_pools
    files = export(found, "json")
    assert '"beside"' in files["order.json"]
    assert Plan.model_validate_json(files["plan.json"]) == found
