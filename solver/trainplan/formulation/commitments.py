r"""What is bought: so many nodes of a committed resource, for one of the lengths it is sold in, from one day on.

Paid whether used or not. For product :math:`k` of resource :math:`r`:

.. math::
    y_k \in \{0, \dots, Y_k\},\quad p_k \in \{0, 1\},\quad y_k \le Y_k p_k,\quad
    \sum_{k \in r} p_k \le 1,\qquad \text{cost} = \sum_k P_k y_k

A purchase begins on a whole day :math:`d_r` and gives its nodes back :math:`\tau_r` before its end. What a
task does on it lies within, at the start of the task's stretch of the window:

.. math::
    B_w + b_{tw} \ge d_r - H (1 - c_{trw}),\qquad c_{trw} \ge u_{ow} \quad (r(o) = r)

    B_w + b_{tw} + \sum_{o: r(o)=r} (D_o x_{ow} + S_o s_{ow})
        \le d_r + \sum_k (L_k - \tau_r) p_k + H (1 - c_{trw})

A price that changes at a date is a product for each price, with the days on which it may begin:
:math:`F_k p_k \le d_r \le \bar d_r - (\bar d_r - G_k) p_k`.

A task uses one purchase in a window, nothing else of it runs on into that window before, and in the window
in which it moves to another region it uses none: :math:`\sum_r c_{trw} \le 1`,
:math:`c_{trw} + k_{ow} \le 1` and :math:`c_{trw} + u_{ow} \le 1` for options :math:`o` of another resource,
respectively of another region.
"""

from __future__ import annotations

from math import ceil, floor

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Binary, Constraint, NonNegativeIntegers, Var

Cell = tuple[int, int, int]
"""(task, resource, window)."""


def add_variables(ctx: Context) -> None:
    """Adds ``v_bought``; needed before capacity reads it."""
    products = ctx.inputs.spec.products
    numbers = range(len(products))
    ctx.m.v_bought = Var(numbers, within=NonNegativeIntegers, bounds=lambda _, k: (0, products[k].most))
    ctx.m.v_length = Var(numbers, within=Binary)


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
    of_resource: dict[int, list[int]] = {}
    for k, product in enumerate(spec.products):
        of_resource.setdefault(product.resource, []).append(k)
    m.c_one_length = Constraint(
        list(of_resource), rule=lambda m, r: sum(m.v_length[k] for k in of_resource[r]) <= 1
    )
    horizon = spec.windows[-1][1]
    m.v_start_day = Var(
        list(of_resource),
        within=NonNegativeIntegers,
        bounds=lambda _, r: (0, int(min(spec.resources[r].latest_start_days, horizon))),
    )
    _add_price_days(ctx)
    _add_within(ctx, of_resource)


def _add_price_days(ctx: Context) -> None:
    """A price that is only to be had from a day on, or up to one."""
    m, products = ctx.m, ctx.inputs.spec.products
    m.c_price_from = Constraint(
        [k for k, product in enumerate(products) if product.first_day > 0.0],
        rule=lambda m, k: m.v_start_day[products[k].resource] >= ceil(products[k].first_day) * m.v_length[k],
    )
    latest = {k: m.v_start_day[product.resource].ub for k, product in enumerate(products)}
    m.c_price_until = Constraint(
        [k for k, product in enumerate(products) if product.last_day < latest[k]],
        rule=lambda m, k: (
            m.v_start_day[products[k].resource]
            <= latest[k] - (latest[k] - floor(products[k].last_day)) * m.v_length[k]
        ),
    )


def _add_within(ctx: Context, of_resource: dict[int, list[int]]) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    uses: dict[Cell, list[tuple[int, int]]] = {}
    for o, w in inputs.uses:
        option = spec.options[o]
        for resource, _ in option.taken:
            if resource in of_resource:
                uses.setdefault((option.task, resource, w), []).append((o, w))
    cells = list(uses)
    horizon = inputs.time(spec.windows[-1][1])
    m.v_on_purchase = Var(cells, within=Binary)
    m.c_on_purchase = Constraint(
        [(cell, use) for cell in cells for use in uses[cell]],
        rule=lambda m, t, r, w, o, v: m.v_on_purchase[t, r, w] >= m.v_used[o, v],
    )
    m.c_after_purchase_begins = Constraint(
        cells,
        rule=lambda m, t, r, w: (
            inputs.start(w) + m.v_begin[t, w]
            >= inputs.time(1.0) * m.v_start_day[r] - horizon * (1 - m.v_on_purchase[t, r, w])
        ),
    )

    def before_it_ends(m: object, t: int, r: int, w: int) -> object:
        tail = spec.resources[r].unusable_tail_days
        lasts = sum(inputs.time(spec.products[k].days - tail) * ctx.m.v_length[k] for k in of_resource[r])
        done = inputs.start(w) + ctx.m.v_begin[t, w] + sum(ctx.m.e_time[use] for use in uses[t, r, w])
        slack = horizon * (1 - ctx.m.v_on_purchase[t, r, w])
        return done <= inputs.time(1.0) * ctx.m.v_start_day[r] + lasts + slack

    m.c_before_purchase_ends = Constraint(cells, rule=before_it_ends)
    _add_alone(ctx, cells)


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
