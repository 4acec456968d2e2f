r"""Nodes in use never exceed what is there: quotas, owned nodes, purchases, the case's ceiling.

.. math::
    n_{trw} \ge N_o u_{ow} \quad (r(o) = r,\ t(o) = t),\qquad
    \sum_{t \in A} n_{trw} \le H_{rw} + \sum_{k \ni w} N_k y_k,\qquad
    n_{tw} \ge N_o u_{ow} \quad (t(o) = t),\qquad \sum_{t \in A} n_{tw} \le N^{max}

for every largest set :math:`A` of tasks that may run at the same time. Options of one task run one
after the other, so a task needs the most nodes of any option it uses in the window. Where nothing
is shared and nothing is bought, an option that does not fit simply has no column.
"""

from __future__ import annotations

from math import inf

from trainplan.pyomo_core import Constraint, NonNegativeReals, Var

from trainplan.formulation.context import Context

Key = tuple[int, int, int]
"""(task, resource, window)."""
Groups = tuple[tuple[int, ...], ...]


def add(ctx: Context) -> None:
    """Adds ``v_nodes`` where a limit can bind, and the limits."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    by_key: dict[Key, list[tuple[int, int]]] = {}
    for option, window in inputs.uses:
        o = spec.options[option]
        by_key.setdefault((o.task, o.resource, window), []).append((option, window))
    groups = spec.parallel_groups
    shared = any(len(group) > 1 for group in groups)
    keys = [key for key in sorted(by_key) if _limited(ctx, key, shared)]
    m.v_nodes = Var(keys, within=NonNegativeReals)
    wanted = [(key, use) for key in keys for use in by_key[key]]
    m.c_nodes_in_use = Constraint(
        range(len(wanted)),
        rule=lambda m, i: (
            m.v_nodes[wanted[i][0]] >= spec.options[wanted[i][1][0]].nodes * m.v_used[wanted[i][1]]
        ),
    )
    _add_resource_limits(ctx, keys, groups)
    if spec.max_nodes < inf:
        _add_ceiling(ctx, groups)


def _limited(ctx: Context, key: Key, shared: bool) -> bool:
    resource = ctx.inputs.spec.resources[key[1]]
    return resource.committed or (shared and resource.held_nodes[key[2]] < inf)


def _add_resource_limits(ctx: Context, keys: list[Key], groups: Groups) -> None:
    m, spec = ctx.m, ctx.inputs.spec
    cells: list[tuple[tuple[int, ...], int, int]] = []
    for resource, window in sorted({(r, w) for _, r, w in keys}):
        here = {tuple(t for t in group if (t, resource, window) in m.v_nodes) for group in groups}
        if spec.resources[resource].held_nodes[window] < inf:
            cells.extend((group, resource, window) for group in sorted(here) if group)

    def within_stock(m: object, i: int) -> object:
        group, resource, window = cells[i]
        bought = sum(
            product.nodes * ctx.m.v_bought[k]
            for k, product in enumerate(spec.products)
            if product.resource == resource and product.first_window <= window <= product.last_window
        )
        held = spec.resources[resource].held_nodes[window]
        return sum(ctx.m.v_nodes[t, resource, window] for t in group) <= held + bought

    m.c_within_stock = Constraint(range(len(cells)), rule=within_stock)


def _add_ceiling(ctx: Context, groups: Groups) -> None:
    """Tasks side by side add up; a task's own options, which follow each other, do not."""
    m, spec = ctx.m, ctx.inputs.spec
    largest = {cell: max(spec.options[o].nodes for o, _ in m.uses_of_cell[cell]) for cell in m.CELLS}
    rows: set[tuple[tuple[int, ...], int]] = set()
    for window in m.WINDOWS:
        for group in groups:
            here = tuple(t for t in group if (t, window) in largest)
            if len(here) > 1 or any(largest[t, window] > spec.max_nodes for t in here):
                rows.add((here, window))
    cells = sorted({(t, window) for group, window in rows for t in group})
    m.v_working = Var(cells, within=NonNegativeReals)
    m.c_working = Constraint(
        [use for cell in cells for use in m.uses_of_cell[cell]],
        rule=lambda m, o, w: m.v_working[spec.options[o].task, w] >= spec.options[o].nodes * m.v_used[o, w],
    )
    for group, window in sorted(rows):
        body = sum(m.v_working[t, window] for t in group)
        ctx.limit("resources.max_nodes", body, spec.max_nodes, unit="nodes", per_unit=1.0)
