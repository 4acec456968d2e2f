"""Tasks that may end after fewer rounds than there is time for, or not be done at all.

The bill counts what is expected of them and the calendar what they may take. Of ``n`` rounds with a chance
``p`` to stop after each, and a chance ``c`` that the task is done at all, ``k`` are done with probability
``c p (1-p)^(k-1)`` for ``1 <= k < n``, ``c (1-p)^(n-1)`` for ``k = n`` and ``1 - c`` for ``k = 0``.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.accounting import account, total_usd
from trainplan_models.plan import Plan, Trial

if TYPE_CHECKING:
    from trainplan_models.case import Case, Task
    from trainplan_models.catalog import Catalog


def round_chances(task: Task) -> NDArray[np.float64]:
    """Probability of each number of rounds from 0 on."""
    stop = task.stop_chance_frac or 0.0
    k = np.arange(1, task.rounds + 1)
    chances = (1.0 - stop) ** (k - 1) * np.where(k < task.rounds, stop, 1.0)
    return np.asarray([1.0 - task.chance_frac, *(task.chance_frac * chances)])


def with_trials(plan: Plan, case: Case, catalog: Catalog) -> Plan:
    """The plan with what its uncertain tasks cost in expectation and at the worst.

    Args:
        plan: with its cost lines, which are expected costs.
        case: what was asked.
        catalog: the prices.
    """
    trials = [task for task in case.tasks if task.expected_frac < 1.0]
    if not trials:
        return plan
    sure = {"chance_frac": 1.0, "stop_chance_frac": None}
    lines = account(
        plan.model_copy(
            update={"segments": tuple(s.model_copy(update={"expected_frac": 1.0}) for s in plan.segments)}
        ),
        case.model_copy(update={"tasks": tuple(task.model_copy(update=sure) for task in case.tasks)}),
        catalog,
    )
    chances = {task.name: round_chances(task) for task in trials}
    found = tuple(
        Trial(
            task=task.name,
            rounds=task.rounds,
            expected_rounds_count=task.expected_rounds,
            all_chance_frac=float(chances[task.name][-1]),
            none_chance_frac=float(chances[task.name][0]),
            expected_usd=math.fsum(line.usd for line in plan.cost_lines if line.task == task.name),
            worst_usd=math.fsum(line.usd for line in lines if line.task == task.name),
        )
        for task in trials
    )
    return plan.model_copy(update={"trials": found, "worst_usd": total_usd(lines)})
