r"""What may become of the plan: one set of times and costs for every scenario, over the same choices.

First stage, the same in all scenarios :math:`s` (of probability :math:`p_s`): shares, uses, purchases.
Second stage: the share :math:`f_{os}` of a task that moves from spot to on-demand nodes of the same pool, the
ends, and which scenarios miss (:math:`z_s`). With :math:`\lambda_{os}` the calendar days of an option over those
planned and :math:`\delta_{rs}` the wait for the nodes of a resource that no predecessor :math:`P(t)` hands over,

.. math::
    n_{tr} \ge u_{ow} - \sum_{p \in P(t)} \sum_{o': r(o')=r} \sum_{w'} u_{o'w'} \quad (r(o) = r)

    \ell_{tws} = \sum_{o: t(o)=t} \lambda_{os} D_o x_{ow} + S_o s_{ow},\qquad
    g_{ts} = \sum_r \delta_{rs} n_{tr} - \sum_o (\lambda_{os} D_o - D'_{os}) f_{os},\qquad
    f_{os} \le \sum_w x_{ow}

    E_{ts} \ge R_t + g_{ts} + \sum_w \ell_{tws},\qquad E_{ts} \ge E_{ps} + g_{ts} + \sum_w \ell_{tws},\qquad
    F_s \ge E_{ts}

    E_{ts} \ge B_w i_{tw} + g_{ts} + \sum_{w' \ge w} \ell_{tw's},\qquad i_{tw} \ge s_{ow}

since what is set up in a window waits for it. For tasks that take turns on the same nodes see ``turns``; where
the nodes of all are limited,

.. math::
    \sum_o N_o \Big( \lambda_{os} D_o \sum_w x_{ow} + S_o \sum_w s_{ow} - (\lambda_{os} D_o - D'_{os}) f_{os} \Big)
    \le N^{max} F_s

Nodes bought are there until the purchase ends; node-time past it is

.. math::
    h_{rs} \ge \sum_{o: r(o)=r} N_o \sum_w (\lambda_{os} D_o x_{ow} + S_o s_{ow}) - \sum_{k \in r} (L_k - \tau_r) y_k

Limits, with :math:`M` what the left side can exceed its limit by when the plan itself keeps it,

.. math::
    F_s \le F^{deadline} + M_s z_s,\qquad E_{ts} \le F^{due}_t + M_{ts} z_s,\qquad
    \text{cost}_s \le B + M^B_s z_s,\qquad \sum_s p_s z_s \le 1 - q

The ledger gets what scenarios add to the planned cost on average, by category:

.. math::
    \sum_s p_s \Big[ \sum_o (c_{os} \lambda_{os} - c_o) D_o \sum_w x_{ow} + (c_{os} - c_o) S_o \sum_w s_{ow}
    + (c'_o D'_{os} - c_{os} \lambda_{os} D_o) f_{os} + C (F_s - F)
    + C^{delay} (\max(0, F_s - F^{due}) - \max(0, F - F^{due})) + C_r h_{rs} \Big]
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import Any

from trainplan.formulation import turns
from trainplan.formulation.context import Context
from trainplan.formulation.goals import MOST_BUDGET
from trainplan.problem import Recourse
from trainplan.pyomo_core import Binary, Constraint, NonNegativeReals, Reals, UnitInterval, Var

LEAST = 1e-6
"""Amounts below this, in solver units, are nothing; HiGHS would ignore them silently."""


def add(ctx: Context) -> None:
    """Adds scenarios where the problem has them; most problems have none."""
    recourse = ctx.inputs.spec.recourse
    if recourse is None:
        return
    m = ctx.m
    m.SCENARIOS = list(range(len(recourse.weight)))
    m.RUN = sorted({o for o, _ in ctx.inputs.uses})
    m.windows_of = {o: [w for p, w in ctx.inputs.uses if p == o] for o in m.RUN}
    m.v_missed = Var(m.SCENARIOS, within=Binary)
    _add_moves(ctx, recourse)
    _add_waits(ctx, recourse)
    _add_ends(ctx, recourse)
    _add_costs(ctx, recourse)
    _add_promise(ctx, recourse)


def _told(amount: float) -> float:
    """An amount in solver units, nothing where it is too small to matter."""
    return amount if abs(amount) >= LEAST else 0.0


# What is decided in a scenario


def _add_moves(ctx: Context, recourse: Recourse) -> None:
    """Work that leaves spot."""
    m = ctx.m
    m.v_moved = Var([o for o in m.RUN if o in recourse.instead], m.SCENARIOS, within=UnitInterval)
    m.c_moved = Constraint(
        list(m.v_moved), rule=lambda m, o, s: m.v_moved[o, s] <= sum(m.v_share[o, w] for w in m.windows_of[o])
    )


def _add_waits(ctx: Context, recourse: Recourse) -> None:
    """Which nodes a task has to wait for."""
    m, spec = ctx.m, ctx.inputs.spec
    of_place: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for o, w in m.USES:
        for resource, _ in spec.options[o].taken:
            if max(recourse.wait_days.get(resource, (0.0,))) > 0.0:
                of_place.setdefault((spec.options[o].task, resource), []).append((o, w))
    m.v_fresh = Var(list(of_place), within=UnitInterval)
    asked = [(*place, *use) for place, uses in of_place.items() for use in uses]
    m.c_fresh = Constraint(
        asked,
        rule=lambda m, t, r, o, w: (
            m.v_fresh[t, r]
            >= m.v_used[o, w]
            - sum(m.v_used[use] for p in spec.tasks[t].predecessors for use in of_place.get((p, r), []))
        ),
    )


def _length(ctx: Context, recourse: Recourse, task: int, window: int, s: int) -> Any:
    """How long the stretch of a task in a window takes."""
    m, inputs, options = ctx.m, ctx.inputs, ctx.inputs.spec.options
    return sum(
        _told(recourse.time_factor[o][s] * inputs.time(options[o].work_days)) * m.v_share[o, w]
        + _told(inputs.time(options[o].setup_days)) * m.e_begins[o, w]
        for o, w in m.uses_of_cell[task, window]
    )


def _gain(ctx: Context, recourse: Recourse, o: int, s: int) -> float:
    """Time that moving all of an option's work takes off, in solver units."""
    days = recourse.time_factor[o][s] * ctx.inputs.spec.options[o].work_days - recourse.instead[o].days[s]
    return _told(ctx.inputs.time(days))


def _added(ctx: Context, recourse: Recourse, task: int, s: int) -> Any:
    """What waiting adds to a task and moving takes off."""
    m, inputs = ctx.m, ctx.inputs
    waits = sum(
        _told(inputs.time(recourse.wait_days[r][s])) * m.v_fresh[t, r] for t, r in m.v_fresh if t == task
    )
    moved = [o for o in m.RUN if o in recourse.instead and inputs.spec.options[o].task == task]
    return waits - sum(_gain(ctx, recourse, o, s) * m.v_moved[o, s] for o in moved)


def _add_ends(ctx: Context, recourse: Recourse) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    tasks = [t for t in m.TASKS if m.uses_of_task[t]]
    windows: dict[int, list[int]] = {t: [w for u, w in m.CELLS if u == t] for t in tasks}
    pairs = [(t, s) for t in tasks for s in m.SCENARIOS]
    m.v_end_in = Var(pairs, within=NonNegativeReals)
    m.v_finish_in = Var(m.SCENARIOS, within=NonNegativeReals)
    lengths = [(t, w, s) for t, w in m.CELLS for s in m.SCENARIOS]
    m.v_length_in = length = Var(lengths, within=NonNegativeReals)
    m.c_length_in = Constraint(
        lengths, rule=lambda m, t, w, s: m.v_length_in[t, w, s] >= _length(ctx, recourse, t, w, s)
    )
    added = {(t, s): _added(ctx, recourse, t, s) for t, s in pairs}
    whole = {(t, s): added[t, s] + sum(length[t, w, s] for w in windows[t]) for t, s in pairs}
    m.c_end_after_release = Constraint(
        pairs, rule=lambda m, t, s: m.v_end_in[t, s] >= inputs.time(spec.tasks[t].release_days) + whole[t, s]
    )
    m.c_end_after_predecessor = Constraint(
        [(p, t, s) for t, s in pairs for p in spec.tasks[t].predecessors if (p, s) in whole],
        rule=lambda m, p, t, s: m.v_end_in[t, s] >= m.v_end_in[p, s] + whole[t, s],
    )
    waiting = [(t, w) for t, w in m.CELLS if spec.windows[w][0] > spec.tasks[t].release_days]
    m.v_set_up = Var(waiting, within=UnitInterval)
    m.c_set_up = Constraint(
        [(t, *use) for t, w in waiting for use in m.uses_of_cell[t, w]],
        rule=lambda m, t, o, w: m.v_set_up[t, w] >= m.e_begins[o, w],
    )
    m.c_end_after_window = Constraint(
        [(t, w, s) for t, w in waiting for s in m.SCENARIOS],
        rule=lambda m, t, w, s: (
            m.v_end_in[t, s]
            >= inputs.start(w) * m.v_set_up[t, w]
            + added[t, s]
            + sum(length[t, v, s] for v in windows[t] if v >= w)
        ),
    )
    horizon = inputs.time(spec.windows[-1][1])
    beyond = _beyond(ctx, recourse)
    turns.add(ctx, added, {s: horizon + beyond(horizon, s) for s in m.SCENARIOS})
    _add_node_time(ctx, recourse)
    m.c_finish_in = Constraint(pairs, rule=lambda m, t, s: m.v_finish_in[s] >= m.v_end_in[t, s])
    m.e_expected_finish = sum(p * m.v_finish_in[s] for s, p in enumerate(recourse.weight))


def _add_node_time(ctx: Context, recourse: Recourse) -> None:
    """No scenario has more node-time than the ceiling on nodes leaves it until its end."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    most = spec.max_nodes
    taken = [(o, n / most) for o in m.RUN if most < inf and (n := spec.options[o].all_nodes)]

    def used(s: int) -> Any:
        own = sum(
            part
            * _told(recourse.time_factor[o][s] * inputs.time(spec.options[o].work_days))
            * m.v_share[o, w]
            + part * _told(inputs.time(spec.options[o].setup_days)) * m.e_begins[o, w]
            for o, part in taken
            for w in m.windows_of[o]
        )
        moved = [(o, part) for o, part in taken if o in recourse.instead]
        return own - sum(part * _gain(ctx, recourse, o, s) * m.v_moved[o, s] for o, part in moved)

    m.c_node_time_in = Constraint(
        m.SCENARIOS if taken and spec.width > 1 else [], rule=lambda m, s: used(s) <= m.v_finish_in[s]
    )


# Money


def _add_costs(ctx: Context, recourse: Recourse) -> None:
    """Charges what scenarios add on average, and keeps what each of them adds in ``e_added``."""
    m = ctx.m
    m.e_added = {s: 0.0 for s in m.SCENARIOS}
    _charge_use(ctx, recourse)
    _charge_moves(ctx, recourse)
    _charge_overruns(ctx, recourse)
    _charge_programme(ctx, recourse)


def _charge(ctx: Context, category: str, task: int | None, by_scenario: list[Any]) -> None:
    """Enters an amount known by scenario, with its mean in the ledger."""
    recourse = ctx.inputs.spec.recourse
    if recourse is None:
        raise ValueError("nothing is charged by scenario where there are none")
    for s, amount in enumerate(by_scenario):
        ctx.m.e_added[s] += amount
    mean = sum(p * amount for p, amount in zip(recourse.weight, by_scenario, strict=True))
    ctx.charge(category, task, mean, planned=False)


def _charge_use(ctx: Context, recourse: Recourse) -> None:
    """What the options themselves cost more, or less, than planned."""
    m, inputs = ctx.m, ctx.inputs
    for o in m.RUN:
        option = inputs.spec.options[o]
        share = sum(m.v_share[o, w] for w in m.windows_of[o])
        begins = sum(m.e_begins[o, w] for w in m.windows_of[o])
        for_work = inputs.money(option.daily_usd * option.work_days)
        for_setup = inputs.money(option.daily_usd * option.setup_days)
        more = [
            (d * n - 1.0, d - 1.0)
            for d, n in zip(recourse.usd_factor[o], recourse.time_factor[o], strict=True)
        ]
        for s, (a, b) in enumerate(more):
            m.e_added[s] += _told(for_work * a) * share + _told(for_setup * b) * begins
        work, setup = (sum(p * row[k] for p, row in zip(recourse.weight, more, strict=True)) for k in (0, 1))
        spread = _told(for_work * work) * share + _told(for_setup * setup) * begins
        ctx.charge("spread", option.task, spread, planned=False)


def _charge_moves(ctx: Context, recourse: Recourse) -> None:
    m, inputs = ctx.m, ctx.inputs
    for o in sorted({o for o, _ in m.v_moved}):
        option, other = inputs.spec.options[o], recourse.instead[o]
        spot = [
            option.daily_usd * d * n * option.work_days
            for d, n in zip(recourse.usd_factor[o], recourse.time_factor[o], strict=True)
        ]
        amounts = [
            inputs.money(other.daily_usd * days - spared) * m.v_moved[o, s]
            for s, (days, spared) in enumerate(zip(other.days, spot, strict=True))
        ]
        _charge(ctx, "fallback", option.task, amounts)


def _charge_overruns(ctx: Context, recourse: Recourse) -> None:
    """Nodes rented on when a purchase has ended."""
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    bought = {r: [k for k, p in enumerate(spec.products) if p.resource == r] for r in recourse.overrun_usd}
    used = {r: [use for use in m.USES if spec.options[use[0]].nodes_of(r)] for r in bought}
    sold = [r for r in bought if bought[r] and used[r]]
    unit = {r: max(spec.options[o].nodes_of(r) for o, _ in used[r]) for r in sold}
    m.v_overrun = Var(sold, m.SCENARIOS, within=NonNegativeReals)

    def node_time(r: int, s: int) -> Any:
        return sum(
            spec.options[o].nodes_of(r)
            / unit[r]
            * (
                _told(recourse.time_factor[o][s] * inputs.time(spec.options[o].work_days)) * m.v_share[o, w]
                + _told(inputs.time(spec.options[o].setup_days)) * m.e_begins[o, w]
            )
            for o, w in used[r]
        )

    def there(r: int) -> Any:
        tail = spec.resources[r].unusable_tail_days
        return sum(inputs.time(spec.products[k].days - tail) / unit[r] * m.v_bought[k] for k in bought[r])

    m.c_overrun = Constraint(
        list(m.v_overrun), rule=lambda m, r, s: m.v_overrun[r, s] >= node_time(r, s) - there(r)
    )
    for r in sold:
        usd = inputs.money(recourse.overrun_usd[r] * unit[r] * inputs.days_per_unit)
        _charge(ctx, "fallback", None, [usd * m.v_overrun[r, s] for s in m.SCENARIOS])


def _charge_programme(ctx: Context, recourse: Recourse) -> None:
    """Days of the programme and of delay, beyond those planned.

    Differences have columns of their own: what a day costs would else cancel out to the last digit but one.
    """
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    m.v_longer_in = Var(m.SCENARIOS, within=Reals)
    m.c_longer_in = Constraint(
        m.SCENARIOS, rule=lambda m, s: m.v_longer_in[s] == m.v_finish_in[s] - m.v_finish
    )
    for category, usd in spec.programme_daily:
        daily = inputs.money(usd * inputs.days_per_unit)
        _charge(ctx, category, None, [daily * m.v_longer_in[s] for s in m.SCENARIOS])
    delay = inputs.money(spec.delay_usd_per_day * inputs.days_per_unit)
    if delay > 0.0:
        due = inputs.time(min(spec.delay_after_days, spec.windows[-1][1]))
        m.v_late_in = Var(m.SCENARIOS, within=NonNegativeReals)
        m.v_later_in = Var(m.SCENARIOS, within=Reals)
        m.c_late_in = Constraint(m.SCENARIOS, rule=lambda m, s: m.v_late_in[s] >= m.v_finish_in[s] - due)
        m.c_later_in = Constraint(m.SCENARIOS, rule=lambda m, s: m.v_later_in[s] == m.v_late_in[s] - m.v_late)
        _charge(ctx, "delay", None, [delay * m.v_later_in[s] for s in m.SCENARIOS])
    if recourse.miss_usd > 0.0:
        missed = sum(p * m.v_missed[s] for s, p in enumerate(recourse.weight))
        ctx.charge("missed", None, inputs.money(recourse.miss_usd) * missed, planned=False)


# What is promised


def _add_promise(ctx: Context, recourse: Recourse) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    beyond = _beyond(ctx, recourse)
    dates = [("deadline", spec.deadline_days, m.v_finish_in)]
    dates += [
        (f"tasks.{task.name}.due", task.due_days, {s: m.v_end_in[t, s] for s in m.SCENARIOS})
        for t, task in enumerate(spec.tasks)
        if task.due_days < spec.windows[-1][1] and (t, 0) in m.v_end_in
    ]
    for name, days, ends in dates:
        if days < inf:
            upper = inputs.time(days)
            for s in m.SCENARIOS:
                body = ends[s] - beyond(upper, s) * m.v_missed[s]
                ctx.limit(name, body, upper, unit="days", per_unit=inputs.days_per_unit)
    if spec.budget_usd < inf:
        _add_budget(ctx, recourse, [beyond(inputs.time(spec.windows[-1][1]), s) for s in m.SCENARIOS])
    if recourse.miss_frac < 1.0:
        missed = sum(p * m.v_missed[s] for s, p in enumerate(recourse.weight))
        ctx.limit("reliability", missed, recourse.miss_frac, unit="chance", per_unit=1.0)


def _beyond(ctx: Context, recourse: Recourse) -> Callable[[float, int], float]:
    """What a plan that ends by some time can end later in a scenario, in solver units."""
    m, inputs = ctx.m, ctx.inputs
    waits: dict[int, list[int]] = {}
    for t, r in m.v_fresh:
        waits.setdefault(t, []).append(r)

    def beyond(upper: float, s: int) -> float:
        stretch = max(1.0, *(recourse.time_factor[o][s] for o in m.RUN))
        wait_days = sum(max(recourse.wait_days[r][s] for r in places) for places in waits.values())
        return float((stretch - 1.0) * upper + inputs.time(wait_days))

    return beyond


def _add_budget(ctx: Context, recourse: Recourse, beyond: list[float]) -> None:
    m, inputs, spec = ctx.m, ctx.inputs, ctx.inputs.spec
    budget = min(spec.budget_usd / inputs.usd_per_unit, MOST_BUDGET)
    cost = ctx.total(charge for charge in ctx.ledger if charge.planned)
    daily_usd = sum(usd for _, usd in spec.programme_daily) + spec.delay_usd_per_day
    daily = inputs.money(daily_usd * inputs.days_per_unit)
    for s in m.SCENARIOS:
        usd_factor = max(
            1.0, *(recourse.usd_factor[o][s] * max(recourse.time_factor[o][s], 1.0) for o in m.RUN)
        )
        overruns: dict[int, float] = {}
        for o in m.RUN:
            option = spec.options[o]
            days = recourse.time_factor[o][s] * option.work_days + option.setup_days * len(m.windows_of[o])
            usd = days * sum(recourse.overrun_usd.get(r, 0.0) * nodes for r, nodes in option.taken)
            overruns[option.task] = max(overruns.get(option.task, 0.0), usd)
        most = (usd_factor - 1.0) * budget + daily * beyond[s] + inputs.money(sum(overruns.values()))
        body = cost + m.e_added[s] - most * m.v_missed[s]
        ctx.limit("budget", body, budget, unit="USD", per_unit=inputs.usd_per_unit)
