"""Better plans near a known one: some tasks are decided again while the others stay as they are.

For problems whose model is too large to be solved at once. Nothing is proven here; every answer satisfies
the whole model.
"""

from __future__ import annotations

import re
import time
from collections.abc import Collection
from itertools import pairwise

import numpy as np

from trainplan.highs_worker import Answer, Request
from trainplan.problem import ProblemSpec
from trainplan.solve import Array, Solver

LEAST_GAIN_FRAC = 1e-3
"""A sweep over all neighbourhoods that gains less is the last."""
SWEEPS = 3
GAP_FRAC = 3e-3
LEAST_S = 2.0

BY_OPTION = frozenset({"v_used", "v_runs_on"})
_NAME = re.compile(r"(\w+)\[(\d+)[,\]]")


def components(spec: ProblemSpec) -> tuple[tuple[int, ...], ...]:
    """Tasks that are joined by precedence."""
    import networkx

    graph: networkx.Graph[int] = networkx.Graph()
    graph.add_nodes_from(range(len(spec.tasks)))
    graph.add_edges_from((p, t) for t, task in enumerate(spec.tasks) for p in task.predecessors)
    return tuple(sorted(tuple(sorted(part)) for part in networkx.connected_components(graph)))


def improve(solver: Solver, x: Array, until: float) -> Answer | None:
    """The best answer reached by deciding parts of the problem again, a component or two at a time.

    Args:
        solver: of the whole problem.
        x: a solution of its model to start from.
        until: monotonic time to stop at.
    """
    parts = components(solver.spec)
    groups = [(part,) for part in parts] + list(pairwise(parts))
    best = _settled(solver, x, until)
    if best is None or best.x is None or best.objective is None:
        return None
    for _ in range(SWEEPS):
        before = best.objective
        for group in groups:
            left_s = until - time.monotonic()
            if left_s < LEAST_S or best.x is None or best.objective is None:
                return best
            free = {task for part in group for task in part}
            found = _again(solver, best.x, free, min(left_s, max(left_s / 6.0, 10.0)))
            if found.x is not None and found.objective is not None and found.objective < best.objective:
                best = found
        if before is None or best.objective is None:
            continue
        if before - best.objective <= LEAST_GAIN_FRAC * abs(before):
            break
    return best


def _settled(solver: Solver, x: Array, until: float) -> Answer | None:
    """The start itself as an answer of this solver."""
    found = _again(solver, x, set(), max(until - time.monotonic(), LEAST_S))
    return found if found.x is not None else None


def _again(solver: Solver, x: Array, free: Collection[int], limit_s: float) -> Answer:
    """Solves with the whole numbers of all tasks fixed but the free ones."""
    columns = np.array(
        [
            column
            for name, column in solver.compiled.columns.items()
            if solver.model.integer[column] and _task_of(solver.spec, name) not in free
        ]
    )
    values = np.round(x[columns])
    request = Request(
        columns=columns,
        col_lower=values,
        col_upper=values,
        start=x,
        options={"mip_rel_gap": GAP_FRAC},
    )
    return solver.ask(request, limit_s)


def _task_of(spec: ProblemSpec, name: str) -> int:
    """The task a column belongs to; -1 for what all share."""
    match = _NAME.match(name)
    if match is None or match[1] in ("v_bought", "v_length", "v_start_day", "v_apart"):
        return -1
    number = int(match[2])
    return spec.options[number].task if match[1] in BY_OPTION else number
