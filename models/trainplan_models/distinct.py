"""The distinct rows of a few integer columns, without sorting."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]
MAX_TABLE = 1 << 20


def _codes(column: Ints) -> tuple[Ints, int]:
    """Dense codes of a column of small non-negative integers."""
    present = np.bincount(column) > 0
    codes = np.cumsum(present) - 1
    return codes[column], int(codes[-1]) + 1


def distinct(*columns: Ints) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Positions of one representative of every distinct row, and for each row the number of its representative.

    ``columns[k][representative][inverse] == columns[k]`` for every column.
    """
    key, size = _codes(columns[0])
    for column in columns[1:]:
        codes, count = _codes(column)
        key, size = key * count + codes, size * count
        if size > MAX_TABLE:
            key, size = _codes(np.unique(key, return_inverse=True)[1].astype(np.int64))
    first = np.full(size, -1, dtype=np.intp)
    first[key] = np.arange(len(key), dtype=np.intp)
    used = first >= 0
    return first[used], (np.cumsum(used) - 1)[key]
