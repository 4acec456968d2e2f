"""Explanations of a plan against independent plans of changed cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainplan.assembly import assemble
from trainplan.explain import Explanation, explain
from trainplan.highs import Session
from trainplan.layout_rivals import form_of
from trainplan.next_best import decide, kind_of, next_best, places_of
from trainplan.planning import plan
from trainplan.probing import with_price
from trainplan_models.base import InfeasibleError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan

TEXT = """
name: explained
deadline: 8 days
tasks:
  - name: train
    kind: continue
    model: llama-2-7b
    tokens: 200B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB, H100-SXM], clouds: [aws], billing: [on-demand, spot], max_nodes: 12}
"""
LIMIT_S = 60.0


def case(*overrides: str) -> Case:
    return case_from_text(TEXT, overrides=overrides)


def planned(*overrides: str) -> Plan | None:
    try:
        return plan(case(*overrides), builtin(), compare=False, explain=False, promise=False)
    except InfeasibleError:
        return None


def usd_of(*overrides: str) -> float | None:
    found = planned(*overrides)
    return None if found is None else found.total_usd


@pytest.fixture(scope="module")
def answer() -> Plan:
    found = planned()
    assert found is not None
    return found


@pytest.fixture(scope="module")
def why(answer: Plan) -> Explanation:
    return explain(answer, builtin(), workers=1)


BINDING = [
    ("deadline=8 days", "resources.billing=[on-demand]", "resources.accelerators=[A100-SXM-80GB]"),
    ("deadline=8 days", "question=fastest", "budget=60k USD", "resources.billing=[on-demand]"),
    (
        "deadline=9 days",
        "resources.regions=[us-east-1]",
        "resources.accelerators=[H100-SXM]",
        "resources.quotas=[{pool: aws/us-east-1/p5.48xlarge, spot: 3 nodes, on-demand: 2 nodes}]",
    ),
]


@pytest.mark.parametrize("overrides", BINDING, ids=lambda overrides: overrides[-1][:30])
def test_what_a_step_is_worth_is_the_difference_of_independent_plans(overrides: tuple[str, ...]) -> None:
    here = planned(*overrides)
    assert here is not None
    found = explain(here, builtin(), workers=1)
    steps = {
        "deadline": ("9 days", "7 days") if "deadline=8 days" in overrides else ("10 days", "8 days"),
        "budget": ("61000 USD", "59000 USD"),
        "resources.max_nodes": ("13 nodes", "11 nodes"),
        "resources.quotas[0].spot": ("4 nodes", "2 nodes"),
        "resources.quotas[0].on-demand": ("3 nodes", "1 nodes"),
    }
    assert {worth.limit for worth in found.worths} == {
        key for key in steps if any(key.split("[")[0] in one for one in (*overrides, "resources.max_nodes="))
    }
    for worth in found.worths:
        for value, usd, finish_s in zip(
            steps[worth.limit],
            (worth.more_usd, worth.less_usd),
            (worth.more_finish_s, worth.less_finish_s),
            strict=True,
        ):
            other = planned(*overrides, f"{worth.limit}={value}")
            if other is None:
                assert usd is None and finish_s is None
            else:
                assert usd == pytest.approx(other.total_usd - here.total_usd, abs=0.01)
                assert finish_s == pytest.approx(other.finish_s - here.finish_s, abs=1.0)
    assert any(worth.binds for worth in found.worths)


def test_every_alternative_is_the_best_plan_of_its_kind(why: Explanation, answer: Plan) -> None:
    keys = {"accelerator": "resources.accelerators=[{}]", "billing": "resources.billing=[{}]"}
    keys["nodes"] = "resources.node_counts=[{} nodes]"
    checked = set()
    for other in why.alternatives:
        if other.kind not in keys:
            continue
        checked.add(other.kind)
        usd = usd_of(keys[other.kind].format(other.name))
        if other.usd is None:
            assert usd is None, other
            assert other.reason
        else:
            assert usd == pytest.approx(other.usd, rel=3e-4), other
            assert other.usd >= answer.total_usd * (1.0 - 3e-4)
    assert checked == set(keys)


def test_the_plan_carries_the_alternatives_of_accelerators_and_billing_modes(why: Explanation) -> None:
    found = plan(case(), builtin(), promise=False)
    told = {(other.kind, other.name) for other in found.alternatives}
    assert told == {(o.kind, o.name) for o in why.alternatives if o.kind in ("accelerator", "billing")}


def test_an_accelerator_that_cannot_run_the_task_says_why() -> None:
    found = plan(
        case(
            "resources.accelerators=[A100-SXM-80GB, V100-SXM2-16GB]",
            "tasks.train.model=llama-3-70b",
            "deadline=900 days",
        ),
        builtin(),
        promise=False,
    )
    (other,) = [other for other in found.alternatives if other.name == "V100-SXM2-16GB"]
    assert other.usd is None
    assert "cannot run train: " in other.reason


def test_alternatives_without_a_plan_say_what_is_exceeded() -> None:
    found = plan(case("deadline=3 days"), builtin(), promise=False)
    assert found.segments[0].accelerator == "H100-SXM"
    (other,) = [other for other in found.alternatives if other.name == "A100-SXM-80GB"]
    assert other.usd is None
    assert "days at the least; the deadline is 3 days" in other.reason


def test_other_layouts_are_other_forms_and_cost_more(why: Explanation, answer: Plan) -> None:
    layouts = [other for other in why.alternatives if other.kind == "layout"]
    assert layouts
    assert form_of(answer.segments[0].layout) not in {other.name for other in layouts}
    assert all(other.usd is None or other.usd > answer.total_usd for other in layouts)


def test_next_best_plans_differ_in_kind_and_get_dearer(why: Explanation, answer: Plan) -> None:
    assert len(why.next_best) == 3
    costs = [other.total_usd for other in why.next_best]
    assert costs == sorted(costs)
    assert costs[0] > answer.total_usd * (1.0 - 1e-4)
    assert len({other.decision for other in why.next_best}) == 3


def test_the_next_best_plan_is_the_best_without_what_the_best_one_uses() -> None:
    with Session() as session:
        assembly = assemble(case("resources.billing=[on-demand]"), builtin())
        best = decide(assembly.spec, session, LIMIT_S)
        assert best is not None
        kind = kind_of(assembly, best)
        found = planned("resources.billing=[on-demand]")
        assert found is not None
        (second,) = next_best(session, assembly, found, LIMIT_S, count=1)
        without = [
            decide(
                assembly.spec,
                session,
                LIMIT_S,
                [
                    number
                    for number, detail in enumerate(assembly.details)
                    if detail is not None
                    and (
                        detail.work.task.name,
                        detail.site.place.cloud,
                        detail.site.node.instance_type,
                        detail.mode,
                    )
                    != member
                ],
            )
            for member in kind
        ]
    assert second.total_usd == pytest.approx(
        min(other.usd for other in without if other is not None), rel=1e-4
    )


def test_the_decision_changes_where_it_is_said_to(why: Explanation, answer: Plan) -> None:
    turning = [one for one in why.tolerances if one.factor is not None]
    assert any(one.what.startswith("price of ") and one.way == "more" for one in turning)
    assembly = assemble(case(), builtin())
    with Session() as session:
        base = decide(assembly.spec, session, LIMIT_S)
        assert base is not None
        here = places_of(assembly, base)
        for one in turning:
            if not one.what.startswith("price of "):
                continue
            assert one.factor is not None
            inside = one.factor / 1.011 if one.way == "more" else one.factor * 1.011
            for factor, same in ((inside, True), (one.factor, False)):
                spec = with_price(assembly.spec, one.what.removeprefix("price of "), factor)
                decision = decide(spec, session, LIMIT_S)
                assert decision is not None
                assert (places_of(replace(assembly, spec=spec), decision) == here) is same


def test_throughput_turns_the_decision_where_an_independent_plan_says_so(
    why: Explanation, answer: Plan
) -> None:
    (slower,) = [one for one in why.tolerances if (one.what, one.way) == ("throughput", "less")]
    assert slower.factor is not None
    here = {(s.pool, s.mode) for s in answer.segments}
    at = planned(f"assumptions.throughput_factor={slower.factor!r}")
    before = planned(f"assumptions.throughput_factor={slower.factor * 1.011!r}")
    assert before is not None and {(s.pool, s.mode) for s in before.segments} == here
    assert at is None or {(s.pool, s.mode) for s in at.segments} != here


def test_the_number_of_workers_changes_nothing(answer: Plan, why: Explanation) -> None:
    assert explain(answer, builtin(), workers=2) == why
