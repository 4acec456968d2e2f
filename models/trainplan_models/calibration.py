"""A user's own factor, learnt from rows they measured themselves."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from trainplan_models.base import InputError, Problem
from trainplan_models.measurements import Known
from trainplan_models.residuals import Residuals, residuals_of
from trainplan_models.validation import judge_throughput

NOISE = 0.04
"""Spread (logarithmic) of measurements of one cluster around its own factor: different layouts and models."""
Z90 = 1.2816
"""Standard normal quantile of 90 %."""


@dataclass(frozen=True, slots=True)
class Factor:
    """What one accelerator generation does on the user's cluster against the prediction."""

    generation: str
    factor: float
    """Multiplies predicted throughput."""
    rows: int
    spread: float
    """Logarithmic standard deviation that is left."""
    median_error_before: float
    median_error_after: float


@dataclass(frozen=True, slots=True)
class Calibration:
    """All factors learnt, and what could not be used."""

    factors: Mapping[str, Factor] = field(default_factory=dict)
    unused: tuple[tuple[str, str], ...] = ()
    """Row and reason."""

    def factor(self, generation: str) -> float:
        """The factor of a generation; 1 where nothing was measured."""
        return self.factors[generation].factor if generation in self.factors else 1.0

    def band(self, labels: Mapping[str, str]) -> Residuals:
        """Distribution of measured over uncalibrated prediction, after calibration."""
        prior = residuals_of(labels)
        found = self.factors.get(labels["generation"])
        if found is None:
            return prior
        reach = float(np.exp(Z90 * found.spread))
        middle = found.factor
        return Residuals(middle / reach, middle, middle * reach, found.rows, f"your {found.rows} rows")


def calibrate(rows: Iterable[Mapping[str, str]], known: Known) -> Calibration:
    """Learn a factor per accelerator generation from measured rows in the columns of the throughput table.

    The factor is shrunk towards the shipped error distribution: one row moves it part of the way, many rows decide.

    Raises:
        InputError: not one row can be used.
    """
    groups: dict[str, list[tuple[float, Mapping[str, str]]]] = {}
    unused: list[tuple[str, str]] = []
    for row in rows:
        judged = judge_throughput(row, known)
        if judged.ratio is None:
            unused.append((judged.row_id, judged.reason or "no measured throughput"))
        else:
            groups.setdefault(judged.labels["generation"], []).append((-np.log(judged.ratio), judged.labels))
    if not groups:
        reasons = "; ".join(f"{row}: {reason}" for row, reason in unused[:5]) or "the file has no rows"
        raise InputError(Problem("no row can be used to calibrate", key="--calibrate", fix=reasons))
    return Calibration({name: _factor(name, pairs) for name, pairs in groups.items()}, tuple(unused))


def _factor(generation: str, pairs: list[tuple[float, Mapping[str, str]]]) -> Factor:
    logs = np.array([value for value, _ in pairs])
    prior = residuals_of(pairs[0][1])
    width = max(float(np.log(prior.p90 / prior.p10)) / (2.0 * Z90), 0.02)
    noise = max(NOISE, float(np.std(logs)) if len(logs) > 2 else NOISE)
    precision = len(logs) / noise**2 + 1.0 / width**2
    centre = float(np.log(prior.p50))
    mean = (logs.sum() / noise**2 + centre / width**2) / precision
    left = float(np.sqrt(noise**2 + 1.0 / precision))
    return Factor(
        generation,
        float(np.exp(mean)),
        len(logs),
        left,
        float(np.median(np.abs(np.expm1(-logs)))),
        float(np.median(np.abs(np.expm1(mean - logs)))),
    )
