"""Throughput and memory of measured rows, predicted from their layouts alone."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from trainplan_models.block_recompute import with_blocks
from trainplan_models.efficiency import Hardware, Software, software_of
from trainplan_models.layout import (
    MICRO_BATCHES,
    RECOMPUTE,
    LayoutGrid,
    enumerate_layouts,
    rules_of,
)
from trainplan_models.measurements import Reading
from trainplan_models.memory import Memory, peak_memory
from trainplan_models.step_time import StepTime, step_time

Mask = NDArray[np.bool_]

MEASURED_DEFAULT_ZERO = {"megatron": 1, "deepspeed": 3, "fsdp": 3, "torchtitan": 3, "maxtext": 3}
MOST_CANDIDATES = 4000


@dataclass(frozen=True, slots=True)
class Candidates:
    """The layouts that agree with the printed cells of a row, and their memory."""

    reading: Reading
    grid: LayoutGrid
    memory: Memory

    @property
    def eligible(self) -> NDArray[np.intp]:
        """Layouts among which the row's is looked for: those that fit, or all when none does."""
        fits = np.flatnonzero(self.memory.fits)
        return fits if len(fits) else np.arange(len(self.grid))


@dataclass(frozen=True, slots=True)
class Prediction:
    """What the model says about a row."""

    tokens_per_s_per_accelerator: float
    peak_bytes: float
    allocated_bytes: float
    fits: bool
    time: StepTime
    memory: Memory
    index: int
    """Position of the layout taken in the candidates."""


def candidates(reading: Reading) -> Candidates | None:
    """The layouts a row may stand for; None when its printed degrees contradict each other."""
    grid = _printed(reading) if "dp" in reading.partial else _searched(reading)
    if grid is None or not len(grid):
        return None
    memory = peak_memory(reading.setup, reading.accelerator, reading.node, grid)
    if not reading.recompute and reading.setup.framework == "megatron" and "dp" in reading.partial:
        grid, memory = with_blocks(grid, memory)
    return Candidates(reading, grid, memory)


def _recompute_codes(reading: Reading) -> list[int]:
    if reading.recompute in RECOMPUTE:
        return [RECOMPUTE.index(reading.recompute)]
    return [RECOMPUTE.index(word) for word in rules_of(reading.setup.framework).recompute]


def _printed(reading: Reading) -> LayoutGrid | None:
    """Layouts with the printed degrees; open cells are micro-batch, recompute and interleaving."""
    partial, setup = reading.partial, reading.setup
    dp, pp, tp = partial["dp"], partial.get("pp", 1), partial.get("tp", 1)
    share = max(setup.global_batch_sequences // dp, 1)
    micro = (
        [partial["micro_batch"]] if "micro_batch" in partial else [m for m in MICRO_BATCHES if share % m == 0]
    )
    rules = rules_of(setup.framework)
    virtual = [partial["vp"]] if "vp" in partial else _interleavings(reading, pp, share)
    columns = [
        column.ravel() for column in np.meshgrid(micro, virtual, _recompute_codes(reading), indexing="ij")
    ]
    default = MEASURED_DEFAULT_ZERO.get(setup.framework, 1)
    unfused = not software_of(setup.framework, setup.software).fused_attention
    spread = tp > 1 and rules.sequence_parallel and (not unfused or reading.recompute == "selective")
    if "sequence_parallel" in partial:
        spread = bool(partial["sequence_parallel"])

    def same(value: int) -> NDArray[np.int64]:
        return np.full(len(columns[0]), value, dtype=np.int64)

    return LayoutGrid(
        nodes=same(reading.nodes),
        dp=same(dp),
        tp=same(tp),
        pp=same(pp),
        vp=columns[1].astype(np.int64),
        cp=same(partial.get("cp", 1)),
        ep=same(partial.get("ep", 1)),
        zero_stage=same(partial.get("zero_stage", default)),
        shard_group=same(partial.get("shard_group", 0)),
        micro_batch=columns[0].astype(np.int64),
        recompute=columns[2].astype(np.int64),
        sequence_parallel=same(int(spread)),
    )


def _interleavings(reading: Reading, pp: int, share: int) -> list[int]:
    """Numbers of chunks per stage that the layers and the micro-batches allow."""
    layers = reading.setup.shape.layers
    if pp == 1 or share % pp:
        return [1]
    splits = (layers, layers + 1, layers + 2)
    return [1, *(v for v in range(2, layers // pp + 1) if any(count % (pp * v) == 0 for count in splits))]


def _searched(reading: Reading) -> LayoutGrid | None:
    """All legal layouts that agree with the printed cells."""
    setup, node = reading.setup, reading.node
    if "tp" in reading.partial:
        return None
    grid, _ = enumerate_layouts(setup, reading.accelerator, node, [reading.nodes])
    mask = grid.pp <= (1 if setup.framework == "maxtext" else 64)
    for name, value in reading.partial.items():
        if name not in ("dp", "zero_stage", "shard_group"):
            mask &= getattr(grid, name) == value
    mask &= np.isin(grid.recompute, _recompute_codes(reading))
    if "shard_group" in reading.partial:
        mask &= grid.shard_group == (reading.partial["shard_group"] if (grid.shard_group > 0).any() else 0)
    return grid.take(np.flatnonzero(mask)[:MOST_CANDIDATES])


def predict(
    found: Candidates, *, hardware: Hardware | None = None, software: Software | None = None
) -> Prediction:
    """The prediction for a row: the fastest of its eligible layouts."""
    reading, index = found.reading, found.eligible
    grid = found.grid.take(index)
    time = step_time(
        reading.setup, reading.accelerator, reading.node, grid, hardware=hardware, software=software
    )
    best = int(np.argmin(time.step_s))
    chosen = int(index[best])
    devices = float(found.grid.accelerators[chosen])
    return Prediction(
        tokens_per_s_per_accelerator=float(time.tokens_per_s[best]) / devices,
        peak_bytes=float(found.memory.total_bytes[chosen]),
        allocated_bytes=float(found.memory.allocated_bytes[chosen]),
        fits=bool(found.memory.fits[chosen]),
        time=StepTime(*(getattr(time, name)[best : best + 1] for name in StepTime.__slots__)),
        memory=found.memory,
        index=chosen,
    )


def with_factor(software: Software, factor: float) -> Software:
    """The software generation with its compute factor multiplied."""
    return replace(software, compute_factor=software.compute_factor * factor)
