"""The optimum of a small problem by trying everything.

Independent of Pyomo, of HiGHS' integer search and of the formulation: every set of used
(option, window) pairs, every choice of which of them run on, every order of regions, dataset tier,
purchase with its first day, and every order of tasks that take turns is tried; what is then left is a
small linear program in raw days and USD. Bounds only skip what cannot be better than a plan already found.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import chain, combinations, product
from math import ceil, floor, inf
from typing import Any

import numpy as np
from tests.property.remainder import Purchase, Remainder, TaskPlan, Turn, Which, most_scale, share_usd
from tests.property.rules import EPSILON, Pair, antichains, daily_usd, nodes_of, reach, stretches, usable

from trainplan.problem import DatasetChoice, ProblemSpec

Array = np.ndarray[Any, np.dtype[Any]]
MOST_COMBINATIONS = 4_000_000


def task_plans(spec: ProblemSpec, task: int) -> list[TaskPlan]:
    """Every choice of pairs, running on, region order and tiers of a task that is not impossible by itself."""
    mine = [pair for pair in usable(spec) if spec.options[pair[0]].task == task]
    places = sorted({spec.options[o].region for o, _ in mine})
    money_matters = spec.question == "cheapest" or spec.budget_usd < inf
    plans = []
    for uses in chain.from_iterable(combinations(mine, size) for size in range(1, len(mine) + 1)):
        for runs_on in _runs_on(uses):
            timing = _timing(spec, task, uses, runs_on)
            if timing is None:
                continue
            priced = []
            for first, last in _orders(spec, uses, places):
                regions = sorted({first, last})
                choices = [[c for c in spec.datasets if (c.task, c.region) == (task, r)] for r in regions]
                for tiers in product(*[c for c in choices if c]):
                    priced.append(_priced(spec, task, uses, runs_on, (first, last), tiers, timing))
            plans += priced if money_matters else priced[:1]
    return plans


def _runs_on(uses: tuple[Pair, ...]) -> Iterator[frozenset[Pair]]:
    """Which pairs run on: at most one a window, and alone where an option runs in and out."""
    windows = sorted({w for o, w in uses if (o, w - 1) in uses})
    choices = [[None, *[(o, v) for o, v in uses if v == w and (o, w - 1) in uses]] for w in windows]
    for chosen in product(*choices):
        runs_on = frozenset(pair for pair in chosen if pair is not None)
        through = {(o, w) for o, w in runs_on if (o, w + 1) in runs_on}
        if all(sum(v == w for _, v in uses) == 1 for _, w in through):
            yield runs_on


def _orders(spec: ProblemSpec, uses: tuple[Pair, ...], places: list[int]) -> Iterator[Pair]:
    """First and last region of a task: one region, or two that follow each other window by window."""
    used = {spec.options[o].region for o, _ in uses}
    sold = {one.resource for one in spec.products}
    for first, last in product(places, places):
        if not used <= {first, last}:
            continue
        before = [w for o, w in uses if spec.options[o].region == first]
        after = [w for o, w in uses if spec.options[o].region == last]
        if first != last and before and after:
            if max(before) > min(after):
                continue
            move = {o for o, w in uses if w == max(before)} if max(before) == min(after) else set()
            if any(nodes_of(spec, o).keys() & sold for o in move):
                continue
        yield first, last


def _timing(
    spec: ProblemSpec, task: int, uses: tuple[Pair, ...], runs_on: frozenset[Pair]
) -> tuple[float, float, float] | None:
    """Least time at work, earliest end and largest share of a set of pairs; None if it cannot be."""
    setup: dict[int, float] = {}
    for o, w in uses:
        setup[w] = setup.get(w, 0.0) + (0.0 if (o, w) in runs_on else spec.options[o].setup_days)
    sold = {one.resource for one in spec.products}
    most = 0.0
    for w, setup_days in setup.items():
        here = [o for o, v in uses if v == w]
        free = spec.windows[w][1] - spec.windows[w][0] - setup_days
        fastest = min(spec.options[o].work_days for o in here)
        on = {r for o in here for r in nodes_of(spec, o)} & sold
        before = [o for o in here if (o, w) in runs_on]
        alone = all(on <= nodes_of(spec, o).keys() for o in before)
        if free < -EPSILON or len(on) > 1 or not alone:
            return None
        shares = sum(reach(spec, (o, w), (o, w) in runs_on) for o in here)
        most += min(shares, free / fastest if fastest > 0.0 else inf)
    if not stretches(spec, task) and most < 1.0 - EPSILON:
        return None
    work = 0.0 if stretches(spec, task) else min(spec.options[o].work_days for o, _ in uses)
    least_days = sum(setup.values()) + work
    first, last = min(setup), max(setup)
    end = max(spec.windows[first][0] + least_days, spec.windows[last][0] + setup[last])
    if any(w == first + 1 for _, w in runs_on):
        end = max(end, spec.windows[first][1])
    return least_days, end, most


def _priced(
    spec: ProblemSpec,
    task: int,
    uses: tuple[Pair, ...],
    runs_on: frozenset[Pair],
    order: Pair,
    tiers: tuple[DatasetChoice, ...],
    timing: tuple[float, float, float],
) -> TaskPlan:
    options = spec.options
    usd = sum(options[o].once_usd for o in {o for o, _ in uses})
    usd += sum(options[o].setup_days * daily_usd(spec, o, w) for o, w in uses if (o, w) not in runs_on)
    usd += sum(spec.staging_usd.get((task, r), 0.0) for r in set(order))
    usd += spec.move_usd.get((task, *order), 0.0) if order[0] != order[1] else 0.0
    usd += sum(c.once_usd for c in tiers)
    least = usd + sum(c.usd_per_day * c.min_days for c in tiers)
    prices = sorted((share_usd(spec, (o, w), tiers), reach(spec, (o, w), (o, w) in runs_on)) for o, w in uses)
    if stretches(spec, task):
        per_frac = min(options[o].work_days for o, _ in uses), prices[0][0]
        return TaskPlan(uses, runs_on, *order, tiers, usd, least, *timing, *per_frac)
    left = 1.0
    for price, share in prices:
        least += price * min(share, left)
        left -= min(share, left)
    return TaskPlan(uses, runs_on, *order, tiers, usd, least, *timing, 0.0, 0.0)


def demand(spec: ProblemSpec, plans: list[TaskPlan]) -> dict[tuple[int, int, int], float]:
    """Nodes by (task, resource, window); resource -1 is the most nodes on any."""
    found: dict[tuple[int, int, int], float] = {}
    for o, w in chain.from_iterable(plan.uses for plan in plans):
        option = spec.options[o]
        parts = nodes_of(spec, o)
        for resource, nodes in (*parts.items(), (-1, sum(parts.values()))):
            key = (option.task, resource, w)
            found[key] = max(found.get(key, 0.0), nodes)
    return found


def purchases(
    spec: ProblemSpec, plans: list[TaskPlan], needs: dict[tuple[int, int, int], float]
) -> Iterator[dict[Which, Purchase]]:
    """Every set of purchases that may serve: what each task draws from which, products, nodes, first days."""
    per_resource = []
    for resource in sorted({one.resource for one in spec.products}):
        cells = [(t, w, int(nodes)) for (t, r, w), nodes in needs.items() if r == resource]
        if cells:
            most = 1 + max(one.purchase for one in spec.products if one.resource == resource)
            counts = range(1, most + 1)
            per_resource.append([made for count in counts for made in _made(spec, resource, cells, count)])
    for chosen in product(*per_resource):
        yield {which: one for made in chosen for which, one in made.items()}


def _made(
    spec: ProblemSpec, resource: int, cells: list[tuple[int, int, int]], count: int
) -> Iterator[dict[Which, Purchase]]:
    """Every way to draw what tasks need of a resource from so many purchases of it."""
    assert count <= 2, "too many purchases to search through"
    for shares in product(*(_splits(nodes, count) for _, _, nodes in cells)):
        drawn = [
            frozenset((t, w, share[j]) for (t, w, _), share in zip(cells, shares, strict=True))
            for j in range(count)
        ]
        if not all(any(nodes for _, _, nodes in one) for one in drawn):
            continue
        for made in product(*(_of_product(spec, resource, j, drawn[j]) for j in range(count))):
            found = {(resource, j): one for j, one in enumerate(made)}
            if sum(one.nodes for one in made) > spec.resources[resource].most_at_once_nodes:
                found[resource, count - 1] = replace(made[-1], after=(resource, 0))
                if count == 1:
                    continue
            yield found


def _splits(nodes: int, count: int) -> list[tuple[int, ...]]:
    return [(nodes,)] if count == 1 else [(part, nodes - part) for part in range(nodes + 1)]


def _of_product(
    spec: ProblemSpec, resource: int, number: int, drawn: frozenset[tuple[int, int, int]]
) -> list[Purchase]:
    """One product, as many nodes as some tasks draw together, and the days on which it may begin."""
    windows = [w for _, w, nodes in drawn if nodes]
    need = {(t, w): nodes for t, w, nodes in drawn}
    together = {sum(need.get((t, w), 0) for t in group) for group in antichains(spec) for w in windows}
    latest = floor(min(spec.resources[resource].latest_start_days, spec.windows[-1][1]))
    tail = spec.resources[resource].unusable_tail_days
    return [
        Purchase(k, nodes, ceil(one.first_day), min(latest, floor(min(one.last_day, latest))), drawn)
        for k, one in enumerate(spec.products)
        if (one.resource, one.purchase) == (resource, number)
        for nodes in sorted(together - {0})
        if nodes <= one.most
        and ceil(one.first_day) <= min(latest, one.last_day)
        and latest + one.days - tail > spec.windows[max(windows)][0]
        and one.days - tail > spec.windows[max(windows)][0] - spec.windows[min(windows)][1]
    ]


def turns(
    spec: ProblemSpec, needs: dict[tuple[int, int, int], float], bought: dict[Which, Purchase]
) -> Iterator[tuple[Turn, ...]]:
    """The fewest orders among tasks side by side with which the nodes suffice, in every way."""
    per_window = []
    for w in sorted({w for _, _, w in needs}):
        active = sorted({t for t, _, v in needs if v == w})
        groups = [group for group in antichains(spec) if set(group) <= set(active)]
        pairs = [group for group in groups if len(group) == 2]
        enough: list[frozenset[Turn]] = []
        options = sorted(product((0, 1, 2), repeat=len(pairs)), key=lambda chosen: sum(map(bool, chosen)))
        for chosen in options:
            placed = zip(pairs, chosen, strict=True)
            order = frozenset(((a, b, w) if way == 1 else (b, a, w)) for (a, b), way in placed if way)
            apart = [{a, b} for a, b, _ in order]
            together = [group for group in groups if not any(pair <= set(group) for pair in apart)]
            fits = all(_suffices(spec, needs, bought, group, w) for group in together)
            if fits and not any(known <= order for known in enough):
                enough.append(order)
        per_window.append(enough)
    for parts in product(*per_window):
        yield tuple(chain.from_iterable(parts))


def _suffices(
    spec: ProblemSpec,
    needs: dict[tuple[int, int, int], float],
    bought: dict[Which, Purchase],
    group: tuple[int, ...],
    window: int,
) -> bool:
    for one in bought.values():
        if sum(nodes for t, w, nodes in one.drawn if w == window and t in group) > one.nodes:
            return False
    sold = {resource for resource, _ in bought}
    for resource in {r for t, r, w in needs if w == window} - sold:
        there = spec.max_nodes if resource < 0 else spec.resources[resource].held_nodes[window]
        if sum(needs.get((t, resource, window), 0.0) for t in group) > there:
            return False
    return True


class TimesAlone:
    """What choices could reach if money were no matter, remembered: regions and tiers change only money."""

    def __init__(self, spec: ProblemSpec) -> None:
        self.spec = spec
        question = "fastest" if spec.question == "cheapest" else spec.question
        self.rich = replace(spec, question=question, budget_usd=inf)
        self.known: dict[Any, float | None] = {}

    def can_beat(
        self, best: float, plans: list[TaskPlan], bought: dict[Which, Purchase], order: tuple[Turn, ...]
    ) -> bool:
        """Whether choices are worth a closer look."""
        if self.spec.question != "cheapest" and self.spec.budget_usd == inf:
            return True
        key = (tuple((p.uses, p.runs_on) for p in plans), tuple(bought.values()), order)
        if key not in self.known:
            self.known[key] = Remainder(self.rich, plans, bought).solve(order)
        value = self.known[key]
        return value is not None and (self.spec.question == "cheapest" or value < best - EPSILON)


def optimum(spec: ProblemSpec) -> float | None:
    """The best value of the question (USD, days or stretch); None where there is no plan.

    ``most-tokens`` has no plan here where nothing at all can be done.
    """
    by_task = [task_plans(spec, task) for task in range(len(spec.tasks))]
    if not all(by_task):
        return None
    assert np.prod([len(plans) for plans in by_task], dtype=float) <= MOST_COMBINATIONS, "too large a case"
    chosen, bound, least_usd = combined(spec, by_task)
    times = TimesAlone(spec)
    best = inf
    for place in np.argsort(bound, kind="stable"):
        if bound[place] >= best - EPSILON * max(1.0, abs(best)):
            break
        plans = [by_task[t][chosen[t][place]] for t in range(len(by_task))]
        needs = demand(spec, plans)
        for bought in purchases(spec, plans, needs):
            usd = least_usd[place] + sum(
                spec.products[p.product].usd_per_node * p.nodes for p in bought.values()
            )
            beaten = spec.question == "cheapest" and usd >= best - EPSILON * max(1.0, abs(best))
            if beaten or usd > spec.budget_usd * (1 + EPSILON):
                continue
            for order in turns(spec, needs, bought):
                if times.can_beat(best, plans, bought, order):
                    value = Remainder(spec, plans, bought).solve(order)
                    best = best if value is None else min(best, value)
    if best == inf:
        return None
    return -best if spec.question == "most-tokens" else best


def combined(spec: ProblemSpec, by_task: list[list[TaskPlan]]) -> tuple[list[Array], Array, Array]:
    """One plan per task in every way that is not impossible; bounds on the value and the bill of each."""
    grids = np.meshgrid(*(np.arange(len(plans)) for plans in by_task), indexing="ij")
    chosen = [grid.ravel() for grid in grids]

    def column(t: int, values: list[float]) -> Array:
        return np.array(values, dtype=float)[chosen[t]]

    horizon = min(spec.deadline_days, spec.windows[-1][1])
    usd = np.full(len(chosen[0]), float(sum(usd for _, usd in spec.programme_once)))
    usd_per_frac, most = np.full(len(usd), EPSILON), np.full(len(usd), most_scale(spec))
    ok = np.ones(len(usd), dtype=bool)
    end: list[Array] = []
    start: list[Array] = []
    slope: list[Array] = []
    for t, plans in enumerate(by_task):
        usd += column(t, [p.least_usd for p in plans])
        usd_per_frac += column(t, [p.usd_per_frac for p in plans])
        least_days = column(t, [p.least_days for p in plans])
        end.append(column(t, [p.least_end_days for p in plans]))
        start.append(column(t, [spec.windows[min(w for _, w in p.uses)][0] + p.least_days for p in plans]))
        slope.append(column(t, [p.days_per_frac for p in plans]))
        first = column(t, [min(w for _, w in p.uses) for p in plans])
        for before in spec.tasks[t].predecessors:
            ok &= column(before, [max(w for _, w in p.uses) for p in by_task[before]]) <= first
            end[t] = np.maximum(end[t], end[before] + least_days)
            usd += _handover_usd(spec, by_task, chosen, before, t)
        # The time that is left on the way to the end, shared by what is stretched.
        for before in spec.tasks[t].predecessors[-1:]:
            later = start[before] + least_days
            slope[t] = slope[t] + np.where(later > start[t], slope[before], 0.0)
            start[t] = np.maximum(later, start[t])
        ok &= end[t] <= spec.tasks[t].due_days + EPSILON
        most = np.minimum(most, column(t, [p.most_frac if stretches(spec, t) else inf for p in plans]))
        most = np.minimum(most, (horizon - start[t]) / np.maximum(slope[t], EPSILON))
    finish = np.max(end, axis=0)
    usd += sum(usd for _, usd in spec.programme_daily) * finish
    ok &= (finish <= horizon + EPSILON) & (usd <= spec.budget_usd * (1 + EPSILON))
    if spec.budget_usd < inf:
        most = np.minimum(most, (spec.budget_usd - usd) / usd_per_frac)
    bound = {"cheapest": usd, "fastest": finish, "most-tokens": -most}[spec.question]
    return [c[ok] for c in chosen], bound[ok], usd[ok]


def _handover_usd(
    spec: ProblemSpec, by_task: list[list[TaskPlan]], chosen: list[Array], before: int, t: int
) -> Array:
    regions = range(len(spec.regions))
    prices = np.array([[spec.handover_usd.get((before, t, a, b), 0.0) for b in regions] for a in regions])
    last = np.array([p.last for p in by_task[before]])[chosen[before]]
    return np.asarray(prices[last, np.array([p.first for p in by_task[t]])[chosen[t]]])
