"""How far predictions were from measurements, by class, as distributions (``catalog/efficiency_residuals.csv``).

The rows of the table come from cross-validation in which every source was predicted by parameters fitted without
it; their median is set to 1, so the bands carry the spread of unseen sources and not their bias. Classes without
measurements take the distribution of the next wider class, spread further.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files

import numpy as np

CLASSES = (
    ("generation", "precision", "model", "size"),
    ("generation", "precision", "model"),
    ("generation", "model"),
    ("model",),
)
"""Classes from narrow to wide."""
FEWEST, FEWEST_SOURCES = 8, 2
"""Measured rows, and sources they come from, that a class needs to stand for itself."""
UNMEASURED_SPREAD = 1.5
"""How much wider the distribution is, on the logarithmic scale, where the generation was never measured."""


@dataclass(frozen=True, slots=True)
class Residuals:
    """Distribution of measured over predicted throughput."""

    p10: float
    p50: float
    p90: float
    rows: int
    of: str
    """The class the numbers stand for."""
    measured: bool = True
    """False where the class itself has too few measurements."""

    def band(self, value: float) -> tuple[float, float, float]:
        """P10, P50 and P90 of a throughput predicted as ``value``."""
        return value * self.p10, value * self.p50, value * self.p90


@lru_cache(maxsize=1)
def table() -> dict[str, Residuals]:
    """The shipped distributions by class."""
    text = files("trainplan_models.catalog").joinpath("efficiency_residuals.csv").read_text(encoding="utf-8")
    return {
        row["class"]: Residuals(
            float(row["p10"]), float(row["p50"]), float(row["p90"]), int(row["rows"]), row["class"]
        )
        for row in csv.DictReader(text.splitlines())
    }


def class_name(labels: Mapping[str, str], keys: Sequence[str]) -> str:
    """Name of the class of ``labels`` along ``keys``."""
    return "/".join(labels[key] for key in keys)


def residuals_of(labels: Mapping[str, str], rows: Mapping[str, Residuals] | None = None) -> Residuals:
    """The distribution for a prediction with these labels (generation, precision, model, size)."""
    known = table() if rows is None else rows
    for depth, keys in enumerate(CLASSES):
        name = class_name(labels, keys)
        if name in known:
            found = known[name]
            return found if depth < 3 else widened(found, UNMEASURED_SPREAD)
    return Residuals(0.6, 0.95, 1.25, 0, "anything", False)


def widened(residuals: Residuals, spread: float) -> Residuals:
    """The distribution with its distances from the median multiplied on the logarithmic scale."""
    middle = residuals.p50
    return Residuals(
        middle * (residuals.p10 / middle) ** spread,
        middle,
        middle * (residuals.p90 / middle) ** spread,
        residuals.rows,
        residuals.of,
        False,
    )


def measure(judged: Sequence[tuple[Mapping[str, str], float]]) -> dict[str, Residuals]:
    """Distributions of ``(labels, measured over predicted)`` pairs, in every class with enough rows.

    Each source counts alike within a class, so that a large table does not set the spread alone. The median is
    taken as 1: what is shipped is fitted to all sources, so that only the spread of unseen ones carries over.
    """
    groups: dict[str, list[tuple[str, float]]] = {}
    for labels, ratio in judged:
        for keys in CLASSES:
            groups.setdefault(class_name(labels, keys), []).append((labels["source"], ratio))
    found: dict[str, Residuals] = {}
    for name, pairs in groups.items():
        if len(pairs) < FEWEST:
            continue
        ratios = np.array([ratio for _, ratio in pairs])
        counts: dict[str, int] = {}
        for source, _ in pairs:
            counts[source] = counts.get(source, 0) + 1
        if len(counts) < FEWEST_SOURCES:
            continue
        weights = np.array([1.0 / counts[source] for source, _ in pairs])
        order = np.argsort(ratios)
        below = np.cumsum(weights[order]) - 0.5 * weights[order]
        p10, p50, p90 = np.interp([0.1, 0.5, 0.9], below / weights.sum(), ratios[order])
        found[name] = Residuals(float(p10 / p50), 1.0, float(p90 / p50), len(pairs), name)
    return found
