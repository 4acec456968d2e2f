r"""Which options do which share of each task.

For option :math:`o` of task :math:`t(o)` and window :math:`w` in ``USES``:

.. math::
    x_{ow} \ge 0,\quad u_{ow} \in \{0, 1\},\quad
    x_{ow} \le R_{ow} u_{ow} + (\bar R_{ow} - R_{ow}) k_{ow}

    \sum_{o: t(o) = t} \sum_w x_{ow} = 1 \quad(\text{or } \theta \text{ for scalable tasks})

    s_{ow} = u_{ow} - k_{ow},\qquad k_{ow} \le u_{ow},\quad k_{ow} \le u_{o,w-1}

``R`` is the largest share the window has time for after a setup and :math:`\bar R` without one, so every
link is as tight as it can be. ``k`` says that the option runs on from the window before (see ``schedule``);
otherwise it is set up: ``s``.
"""

from __future__ import annotations

from trainplan.formulation.context import Context
from trainplan.inputs import share_without_setup
from trainplan.problem import ProblemSpec
from trainplan.pyomo_core import Binary, Constraint, NonNegativeReals, Var

LEAST_GAIN = 1e-7
"""Shares closer than this are one and the same; their difference would be no coefficient."""


def add(ctx: Context) -> None:
    """Adds ``v_share``, ``v_used``, ``v_runs_on`` and completeness."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    uses = list(inputs.uses)
    m.USES = uses
    m.TASKS = list(range(len(spec.tasks)))
    m.WINDOWS = list(range(len(spec.windows)))
    runs_on = [(o, w) for o, w in uses if (o, w - 1) in inputs.uses]
    m.LOOSE = list(inputs.loose)
    most = inputs.uses | {
        (o, w): share_without_setup(spec, o, w, inputs.most_scale) for o, w in [*runs_on, *m.LOOSE]
    }
    m.v_share = Var([*uses, *m.LOOSE], within=NonNegativeReals, bounds=lambda _, o, w: (0.0, most[o, w]))
    m.v_used = Var(uses, within=Binary)
    m.v_runs_on = Var(runs_on, within=Binary)
    least_scale = 0.0 if spec.question == "most-tokens" else 1.0
    m.v_scale = Var(within=NonNegativeReals, bounds=(least_scale, inputs.most_scale))

    def share_needs_use(m: object, o: int, w: int) -> object:
        with_setup, without = inputs.uses[o, w], most[o, w]
        if without - with_setup < LEAST_GAIN:
            return ctx.m.v_share[o, w] <= without * ctx.m.v_used[o, w]
        more = (without - with_setup) * ctx.m.v_runs_on[o, w]
        return ctx.m.v_share[o, w] <= with_setup * ctx.m.v_used[o, w] + more

    m.c_share_needs_use = Constraint(uses, rule=share_needs_use)
    by_task: dict[int, list[tuple[int, int]]] = {task: [] for task in m.TASKS}
    for option, window in [*uses, *m.LOOSE]:
        by_task[spec.options[option].task].append((option, window))
    m.uses_of_task = by_task
    m.EARLIEST_END_DAYS = _earliest_end_days(spec, by_task)
    m.c_complete = Constraint(
        [task for task in m.TASKS if by_task[task]],
        rule=lambda m, t: (
            sum(m.v_share[use] for use in by_task[t]) == (m.v_scale if spec.tasks[t].scalable else 1.0)
        ),
    )
    # A task that nothing can do has no share to sum, and a row without a variable is no row.
    impossible = [task for task in m.TASKS if not by_task[task]]
    m.v_share_of_none = Var(impossible, bounds=(0.0, 0.0))
    m.c_impossible = Constraint(impossible, rule=lambda m, t: m.v_share_of_none[t] == 1.0)
    _add_starts(ctx)


def _earliest_end_days(spec: ProblemSpec, uses_of_task: dict[int, list[tuple[int, int]]]) -> float:
    """Before which no plan ends: every task by its fastest option, as soon as what it follows is done."""
    ends: dict[int, float] = {}
    waiting = list(range(len(spec.tasks)))
    while waiting:
        task = next(t for t in waiting if ends.keys() >= set(spec.tasks[t].predecessors))
        waiting.remove(task)
        begin = max([spec.tasks[task].release_days, *(ends[p] for p in spec.tasks[task].predecessors)])
        known = {o for o, _ in uses_of_task[task]}
        least = min((spec.options[o].work_days + spec.options[o].setup_days for o in known), default=0.0)
        # Of work that may be stretched there may also be none.
        ends[task] = 0.0 if spec.tasks[task].scalable else begin + least
    return max(ends.values())


def _add_starts(ctx: Context) -> None:
    m, inputs = ctx.m, ctx.inputs
    runs_on = list(m.v_runs_on)
    m.c_runs_on_here = Constraint(runs_on, rule=lambda m, o, w: m.v_runs_on[o, w] <= m.v_used[o, w])
    m.c_runs_on_from = Constraint(runs_on, rule=lambda m, o, w: m.v_runs_on[o, w] <= m.v_used[o, w - 1])
    m.e_begins = {
        use: m.v_used[use] - m.v_runs_on[use] if use in m.v_runs_on else m.v_used[use] for use in inputs.uses
    }
    m.e_time = {
        (o, w): inputs.time(inputs.spec.options[o].work_days) * m.v_share[o, w]
        + inputs.time(inputs.spec.options[o].setup_days) * m.e_begins[o, w]
        for o, w in inputs.uses
    }
    m.e_time |= {(o, w): inputs.time(inputs.spec.options[o].work_days) * m.v_share[o, w] for o, w in m.LOOSE}
