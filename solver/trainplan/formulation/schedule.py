r"""When tasks run: continuous time within windows, precedence, and the end of the programme.

Task :math:`t` occupies one stretch of window :math:`w`, from :math:`b_{tw}` for :math:`\ell_{tw}`:

.. math::
    \ell_{tw} = \sum_{o: t(o)=t} D_o x_{ow} + S_o s_{ow},\qquad
    b_{tw} + \ell_{tw} \le L_w,\qquad u_{ow} \le a_{tw}

For each predecessor :math:`p` of :math:`t`, once :math:`t` runs, :math:`p` is complete, and within a
window they follow each other:

.. math::
    a_{tw} \le \sum_{w' \le w} \sum_{o: t(o)=p} x_{ow'},\qquad b_{tw} \ge b_{pw} + \ell_{pw}

What runs on from one window into the next does so without a gap, as the last of the one and the first of
the other, so at most one option of a task does; one that runs in and out of a window has it to itself:

.. math::
    \sum_{o: t(o)=t} k_{ow} \le 1,\qquad b_{tw} \le L_w (1 - \sum_o k_{ow}),\qquad
    b_{t,w-1} + \ell_{t,w-1} \ge L_{w-1} \sum_o k_{ow}

    \sum_{o'} u_{o'w} \le 1 + (|O_{tw}| - 1) (2 - k_{ow} - k_{o,w+1})

The programme ends at :math:`F \ge B_w a_{tw} + b_{tw} + \ell_{tw}`.
"""

from __future__ import annotations

from typing import Any

from trainplan.formulation import loose
from trainplan.formulation.context import Context
from trainplan.pyomo_core import Binary, Constraint, NonNegativeReals, Var


def add(ctx: Context) -> None:
    """Adds ``v_active``, ``v_begin``, ``v_finish`` and their order."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    cells = sorted({(spec.options[o].task, w) for o, w in [*m.USES, *m.LOOSE]})
    m.CELLS = cells
    m.v_active = Var(cells, within=Binary)
    m.v_begin = Var(cells, within=NonNegativeReals, bounds=lambda _, t, w: (0.0, inputs.length(w)))
    horizon = inputs.time(spec.windows[-1][1])
    m.v_finish = Var(within=NonNegativeReals, bounds=(0.0, horizon))
    in_cell: dict[tuple[int, int], list[tuple[int, int]]] = {cell: [] for cell in cells}
    for option, window in inputs.uses:
        in_cell[spec.options[option].task, window].append((option, window))
    m.uses_of_cell = in_cell
    m.e_length = {cell: sum(m.e_time[use] for use in in_cell[cell]) for cell in cells}
    loose.add_lengths(ctx)
    m.c_use_needs_active = Constraint(
        m.USES, rule=lambda m, o, w: m.v_used[o, w] <= m.v_active[spec.options[o].task, w]
    )
    m.c_fits_window = Constraint(
        cells, rule=lambda m, t, w: m.v_begin[t, w] + m.e_length[t, w] <= inputs.length(w)
    )
    m.c_ends_programme = Constraint(
        cells,
        rule=lambda m, t, w: (
            m.v_finish >= inputs.start(w) * m.v_active[t, w] + m.v_begin[t, w] + m.e_length[t, w]
        ),
    )
    _add_precedence(ctx)
    _add_running_on(ctx)


def _add_running_on(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    into: dict[tuple[int, int], list[int]] = {}
    for option, window in m.v_runs_on:
        into.setdefault((spec.options[option].task, window), []).append(option)
    cells = list(into)

    def run_on(t: int, w: int) -> Any:
        return sum(ctx.m.v_runs_on[o, w] for o in into[t, w])

    m.c_one_runs_on = Constraint(
        [cell for cell in cells if len(into[cell]) > 1], rule=lambda m, t, w: run_on(t, w) <= 1
    )
    m.c_no_gap_after = Constraint(
        cells, rule=lambda m, t, w: m.v_begin[t, w] + inputs.length(w) * run_on(t, w) <= inputs.length(w)
    )
    m.c_no_gap_before = Constraint(
        cells,
        rule=lambda m, t, w: (
            m.v_begin[t, w - 1] + m.e_length[t, w - 1] >= inputs.length(w - 1) * run_on(t, w)
        ),
    )
    through = [(o, w) for o, w in m.v_runs_on if (o, w + 1) in m.v_runs_on]
    crowded = sorted({(spec.options[o].task, w) for o, w in through})
    crowded = [cell for cell in crowded if len(m.uses_of_cell[cell]) > 1]
    # One count per cell keeps the rows below short: there is one for each option.
    m.v_count = Var(crowded, within=NonNegativeReals)
    m.c_count = Constraint(
        crowded, rule=lambda m, t, w: m.v_count[t, w] == sum(m.v_used[use] for use in m.uses_of_cell[t, w])
    )
    m.c_alone_when_running_through = Constraint(
        [(o, w) for o, w in through if (spec.options[o].task, w) in m.v_count],
        rule=lambda m, o, w: (
            m.v_count[spec.options[o].task, w]
            <= 1
            + (len(m.uses_of_cell[spec.options[o].task, w]) - 1)
            * (2 - m.v_runs_on[o, w] - m.v_runs_on[o, w + 1])
        ),
    )


def _add_precedence(ctx: Context) -> None:
    m, spec = ctx.m, ctx.inputs.spec
    cells = set(m.CELLS)
    pairs = [(p, t) for t, task in enumerate(spec.tasks) for p in task.predecessors]

    def complete(m: object, p: int, t: int, w: int) -> object:
        done = sum(ctx.m.v_share[use] for use in ctx.m.uses_of_task[p] if use[1] <= w)
        return ctx.m.v_active[t, w] <= done if not spec.tasks[p].scalable else Constraint.Skip

    ordered = [(p, t, w) for p, t in pairs for w in m.WINDOWS if (t, w) in cells]
    m.c_predecessor_complete = Constraint(ordered, rule=complete)
    same = [(p, t, w) for p, t, w in ordered if (p, w) in cells]
    m.c_follows_in_window = Constraint(
        same, rule=lambda m, p, t, w: m.v_begin[t, w] >= m.v_begin[p, w] + m.e_length[p, w]
    )
    late = [
        (p, t, before, after)
        for p, t in pairs
        if spec.tasks[p].scalable
        for before, after in ((w, v) for w in m.WINDOWS for v in m.WINDOWS if w < v)
        if (t, before) in cells and (p, after) in cells
    ]
    m.c_predecessor_over = Constraint(
        late, rule=lambda m, p, t, before, after: m.v_active[t, before] + m.v_active[p, after] <= 1
    )
