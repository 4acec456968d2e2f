"""The problem without its calendar: a bound on every plan, and which options are worth a column.

A large problem has thousands of options; with a column for each in every window its model takes longer to
read than to solve. The linear relaxation of the model without windows (``formulation.build_aggregate``)
has one column an option and is solved at once. Its value bounds the cost of every plan over all options;
its reduced costs say what using an option would add at the best prices of time and nodes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import inf
from typing import Any

import numpy as np

from trainplan.formulation import build_aggregate
from trainplan.formulation.context import Context
from trainplan.highs import Session, compile_model
from trainplan.highs_worker import Answer, Request
from trainplan.inputs import Inputs, scale
from trainplan.problem import Option, ProblemSpec

MOST_CELLS = 2_500
"""Pairs of an option and a window that get columns without being screened."""
KEPT = 14
"""Options kept of a task, by reduced cost."""
KEPT_OF_RESOURCE = 4
"""Of these, most of one resource."""
KEPT_HELD = 6
"""Kept beside them of each resource that is there in limited number: owned nodes, grants, quotas."""
KEPT_COMMITTED = 2
"""Kept beside them of each resource that has to be bought."""


def is_large(spec: ProblemSpec, options: Sequence[int]) -> bool:
    """Whether the options have to be screened before there are columns for each window."""
    return len(spec.tasks) > 1 and len(options) * len(spec.windows) > MOST_CELLS


class Aggregate:
    """The relaxation of a problem, loaded once and asked several things."""

    def __init__(
        self, spec: ProblemSpec, session: Session, options: Sequence[int], time_limit_s: float
    ) -> None:
        """Builds and solves it.

        Args:
            spec: the problem.
            session: where it is solved.
            options: options to choose from.
            time_limit_s: limit of each solve.
        """
        self.spec, self.session, self.time_limit_s = spec, session, time_limit_s
        within = [o for o in options if spec.options[o].all_nodes <= spec.max_nodes]
        self.inputs = scale(without_calendar(spec), within)
        ctx = build_aggregate(self.inputs)
        _add_calendar_totals(ctx, spec)
        self.compiled = compile_model(ctx.m)
        model = self.compiled.model
        self.model = replace(
            model, integer=np.zeros(len(model.cost), dtype=bool), row_upper=model.row_upper.copy()
        )
        self._goal_row = self.compiled.rows.get("c_first_goal")
        if self._goal_row is not None:
            self.model.row_upper[self._goal_row] = np.inf
        self.answer = self._ask(Request())
        if self.answer.x is None:
            # HiGHS has called feasible models infeasible in presolve.
            self.answer = self._ask(Request(options={"presolve": "off"}))

    def _ask(self, request: Request) -> Answer:
        if self.session.model is not self.model:
            self.session.load(self.model)
        return self.session.solve(request, self.time_limit_s)

    @property
    def bound(self) -> float:
        """Bound on the goal of every plan, in its unit (USD, days or stretch), as ``Outcome.bound``."""
        if self.answer.objective is None:
            return inf if self.spec.question == "most-tokens" else -inf
        value, inputs = self.answer.objective, self.inputs
        if self.spec.question == "fastest":
            return value * inputs.days_per_unit
        return -value if self.spec.question == "most-tokens" else value * inputs.usd_per_unit

    @property
    def infeasible(self) -> bool:
        """Whether no plan over any of the options satisfies the problem."""
        return self.answer.status in ("infeasible", "infeasible-or-unbounded")

    @property
    def finish_days(self) -> float:
        """When the relaxation ends; ``inf`` where it has no answer."""
        if self.answer.x is None:
            return inf
        return self.compiled.value(self.answer.x, "v_finish") * self.inputs.days_per_unit

    def latest_end_days(self, usd: float) -> float:
        """The latest end of any plan that costs at most so much; ``inf`` where cost does not limit it."""
        column = self.compiled.columns.get("v_finish")
        if self.spec.question != "cheapest" or self._goal_row is None or column is None:
            return inf
        cost = np.zeros(len(self.model.cost))
        cost[column] = -1.0
        most = usd / self.inputs.usd_per_unit - self.model.offset
        answer = self._ask(
            Request(
                cost=cost,
                rows=np.array([self._goal_row]),
                row_lower=np.array([-np.inf]),
                row_upper=np.array([most * (1.0 + 1e-6)]),
            )
        )
        if answer.objective is None:
            return inf
        return -answer.objective * self.inputs.days_per_unit

    def options(self, factor: float = 1.0) -> tuple[int, ...]:
        """Options worth a column, by what they would add to the cost of the relaxation.

        Args:
            factor: multiplies how many are kept.
        """
        return self._chosen(lambda ranked: _chosen(self.spec, ranked, factor))

    def options_by(self, added: Mapping[int, float]) -> tuple[int, ...]:
        """Options worth a column, by what each would add to a value."""
        spec, kept = self.spec, set[int]()
        for task in range(len(spec.tasks)):
            mine = [o for o in added if spec.options[o].task == task]
            kept |= _chosen(spec, sorted(mine, key=lambda o: (added[o], spec.options[o].key)), 1.0)
        return tuple(sorted(kept))

    def few_options(self, count: int) -> tuple[int, ...]:
        """The best few options of every task, the best that leaves room for as many others, and the fastest."""
        options = self.spec.options
        share = max(self.spec.max_nodes / self.spec.width, 1.0)

        def few(ranked: list[int]) -> set[int]:
            free = [o for o in ranked if not _is_limited(self.spec, options[o])] or ranked
            modest = [o for o in free if options[o].all_nodes <= share]
            fastest = sorted(ranked, key=lambda o: options[o].work_days)
            return {*ranked[:count], *modest[:count], *fastest[:1]}

        return self._chosen(few)

    def free_options(self, count: int) -> tuple[int, ...]:
        """Of every task, the best options that nothing limits, one for each of some numbers of nodes."""
        options = self.spec.options

        def free(ranked: list[int]) -> set[int]:
            by_nodes: dict[int, int] = {}
            for o in ranked:
                if not _is_limited(self.spec, options[o]):
                    by_nodes.setdefault(options[o].all_nodes, o)
            sizes = sorted(by_nodes)
            wanted = (
                {sizes[round(k * (len(sizes) - 1) / max(count - 1, 1))] for k in range(count)}
                if sizes
                else set()
            )
            return {by_nodes[size] for size in wanted}

        return self._chosen(free)

    def _chosen(self, choose: Callable[[list[int]], set[int]]) -> tuple[int, ...]:
        every = sorted({option for option, _ in self.inputs.uses})
        if self.answer.reduced_cost is None:
            return tuple(every)
        added = _added(self.inputs, self.compiled.columns, self.answer.reduced_cost)
        kept: set[int] = set()
        for task in range(len(self.spec.tasks)):
            mine = [o for o in every if self.spec.options[o].task == task]
            kept |= choose(sorted(mine, key=lambda o: (added[o], self.spec.options[o].key)))
        return tuple(sorted(kept))


def without_calendar(spec: ProblemSpec) -> ProblemSpec:
    """The problem with one window, in which nodes are as many and as cheap as in the best of its windows."""
    resources = tuple(
        replace(
            r,
            held_nodes=(max(r.held_nodes),),
            frozen=(),
            price_factor=(min(r.price_factor),) if r.price_factor else (),
        )
        for r in spec.resources
    )
    tasks = tuple(replace(task, release_days=0.0) for task in spec.tasks)
    span = (spec.windows[0][0], spec.windows[-1][1])
    return replace(spec, tasks=tasks, resources=resources, windows=(span,), soft_limits=())


def _add_calendar_totals(ctx: Context, spec: ProblemSpec) -> None:
    """What the one window would forget: releases, and how long how many nodes are there."""
    from trainplan.pyomo_core import Constraint

    m, inputs = ctx.m, ctx.inputs
    m.c_release = Constraint(
        [t for t, w in m.CELLS if spec.tasks[t].release_days > 0.0],
        rule=lambda m, t: m.v_begin[t, 0] >= inputs.time(spec.tasks[t].release_days),
    )
    m.c_release_end = Constraint(
        [t for t in m.v_ends if spec.tasks[t].release_days > 0.0],
        rule=lambda m, t: (
            m.v_ends[t]
            >= inputs.time(spec.tasks[t].release_days) + sum(m.e_time[use] for use in m.uses_of_task[t])
        ),
    )
    held: dict[int, float] = {
        number: sum(
            nodes * (end - start)
            for w, (nodes, (start, end)) in enumerate(zip(r.held_nodes, spec.windows, strict=True))
            if w not in r.frozen
        )
        for number, r in enumerate(spec.resources)
        if not r.committed and max(r.held_nodes) < inf
    }
    uses: dict[int, list[tuple[int, int]]] = {}
    for o, w in m.USES:
        for resource, _ in spec.options[o].taken:
            uses.setdefault(resource, []).append((o, w))

    m.c_held_time = Constraint(
        [r for r, node_days in held.items() if node_days > 0.0 and r in uses],
        rule=lambda m, r: (
            sum(
                spec.options[o].nodes_of(r) / max(spec.resources[r].held_nodes) * m.e_time[o, w]
                for o, w in uses[r]
            )
            <= inputs.time(held[r] / max(spec.resources[r].held_nodes))
        ),
    )
    if spec.max_nodes < inf:
        everything = dict.fromkeys(use for pairs in uses.values() for use in pairs)
        taken = sum(spec.options[o].all_nodes / spec.max_nodes * m.e_time[o, w] for o, w in everything)
        m.c_ceiling_time = Constraint(expr=taken <= m.v_finish)


def _added(inputs: Inputs, columns: Mapping[str, int], reduced_cost: Any) -> dict[int, float]:
    """What doing a whole task by an option would add, beyond the best value."""
    found = {}
    for (option, window), reach in inputs.uses.items():
        share = reduced_cost[columns[f"v_share[{option},{window}]"]]
        used = reduced_cost[columns[f"v_used[{option},{window}]"]]
        found[option] = float(share + used / reach)
    return found


def _chosen(spec: ProblemSpec, ranked: list[int], factor: float) -> set[int]:
    """Options of a task worth a column, from all of them by rank."""
    kept: set[int] = set()
    of_resources: Counter[tuple[int, ...]] = Counter()
    taken = 0
    for o in ranked:
        resources = tuple(number for number, _ in spec.options[o].taken)
        wanted = taken < KEPT * factor and of_resources[resources] < KEPT_OF_RESOURCE * factor
        taken += wanted
        if wanted or of_resources[resources] < _kept_anyway(spec, spec.options[o]) * factor:
            of_resources[resources] += 1
            kept.add(o)
    # Where time or nodes get scarcer than the relaxation sees, the ends of the range are needed.
    kept |= set(sorted(ranked, key=lambda o: spec.options[o].work_days)[:1])
    kept |= set(sorted(ranked, key=lambda o: spec.options[o].all_nodes)[:1])
    return kept


def _kept_anyway(spec: ProblemSpec, option: Option) -> int:
    if any(spec.resources[r].committed for r, _ in option.taken):
        return KEPT_COMMITTED
    return KEPT_HELD if _is_limited(spec, option) else 0


def _is_limited(spec: ProblemSpec, option: Option) -> bool:
    """Whether only so many nodes are there, or none before they are bought."""
    taken = [spec.resources[r] for r, _ in option.taken]
    return any(known.committed or min(known.held_nodes) < inf or known.grant_hours < inf for known in taken)
