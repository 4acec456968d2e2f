from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.random import default_rng

from trainplan_models.simulation_events import Hazards, Saving, work_through
from trainplan_models.simulation_replay import Job, offline_bound_usd, replay
from trainplan_models.simulation_spot import Fallback, Gang, work_on_spot
from trainplan_models.simulation_statistics import quantiles
from trainplan_models.spot_policy import FallbackRule, Greedy, UniformProgress
from trainplan_models.traces import Windows

RUNS = 12

times = st.floats(60.0, 7200.0)
seeds = st.integers(0, 10_000)


def hazards(mtbf_s: float, restart_s: float, spread: float = 0.0) -> Hazards:
    ones, zeros = np.ones(RUNS), np.zeros(RUNS)
    return Hazards(
        node_per_s=ones / mtbf_s,
        soft_per_s=zeros,
        hang_frac=0.0,
        hang_s=zeros,
        detect_s=restart_s,
        swap_s=0.0,
        requeue_s=0.0,
        resume_s=0.0,
        spares=0,
        repair_s=0.0,
        recovery_factor=ones,
        recovery_spread_factor=spread,
    )


@given(
    interval_s=times,
    blocking_s=st.floats(0.0, 120.0),
    flush_s=st.floats(0.0, 600.0),
    mtbf_h=st.floats(1.0, 500.0),
    restart_s=st.floats(0.0, 1800.0),
    work_s=st.floats(1.0, 2e5),
    seed=seeds,
)
@settings(max_examples=60, deadline=None)
def test_time_is_work_saves_lost_work_and_recoveries(
    interval_s: float,
    blocking_s: float,
    flush_s: float,
    mtbf_h: float,
    restart_s: float,
    work_s: float,
    seed: int,
) -> None:
    saving = Saving(interval_s, blocking_s, blocking_s + flush_s)
    work = np.full(RUNS, work_s)
    found = work_through(work, saving, hazards(3600.0 * mtbf_h, restart_s), default_rng(seed))
    quiet_s = saving.wall_s(work) + blocking_s
    assert np.all(found.wall_s >= quiet_s - 1e-6 * work_s)
    assert np.all(found.wall_s >= work + found.lost_work_s + found.down_s - 1e-6 * found.wall_s)
    assert np.all((found.failures > 0) | (found.lost_work_s == 0.0))
    assert np.all(found.lost_work_s <= found.failures * (2.0 * interval_s) + 1e-6)


@given(scale=st.floats(0.01, 100.0), interval_s=times, restart_s=times, seed=seeds)
@settings(max_examples=40, deadline=None)
def test_a_slower_clock_changes_nothing_else(
    scale: float, interval_s: float, restart_s: float, seed: int
) -> None:
    def run(clock: float) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
        saving = Saving(interval_s * clock, 10.0 * clock, 40.0 * clock)
        found = work_through(
            np.full(RUNS, 48.0 * interval_s * clock),
            saving,
            hazards(20.0 * interval_s * clock, restart_s * clock, 0.4),
            default_rng(seed),
        )
        return np.asarray(found.wall_s)

    np.testing.assert_allclose(run(scale), run(1.0) * scale, rtol=1e-6)


def capacity(seed: int, steps: int, up_steps: float, down_steps: float, zones: int) -> Windows:
    """Alternating stretches of random lengths in every zone and run."""
    rng = default_rng(seed)
    up = np.zeros((steps, zones, RUNS), bool)
    for zone in range(zones):
        for run in range(RUNS):
            lengths = rng.exponential(np.where(np.arange(2 * steps) % 2, down_steps, up_steps)) + 0.2
            place = np.searchsorted(np.cumsum(lengths), np.arange(steps), side="right")
            up[:, zone, run] = (place + rng.integers(2)) % 2 == 0
    return Windows(300.0, up, ~up)


@given(
    seed=seeds,
    up_steps=st.floats(1.0, 60.0),
    down_steps=st.floats(1.0, 60.0),
    zones=st.integers(1, 3),
    work_h=st.floats(1.0, 10.0),
    slack_frac=st.floats(0.0, 1.0),
    restart_s=st.floats(0.0, 1500.0),
    checkpoint_s=st.sampled_from([0.0, 450.0, 1800.0]),
    price=st.floats(0.05, 1.2),
)
@settings(max_examples=80, deadline=None)
def test_a_deadline_that_can_be_kept_is_kept(
    seed: int,
    up_steps: float,
    down_steps: float,
    zones: int,
    work_h: float,
    slack_frac: float,
    restart_s: float,
    checkpoint_s: float,
    price: float,
) -> None:
    work_s = 3600.0 * work_h
    deadline_s = (work_s + restart_s) * (1.0 + slack_frac)
    job = Job(work_s, deadline_s, restart_s, price, 1.0, checkpoint_s=checkpoint_s)
    stretch = capacity(seed, int(np.ceil(deadline_s / 300.0)), up_steps, down_steps, zones)
    guard_s = restart_s + checkpoint_s
    rule = FallbackRule.standard(restart_s, price, 1.0, lost_work_s=checkpoint_s)
    # On-demand itself takes a restart; when spot is lost, work since the last save comes on top.
    policies = (rule, Greedy(restart_s, guard_s), UniformProgress(restart_s, guard_s))
    for policy in policies:
        found = replay(policy, job, stretch)
        assert not found.missed.any()
        assert np.all(found.finish_s <= deadline_s + 1e-6)
        held_s = found.spot_s + found.on_demand_s
        overhead_s = found.starts * restart_s
        assert np.all(held_s + found.wait_s >= found.finish_s - 1e-3)
        assert np.all(held_s >= work_s + found.lost_work_s - 1e-3)
        assert np.all(held_s <= work_s + found.lost_work_s + overhead_s + 1e-3)
        assert np.all(found.usd >= offline_bound_usd(job, stretch) - 1e-6)


@given(
    seed=seeds,
    up_h=st.floats(0.3, 50.0),
    down_h=st.floats(0.1, 20.0),
    shape=st.floats(0.5, 1.5),
    slack_frac=st.floats(0.05, 2.0),
)
@settings(max_examples=40, deadline=None)
def test_events_on_spot_account_for_all_time(
    seed: int, up_h: float, down_h: float, shape: float, slack_frac: float
) -> None:
    work_s = 86400.0
    rule = FallbackRule.standard(600.0, 0.3, 1.0, cycle_s=3600.0 * (up_h + down_h), lost_work_s=1000.0)
    deadline_s = np.full(RUNS, work_s * (1.0 + slack_frac))
    found = work_on_spot(
        np.full(RUNS, work_s),
        Saving(900.0, 5.0, 60.0),
        hazards(1e12, 60.0),
        Gang(np.full(RUNS, 3600.0 * up_h), np.full(RUNS, 3600.0 * down_h), shape, 0.7, 30.0),
        Fallback(rule, deadline_s, True, np.zeros(RUNS), 0.99),
        default_rng(seed),
    )
    spent_s = found.spot_s + found.on_demand_s + found.wait_s
    np.testing.assert_allclose(spent_s, found.wall_s, rtol=1e-9)
    assert np.all(found.spot_s + found.on_demand_s >= work_s + found.lost_work_s - 1.0)
    if slack_frac > 0.1:
        assert np.all(found.wall_s <= deadline_s)


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=40), seeds)
def test_quantiles_are_in_order_and_among_the_values(values: list[float], seed: int) -> None:
    weight = default_rng(seed).random(len(values)) + 0.01
    found = list(quantiles(np.array(values), weight / weight.sum()).values())
    assert found == sorted(found)
    assert set(found) <= set(values)


@given(seed=seeds, factor=st.floats(1.5, 10.0))
@settings(max_examples=20, deadline=None)
def test_more_failures_take_longer_on_the_whole(seed: int, factor: float) -> None:
    saving, work = Saving(900.0, 10.0, 30.0), np.full(RUNS, 40 * 86400.0)
    few = hazards(10 * 3600.0, 600.0)
    many = replace(few, node_per_s=few.node_per_s * factor)
    means = [float(work_through(work, saving, h, default_rng(seed)).wall_s.mean()) for h in (few, many)]
    assert means[0] < means[1]
