"""Recompute of some of a stage's layers: what runs do that fit with full recompute only, and need not go so far.

Megatron recomputes the first layers of each stage in full and the others selectively (``--recompute-method block``).
A layout like this carries a code beyond those of ``RECOMPUTE``: ``FULL + k`` for ``k`` sixteenths in full.
"""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np
from numpy.typing import NDArray

from trainplan_models.layout import LayoutGrid, join
from trainplan_models.memory import Memory

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SELECTIVE, FULL = 1, 2
PARTS = 16


def full_share(codes: Ints) -> Floats:
    """Share of the layers that are recomputed in full."""
    return np.where(codes > FULL, (codes - FULL) / PARTS, (codes == FULL).astype(float))


def selective_share(codes: Ints) -> Floats:
    """Share of the layers that are recomputed selectively."""
    return np.where(codes > FULL, 1.0 - (codes - FULL) / PARTS, (codes == SELECTIVE).astype(float))


def with_blocks(grid: LayoutGrid, memory: Memory) -> tuple[LayoutGrid, Memory]:
    """The layouts, and for each that fits in full but not selectively the one that recomputes just enough to fit."""
    alike: dict[tuple[int, ...], dict[int, int]] = {}
    names = [field.name for field in fields(LayoutGrid) if field.name != "recompute"]
    for row in range(len(grid)):
        key = tuple(int(getattr(grid, name)[row]) for name in names)
        alike.setdefault(key, {})[int(grid.recompute[row])] = row
    pairs = [(found[SELECTIVE], found[FULL]) for found in alike.values() if {SELECTIVE, FULL} <= set(found)]
    kept = [(less, more) for less, more in pairs if memory.fits[more] and not memory.fits[less]]
    if not kept:
        return grid, memory
    less, more = (np.array(side, dtype=np.intp) for side in zip(*kept, strict=True))
    excess = memory.total_bytes[less] - memory.usable_bytes
    parts = np.ceil(PARTS * excess / (memory.total_bytes[less] - memory.total_bytes[more]))
    useful = parts < PARTS
    less, more, parts = less[useful], more[useful], parts[useful]
    block = replace(grid.take(more), recompute=(FULL + parts).astype(np.int64))
    share = parts / PARTS

    def mixed(name: str) -> Floats:
        values = getattr(memory, name)
        return np.concatenate([values, (1.0 - share) * values[less] + share * values[more]])

    sizes = {
        field.name: mixed(field.name)
        for field in fields(Memory)
        if field.name.endswith("_bytes") and field.name != "usable_bytes"
    }
    stage = np.concatenate([memory.stage, memory.stage[more]])
    return join([grid, block]), Memory(**sizes, stage=stage, usable_bytes=memory.usable_bytes)
