"""Tasks that take turns on the same node over two windows, in scenarios, against trying everything.

Every pattern of windows, every order in them and every set of missed scenarios is tried; what is left is a small
linear program in raw days and USD. In a scenario each stretch begins when the task's own earlier stretch and the
one before it on the node have ended, and where it is set up anew not before its window.
"""

from __future__ import annotations

from itertools import chain, combinations, product
from random import Random
from typing import Any

import numpy as np
import pytest
from scipy.optimize import linprog
from tests.property.agreement import assert_found

from trainplan.highs import Session
from trainplan.problem import Option, ProblemSpec, Recourse, Resource, TaskSpec

SEEDS = range(16)
TASKS, WINDOWS = (0, 1), (0, 1)
PATTERNS = (((0,), False), ((1,), False), ((0, 1), False), ((0, 1), True))
"""Windows in which a task works, and whether it runs on from one to the next without being set up again."""


def random_problem(seed: int) -> ProblemSpec:
    """Two tasks that know nothing of each other and have one node."""
    pick = Random(seed)
    scenarios = pick.choice([2, 3])
    options = tuple(
        Option(
            task,
            0,
            0,
            1,
            round(pick.uniform(2.0, 6.0), 2),
            pick.choice([0.0, 0.3]),
            (("compute", round(pick.uniform(20.0, 120.0), 1)),),
            key=str(task),
        )
        for task in TASKS
    )
    deadline = round(sum(o.work_days + o.setup_days for o in options) * pick.choice([1.15, 1.4, 1.8]), 2)
    weight = np.array([pick.uniform(0.5, 2.0) for _ in range(scenarios)])

    def draws(low: float, high: float) -> tuple[float, ...]:
        return tuple(round(pick.uniform(low, high), 3) for _ in range(scenarios))

    return ProblemSpec(
        tasks=tuple(TaskSpec(str(task)) for task in TASKS),
        options=options,
        resources=(Resource("owned", "owned", "owned", (1.0, 1.0)),),
        regions=("here",),
        windows=((0.0, edge := round(deadline * pick.uniform(0.3, 0.6), 2)), (edge, deadline)),
        programme_daily=(("people", 10.0),),
        delay_usd_per_day=pick.choice([0.0, 60.0]),
        delay_after_days=round(deadline * 0.8, 2),
        deadline_days=deadline,
        question=pick.choice(["cheapest", "fastest"]),
        recourse=Recourse(
            weight=tuple((weight / weight.sum()).tolist()),
            time_factor={task: draws(0.8, 1.5) for task in TASKS},
            usd_factor={task: draws(0.8, 1.4) for task in TASKS},
            wait_days={},
            instead={},
            miss_frac=pick.choice([0.0, 0.4, 0.6]),
        ),
    )


def best_by_trying(spec: ProblemSpec, *, in_turn: bool = True) -> float | None:
    """The least expected cost (or mean end); None where nothing keeps the promise."""
    recourse = spec.recourse
    assert recourse is not None
    scenarios = range(len(recourse.weight))
    values = []
    for patterns in product(PATTERNS, repeat=2):
        both = [w for w in WINDOWS if all(w in windows for windows, _ in patterns)]
        for order in product(((0, 1), (1, 0)), repeat=len(both)):
            for missed in chain.from_iterable(combinations(scenarios, k) for k in range(len(scenarios) + 1)):
                if sum(recourse.weight[s] for s in missed) <= recourse.miss_frac + 1e-9:
                    turns = dict(zip(both, order, strict=True))
                    values.append(_least(spec, recourse, patterns, turns, frozenset(missed), in_turn=in_turn))
    return min((value for value in values if value is not None), default=None)


def _least(
    spec: ProblemSpec,
    recourse: Recourse,
    patterns: tuple[tuple[tuple[int, ...], bool], ...],
    turns: dict[int, tuple[int, int]],
    missed: frozenset[int],
    *,
    in_turn: bool,
) -> float | None:
    columns: dict[Any, int] = {}
    rows: list[tuple[dict[Any, float], float]] = []

    def most(terms: dict[Any, float], upper: float) -> None:
        for name in terms:
            columns.setdefault(name, len(columns))
        rows.append((terms, upper))

    goal: dict[Any, float] = {}
    constant, fastest = 0.0, spec.question == "fastest"
    setup = {}
    for t, (windows, runs_on) in enumerate(patterns):
        o = spec.options[t]
        most({("x", t, w): 1.0 for w in windows}, 1.0)
        most({("x", t, w): -1.0 for w in windows}, -1.0)
        for w in windows:
            start, end = spec.windows[w]
            setup[t, w] = 0.0 if runs_on and w else o.setup_days
            most({("b", t, w): 1.0, ("x", t, w): o.work_days}, end - start - setup[t, w])
            most({("b", t, w): 1.0, ("x", t, w): o.work_days, "F": -1.0}, -start - setup[t, w])
        if runs_on:
            most({("b", t, 1): 1.0}, 0.0)
            most({("b", t, 0): -1.0, ("x", t, 0): -o.work_days}, setup[t, 0] - spec.windows[0][1])
    for w, (a, b) in turns.items():
        most({("b", a, w): 1.0, ("x", a, w): spec.options[a].work_days, ("b", b, w): -1.0}, -setup[a, w])
    most({"F": 1.0}, spec.deadline_days)
    for s, weight in enumerate(recourse.weight):
        for t, (windows, runs_on) in enumerate(patterns):
            o = spec.options[t]
            for w in windows:
                own = {("x", t, w): recourse.time_factor[t][s] * o.work_days, ("e", t, w, s): -1.0}
                anew = 0.0 if runs_on and w else spec.windows[w][0]
                most(own, -setup[t, w] - anew)
                if len(windows) > 1 and w:
                    most({**own, ("e", t, 0, s): 1.0}, -setup[t, w])
                if in_turn and w in turns and turns[w][1] == t:
                    most({**own, ("e", turns[w][0], w, s): 1.0}, -setup[t, w])
                most({("e", t, w, s): 1.0, ("F", s): -1.0}, 0.0)
                if not fastest:
                    usd = weight * o.daily_usd * recourse.usd_factor[t][s]
                    name = ("x", t, w)
                    goal[name] = goal.get(name, 0.0) + usd * recourse.time_factor[t][s] * o.work_days
                    constant += usd * setup[t, w]
        if s not in missed:
            most({("F", s): 1.0}, spec.deadline_days)
        if fastest:
            goal["F", s] = weight
            continue
        goal["F", s] = weight * sum(usd for _, usd in spec.programme_daily)
        most({("F", s): 1.0, ("late", s): -1.0}, spec.delay_after_days)
        goal["late", s] = weight * spec.delay_usd_per_day
    above = np.zeros((len(rows), len(columns)))
    for number, (terms, _) in enumerate(rows):
        for name, value in terms.items():
            above[number, columns[name]] += value
    cost = np.zeros(len(columns))
    for name, value in goal.items():
        cost[columns[name]] += value
    answer = linprog(cost, A_ub=above, b_ub=[upper for _, upper in rows], bounds=(0.0, None))
    return float(answer.fun) + constant if answer.status == 0 else None


@pytest.fixture(scope="module")
def session() -> Any:
    with Session() as shared:
        yield shared


@pytest.mark.parametrize("seed", SEEDS)
def test_turns_over_windows_are_what_trying_everything_finds(seed: int, session: Session) -> None:
    spec = random_problem(seed)
    assert_found(spec, session, best_by_trying(spec))


def test_turns_matter_in_the_examples() -> None:
    problems = [random_problem(seed) for seed in SEEDS]
    apart = [(best_by_trying(spec), best_by_trying(spec, in_turn=False)) for spec in problems]
    assert sum(turned is not None for turned, _ in apart) >= 8
    assert sum(free is not None and (turned is None or turned > free * 1.01) for turned, free in apart) >= 5
