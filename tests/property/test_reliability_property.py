from __future__ import annotations

import numpy as np
from hypothesis import assume, given
from hypothesis import strategies as st

from trainplan_models import checkpoint, reliability, risk, spot
from trainplan_models.catalog.records import SpotProfile, StorageTier
from trainplan_models.storage import Speeds, storage_usd

mtbfs = st.floats(600.0, 1e7)
blockings = st.floats(0.05, 900.0)
restarts = st.floats(1.0, 3600.0)
more = st.floats(1.01, 10.0)

TIER = StorageTier(
    cloud="a", service="b", tier="c", kind="object", usd_per_gb_month=0.02, source="test", as_of="2024"
)
SPEED = Speeds(
    object_write_bytes_per_s_per_node=1e9,
    object_read_bytes_per_s_per_node=1e9,
    local_write_bytes_per_s_per_node=1e9,
    snapshot_bytes_per_s_per_accelerator=5e9,
    blocking_overhead_s=0.5,
    parallel_fs_share=0.8,
)


def best_efficiency(mtbf: float, blocking: float, restart: float) -> float:
    interval = checkpoint.exact_interval_s(mtbf, blocking)
    return float(checkpoint.efficiency_frac(interval, blocking, mtbf, restart))


@given(mtbfs, blockings, restarts, more)
def test_efficiency_lies_between_0_and_1_and_falls_with_what_costs_time(
    mtbf: float, blocking: float, restart: float, factor: float
) -> None:
    best = best_efficiency(mtbf, blocking, restart)
    assert 0.0 < best < 1.0
    assert best_efficiency(mtbf, blocking * factor, restart) < best
    assert best_efficiency(mtbf, blocking, restart * factor) < best
    assert best_efficiency(mtbf * factor, blocking, restart) > best


@given(mtbfs, blockings, restarts, st.floats(0.02, 50.0))
def test_no_other_interval_beats_the_exact_one(
    mtbf: float, blocking: float, restart: float, factor: float
) -> None:
    interval = checkpoint.exact_interval_s(mtbf, blocking)
    other = float(checkpoint.efficiency_frac(interval * factor, blocking, mtbf, restart))
    assert other <= best_efficiency(mtbf, blocking, restart) * (1 + 1e-12)


@given(mtbfs, blockings)
def test_exact_interval_lies_below_young_and_the_mtbf(mtbf: float, blocking: float) -> None:
    interval = float(checkpoint.exact_interval_s(mtbf, blocking))
    assert 0.0 < interval <= mtbf * (1 + 1e-12)
    assert interval <= float(checkpoint.young_interval_s(mtbf, blocking)) * (1 + 1e-12)


@given(
    st.floats(1e9, 1e13),
    st.integers(1, 4096),
    mtbfs,
    restarts,
    st.one_of(st.none(), st.floats(60.0, 1e5)),
    st.one_of(st.none(), st.floats(60.0, 1e5)),
    st.booleans(),
)
def test_a_policy_keeps_its_limits_or_says_that_it_cannot(
    size: float,
    nodes: int,
    mtbf: float,
    restart: float,
    lost: float | None,
    fixed: float | None,
    asynchronous: bool,
) -> None:
    policy = checkpoint.best_policy(
        size,
        nodes,
        mtbf,
        restart,
        TIER,
        SPEED,
        max_lost_work_s=lost,
        fixed_interval_s=fixed,
        asynchronous=asynchronous,
    )
    assert 0.0 <= float(policy.efficiency_frac) < 1.0
    assert min(float(policy.interval_s), float(policy.blocking_s), float(policy.persist_s)) > 0.0
    if policy.feasible:
        assert lost is None or float(policy.lost_work_s) <= lost * (1 + 1e-9)
        assert fixed is None or float(policy.interval_s) == fixed
        assert float(policy.interval_s) >= float(policy.persist_s - policy.blocking_s) * (1 - 1e-9)
    else:
        assert lost is not None or fixed is not None


@given(mtbfs, blockings, restarts, st.floats(0.05, 0.94))
def test_later_quantiles_take_longer_and_their_tail_mean_longer_still(
    mtbf: float, blocking: float, restart: float, quantile: float
) -> None:
    interval = checkpoint.exact_interval_s(mtbf, blocking)
    job = (interval, blocking, mtbf, restart)
    work = 30 * 86400.0
    at, later = (float(reliability.completion_s(work, q, *job)) for q in (quantile, quantile + 0.05))
    assert work < float(reliability.completion_s(work, 0.5, *job))
    assert at < later
    assert at < float(reliability.completion_cvar_s(work, quantile, *job))


@given(st.integers(1, 2000), st.floats(1e-5, 0.3), st.floats(0.5, 0.999))
def test_a_spare_fewer_would_not_be_enough(nodes: int, share: float, quantile: float) -> None:
    from scipy.special import bdtr

    count = int(reliability.binomial_quantile(nodes, share, quantile))
    assert 0 <= count <= nodes
    assert count == nodes or bdtr(float(count), nodes, share) >= quantile
    assert count == 0 or bdtr(float(count - 1), nodes, share) < quantile


@given(st.floats(1e-5, 1.0), st.floats(0.0, 1.0), st.integers(1, 512), st.floats(60.0, 1e5))
def test_bigger_gangs_are_up_less(rate: float, correlation: float, nodes: int, reacquire: float) -> None:
    gang = SpotProfile(
        name="x",
        preemptions_per_node_h=rate,
        gang_correlation=correlation,
        reacquire_s=reacquire,
        source="test",
        as_of="2024",
    )
    one, many = spot.availability_frac(np.array([nodes, nodes + 1]), gang)
    assert 0.0 < many <= one < 1.0


@given(st.floats(1e6, 1e14), st.floats(0.0, 400 * 86400.0), st.floats(0.0, 200.0), st.floats(0.0, 1.0), more)
def test_storage_costs_no_less_when_dearer_bigger_or_longer(
    size: float, held: float, min_days: float, price: float, factor: float
) -> None:
    tier = TIER.model_copy(update={"usd_per_gb_month": price, "min_days": min_days})
    usd = storage_usd(tier, size, held)
    assert usd >= 0.0
    least = usd * (1 - 1e-12) - 1e-12
    assert storage_usd(tier, size * factor, held) >= least
    assert storage_usd(tier, size, held * factor) >= least
    dearer = tier.model_copy(update={"usd_per_gb_month": price * factor})
    assert storage_usd(dearer, size, held) >= least


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30), st.floats(0.0, 0.99), st.floats(0.0, 0.99))
def test_cvar_lies_between_the_mean_and_the_worst_and_rises_with_the_level(
    costs: list[float], low: float, high: float
) -> None:
    assume(low <= high)
    span = 1e-9 * (1.0 + max(abs(cost) for cost in costs))
    first, second = risk.cvar(costs, low), risk.cvar(costs, high)
    assert float(np.mean(costs)) - span <= first <= second + span <= max(costs) + 2 * span
    assert risk.value_at_risk(costs, high) <= second + span
