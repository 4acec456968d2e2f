"""Small models as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from trainplan.highs_worker import MatrixModel


def matrix_model(
    cost: list[float],
    rows: list[list[float]],
    between: Sequence[tuple[float, float]],
    columns: Sequence[tuple[float, float]],
    integer: str,
    offset: float = 0.0,
) -> MatrixModel:
    """A model from dense rows; ``integer`` has one letter a column, ``i`` or ``c``."""
    dense = np.array(rows, dtype=float).reshape(len(rows), len(cost))
    places = [np.flatnonzero(row) for row in dense]
    return MatrixModel(
        cost=np.array(cost, dtype=float),
        offset=offset,
        col_lower=np.array([low for low, _ in columns]),
        col_upper=np.array([high for _, high in columns]),
        integer=np.array([letter == "i" for letter in integer]),
        start=np.cumsum([0, *map(len, places)]).astype(np.int32),
        index=np.concatenate(places).astype(np.int32),
        value=np.concatenate([row[place] for row, place in zip(dense, places, strict=True)]),
        row_lower=np.array([low for low, _ in between]),
        row_upper=np.array([high for _, high in between]),
    )


def small(least: float = 4.5) -> MatrixModel:
    """min 2 x + 3 z with x + z >= least; 1.14.0 answers 15 instead of 9 (HiGHS issue 3043)."""
    return matrix_model([2, 3], [[1, 1]], [(least, inf)], [(0, 10), (0, 10)], "ci")
