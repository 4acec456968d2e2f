from __future__ import annotations

import csv
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from trainplan_models import checkpoint
from trainplan_models.catalog.records import StorageTier
from trainplan_models.storage import TIB_BYTES, Speeds

with (Path(__file__).parent / "checkpoint_vectors.csv").open(newline="", encoding="utf-8") as file:
    VECTORS = list(csv.DictReader(file))

SPEED = Speeds(
    object_write_bytes_per_s_per_node=1e9,
    object_read_bytes_per_s_per_node=2e9,
    local_write_bytes_per_s_per_node=4e9,
    snapshot_bytes_per_s_per_accelerator=5e9,
    blocking_overhead_s=0.5,
    parallel_fs_share=0.8,
)


def tier(**changes: Any) -> StorageTier:
    values: dict[str, Any] = {
        "cloud": "aws",
        "service": "S3",
        "tier": "Standard",
        "kind": "object",
        "usd_per_gb_month": 0.023,
        "source": "test",
        "as_of": "2024",
    }
    return StorageTier.model_validate(values | changes)


Vector = dict[str, Any]


def _ettr_best(i: dict[str, float]) -> float:
    job = (i["n_nodes"], i["rf_per_node_day"], i["u0_s"], i["write_s"])
    return float(checkpoint.meta_ettr_frac(*job, checkpoint.meta_interval_s(*job)))


def _write_bandwidth(i: dict[str, float]) -> float:
    """Bandwidth at which a save takes the seconds measured."""
    bandwidth = i["bytes"] / i["seconds"]
    speed = Speeds(bandwidth, 1.0, 1.0, 1e9, 0.0, 1.0)
    times = checkpoint.save_times(i["bytes"], 1, 8, tier(), speed)
    return i["bytes"] / float(times.flush_s) / 1e9


COMPUTE: dict[str, Callable[[Vector], Any]] = {
    "young_interval": lambda i: checkpoint.young_interval_s(i["M_s"], i["delta_s"]),
    "optimal_first_order_waste": lambda i: checkpoint.optimal_first_order_waste_frac(i["M_s"], i["delta_s"]),
    "daly_higher_interval": lambda i: checkpoint.daly_interval_s(i["M_s"], i["delta_s"]),
    "exact_interval": lambda i: checkpoint.exact_interval_s(i["M_s"], i["delta_s"]),
    "efficiency_exact": lambda i: checkpoint.efficiency_frac(i["tau_s"], i["delta_s"], i["M_s"], i["R_s"]),
    "expected_lost_work": lambda i: checkpoint.expected_lost_work_s(i["interval_s"], 1 / i["rate_per_s"]),
    "ettr_meta": lambda i: checkpoint.meta_ettr_frac(
        i["n_nodes"], i["rf_per_node_day"], i["u0_s"], i["write_s"], i["interval_s"]
    ),
    "ettr_meta_opt_interval": lambda i: checkpoint.meta_interval_s(
        i["n_nodes"], i["rf_per_node_day"], i["u0_s"], i["write_s"]
    ),
    "ettr_meta_max": _ettr_best,
    "multilevel_first_order_waste": lambda i: checkpoint.multilevel_waste_frac(
        i["lambda_per_s"], i["cost_s"]
    ),
    "wasted_time_s": lambda i: checkpoint.wasted_s(i["N_iters"], i["T_iter_s"], i["T_save_s"], i["T_load_s"]),
    "bytes_per_param": lambda i: i["bytes"] / checkpoint.checkpoint_bytes(i["params"], 1.0),
    "bytes_per_param_formula": lambda i: checkpoint.bytes_per_param(**i),
    "bandwidth_GBps": _write_bandwidth,
    "delta_over_interval": lambda i: 1 - checkpoint.efficiency_frac(i["interval_s"], i["delta_s"], 1e12, 0.0),
}
OTHERS = {
    "mtti_h", "rate_per_node_day", "sum", "mttf_h", "mtbf_h", "mtbf_h_cluster", "ratio", "completion_quantile",
    "completion_cvar", "spare_nodes_binomial", "hazard_per_h_from_month", "hazard_per_h_from_hour",
    "gang_survival",
}  # fmt: skip


def test_every_kind_of_vector_is_tested_here_or_with_the_failures() -> None:
    assert len(VECTORS) == 160
    assert {row["kind"] for row in VECTORS} == set(COMPUTE) | OTHERS
    assert not set(COMPUTE) & OTHERS


@pytest.mark.parametrize("row", [r for r in VECTORS if r["kind"] in COMPUTE], ids=lambda r: r["id"])
def test_vector(row: dict[str, str]) -> None:
    value = float(COMPUTE[row["kind"]](json.loads(row["inputs_json"])))
    assert value == pytest.approx(float(row["expected"]), rel=float(row["rtol"]), abs=0)


@pytest.mark.parametrize(("mtbf", "blocking"), [(11135.0, 20.0), (28440.0, 60.0), (2000.0, 5000.0)])
def test_exact_interval_is_where_brute_force_finds_the_best(mtbf: float, blocking: float) -> None:
    best = float(checkpoint.exact_interval_s(mtbf, blocking))
    grid = np.geomspace(best / 10, best * 10, 200_001)
    found = grid[np.argmax(checkpoint.efficiency_frac(grid, blocking, mtbf, 300.0))]
    assert found == pytest.approx(best, rel=1e-3)


def test_series_and_lambert_w_meet() -> None:
    mtbf = 1e6
    below, above = checkpoint.exact_interval_s(mtbf, np.array([0.999999, 1.000001]))
    assert below == pytest.approx(above, rel=2e-6)
    assert below == pytest.approx(float(checkpoint.young_interval_s(mtbf, 1.0)), rel=1e-3)


def test_efficiency_against_simulated_failures() -> None:
    interval, blocking, mtbf, restart = 900.0, 60.0, 4000.0, 300.0
    rng = default_rng(3)
    wall = 0.0
    for _ in range(20_000):
        while (life := rng.exponential(mtbf)) < interval + blocking:
            wall += life
            while (life := rng.exponential(mtbf)) < restart:
                wall += life
            wall += restart
        wall += interval + blocking
    expected = float(checkpoint.efficiency_frac(interval, blocking, mtbf, restart))
    assert 20_000 * interval / wall == pytest.approx(expected, rel=0.01)


def test_a_job_that_dies_before_it_is_back_never_finishes() -> None:
    policy = checkpoint.best_policy(1e12, 64, 60.0, 7200.0, tier(), SPEED)
    assert 0.0 <= float(policy.efficiency_frac) < 1e-6
    never = checkpoint.efficiency_frac(1.0, 1.0, np.array([1e-3, 0.0]), 1e9)
    assert never.tolist() == [0.0, 0.0]


def test_saving_for_nothing_leaves_only_the_restarts() -> None:
    assert float(checkpoint.exact_interval_s(1e4, 0.0)) == 0.0
    assert float(checkpoint.efficiency_frac(0.0, 0.0, 1e4, 100.0)) == pytest.approx(np.exp(-0.01))
    assert float(checkpoint.efficiency_frac(0.0, 10.0, 1e4, 100.0)) == 0.0


def test_asynchronous_save_blocks_for_the_snapshot_only() -> None:
    times = checkpoint.save_times(1.6e12, 4, 8, tier(), SPEED)
    assert float(times.blocking_s) == pytest.approx(1.6e12 / (32 * 5e9) + 0.5)
    assert float(times.flush_s) == pytest.approx(400.0)
    assert float(times.load_s) == pytest.approx(200.0)


def test_synchronous_save_blocks_until_it_is_written() -> None:
    times = checkpoint.save_times(1.6e12, 4, 8, tier(), SPEED, asynchronous=False)
    assert float(times.blocking_s) == pytest.approx(400.5)
    assert float(times.flush_s) == 0.0


def test_throughput_of_a_file_system_is_bought_with_capacity() -> None:
    lustre = tier(kind="parallel-fs", mbps_per_tib=250.0, min_size_bytes=1.2e12)
    small = checkpoint.save_times(1e11, 4, 8, lustre, SPEED)
    assert float(small.capacity_bytes) == 1.2e12
    assert float(small.flush_s) == pytest.approx(1e11 / (1.2e12 / TIB_BYTES * 250e6 * 0.8))
    fast = checkpoint.save_times(1e11, 4, 8, lustre, SPEED, need_bytes_per_s=2e9)
    assert float(fast.flush_s) == pytest.approx(50.0)
    assert float(fast.capacity_bytes) == pytest.approx(10 * TIB_BYTES)


def test_local_disks_grow_with_the_nodes() -> None:
    times = checkpoint.save_times(1e12, 10, 8, tier(cloud="any", kind="local"), SPEED)
    assert float(times.flush_s) == pytest.approx(1e12 / 10 / 4e9)
    assert float(times.load_s) == pytest.approx(1e12 / 10 / 4e9)


def test_interval_is_the_optimum_unless_a_limit_holds_it() -> None:
    nodes = np.array([1, 16, 256])
    free = checkpoint.best_policy(1e12, nodes, 1e5 / nodes, 600.0, tier(), SPEED)
    assert np.all(free.feasible)
    best = checkpoint.exact_interval_s(1e5 / nodes, free.blocking_s)
    assert free.interval_s == pytest.approx(np.maximum(best, 1000.0 / nodes))
    assert free.restart_s == pytest.approx(600.0 + 500.0 / nodes)
    assert free.lost_work_s == pytest.approx(free.interval_s + 1000.0 / nodes)


def test_most_lost_work_shortens_the_interval_by_a_flush() -> None:
    policy = checkpoint.best_policy(1e12, 16, 1e7, 600.0, tier(), SPEED, max_lost_work_s=600.0)
    assert bool(policy.feasible)
    assert float(policy.interval_s) == pytest.approx(600.0 - 62.5)
    assert float(policy.lost_work_s) == pytest.approx(600.0)


def test_a_limit_that_the_tier_cannot_keep_is_flagged() -> None:
    nodes = np.array([1, 16])
    policy = checkpoint.best_policy(1e12, nodes, 1e5, 600.0, tier(), SPEED, max_lost_work_s=900.0)
    assert policy.feasible.tolist() == [False, True]
    for values in (policy.interval_s, policy.lost_work_s, policy.efficiency_frac, policy.persist_s):
        assert np.all(values > 0)


@pytest.mark.parametrize(
    ("fixed", "feasible"), [(30.0, False), (100.0, True), (1700.0, True), (1800.0, False)]
)
def test_a_fixed_interval_is_kept_or_flagged(fixed: float, feasible: bool) -> None:
    policy = checkpoint.best_policy(
        1e12, 16, 1e5, 600.0, tier(), SPEED, max_lost_work_s=1800.0, fixed_interval_s=fixed
    )
    assert bool(policy.feasible) is feasible
    assert float(policy.interval_s) == pytest.approx(max(fixed, 62.5))


def test_the_age_of_the_durable_copy_costs_work() -> None:
    policy = checkpoint.best_policy(1e12, 16, 1e5, 600.0, tier(), SPEED)
    without = checkpoint.efficiency_frac(policy.interval_s, policy.blocking_s, 1e5, policy.restart_s)
    with_age = checkpoint.efficiency_frac(policy.interval_s, policy.blocking_s, 1e5, policy.restart_s + 62.5)
    assert float(policy.efficiency_frac) == pytest.approx(float(with_age))
    assert float(with_age) < float(without)


def test_asynchronous_saving_never_loses_to_waiting() -> None:
    nodes = np.array([4, 64, 1024])
    mtbf = 86400.0 / (nodes * 6.5e-3)
    later = checkpoint.best_policy(2e12, nodes, mtbf, 600.0, tier(), SPEED)
    now = checkpoint.best_policy(2e12, nodes, mtbf, 600.0, tier(), SPEED, asynchronous=False)
    assert np.all(later.efficiency_frac > now.efficiency_frac)
    assert now.lost_work_s == pytest.approx(now.interval_s)


def test_frozen_weights_are_not_saved_again() -> None:
    assert float(checkpoint.checkpoint_bytes(8e9)) == 1.12e11
    assert float(checkpoint.checkpoint_bytes(4e7, 14.0, frozen_params=8e9)) == 5.6e8
    assert checkpoint.weights_bytes(1.12e11) == pytest.approx(1.6e10)


def test_an_empty_checkpoint_takes_no_time() -> None:
    times = checkpoint.save_times(0.0, 8, 8, tier(kind="parallel-fs", mbps_per_tib=125.0), SPEED)
    assert float(times.flush_s) == float(times.load_s) == 0.0
