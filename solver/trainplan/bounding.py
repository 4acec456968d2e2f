"""A bound over all options of a large problem, and which of them are worth whole numbers.

Some options have whole numbers, the others are loose (``formulation.loose``). The linear relaxation is solved at
once and prices every option over the calendar; where its bound is not enough, the search over the whole numbers
proves a better one. An option that is used loosely is worth whole numbers of its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import numpy as np

from trainplan.fixing import carried
from trainplan.highs import Session
from trainplan.highs_worker import Answer, Request
from trainplan.problem import ProblemSpec
from trainplan.solve import Array, Solver

MOST_LOOSE = 60_000
"""Pairs of an option and a window that are looked at without whole numbers."""
MOST_LOOSE_WIDE = 120_000
"""As ``MOST_LOOSE``, where they are looked at once and nothing is searched."""
WITHOUT_PLANS = {"mip_heuristic_effort": 0.0}
"""What uses loose options is no plan, so none are looked for."""


class Bounder:
    """The problem with some options loose."""

    def __init__(
        self,
        spec: ProblemSpec,
        session: Session,
        kept: Iterable[int],
        options: Iterable[int],
        gap_frac: float,
    ) -> None:
        """Builds it.

        Args:
            spec: the problem.
            session: where it is solved.
            kept: options with whole numbers.
            options: all options; those that are not kept are loose.
            gap_frac: a bound this near to the best plan is good enough.
        """
        self.spec = spec
        self.solver = Solver(spec, session, options=tuple(kept), gap_frac=gap_frac, loose=tuple(options))
        self._of_option: dict[int, list[int]] = {}
        for option, window in self.solver.inputs.loose:
            column = self.solver.compiled.columns.get(f"v_share[{option},{window}]")
            if column is not None:
                self._of_option.setdefault(option, []).append(column)

    def relaxed(self, time_limit_s: float) -> Answer:
        """The linear relaxation."""
        answer = self.solver.ask(Request(options={"solve_relaxation": True}), time_limit_s)
        return replace(answer, bound=answer.objective if answer.status == "optimal" else None)

    def searched(self, plan: Solver, time_limit_s: float) -> Answer:
        """The search over whole numbers, from a plan on."""
        start = None if plan.x is None else carried(plan.x, plan.compiled, self.solver.compiled)
        request = Request(start=start, options=WITHOUT_PLANS)
        return self.solver.answer(request, time_limit_s)

    def goal(self, answer: Answer) -> float | None:
        """What an answer proves, in the unit of the question; None where it proves nothing."""
        return None if answer.bound is None else self.solver.goal_in_case_units(answer.bound)

    def used(self, x: Array, least_frac: float = 1e-6) -> set[int]:
        """Loose options that do so much of their task in a solution."""
        return {option for option, columns in self._of_option.items() if x[columns].sum() > least_frac}

    def added(self, answer: Answer) -> dict[int, float]:
        """What doing a whole task by an option would add to the best value of the relaxation."""
        reduced = answer.reduced_cost
        if reduced is None:
            return {}
        found = {option: float(reduced[columns].min()) for option, columns in self._of_option.items()}
        columns = self.solver.compiled.columns
        whole: dict[int, list[float]] = {}
        for (option, window), reach in self.solver.inputs.uses.items():
            share = reduced[columns[f"v_share[{option},{window}]"]]
            used = reduced[columns[f"v_used[{option},{window}]"]]
            whole.setdefault(option, []).append(float(share + used / max(reach, 1e-3)))
        return found | {option: float(np.min(costs)) for option, costs in whole.items()}
