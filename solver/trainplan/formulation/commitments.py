r"""What is bought: so many nodes of a committed resource, for one of the lengths it is sold in, from one day on.

Paid whether used or not. Purchase :math:`p` of resource :math:`r` is of at most one product :math:`k`:

.. math::
    y_k \in \{0, \dots, Y_k\},\quad p_k \in \{0, 1\},\quad y_k \le Y_k p_k,\quad
    \sum_{k \in (r, p)} p_k \le 1,\qquad \text{cost} = \sum_k P_k y_k

It begins on a whole day :math:`d_{rp}` and gives its nodes back :math:`\tau_r` before its end. What a
task does on it lies within, at the start of the task's stretch of the window:

.. math::
    B_w + b_{tw} \ge d_{rp} - M (1 - g_{trwp})

    B_w + b_{tw} + \sum_{o: r(o)=r} (D_o x_{ow} + S_o s_{ow})
        \le d_{rp} + \sum_{k \in (r, p)} (L_k - \tau_r) p_k + M (1 - g_{trwp})

    c_{trw} \ge u_{ow} \quad (r(o) = r)

Where only one purchase of a resource can be made, :math:`g_{trwp} = c_{trw}`. Else a task draws so many
nodes from each of them (``capacity`` sums what is drawn), from first to last of what it does there in the
window, to the end of its stretch where that runs on into the next window (by another purchase, it may be).
The purchases are told apart by their order in time:

.. math::
    n_{trw} \le \sum_p z_{trwp},\quad z_{trwp} \le Y_{rp} g_{trwp},\quad c_{trw} \le \sum_p g_{trwp},\quad
    g_{trwp} \le \sum_{k \in (r, p)} p_k,\qquad d_{rp} \le d_{r,p+1},\quad
    \sum_{k \in (r, p+1)} p_k \le \sum_{k \in (r, p)} p_k

Those that are there at the same time share the most that may be bought; :math:`a_{rpq}` says that
:math:`p` has ended when :math:`q` begins:

.. math::
    d_{rp} + \sum_{k \in (r, p)} L_k p_k \le d_{rq} + H (1 - a_{rpq}),\qquad
    \sum_{k \in (r, q)} y_k + \sum_{p < q} e_{rpq} \le Q_r,\quad
    e_{rpq} \ge \sum_{k \in (r, p)} y_k - Q_r a_{rpq}

A price that changes at a date is a product for each price, with the days on which it may begin:
:math:`F_k p_k \le d_{rp} \le \bar d_{rp} - (\bar d_{rp} - G_k) p_k`.

In a window a task uses one resource that has to be bought, nothing else of it runs on into that window
before, and in the window in which it moves to another region it uses none: :math:`\sum_r c_{trw} \le 1`,
:math:`c_{trw} + k_{ow} \le 1` and :math:`c_{trw} + u_{ow} \le 1` for options :math:`o` of another resource,
respectively of another region.
"""

from __future__ import annotations

from itertools import pairwise
from math import ceil, floor
from typing import Any

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Binary, Constraint, NonNegativeIntegers, NonNegativeReals, Var

Cell = tuple[int, int, int]
"""(task, resource, window)."""
Purchase = tuple[int, int]
"""(resource, which of its purchases)."""


def purchases(ctx: Context) -> dict[Purchase, list[int]]:
    """The purchases that can be made, with the products each can be of."""
    found: dict[Purchase, list[int]] = {}
    for k, product in enumerate(ctx.inputs.spec.products):
        found.setdefault((product.resource, product.purchase), []).append(k)
    return found


def bought(ctx: Context, resource: int, purchase: int) -> Any:
    """Nodes of a purchase."""
    return sum(ctx.m.v_bought[k] for k in ctx.m.products_of[resource, purchase])


def add_variables(ctx: Context) -> None:
    """Adds ``v_bought`` and what tasks draw where several purchases can be made; capacity reads them."""
    m, spec = ctx.m, ctx.inputs.spec
    products = spec.products
    numbers = range(len(products))
    m.v_bought = Var(numbers, within=NonNegativeIntegers, bounds=lambda _, k: (0, products[k].most))
    m.v_length = Var(numbers, within=Binary)
    m.products_of = purchases(ctx)
    numbers_of: dict[int, list[int]] = {}
    for r, p in m.products_of:
        numbers_of.setdefault(r, []).append(p)
    several = {r: sorted(found) for r, found in numbers_of.items() if len(found) > 1}
    m.purchases_of = several
    cells = sorted(
        {
            (spec.options[o].task, resource, w)
            for o, w in ctx.inputs.uses
            for resource, _ in spec.options[o].taken
            if resource in several
        }
    )
    drawn = [(*cell, p) for cell in cells for p in several[cell[1]]]
    m.v_draws = Var(drawn, within=Binary)
    m.v_drawn = Var(drawn, within=NonNegativeReals)


def add_prices(ctx: Context) -> None:
    """Adds the price of purchases."""
    for k, product in enumerate(ctx.inputs.spec.products):
        usd = ctx.inputs.money(product.usd_per_node)
        ctx.charge("compute", None, usd * ctx.m.v_bought[k], fixed=True)


def add(ctx: Context) -> None:
    """Adds the price of purchases, and that what runs on them lies within them."""
    m, spec = ctx.m, ctx.inputs.spec
    add_prices(ctx)
    m.c_bought_needs_length = Constraint(
        range(len(spec.products)), rule=lambda m, k: m.v_bought[k] <= spec.products[k].most * m.v_length[k]
    )
    m.c_one_length = Constraint(
        list(m.products_of),
        rule=lambda m, r, p: sum(m.v_length[k] for k in m.products_of[r, p]) <= 1,
    )
    horizon = spec.windows[-1][1]
    m.v_start_day = Var(
        list(m.products_of),
        within=NonNegativeIntegers,
        bounds=lambda _, r, p: (
            0,
            int(
                min(
                    spec.resources[r].latest_start_days,
                    horizon,
                    max(spec.products[k].last_day for k in m.products_of[r, p]),
                )
            ),
        ),
    )
    _add_price_days(ctx)
    _add_within(ctx)
    _add_several(ctx)


def _add_price_days(ctx: Context) -> None:
    """A price that is only to be had from a day on, or up to one."""
    m, products = ctx.m, ctx.inputs.spec.products

    def day(k: int) -> Any:
        return m.v_start_day[products[k].resource, products[k].purchase]

    m.c_price_from = Constraint(
        [k for k, product in enumerate(products) if product.first_day > 0.0],
        rule=lambda m, k: day(k) >= ceil(products[k].first_day) * m.v_length[k],
    )
    latest = {k: day(k).ub for k in range(len(products))}
    m.c_price_until = Constraint(
        [k for k, product in enumerate(products) if product.last_day < latest[k]],
        rule=lambda m, k: day(k) <= latest[k] - (latest[k] - floor(products[k].last_day)) * m.v_length[k],
    )


def _add_within(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    sold = {r for r, _ in m.products_of}
    uses: dict[Cell, list[tuple[int, int]]] = {}
    for o, w in inputs.uses:
        option = spec.options[o]
        for resource, _ in option.taken:
            if resource in sold:
                uses.setdefault((option.task, resource, w), []).append((o, w))
    cells = list(uses)
    m.v_on_purchase = Var(cells, within=Binary)
    m.c_on_purchase = Constraint(
        [(cell, use) for cell in cells for use in uses[cell]],
        rule=lambda m, t, r, w, o, v: m.v_on_purchase[t, r, w] >= m.v_used[o, v],
    )
    drawn = [(*cell, p) for cell in cells for p in m.purchases_of.get(cell[1], [0])]

    def after_it_begins(m: object, t: int, r: int, w: int, p: int) -> object:
        day = ctx.m.v_start_day[r, p]
        slack = max(inputs.time(day.ub) - inputs.start(w), 0.0) * _off(ctx, t, r, w, p)
        return inputs.start(w) + ctx.m.v_begin[t, w] >= inputs.time(1.0) * day - slack

    m.c_after_purchase_begins = Constraint(drawn, rule=after_it_begins)
    _add_before_ends(ctx, uses, drawn)
    _add_alone(ctx, cells)


def _off(ctx: Context, t: int, r: int, w: int, p: int) -> Any:
    """0 where a task uses a purchase in a window."""
    return 1 - (ctx.m.v_draws[t, r, w, p] if r in ctx.m.purchases_of else ctx.m.v_on_purchase[t, r, w])


def _add_before_ends(
    ctx: Context, uses: dict[Cell, list[tuple[int, int]]], drawn: list[tuple[int, int, int, int]]
) -> None:
    """What is done on a purchase ends before its nodes are taken back."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec

    def ends(r: int, p: int) -> Any:
        tail = spec.resources[r].unusable_tail_days
        return inputs.time(1.0) * m.v_start_day[r, p] + sum(
            inputs.time(spec.products[k].days - tail) * m.v_length[k] for k in m.products_of[r, p]
        )

    def before_it_ends(m: object, t: int, r: int, w: int, p: int) -> object:
        done = inputs.start(w) + ctx.m.v_begin[t, w] + sum(ctx.m.e_time[use] for use in uses[t, r, w])
        return done <= ends(r, p) + (inputs.start(w) + inputs.length(w)) * _off(ctx, t, r, w, p)

    m.c_before_purchase_ends = Constraint(drawn, rule=before_it_ends)

    def until_it_runs_on(m: object, t: int, r: int, w: int, p: int, o: int) -> object:
        done = inputs.start(w) + ctx.m.v_begin[t, w] + ctx.m.e_length[t, w]
        slack = _off(ctx, t, r, w, p) + 1 - ctx.m.v_runs_on[o, w + 1]
        return done <= ends(r, p) + (inputs.start(w) + inputs.length(w)) * slack

    m.c_purchase_lasts = Constraint(
        [
            (t, r, w, p, o)
            for t, r, w, p in drawn
            if r in m.purchases_of
            for o, _ in uses[t, r, w]
            if (o, w + 1) in m.v_runs_on
        ],
        rule=until_it_runs_on,
    )


def _add_several(ctx: Context) -> None:
    """What is drawn from each of several purchases of one resource, and their order in time."""
    m = ctx.m
    most = {
        (r, p): max(ctx.inputs.spec.products[k].most for k in products)
        for (r, p), products in m.products_of.items()
    }
    cells = sorted({key[:3] for key in m.v_drawn})
    m.c_drawn_enough = Constraint(
        cells,
        rule=lambda m, t, r, w: m.v_nodes[t, r, w] <= sum(m.v_drawn[t, r, w, p] for p in m.purchases_of[r]),
    )
    m.c_drawn_where_draws = Constraint(
        list(m.v_drawn),
        rule=lambda m, t, r, w, p: m.v_drawn[t, r, w, p] <= most[r, p] * m.v_draws[t, r, w, p],
    )
    m.c_draws_somewhere = Constraint(
        cells,
        rule=lambda m, t, r, w: (
            sum(m.v_draws[t, r, w, p] for p in m.purchases_of[r]) >= m.v_on_purchase[t, r, w]
        ),
    )
    m.c_draws_from_what_is_made = Constraint(
        list(m.v_draws),
        rule=lambda m, t, r, w, p: m.v_draws[t, r, w, p] <= sum(m.v_length[k] for k in m.products_of[r, p]),
    )
    following = [(r, p, q) for r, numbers in m.purchases_of.items() for p, q in pairwise(numbers)]
    m.c_begins_in_order = Constraint(
        following, rule=lambda m, r, p, q: m.v_start_day[r, p] <= m.v_start_day[r, q]
    )
    m.c_first_is_made_first = Constraint(
        following,
        rule=lambda m, r, p, q: (
            sum(m.v_length[k] for k in m.products_of[r, q]) <= sum(m.v_length[k] for k in m.products_of[r, p])
        ),
    )
    _add_at_once(ctx, most)


def _add_at_once(ctx: Context, most: dict[Purchase, int]) -> None:
    """What may be bought at most of purchases that are there at the same time."""
    m, spec = ctx.m, ctx.inputs.spec
    limit = {r: spec.resources[r].most_at_once_nodes for r in m.purchases_of}
    limited = [r for r, found in m.purchases_of.items() if sum(most[r, p] for p in found) > limit[r]]
    pairs = [(r, p, q) for r in limited for p in m.purchases_of[r] for q in m.purchases_of[r] if p < q]
    horizon = spec.windows[-1][1]
    longest = {r: max(product.days for product in spec.products if product.resource == r) for r in limited}
    m.v_apart = Var(pairs, within=Binary)
    m.v_still_there = Var(pairs, within=NonNegativeReals)
    m.c_apart = Constraint(
        pairs,
        rule=lambda m, r, p, q: (
            m.v_start_day[r, p] + sum(spec.products[k].days * m.v_length[k] for k in m.products_of[r, p])
            <= m.v_start_day[r, q] + (horizon + longest[r]) * (1 - m.v_apart[r, p, q])
        ),
    )
    m.c_still_there = Constraint(
        pairs,
        rule=lambda m, r, p, q: (
            m.v_still_there[r, p, q] >= bought(ctx, r, p) - most[r, p] * m.v_apart[r, p, q]
        ),
    )
    m.c_at_once = Constraint(
        [(r, q) for r in limited for q in m.purchases_of[r][1:]],
        rule=lambda m, r, q: (
            bought(ctx, r, q) + sum(m.v_still_there[r, p, q] for p in m.purchases_of[r] if p < q) <= limit[r]
        ),
    )


def _add_alone(ctx: Context, cells: list[Cell]) -> None:
    """A purchase is used at the start of the task's stretch, and by itself."""
    m, spec = ctx.m, ctx.inputs.spec
    by_stretch: dict[tuple[int, int], list[int]] = {}
    for t, r, w in cells:
        by_stretch.setdefault((t, w), []).append(r)
    m.c_one_purchase = Constraint(
        [stretch for stretch, resources in by_stretch.items() if len(resources) > 1],
        rule=lambda m, t, w: sum(m.v_on_purchase[t, r, w] for r in by_stretch[t, w]) <= 1,
    )
    others = [
        (t, r, w, o) for t, r, w in cells for o, v in m.uses_of_cell[t, w] if not spec.options[o].nodes_of(r)
    ]
    region = {r: next(o.region for o in spec.options if o.nodes_of(r)) for _, r, _ in cells}
    m.c_purchase_comes_first = Constraint(
        [cell for cell in others if (cell[3], cell[2]) in m.v_runs_on],
        rule=lambda m, t, r, w, o: m.v_on_purchase[t, r, w] + m.v_runs_on[o, w] <= 1,
    )
    m.c_purchase_not_in_move = Constraint(
        [cell for cell in others if spec.options[cell[3]].region != region[cell[1]]],
        rule=lambda m, t, r, w, o: m.v_on_purchase[t, r, w] + m.v_used[o, w] <= 1,
    )
