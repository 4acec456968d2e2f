r"""What the programme costs as a whole: by the day until it ends, once, and for being late.

.. math::
    \text{cost} = \sum_c C_c F + \sum_c O_c + C^{delay} \max(0, F - F^{due})
"""

from __future__ import annotations

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Constraint, NonNegativeReals, Var


def add(ctx: Context) -> None:
    """Adds the charges of the programme."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    for category, usd in spec.programme_daily:
        ctx.charge(category, None, inputs.money(usd * inputs.days_per_unit) * m.v_finish, fixed=True)
    for category, usd in spec.programme_once:
        ctx.charge(category, None, inputs.money(usd), fixed=True)
    if spec.delay_usd_per_day > 0.0:
        m.v_late = Var(within=NonNegativeReals, bounds=(0.0, inputs.time(spec.windows[-1][1])))
        due_days = min(spec.delay_after_days, spec.windows[-1][1])
        m.c_late = Constraint(expr=m.v_late >= m.v_finish - inputs.time(due_days))
        ctx.charge("delay", None, inputs.money(spec.delay_usd_per_day * inputs.days_per_unit) * m.v_late)
