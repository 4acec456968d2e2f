"""The block of scenarios against trying everything.

Every set of used options and every set of missed scenarios is tried; what is left is a small linear program in raw
days and USD, written down here anew.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations, product
from math import inf
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.property.agreement import assert_found

from trainplan.highs import Session
from trainplan.problem import Instead, Option, ProblemSpec, Recourse, Resource, TaskSpec
from trainplan.solve import Solver

SEEDS = range(40)


def random_problem(seed: int) -> ProblemSpec:
    """One or two tasks in a row, on spot that may move to on-demand, and on machines that may be waited for."""
    pick = Random(seed)
    count, scenarios = pick.choice([1, 2]), pick.choice([2, 3, 4])

    def draws(low: float, high: float) -> tuple[float, ...]:
        return tuple(round(pick.uniform(low, high), 3) for _ in range(scenarios))

    resources = tuple(Resource(name, name, name, (inf,)) for name in ("spot", "on-demand", "owned"))
    options: list[Option] = []
    time_factor: dict[int, tuple[float, ...]] = {}
    usd_factor: dict[int, tuple[float, ...]] = {}
    instead: dict[int, Instead] = {}
    for task in range(count):
        for resource in pick.sample(range(3), 2):
            number, days = len(options), round(pick.uniform(3.0, 9.0), 2)
            daily = (("compute", round(pick.uniform(20.0, 120.0), 1)),)
            options.append(
                Option(task, resource, 0, 1, days, pick.choice([0.0, 0.3]), daily, key=str(number))
            )
            time_factor[number], usd_factor[number] = draws(0.8, 1.7), draws(0.8, 1.4)
            if resource == 0:
                instead[number] = Instead(draws(0.7 * days, 1.1 * days), round(pick.uniform(100.0, 250.0), 1))
    fastest = sum(min(o.work_days + o.setup_days for o in options if o.task == t) for t in range(count))
    cheapest = sum(min(o.work_days * o.daily_usd for o in options if o.task == t) for t in range(count))
    deadline = round(fastest * pick.choice([1.2, 1.6, 2.2]), 2)
    weight = np.array([pick.uniform(0.5, 2.0) for _ in range(scenarios)])
    recourse = Recourse(
        weight=tuple((weight / weight.sum()).tolist()),
        time_factor=time_factor,
        usd_factor=usd_factor,
        wait_days={2: draws(0.0, 1.0)} if pick.random() < 0.5 else {},
        instead=instead,
        miss_frac=pick.choice([0.0, 0.3, 0.6]),
    )
    safest = pick.random() < 0.2
    if safest:
        recourse = replace(recourse, miss_frac=1.0, miss_usd=20.0 * cheapest)
    return ProblemSpec(
        tasks=tuple(TaskSpec(str(t), tuple(range(t))) for t in range(count)),
        options=tuple(options),
        resources=resources,
        regions=("here",),
        windows=((0.0, deadline),),
        programme_daily=(("people", 10.0), ("security", 3.3)) if pick.random() < 0.7 else (),
        delay_usd_per_day=pick.choice([0.0, 60.0]),
        delay_after_days=deadline,
        deadline_days=deadline,
        budget_usd=inf if pick.random() < 0.6 else round(cheapest * pick.uniform(1.1, 2.2), 1),
        question="cheapest" if safest else pick.choice(["cheapest", "cheapest", "fastest"]),
        recourse=recourse,
    )


def best_by_trying(spec: ProblemSpec) -> float | None:
    """The least expected cost (or mean end); None where nothing keeps the promise."""
    recourse = spec.recourse
    assert recourse is not None
    ways = []
    for t in range(len(spec.tasks)):
        mine = [n for n, o in enumerate(spec.options) if o.task == t]
        ways.append(list(chain.from_iterable(combinations(mine, k) for k in range(1, len(mine) + 1))))
    scenarios = range(len(recourse.weight))
    best = None
    for chosen in product(*ways):
        for missed in chain.from_iterable(combinations(scenarios, k) for k in range(len(scenarios) + 1)):
            share = sum(recourse.weight[s] for s in missed)
            if share > recourse.miss_frac + 1e-9:
                continue
            value = _least(spec, recourse, chosen, frozenset(missed))
            if value is not None:
                value += recourse.miss_usd * share
                best = value if best is None else min(best, value)
    return best


class _Rows:
    """A linear program with named columns."""

    def __init__(self) -> None:
        self.columns: dict[Any, int] = {}
        self.rows: list[tuple[dict[int, float], float]] = []
        self.equal: list[tuple[dict[int, float], float]] = []

    def terms(self, terms: dict[Any, float]) -> dict[int, float]:
        return {self.columns.setdefault(name, len(self.columns)): value for name, value in terms.items()}

    def most(self, terms: dict[Any, float], upper: float) -> None:
        self.rows.append((self.terms(terms), upper))

    def matrix(self, rows: list[tuple[dict[int, float], float]]) -> tuple[Any, Any]:
        dense = np.zeros((len(rows), len(self.columns)))
        for number, (terms, _) in enumerate(rows):
            for column, value in terms.items():
                dense[number, column] += value
        return dense, np.array([upper for _, upper in rows])


def _least(
    spec: ProblemSpec, recourse: Recourse, chosen: tuple[tuple[int, ...], ...], missed: frozenset[int]
) -> float | None:
    lp, goal = _Rows(), dict[Any, float]()
    daily = sum(usd for _, usd in spec.programme_daily)
    scenarios = range(len(recourse.weight))
    planned_cost: dict[Any, float] = {"F": daily}
    fixed_planned = 0.0
    cost_in: dict[int, dict[Any, float]] = {s: {("F", s): daily} for s in scenarios}
    fixed_in = {s: 0.0 for s in scenarios}
    end_planned: dict[Any, float] = {}
    setups = 0.0
    for t, used in enumerate(chosen):
        lp.equal.append((lp.terms({("x", o): 1.0 for o in used}), 1.0))
        waits = {spec.options[o].resource for o in used}
        if t:
            waits -= {spec.options[o].resource for o in chosen[t - 1]}
        for o in used:
            option = spec.options[o]
            end_planned["x", o] = option.work_days
            setups += option.setup_days
            planned_cost["x", o] = option.daily_usd * option.work_days
            fixed_planned += option.daily_usd * option.setup_days
        for s in scenarios:
            length: dict[Any, float] = {}
            fixed = sum(recourse.wait_days[r][s] for r in waits if r in recourse.wait_days)
            for o in used:
                option = spec.options[o]
                days, usd = (
                    recourse.time_factor[o][s] * option.work_days,
                    option.daily_usd * recourse.usd_factor[o][s],
                )
                length["x", o] = days
                fixed += option.setup_days
                cost_in[s]["x", o] = usd * days
                fixed_in[s] += usd * option.setup_days
                if o in recourse.instead:
                    other = recourse.instead[o]
                    length["f", o, s] = other.days[s] - days
                    cost_in[s]["f", o, s] = other.daily_usd * other.days[s] - usd * days
                    lp.most({("f", o, s): 1.0, ("x", o): -1.0}, 0.0)
            earlier = {("E", t - 1, s): 1.0} if t else {}
            lp.most({**length, **earlier, ("E", t, s): -1.0}, -fixed)
            lp.most({("E", t, s): 1.0, ("F", s): -1.0}, 0.0)
    lp.most({**end_planned, "F": -1.0}, -setups)
    lp.most({"F": 1.0}, spec.deadline_days)
    if spec.budget_usd < inf:
        lp.most(planned_cost, spec.budget_usd - fixed_planned)
    constant = 0.0
    for s in scenarios:
        if spec.delay_usd_per_day:
            cost_in[s]["late", s] = spec.delay_usd_per_day
            lp.most({("F", s): 1.0, ("late", s): -1.0}, spec.delay_after_days)
        if s not in missed:
            lp.most({("F", s): 1.0}, spec.deadline_days)
            if spec.budget_usd < inf:
                lp.most(cost_in[s], spec.budget_usd - fixed_in[s])
        amounts = {("F", s): 1.0} if spec.question == "fastest" else cost_in[s]
        constant += 0.0 if spec.question == "fastest" else recourse.weight[s] * fixed_in[s]
        for name, value in amounts.items():
            goal[name] = goal.get(name, 0.0) + recourse.weight[s] * value
    (above, upper), (same, value) = lp.matrix(lp.rows), lp.matrix(lp.equal)
    cost = np.zeros(len(lp.columns))
    for name, amount in goal.items():
        cost[lp.columns[name]] += amount
    answer = linprog(cost, A_ub=above, b_ub=upper, A_eq=same, b_eq=value, bounds=(0.0, None))
    return float(answer.fun) + constant if answer.status == 0 else None


@pytest.fixture(scope="module")
def session() -> Any:
    with Session() as shared:
        yield shared


@pytest.mark.parametrize("seed", SEEDS)
def test_the_block_finds_what_trying_everything_finds(seed: int, session: Session) -> None:
    spec = random_problem(seed)
    assert_found(spec, session, best_by_trying(spec))


def test_the_examples_are_of_every_sort(session: Session) -> None:
    values = {seed: best_by_trying(random_problem(seed)) for seed in SEEDS}
    assert sum(value is None for value in values.values()) >= 3
    assert sum(value is not None for value in values.values()) >= 20
    certain = []
    for seed in SEEDS:
        spec = random_problem(seed)
        without = Solver(replace(spec, recourse=None), session, gap_frac=1e-7).solve(two_goals=False)
        certain.append((without.bound, values[seed]))
    assert sum(later is not None and later > planned * 1.01 for planned, later in certain) >= 15
