"""What a simulation found: chances, quantiles, and what brings the spread."""

from __future__ import annotations

import math
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.base import Record
from trainplan_models.simulation_statistics import explained, quantiles, wilson_low
from trainplan_models.simulation_world import Scenarios

if TYPE_CHECKING:
    from trainplan_models.case import Case

FloatArray = NDArray[np.float64]

CHANCE = "events by chance"


class Cause(Record):
    """How much of the spread one cause brings."""

    name: str
    finish_share: float
    """Share of the variance of the finish that it explains by itself."""
    cost_share: float
    """The same of the cost."""


class TaskSpread(Record):
    """When a task ends."""

    task: str
    end_quantiles_s: dict[str, float]


class Simulation(Record):
    """What became of a plan over all scenarios. Keys of quantiles are ``p05``, ``p50``, ...; chances are shares."""

    scenarios_count: int
    seed: int
    p_in_time: float
    """Chance that every task ends by its due date and the programme by the deadline."""
    p_in_budget: float
    p_both: float
    """Chance of both at once."""
    p_both_low: float
    """Lower confidence bound of that chance, one-sided 95% (Wilson)."""
    finish_mean_s: float
    finish_quantiles_s: dict[str, float]
    cost_mean_usd: float
    cost_quantiles_usd: dict[str, float]
    late_mean_s: float
    """Mean time after the deadline over all scenarios."""
    ettr_mean_frac: float
    """Useful share of the time in which nodes are held (effective training time ratio)."""
    ettr_quantiles_frac: dict[str, float]
    lost_work_mean_s: float
    """Work thrown away by failures and losses, all tasks."""
    failures_mean_count: float
    preemptions_mean_count: float
    on_demand_share: float
    """Share of the node-hours of spot segments that ran on on-demand."""
    causes: tuple[Cause, ...]
    """Largest first; the last one is chance itself with what causes do together."""
    tasks: tuple[TaskSpread, ...]
    fallback: tuple[str, ...] = ()
    """The rule of each segment on spot, in words."""


@dataclass(frozen=True, slots=True)
class Samples:
    """Outcomes by scenario."""

    weight: FloatArray
    finish_s: FloatArray
    cost_usd: FloatArray
    late: NDArray[np.bool_]
    """Some task or the programme ended after its date."""
    ettr_frac: FloatArray
    lost_work_s: FloatArray
    failures_count: FloatArray
    preemptions_count: FloatArray
    spot_node_hours: FloatArray
    fallback_node_hours: FloatArray
    task_end_s: dict[str, FloatArray]
    rules: tuple[str, ...]


def summary(found: Samples, case: Case, scenarios: Scenarios, seed: int) -> Simulation:
    """Chances, quantiles and causes of the outcomes of scenarios."""
    weight, finish_s, usd = found.weight, found.finish_s, found.cost_usd
    in_time = ~found.late
    in_budget = usd <= (inf if case.budget_usd is None else case.budget_usd)
    deadline_s = case.deadline_s
    late_s = np.maximum(finish_s - (inf if deadline_s is None else deadline_s), 0.0)
    chances = [math.fsum(weight[held]) for held in (in_time, in_budget, in_time & in_budget)]
    p_in_time, p_in_budget, p_both = (min(chance, 1.0) for chance in chances)
    return Simulation(
        scenarios_count=weight.size,
        seed=seed,
        p_in_time=p_in_time,
        p_in_budget=p_in_budget,
        p_both=p_both,
        p_both_low=wilson_low(p_both, 1.0 / float(weight @ weight)),
        finish_mean_s=float(weight @ finish_s),
        finish_quantiles_s=quantiles(finish_s, weight),
        cost_mean_usd=float(weight @ usd),
        cost_quantiles_usd=quantiles(usd, weight),
        late_mean_s=float(weight @ late_s),
        ettr_mean_frac=float(weight @ found.ettr_frac),
        ettr_quantiles_frac=quantiles(found.ettr_frac, weight),
        lost_work_mean_s=float(weight @ found.lost_work_s),
        failures_mean_count=float(weight @ found.failures_count),
        preemptions_mean_count=float(weight @ found.preemptions_count),
        on_demand_share=float(
            found.fallback_node_hours.sum()
            / max((found.fallback_node_hours + found.spot_node_hours).sum(), 1e-9)
        ),
        causes=_causes(scenarios, finish_s, usd),
        tasks=tuple(
            TaskSpread(task=name, end_quantiles_s=quantiles(end_s, weight))
            for name, end_s in found.task_end_s.items()
        ),
        fallback=found.rules,
    )


def _causes(scenarios: Scenarios, finish_s: FloatArray, usd: FloatArray) -> tuple[Cause, ...]:
    groups = scenarios.causes()
    finish, cost = explained(groups, finish_s), explained(groups, usd)
    rows = [
        Cause(name=name, finish_share=finish[name], cost_share=cost[name])
        for name in groups
        if max(finish[name], cost[name]) > 0.0
    ]
    rows.sort(key=lambda row: (-row.finish_share, -row.cost_share, row.name))
    rest = [max(0.0, 1.0 - sum(shares.values())) for shares in (finish, cost)]
    return (*rows, Cause(name=CHANCE, finish_share=rest[0], cost_share=rest[1]))
