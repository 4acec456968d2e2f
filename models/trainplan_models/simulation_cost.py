"""What a plan costs when it runs otherwise than planned, from the lines of its bill.

Node-hours are counted anew by the simulation. Every other line of the bill grows with what its unit says
it is paid for: days of the programme, node-hours of its task, time its data is kept, or nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import fsum
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.plan import CostLine, Plan, Segment

if TYPE_CHECKING:
    from trainplan_models.case import Case

FloatArray = NDArray[np.float64]

DAY_S = 86400.0
COMPUTE, EXPERIMENTS, DELAY, UNUSED, POWER = (
    "compute",
    "experiments and retries",
    "delay",
    "unused commitments",
    "power and cooling",
)
NODE_CATEGORIES = (COMPUTE, "data preparation", "evaluation")

GROWS_WITH: Mapping[str, str] = {
    "node-hour": "nodes",
    "node-day": "nodes",
    "day": "programme",
    "GB-month": "time",
    "save": "time",
    "copy": "time",
    "round": "rounds",
}
"""By unit, what a line is paid for; units not named stay as planned."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What was used, by scenario."""

    finish_s: FloatArray
    node_hours: Mapping[str, FloatArray]
    """By task, of all nodes."""
    task_hours: Mapping[str, FloatArray]
    """By task, from its first to its last node."""
    hourly_usd: Mapping[str, FloatArray]
    """By task, for the nodes that are paid by the hour."""
    experiments_factor: FloatArray
    rounds_factor: Mapping[str, FloatArray] = field(default_factory=dict)
    """By task whose rounds may be left out, rounds done over those expected."""


def is_hourly(line: CostLine) -> bool:
    """A line for nodes paid by the hour, which the simulation counts itself."""
    return line.unit == "node-hour" and line.category in NODE_CATEGORIES and not line.fixed


def planned_node_hours(segment: Segment) -> float:
    """Node-hours the plan expects to pay for."""
    return (
        (segment.nodes + segment.spare_nodes)
        * (segment.end_s - segment.start_s)
        * segment.paid_frac
        * segment.expected_frac
        / 3600.0
    )


def cost_usd(plan: Plan, case: Case, usage: Usage) -> FloatArray:
    """Cost of the whole programme by scenario."""
    growth = _growth(plan, usage)
    nothing = np.zeros_like(usage.finish_s)
    total = nothing.copy()
    for usd in usage.hourly_usd.values():
        total = total + usd
    for line in plan.cost_lines:
        if is_hourly(line) or line.category == DELAY:
            continue
        if line.category == EXPERIMENTS:
            total = total + line.usd * _compute_growth(plan, usage, line.task) * usage.experiments_factor
            continue
        driver = GROWS_WITH.get(line.unit, "")
        if line.category == UNUSED or (line.unit == "node-hour" and line.category in NODE_CATEGORIES):
            driver = ""
        factor = growth.get((driver, "" if driver == "programme" else line.task))
        total = total + (line.usd if factor is None else line.usd * factor)
    delay_usd_per_day = case.overheads.delay_usd_per_day or 0.0
    if delay_usd_per_day > 0.0:
        late_days = np.maximum(usage.finish_s - (case.deadline_s or 0.0), 0.0) / DAY_S
        total = total + late_days * delay_usd_per_day
    return np.asarray(total)


def _growth(plan: Plan, usage: Usage) -> dict[tuple[str, str], FloatArray]:
    """Used over planned, by driver and task."""
    found = {("programme", ""): usage.finish_s / max(plan.finish_s, 1.0)}
    for task, hours in usage.node_hours.items():
        planned = fsum(planned_node_hours(s) for s in plan.segments if s.task == task)
        found["nodes", task] = hours / max(planned, 1e-9)
    for task, factor in usage.rounds_factor.items():
        found["rounds", task] = factor
    for task, hours in usage.task_hours.items():
        runs = [s for s in plan.segments if s.task == task]
        planned = (max(s.end_s for s in runs) - min(s.start_s for s in runs)) / 3600.0 * runs[0].expected_frac
        found["time", task] = hours / max(planned, 1e-9)
    return found


def _compute_growth(plan: Plan, usage: Usage, task: str) -> FloatArray:
    """Used over planned cost of a task's nodes; committed ones cost the same however they are used."""
    lines = [line for line in plan.cost_lines if line.task == task and line.category == COMPUTE]
    hourly = fsum(line.usd for line in lines if is_hourly(line))
    committed = fsum(line.usd for line in lines if not is_hourly(line))
    if hourly + committed <= 0.0:
        return np.ones_like(usage.finish_s)
    used = usage.hourly_usd.get(task, np.zeros_like(usage.finish_s))
    return np.asarray((used + committed) / (hourly + committed))
