r"""Rows that follow from the others for whole numbers and tighten the relaxation.

What runs at the same time in a window is bounded only through orders and big-M rows, which say little
while binaries are fractions. Node-time says much: within a window, over a purchase, and until the end,

.. math::
    \sum_o N_{or} \tau_{ow} \le H_{rw} L_w,\qquad
    \sum_o \sum_w N_{or} \tau_{ow} \le \sum_{k \in r} (L_k - \tau_r) y_k

    \sum_o \sum_{v \ge w} N_{or} \tau_{ov} \le \max_{v \ge w} H_{rv} \rho_w(F),\qquad
    \sum_{o,r} \sum_{v \ge w} N_{or} \tau_{ov} \le N^{max} \rho_w(F)

with :math:`\tau_{ow} = D_o x_{ow} + S_o s_{ow}` and :math:`\rho_w(F)` the time left from the start of a
window on (see ``exclusion``). And with :math:`E_t` the end of a task, which takes its
stretches one after the other and follows its predecessors,

.. math::
    E_t \ge R_t + \sum_w \ell_{tw},\qquad E_t \ge E_p + \sum_w \ell_{tw},\qquad E_t \le F
"""

from __future__ import annotations

from math import inf
from typing import Any

from trainplan.formulation import loose
from trainplan.formulation.context import Context
from trainplan.formulation.exclusion import time_left, windows_to_the_end
from trainplan.pyomo_core import Constraint, NonNegativeReals, Var

Use = tuple[int, int]
"""(option, window)."""


def add(ctx: Context) -> None:
    """Adds node-time rows where nodes are limited, and the chain of task ends."""
    _add_node_time(ctx)
    _add_bought_time(ctx)
    _add_ends(ctx)


def _add_node_time(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    by_resource: dict[int, list[Use]] = {}
    for o, w in [*m.USES, *m.LOOSE]:
        for resource, nodes in spec.options[o].taken:
            if nodes:
                by_resource.setdefault(resource, []).append((o, w))
    limited = {
        r: uses
        for r, uses in by_resource.items()
        if not spec.resources[r].committed and len({spec.options[o].task for o, _ in uses}) > 1
    }
    cells = {
        (r, w): [use for use in uses if use[1] == w]
        for r, uses in limited.items()
        for w in sorted({w for _, w in uses})
        if 0.0 < spec.resources[r].held_nodes[w] < inf
    }
    m.c_node_time = Constraint(
        list(cells),
        rule=lambda m, r, w: (
            _node_time(ctx, cells[r, w], spec.resources[r].held_nodes[w], r) <= inputs.length(w)
        ),
    )
    most = {(r, w): max(spec.resources[r].held_nodes[w:]) for r in limited for w in windows_to_the_end(ctx)}
    m.c_node_time_until_end = Constraint(
        [(r, w) for r, w in most if 0.0 < most[r, w] < inf and any(v >= w for _, v in limited[r])],
        rule=lambda m, r, w: (
            _node_time(ctx, [use for use in limited[r] if use[1] >= w], most[r, w], r) <= time_left(ctx, w)
        ),
    )
    if any(limit.name == "resources.max_nodes" for limit in ctx.limits) and not spec.soft_limits:
        everything = list(dict.fromkeys(use for uses in by_resource.values() for use in uses))
        # Node-time is divided by the horizon, so that the slack, which is in nodes, is never worth too little.
        horizon = inputs.time(spec.windows[-1][1])
        for w in windows_to_the_end(ctx):
            later = [use for use in everything if use[1] >= w]
            if later:
                body = _node_time(ctx, later, horizon) - spec.max_nodes / horizon * time_left(ctx, w)
                ctx.limit("resources.max_nodes", body, 0.0, unit="nodes", per_unit=1.0)


def _node_time(ctx: Context, uses: list[Use], unit_nodes: float, resource: int | None = None) -> Any:
    """Node-time on a resource, or on all of them."""
    options = ctx.inputs.spec.options
    nodes = {o: options[o].all_nodes if resource is None else options[o].nodes_of(resource) for o, _ in uses}
    return sum(nodes[o] / unit_nodes * ctx.m.e_time[o, w] for o, w in uses)


def _add_bought_time(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    products: dict[int, list[int]] = {}
    for k, product in enumerate(spec.products):
        products.setdefault(product.resource, []).append(k)
    uses = {r: [(o, w) for o, w in [*m.USES, *m.LOOSE] if spec.options[o].nodes_of(r)] for r in products}

    def within(m: object, r: int) -> object:
        tail = spec.resources[r].unusable_tail_days
        bought = sum(
            inputs.time(max(spec.products[k].days - tail, 0.0)) * ctx.m.v_bought[k] for k in products[r]
        )
        return _node_time(ctx, uses[r], 1.0, r) <= bought

    m.c_bought_time = Constraint([r for r in products if uses[r]], rule=within)


def _add_ends(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    tasks = [t for t in m.TASKS if m.uses_of_task[t]]
    horizon_days = spec.windows[-1][1]
    m.v_ends = Var(
        tasks,
        within=NonNegativeReals,
        bounds=(0.0, inputs.time(horizon_days)),
    )
    lasts = {t: sum(m.e_time[use] for use in m.uses_of_task[t]) + loose.setup_time(ctx, t) for t in tasks}
    m.c_ends_after_release = Constraint(
        tasks, rule=lambda m, t: m.v_ends[t] >= inputs.time(spec.tasks[t].release_days) + lasts[t]
    )
    m.c_ends_after_predecessor = Constraint(
        [(p, t) for t in tasks for p in spec.tasks[t].predecessors if p in m.v_ends],
        rule=lambda m, p, t: m.v_ends[t] >= m.v_ends[p] + lasts[t],
    )
    m.c_ends_by_finish = Constraint(tasks, rule=lambda m, t: m.v_finish >= m.v_ends[t])
