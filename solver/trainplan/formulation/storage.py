r"""On which tier each task's dataset lies while it is used.

In each region used, one tier :math:`k`; billed for the time in the region but at least the tier's
minimum:

.. math::
    \sum_k y_{trk} = g_{tr},\qquad \sum_k d_{trk} \ge \sum_{o: t(o)=t, r(o)=r} \sum_w D_o x_{ow} + S_o s_{ow}

    d_{trk} \le H y_{trk},\qquad
    \sum_k q_{trk} = \sum_{o: t(o)=t, r(o)=r} \sum_w x_{ow},\qquad q_{trk} \le \Theta y_{trk}

    \text{cost} = C_k \max(d_{trk}, D^{min}_k y_{trk}) + C^{once}_k y_{trk} + C^{read}_k q_{trk}
"""

from __future__ import annotations

from trainplan.formulation.context import Context
from trainplan.problem import DatasetChoice
from trainplan.pyomo_core import Binary, Constraint, NonNegativeReals, Var


def add(ctx: Context) -> None:
    """Adds ``v_tier`` and ``v_held`` for each dataset choice."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    horizon = inputs.time(spec.windows[-1][1])
    choices = {(c.task, c.region, c.tier): c for c in spec.datasets if (c.task, c.region) in m.v_in}
    keys = list(choices)
    m.v_tier = Var(keys, within=Binary)
    m.v_held = Var(keys, within=NonNegativeReals, bounds=(0.0, horizon))
    m.v_billed = Var(
        keys,
        within=NonNegativeReals,
        bounds=lambda _, *key: (0.0, max(horizon, inputs.time(choices[key].min_days))),
    )
    places = sorted({key[:2] for key in keys})
    tiers = {place: [key for key in keys if key[:2] == place] for place in places}
    m.c_one_tier = Constraint(
        places, rule=lambda m, t, r: sum(m.v_tier[key] for key in tiers[t, r]) == m.v_in[t, r]
    )
    m.c_held_needs_tier = Constraint(keys, rule=lambda m, *key: m.v_held[key] <= horizon * m.v_tier[key])
    m.c_held_while_used = Constraint(
        places,
        rule=lambda m, t, r: (
            sum(m.v_held[key] for key in tiers[t, r])
            >= sum(m.e_time[o, w] for o, w in m.uses_of_task[t] if spec.options[o].region == r)
        ),
    )
    m.c_billed_time = Constraint(keys, rule=lambda m, *key: m.v_billed[key] >= m.v_held[key])
    m.c_billed_minimum = Constraint(
        keys,
        rule=lambda m, *key: m.v_billed[key] >= inputs.time(choices[key].min_days) * m.v_tier[key],
    )
    for key, choice in choices.items():
        per_unit = inputs.money(choice.usd_per_day * inputs.days_per_unit)
        amount = per_unit * m.v_billed[key] + inputs.money(choice.once_usd) * m.v_tier[key]
        ctx.charge("storage", choice.task, amount)
    _add_reads(ctx, {key: choice for key, choice in choices.items() if inputs.money(choice.read_usd) > 0.0})


def _add_reads(ctx: Context, choices: dict[tuple[int, int, str], DatasetChoice]) -> None:
    """Reading is charged by the share of the task done in the region, at the price of its tier."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    most = inputs.most_scale
    m.v_read = Var(list(choices), within=NonNegativeReals, bounds=(0.0, most))
    m.c_read_needs_tier = Constraint(
        list(choices), rule=lambda m, *key: m.v_read[key] <= most * m.v_tier[key]
    )
    places = sorted({key[:2] for key in choices})

    def read_here(m: object, task: int, region: int) -> object:
        share = sum(
            ctx.m.v_share[o, w] for o, w in ctx.m.uses_of_task[task] if spec.options[o].region == region
        )
        free = [k for k in ctx.m.v_tier if k[:2] == (task, region) and k not in choices]
        read = sum(ctx.m.v_read[key] for key in choices if key[:2] == (task, region))
        return read >= share - most * sum(ctx.m.v_tier[key] for key in free)

    m.c_reads_its_share = Constraint(places, rule=read_here)
    for key, choice in choices.items():
        ctx.charge("storage", choice.task, inputs.money(choice.read_usd) * m.v_read[key])
