"""Who is at work at a moment: what follows something is not counted beside it, whatever its time is rounded to."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from trainplan_models.at_work import most_nodes_at_once, running
from trainplan_models.over_time import nodes_in_use, pool_use
from trainplan_models.peaks import ACCELERATORS, demand_by_week
from trainplan_models.plan import Plan, Segment

FULL = Path(__file__).parents[1] / "golden" / "report" / "full.plan.json"
END_S = 120501.4373942008
BEFORE_S = 120501.43739420078
"""As the solver may say that the next one begins: a few billionths of a second before the end."""


@pytest.fixture
def plan() -> Plan:
    found = Plan.model_validate_json(FULL.read_text(encoding="utf-8"))
    first = found.segments[0].model_copy(
        update={"start_s": 0.0, "end_s": END_S, "nodes": 32, "spare_nodes": 0}
    )
    second = first.model_copy(update={"start_s": BEFORE_S, "end_s": 2.0 * END_S, "nodes": 4})
    return found.model_copy(update={"segments": (first, second), "finish_s": 2.0 * END_S})


def test_what_follows_is_alone(plan: Plan) -> None:
    first, second = plan.segments
    assert BEFORE_S < END_S
    assert running(plan.segments, 0.0) == [first]
    assert running(plan.segments, BEFORE_S) == [second]
    assert most_nodes_at_once(plan.segments) == {(first.pool, first.mode): 32}
    assert nodes_in_use(plan.segments, np.array([0.0, BEFORE_S, 2.0 * END_S])).tolist() == [32, 4, 0]


def test_what_runs_side_by_side_counts_together(plan: Plan) -> None:
    first, second = plan.segments
    beside: list[Segment] = [first, second.model_copy(update={"start_s": END_S / 2.0})]
    assert running(beside, END_S / 2.0) == beside
    assert most_nodes_at_once(beside) == {(first.pool, first.mode): 36}


def test_peaks_and_use_of_pools_tell_no_node_twice(plan: Plan) -> None:
    most = {use.peak_nodes for use in pool_use(plan) if use.mode == plan.segments[0].mode}
    assert max(most) == 32
    told = [week.peak[ACCELERATORS] for week in demand_by_week(plan)]
    assert max(told) == 32 * plan.segments[0].accelerators_per_node
