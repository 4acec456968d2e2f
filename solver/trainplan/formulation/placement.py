r"""Where tasks run: data staged into regions, state moved between them, results handed over.

A task may use up to two regions, one after the other; :math:`f` and :math:`l` mark its first and last:

.. math::
    u_{ow} \le g_{t r(o)},\quad \sum_r f_{tr} = \sum_r l_{tr} = 1,\quad \sum_r g_{tr} \le 2

    f_{tr} + \sum_q m_{tqr} = g_{tr},\qquad l_{tr} + \sum_q m_{trq} = g_{tr}

Once it has moved it stays: with :math:`h_{tw}` non-decreasing,
:math:`u_{ow} \le l_{tr} + 1 - h_{t,w-1}` and :math:`u_{ow} \le f_{tr} + h_{tw}`.

The result of :math:`p` goes from its last region to the first of its successor :math:`t`:

.. math::
    \sum_q k_{ptrq} = l_{pr},\qquad \sum_r k_{ptrq} = f_{tq}

Each is charged at the price of the traffic it causes.
"""

from __future__ import annotations

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Binary, Constraint, UnitInterval, Var


def add(ctx: Context) -> None:
    """Adds ``v_in``, ``v_first``, ``v_last`` and the traffic between regions."""
    m, spec = ctx.m, ctx.inputs.spec
    places = sorted({(spec.options[o].task, spec.options[o].region) for o, _ in [*m.USES, *m.LOOSE]})
    m.PLACES = places
    of_task: dict[int, list[int]] = {}
    for task, region in places:
        of_task.setdefault(task, []).append(region)
    m.regions_of_task = of_task
    m.v_in = Var(places, within=Binary)
    m.v_first = Var(places, within=UnitInterval)
    m.v_last = Var(places, within=UnitInterval)
    m.c_use_needs_region = Constraint(
        m.USES, rule=lambda m, o, w: m.v_used[o, w] <= m.v_in[spec.options[o].task, spec.options[o].region]
    )
    tasks = sorted(of_task)
    m.c_one_first = Constraint(tasks, rule=lambda m, t: sum(m.v_first[t, r] for r in of_task[t]) == 1)
    m.c_one_last = Constraint(tasks, rule=lambda m, t: sum(m.v_last[t, r] for r in of_task[t]) == 1)
    m.c_two_regions = Constraint(
        [t for t in tasks if len(of_task[t]) > 2],
        rule=lambda m, t: sum(m.v_in[t, r] for r in of_task[t]) <= 2,
    )
    for task, region in places:
        staging = ctx.inputs.money(spec.staging_usd.get((task, region), 0.0))
        if staging:
            ctx.charge("network", task, staging * m.v_in[task, region])
    _add_moves(ctx)
    _add_order(ctx)
    _add_handovers(ctx)


def _add_moves(ctx: Context) -> None:
    m, spec = ctx.m, ctx.inputs.spec
    of_task = m.regions_of_task
    moves = [(t, a, b) for t in of_task for a in of_task[t] for b in of_task[t] if a != b]
    m.v_move = Var(moves, within=UnitInterval)
    m.c_enters = Constraint(
        m.PLACES,
        rule=lambda m, t, r: (
            m.v_first[t, r] + sum(m.v_move[t, q, r] for q in of_task[t] if q != r) == m.v_in[t, r]
        ),
    )
    m.c_leaves = Constraint(
        m.PLACES,
        rule=lambda m, t, r: (
            m.v_last[t, r] + sum(m.v_move[t, r, q] for q in of_task[t] if q != r) == m.v_in[t, r]
        ),
    )
    for move in moves:
        price = ctx.inputs.money(spec.move_usd.get(move, 0.0))
        if price:
            ctx.charge("network", move[0], price * m.v_move[move])


def _add_order(ctx: Context) -> None:
    """First region before last region, window by window."""
    m, spec = ctx.m, ctx.inputs.spec
    if len(spec.windows) == 1:
        return
    of_task = m.regions_of_task
    cells = [(t, w) for t, w in m.CELLS if len(of_task[t]) > 1]
    m.v_moved = Var(cells, within=Binary)
    windows_of: dict[int, list[int]] = {}
    for t, w in cells:
        windows_of.setdefault(t, []).append(w)
    before = {(t, w): prior for t, ws in windows_of.items() for prior, w in zip(ws, ws[1:], strict=False)}
    m.c_stays_moved = Constraint(
        list(before), rule=lambda m, t, w: m.v_moved[t, w] >= m.v_moved[t, before[t, w]]
    )
    uses = [(o, w) for o, w in m.USES if (spec.options[o].task, w) in m.v_moved]
    m.c_last_after_move = Constraint(
        [use for use in uses if (spec.options[use[0]].task, use[1]) in before],
        rule=lambda m, o, w: (
            m.v_used[o, w]
            <= m.v_last[spec.options[o].task, spec.options[o].region]
            + 1
            - m.v_moved[spec.options[o].task, before[spec.options[o].task, w]]
        ),
    )
    m.c_first_before_move = Constraint(
        uses,
        rule=lambda m, o, w: (
            m.v_used[o, w]
            <= m.v_first[spec.options[o].task, spec.options[o].region] + m.v_moved[spec.options[o].task, w]
        ),
    )


def _add_handovers(ctx: Context) -> None:
    m, spec = ctx.m, ctx.inputs.spec
    of_task = m.regions_of_task
    pairs = [
        (p, t)
        for t, task in enumerate(spec.tasks)
        for p in task.predecessors
        if p in of_task and t in of_task
    ]
    pairs = [pair for pair in pairs if any(key[:2] == pair for key in spec.handover_usd)]
    arcs = [(p, t, a, b) for p, t in pairs for a in of_task[p] for b in of_task[t]]
    m.v_handover = Var(arcs, within=UnitInterval)
    m.c_hands_over = Constraint(
        [(p, t, a) for p, t in pairs for a in of_task[p]],
        rule=lambda m, p, t, a: sum(m.v_handover[p, t, a, b] for b in of_task[t]) == m.v_last[p, a],
    )
    m.c_takes_over = Constraint(
        [(p, t, b) for p, t in pairs for b in of_task[t]],
        rule=lambda m, p, t, b: sum(m.v_handover[p, t, a, b] for a in of_task[p]) == m.v_first[t, b],
    )
    for arc in arcs:
        price = ctx.inputs.money(spec.handover_usd.get(arc, 0.0))
        if price:
            ctx.charge("network", arc[1], price * m.v_handover[arc])
