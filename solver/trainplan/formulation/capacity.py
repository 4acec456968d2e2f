r"""Nodes in use never exceed what is there: quotas, owned nodes, purchases, the case's ceiling.

.. math::
    n_{trw} \ge N_{or} u_{ow} \quad (t(o) = t),\qquad n_{tw} \ge \sum_r N_{or} u_{ow} \quad (t(o) = t)

with :math:`N_{or}` the nodes an option takes of a resource. Options of one task run one after the
other, so a task needs the most nodes of any option it uses in the window. Two tasks that do not follow each
other may run side by side, or one after the other: :math:`q_{stw}` says that :math:`s` ends before
:math:`t` begins,

.. math::
    b_{tw} \ge b_{sw} + \ell_{sw} - L_w (1 - q_{stw}),\qquad q_{stw} + q_{tsw} \le 1

For every set :math:`A` of tasks that may all run at the same time, with
:math:`Q_{Aw} = \sum_{s,t \in A} q_{stw}` (0 when all are side by side),

.. math::
    \sum_{t \in A} n_{trw} \le H_{rw} + \sum_{k \in r} y_k + M_{Arw} Q_{Aw},\qquad
    \sum_{t \in A} n_{tw} \le N^{max} + M_{Aw} Q_{Aw}

and :math:`M` what the sum can exceed its limit by. Where several purchases of a resource can be made, what is
drawn from each, :math:`z_{trwp}` for :math:`n_{trw}`, is within what it holds.

Where there are too many such sets, tasks of one chain of the precedence count once, with the most nodes any
of them has in the window, and nobody takes turns:

.. math::
    n_{crw} \ge n_{trw} \quad (t \in c),\qquad \sum_c n_{crw} \le H_{rw} + \sum_{k \in r} y_k

which every plan of it satisfies the limits by, though it may miss a better one. Where nothing is shared and
nothing is bought, an option that does not fit simply has no column.
"""

from __future__ import annotations

from math import inf
from typing import Any

from trainplan.formulation.commitments import bought
from trainplan.formulation.context import Context
from trainplan.pyomo_core import Binary, Constraint, NonNegativeReals, Var

Key = tuple[int, int, int]
"""(task, resource, window)."""
Group = tuple[int, ...]


def add(ctx: Context) -> None:
    """Adds ``v_nodes`` and ``v_ends_before`` where a limit can bind, and the limits."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    by_key: dict[Key, list[tuple[int, int]]] = {}
    for option, window in inputs.uses:
        o = spec.options[option]
        for resource, _ in o.taken:
            by_key.setdefault((o.task, resource, window), []).append((option, window))
    wide = spec.wide
    groups = () if wide else spec.side_by_side
    shared = wide or any(len(group) > 1 for group in groups)
    keys = [key for key in sorted(by_key) if _limited(ctx, key, shared)]
    m.v_nodes = Var(keys, within=NonNegativeReals)
    wanted = [(key, use) for key in keys for use in by_key[key]]
    m.c_nodes_in_use = Constraint(
        range(len(wanted)),
        rule=lambda m, i: (
            m.v_nodes[wanted[i][0]]
            >= spec.options[wanted[i][1][0]].nodes_of(wanted[i][0][1]) * m.v_used[wanted[i][1]]
        ),
    )
    largest = {key: max(spec.options[o].nodes_of(key[1]) for o, _ in by_key[key]) for key in keys}
    if wide:
        _add_by_chain(ctx, largest)
        return
    stock = _stock_rows(ctx, largest, groups)
    ceiling = _ceiling_rows(ctx, groups) if spec.max_nodes < inf else []
    _add_order(ctx, [(group, w) for group, _, w in stock] + [(group, w) for group, w in ceiling])
    _add_stock(ctx, stock, largest)
    _add_ceiling(ctx, ceiling)


def _limited(ctx: Context, key: Key, shared: bool) -> bool:
    resource = ctx.inputs.spec.resources[key[1]]
    return resource.committed or (shared and resource.held_nodes[key[2]] < inf)


def _stock_rows(
    ctx: Context, largest: dict[Key, int], groups: tuple[Group, ...]
) -> list[tuple[Group, int, int]]:
    """(tasks, resource, window) for which the sum of nodes can exceed what is there."""
    spec = ctx.inputs.spec
    rows = set()
    for resource, window in sorted({(r, w) for _, r, w in largest}):
        held = spec.resources[resource].held_nodes[window]
        if held == inf:
            continue
        for group in groups:
            here = all((t, resource, window) in largest for t in group)
            if here and sum(largest[t, resource, window] for t in group) > held:
                rows.add((group, resource, window))
    return sorted(rows)


def _ceiling_rows(ctx: Context, groups: tuple[Group, ...]) -> list[tuple[Group, int]]:
    m, spec = ctx.m, ctx.inputs.spec
    m.largest = {
        cell: max((spec.options[o].all_nodes for o, _ in m.uses_of_cell[cell]), default=0) for cell in m.CELLS
    }
    return sorted(
        (group, window)
        for window in m.WINDOWS
        for group in groups
        if all((t, window) in m.largest for t in group)
        and sum(m.largest[t, window] for t in group) > spec.max_nodes
    )


def _add_order(ctx: Context, cells: list[tuple[Group, int]]) -> None:
    """Which of two tasks ends before the other begins, where it matters."""
    m, inputs = ctx.m, ctx.inputs
    pairs = sorted({(s, t, w) for group, w in cells for s in group for t in group if s != t})
    m.v_ends_before = Var(pairs, within=Binary)
    m.c_ends_before = Constraint(
        pairs,
        rule=lambda m, s, t, w: (
            m.v_begin[t, w]
            >= m.v_begin[s, w] + m.e_length[s, w] - inputs.length(w) * (1 - m.v_ends_before[s, t, w])
        ),
    )
    m.c_one_order = Constraint(
        [pair for pair in pairs if pair[0] < pair[1]],
        rule=lambda m, s, t, w: m.v_ends_before[s, t, w] + m.v_ends_before[t, s, w] <= 1,
    )


def _apart(ctx: Context, group: Group, window: int) -> Any:
    """How many pairs of a group run one after the other."""
    return sum(ctx.m.v_ends_before[s, t, window] for s in group for t in group if s != t)


def _add_stock(ctx: Context, rows: list[tuple[Group, int, int]], largest: dict[Key, int]) -> None:
    m, spec = ctx.m, ctx.inputs.spec

    def within_stock(m: object, i: int) -> object:
        group, resource, window = rows[i]
        held = spec.resources[resource].held_nodes[window]
        above = sum(largest[t, resource, window] for t in group) - held
        used = sum(ctx.m.v_nodes[t, resource, window] for t in group)
        return used <= held + _bought(ctx, resource) + above * _apart(ctx, group, window)

    m.c_within_stock = Constraint(
        [i for i, row in enumerate(rows) if row[1] not in m.purchases_of], rule=within_stock
    )

    def within_purchase(m: object, i: int, purchase: int) -> object:
        group, resource, window = rows[i]
        above = sum(largest[t, resource, window] for t in group)
        drawn = sum(ctx.m.v_drawn[t, resource, window, purchase] for t in group)
        return drawn <= bought(ctx, resource, purchase) + above * _apart(ctx, group, window)

    m.c_within_purchase = Constraint(
        [(i, p) for i, row in enumerate(rows) for p in m.purchases_of.get(row[1], ())], rule=within_purchase
    )


def _bought(ctx: Context, resource: int) -> Any:
    """Nodes bought of a resource of which at most one purchase is made."""
    return bought(ctx, resource, 0) if (resource, 0) in ctx.m.products_of else 0


def _add_ceiling(ctx: Context, rows: list[tuple[Group, int]]) -> None:
    """Tasks side by side add up; a task's own options, which follow each other, do not."""
    m, spec = ctx.m, ctx.inputs.spec
    cells = sorted({(t, window) for group, window in rows for t in group})
    m.v_working = Var(cells, within=NonNegativeReals)
    m.c_working = Constraint(
        [use for cell in cells for use in m.uses_of_cell[cell]],
        rule=lambda m, o, w: (
            m.v_working[spec.options[o].task, w] >= spec.options[o].all_nodes * m.v_used[o, w]
        ),
    )
    for group, window in rows:
        above = sum(m.largest[t, window] for t in group) - spec.max_nodes
        body = sum(m.v_working[t, window] for t in group) - above * _apart(ctx, group, window)
        ctx.limit("resources.max_nodes", body, spec.max_nodes, unit="nodes", per_unit=1.0)


def _add_drawn_by_chain(ctx: Context, chain_of: dict[int, int]) -> None:
    """What tasks of one chain draw from a purchase counts once."""
    m = ctx.m
    parts = sorted({(chain_of[t], *place) for t, *place in m.v_drawn})
    m.v_chain_drawn = Var(parts, within=NonNegativeReals)
    m.c_chain_drawn = Constraint(
        list(m.v_drawn),
        rule=lambda m, t, r, w, p: m.v_chain_drawn[chain_of[t], r, w, p] >= m.v_drawn[t, r, w, p],
    )
    m.c_within_purchase_by_chain = Constraint(
        sorted({part[1:] for part in parts}),
        rule=lambda m, r, w, p: (
            sum(m.v_chain_drawn[part] for part in parts if part[1:] == (r, w, p)) <= bought(ctx, r, p)
        ),
    )


def _add_by_chain(ctx: Context, largest: dict[Key, int]) -> None:
    """Limits where there are too many sets of tasks side by side to look at each."""
    m, spec = ctx.m, ctx.inputs.spec
    chain_of = {t: c for c, chain in enumerate(spec.chains) for t in chain}
    places = sorted({(r, w) for _, r, w in largest if spec.resources[r].held_nodes[w] < inf})
    parts = sorted({(chain_of[t], r, w) for t, r, w in largest if (r, w) in set(places)})
    m.v_chain_nodes = Var(parts, within=NonNegativeReals)
    m.c_chain_nodes = Constraint(
        [key for key in largest if (key[1], key[2]) in set(places)],
        rule=lambda m, t, r, w: m.v_chain_nodes[chain_of[t], r, w] >= m.v_nodes[t, r, w],
    )
    of_place = {place: [part for part in parts if part[1:] == place] for place in places}

    def within(m: object, r: int, w: int) -> object:
        held = spec.resources[r].held_nodes[w] + _bought(ctx, r)
        return sum(ctx.m.v_chain_nodes[p] for p in of_place[r, w]) <= held

    m.c_within_stock_by_chain = Constraint([p for p in places if p[0] not in m.purchases_of], rule=within)
    _add_drawn_by_chain(ctx, chain_of)
    if spec.max_nodes == inf:
        return
    cells = sorted({(chain_of[t], w) for t, w in m.CELLS})
    m.v_chain_working = Var(cells, within=NonNegativeReals)
    m.c_chain_working = Constraint(
        m.USES,
        rule=lambda m, o, w: (
            m.v_chain_working[chain_of[spec.options[o].task], w] >= spec.options[o].all_nodes * m.v_used[o, w]
        ),
    )
    for window in m.WINDOWS:
        body = sum(m.v_chain_working[cell] for cell in cells if cell[1] == window)
        ctx.limit("resources.max_nodes", body, spec.max_nodes, unit="nodes", per_unit=1.0)
