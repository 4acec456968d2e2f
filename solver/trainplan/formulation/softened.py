r"""Limits on nodes and accelerators that may be loosened, for problems that explain.

For a soft limit with amounts :math:`a_o` and every largest set :math:`A` of tasks side by side:

.. math::
    n_{tw} \ge a_o u_{ow} \quad (t(o) = t),\qquad \sum_{t \in A} n_{tw} \le U + \text{slack}

Where nothing is shared, each option is held by itself: :math:`a_o u_{ow} \le U + \text{slack}`.
"""

from __future__ import annotations

from trainplan.formulation.context import Context
from trainplan.problem import SoftLimit
from trainplan.pyomo_core import Constraint, NonNegativeReals, Var


def add(ctx: Context) -> None:
    """Adds the soft limits of the problem; most problems have none."""
    m, limits = ctx.m, ctx.inputs.spec.soft_limits
    summed = [(k, cell) for k, limit in enumerate(limits) for cell in _summed_cells(ctx, limit)]
    m.v_taken = Var(summed, within=NonNegativeReals)
    uses = [(k, (t, w), use) for k, (t, w) in summed for use in m.uses_of_cell[t, w]]
    uses = [(k, cell, use) for k, cell, use in uses if use[0] in limits[k].amounts]
    m.c_taken = Constraint(
        range(len(uses)),
        rule=lambda m, i: (
            m.v_taken[uses[i][0], uses[i][1]]
            >= limits[uses[i][0]].amounts[uses[i][2][0]] * m.v_used[uses[i][2]]
        ),
    )
    for number, limit in enumerate(limits):
        _hold(ctx, number, limit, {cell for k, cell in summed if k == number})


def _groups(ctx: Context, limit: SoftLimit, window: int) -> set[tuple[int, ...]]:
    """Tasks that may take of the limit at the same time in a window."""
    m, spec = ctx.m, ctx.inputs.spec
    taking = {
        t for t, w in m.CELLS if w == window and any(o in limit.amounts for o, _ in m.uses_of_cell[t, w])
    }
    return {tuple(t for t in group if t in taking) for group in spec.parallel_groups} - {()}


def _windows(ctx: Context, limit: SoftLimit) -> list[int]:
    every: list[int] = ctx.m.WINDOWS
    return every if limit.windows is None else [w for w in every if w in limit.windows]


def _summed_cells(ctx: Context, limit: SoftLimit) -> list[tuple[int, int]]:
    """(task, window) pairs in which tasks side by side have to be added up."""
    if not limit.shared:
        return []
    found = set()
    for window in _windows(ctx, limit):
        for group in _groups(ctx, limit, window):
            if len(group) > 1:
                found |= {(t, window) for t in group}
    return sorted(found)


def _hold(ctx: Context, number: int, limit: SoftLimit, summed: set[tuple[int, int]]) -> None:
    m = ctx.m
    for window in _windows(ctx, limit):
        groups = {group for group in _groups(ctx, limit, window) if len(group) > 1 and limit.shared}
        for group in sorted(groups):
            body = sum(m.v_taken[number, (t, window)] for t in group if (t, window) in summed)
            ctx.limit(limit.name, body, limit.upper, unit=limit.unit, per_unit=1.0)
    at = set(_windows(ctx, limit))
    for option, window in m.USES:
        amount = limit.amounts.get(option, 0.0)
        if window in at and amount > limit.upper:
            body = amount * m.v_used[option, window]
            ctx.limit(limit.name, body, limit.upper, unit=limit.unit, per_unit=1.0)
