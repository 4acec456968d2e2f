"""One configuration in detail: time and memory by part, error band, and the nearest change when it does not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields

import numpy as np

from trainplan_models.calibration import Calibration
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.layout import LayoutGrid, check_layout, enumerate_layouts, grid_of
from trainplan_models.memory import Memory, memory_by_stage, peak_memory
from trainplan_models.plan import Layout
from trainplan_models.residuals import Residuals, residuals_of
from trainplan_models.step_time import StepTime, step_time
from trainplan_models.workload import TrainSetup, total_params

TIME_PARTS = tuple(
    field.name
    for field in fields(StepTime)
    if field.name.endswith("_s") and field.name not in ("step_s", "tokens_per_s")
)
MEMORY_PARTS = (
    "weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "logits_bytes", "buffers_bytes",
    "reserve_bytes",
)  # fmt: skip
CHANGEABLE = ("micro_batch", "recompute", "zero_stage", "tp", "pp", "vp", "cp", "ep", "shard_group")
MOST_NODES = 4096


@dataclass(frozen=True, slots=True)
class Machine:
    """What a configuration runs on."""

    accelerator: Accelerator
    node: NodeType
    nodes: int


@dataclass(frozen=True, slots=True)
class Estimate:
    """One layout on one pool and node count."""

    layout: Layout
    nodes: int
    step_s: float
    time_s: Mapping[str, float]
    """Seconds of a step by part."""
    tokens_per_s: float
    """P50, calibrated."""
    tokens_per_s_p10: float
    tokens_per_s_p90: float
    mfu_frac: float
    memory_bytes: Mapping[str, Mapping[str, float]]
    """By stage (``first``, ``last``), then by component."""
    peak_bytes: float
    usable_bytes: float
    host_bytes: float
    error_class: str
    error_measured: bool
    """Whether the error band rests on measurements of this class."""

    @property
    def fits(self) -> bool:
        """Whether the fullest device holds it."""
        return self.peak_bytes <= self.usable_bytes


@dataclass(frozen=True, slots=True)
class Change:
    """The nearest layout that fits."""

    layout: Layout
    nodes: int
    changed: tuple[str, ...]
    tokens_per_s: float
    peak_bytes: float


def labels_of(setup: TrainSetup, accelerator: Accelerator) -> dict[str, str]:
    """The class of a prediction, for its error distribution."""
    params = total_params(setup.shape) / 1e9
    size = next(
        name
        for bound, name in ((2, "<2B"), (20, "2-20B"), (100, "20-100B"), (1e9, ">100B"))
        if params < bound
    )
    return {
        "generation": accelerator.generation,
        "precision": setup.precision,
        "model": "moe" if setup.shape.is_moe else "dense",
        "size": size,
        "source": "",
    }


def band_of(setup: TrainSetup, accelerator: Accelerator, calibration: Calibration | None = None) -> Residuals:
    """Distribution of real over predicted throughput."""
    labels = labels_of(setup, accelerator)
    return calibration.band(labels) if calibration else residuals_of(labels)


def estimate_layout(
    setup: TrainSetup, layout: Layout, machine: Machine, calibration: Calibration | None = None
) -> Estimate:
    """Time and memory of one layout. Legality is the caller's: see ``check_layout``."""
    grid = grid_of([layout], machine.node.accelerators)
    time = step_time(setup, machine.accelerator, machine.node, grid)
    return _estimate(setup, machine, grid, time, 0, calibration)


def _estimate(
    setup: TrainSetup,
    machine: Machine,
    grid: LayoutGrid,
    time: StepTime,
    i: int,
    calibration: Calibration | None,
) -> Estimate:
    one = grid.take(np.array([i]))
    memory = peak_memory(setup, machine.accelerator, machine.node, one)
    stages = memory_by_stage(setup, machine.accelerator, one)
    band = band_of(setup, machine.accelerator, calibration)
    low, middle, high = band.band(float(time.tokens_per_s[i]))
    return Estimate(
        layout=grid.record(i, setup.precision),
        nodes=int(grid.nodes[i]),
        step_s=float(time.step_s[i]),
        time_s={name: float(getattr(time, name)[i]) for name in TIME_PARTS},
        tokens_per_s=middle,
        tokens_per_s_p10=low,
        tokens_per_s_p90=high,
        mfu_frac=float(time.mfu_frac[i]) * band.p50,
        memory_bytes={name: _components(stage) for name, stage in stages.items()},
        peak_bytes=float(memory.total_bytes[0]),
        usable_bytes=memory.usable_bytes,
        host_bytes=float(memory.host_bytes[0]),
        error_class=band.of,
        error_measured=band.measured,
    )


def _components(memory: Memory) -> dict[str, float]:
    return {name: float(getattr(memory, name)[0]) for name in (*MEMORY_PARTS, "total_bytes")}


def ranked(
    setup: TrainSetup, machine: Machine, most: int, calibration: Calibration | None = None
) -> tuple[list[Estimate], Counter[str]]:
    """The fastest layouts that fit, and how many configurations each rule removed."""
    grid, removed = enumerate_layouts(setup, machine.accelerator, machine.node, [machine.nodes])
    if not len(grid):
        return [], removed
    memory = peak_memory(setup, machine.accelerator, machine.node, grid)
    removed["does not fit in memory"] += int(len(grid) - np.count_nonzero(memory.fits))
    grid = grid.take(memory.fits)
    if not len(grid):
        return [], +removed
    time = step_time(setup, machine.accelerator, machine.node, grid)
    order = np.argsort(time.step_s, kind="stable")[:most]
    return [_estimate(setup, machine, grid, time, int(i), calibration) for i in order], +removed


def nearest_fit(setup: TrainSetup, layout: Layout, machine: Machine) -> Change | None:
    """The layout that fits and changes least: first on the same nodes, then on the fewest more."""
    nodes = machine.nodes
    while nodes <= MOST_NODES:
        grid, _ = enumerate_layouts(setup, machine.accelerator, machine.node, [nodes])
        if len(grid):
            memory = peak_memory(setup, machine.accelerator, machine.node, grid)
            if memory.fits.any():
                return _closest(
                    setup, layout, machine, grid.take(memory.fits), memory.total_bytes[memory.fits]
                )
        nodes *= 2
    return None


def _closest(
    setup: TrainSetup,
    layout: Layout,
    machine: Machine,
    grid: LayoutGrid,
    peaks: np.ndarray[tuple[int], np.dtype[np.float64]],
) -> Change:
    own = grid_of([layout], machine.node.accelerators)
    differs = {name: getattr(grid, name) != getattr(own, name)[0] for name in CHANGEABLE}
    count = np.sum([mask for mask in differs.values()], axis=0)
    time = step_time(setup, machine.accelerator, machine.node, grid)
    best = int(np.lexsort((time.step_s, count))[0])
    record = grid.record(best, setup.precision)
    changed = tuple(
        f"{name} {getattr(layout, name)} -> {getattr(record, name)}"
        for name, mask in differs.items()
        if mask[best]
    )
    nodes = int(grid.nodes[best])
    if nodes != machine.nodes:
        changed = (f"nodes {machine.nodes} -> {nodes}", *changed)
    return Change(record, nodes, changed, float(time.tokens_per_s[best]), float(peaks[best]))


def illegal(setup: TrainSetup, layout: Layout, machine: Machine) -> list[str]:
    """What is illegal about a layout on a machine, with the valid degrees."""
    return check_layout(setup, layout, machine.accelerator, machine.node)
