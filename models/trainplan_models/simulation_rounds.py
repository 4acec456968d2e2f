"""How many rounds of each task are done, drawn for many scenarios."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.random import default_rng
from numpy.typing import NDArray

if TYPE_CHECKING:
    from trainplan_models.case import Case, Task

FloatArray = NDArray[np.float64]


def done_frac(case: Case, count: int, seed: int) -> dict[str, FloatArray]:
    """Share of its rounds that is done, by uncertain task and scenario."""
    rng = default_rng([seed, len(case.tasks)])
    return {
        task.name: _rounds(task, rng.random((task.rounds, count))) / task.rounds
        for task in case.tasks
        if task.chance_frac < 1.0 or task.stop_chance_frac is not None
    }


def _rounds(task: Task, luck: FloatArray) -> FloatArray:
    """Rounds done, by scenario; ``luck`` is uniform, by round and scenario.

    The first row decides whether the task is done at all, each further one whether it goes on.
    """
    stop = task.stop_chance_frac or 0.0
    goes_on = np.concatenate([luck[:1] < task.chance_frac, luck[1:] >= stop])
    return np.asarray(np.cumprod(goes_on, axis=0).sum(axis=0), dtype=float)


def part_done(done: FloatArray, start_frac: float, share_frac: float) -> FloatArray:
    """How much of a step is done that has ``share_frac`` of its task from ``start_frac`` on."""
    return np.asarray(np.clip((done - start_frac) / max(share_frac, 1e-9), 0.0, 1.0))
