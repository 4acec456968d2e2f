from __future__ import annotations

import csv
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.random import default_rng

from trainplan_models import checkpoint, reliability, spot
from trainplan_models.base import InputError
from trainplan_models.catalog.records import FailureProfile, SpotProfile

with (Path(__file__).parent / "checkpoint_vectors.csv").open(newline="", encoding="utf-8") as file:
    VECTORS = list(csv.DictReader(file))


def profile(**changes: float) -> FailureProfile:
    values: dict[str, float] = {
        "failures_per_1000_node_days": 6.5,
        "detect_s": 60.0,
        "requeue_s": 450.0,
        "spare_swap_s": 30.0,
        "repair_s": 86400.0,
        "warmup_s": 90.0,
    }
    return FailureProfile.model_validate(
        {"name": "test", "source": "test", "as_of": "2024", **(values | changes)}
    )


def spot_profile(rate: float, correlation: float = 0.0, reacquire_s: float = 600.0) -> SpotProfile:
    return SpotProfile(
        name="test",
        preemptions_per_node_h=rate,
        gang_correlation=correlation,
        reacquire_s=reacquire_s,
        source="test",
        as_of="2024",
    )


def _month(i: dict[str, float]) -> float:
    gang = spot_profile(float(reliability.hazard_per_h(i["p_month"])))
    return float(spot.gang_survival_frac(i["nodes"], i["hours"], gang))


COMPUTE: dict[str, Callable[[dict[str, Any]], Any]] = {
    "mtti_h": lambda i: reliability.mtbf_s_from_events(i["days"], i["unexpected"]) / 3600,
    "rate_per_node_day": lambda i: reliability.failures_per_node_day(i["events"], i["days"], i["nodes"]),
    "sum": lambda i: sum(i["values"]),
    "mttf_h": lambda i: reliability.mtbf_s_from_node_days(i["nodes"], i["rf_per_1000_node_days"]) / 3600,
    "mtbf_h": lambda i: reliability.mtbf_s_from_fit(i["fit"]) / 3600,
    "mtbf_h_cluster": lambda i: reliability.mtbf_s_from_fit(i["fit"], i["nodes"]) / 3600,
    "ratio": lambda i: i["a"] / i["b"],
    "completion_quantile": lambda i: reliability.completion_s(
        i["work_s"], i["q"], i["tau_s"], i["delta_s"], i["M_s"], i["R_s"]
    ),
    "completion_cvar": lambda i: reliability.completion_cvar_s(
        i["work_s"], i["alpha"], i["tau_s"], i["delta_s"], i["M_s"], i["R_s"]
    ),
    "spare_nodes_binomial": lambda i: reliability.binomial_quantile(i["nodes"], i["p_down"], i["quantile"]),
    "hazard_per_h_from_month": lambda i: reliability.hazard_per_h(i["p_month"], i["hours"]),
    "hazard_per_h_from_hour": lambda i: reliability.hazard_per_h(i["p_hour"], 1.0),
    "gang_survival": _month,
}


@pytest.mark.parametrize("row", [r for r in VECTORS if r["kind"] in COMPUTE], ids=lambda r: r["id"])
def test_vector(row: dict[str, str]) -> None:
    value = float(COMPUTE[row["kind"]](json.loads(row["inputs_json"])))
    assert value == pytest.approx(float(row["expected"]), rel=float(row["rtol"]), abs=0)


def test_mtbf_adds_independent_hazards() -> None:
    world = profile(soft_failures_per_day=0.5)
    nodes = np.array([1, 16, 256])
    per_day = nodes * 6.5e-3 + 0.5
    assert reliability.job_mtbf_s(nodes, world) == pytest.approx(86400 / per_day)
    gang = spot_profile(0.1, correlation=0.5)
    assert reliability.job_mtbf_s(nodes, world, gang) == pytest.approx(
        86400 / (per_day + 24 * 0.1 * np.sqrt(nodes))
    )


def test_a_job_that_never_fails_has_a_finite_mtbf() -> None:
    mtbf = float(reliability.job_mtbf_s(8, profile(failures_per_1000_node_days=0.0)))
    assert mtbf == reliability.MTBF_CEILING_S
    assert (
        0.99 < float(checkpoint.efficiency_frac(checkpoint.exact_interval_s(mtbf, 1.0), 1.0, mtbf, 600.0)) < 1
    )


def test_a_spare_saves_the_queue() -> None:
    with_spare, without = reliability.restart_s(profile(), np.array([True, False]), 20.0)
    assert with_spare == 60 + 30 + 20 + 90
    assert without == 60 + 450 + 20 + 90


def test_mean_restart_weighs_failures_and_preemptions_by_their_rates() -> None:
    world, gang = profile(), spot_profile(0.01)
    failures, preemptions = 16 * 6.5e-3 / 86400, 16 * 0.01 / 3600
    want = (failures * (60 + 450 + 20 + 90) + preemptions * (20 + 90)) / (failures + preemptions)
    assert float(reliability.mean_restart_s(16, world, gang, False, 20.0)) == pytest.approx(want)
    assert float(reliability.mean_restart_s(16, world, None, False, 20.0)) == pytest.approx(620.0)


def test_spares_are_the_smallest_number_that_is_enough() -> None:
    world = profile(failures_per_1000_node_days=20.0, repair_s=2 * 86400.0)
    share = 0.04 / 1.04
    assert reliability.down_frac(world) == pytest.approx(share)
    for nodes in (1, 8, 100):
        spares = int(reliability.spares_for(nodes, world, 0.99))
        chances = [math.comb(nodes, k) * share**k * (1 - share) ** (nodes - k) for k in range(nodes + 1)]
        assert sum(chances[: spares + 1]) >= 0.99
        assert spares == 0 or sum(chances[:spares]) < 0.99
    assert reliability.spares_for(np.array([1, 8, 100]), world, 0.99).tolist() == sorted(
        int(reliability.spares_for(n, world, 0.99)) for n in (1, 8, 100)
    )


@pytest.mark.parametrize("quantile", [0.0, 1.0, -1.0, 2.0])
def test_a_quantile_outside_its_range_is_refused(quantile: float) -> None:
    with pytest.raises(InputError, match="quantile"):
        reliability.spares_for(8, profile(), quantile)


@pytest.mark.parametrize("share", [-0.1, 1.0])
def test_a_share_outside_its_range_is_refused(share: float) -> None:
    with pytest.raises(InputError, match="share lost"):
        reliability.hazard_per_h(share)


def test_monthly_and_hourly_shares_differ_by_the_hours_of_a_month() -> None:
    month, hour = reliability.hazard_per_h(0.05), reliability.hazard_per_h(0.05, 1.0)
    assert float(hour / month) == pytest.approx(730.0)


def test_a_synchronous_job_waits_for_its_slowest_node() -> None:
    factors = reliability.straggler_factor(np.array([1, 100, 10_000]), 0.01, 0.34)
    assert factors == pytest.approx([1.0034, 1 + 0.34 * (1 - 0.99**100), 1.34])
    assert float(reliability.straggler_factor(64)) == 1.0


@pytest.mark.parametrize("interruptible", [False, True])
def test_segment_moments_against_simulation(interruptible: bool) -> None:
    interval, blocking, mtbf, restart = 900.0, 30.0, 3000.0, 600.0
    mean, var = reliability.segment_moments(interval, blocking, mtbf, restart, interruptible)
    rng = default_rng(7)
    walls = np.array(
        [_segment(rng, interval + blocking, mtbf, restart, interruptible) for _ in range(20_000)]
    )
    error = math.sqrt(float(var) / walls.size)
    assert walls.mean() == pytest.approx(float(mean), abs=4 * error)
    assert walls.std() == pytest.approx(math.sqrt(float(var)), rel=0.05)


def _segment(
    rng: np.random.Generator, length: float, mtbf: float, restart: float, interruptible: bool
) -> float:
    wall, left, waiting = 0.0, length, False
    while left > 0:
        life = rng.exponential(mtbf)
        if waiting and not interruptible:
            life = math.inf
        if life >= left:
            wall += left
            left, waiting = (length, False) if waiting else (0.0, False)
        else:
            wall += life
            left, waiting = restart, True
    return wall


def test_moments_agree_with_the_complete_model_when_restarts_can_fail() -> None:
    mtbf = np.array([500.0, 5e3, 5e6, 5e9])
    mean, var = reliability.segment_moments(900.0, 30.0, mtbf, 600.0, True)
    assert 900.0 / mean == pytest.approx(checkpoint.efficiency_frac(900.0, 30.0, mtbf, 600.0), rel=1e-9)
    assert np.all(var >= 0)


def test_moments_are_continuous_where_the_series_takes_over() -> None:
    edge = 930.0 / 1e-3
    around = reliability.segment_moments(
        900.0, 30.0, np.array([edge * 0.999999, edge * 1.000001]), 600.0, True
    )
    for low, high in around:
        assert low == pytest.approx(high, rel=1e-5)
