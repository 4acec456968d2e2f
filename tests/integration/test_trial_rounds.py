"""Rounds that may be left out: expected in the bill, reserved in the calendar, drawn in the simulation."""

from __future__ import annotations

from itertools import product
from math import prod

import numpy as np
import pytest

from trainplan.planning import plan
from trainplan.report.build import document
from trainplan.report.render_markdown import render
from trainplan.scenarios import for_plan
from trainplan_models.base import InputError
from trainplan_models.case import Case, Task
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan
from trainplan_models.simulation import sample
from trainplan_models.simulation_rounds import done_frac, part_done
from trainplan_models.trials import round_chances

DAY_S = 86400.0


def asked(
    trial: str = "", *, data: str = "", resources: str = "", rounds: int = 5, billing: str = "[on-demand]"
) -> Case:
    return case_from_text(
        f"""
name: trial
deadline: 60 days
tasks:
  - {{name: base, kind: sft, model: llama-3-8b, tokens: 2B tokens, sequence_length: 8192}}
  - name: tune
    kind: sft
    tokens: 4B tokens
    sequence_length: 8192
    rounds: {rounds}
    after: [base]
    dataset: {{size: 500 GB, at: aws/us-east-1}}
    {trial}
  - {{name: judge, kind: evaluate, cost: 500 USD, duration: 2 hours, after: [tune], {data}}}
resources:
  accelerators: [H100-SXM]
  clouds: [aws]
  regions: [us-east-1]
  billing: {billing}
  node_counts: [2 nodes]
  {resources}
checkpoints: {{keep_every: 12 hours, copy_to_second_region: true}}
people: {{engineers: 1}}
overheads: {{experiments: 10%}}
"""
    )


def planned(case: Case, *, promise: bool = False) -> Plan:
    return plan(case, builtin(), compare=False, promise=promise)


def usd_of(found: Plan, task: str, category: str) -> float:
    return sum(line.usd for line in found.cost_lines if (line.task, line.category) == (task, category))


@pytest.mark.parametrize(
    ("chance", "stop", "rounds"), [(1.0, 0.3, 4), (0.6, 0.25, 3), (0.5, None, 1), (0.8, None, 3)]
)
def test_expected_rounds_are_the_mean_over_everything_that_can_happen(
    chance: float, stop: float | None, rounds: int
) -> None:
    task = Task.model_validate(
        {"name": "t", "kind": "sft", "tokens": 1e9, "rounds": rounds, "chance": chance, "stop_chance": stop},
        context={"canonical": True},
    )
    odds = [chance, *([1.0 - (stop or 0.0)] * (rounds - 1))]
    by_count = np.zeros(rounds + 1)
    for goes_on in product((True, False), repeat=rounds):
        done = next((n for n, goes in enumerate(goes_on) if not goes), rounds)
        by_count[done] += prod(p if goes else 1.0 - p for p, goes in zip(odds, goes_on, strict=True))
    assert round_chances(task) == pytest.approx(by_count)
    assert task.expected_rounds == pytest.approx(by_count @ np.arange(rounds + 1))


def test_the_bill_is_expected_and_the_calendar_for_every_round() -> None:
    sure, trial = planned(asked()), planned(asked("stop_chance: 40%"))
    expected = (1.0 - 0.6**5) / 0.4 / 5.0
    assert trial.finish_s == pytest.approx(sure.finish_s)
    assert [(s.start_s, s.end_s, s.nodes) for s in trial.segments] == [
        (s.start_s, s.end_s, s.nodes) for s in sure.segments
    ]
    for category in ("compute", "experiments and retries", "logging and monitoring", "storage"):
        assert usd_of(sure, "tune", category) > 0.0
        # Lines are rounded to the cent, and storage has half a dozen.
        assert usd_of(trial, "tune", category) == pytest.approx(
            expected * usd_of(sure, "tune", category), rel=2e-3, abs=0.03
        )
    for task, category in (("base", "compute"), ("judge", "evaluation"), ("", "operations and people")):
        assert usd_of(trial, task, category) == pytest.approx(usd_of(sure, task, category))
    assert trial.worst_usd == pytest.approx(sure.total_usd, abs=0.05)
    assert sure.worst_usd is None and sure.trials == ()
    (row,) = trial.trials
    assert (row.task, row.rounds) == ("tune", 5)
    assert row.expected_rounds_count == pytest.approx(5 * expected)
    assert row.all_chance_frac == pytest.approx(0.6**4)
    assert row.none_chance_frac == 0.0
    assert row.worst_usd - row.expected_usd == pytest.approx(sure.total_usd - trial.total_usd, abs=0.05)
    text = render(document(trial))
    assert "Rounds that may be left out" in text and "time is reserved" in text
    assert f"{trial.worst_usd:,.2f} USD as planned, if every round of tune is done" in text
    assert "With every round" not in render(document(sure))


def test_a_task_that_may_not_be_done_is_billed_by_its_chance() -> None:
    rare, sure = planned(asked("chance: 10%", rounds=1)), planned(asked(rounds=1))
    assert usd_of(rare, "tune", "compute") == pytest.approx(0.1 * usd_of(sure, "tune", "compute"), rel=1e-3)
    assert rare.trials[0].none_chance_frac == pytest.approx(0.9)


def test_what_is_bought_is_paid_whether_or_not_the_rounds_are_done() -> None:
    resources = "quotas: [{pool: aws/us-east-1/p5.48xlarge, on-demand: 0 nodes}]"
    found = planned(asked("stop_chance: 40%", resources=resources, billing="[on-demand, capacity-block]"))
    nodes_h = sum(buy.bought_node_h for buy in found.purchases)
    paid = [line for line in found.cost_lines if line.unit == "node-hour"]
    assert sum(line.quantity for line in paid) == pytest.approx(nodes_h)
    assert sum(line.usd for line in paid) == pytest.approx(sum(buy.usd for buy in found.purchases), abs=0.1)
    needed = {s.task: (s.end_s - s.start_s) / 3600.0 * s.nodes for s in found.segments}
    used = {line.task: line.quantity for line in paid if line.category == "compute"}
    assert used["base"] == pytest.approx(needed["base"])
    assert used["tune"] == pytest.approx((1.0 - 0.6**5) / 2.0 * needed["tune"])


def test_work_bought_by_the_round_is_bought_as_often_as_is_expected() -> None:
    found = planned(asked(data="rounds: 4, stop_chance: 50%"))
    assert usd_of(found, "judge", "evaluation") == pytest.approx(500.0 * 1.875)


def test_rounds_are_drawn_with_their_chances() -> None:
    case = asked("chance: 70%\n    stop_chance: 40%")
    done = done_frac(case, 200_000, seed=5)["tune"]
    counts = np.bincount(np.round(done * 5).astype(int), minlength=6) / done.size
    assert counts == pytest.approx(round_chances(case.task("tune")), abs=0.005)
    assert set(done_frac(case, 10, seed=5)) == {"tune"}
    assert np.array_equal(done_frac(case, 100, seed=5)["tune"], done_frac(case, 100, seed=5)["tune"])


def test_a_stretch_does_what_of_its_rounds_is_left() -> None:
    done = np.array([0.0, 0.2, 0.5, 1.0])
    assert part_done(done, 0.0, 0.4).tolist() == pytest.approx([0.0, 0.5, 1.0, 1.0])
    assert part_done(done, 0.4, 0.6).tolist() == pytest.approx([0.0, 0.0, 1.0 / 6.0, 1.0])


def test_the_simulation_ends_and_pays_by_the_rounds_that_are_done() -> None:
    case, sure = asked("chance: 80%\n    stop_chance: 40%"), asked()
    found = planned(case)
    scenarios = for_plan(found, case, builtin(), 3000)
    some, every = (sample(found, one, builtin(), scenarios, seed=11) for one in (case, sure))
    done = done_frac(case, 3000, seed=11)["tune"]
    assert np.all(some.finish_s[done < 1.0] < every.finish_s[done < 1.0])
    base_s = some.task_end_s["base"]
    tuning_s = some.task_end_s["tune"] - base_s
    planned_s = next(s for s in found.segments if s.task == "tune")
    assert np.all(tuning_s[done == 0.0] == 0.0)
    for rounds in range(1, 6):
        mine = np.isclose(done, rounds / 5)
        assert mine.sum() > 100
        share = tuning_s[mine].mean() / (planned_s.end_s - planned_s.start_s)
        assert share == pytest.approx(rounds / 5, rel=0.1)
    # On average the simulated cost is that of the expected rounds, but for the time the programme is shorter.
    spread = some.cost_usd[done == 1.0].mean() - some.cost_usd[done == 0.0].mean()
    (row,) = found.trials
    people = [line for line in found.cost_lines if line.unit == "day"]
    days = (some.finish_s[done == 1.0].mean() - some.finish_s[done == 0.0].mean()) / DAY_S
    worth = row.worst_usd - usd_of(found, "tune", "network") + days * sum(line.unit_usd for line in people)
    assert spread == pytest.approx(worth, rel=0.1)


def test_a_promise_counts_the_rounds() -> None:
    found = planned(asked("stop_chance: 40%"), promise=True)
    assert found.risk is not None and found.worst_usd is not None
    assert found.risk.finish_p50_s < 0.95 * found.finish_s
    assert found.risk.cost_mean_usd < found.worst_usd


@pytest.mark.parametrize(
    ("trial", "rounds", "message"),
    [
        ("stop_chance: 30%", 1, "no further round"),
        ("stop_chance: 100%", 3, "means one round"),
        ("chance: 130%", 3, "more than certain"),
        ("chance: 0%", 3, "not more than 0"),
        ("stop_chance: maybe", 3, "stop_chance"),
    ],
)
def test_a_wrong_chance_is_told(trial: str, rounds: int, message: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(trial, rounds=rounds)
    assert message in str(caught.value)
    assert "tasks[1]." in str(caught.value)
