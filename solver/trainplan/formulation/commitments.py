r"""What is bought: whole purchases, paid whether used or not.

.. math::
    y_k \in \{0, 1, \dots, Y_k\},\qquad \text{cost}_k = P_k y_k

A purchase that ends inside the plan gives its nodes back :math:`\tau` before its end, so what runs on
it in its last window has to stop by then:

.. math::
    b_{tw} + \sum_{o: r(o)=r} (D_o x_{ow} + S_o s_{ow}) \le L_w - \tau (e_{rw} + u_{ow} - 1),\qquad
    Y_k e_{rw} \ge y_k
"""

from __future__ import annotations

from trainplan.pyomo_core import Binary, Constraint, NonNegativeIntegers, Var

from trainplan.formulation.context import Context


def add_variables(ctx: Context) -> None:
    """Adds ``v_bought``; needed before capacity reads it."""
    products = ctx.inputs.spec.products
    ctx.m.v_bought = Var(
        range(len(products)),
        within=NonNegativeIntegers,
        bounds=lambda _, k: (0, products[k].most),
    )


def add(ctx: Context) -> None:
    """Adds the price of purchases and their unusable tails."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    for k, product in enumerate(spec.products):
        ctx.charge("compute", None, inputs.money(product.usd) * m.v_bought[k], fixed=True)
    ends = sorted(
        {
            (p.resource, p.last_window)
            for p in spec.products
            if p.ends_inside and spec.resources[p.resource].unusable_tail_days > 0.0
        }
    )
    m.v_ends = Var(ends, within=Binary)
    ending = [(k, (p.resource, p.last_window)) for k, p in enumerate(spec.products)]
    ending = [(k, end) for k, end in ending if end in m.v_ends and spec.products[k].ends_inside]
    m.c_purchase_ends = Constraint(
        range(len(ending)),
        rule=lambda m, i: (
            spec.products[ending[i][0]].most * m.v_ends[ending[i][1]] >= m.v_bought[ending[i][0]]
        ),
    )
    used = [(o, w) for o, w in inputs.uses if (spec.options[o].resource, w) in m.v_ends]

    def leaves_tail(m: object, o: int, w: int) -> object:
        t, r = spec.options[o].task, spec.options[o].resource
        on_resource = sum(
            ctx.m.e_time[p, v] for p, v in ctx.m.uses_of_cell[t, w] if spec.options[p].resource == r
        )
        tail = inputs.time(spec.resources[r].unusable_tail_days)
        ends_in_use = ctx.m.v_ends[r, w] + ctx.m.v_used[o, w] - 1.0
        return ctx.m.v_begin[t, w] + on_resource <= inputs.length(w) - tail * ends_in_use

    m.c_leaves_tail = Constraint(used, rule=leaves_tail)
