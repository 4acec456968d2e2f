from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from trainplan_models.simulation_replay import Job, offline_bound_usd, on_demand_usd, replay
from trainplan_models.spot_policy import (
    ON_DEMAND,
    SPOT,
    WAIT,
    FallbackRule,
    Greedy,
    SpotOnly,
    UniformProgress,
    View,
)
from trainplan_models.traces import Windows, load_folder

HOUR_S = 3600.0
BENCHMARK = Path(__file__).resolve().parents[1] / "benchmark" / "spot_policy.py"
SHARED = Path(__file__).resolve().parents[3] / "shared" / "data" / "spot_traces"
RULE = FallbackRule.standard(720.0, 0.918, 3.06)


def view(
    slack_h: float,
    mode: int = WAIT,
    up: bool = False,
    up_for_h: float = 0.0,
    down_for_h: float = 10.0,
    losses: float = 0.0,
    left_h: float = 24.0,
    elapsed_h: float = 24.0,
) -> View:
    """One run with so much slack, half way through 48 hours of work."""
    return View(
        tick_s=60.0,
        elapsed_s=elapsed_h * HOUR_S,
        left_s=np.array([left_h * HOUR_S]),
        safe_left_s=np.array([left_h * HOUR_S - 60.0]),
        time_left_s=np.array([(left_h + slack_h) * HOUR_S]),
        deadline_s=(elapsed_h + left_h + slack_h) * HOUR_S,
        work_s=48.0 * HOUR_S,
        mode=np.array([mode], np.int8),
        starting_s=np.zeros(1),
        spot_up=np.array([up]),
        up_for_s=np.array([up_for_h * HOUR_S if up else 0.0]),
        down_for_s=np.array([0.0 if up else down_for_h * HOUR_S]),
        losses=np.array([losses]),
    )


def pick(seen: View, rule: FallbackRule = RULE) -> int:
    return int(rule.decide(seen)[0])


# Half way, 24 hours left after 24 hours without a loss: 24 * 2 / (24 + 8) losses are expected.
RESERVE_H = (RULE.reserve_s + RULE.reserve_per_loss_s * 24 * 2 / 32) / HOUR_S


@pytest.mark.parametrize(
    ("seen", "expected"),
    [
        (view(RESERVE_H + 0.1), WAIT),
        (view(RESERVE_H - 0.1), ON_DEMAND),
        (view(RESERVE_H - 0.1, down_for_h=0.0), WAIT),
        (view(0.5 * RESERVE_H, down_for_h=0.0), ON_DEMAND),
        (view(RESERVE_H + 0.1, up=True), SPOT),
        (view(0.45, up=True), SPOT),
        (view(0.35, up=True), ON_DEMAND),
        (view(0.25, mode=SPOT, up=True), SPOT),
        (view(0.15, mode=SPOT, up=True), ON_DEMAND),
        (view(1.0, mode=ON_DEMAND, up=True), ON_DEMAND),
        (view(1.0, mode=ON_DEMAND, up=True, up_for_h=0.5), SPOT),
        (view(0.3, mode=ON_DEMAND, up=True, up_for_h=5.0), ON_DEMAND),
        (view(1.5 * RESERVE_H, mode=ON_DEMAND), ON_DEMAND),
        (view(2.1 * RESERVE_H, mode=ON_DEMAND), WAIT),
    ],
)
def test_the_rule_does_what_its_sentence_says(seen: View, expected: int) -> None:
    assert pick(seen) == expected


def test_more_losses_mean_a_larger_reserve_and_progress_a_smaller_one() -> None:
    reserve = [
        float(RULE.reserve(np.array([w]), 1e5, np.array([n]))[0]) for w, n in ((1e5, 0), (1e5, 9), (1e4, 9))
    ]
    assert reserve[0] < reserve[1]
    assert reserve[2] < reserve[1]


def test_dear_spot_has_to_settle_for_longer() -> None:
    settle = [FallbackRule.standard(600.0, price, 1.0).settle_s for price in (0.1, 0.5, 0.9, 2.0)]
    assert settle == sorted(settle)
    assert settle[0] == pytest.approx(600.0 * 1.1 / 0.9)


def test_the_sentence_has_the_numbers_of_the_rule() -> None:
    text = RULE.sentence()
    for word in ("48 min", "36 min", "4 hours", "22 min", "18 min", "60%", "24 min", "12 min", "2 reserves"):
        assert word in text, word


def test_milestones_say_what_must_be_done_by_when() -> None:
    marks = RULE.milestones(48 * HOUR_S, 70 * HOUR_S, days=0.5)
    assert [time_s for time_s, _ in marks] == sorted(time_s for time_s, _ in marks)
    shares = [share for _, share in marks]
    assert shares == sorted(shares)
    assert 0.0 < shares[0] < 1.0
    for time_s, share in marks:
        left_s = np.array([48 * HOUR_S * (1.0 - share)])
        kept_s = RULE.reserve_s + RULE.reserve_per_loss_s * left_s / RULE.cycle_s
        assert 70 * HOUR_S - time_s - left_s == pytest.approx(kept_s)


def test_the_known_policies_keep_to_their_rules() -> None:
    greedy, uniform = Greedy(720.0), UniformProgress(720.0)
    assert greedy.decide(view(5.0))[0] == WAIT
    assert greedy.decide(view(0.21))[0] == ON_DEMAND
    assert greedy.decide(view(5.0, mode=ON_DEMAND, up=True))[0] == ON_DEMAND
    # Of 48 hours 24 are done; with 10 hours of slack the line is at 48 * 24 / 58 = 19.9, with 0.5 at 23.8.
    assert uniform.decide(view(10.0))[0] == WAIT
    assert uniform.decide(view(10.0, left_h=40.0))[0] == ON_DEMAND
    assert uniform.decide(view(10.0, up=True, left_h=40.0))[0] == SPOT
    assert uniform.decide(view(0.39))[0] == ON_DEMAND
    held = view(10.0, mode=ON_DEMAND, up=True, left_h=40.0)
    assert uniform.decide(held)[0] == SPOT
    assert UniformProgress(720.0, catch_up_first=True).decide(held)[0] == ON_DEMAND
    assert SpotOnly().decide(view(-1.0))[0] == WAIT


# Replay


def windows_of(*up: list[int], tick_s: float = 600.0) -> Windows:
    """Zones (rows of 0 and 1) of one run."""
    there = np.array(up, bool).T[:, :, None]
    return Windows(tick_s, there, ~there)


def test_a_replay_by_hand() -> None:
    # Ten-minute steps, restart of five minutes: 5 min of work in the first step, 10 in the next two, lost, one
    # step of waiting, then 5 minutes to restart and 5 of work.
    job = Job(1800.0, 6000.0, 300.0, 1.0, 3.0)
    found = replay(SpotOnly(), job, windows_of([1, 1, 1, 0, 1, 1, 1, 1, 1, 1]))
    assert found.finish_s[0] == 3000.0
    assert found.spot_s[0] == 2400.0
    assert found.wait_s[0] == 600.0
    assert found.usd[0] == pytest.approx(2400.0 / HOUR_S)
    assert (found.starts[0], found.losses[0]) == (2, 1)


def test_work_after_the_last_save_is_lost() -> None:
    job = Job(1800.0, 6000.0, 300.0, 1.0, 3.0, checkpoint_s=1200.0)
    found = replay(SpotOnly(), job, windows_of([1, 1, 1, 0, 1, 1, 1, 1, 1, 1]))
    assert found.lost_work_s[0] == 300.0
    assert found.finish_s[0] == 3300.0


def test_a_job_that_cannot_end_is_missed_and_pays_for_what_it_used() -> None:
    found = replay(SpotOnly(), Job(1800.0, 1800.0, 300.0, 1.0, 3.0), windows_of([1, 0, 1]))
    assert found.missed.all()
    assert found.usd[0] == pytest.approx(1200.0 / HOUR_S)


def test_a_second_zone_takes_over_and_the_cheaper_one_is_taken() -> None:
    both = windows_of([1, 1, 0, 0, 0, 0, 0, 0], [1, 1, 1, 1, 1, 1, 1, 1])
    job = Job(2400.0, 4800.0, 300.0, 1.0, 3.0)
    priced = Windows(both.tick_s, both.up, both.hit, np.tile([[[0.5], [0.8]]], (8, 1, 1)))
    found = replay(SpotOnly(), job, priced)
    assert found.losses[0] == 1
    assert found.wait_s[0] == 0.0
    assert found.usd[0] == pytest.approx((1200.0 * 0.5 + 1800.0 * 0.8) / HOUR_S)


def test_spot_dearer_than_on_demand_is_not_taken() -> None:
    one = windows_of([1] * 8)
    dear = Windows(one.tick_s, one.up, one.hit, np.full((8, 1, 1), 5.0))
    found = replay(RULE, Job(1800.0, 4800.0, 300.0, 1.0, 3.0), dear)
    assert found.spot_s[0] == 0.0
    assert not found.missed.any()


def test_the_bound_uses_the_cheapest_hours_there_are() -> None:
    job = Job(1800.0, 3600.0, 300.0, 1.0, 3.0)
    some = windows_of([1, 0, 1, 0, 0, 0])
    assert offline_bound_usd(job, some)[0] == pytest.approx((1200.0 * 1.0 + 600.0 * 3.0) / HOUR_S)
    assert on_demand_usd(job) == pytest.approx(2100.0 * 3.0 / HOUR_S)


# The benchmark


def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("spot_policy_benchmark", BENCHMARK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def made_up_folder(folder: Path) -> Path:
    """Three recordings of 260 hours: a steady zone, a poor one and a gang of 16 lost in bulk."""
    rng = np.random.default_rng(4)
    for name, up_h, down_h, nodes in (("steady", 9.0, 1.0, 1), ("poor", 1.5, 2.0, 1), ("gang", 4.0, 3.0, 16)):
        lengths = rng.weibull(0.7, 400) * np.where(np.arange(400) % 2, down_h, up_h)
        ticks = np.arange(0.0, 260.0, 0.1)
        up = np.searchsorted(np.cumsum(lengths), ticks, side="right") % 2 == 0
        rows = "".join(f"{360 * step},{nodes * int(on)}\n" for step, on in enumerate(up))
        (folder / f"{name}.csv").write_text("timestamp_s,available\n" + rows, encoding="utf-8")
    return folder


def test_the_benchmark_prints_its_json(tmp_path: Path) -> None:
    words = [sys.executable, str(BENCHMARK), str(made_up_folder(tmp_path)), "--json", "--starts", "6"]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    rows: list[dict[str, Any]] = json.loads(done.stdout)["settings"]
    assert len(rows) == 4
    for row in rows:
        assert {"name", "runs", "missed", "saving", "saving_greedy"} <= row.keys()
        assert {"saving_uniform_progress", "saving_bound"} <= row.keys()
        assert row["runs"] == 18
        assert row["missed"] == row["missed_baselines"] == 0
        assert row["saving"] < row["saving_bound"]


@pytest.mark.shared
def test_on_recorded_capacity_nothing_is_late_and_more_is_saved_than_by_the_known_policies() -> None:
    if not SHARED.is_dir():
        pytest.skip("no shared data")
    module = benchmark()
    # Recordings at steps of half a minute take most of the time and add little.
    traces = [trace for trace in load_folder(SHARED) if trace.tick_s >= 60.0]
    rows, by_gang = module.settings_table(traces, 10, module.SETTINGS)
    assert len(rows) == 4
    for row in (*rows, *by_gang):
        assert row["missed"] == 0, row
        assert row["missed_baselines"] == 0, row
    for row in rows:
        assert row["saving"] > max(row["saving_greedy"], row["saving_uniform_progress"]), row
        assert row["saving"] < row["saving_bound"]
