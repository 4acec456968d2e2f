"""Every configuration that can run a task, evaluated at once; the best layout of each node count is kept.

All nonlinear arithmetic of throughput and memory happens here, once per kind of machine, so that the
optimization sees only numbers. What each rule removed is counted for the report.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.layout import LayoutGrid, enumerate_layouts
from trainplan_models.memory import peak_memory
from trainplan_models.plan import Layout
from trainplan_models.step_time import step_time
from trainplan_models.workload import TrainSetup

CHUNK = 1 << 16
"""Layouts evaluated at a time: large enough for numpy, small enough for the cache."""
HEADROOM_FRAC = 0.05
"""Share of the usable memory that stays free: a wrong "fits" costs a failed launch, and predicted peaks are
off by some 7 % in the median of the measured rows (``trainplan validate``)."""
NOT_FITTING = "does not fit in memory"
SLOWER = "another layout of the same nodes is faster"


@dataclass(frozen=True, slots=True)
class Candidate:
    """The best layout of a task on so many nodes of one kind of machine."""

    nodes: int
    layout: Layout
    step_s: float
    tokens_per_s: float
    mfu_frac: float
    peak_memory_bytes: float


@dataclass(frozen=True, slots=True)
class Screened:
    """Candidates by ascending node count, and how many configurations each rule removed."""

    candidates: tuple[Candidate, ...]
    removed: Counter[str]
    evaluated: int
    """Legal layouts whose memory was worked out."""
    nearest: NearMiss | None = None
    """The layout that came closest to fitting, when none fits."""


@dataclass(frozen=True, slots=True)
class NearMiss:
    """A layout that does not fit, and by how much; usable is what the headroom leaves."""

    nodes: int
    layout: Layout
    peak_memory_bytes: float
    usable_memory_bytes: float


def node_counts(most: int | None, wanted: Sequence[int] = ()) -> list[int]:
    """Node counts that are looked at: all up to 64, then ever coarser steps.

    Args:
        most: the case's ceiling; None for 4,096 nodes.
        wanted: exactly these, when the case names them.
    """
    ceiling = 4096 if most is None else most
    if wanted:
        return [count for count in wanted if count <= ceiling]
    steps = ((1, 64, 1), (64, 256, 8), (256, 1024, 32), (1024, 4096, 128), (4096, 32768, 1024))
    counts = {n for low, high, step in steps for n in range(low, high + 1, step) if n <= ceiling}
    return sorted(counts | {ceiling})


def screen(
    setup: TrainSetup, accelerator: Accelerator, node: NodeType, counts: Sequence[int], factor: float = 1.0
) -> Screened:
    """Evaluates all legal layouts on one kind of machine and keeps the fastest of each node count.

    Args:
        setup: what is trained.
        accelerator: the chip.
        node: the machine; one that cannot join a cluster is only looked at alone.
        counts: node counts.
        factor: multiplies every throughput (the case's ``throughput_factor``).
    """
    allowed = [count for count in counts if count == 1 or node.nic_bytes_per_s > 0.0]
    grid, removed = enumerate_layouts(setup, accelerator, node, allowed)
    best: dict[int, Candidate] = {}
    nearest: NearMiss | None = None
    for first in range(0, len(grid), CHUNK):
        part = grid.take(slice(first, first + CHUNK))
        memory = peak_memory(setup, accelerator, node, part)
        room_bytes = memory.usable_bytes * (1.0 - HEADROOM_FRAC)
        fits = memory.total_bytes <= room_bytes
        removed[NOT_FITTING] += int(len(part) - np.count_nonzero(fits))
        if not fits.any():
            if not best:
                nearest = _nearer(nearest, setup, part, memory.total_bytes, float(np.max(room_bytes)))
            continue
        _keep_fastest(best, setup, accelerator, node, part.take(fits), memory.total_bytes[fits], factor)
    kept = tuple(best[count] for count in sorted(best))
    slower = len(grid) - removed[NOT_FITTING] - len(kept)
    if slower:
        removed[SLOWER] += slower
    return Screened(kept, +removed, len(grid), None if kept else nearest)


def _keep_fastest(
    best: dict[int, Candidate],
    setup: TrainSetup,
    accelerator: Accelerator,
    node: NodeType,
    grid: LayoutGrid,
    peak_bytes: np.ndarray[tuple[int], np.dtype[np.float64]],
    factor: float,
) -> None:
    times = step_time(setup, accelerator, node, grid)
    tokens_per_s = np.asarray(times.tokens_per_s) * factor
    # Equal speed: the layout that needs less memory, then the first; the order never varies.
    order = np.lexsort((peak_bytes, -tokens_per_s, grid.nodes))
    first = np.unique(grid.nodes[order], return_index=True)[1]
    for row in order[first]:
        count = int(grid.nodes[row])
        if count in best and best[count].tokens_per_s >= tokens_per_s[row]:
            continue
        best[count] = Candidate(
            nodes=count,
            layout=grid.record(int(row), setup.precision),
            step_s=float(times.step_s[row]) / factor,
            tokens_per_s=float(tokens_per_s[row]),
            mfu_frac=float(times.mfu_frac[row]) * factor,
            peak_memory_bytes=float(peak_bytes[row]),
        )


def _nearer(
    nearest: NearMiss | None,
    setup: TrainSetup,
    grid: LayoutGrid,
    peak_bytes: np.ndarray[tuple[int], np.dtype[np.float64]],
    usable_bytes: float,
) -> NearMiss:
    row = int(np.argmin(peak_bytes))
    found = NearMiss(
        int(grid.nodes[row]), grid.record(row, setup.precision), float(peak_bytes[row]), usable_bytes
    )
    return found if nearest is None or found.peak_memory_bytes < nearest.peak_memory_bytes else nearest
