"""The optimum of a small problem by trying everything, and the rules a decision has to obey.

Independent of Pyomo, of HiGHS' integer search and of the formulation: every set of used
(option, window) pairs, region orders and dataset tiers of each task, and every number of purchases
is tried; what is then left is a small linear program in raw days and USD. Bounds only skip what
cannot be better than a plan already found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import inf
from typing import Any

import numpy as np
from scipy.optimize import linprog
from tests.property.rules import EPSILON, Pair, begins, ends_with, needs, reaches, stock, stretches

from trainplan.problem import DatasetChoice, ProblemSpec

Array = np.ndarray[Any, np.dtype[Any]]
MOST_COMBINATIONS = 3_000_000


@dataclass(frozen=True, slots=True)
class TaskPlan:
    """The discrete choices of one task and what they cost and take at least."""

    uses: tuple[Pair, ...]
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


def orders(spec: ProblemSpec, task: int, uses: tuple[Pair, ...], places: list[int]) -> Iterator[Pair]:
    """First and last region of a task: one region, or two that follow each other window by window."""
    used = {spec.options[o].region for o, _ in uses}
    for first, last in product(places, places):
        if not used <= {first, last}:
            continue
        before = [w for o, w in uses if spec.options[o].region == first]
        after = [w for o, w in uses if spec.options[o].region == last]
        if first == last or not before or not after or max(before) <= min(after):
            yield first, last


def task_plans(spec: ProblemSpec, task: int) -> list[TaskPlan]:
    """Every choice of pairs, region order and tiers for one task that is not impossible by itself."""
    reach = {pair: r for pair, r in reaches(spec).items() if spec.options[pair[0]].task == task}
    places = sorted({spec.options[o].region for o, _ in reach})
    subsets = chain.from_iterable(combinations(sorted(reach), size) for size in range(1, len(reach) + 1))
    money_matters = spec.question == "cheapest" or spec.budget_usd < inf
    plans = []
    for uses in subsets:
        timing = _timing(spec, task, uses, reach)
        if timing is None:
            continue
        priced = []
        for first, last in orders(spec, task, uses, places):
            regions = sorted({first, last})
            choices = [[c for c in spec.datasets if (c.task, c.region) == (task, r)] for r in regions]
            for tiers in product(*[c for c in choices if c]):
                priced.append(_priced(spec, task, uses, reach, (first, last), tiers, timing))
        plans += priced if money_matters else priced[:1]
    return plans


def _timing(
    spec: ProblemSpec, task: int, uses: tuple[Pair, ...], reach: dict[Pair, float]
) -> tuple[float, float, float] | None:
    """Least time at work, earliest end and largest share of a set of pairs; None if it cannot be."""
    starts = begins(uses)
    setup: dict[int, float] = {}
    for (o, w), start in starts.items():
        setup[w] = setup.get(w, 0.0) + (spec.options[o].setup_days if start else 0.0)
    most = 0.0
    for w, setup_days in setup.items():
        here = [o for o, v in uses if v == w]
        free = spec.windows[w][1] - spec.windows[w][0] - setup_days
        fastest = min(spec.options[o].work_days for o in here)
        if free < -EPSILON:
            return None
        most += min(sum(reach[o, w] for o in here), free / fastest if fastest > 0.0 else inf)
    if not stretches(spec, task) and most < 1.0 - EPSILON:
        return None
    nodes = {(spec.options[o].resource, w): 0.0 for o, w in uses}
    for o, w in uses:
        key = (spec.options[o].resource, w)
        nodes[key] = max(nodes[key], spec.options[o].nodes)
    if max(nodes.values()) > spec.max_nodes:
        return None
    work = 0.0 if stretches(spec, task) else min(spec.options[o].work_days for o, _ in uses)
    least_days = sum(setup.values()) + work
    first, last = min(setup), max(setup)
    end = max(spec.windows[first][0] + least_days, spec.windows[last][0] + setup[last])
    return least_days, end, most


def share_usd(spec: ProblemSpec, option: int, tiers: tuple[DatasetChoice, ...]) -> float:
    """What all the work of a task costs on an option: its time, and reading the dataset."""
    o = spec.options[option]
    return o.work_days * o.daily_usd + sum(c.read_usd for c in tiers if c.region == o.region)


def _priced(
    spec: ProblemSpec,
    task: int,
    uses: tuple[Pair, ...],
    reach: dict[Pair, float],
    order: Pair,
    tiers: tuple[DatasetChoice, ...],
    timing: tuple[float, float, float],
) -> TaskPlan:
    usd = sum(spec.options[o].once_usd for o in {o for o, _ in uses})
    usd += sum(
        spec.options[o].setup_days * spec.options[o].daily_usd for (o, w), s in begins(uses).items() if s
    )
    usd += sum(spec.staging_usd.get((task, r), 0.0) for r in set(order))
    usd += spec.move_usd.get((task, *order), 0.0) if order[0] != order[1] else 0.0
    usd += sum(c.once_usd for c in tiers)
    least = usd + sum(c.usd_per_day * c.min_days for c in tiers)
    prices = sorted((share_usd(spec, o, tiers), reach[o, w]) for o, w in uses)
    per_frac = (min(spec.options[o].work_days for o, _ in uses), prices[0][0])
    if stretches(spec, task):
        return TaskPlan(uses, *order, tiers, usd, least, *timing, *per_frac)
    left = 1.0
    for price, share in prices:
        least += price * min(share, left)
        left -= min(share, left)
    return TaskPlan(uses, *order, tiers, usd, least, *timing, 0.0, 0.0)


def purchases(spec: ProblemSpec, uses: tuple[Pair, ...]) -> list[dict[int, int]]:
    """The least purchases that suffice; buying more than one of them is never better."""
    need = needs(spec, uses)
    enough: list[tuple[int, ...]] = []
    for counts in product(*(range(p.most + 1) for p in spec.products)):
        if any(all(a <= b for a, b in zip(known, counts, strict=True)) for known in enough):
            continue
        bought = {k: count for k, count in enumerate(counts) if count}
        if all(nodes <= stock(spec, bought, *key) + EPSILON for key, nodes in need.items()):
            enough.append(counts)
    return [{k: count for k, count in enumerate(counts) if count} for counts in enough]


def optimum(spec: ProblemSpec) -> float | None:
    """The best value of the question (USD, days or stretch); None where there is no plan.

    ``most-tokens`` has no plan here where nothing at all can be done.
    """
    by_task = [task_plans(spec, task) for task in range(len(spec.tasks))]
    if not all(by_task):
        return None
    assert np.prod([len(plans) for plans in by_task], dtype=float) <= MOST_COMBINATIONS, "too large a case"
    chosen, bound, least_usd = _combinations(spec, by_task)
    best = inf
    for place in np.argsort(bound, kind="stable"):
        if bound[place] >= best - EPSILON * max(1.0, abs(best)):
            break
        plans = [by_task[t][chosen[t][place]] for t in range(len(by_task))]
        for bought in purchases(spec, tuple(chain.from_iterable(plan.uses for plan in plans))):
            usd = least_usd[place] + sum(spec.products[k].usd * count for k, count in bought.items())
            if spec.question == "cheapest" and usd >= best - EPSILON * max(1.0, abs(best)):
                continue
            if usd > spec.budget_usd * (1 + EPSILON):
                continue
            value = Remainder(spec, plans, bought).solve()
            best = best if value is None else min(best, value)
    if best == inf:
        return None
    return -best if spec.question == "most-tokens" else best


def _combinations(spec: ProblemSpec, by_task: list[list[TaskPlan]]) -> tuple[list[Array], Array, Array]:
    """One plan per task in every way that is not impossible; bounds on the value and the bill of each."""
    grids = np.meshgrid(*(np.arange(len(plans)) for plans in by_task), indexing="ij")
    chosen = [grid.ravel() for grid in grids]

    def column(t: int, values: list[float]) -> Array:
        return np.array(values, dtype=float)[chosen[t]]

    usd = np.zeros(len(chosen[0])) + sum(usd for _, usd in spec.programme_once)
    end: list[Array] = []
    ok = np.ones(len(chosen[0]), dtype=bool)
    most = np.full(len(chosen[0]), _most_scale(spec))
    usd_per_frac = np.full(len(chosen[0]), EPSILON)
    horizon = min(spec.deadline_days, spec.windows[-1][1])
    start: list[Array] = []
    slope: list[Array] = []
    for t, plans in enumerate(by_task):
        usd += column(t, [p.least_usd for p in plans])
        least_days = column(t, [p.least_days for p in plans])
        ends = column(t, [p.least_end_days for p in plans])
        first = column(t, [min(w for _, w in p.uses) for p in plans])
        for before in spec.tasks[t].predecessors:
            ok &= column(before, [max(w for _, w in p.uses) for p in by_task[before]]) <= first
            ends = np.maximum(ends, end[before] + least_days)
            regions = range(len(spec.regions))
            prices = [[spec.handover_usd.get((before, t, a, b), 0.0) for b in regions] for a in regions]
            a = np.array([p.last for p in by_task[before]])[chosen[before]]
            usd += np.array(prices)[a, np.array([p.first for p in plans])[chosen[t]]]
        ok &= ends <= spec.tasks[t].due_days + EPSILON
        # The time and the money that are left, shared by what is stretched.
        here = column(t, [spec.windows[min(w for _, w in p.uses)][0] + p.least_days for p in plans])
        slope.append(column(t, [p.days_per_frac for p in plans]))
        for before in spec.tasks[t].predecessors[-1:]:
            later = start[before] + least_days
            slope[t] = slope[t] + np.where(later > here, slope[before], 0.0)
            here = np.maximum(later, here)
        start.append(here)
        if stretches(spec, t):
            most = np.minimum(most, column(t, [p.most_frac for p in plans]))
            usd_per_frac += column(t, [p.usd_per_frac for p in plans])
        most = np.minimum(most, (horizon - here) / np.maximum(slope[t], EPSILON))
        end.append(ends)
    finish = np.max(end, axis=0)
    usd += sum(usd for _, usd in spec.programme_daily) * finish
    ok &= (finish <= horizon + EPSILON) & (usd <= spec.budget_usd * (1 + EPSILON))
    if spec.budget_usd < inf:
        most = np.minimum(most, (spec.budget_usd - usd) / usd_per_frac)
    bound = {"cheapest": usd, "fastest": finish, "most-tokens": -most}[spec.question]
    return [c[ok] for c in chosen], bound[ok], usd[ok]


def _most_scale(spec: ProblemSpec) -> float:
    """Without a task to stretch there is nothing to gain."""
    return inf if any(task.scalable for task in spec.tasks) else 1.0


class Remainder:
    """The linear program that is left: shares, begins and the finish, in days and USD."""

    def __init__(self, spec: ProblemSpec, plans: list[TaskPlan], bought: dict[int, int]) -> None:
        self.spec, self.plans, self.bought = spec, plans, bought
        self.starts = [begins(plan.uses) for plan in plans]
        names: list[Any] = [("x", t, *use) for t, plan in enumerate(plans) for use in plan.uses]
        names += [("b", t, w) for t, plan in enumerate(plans) for w in sorted({w for _, w in plan.uses})]
        names += [("billed", t, c.region) for t, plan in enumerate(plans) for c in plan.tiers]
        self.names = [*names, "finish", "late", "scale"]
        self.column = {name: j for j, name in enumerate(self.names)}
        self.rows: list[Array] = []
        self.upper: list[float] = []

    def row(self, terms: dict[Any, float], upper: float) -> None:
        """Adds ``terms <= upper``."""
        line = np.zeros(len(self.names))
        for name, coefficient in terms.items():
            line[self.column[name]] += coefficient
        self.rows.append(line)
        self.upper.append(upper)

    def time(self, t: int, uses: list[Pair], factor: float = 1.0) -> tuple[dict[Any, float], float]:
        """Time that some uses of a task take: terms and a constant."""
        options = self.spec.options
        terms = {("x", t, *use): options[use[0]].work_days * factor for use in uses}
        return terms, factor * sum(options[use[0]].setup_days for use in uses if self.starts[t][use])

    def cost(self) -> tuple[dict[Any, float], float]:
        """The bill: terms and a constant."""
        spec, terms = self.spec, dict[Any, float]()
        constant = sum(usd for _, usd in spec.programme_once)
        constant += sum(spec.products[k].usd * count for k, count in self.bought.items())
        for t, plan in enumerate(self.plans):
            constant += plan.fixed_usd
            for o, w in plan.uses:
                terms["x", t, o, w] = share_usd(spec, o, plan.tiers)
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
            here = [use for use in plan.uses if use[1] == w]
            terms, constant = self.time(t, here)
            stretch = terms | {("b", t, w): 1.0}
            self.row(stretch, end - start - constant)
            self.row(stretch | {"finish": -1.0}, -start - constant)
            self.row(stretch, spec.tasks[t].due_days - start - constant)
            for p in spec.tasks[t].predecessors:
                before = [use for use in self.plans[p].uses if use[1] == w]
                if before:
                    theirs, their_constant = self.time(p, before)
                    self.row(theirs | {("b", p, w): 1.0, ("b", t, w): -1.0}, -their_constant)
            for r in {spec.options[o].resource for o, _ in here}:
                if ends_with(spec, self.bought, r, w):
                    terms, constant = self.time(
                        t, [use for use in here if spec.options[use[0]].resource == r]
                    )
                    tail = spec.resources[r].unusable_tail_days
                    self.row(terms | {("b", t, w): 1.0}, end - start - tail - constant)

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
                    option = spec.options[use[0]]
                    if option.resource == number and resource.grant_hours < inf:
                        terms, constant = self.time(t, [use], option.accelerator_hours_per_day)
                        drawn |= terms
                        fixed += constant
            self.row(drawn, resource.grant_hours - fixed)
        terms, constant = self.cost()
        self.row(terms, spec.budget_usd - constant)
        self.row({"finish": 1.0, "late": -1.0}, min(spec.delay_after_days, spec.windows[-1][1]))

    def solve(self) -> float | None:
        """The best value, negative for ``most-tokens``; None where these choices lead to no plan."""
        spec = self.spec
        reach = reaches(spec)
        whole = np.zeros((len(self.plans), len(self.names)))
        for t, plan in enumerate(self.plans):
            self._add_times(t)
            whole[t, [self.column["x", t, *use] for use in plan.uses]] = 1.0
            if stretches(spec, t):
                whole[t, self.column["scale"]] = -1.0
        self._add_limits()
        least: dict[Any, float] = {
            ("billed", t, c.region): c.min_days for t, plan in enumerate(self.plans) for c in plan.tiers
        }
        most = {("x", t, *use): reach[use] for t, plan in enumerate(self.plans) for use in plan.uses}
        most |= {"finish": min(spec.deadline_days, spec.windows[-1][1]), "scale": _most_scale(spec)}
        terms, constant = {"fastest": ({"finish": 1.0}, 0.0), "most-tokens": ({"scale": -1.0}, 0.0)}.get(
            spec.question, self.cost()
        )
        rows = np.flatnonzero(np.isfinite(self.upper))
        answer = linprog(
            [terms.get(name, 0.0) for name in self.names],
            A_ub=np.array(self.rows)[rows],
            b_ub=np.array(self.upper)[rows],
            A_eq=whole,
            b_eq=[0.0 if stretches(spec, t) else 1.0 for t in range(len(self.plans))],
            bounds=[(least.get(name, 0.0), most.get(name)) for name in self.names],
        )
        assert answer.status in (0, 2), answer.message
        return float(answer.fun) + constant if answer.status == 0 else None
