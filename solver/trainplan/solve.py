"""From a problem to a decision: build, solve in two goals, read back.

Why the solver stopped and what it has are two things: see ``Outcome``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from trainplan.decision import Decision as Decision
from trainplan.decision import Outcome as Outcome
from trainplan.decision import State as State
from trainplan.decision import Use as Use
from trainplan.fixing import merged, settled
from trainplan.formulation import build
from trainplan.formulation.context import Context, Limit
from trainplan.formulation.goals import goals
from trainplan.highs import GRACE_S, Compiled, Session, compile_model
from trainplan.highs_worker import Answer, Request
from trainplan.inputs import Inputs, scale
from trainplan.problem import ProblemSpec
from trainplan_models.base import NoAnswerError

GAP_FRAC = 1e-4
LEAST_USE = 1e-7
"""Shares below this are the solver's rounding."""
LEAST_S = 1.0
"""Time for a further goal or step when the limit is used up."""
LOOSEST = 1e7
"""How far a limit may be loosened, in solver units."""
SAME_FRAC = 1e-6
"""Values of a goal this near to each other are the same."""
WORTHWHILE_FRAC = 1e-4
"""A second goal is only followed for a gain above this; less is tolerance."""

POLISH_OPTIONS = {"solve_relaxation": True, "primal_feasibility_tolerance": 1e-9}
"""With integers fixed a plan is a linear program, which HiGHS solves exactly only if told that it is one."""

Array = np.ndarray[Any, np.dtype[Any]]


class Solver:
    """One problem, compiled once, solved as often as wanted under changed limits or with options closed."""

    def __init__(
        self,
        spec: ProblemSpec,
        session: Session,
        time_limit_s: float = 60.0,
        options: Collection[int] | None = None,
        gap_frac: float = GAP_FRAC,
        loose: Collection[int] = (),
    ) -> None:
        self.spec = spec
        self.gap_frac = gap_frac
        self.search_ties = True
        """Whether the second goal may change choices, or settles only what they leave open."""
        self.x: Array | None = None
        """The last solution for the first goal."""
        self.session = session
        self.time_limit_s = time_limit_s
        self.inputs: Inputs = scale(spec, options, loose)
        self.ctx: Context = build(self.inputs)
        self.compiled: Compiled = compile_model(self.ctx.m)
        self.model = self.compiled.model
        self._first_goal_row = self.compiled.rows.get("c_first_goal")
        if self._first_goal_row is not None:
            self.model.row_upper[self._first_goal_row] = np.inf
        session.load(self.model)
        self._cost = self._vectors()
        self._free_bounds: dict[tuple[tuple[str, float], ...], float] = {}

    def _vectors(self) -> tuple[Array, Array, float]:
        """Objective vectors of the two goals; the second read off the model's own expressions."""
        return self.model.cost, *self.compiled.vector(goals(self.ctx)[1])

    @property
    def usd_vector(self) -> tuple[Array, float]:
        """Cost of each column and what is owed besides, in solver units, whatever the question."""
        first, second, offset = self._cost
        return (first, self.model.offset) if self.spec.question == "cheapest" else (second, offset)

    def solve(
        self,
        *,
        closed: Callable[[int], bool] | None = None,
        limits: dict[str, float] | None = None,
        two_goals: bool = True,
        start: Array | None = None,
    ) -> Outcome:
        """Solves the problem.

        Args:
            closed: options (by number) that may not be used.
            limits: new values in case units for limits of the case, e.g. ``{"deadline": 35.0}``.
            two_goals: whether to break ties by the second goal.
            start: a solution to start from.

        Raises:
            KeyError: the problem has no limit of that name.
            NoAnswerError: HiGHS failed or ignored a part of the model.
        """
        started = time.monotonic()
        changes = self.changes(closed, limits)
        first = self._first(replace(changes, start=start), limits, started, whole=closed is None)
        if first.x is None:
            state: State = "infeasible" if first.status == "infeasible" else "no-answer"
            return self._outcome(state, None, first, started)
        best = self._polish(changes, first, self._cost[0], self.model.offset)
        self.x = best.x
        if two_goals:
            best = self._second(changes, best, self._left_s(started))
        state = "optimal" if first.status == "optimal" else "feasible"
        return self._outcome(state, self._read(best), first, started)

    def outcome_of(self, answer: Answer) -> Outcome:
        """The outcome of an answer that was found by other means than ``solve``; nothing is proven of it.

        Raises:
            NoAnswerError: the answer has no solution.
        """
        started = time.monotonic()
        best = self._polish(Request(), answer, self._cost[0], self.model.offset)
        self.x = best.x
        return self._outcome("feasible", self._read(best), replace(answer, bound=None), started)

    def least_excess(self, name: str, *, closed: Callable[[int], bool] | None = None) -> float | None:
        """Smallest loosening of one limit that makes a plan exist, in case units; None if none does.

        Raises:
            KeyError: the problem has no limit of that name.
        """
        limit = self._limit(name)
        column = self.compiled.columns[limit.slack]
        changes = self.changes(closed, None, free=(name,))
        cost = np.zeros(len(self.model.cost))
        cost[column] = 1.0
        answer = self.answer(replace(changes, cost=cost))
        if answer.x is None:
            return None
        return float(answer.x[column]) * limit.per_unit

    def bound_with_free_moves(self, limits: dict[str, float] | None = None) -> float:
        """Proven bound, in USD, on the cost when moving a task between regions costs nothing.

        Where the budget is a limit it is loosened by what the moves of a plan can cost.

        Args:
            limits: new values in case units for limits of the case.

        Raises:
            NoAnswerError: HiGHS failed or ignored a part of the model.
        """
        known = self._free_bounds.get(_key(limits))
        if known is not None:
            return known
        changed = dict(limits or {})
        if self.spec.budget_usd < inf:
            dearest = max(self.spec.move_usd.values(), default=0.0)
            changed["budget"] = changed.get("budget", self.spec.budget_usd) + dearest * len(self.spec.tasks)
        answer = self.answer(replace(self.changes(None, changed), **self._free_moves()))
        return -inf if answer.bound is None else answer.bound * self.inputs.usd_per_unit

    def _free_moves(self) -> dict[str, Any]:
        """The objective without the price of moves."""
        cost = self.model.cost.copy()
        for move in self.ctx.m.v_move:
            column = self.compiled.columns.get("v_move[{},{},{}]".format(*move))
            if column is not None:
                cost[column] = 0.0
        return {"cost": cost, "offset": self.model.offset}

    def _left_s(self, started: float) -> float:
        """What is left of the time for a search that began then."""
        return max(self.time_limit_s - (time.monotonic() - started), LEAST_S)

    def _first(
        self, changes: Request, limits: dict[str, float] | None, started: float, *, whole: bool
    ) -> Answer:
        """The best answer by the first goal.

        A lone task is first solved as if moves cost nothing: where its best plan costs no more with their
        price it is the best one, and its bound is that of ``bound_with_free_moves``.
        """
        lone = whole and len(self.spec.tasks) == 1 and bool(self.spec.move_usd)
        if lone and self.spec.question == "cheapest" and self.spec.budget_usd == inf:
            free = self.answer(replace(changes, **self._free_moves()))
            if free.bound is not None:
                self._free_bounds[_key(limits)] = free.bound * self.inputs.usd_per_unit
            priced = self._polish(changes, free, self._cost[0], self.model.offset)
            if priced is not free and _as_good(priced.objective, free.objective):
                return free
        return self.answer(changes, self._left_s(started))

    def _limit(self, name: str) -> Limit:
        found = {limit.name: limit for limit in self.ctx.limits}
        if name not in found:
            raise KeyError(f"the problem has no limit {name!r}; it has {sorted(found)}")
        return found[name]

    def changes(
        self,
        closed: Callable[[int], bool] | None,
        limits: dict[str, float] | None,
        free: tuple[str, ...] = (),
    ) -> Request:
        """The request that closes options and moves or frees limits."""
        for name in limits or {}:
            self._limit(name)
        columns: list[int] = []
        lower: list[float] = []
        upper: list[float] = []
        if closed is not None:
            for option, window in self.inputs.uses:
                column = self.compiled.columns.get(f"v_used[{option},{window}]")
                if column is not None and closed(option):
                    columns.append(column)
                    lower.append(0.0)
                    upper.append(0.0)
        for limit in self.ctx.limits:
            value = (limits or {}).get(limit.name)
            if limit.name in free or value is not None:
                shift = 0.0 if value is None else value / limit.per_unit - limit.upper
                columns.append(self.compiled.columns[limit.slack])
                lower.append(shift if value is not None else 0.0)
                upper.append(shift if value is not None else LOOSEST)
        if not columns:
            return Request()
        return Request(columns=np.array(columns), col_lower=np.array(lower), col_upper=np.array(upper))

    def ask(self, request: Request, time_limit_s: float | None = None, grace_s: float = GRACE_S) -> Answer:
        """Solves this problem's model under the changes of ``request``, whatever the session held before."""
        if self.session.model is not self.model:
            self.session.load(self.model)
        return self.session.solve(request, time_limit_s or self.time_limit_s, grace_s)

    def answer(self, request: Request, time_limit_s: float | None = None) -> Answer:
        """As ``ask``, to the gap of a plan; what is called infeasible is so without presolve as well."""
        options = {"mip_rel_gap": self.gap_frac} | request.options
        answer = self.ask(replace(request, options=options), time_limit_s)
        if answer.status in ("infeasible", "infeasible-or-unbounded"):
            # HiGHS has called feasible models infeasible in presolve; the user is told only when
            # the answer stands without it.
            again = replace(request, options=options | {"presolve": "off"})
            answer = self.ask(again, time_limit_s)
        return answer

    def _polish(self, changes: Request, answer: Answer, cost: Array, offset: float) -> Answer:
        """Re-solves with all integers fixed, so that times and shares are exact and not MIP tolerance."""
        integers = np.flatnonzero(self.model.integer)
        if answer.x is None or not len(integers):
            return answer
        found: tuple[float, Answer] | None = None
        for x in settled(self.ctx, self.compiled, answer.x):
            columns, lower, upper = merged(changes, integers, np.round(x[integers]))
            fixed = replace(
                changes,
                cost=cost,
                offset=offset,
                columns=columns,
                col_lower=lower,
                col_upper=upper,
                options=changes.options | POLISH_OPTIONS,
            )
            polished = self.ask(fixed)
            if polished.x is None or polished.objective is None:
                continue
            if found is None or polished.objective < found[0] - 1e-9 * max(1.0, abs(found[0])):
                found = polished.objective, polished
        return answer if found is None else found[1]

    def _second(self, changes: Request, best: Answer, time_limit_s: float) -> Answer:
        if best.x is None or best.objective is None:
            return best
        _, second_cost, offset = self._cost
        before = float(second_cost @ best.x) + offset
        value = best.objective - self.model.offset
        tied = self._tied(changes, value + SAME_FRAC * max(1.0, abs(value)))
        answer = self.answer(tied, time_limit_s) if self.search_ties else best
        if self.search_ties and answer.x is not None and answer.objective is not None:
            gain = before - answer.objective
            if gain > WORTHWHILE_FRAC * max(abs(before), 1e-3):
                # Nothing of the first goal is given away that these choices do not need.
                best = self._polish(self._tied(changes, value), answer, second_cost, offset)
                return best if best is not answer else self._polish(tied, answer, second_cost, offset)
        # The choices stay; what the first goal left open (begins, idle amounts) is settled at no loss.
        return self._polish(self._tied(changes, value), best, second_cost, offset)

    def _tied(self, changes: Request, most: float) -> Request:
        """The second goal, with the first held at ``most`` or better."""
        _, second_cost, offset = self._cost
        tied = replace(changes, cost=second_cost, offset=offset)
        if self._first_goal_row is None:
            return tied
        row = np.array([self._first_goal_row])
        return replace(tied, rows=row, row_lower=np.array([-np.inf]), row_upper=np.array([most]))

    def _outcome(self, state: State, decision: Decision | None, first: Answer, started: float) -> Outcome:
        bound, gap = np.nan, np.inf
        if first.objective is not None and first.bound is not None:
            gap = abs(first.objective - first.bound) / max(abs(first.objective), 1e-9)
            bound = self.goal_in_case_units(first.bound)
        return Outcome(
            state,
            decision,
            bound,
            gap,
            len(self.model.cost),
            len(self.model.row_lower),
            first.nodes,
            time.monotonic() - started,
            first.version,
        )

    def goal_in_case_units(self, value: float) -> float:
        """An objective of the first goal in days, as a factor of the tokens, or in USD."""
        if self.spec.question == "fastest":
            return value * self.inputs.days_per_unit
        return -value if self.spec.question == "most-tokens" else value * self.inputs.usd_per_unit

    def _read(self, answer: Answer) -> Decision:
        x = answer.x
        if x is None:
            raise NoAnswerError("the solver reports a solution and has none")
        value = self.compiled.value
        spec, unit = self.spec, self.inputs.days_per_unit
        uses: list[Use] = []
        for task, window in self.ctx.m.CELLS:
            at = spec.windows[window][0] + value(x, f"v_begin[{task},{window}]") * unit
            uses.extend(self._uses_of_cell(x, task, window, at))
        # By the variable's own name: Pyomo quotes index strings that look like something else.
        places = {key for key, variable in self.ctx.m.v_tier.items() if value(x, variable.name) > 0.5}
        bought = {k: round(value(x, f"v_bought[{k}]")) for k in range(len(spec.products))}
        return Decision(
            uses=tuple(uses),
            bought={k: count for k, count in bought.items() if count},
            bought_from_days={
                k: value(x, f"v_start_day[{spec.products[k].resource},{spec.products[k].purchase}]")
                for k, count in bought.items()
                if count
            },
            tiers={key[:2]: key[2] for key in places},
            scale_frac=value(x, "v_scale") if any(t.scalable for t in spec.tasks) else 1.0,
            finish_days=max((use.end_days for use in uses), default=0.0),
            usd=self._ledger_usd(x),
        )

    def _uses_of_cell(self, x: Array, task: int, window: int, at_days: float) -> list[Use]:
        """Options at work in a window, in the order in which the model lets them run.

        The first region before the last; what runs on from before at the start, what runs on at the end;
        what is bought or already there before the rest, since purchases end with windows.
        """
        spec, found = self.spec, []
        for number, _ in self.ctx.m.uses_of_cell[task, window]:
            if self._is_on(x, f"v_used[{number},{window}]"):
                o = spec.options[number]
                share = self.compiled.value(x, f"v_share[{number},{window}]")
                runs_on = self._is_on(x, f"v_runs_on[{number},{window}]")
                # An option may be set up in one window and work only in the next.
                if share <= LEAST_USE and (runs_on or o.setup_days == 0.0):
                    continue
                moved = not self._is_on(x, f"v_first[{task},{o.region}]")
                leads_on = self._is_on(x, f"v_runs_on[{number},{window + 1}]")
                committed = any(spec.resources[r].committed for r, _ in o.taken)
                found.append((moved, not runs_on, leads_on, not committed, o.key, number, share, runs_on))
        uses = []
        for *_, option, share, runs_on in sorted(found):
            o = spec.options[option]
            days = share * o.work_days + (0.0 if runs_on else o.setup_days)
            uses.append(Use(option, window, share, not runs_on, at_days, at_days + days))
            at_days += days
        return uses

    def _is_on(self, x: Array, name: str) -> bool:
        return self.compiled.value(x, name) > 0.5

    def _ledger_usd(self, x: Array) -> float:
        usd, offset = self.compiled.vector(self.ctx.m.e_cost)
        return (offset + float(usd @ x)) * self.inputs.usd_per_unit


def _as_good(value: float | None, other: float | None) -> bool:
    return value is not None and other is not None and value <= other + SAME_FRAC * max(abs(other), 1.0)


def _key(limits: dict[str, float] | None) -> tuple[tuple[str, float], ...]:
    return tuple(sorted((limits or {}).items()))
