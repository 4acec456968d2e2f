"""One step of a plan as it ran in every scenario, and what each of its segments was held for."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.plan import Segment
from trainplan_models.simulation_plan import Step

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

FloatArray = NDArray[np.float64]
HOUR_S = 3600.0


@dataclass(slots=True)
class Stay:
    """One step as it ran: when, on what, with how much left undone."""

    start_s: FloatArray
    end_s: FloatArray
    held_hours: FloatArray
    """Of its own nodes, paid."""
    fallback_hours: FloatArray
    """Of on-demand nodes, paid."""
    useful_s: FloatArray
    lost_s: FloatArray
    failures_count: FloatArray
    losses_count: FloatArray
    undone_frac: FloatArray
    """Share of the step's work that is left for the next one."""


def parts_of(step: Step, stay: Stay, catalog: Catalog) -> Iterator[tuple[Segment, FloatArray, FloatArray]]:
    """The segments of a step with the hours of their own nodes and of those that took over.

    What stands beside nodes that are taken away or replaced is held from start to end; what is bought, until its
    purchase ends.
    """
    for segment in (step.segment, *step.beside):
        if segment is not None and segment is step.moving:
            yield segment, stay.held_hours, stay.fallback_hours
        elif segment is not None:
            worked = stay.held_hours + stay.fallback_hours > 0.0
            hours = np.where(worked, stay.end_s - stay.start_s, 0.0) / HOUR_S
            there = hours
            if catalog.modes[segment.mode].paid == "committed":
                there = np.minimum(hours, np.maximum(step.window_end_s - stay.start_s, 0.0) / HOUR_S)
            yield segment, there, hours - there
