"""Fits the efficiency parameters to measured throughput.

The estimate is the maximum of a posterior. A cell of the efficiency tables is its prior value, shifted by what its
family shares and by a deviation of its own, all on the logistic scale between the bounds. Deviations are held near
zero, so that rows of one generation inform its relatives, and what no row informs stays where its family is
(partial pooling; Gelman and Hill 2007, chapter 12). The logarithm of predicted over measured throughput is judged
by a loss that forgives outliers, and sources with many rows do not outvote the others.
"""

from __future__ import annotations

import csv
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from trainplan_models.efficiency import bounds, hardware_rows, software_rows
from trainplan_models.fitting_rows import Observations, State, log_ratios, observe
from trainplan_models.prediction import Candidates

__all__ = ["Fitted", "Pool", "State", "fit", "pools_from", "save", "start"]

Floats = NDArray[np.float64]

ERROR_SCALE = 0.06
"""Relative error taken as one unit of misfit."""
EDGE = 0.005
DIFFERENCE = 0.05
"""Step of the numerical derivatives on the logistic scale."""
VISIBLE = 1e-3
"""Change of a log ratio per unit of a shift from which on the row is said to depend on it."""
ENOUGH = 2e-3
"""Relative gain below which a fit is done."""


@dataclass(frozen=True, slots=True)
class Pool:
    """How one parameter is shared between the generations of a table."""

    table: str
    parameter: str
    families: frozenset[str]
    """Families in which it is fitted; in all when empty."""
    shared_scale: float
    """Standard deviation, on the logistic scale, of what a family shares; 0: kept at the prior."""
    own_scale: float
    """The same of the deviation of one generation from its family; 0: none."""


def pools_from(rows: Sequence[dict[str, str]]) -> list[Pool]:
    """Pools from rows with the columns table, parameter, families (blank-separated), shared_scale and own_scale."""
    return [
        Pool(
            row["table"],
            row["parameter"],
            frozenset(row["families"].split()),
            float(row["shared_scale"]),
            float(row["own_scale"]),
        )
        for row in rows
    ]


def start() -> State:
    """The tables of the catalogue."""
    return State(dict(hardware_rows()), dict(software_rows()))


def to_free(value: float, name: str) -> float:
    """A parameter on the logistic scale between its bounds."""
    low, high = bounds()[name]
    share = min(max((value - low) / (high - low), EDGE), 1.0 - EDGE)
    return float(np.log(share / (1.0 - share)))


def from_free(free: float, name: str) -> float:
    """The inverse of :func:`to_free`."""
    low, high = bounds()[name]
    return low + (high - low) / (1.0 + float(np.exp(-free)))


@dataclass(frozen=True, slots=True)
class Shift:
    """One number that is fitted: by how much the cells of its owners move together."""

    table: str
    parameter: str
    owners: frozenset[str]
    scale: float


def shifts_of(centre: State, pools: Sequence[Pool], families: dict[str, str]) -> list[Shift]:
    """All shared and own shifts. Cells at 0 do not exist on the hardware or in the software, and stay."""
    found: list[Shift] = []
    for pool in pools:
        rows: dict[str, Any] = centre.hardware if pool.table == "hardware" else dict(centre.software)
        owners = [owner for owner, row in rows.items() if getattr(row, pool.parameter) != 0.0]
        members: dict[str, set[str]] = {}
        for owner in owners:
            family = families.get(owner, owner)
            if family in pool.families or not pool.families:
                members.setdefault(family, set()).add(owner)
        for kin in members.values():
            if pool.shared_scale:
                found.append(Shift(pool.table, pool.parameter, frozenset(kin), pool.shared_scale))
            if pool.own_scale and (len(kin) > 1 or not pool.shared_scale):
                found += [
                    Shift(pool.table, pool.parameter, frozenset({owner}), pool.own_scale)
                    for owner in sorted(kin)
                ]
    return found


@dataclass(frozen=True, slots=True)
class Problem:
    """A least-squares problem over rows, with a column for every shift."""

    observations: list[Observations]
    centre: State
    """The prior."""
    shifts: list[Shift]
    weight: Floats
    scale: Floats

    def state(self, free: Floats) -> State:
        """The tables with all shifts applied."""
        moved: dict[tuple[str, str, str], float] = {}
        for shift, value in zip(self.shifts, free, strict=True):
            for owner in shift.owners if value else ():
                key = (shift.table, owner, shift.parameter)
                moved[key] = moved.get(key, 0.0) + float(value)
        return _moved(self.centre, moved)

    def errors(self, state: State) -> Floats:
        """Log ratios in the order of the rows."""
        out = np.zeros(len(self.weight))
        for item in self.observations:
            out[item.rows] = log_ratios(item, state)
        return out

    def cost(self, errors: Floats, free: Floats) -> float:
        """Minus the log posterior, doubled."""
        misfit = np.log1p((errors * self.weight) ** 2 / 4.0) * 2.0
        return float(misfit.sum() + ((free / self.scale) ** 2).sum())

    def jacobian(self, state: State, errors: Floats) -> Floats:
        """Derivatives of the log ratios: every cell of a parameter moves at once, as each row sees one of them."""
        names = sorted({(shift.table, shift.parameter) for shift in self.shifts})
        slope: dict[tuple[str, str], Floats] = {}
        for table, name in names:
            rows: dict[str, Any] = dict(state.hardware) if table == "hardware" else dict(state.software)
            step = {(table, owner, name): DIFFERENCE for owner in rows if getattr(rows[owner], name) != 0.0}
            slope[table, name] = (self.errors(_moved(state, step)) - errors) / DIFFERENCE
        owner_of = {"hardware": self._owners("generation"), "software": self._owners("software")}
        columns = [
            slope[s.table, s.parameter] * np.isin(owner_of[s.table], sorted(s.owners)) for s in self.shifts
        ]
        return np.stack(columns, axis=1)

    def _owners(self, label: str) -> NDArray[np.str_]:
        names = np.empty(len(self.weight), dtype=object)
        for item in self.observations:
            names[item.rows] = item.reading.labels[label]
        return names.astype(str)


def _moved(state: State, steps: dict[tuple[str, str, str], float]) -> State:
    """The tables with cells moved on the logistic scale."""
    changes: dict[tuple[str, str], dict[str, Any]] = {}
    for (table, owner, name), step in steps.items():
        rows: dict[str, Any] = dict(state.hardware) if table == "hardware" else dict(state.software)
        value = from_free(to_free(getattr(rows[owner], name), name) + step, name)
        changes.setdefault((table, owner), {})[name] = value
    out = state.copy()
    for (table, owner), change in changes.items():
        if table == "hardware":
            out.hardware[owner] = replace(out.hardware[owner], **change)
        else:
            out.software[owner] = replace(out.software[owner], **change)
    return out


@dataclass(frozen=True, slots=True)
class Fitted:
    """A fit, and what it takes to repeat it without some of its rows."""

    state: State
    problem: Problem
    free: Floats
    jacobian: Floats

    @property
    def informed(self) -> int:
        """Shifts that some row depends on."""
        return int((np.abs(self.jacobian).max(axis=0) > VISIBLE).sum())

    @property
    def effective(self) -> float:
        """Numbers that the rows decide rather than the priors: the trace of the hat matrix."""
        robust = _robust(self.problem.weight, self.problem.errors(self.state))
        data = self.jacobian.T @ (self.jacobian * robust[:, None])
        return float(np.trace(np.linalg.solve(data + np.diag(self.problem.scale**-2.0), data)))

    def without(self, left_out: NDArray[np.bool_], iterations: int = 10) -> State:
        """The fit from the prior to the other rows, descending along the derivatives of the whole fit.

        What is minimised is evaluated in full at each step; only the direction is taken from here.
        """
        problem = replace(self.problem, weight=np.where(left_out, 0.0, self.problem.weight))
        free, _ = _descend(problem, np.zeros(len(self.free)), iterations, self.jacobian)
        return problem.state(free)


def fit(
    found: Sequence[Candidates],
    *,
    prior: State,
    pools: Sequence[Pool],
    families: dict[str, str],
    begin: State | None = None,
    rounds: int = 2,
    iterations: int = 8,
    report: Callable[[str], None] | None = None,
) -> Fitted:
    """Fit all shifts, in ``rounds`` (at least one) with the open layout cells chosen anew in each.

    ``begin`` only chooses the open layout cells of the first round; the fit itself starts from ``prior``.
    """
    shifts = shifts_of(prior, pools, families)
    fitted = _round(found, prior, shifts, begin or prior, np.zeros(len(shifts)), iterations, report)
    for _ in range(1, rounds):
        fitted = _round(found, prior, shifts, fitted.state, fitted.free, iterations, report)
    return fitted


def _round(
    found: Sequence[Candidates],
    prior: State,
    shifts: list[Shift],
    present: State,
    free: Floats,
    iterations: int,
    report: Callable[[str], None] | None,
) -> Fitted:
    """One fit with the open layout cells chosen by ``present``."""
    observations = observe(found, present)
    weight = np.zeros(len(found))
    for item in observations:
        weight[item.rows] = item.weight / ERROR_SCALE
    scale = np.array([shift.scale for shift in shifts])
    problem = Problem(observations, prior, shifts, weight, scale)
    free, jacobian = _descend(problem, free, iterations)
    fitted = Fitted(problem.state(free), problem, free, jacobian)
    if report:
        middle = np.median(np.abs(np.expm1(problem.errors(fitted.state))))
        report(
            f"{fitted.informed} parameters held by priors, worth {fitted.effective:.0f} free ones; "
            f"median error {middle:.3f}"
        )
    return fitted


def _robust(weight: Floats, errors: Floats) -> Floats:
    """Cauchy weights."""
    return np.asarray(weight**2 / (1.0 + (errors * weight) ** 2 / 4.0))


def _descend(
    problem: Problem, free: Floats, iterations: int, fixed: Floats | None = None
) -> tuple[Floats, Floats]:
    """Levenberg-Marquardt with Cauchy weights renewed at each step; the shifts and the last derivatives.

    With ``fixed`` the derivatives are not computed anew.
    """
    state = problem.state(free)
    errors = problem.errors(state)
    best, damping = problem.cost(errors, free), 1e-2
    jacobian = problem.jacobian(state, errors) if fixed is None else fixed
    for _ in range(iterations):
        robust = _robust(problem.weight, errors)
        normal = jacobian.T @ (jacobian * robust[:, None]) + np.diag(problem.scale**-2.0)
        gradient = jacobian.T @ (robust * errors) + free / problem.scale**2
        for _ in range(5):
            step = np.linalg.solve(normal + damping * np.diag(np.diag(normal)), gradient)
            trial: Floats = np.asarray(free - np.clip(step, -1.0, 1.0), dtype=np.float64)
            moved = problem.errors(problem.state(trial))
            now = problem.cost(moved, trial)
            if now < best:
                break
            damping *= 4.0
        else:
            break
        gain, free, errors, best, damping = best - now, trial, moved, now, damping / 3.0
        if gain < ENOUGH * best:
            break
        if fixed is None:
            jacobian = problem.jacobian(problem.state(free), errors)
    return free, jacobian


def save(state: State, directory: Path, owners: set[str]) -> None:
    """Write the rows of ``owners`` back to ``efficiency.csv`` and ``efficiency_software.csv`` of a catalogue.

    Args:
        owners: generations of accelerators and software to write; other rows stay as they are.
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
