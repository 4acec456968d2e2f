"""Whether the model finds what trying everything finds."""

from __future__ import annotations

import pytest

from trainplan.highs import Session
from trainplan.problem import ProblemSpec
from trainplan.solve import Solver


def assert_found(spec: ProblemSpec, session: Session, expected: float | None) -> None:
    """The best value of the first goal is the expected one; there is none where that is None."""
    outcome = Solver(spec, session, gap_frac=1e-7).solve(two_goals=False)
    if expected is None:
        assert outcome.state == "infeasible"
    else:
        assert outcome.state == "optimal"
        assert outcome.bound == pytest.approx(expected, rel=2e-5, abs=1e-4)
