"""Fits the efficiency parameters to measured throughput.

The estimate is the maximum of a posterior: every parameter is held near its starting value by a weak prior, within
its bounds, and the logarithm of predicted over measured throughput is judged by a loss that forgives outliers.
Sources with many rows do not outvote the others.
"""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainplan_models.efficiency import Hardware, Software, bounds, hardware_rows, software_rows
from trainplan_models.layout import LayoutGrid, join
from trainplan_models.measurements import Reading
from trainplan_models.prediction import Candidates, predict
from trainplan_models.step_time import step_time
from trainplan_models.workload import TrainSetup

Floats = NDArray[np.float64]

HARDWARE = [
    "matmul_frac",
    "fp8_frac",
    "fp4_frac",
    "tail_elements",
    "attention_frac",
    "attention_half_tokens",
    "memory_frac",
    "gap_s",
    "host_s",
    "scaleup_frac",
    "scaleup_latency_s",
    "scaleout_frac",
    "scaleout_latency_s",
    "half_message_bytes",
    "overlap_slowdown",
    "straggler_frac",
]
SOFTWARE = [
    "compute_factor",
    "attention_factor",
    "moe_factor",
    "elementwise_factor",
    "launch_factor",
    "tp_overlap",
    "dp_overlap",
    "cp_overlap",
    "ep_overlap",
    "pp_overlap",
    "expert_kernels",
]
FEW_ROWS = 25
"""Generations with fewer rows than this have only their rates and links fitted."""
FEW_PARAMETERS = {
    "matmul_frac",
    "fp8_frac",
    "attention_frac",
    "scaleout_frac",
    "compute_factor",
    "straggler_frac",
}
NEEDS = {
    "fp8_frac": "fp8",
    "fp4_frac": "fp4",
    "cast_factor": "fp8",
    "moe_factor": "moe",
    "ep_overlap": "moe",
    "expert_kernels": "moe",
    "tp_overlap": "tp",
    "cp_overlap": "cp",
    "pp_overlap": "pp",
    "stall_frac": "pp",
}
"""What rows must have for a parameter to show in them."""
ERROR_SCALE = 0.06
"""Relative error taken as one unit of misfit."""
PRIOR_SCALE = {"hardware": 0.8, "software": 0.8}
"""Standard deviation of the prior on the logistic scale between the bounds."""
EDGE = 0.005
DIFFERENCE = 0.05
"""Step of the numerical derivatives on the logistic scale."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One number that is fitted."""

    table: str
    owner: str
    name: str

    @property
    def low(self) -> float:
        """Lower bound."""
        return bounds()[self.name][0]

    @property
    def high(self) -> float:
        """Upper bound."""
        return bounds()[self.name][1]


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


@dataclass(slots=True)
class State:
    """The parameter tables while they are fitted."""

    hardware: dict[str, Hardware]
    software: dict[str, Software]

    def get(self, parameter: Parameter) -> float:
        """The value of a parameter."""
        rows: dict[str, Hardware] | dict[str, Software] = (
            self.hardware if parameter.table == "hardware" else self.software
        )
        return float(getattr(rows[parameter.owner], parameter.name))

    def put(self, parameter: Parameter, value: float) -> None:
        """Change one parameter."""
        change: dict[str, Any] = {parameter.name: value}
        if parameter.table == "hardware":
            self.hardware[parameter.owner] = replace(self.hardware[parameter.owner], **change)
        else:
            self.software[parameter.owner] = replace(self.software[parameter.owner], **change)


def start() -> State:
    """The tables of the catalogue."""
    return State(dict(hardware_rows()), dict(software_rows()))


def observe(found: Sequence[Candidates], state: State) -> list[Observations]:
    """Fix the layout of every row at the one the present parameters choose, and weigh the sources."""
    classes = [
        tuple(item.reading.labels[key] for key in ("source", "generation", "precision", "model"))
        for item in found
    ]
    count = Counter(classes)
    groups: dict[tuple[object, ...], list[tuple[Reading, LayoutGrid, float]]] = {}
    for item, key in zip(found, classes, strict=True):
        reading = item.reading
        labels = reading.labels
        guess = predict(
            item, hardware=state.hardware[labels["generation"]], software=state.software[labels["software"]]
        )
        layout = item.grid.take(np.array([guess.index]))
        groups.setdefault(_alike(reading), []).append((reading, layout, count[key] ** -0.25))
    return [_together(members) for members in groups.values()]


VARYING_SHAPE = ("layers", "hidden", "heads", "kv_heads", "head_dim", "ffn", "vocab", "max_positions")
VARYING_SETUP = ("sequence_length", "global_batch_sequences")


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


def _together(members: Sequence[tuple[Reading, LayoutGrid, float]]) -> Observations:
    readings = [reading for reading, _, _ in members]
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
        join([layout for _, layout, _ in members]),
        np.array([float(reading.measured or 1.0) for reading in readings]),
        np.array([weight for _, _, weight in members]),
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


def parameters_of(observations: Sequence[Observations], state: State, frozen: set[str]) -> list[Parameter]:
    """The parameters that these rows can say something about."""
    count: Counter[str] = Counter()
    seen: dict[str, set[str]] = {}
    owners: dict[str, set[str]] = {"hardware": set(), "software": set()}
    for item in observations:
        labels = item.reading.labels
        for table, owner in (("hardware", labels["generation"]), ("software", labels["software"])):
            count[owner] += len(item.grid)
            owners[table].add(owner)
            features = {name for name in ("tp", "pp", "cp") if (getattr(item.grid, name) > 1).any()}
            seen.setdefault(owner, set()).update((labels["precision"], labels["model"]), features)
    chosen = []
    for table, names in (("hardware", HARDWARE), ("software", SOFTWARE)):
        limit = FEW_ROWS if table == "hardware" else FEW_ROWS // 3
        for owner in sorted(owners[table]):
            for name in names:
                parameter = Parameter(table, owner, name)
                fixed = f"{owner}.{name}" in frozen or name in frozen
                idle = name == "launch_factor" and state.get(parameter) == 0.0
                enough = count[owner] >= limit or name in FEW_PARAMETERS
                if enough and not fixed and not idle and NEEDS.get(name, "") in {"", *seen[owner]}:
                    chosen.append(parameter)
    return chosen


def _to_free(value: float, p: Parameter) -> float:
    share = min(max((value - p.low) / (p.high - p.low), EDGE), 1.0 - EDGE)
    return float(np.log(share / (1.0 - share)))


def _from_free(free: float, p: Parameter) -> float:
    return p.low + (p.high - p.low) / (1.0 + float(np.exp(-free)))


def fit(
    found: Sequence[Candidates],
    *,
    state: State | None = None,
    frozen: set[str] | None = None,
    rounds: int = 2,
    iterations: int = 8,
    report: Callable[[str], None] | None = None,
) -> State:
    """Fit all parameters the rows inform, in ``rounds`` with the open layout cells chosen anew in each.

    ``frozen`` names parameters (``overlap_slowdown`` or ``hopper.host_s``) that keep their value.
    """
    state = state or start()
    centre = State(dict(state.hardware), dict(state.software))
    for number in range(rounds):
        observations = observe(found, state)
        chosen = parameters_of(observations, state, frozen or set())
        _descend(observations, chosen, state, centre, iterations)
        if report:
            errors = np.concatenate([log_ratios(item, state) for item in observations])
            report(
                f"round {number + 1}: {len(chosen)} parameters, median {np.median(np.abs(np.expm1(errors))):.3f}"
            )
    return state


@dataclass(frozen=True, slots=True)
class _Problem:
    """A least-squares problem over the rows, with the rows each parameter touches."""

    observations: Sequence[Observations]
    parameters: list[Parameter]
    state: State
    slices: list[slice]
    weight: Floats
    middle: Floats
    scale: Floats

    def errors(self) -> Floats:
        return np.concatenate([log_ratios(item, self.state) for item in self.observations])

    def put(self, free: Floats) -> None:
        for parameter, value in zip(self.parameters, free, strict=True):
            self.state.put(parameter, _from_free(float(value), parameter))

    def cost(self, errors: Floats, free: Floats) -> float:
        misfit = np.log1p((errors * self.weight) ** 2 / 4.0) * 2.0
        return float(misfit.sum() + (((free - self.middle) / self.scale) ** 2).sum())

    def jacobian(self, errors: Floats, free: Floats) -> Floats:
        out = np.zeros((len(errors), len(self.parameters)))
        for column, parameter in enumerate(self.parameters):
            kept = self.state.get(parameter)
            self.state.put(parameter, _from_free(float(free[column]) + DIFFERENCE, parameter))
            for item, rows in zip(self.observations, self.slices, strict=True):
                labels = item.reading.labels
                if parameter.owner in (labels["generation"], labels["software"]):
                    out[rows, column] = (log_ratios(item, self.state) - errors[rows]) / DIFFERENCE
            self.state.put(parameter, kept)
        return out


def _descend(
    observations: Sequence[Observations],
    chosen: list[Parameter],
    state: State,
    centre: State,
    iterations: int,
) -> None:
    """Levenberg-Marquardt with Cauchy weights renewed at each step."""
    ends = np.cumsum([len(item.grid) for item in observations])
    problem = _Problem(
        observations,
        chosen,
        state,
        [slice(int(end) - len(item.grid), int(end)) for item, end in zip(observations, ends, strict=True)],
        np.concatenate([item.weight for item in observations]) / ERROR_SCALE,
        np.array([_to_free(centre.get(p), p) for p in chosen]),
        np.array([PRIOR_SCALE[p.table] for p in chosen]),
    )
    free = np.array([_to_free(state.get(p), p) for p in chosen])
    problem.put(free)
    errors = problem.errors()
    best, damping = problem.cost(errors, free), 1e-2
    for _ in range(iterations):
        jacobian = problem.jacobian(errors, free)
        robust = problem.weight**2 / (1.0 + (errors * problem.weight) ** 2 / 4.0)
        normal = jacobian.T @ (jacobian * robust[:, None]) + np.diag(problem.scale**-2.0)
        gradient = jacobian.T @ (robust * errors) + (free - problem.middle) / problem.scale**2
        for _ in range(5):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            trial: Floats = np.asarray(free - np.clip(step, -1.0, 1.0), dtype=np.float64)
            problem.put(trial)
            moved = problem.errors()
            now = problem.cost(moved, trial)
            if now < best:
                break
            damping *= 4.0
        else:
            problem.put(free)
            return
        gain, free, errors, best, damping = best - now, trial, moved, now, damping / 3.0
        if gain < 1e-3 * best:
            return


def save(state: State, directory: Path, owners: set[str]) -> None:
    """Write the rows of ``owners`` back to ``efficiency.csv`` and ``efficiency_software.csv`` of a catalogue.

    Args:
        owners: generations of accelerators and software that were fitted; other rows stay as they are.
    """
    for name, key, rows in (
        ("efficiency.csv", "generation", state.hardware),
        ("efficiency_software.csv", "software", state.software),
    ):
        path = directory / name
        with path.open(encoding="utf-8", newline="") as stream:
            reader = csv.DictReader(stream)
            columns, table = list(reader.fieldnames or []), list(reader)
        for row in (row for row in table if row[key] in owners):
            for column in columns:
                if column in bounds():
                    row[column] = f"{getattr(rows[row[key]], column):.4g}"
        with path.open("w", encoding="utf-8", newline="") as stream:
            writer = csv.DictWriter(stream, columns, lineterminator="\n")
            writer.writeheader()
            writer.writerows(table)
