"""How many layouts are enumerated and evaluated in a second of processor time (printed; run with ``-s``)."""

from __future__ import annotations

import sys
import time

import numpy as np

from trainplan_models import catalog
from trainplan_models.layout import enumerate_layouts
from trainplan_models.memory import peak_memory
from trainplan_models.step_time import step_time
from trainplan_models.workload import TrainSetup, shape_of

CHUNK = 1 << 16


def test_layouts_per_second_of_enumeration_memory_and_step_time() -> None:
    known = catalog.builtin()
    accelerator = known.accelerator("H100-SXM")
    node = next(n for n in known.nodes.values() if n.accelerator == accelerator.name and n.accelerators == 8)
    setup = TrainSetup(shape_of(known.model("llama-3-70b")), 8192, 27720)
    step_time(setup, accelerator, node, enumerate_layouts(setup, accelerator, node, [8])[0])
    started = time.process_time()
    grid, removed = enumerate_layouts(setup, accelerator, node, range(1, 1537))
    enumerated = time.process_time()
    fitting = 0
    for first in range(0, len(grid), CHUNK):
        fitting += int(
            np.count_nonzero(
                peak_memory(setup, accelerator, node, grid.take(slice(first, first + CHUNK))).fits
            )
        )
    remembered = time.process_time()
    best = 0.0
    for first in range(0, len(grid), CHUNK):
        best = max(
            best,
            float(step_time(setup, accelerator, node, grid.take(slice(first, first + CHUNK))).mfu_frac.max()),
        )
    timed = time.process_time()
    total = timed - started
    sys.stdout.write(
        f"\n{len(grid):,} layouts ({sum(removed.values()):,} ruled out before) in {total:.2f} s of one core: "
        f"{len(grid) / total:,.0f} per second (enumeration {enumerated - started:.2f} s, "
        f"memory {remembered - enumerated:.2f} s, step time {timed - remembered:.2f} s)\n"
    )
    assert len(grid) > 100_000
    assert 0 < fitting < len(grid)
    assert 0.3 < best < 0.9
