"""What a plan becomes before a launcher is chosen: steps, intervals, order, labels."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.export.launch import checkpoint_steps, launch, plan_id, slug, whole_steps
from trainplan_models.base import InputError
from trainplan_models.plan import Plan

PLANS = Path(__file__).parents[1] / "golden" / "export"


def read_plan(name: str) -> Plan:
    return Plan.model_validate_json((PLANS / f"{name}.plan.json").read_text(encoding="utf-8"))


def test_steps_of_a_task_are_split_over_its_units_and_none_is_lost() -> None:
    spot, safe = launch(read_plan("dense_spot")).units
    tokens = 300e9
    assert spot.total_steps == safe.total_steps == math.ceil(tokens / 4194304)
    assert spot.first_step == 0
    assert spot.last_step == safe.first_step == round(0.6 * tokens / 4194304)
    assert safe.last_step == safe.total_steps


def test_seconds_become_whole_steps_that_are_never_longer_apart() -> None:
    for name in ("dense_spot", "owned_growing", "moe_expert_parallel"):
        for unit in launch(read_plan(name)).units:
            s = unit.segment
            assert unit.step_s == pytest.approx(s.global_batch_tokens / s.tokens_per_s)
            assert unit.interval_steps * unit.step_s <= s.checkpoint.interval_s
            assert (unit.interval_steps + 1) * unit.step_s > s.checkpoint.interval_s


@given(st.floats(1.0, 1e6), st.floats(1e-3, 1e5))
def test_checkpoint_interval_is_the_most_whole_steps_that_fit(interval_s: float, step_s: float) -> None:
    steps = checkpoint_steps(interval_s, step_s)
    assert steps >= 1
    if steps > 1:
        assert steps * step_s <= interval_s * (1 + 1e-5)
    assert (steps + 1) * step_s > interval_s * (1 - 1e-5)


@given(st.integers(0, 10**9), st.integers(1, 10**7))
def test_whole_steps_forgives_floating_point_and_nothing_else(steps: int, batch: int) -> None:
    assert whole_steps(float(steps * batch) / batch) == steps
    assert whole_steps(min(steps, 10**5) + 0.5) == min(steps, 10**5) + 1


def test_rl_steps_come_from_the_rollout() -> None:
    unit = launch(read_plan("programme")).units[-1]
    assert unit.task.kind == "rl"
    assert unit.total_steps == 300
    s = unit.segment
    assert unit.step_s * unit.total_steps == pytest.approx(s.tokens / s.tokens_per_s)


def test_rounds_are_part_of_the_steps() -> None:
    unit = next(u for u in launch(read_plan("programme")).units if u.task.name == "sft")
    assert unit.task.rounds == 3
    assert unit.total_steps == math.ceil(1.2e9 / 524288)
    assert unit.round_steps * 3 >= unit.total_steps


def test_units_follow_tasks_and_take_over_within_one() -> None:
    programme = launch(read_plan("programme")).units
    assert [unit.after for unit in programme] == [
        (),
        (programme[0].name,),
        (programme[1].name,),
        (programme[2].name,),
    ]
    assert [unit.predecessor for unit in programme] == ["", "", "", ""]
    first, second = launch(read_plan("owned_growing")).units
    assert (first.successor, second.predecessor) == (second.name, first.name)
    assert (first.segment.nodes, second.segment.nodes) == (4, 12)


def test_fallback_is_from_what_can_be_preempted_to_what_cannot() -> None:
    ((spot, safe),) = launch(read_plan("dense_spot")).fallbacks()
    assert (spot.segment.mode, safe.segment.mode) == ("spot", "on-demand")
    assert spot.preemptible
    assert not safe.preemptible
    assert spot.task_end_s == pytest.approx(30 * 86400.0)
    assert launch(read_plan("owned_growing")).fallbacks() == ()


def test_post_training_finds_the_model_of_the_task_it_follows() -> None:
    units = launch(read_plan("programme")).units
    assert {unit.task.shape for unit in units} == {units[0].task.shape}
    assert units[0].task.shape is not None


def test_a_purchase_is_tied_to_the_unit_that_uses_it() -> None:
    (unit,) = launch(read_plan("capacity_block")).units
    assert unit.purchase is not None
    assert unit.purchase.mode == "capacity-block"


def test_the_plan_id_is_stable_and_tells_plans_apart() -> None:
    plan = read_plan("dense_spot")
    assert plan_id(plan) == plan_id(read_plan("dense_spot"))
    assert plan_id(plan) != plan_id(plan.model_copy(update={"total_usd": plan.total_usd + 1}))


@given(st.text(max_size=80))
def test_slugs_are_labels(text: str) -> None:
    assert slug(text)
    assert len(slug(text)) <= 40
    assert set(slug(text)) <= set("abcdefghijklmnopqrstuvwxyz0123456789-")
    assert not slug(text).startswith("-")
    assert not slug(text).endswith("-")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"global_batch_tokens": 8192.0 * 500}, "does not divide"),
        ({"nodes": 5}, "spans 64 accelerators"),
        ({"task": "other"}, "no task other"),
    ],
)
def test_a_plan_no_launcher_can_start_is_refused(change: dict[str, object], words: str) -> None:
    plan = read_plan("dense_spot")
    segments = (plan.segments[0].model_copy(update=change), *plan.segments[1:])
    with pytest.raises(InputError, match=words):
        launch(plan.model_copy(update={"segments": segments}))


def test_a_plan_without_segments_is_refused() -> None:
    with pytest.raises(InputError, match="no segments"):
        launch(read_plan("dense_spot").model_copy(update={"segments": ()}))


def test_a_case_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(InputError, match="case inside the plan"):
        launch(read_plan("dense_spot").model_copy(update={"case": {"name": "x"}}))
