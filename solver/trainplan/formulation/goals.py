r"""The user's limits on time and money, and what is best.

.. math::
    F \le F^{deadline},\qquad b_{tw} + \ell_{tw} + B_w a_{tw} \le F^{due}_t,\qquad \sum \text{ledger} \le B

Questions: cheapest minimises the ledger, fastest :math:`F`, most-tokens maximises the stretch
:math:`\theta` of the scalable tasks. The second goal breaks ties: time for cheapest, money otherwise.

Where scenarios are looked at, the budget is for the bill as planned and, scenario by scenario, in
``recourse``; what is made small is then the expected cost or the expected end, and ties are broken by the
bill and the end as planned.
"""

from __future__ import annotations

from math import inf
from typing import Any

from trainplan.formulation.context import Context
from trainplan.pyomo_core import Constraint, Objective, is_potentially_variable, minimize

MOST_BUDGET = 1e7
"""A budget of this many money units (10,000 times the programme) limits nothing; HiGHS mishandles larger rows."""


def add(ctx: Context) -> None:
    """Adds deadline, due dates and budget as limits, and the objective of the question."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    horizon_days = spec.windows[-1][1]
    if spec.deadline_days < inf:
        ctx.limit(
            "deadline",
            m.v_finish,
            inputs.time(spec.deadline_days),
            unit="days",
            per_unit=inputs.days_per_unit,
        )
    for task, window in m.CELLS:
        due_days = spec.tasks[task].due_days
        if due_days < horizon_days:
            end = (
                inputs.start(window) * m.v_active[task, window]
                + m.v_begin[task, window]
                + m.e_length[task, window]
            )
            name = f"tasks.{spec.tasks[task].name}.due"
            ctx.limit(name, end, inputs.time(due_days), unit="days", per_unit=inputs.days_per_unit)
    m.e_cost = ctx.total(charge for charge in ctx.ledger if charge.planned)
    if spec.budget_usd < inf:
        budget = min(spec.budget_usd / inputs.usd_per_unit, MOST_BUDGET)
        ctx.limit("budget", m.e_cost, budget, unit="USD", per_unit=inputs.usd_per_unit)
    first, _ = goals(ctx)
    m.o_goal = Objective(expr=first, sense=minimize)
    # Open until the second goal is pursued: then its bound becomes the first goal's best value.
    # Where every plan costs the same there is nothing to hold on to, and no row.
    if is_potentially_variable(first):
        m.c_first_goal = Constraint(expr=first <= MOST_BUDGET)


def goals(ctx: Context) -> tuple[Any, Any]:
    """First and second goal of the question, both to be minimised."""
    m, question = ctx.m, ctx.inputs.spec.question
    cost, time = m.e_cost, m.v_finish
    if ctx.inputs.spec.recourse is not None:
        if question == "fastest":
            return m.e_expected_finish, cost + time
        return (-m.v_scale if question == "most-tokens" else ctx.total()), cost + time
    if question == "fastest":
        return time, cost
    if question == "most-tokens":
        return -m.v_scale, cost
    return cost, time
