"""How often to save, how long it takes, and what share of the time is left for work.

Symbols: M is the job's mean time between interruptions, d the time a save stops training, R the restart,
tau the useful work between two saves. All functions take numbers or arrays that broadcast together; times
are seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan_models.catalog.records import StorageTier
from trainplan_models.reliability import MTBF_CEILING_S
from trainplan_models.storage import Speeds, parallel_fs_bytes, throughput_bytes_per_s

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

WEIGHTS_BYTES_PER_PARAM = 2.0
NOMINAL_BYTES_PER_PARAM = 14.0
"""bf16 weights 2, fp32 master 4, Adam moments 4 + 4; published checkpoints have 13.1 to 14.4."""


# Intervals


def young_interval_s(mtbf_s: ArrayLike, blocking_s: ArrayLike) -> FloatArray:
    """``sqrt(2 d M)`` (Young, CACM 17(9), 1974)."""
    return np.asarray(np.sqrt(2.0 * np.asarray(blocking_s, float) * np.asarray(mtbf_s, float)))


def optimal_first_order_waste_frac(mtbf_s: ArrayLike, blocking_s: ArrayLike) -> FloatArray:
    """``d/tau + tau/2M`` at Young's interval, ``sqrt(2 d / M)``; overstates large wastes."""
    return np.asarray(np.sqrt(2.0 * np.asarray(blocking_s, float) / np.asarray(mtbf_s, float)))


def daly_interval_s(mtbf_s: ArrayLike, blocking_s: ArrayLike) -> FloatArray:
    """Daly's higher-order estimate (FGCS 22, 2006, eq. 37); M where d >= 2M."""
    mtbf, blocking = np.asarray(mtbf_s, float), np.asarray(blocking_s, float)
    half = blocking / (2.0 * mtbf)
    series = np.sqrt(2.0 * blocking * mtbf) * (1.0 + np.sqrt(half) / 3.0 + half / 9.0) - blocking
    return np.where(blocking < 2.0 * mtbf, series, mtbf)


def exact_interval_s(mtbf_s: ArrayLike, blocking_s: ArrayLike) -> FloatArray:
    """The interval that minimises Daly's complete model: ``M (1 + W0(-exp(-1 - d/M)))``.

    It does not depend on the restart. Near the branch point of W0 (d much below M) the series in
    ``p = sqrt(2 (1 - exp(-d/M)))`` is used, which keeps full precision.
    """
    from scipy.special import lambertw

    mtbf = np.minimum(np.asarray(mtbf_s, float), MTBF_CEILING_S)
    ratio = np.asarray(blocking_s, float) / mtbf
    p = np.sqrt(-2.0 * np.expm1(-ratio))
    series = p * (1.0 - p * (1.0 / 3.0 - p * (11.0 / 72.0 - p * 43.0 / 540.0)))
    exact = 1.0 + np.real(lambertw(-np.exp(-1.0 - ratio)))
    return np.asarray(mtbf * np.where(ratio < 1e-6, series, exact))


def efficiency_frac(
    interval_s: ArrayLike, blocking_s: ArrayLike, mtbf_s: ArrayLike, restart_s: ArrayLike
) -> FloatArray:
    """Useful share of wall time: ``tau / (M e^{R/M} (e^{(tau+d)/M} - 1))`` (Daly 2006, complete model).

    Falls towards 0, never below, when restarts or saves take longer than the job lives: such a job never
    finishes.
    """
    mtbf = np.clip(np.asarray(mtbf_s, float), 1.0 / MTBF_CEILING_S, MTBF_CEILING_S)
    interval = np.asarray(interval_s, float)
    length = (interval + np.asarray(blocking_s, float)) / mtbf
    # Written with negative exponents so that nothing overflows; a zero-length stretch costs nothing.
    tiny = length <= 0
    failed = np.where(tiny, 1.0, -np.expm1(-length))
    running = np.where(tiny, 1.0, interval / mtbf / failed)
    return np.asarray(running * np.exp(-length - np.asarray(restart_s, float) / mtbf))


def expected_lost_work_s(interval_s: ArrayLike, mtbf_s: ArrayLike) -> FloatArray:
    """Mean time thrown away by a failure within the interval; half of it when failures are rare."""
    interval = np.asarray(interval_s, float)
    x = interval / np.asarray(mtbf_s, float)
    safe = np.where(x < 1e-4, 1.0, x)
    return np.asarray(
        interval * np.where(x < 1e-4, 0.5 - x / 12.0, 1.0 / safe - np.exp(-safe) / -np.expm1(-safe))
    )


# Other definitions in use


def meta_ettr_frac(
    nodes: ArrayLike,
    failures_per_node_day: ArrayLike,
    restart_s: ArrayLike,
    write_s: ArrayLike,
    interval_s: ArrayLike,
) -> FloatArray:
    """Expected effective training time ratio without queueing (Kokolis et al., arXiv 2410.21680v2).

    ``(1 - N r (u0 + dt/2)) / (1 + w/dt)``, never below 0.
    """
    rate = np.asarray(nodes, float) * np.asarray(failures_per_node_day, float) / 86400.0
    interval = np.asarray(interval_s, float)
    kept = 1.0 - rate * (np.asarray(restart_s, float) + interval / 2.0)
    return np.asarray(np.maximum(kept, 0.0) / (1.0 + np.asarray(write_s, float) / interval))


def meta_interval_s(
    nodes: ArrayLike, failures_per_node_day: ArrayLike, restart_s: ArrayLike, write_s: ArrayLike
) -> FloatArray:
    """The interval that maximises :func:`meta_ettr_frac`: ``-w + sqrt(w^2 + 2 w (M - u0))``; 0 if M < u0."""
    mtbf = 86400.0 / (np.asarray(nodes, float) * np.asarray(failures_per_node_day, float))
    write = np.asarray(write_s, float)
    left = np.maximum(mtbf - np.asarray(restart_s, float), 0.0)
    return np.asarray(-write + np.sqrt(write**2 + 2.0 * write * left))


def wasted_s(
    iterations: ArrayLike, iteration_s: ArrayLike, save_s: ArrayLike, load_s: ArrayLike
) -> FloatArray:
    """Time lost around one failure, ``T_save + T_load + N T_iter / 2`` (ByteCheckpoint, arXiv 2407.20143)."""
    redone = np.asarray(iterations, float) * np.asarray(iteration_s, float) / 2.0
    return np.asarray(np.asarray(save_s, float) + np.asarray(load_s, float) + redone)


def multilevel_waste_frac(rates_per_s: ArrayLike, costs_s: ArrayLike) -> FloatArray:
    """First-order waste of independent levels, ``sum_l sqrt(2 lambda_l C_l)`` over the last axis.

    ``lambda_l`` is the rate of failures that need level l (Benoit et al., IEEE TC 66, 2017).
    """
    return np.asarray(np.sqrt(2.0 * np.asarray(rates_per_s, float) * np.asarray(costs_s, float)).sum(axis=-1))


# Sizes and times


def bytes_per_param(weights: float = 2.0, master: float = 4.0, m: float = 4.0, v: float = 4.0) -> float:
    """Bytes a checkpoint keeps for each trained parameter: weights, master copy and optimizer moments."""
    return weights + master + m + v


def checkpoint_bytes(
    trained_params: ArrayLike,
    bytes_per_trained_param: float = NOMINAL_BYTES_PER_PARAM,
    frozen_params: ArrayLike = 0.0,
    bytes_per_frozen_param: float = 0.0,
) -> FloatArray:
    """Size of a full checkpoint. Frozen weights are not saved again unless a size is given for them."""
    trained = np.asarray(trained_params, float) * bytes_per_trained_param
    return np.asarray(trained + np.asarray(frozen_params, float) * bytes_per_frozen_param)


def weights_bytes(full_checkpoint_bytes: float) -> float:
    """Size of the weights alone, as handed to the next task, from that of a full checkpoint."""
    return full_checkpoint_bytes * WEIGHTS_BYTES_PER_PARAM / NOMINAL_BYTES_PER_PARAM


@dataclass(frozen=True, slots=True)
class SaveTimes:
    """How long saving and loading takes; arrays by candidate."""

    blocking_s: FloatArray
    """Training stands still."""
    flush_s: FloatArray
    """From training going on until the save is durable; 0 when it is written while training waits."""
    load_s: FloatArray
    capacity_bytes: FloatArray
    """Capacity the tier must have; what is stored where throughput is not bought with capacity."""


def _seconds(size_bytes: FloatArray, bytes_per_s: FloatArray) -> FloatArray:
    """Time to move bytes; nothing takes no time, whatever the speed."""
    out = np.zeros(np.broadcast_shapes(size_bytes.shape, bytes_per_s.shape))
    return np.divide(size_bytes, bytes_per_s, out=out, where=size_bytes > 0)


def save_times(
    size_bytes: ArrayLike,
    nodes: ArrayLike,
    accelerators_per_node: ArrayLike,
    tier: StorageTier,
    speed: Speeds,
    *,
    asynchronous: bool = True,
    copies: int = 4,
    need_bytes_per_s: float = 0.0,
    load_bytes: ArrayLike | None = None,
) -> SaveTimes:
    """Save and load times of a checkpoint of ``size_bytes`` that all nodes write together, each its share.

    Args:
        size_bytes: size of one checkpoint.
        nodes: nodes that write.
        accelerators_per_node: accelerators that copy to host memory at once.
        tier: where the durable copy goes.
        speed: the catalogue's speeds.
        asynchronous: training goes on after the copy to host memory.
        copies: checkpoints kept on the tier, the one being written included.
        need_bytes_per_s: throughput to buy where it comes with capacity; else what the data brings.
        load_bytes: bytes read at a restart; absent, one copy of the checkpoint.
    """
    size, count = np.broadcast_arrays(np.asarray(size_bytes, float), np.asarray(nodes, float))
    data = size * copies
    if tier.mbps_per_tib is not None or tier.min_size_bytes > 0:
        floor = parallel_fs_bytes(tier, 0.0, need_bytes_per_s, speed.parallel_fs_share)
        data = np.maximum(data, floor)
    write_s = _seconds(size, throughput_bytes_per_s(tier, count, data, speed, write=True))
    read = size if load_bytes is None else np.asarray(load_bytes, float)
    load_s = _seconds(read, throughput_bytes_per_s(tier, count, data, speed, write=False))
    if not asynchronous:
        return SaveTimes(write_s + speed.blocking_overhead_s, np.zeros_like(write_s), load_s, data)
    devices = count * np.asarray(accelerators_per_node, float)
    snapshot_s = size / (devices * speed.snapshot_bytes_per_s_per_accelerator)
    return SaveTimes(snapshot_s + speed.blocking_overhead_s, write_s, load_s, data)


# The policy


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """How candidates save; arrays by candidate."""

    interval_s: FloatArray
    """Useful work between two saves."""
    blocking_s: FloatArray
    persist_s: FloatArray
    """From the start of a save until it is durable."""
    restart_s: FloatArray
    """Detection, replacement, load and warm-up."""
    lost_work_s: FloatArray
    """Most work a failure can throw away."""
    efficiency_frac: FloatArray
    """Useful share of the time the job holds its nodes; near 0 for a job that never finishes."""
    feasible: BoolArray
    """False where no interval keeps both the write speed and the lost-work limit (or the fixed one breaks
    either); the other arrays then show the shortest interval the tier can take."""
    capacity_bytes: FloatArray


def best_policy(
    size_bytes: ArrayLike,
    nodes: ArrayLike,
    mtbf_s: ArrayLike,
    restart_s: ArrayLike,
    target: StorageTier,
    speed: Speeds,
    *,
    accelerators_per_node: ArrayLike = 8,
    max_lost_work_s: float | None = None,
    fixed_interval_s: float | None = None,
    asynchronous: bool = True,
    keep_last: int = 3,
    need_bytes_per_s: float = 0.0,
    load_bytes: ArrayLike | None = None,
) -> CheckpointPolicy:
    """The best interval on one target, for many candidates at once.

    A save cannot start before the last one is flushed, so the interval is at least the flush. The newest
    durable point is up to one flush old, so a failure can throw away ``interval + flush`` and on average
    ``flush`` more than half an interval, which is charged as part of the restart.

    Args:
        size_bytes: checkpoint sizes.
        nodes: node counts.
        mtbf_s: mean time between interruptions.
        restart_s: restart without the load (``reliability.restart_s`` or ``mean_restart_s``, load 0).
        target: tier of the durable copy.
        speed: the catalogue's speeds.
        accelerators_per_node: accelerators that copy to host memory at once.
        max_lost_work_s: limit of the case.
        fixed_interval_s: interval of the case; absent, the best one.
        asynchronous: training goes on while a save is flushed.
        keep_last: checkpoints kept beside the one being written.
        need_bytes_per_s: see :func:`save_times`.
        load_bytes: see :func:`save_times`.
    """
    times = save_times(
        size_bytes,
        nodes,
        accelerators_per_node,
        target,
        speed,
        asynchronous=asynchronous,
        copies=keep_last + 1,
        need_bytes_per_s=need_bytes_per_s,
        load_bytes=load_bytes,
    )
    mtbf = np.broadcast_to(np.asarray(mtbf_s, float), times.flush_s.shape)
    shortest = times.flush_s
    longest = (np.inf if max_lost_work_s is None else max_lost_work_s) - times.flush_s
    if fixed_interval_s is None:
        wanted = exact_interval_s(mtbf, times.blocking_s)
        interval = np.maximum(np.minimum(wanted, longest), shortest)
    else:
        interval = np.full(times.flush_s.shape, fixed_interval_s)
    feasible = (interval >= shortest) & (interval <= longest) & (interval > 0)
    interval = np.maximum(interval, shortest)
    restart = np.asarray(restart_s, float) + times.load_s
    return CheckpointPolicy(
        interval_s=interval,
        blocking_s=times.blocking_s,
        persist_s=times.blocking_s + times.flush_s,
        restart_s=restart,
        lost_work_s=interval + times.flush_s,
        efficiency_frac=efficiency_frac(interval, times.blocking_s, mtbf, restart + times.flush_s),
        feasible=feasible,
        capacity_bytes=times.capacity_bytes,
    )
