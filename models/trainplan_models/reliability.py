"""How often a job is interrupted, how long it takes to come back, and when it will be done.

All functions take numbers or arrays that broadcast together and return arrays. Times are seconds,
rates are per second unless the name says otherwise.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import FailureProfile, SpotProfile

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

HOUR_S = 3600.0
DAY_S = 86400.0
MONTH_H = 730.0
"""Hours in the month that providers bill and publish by."""
MTBF_CEILING_S = 1e12
"""Above this a job counts as never failing, which keeps every formula finite."""


def _between(value: float, low: float, high: float, key: str) -> None:
    if not low < value < high:
        raise InputError(Problem(f"{value} is not between {low:g} and {high:g}", key=key))


# Conversions between the ways in which rates are published


def failures_per_node_day(events: ArrayLike, days: ArrayLike, nodes: ArrayLike) -> FloatArray:
    """Failure rate of one node from a count of events over a cluster."""
    return np.asarray(np.asarray(events, float) / (np.asarray(days, float) * np.asarray(nodes, float)))


def mtbf_s_from_events(days: ArrayLike, events: ArrayLike) -> FloatArray:
    """Mean time between interruptions seen over a stretch of days."""
    return np.asarray(np.asarray(days, float) * DAY_S / np.asarray(events, float))


def mtbf_s_from_node_days(nodes: ArrayLike, failures_per_1000_node_days: ArrayLike) -> FloatArray:
    """Mean time between failures of a job on ``nodes`` nodes that fail independently."""
    rate = np.asarray(nodes, float) * np.asarray(failures_per_1000_node_days, float) / (1000.0 * DAY_S)
    return np.asarray(1.0 / np.maximum(rate, 1.0 / MTBF_CEILING_S))


def mtbf_s_from_fit(fit: ArrayLike, nodes: ArrayLike = 1) -> FloatArray:
    """Mean time between failures of ``nodes`` parts of ``fit`` failures in 1e9 hours each."""
    return np.asarray(1e9 * HOUR_S / (np.asarray(fit, float) * np.asarray(nodes, float)))


def hazard_per_h(share_lost: ArrayLike, hours: ArrayLike = MONTH_H) -> FloatArray:
    """Constant hazard under which ``share_lost`` of the instances are lost within ``hours``.

    One provider publishes the share of a month (730 h), another the chance of the next hour: the same
    number means rates that differ by a factor of 730.
    """
    share = np.asarray(share_lost, float)
    if np.any((share < 0) | (share >= 1)):
        raise InputError(Problem(f"share lost {share_lost!r} is not in [0, 1)", key="share_lost"))
    return np.asarray(-np.log1p(-share) / np.asarray(hours, float))


# Interruptions of a job


def failure_rate_per_s(nodes: ArrayLike, profile: FailureProfile) -> FloatArray:
    """Rate of hardware and soft failures of a job on ``nodes`` nodes."""
    hardware = np.asarray(nodes, float) * profile.failures_per_1000_node_days / 1000.0
    return np.asarray((hardware + profile.soft_failures_per_day) / DAY_S)


def preemption_rate_per_s(nodes: ArrayLike, spot: SpotProfile | None) -> FloatArray:
    """Rate at which a gang of spot nodes is broken: ``rate * nodes ** (1 - gang_correlation)``.

    Losses come in bulk, so a gang is broken less often than its nodes' rates add up to.
    """
    count = np.asarray(nodes, float)
    if spot is None:
        return np.zeros_like(count)
    return np.asarray(spot.preemptions_per_node_h * count ** (1.0 - spot.gang_correlation) / HOUR_S)


def job_mtbf_s(nodes: ArrayLike, profile: FailureProfile, spot: SpotProfile | None = None) -> FloatArray:
    """Mean time between interruptions of a running job: failures and preemptions as independent hazards."""
    rate = failure_rate_per_s(nodes, profile) + preemption_rate_per_s(nodes, spot)
    return np.asarray(1.0 / np.maximum(rate, 1.0 / MTBF_CEILING_S))


def restart_s(profile: FailureProfile, spare: ArrayLike, load_s: ArrayLike) -> FloatArray:
    """From a failure until training again: detect, replace (or requeue), load the checkpoint, warm up."""
    replace_s = np.where(np.asarray(spare, bool), profile.spare_swap_s, profile.requeue_s)
    return np.asarray(profile.detect_s + replace_s + np.asarray(load_s, float) + profile.warmup_s)


def mean_restart_s(
    nodes: ArrayLike, profile: FailureProfile, spot: SpotProfile | None, spare: ArrayLike, load_s: ArrayLike
) -> FloatArray:
    """Mean restart over failures and preemptions, each weighted by how often it happens.

    After a preemption the wait for capacity is not part of it (it is neither paid nor running, see
    ``spot.availability_frac``); what is left is to load and to warm up, since the loss is announced.
    """
    failures = failure_rate_per_s(nodes, profile)
    preemptions = preemption_rate_per_s(nodes, spot)
    total = np.maximum(failures + preemptions, 1.0 / MTBF_CEILING_S)
    resume_s = np.asarray(load_s, float) + profile.warmup_s
    return np.asarray((failures * restart_s(profile, spare, load_s) + preemptions * resume_s) / total)


def down_frac(profile: FailureProfile) -> float:
    """Share of its life that a node is out for repair (alternating renewal: up 1/rate, down ``repair_s``)."""
    load = profile.failures_per_1000_node_days / 1000.0 / DAY_S * profile.repair_s
    return load / (1.0 + load)


def binomial_quantile(nodes: ArrayLike, share: ArrayLike, quantile: float) -> IntArray:
    """Smallest k with P(Binomial(nodes, share) <= k) >= quantile.

    Raises:
        InputError: ``quantile`` is not between 0 and 1.
    """
    from scipy.special import bdtr, bdtrik

    _between(quantile, 0.0, 1.0, "quantile")
    n, p = np.broadcast_arrays(np.asarray(nodes, np.int64), np.asarray(share, float))
    # From just below the quantile of the continued distribution, which says nothing (nan) at the ends.
    near = np.nan_to_num(np.floor(bdtrik(quantile, n, p)) - 1.0)
    count: IntArray = np.clip(near, 0, n).astype(np.int64)
    short = (count < n) & (bdtr(count.astype(float), n, p) < quantile)
    while np.any(short):
        count = count + short
        short = (count < n) & (bdtr(count.astype(float), n, p) < quantile)
    return count


def spares_for(nodes: ArrayLike, profile: FailureProfile, quantile: float) -> IntArray:
    """Warm spare nodes that are enough with chance ``quantile`` while failed nodes are repaired."""
    return binomial_quantile(nodes, down_frac(profile), quantile)


def straggler_factor(
    nodes: ArrayLike, slow_node_frac: ArrayLike = 0.0, slowdown_frac: ArrayLike = 0.0
) -> FloatArray:
    """Mean factor on the step time of a synchronous job when each node is slow now and then.

    The job goes as fast as its slowest node: ``1 + slowdown * P(any node is slow)``.
    """
    any_slow = -np.expm1(np.asarray(nodes, float) * np.log1p(-np.asarray(slow_node_frac, float)))
    return np.asarray(1.0 + np.asarray(slowdown_frac, float) * any_slow)


# When the work is done


def _retried(length_s: FloatArray, mtbf_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Mean and variance of the time until ``length_s`` passes without an interruption."""
    x = length_s / mtbf_s
    series = x**3 / 3.0 * (1.0 + x * (1.0 + 0.55 * x))
    spread = np.where(x < 1e-3, series, np.expm1(2.0 * x) - 2.0 * x * np.exp(x))
    return mtbf_s * np.expm1(x), mtbf_s**2 * spread


def _lost_when_failed(length_s: FloatArray, mtbf_s: FloatArray) -> tuple[FloatArray, FloatArray]:
    """First and second moment of the time run before a failure that comes within ``length_s``."""
    x = length_s / mtbf_s
    small = x < 1e-3
    safe = np.where(small, 1.0, x)
    odds = np.expm1(safe)
    mean = np.where(small, 0.5 - x / 12.0, 1.0 / safe - 1.0 / odds)
    square = np.where(small, 1.0 / 3.0 - x / 12.0 + x**2 / 360.0, 2.0 / safe**2 - (1.0 + 2.0 / safe) / odds)
    return np.asarray(length_s * mean), np.asarray(length_s**2 * square)


def segment_moments(
    interval_s: ArrayLike,
    blocking_s: ArrayLike,
    mtbf_s: ArrayLike,
    restart_s: ArrayLike,
    interruptible_restart: bool = False,
) -> tuple[FloatArray, FloatArray]:
    """Exact mean (s) and variance (s^2) of the wall time from one saved checkpoint to the next.

    A stretch of ``interval + blocking`` must pass without a failure (Poisson, mean ``mtbf_s``); every
    failure throws the stretch away and costs a restart, which with ``interruptible_restart`` can fail
    itself (then the mean is that of Daly's complete model, FGCS 22, 2006).
    """
    length = np.asarray(interval_s, float) + np.asarray(blocking_s, float)
    mtbf = np.asarray(mtbf_s, float)
    back = np.asarray(restart_s, float)
    back_mean, back_var = _retried(back, mtbf) if interruptible_restart else (back, np.zeros_like(back))
    x = length / mtbf
    failures = np.expm1(x)
    lost_mean, lost_square = _lost_when_failed(length, mtbf)
    each_var = np.maximum(lost_square - lost_mean**2, 0.0) + back_var
    mean = length + failures * (lost_mean + back_mean)
    return mean, failures * each_var + failures * (failures + 1.0) * (lost_mean + back_mean) ** 2


def completion_s(
    work_s: ArrayLike,
    quantile: ArrayLike,
    interval_s: ArrayLike,
    blocking_s: ArrayLike,
    mtbf_s: ArrayLike,
    restart_s: ArrayLike,
    interruptible_restart: bool = False,
) -> FloatArray:
    """Quantile of the wall time that ``work_s`` of useful work takes (segment moments and the CLT)."""
    from scipy.special import ndtri

    mean, var = segment_moments(interval_s, blocking_s, mtbf_s, restart_s, interruptible_restart)
    count = np.asarray(work_s, float) / np.asarray(interval_s, float)
    return np.asarray(count * mean + np.sqrt(count * var) * ndtri(np.asarray(quantile, float)))


def completion_cvar_s(
    work_s: ArrayLike,
    alpha: ArrayLike,
    interval_s: ArrayLike,
    blocking_s: ArrayLike,
    mtbf_s: ArrayLike,
    restart_s: ArrayLike,
) -> FloatArray:
    """Mean wall time of the worst ``1 - alpha`` of outcomes: ``mu + sd * phi(z_alpha) / (1 - alpha)``."""
    from scipy.special import ndtri

    mean, var = segment_moments(interval_s, blocking_s, mtbf_s, restart_s)
    count = np.asarray(work_s, float) / np.asarray(interval_s, float)
    level = np.asarray(alpha, float)
    density = np.exp(-(ndtri(level) ** 2) / 2.0) / np.sqrt(2.0 * np.pi)
    return np.asarray(count * mean + np.sqrt(count * var) * density / (1.0 - level))
