r"""What use costs: every option's daily and one-off charges; what grants hold.

.. math::
    \text{cost} = \sum_{o,w} c_{ow} (D_o x_{ow} + S_o s_{ow}) + \sum_o C_o v_o + \sum_c A_c k_c,\qquad
    v_o \ge u_{ow},\quad k_{c(o)} \ge u_{ow}

with :math:`A_c` the one-off cost of a cloud not used before. :math:`c_{ow}` differs between windows where the
price of nodes changes at a date; windows are cut there.

A grant holds

.. math::
    \sum_o \sum_w h_{or} (D_o x_{ow} + S_o s_{ow}) \le G_r
"""

from __future__ import annotations

from math import inf

from trainplan.formulation.context import Context
from trainplan.problem import Charges
from trainplan.pyomo_core import Constraint, UnitInterval, Var


def add(ctx: Context) -> None:
    """Adds the charges of use and the limits of grants."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    windows_of: dict[int, list[int]] = {}
    for option, window in [*m.USES, *m.LOOSE]:
        windows_of.setdefault(option, []).append(window)
    for option, windows in windows_of.items():
        o = spec.options[option]
        alike: dict[Charges, list[int]] = {}
        for window in windows:
            alike.setdefault(spec.daily_in(option, window), []).append(window)
        for daily, at in alike.items():
            used_time = sum(m.e_time[option, w] for w in at)
            for category, usd in daily:
                ctx.charge(category, o.task, inputs.money(usd * inputs.days_per_unit) * used_time)
    whole = {o for o, _ in m.USES}
    once = [o for o in windows_of if o in whole and spec.options[o].once_usd > 0.0]
    m.v_chosen = Var(once, within=UnitInterval)
    m.c_chosen = Constraint(
        [(o, w) for o in once for w in windows_of[o]], rule=lambda m, o, w: m.v_chosen[o] >= m.v_used[o, w]
    )
    for option in once:
        o = spec.options[option]
        for category, usd in o.once:
            ctx.charge(category, o.task, inputs.money(usd) * m.v_chosen[option])
    _add_clouds(ctx)
    _add_grants(ctx)


def _add_clouds(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    clouds = sorted(cloud for cloud, usd in spec.cloud_once_usd.items() if inputs.money(usd) > 0.0)
    m.v_cloud = Var(clouds, within=UnitInterval)
    uses = [(o, w) for o, w in inputs.uses if spec.options[o].cloud in m.v_cloud]
    m.c_cloud_adapted = Constraint(
        uses, rule=lambda m, o, w: m.v_cloud[spec.options[o].cloud] >= m.v_used[o, w]
    )
    for cloud in clouds:
        ctx.charge("migration", None, inputs.money(spec.cloud_once_usd[cloud]) * m.v_cloud[cloud], fixed=True)


def _add_grants(ctx: Context) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    for number, resource in enumerate(spec.resources):
        if resource.grant_hours == inf:
            continue
        uses = [(o, w) for o, w in [*m.USES, *m.LOOSE] if spec.options[o].nodes_of(number)]
        if not uses:
            continue
        hours_per_unit = max(resource.grant_hours, 1.0) / 100.0
        drawn = sum(
            spec.options[o].hours_of(number) * inputs.days_per_unit / hours_per_unit * m.e_time[o, w]
            for o, w in uses
        )
        ctx.limit(
            f"resources.grants[{resource.pool}].hours",
            drawn,
            resource.grant_hours / hours_per_unit,
            unit="accelerator-hours",
            per_unit=hours_per_unit,
        )
