"""Quantiles, confidence bounds and the share of spread that causes bring, from weighted samples."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]

LEVELS = (0.01, 0.05, 0.1, 0.25, 0.5, 0.75, 0.8, 0.9, 0.95, 0.99)
BINS = 24
Z_ONE_SIDED = 1.6448536269514722
"""Standard normal quantile of 95%."""


def quantile(values: FloatArray, weight: FloatArray, levels: Sequence[float]) -> FloatArray:
    """Quantiles of weighted samples: the least value that at least so much weight lies at or below."""
    order = np.argsort(values, kind="stable")
    below = np.cumsum(weight[order])
    place = np.searchsorted(below, np.asarray(levels) * below[-1] - 1e-12)
    return np.asarray(values[order][np.minimum(place, values.size - 1)])


def quantiles(values: FloatArray, weight: FloatArray) -> dict[str, float]:
    """The usual quantiles by name: ``p05``, ``p50``, ..."""
    found = quantile(values, weight, LEVELS)
    return {f"p{100 * level:02.0f}": float(value) for level, value in zip(LEVELS, found, strict=True)}


def between(found: Mapping[str, float], level: float) -> float:
    """The quantile at a level between those of :func:`quantiles`, on the line between its neighbours."""
    known = sorted((float(name[1:]) / 100.0, value) for name, value in found.items())
    return float(np.interp(level, [at for at, _ in known], [value for _, value in known]))


def wilson_low(share: float, count: float, z: float = Z_ONE_SIDED) -> float:
    """Lower confidence bound of a chance seen as ``share`` of ``count`` trials (Wilson 1927)."""
    middle = share + z * z / (2.0 * count)
    spread = z * np.sqrt(share * (1.0 - share) / count + z * z / (4.0 * count * count))
    return float(max(0.0, (middle - spread) / (1.0 + z * z / count)))


def explained(groups: Mapping[str, Sequence[FloatArray]], outcome: FloatArray) -> dict[str, float]:
    """Share of the variance of an outcome that each cause explains by itself (first-order Sobol index).

    The draws are binned and the outcome is averaged in each bin; the variance of these means, less what chance
    alone would give them, is what the cause explains. Causes that were drawn together share it in the order
    given.

    Args:
        groups: draws by cause; a cause may have several.
        outcome: one value a draw.
    """
    total = float(np.var(outcome))
    found = dict.fromkeys(groups, 0.0)
    if total <= 0.0 or outcome.size < 4 * BINS:
        return found
    rest = outcome - outcome.mean()
    for name, draws in groups.items():
        for draw in draws:
            edges = np.unique(np.quantile(draw, np.linspace(0.0, 1.0, BINS + 1)[1:-1]))
            place = np.searchsorted(edges, draw, side="right")
            size = np.bincount(place, minlength=edges.size + 1)
            mean = np.bincount(place, weights=rest, minlength=edges.size + 1) / np.maximum(size, 1)
            bins = int(np.count_nonzero(size))
            between = float(size @ mean**2) / outcome.size
            within = float(np.var(rest - mean[place]))
            gain = between - within * (bins - 1) / max(outcome.size - bins, 1)
            if gain > 0.0:
                found[name] += gain / total
                rest = rest - mean[place]
    return found
