"""Quantiles and tail means of discrete outcomes."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan_models.base import InputError, Problem


def _outcomes(costs: ArrayLike, probabilities: ArrayLike | None) -> tuple[NDArray[np.float64], ...]:
    values = np.asarray(costs, float)
    if values.ndim != 1 or values.size == 0:
        raise InputError(Problem("the outcomes are not a list of at least one number", key="costs"))
    weights = (
        np.full(values.size, 1.0 / values.size) if probabilities is None else np.asarray(probabilities, float)
    )
    if weights.shape != values.shape or np.any(weights < 0) or not np.isclose(weights.sum(), 1.0, atol=1e-9):
        raise InputError(
            Problem(
                "the probabilities are not one non-negative number an outcome that sum to 1",
                key="probabilities",
            )
        )
    order = np.argsort(values, kind="stable")
    return values[order], weights[order]


def value_at_risk(costs: ArrayLike, alpha: float, probabilities: ArrayLike | None = None) -> float:
    """Smallest outcome that is not exceeded with chance ``alpha`` or more.

    Args:
        costs: outcomes, in any unit.
        alpha: level in [0, 1].
        probabilities: chance of each outcome; equal when absent.
    """
    values, weights = _outcomes(costs, probabilities)
    return float(values[_tail_start(weights, alpha)])


def _tail_start(weights: NDArray[np.float64], alpha: float) -> int:
    if not 0.0 <= alpha <= 1.0:
        raise InputError(Problem(f"{alpha} is not in [0, 1]", key="alpha"))
    return min(int(np.searchsorted(np.cumsum(weights), alpha - 1e-12)), weights.size - 1)


def cvar(costs: ArrayLike, alpha: float, probabilities: ArrayLike | None = None) -> float:
    """Mean of the worst ``1 - alpha`` of outcomes (Rockafellar and Uryasev, J. Risk 2, 2000).

    The outcome at the edge of the tail counts with the part of its probability that lies in the tail, so
    that the value equals ``min_theta theta + E[(cost - theta)+] / (1 - alpha)``. At ``alpha = 1`` it is
    the worst outcome that can happen.

    Args:
        costs: outcomes, in any unit.
        alpha: level in [0, 1].
        probabilities: chance of each outcome; equal when absent.
    """
    values, weights = _outcomes(costs, probabilities)
    if alpha == 1.0:
        return float(values[weights > 0][-1])
    theta = float(values[_tail_start(weights, alpha)])
    return theta + float(np.dot(weights, np.maximum(values - theta, 0.0))) / (1.0 - alpha)
