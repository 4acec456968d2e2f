"""A search that the user stops: a plan, marked as what it is."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainplan.highs import GRACE_S, Session
from trainplan.highs_worker import Answer, Request
from trainplan.planning import plan
from trainplan_models.base import NoAnswerError
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

CASE = """
name: stopped
deadline: 20 days
tasks:
  - {name: tune, kind: sft, model: llama-3-8b, tokens: 20B tokens, sequence_length: 8192}
resources: {clouds: [aws], regions: [us-east-1], billing: [on-demand], max_nodes: 4}
"""


class Stopped(Session):
    """A session whose first search the user ends, with what it has or before it has anything."""

    def __init__(self, *, empty: bool = False) -> None:
        super().__init__(keep_best=True)
        self.empty = empty

    def solve(self, request: Request, time_limit_s: float, grace_s: float = GRACE_S) -> Answer:
        answer = super().solve(request, time_limit_s, grace_s)
        if self.stopped or answer.objective is None:
            return answer
        self.stopped = True
        if self.empty:
            return replace(answer, status="interrupted", objective=None, bound=None, x=None)
        return replace(answer, status="interrupted", bound=0.9 * answer.objective)


def test_the_best_plan_so_far_is_given_and_not_called_optimal() -> None:
    with Stopped() as session:
        found = plan(case_from_text(CASE), builtin(), session=session)
    assert found.status == "feasible"
    assert 0.05 < found.solver.gap_frac < 0.15
    assert found.segments and found.risk is not None
    # Nobody waits for the alternatives.
    assert found.alternatives == ()


def test_without_a_plan_so_far_that_is_said() -> None:
    with Stopped(empty=True) as session, pytest.raises(NoAnswerError, match="stopped before a plan"):
        plan(case_from_text(CASE), builtin(), session=session)
