"""Measured rows made ready for fitting: layouts fixed, rows alike stacked so that they are evaluated together."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainplan_models.efficiency import Hardware, Software
from trainplan_models.layout import LayoutGrid, join
from trainplan_models.measurements import Reading
from trainplan_models.prediction import Candidates, predict
from trainplan_models.step_time import step_time
from trainplan_models.workload import TrainSetup

Floats = NDArray[np.float64]

VARYING_SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_positions")
VARYING_SETUP = ("sequence_length", "global_batch_sequences")
CROWDING = -0.25
"""Power of the number of rows of a source and class with which each of them counts."""

OPEN_LAYOUT = 0.4
"""Weight of a row that prints no layout: how far its prediction is off is also how well the layout was guessed."""


@dataclass(frozen=True, slots=True)
class Observations:
    """Measured rows that share everything but the layout, with their layouts fixed."""

    reading: Reading
    """Any of the rows, for what they share."""
    setup: TrainSetup
    """With arrays for sizes that differ from row to row."""
    rowwise: bool
    grid: LayoutGrid
    measured: Floats
    weight: Floats
    rows: NDArray[np.intp]
    """Positions of the rows in what :func:`observe` was given."""


@dataclass(slots=True)
class State:
    """The parameter tables while they are fitted."""

    hardware: dict[str, Hardware]
    software: dict[str, Software]

    def copy(self) -> State:
        """The same values in tables of their own."""
        return State(dict(self.hardware), dict(self.software))


def observe(found: Sequence[Candidates], state: State) -> list[Observations]:
    """Fix the layout of every row at the one the present parameters choose, and weigh the sources."""
    classes = [
        tuple(item.reading.labels[key] for key in ("source", "generation", "precision", "model"))
        for item in found
    ]
    crowd = Counter(classes)
    groups: dict[tuple[object, ...], list[tuple[Reading, LayoutGrid, float, int]]] = {}
    for row, (item, key) in enumerate(zip(found, classes, strict=True)):
        reading = item.reading
        labels = reading.labels
        guess = predict(
            item, hardware=state.hardware[labels["generation"]], software=state.software[labels["software"]]
        )
        layout = item.grid.take(np.array([guess.index]))
        weight = crowd[key] ** CROWDING * (OPEN_LAYOUT if _guessed(item) else 1.0)
        member = (reading, layout, weight, row)
        groups.setdefault(_alike(reading), []).append(member)
    return [_together(members) for members in groups.values()]


def _guessed(item: Candidates) -> bool:
    """Whether the row leaves open how it was split, where the framework could have split it in many ways."""
    return "tp" in item.reading.assumed and bool((item.grid.pp > 1).any())


def _alike(reading: Reading) -> tuple[object, ...]:
    """What rows must share to be evaluated together: everything but sizes of dense models."""
    setup = reading.setup
    if setup.shape.is_moe or setup.shape.sliding_window or setup.document_tokens:
        return setup, reading.accelerator, reading.node
    ones: dict[str, Any] = dict.fromkeys(VARYING_SHAPE[:-1], 1)
    shape = replace(setup.shape, name="", max_positions=0, **ones)
    alike = replace(setup, shape=shape, sequence_length=1, global_batch_sequences=1)
    links = (reading.node.nic_bytes_per_s, reading.node.scaleup_devices)
    return alike, reading.accelerator, links, setup.shape.max_positions > 0


def _together(members: Sequence[tuple[Reading, LayoutGrid, float, int]]) -> Observations:
    readings = [member[0] for member in members]
    first = readings[0]
    setups = [reading.setup for reading in readings]
    rowwise = any(setup != first.setup for setup in setups)
    setup = first.setup
    if rowwise:
        sizes: dict[str, Any] = {
            name: np.array([getattr(s.shape, name) for s in setups], dtype=float) for name in VARYING_SHAPE
        }
        sizes["max_positions"] = first.setup.shape.max_positions
        other: dict[str, Any] = {
            name: np.array([getattr(s, name) for s in setups], dtype=float) for name in VARYING_SETUP
        }
        setup = replace(setup, shape=replace(setup.shape, **sizes), **other)
    return Observations(
        first,
        setup,
        rowwise,
        join([member[1] for member in members]),
        np.array([float(reading.measured or 1.0) for reading in readings]),
        np.array([member[2] for member in members]),
        np.array([member[3] for member in members], dtype=np.intp),
    )


def log_ratios(observations: Observations, state: State) -> Floats:
    """Logarithms of predicted over measured throughput."""
    reading, grid = observations.reading, observations.grid
    time = step_time(
        observations.setup,
        reading.accelerator,
        reading.node,
        grid,
        hardware=state.hardware[reading.labels["generation"]],
        software=state.software[reading.labels["software"]],
        rowwise=observations.rowwise,
    )
    return np.log(time.tokens_per_s / grid.accelerators / observations.measured)
