"""The linear program that is left once all choices are made: shares, begins and the finish."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import floor, inf
from typing import Any

import numpy as np
from scipy.optimize import linprog
from tests.property.rules import Pair, daily_usd, nodes_of, parts_of, reach, stretches

from trainplan.problem import DatasetChoice, ProblemSpec

Array = np.ndarray[Any, np.dtype[Any]]
Terms = dict[Any, float]
Turn = tuple[int, int, int]
"""In this window, the first task ends before the second begins: (first, second, window)."""


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The discrete choices of one task and what they cost and take at least."""

    uses: tuple[Pair, ...]
    runs_on: frozenset[Pair]
    """Uses without a setup, since the option runs on from the window before."""
    first: int
    last: int
    """Regions in which it starts and ends."""
    tiers: tuple[DatasetChoice, ...]
    fixed_usd: float
    """Charges that do not depend on shares, setups among them."""
    least_usd: float
    least_days: float
    """Time it is at work at least."""
    least_end_days: float
    most_frac: float
    """Share it could do at most."""
    days_per_frac: float
    usd_per_frac: float
    """What a task that can be stretched takes and costs at least for its work at scale 1; else 0."""


Which = tuple[int, int]
"""(resource, which of its purchases)."""


@dataclass(frozen=True, slots=True)
class Purchase:
    """Nodes of one product, and the first and the last day on which the purchase may begin."""

    product: int
    nodes: int
    earliest_days: int
    latest_days: int
    drawn: frozenset[tuple[int, int, int]]
    """(task, window, nodes) for what each task draws from it."""
    after: Which | None = None
    """The purchase that has to end before this one begins."""


def share_usd(spec: ProblemSpec, pair: Pair, tiers: tuple[DatasetChoice, ...]) -> float:
    """What all the work of a task would cost in a window: its time, and reading the dataset."""
    o = spec.options[pair[0]]
    return o.work_days * daily_usd(spec, *pair) + sum(c.read_usd for c in tiers if c.region == o.region)


def most_scale(spec: ProblemSpec) -> float:
    """Without a task to stretch there is nothing to gain."""
    return inf if any(task.scalable for task in spec.tasks) else 1.0


class Remainder:
    """Rows over named columns, in days and USD."""

    def __init__(self, spec: ProblemSpec, plans: list[TaskPlan], bought: dict[Which, Purchase]) -> None:
        self.spec, self.plans, self.bought = spec, plans, bought
        names: list[Any] = [("x", t, *use) for t, plan in enumerate(plans) for use in plan.uses]
        names += [("b", t, w) for t, plan in enumerate(plans) for w in sorted({w for _, w in plan.uses})]
        names += [("billed", t, c.region) for t, plan in enumerate(plans) for c in plan.tiers]
        names += [("day", which) for which in bought]
        self.names = [*names, "finish", "late", "scale"]
        self.column = {name: j for j, name in enumerate(self.names)}
        self.rows: list[Array] = []
        self.upper: list[float] = []

    def row(self, terms: Terms, upper: float) -> None:
        """Adds ``terms <= upper``."""
        if upper == inf:
            return
        line = np.zeros(len(self.names))
        for name, coefficient in terms.items():
            line[self.column[name]] += coefficient
        self.rows.append(line)
        self.upper.append(upper)

    def time(self, t: int, uses: list[Pair], factor: float = 1.0) -> tuple[Terms, float]:
        """Time that some uses of a task take: terms and a constant."""
        options, runs_on = self.spec.options, self.plans[t].runs_on
        terms = {("x", t, *use): options[use[0]].work_days * factor for use in uses}
        return terms, factor * sum(options[use[0]].setup_days for use in uses if use not in runs_on)

    def stretch(self, t: int, w: int) -> tuple[Terms, float]:
        """End of a task's stretch of a window, from the start of the window: terms and a constant."""
        terms, constant = self.time(t, [use for use in self.plans[t].uses if use[1] == w])
        return terms | {("b", t, w): 1.0}, constant

    def cost(self) -> tuple[Terms, float]:
        """The bill: terms and a constant."""
        spec = self.spec
        terms: Terms = {}
        constant = sum(usd for _, usd in spec.programme_once)
        constant += sum(spec.products[p.product].usd_per_node * p.nodes for p in self.bought.values())
        for t, plan in enumerate(self.plans):
            constant += plan.fixed_usd
            for o, w in plan.uses:
                terms["x", t, o, w] = share_usd(spec, (o, w), plan.tiers)
            for choice in plan.tiers:
                terms["billed", t, choice.region] = choice.usd_per_day
            for p in spec.tasks[t].predecessors:
                constant += spec.handover_usd.get((p, t, self.plans[p].last, plan.first), 0.0)
        clouds = {spec.options[o].cloud for plan in self.plans for o, _ in plan.uses}
        constant += sum(spec.cloud_once_usd.get(cloud, 0.0) for cloud in clouds)
        terms["finish"] = sum(usd for _, usd in spec.programme_daily)
        terms["late"] = spec.delay_usd_per_day
        return terms, constant

    def _add_times(self, t: int) -> None:
        spec, plan = self.spec, self.plans[t]
        for w in sorted({w for _, w in plan.uses}):
            start, end = spec.windows[w]
            terms, constant = self.stretch(t, w)
            self.row(terms, end - start - constant)
            self.row(terms | {"finish": -1.0}, -start - constant)
            self.row(terms, spec.tasks[t].due_days - start - constant)
            for p in spec.tasks[t].predecessors:
                if any(v == w for _, v in self.plans[p].uses):
                    self._add_turn(p, t, w)
            if any(v == w for _, v in plan.runs_on):
                self.row({("b", t, w): 1.0}, 0.0)
                terms, constant = self.stretch(t, w - 1)
                length = spec.windows[w - 1][1] - spec.windows[w - 1][0]
                self.row({name: -c for name, c in terms.items()}, constant - length)

    def _add_turn(self, before: int, after: int, w: int) -> None:
        terms, constant = self.stretch(before, w)
        self.row(terms | {("b", after, w): -1.0}, -constant)

    def _add_purchases(self) -> None:
        spec = self.spec
        for which, purchase in self.bought.items():
            day = ("day", which)
            lasts = spec.products[purchase.product].days - spec.resources[which[0]].unusable_tail_days
            for t, w, nodes in purchase.drawn:
                if nodes == 0:
                    continue
                on = [u for u in self.plans[t].uses if u[1] == w and which[0] in nodes_of(spec, u[0])]
                start = spec.windows[w][0]
                self.row({("b", t, w): -1.0, day: 1.0}, start)
                terms, constant = self.time(t, on)
                self.row(terms | {("b", t, w): 1.0, day: -1.0}, lasts - start - constant)
                if any((o, w + 1) in self.plans[t].runs_on for o, _ in on):
                    terms, constant = self.stretch(t, w)
                    self.row(terms | {day: -1.0}, lasts - start - constant)
            if purchase.after is not None:
                first = spec.products[self.bought[purchase.after].product]
                self.row({("day", purchase.after): 1.0, day: -1.0}, -first.days)

    def _add_limits(self) -> None:
        spec = self.spec
        for t, plan in enumerate(self.plans):
            for choice in plan.tiers:
                inside = [use for use in plan.uses if spec.options[use[0]].region == choice.region]
                terms, constant = self.time(t, inside)
                self.row(terms | {("billed", t, choice.region): -1.0}, -constant)
        for number, resource in enumerate(spec.resources):
            drawn, fixed = dict[Any, float](), 0.0
            for t, plan in enumerate(self.plans):
                for use in plan.uses:
                    parts = [part for part in parts_of(spec, use[0]) if part.resource == number]
                    hours = sum(part.accelerator_hours_per_day for part in parts)
                    if hours:
                        terms, constant = self.time(t, [use], hours)
                        drawn |= terms
                        fixed += constant
            self.row(drawn, resource.grant_hours - fixed)
        terms, constant = self.cost()
        self.row(terms, spec.budget_usd - constant)
        self.row({"finish": 1.0, "late": -1.0}, min(spec.delay_after_days, spec.windows[-1][1]))

    def solve(self, turns: tuple[Turn, ...]) -> float | None:
        """The best value, negative for ``most-tokens``; None where these choices lead to no plan.

        Purchases begin on whole days: what the program puts between two of them is tried on either side.
        """
        value, days = self._solve(turns)
        for which, day in days.items():
            if value is not None and abs(day - round(day)) > 1e-7:
                one = self.bought[which]
                sides = replace(one, latest_days=floor(day)), replace(one, earliest_days=floor(day) + 1)
                values = [
                    Remainder(self.spec, self.plans, self.bought | {which: s}).solve(turns) for s in sides
                ]
                return min((v for v in values if v is not None), default=None)
        return value

    def _solve(self, turns: tuple[Turn, ...]) -> tuple[float | None, dict[Which, float]]:
        spec = self.spec
        self.rows, self.upper = [], []
        whole = np.zeros((len(self.plans), len(self.names)))
        bounds: dict[Any, tuple[float, float]] = {
            "finish": (0.0, min(spec.deadline_days, spec.windows[-1][1]))
        }
        bounds["scale"] = (0.0, most_scale(spec))
        bounds |= {("day", r): (float(p.earliest_days), float(p.latest_days)) for r, p in self.bought.items()}
        for t, plan in enumerate(self.plans):
            self._add_times(t)
            for use in plan.uses:
                whole[t, self.column["x", t, *use]] = 1.0
                bounds["x", t, *use] = (0.0, reach(spec, use, use in plan.runs_on))
            if stretches(spec, t):
                whole[t, self.column["scale"]] = -1.0
            bounds |= {("billed", t, c.region): (c.min_days, inf) for c in plan.tiers}
        for turn in turns:
            self._add_turn(*turn)
        self._add_purchases()
        self._add_limits()
        terms, constant = {"fastest": ({"finish": 1.0}, 0.0), "most-tokens": ({"scale": -1.0}, 0.0)}.get(
            spec.question, self.cost()
        )
        answer = linprog(
            [terms.get(name, 0.0) for name in self.names],
            A_ub=np.array(self.rows),
            b_ub=np.array(self.upper),
            A_eq=whole,
            b_eq=[0.0 if stretches(spec, t) else 1.0 for t in range(len(self.plans))],
            bounds=[bounds.get(name, (0.0, inf)) for name in self.names],
        )
        assert answer.status in (0, 2), answer.message
        if answer.status == 2:
            return None, {}
        days = {which: float(answer.x[self.column["day", which]]) for which in self.bought}
        return float(answer.fun) + constant, days
