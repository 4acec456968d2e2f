r"""Options without whole numbers, for bounds over more options than can have them.

A loose option has a share in each window and nothing else, and what holds for every way of using it. Of what it
sets up, as much lies in the windows of its task as its share of the task at least needs:

.. math::
    \ell_{tw} = \dots + \sum_{o \in L_t} D_o x_{ow} + \sigma_{tw},\qquad
    \sum_w \sigma_{tw} \ge \sum_{o \in L_t} S_o \sum_w x_{ow} / \Theta

    \sum_{o \in L_t} x_{ow} \le \Theta a_{tw},\qquad
    \sum_{o \in L_t: r(o)=r} \sum_w x_{ow} \le \Theta g_{tr}

    \text{cost} = \sum_{o \in L} \sum_w c_{ow} D_o x_{ow} + (S_o \min_w c_{ow} + C_o) x_{ow} / \Theta

with :math:`\Theta` the largest stretch of the task (1 for most). What uses loose options is no plan; the best
value is at most that of the best plan over all options.
"""

from __future__ import annotations

from typing import Any

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Constraint, NonNegativeReals, Var

Use = tuple[int, int]
"""(option, window)."""


def _stretch(ctx: Context, task: int) -> float:
    return ctx.inputs.most_scale if ctx.inputs.spec.tasks[task].scalable else 1.0


def add_lengths(ctx: Context) -> None:
    """Adds the time of loose options to that of their tasks in each window."""
    m, inputs = ctx.m, ctx.inputs
    options = inputs.spec.options
    in_cell: dict[tuple[int, int], list[Use]] = {}
    for o, w in m.LOOSE:
        in_cell.setdefault((options[o].task, w), []).append((o, w))
    m.LOOSE_OF_CELL = in_cell
    m.v_setup = Var(list(in_cell), within=NonNegativeReals, bounds=lambda _, t, w: (0.0, inputs.length(w)))
    for cell, uses in in_cell.items():
        m.e_length[cell] += sum(m.e_time[use] for use in uses) + m.v_setup[cell]


def setup_time(ctx: Context, task: int) -> Any:
    """Time in which loose options of a task are set up."""
    return sum(ctx.m.v_setup[cell] for cell in ctx.m.v_setup if cell[0] == task)


def add(ctx: Context) -> None:
    """Adds what loose options need and cost beside their time in use."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    options = spec.options
    tasks = sorted({task for task, _ in m.LOOSE_OF_CELL})
    m.c_setup = Constraint(
        tasks,
        rule=lambda m, t: (
            setup_time(ctx, t)
            >= sum(
                inputs.time(options[o].setup_days) / _stretch(ctx, t) * m.v_share[o, w]
                for o, w in m.LOOSE
                if options[o].task == t
            )
        ),
    )
    m.c_loose_needs_active = Constraint(
        list(m.LOOSE_OF_CELL),
        rule=lambda m, t, w: (
            sum(m.v_share[use] for use in m.LOOSE_OF_CELL[t, w]) <= _stretch(ctx, t) * m.v_active[t, w]
        ),
    )
    in_place: dict[tuple[int, int], list[Use]] = {}
    clouds: dict[tuple[int, str], list[Use]] = {}
    for o, w in m.LOOSE:
        option = spec.options[o]
        in_place.setdefault((option.task, option.region), []).append((o, w))
        if option.cloud in m.v_cloud:
            clouds.setdefault((option.task, option.cloud), []).append((o, w))
    m.c_loose_needs_region = Constraint(
        list(in_place),
        rule=lambda m, t, r: sum(m.v_share[use] for use in in_place[t, r]) <= _stretch(ctx, t) * m.v_in[t, r],
    )
    m.c_loose_needs_cloud = Constraint(
        list(clouds),
        rule=lambda m, t, c: sum(m.v_share[use] for use in clouds[t, c]) <= _stretch(ctx, t) * m.v_cloud[c],
    )
    for o, w in m.LOOSE:
        option = spec.options[o]
        usd = option.setup_days * spec.cheapest_daily_usd(o) + option.once_usd
        if inputs.money(usd):
            ctx.charge(
                "compute", option.task, inputs.money(usd) / _stretch(ctx, option.task) * m.v_share[o, w]
            )
