"""The rules a decision has to obey, in raw days and USD, stated once more without Pyomo.

The brute-force search and the re-evaluation of decisions both read them; neither knows the model.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import chain, combinations, product
from math import inf

from trainplan.problem import DatasetChoice, ProblemSpec, Product
from trainplan.solve import Decision, Use

Pair = tuple[int, int]
"""(option, window)."""
EPSILON = 1e-9


def reaches(spec: ProblemSpec) -> dict[Pair, float]:
    """The pairs (option, window) that may be used, with the largest share the window has time for."""
    found = {}
    for number, option in enumerate(spec.options):
        task, resource = spec.tasks[option.task], spec.resources[option.resource]
        most = inf if task.scalable and spec.question == "most-tokens" else 1.0
        for window, (start, end) in enumerate(spec.windows):
            days = end - start - option.setup_days
            fits = resource.committed or option.nodes <= resource.held_nodes[window]
            if start >= task.release_days and days > 0.0 and fits:
                found[number, window] = (
                    most if option.work_days == 0.0 else min(most, days / option.work_days)
                )
    return found


def begins(uses: tuple[Pair, ...] | set[Pair]) -> dict[Pair, bool]:
    """Whether each used pair is a start: the option was not in use in the window before."""
    return {(o, w): (o, w - 1) not in uses for o, w in uses}


def stretches(spec: ProblemSpec, task: int) -> bool:
    """Whether the work of a task is stretched."""
    return spec.tasks[task].scalable and spec.question == "most-tokens"


def antichains(spec: ProblemSpec) -> list[tuple[int, ...]]:
    """Every set of tasks none of which has to wait for another."""
    before: dict[int, set[int]] = {}
    for number, task in enumerate(spec.tasks):
        before[number] = set(task.predecessors).union(*(before[p] for p in task.predecessors))
    tasks = range(len(spec.tasks))
    sets = chain.from_iterable(combinations(tasks, size) for size in range(1, len(spec.tasks) + 1))
    return [s for s in sets if not any(a in before[b] for a in s for b in s)]


def demand(spec: ProblemSpec, uses: set[Pair] | tuple[Pair, ...]) -> dict[tuple[int, int, int], float]:
    """Nodes by (task, resource, window); resource -1 is the most nodes on any."""
    found: dict[tuple[int, int, int], float] = {}
    for o, w in uses:
        option = spec.options[o]
        for resource in (option.resource, -1):
            key = (option.task, resource, w)
            found[key] = max(found.get(key, 0.0), option.nodes)
    return found


def needs(spec: ProblemSpec, uses: set[Pair] | tuple[Pair, ...]) -> dict[Pair, float]:
    """Nodes in use at the same time by (resource, window)."""
    wanted = demand(spec, uses)
    found: dict[Pair, float] = {}
    for group in antichains(spec):
        for resource, window in {key[1:] for key in wanted}:
            nodes = sum(wanted.get((t, resource, window), 0.0) for t in group)
            found[resource, window] = max(found.get((resource, window), 0.0), nodes)
    return found


def stock(spec: ProblemSpec, bought: dict[int, int], resource: int, window: int) -> float:
    """Nodes there are."""
    if resource < 0:
        return spec.max_nodes
    products = [spec.products[k] for k in bought]
    return spec.resources[resource].held_nodes[window] + sum(
        p.nodes * count
        for p, count in zip(products, bought.values(), strict=True)
        if p.resource == resource and p.first_window <= window <= p.last_window
    )


def ends_with(spec: ProblemSpec, bought: dict[int, int], resource: int, window: int) -> bool:
    """Whether something bought has its unusable tail in a window."""
    ending: list[Product] = [spec.products[k] for k, count in bought.items() if count]
    return any(p.resource == resource and p.last_window == window and p.ends_inside for p in ending)


@dataclass(slots=True)
class Review:
    """A decision held against every rule, and what it costs."""

    spec: ProblemSpec
    decision: Decision
    tolerance_days: float

    def task(self, use: Use) -> int:
        """The task a use belongs to."""
        return self.spec.options[use.option].task

    def uses(self, task: int) -> list[Use]:
        """The uses of a task in order of time."""
        mine = [use for use in self.decision.uses if self.task(use) == task]
        return sorted(mine, key=lambda use: (use.start_days, use.end_days))

    def kept(self) -> set[Pair]:
        """Pairs in use, with the windows an option waits through between two without a new setup."""
        used = {(use.option, use.window) for use in self.decision.uses}
        reach = reaches(self.spec)
        for use in self.decision.uses:
            window = use.window - 1
            while not use.begins and (use.option, window) in reach and (use.option, window) not in used:
                used.add((use.option, window))
                window -= 1
        return used

    def violations(self) -> list[str]:
        """Every rule that is broken, in words."""
        checks = (self._work, self._times, self._order, self._stock, self._tails, self._places, self._limits)
        return [f"{check.__name__[1:]}: {what}" for check in checks for what in check()]

    def _work(self) -> list[str]:
        reach, starts, wrong = reaches(self.spec), begins(self.kept()), []
        for use in self.decision.uses:
            limit = reach.get((use.option, use.window))
            if limit is None:
                wrong.append(f"{use} cannot be used")
            elif not -1e-6 <= use.share_frac <= limit * (1 + 1e-6) + 1e-6:
                wrong.append(f"{use} does more than {limit}")
            if use.begins != starts[use.option, use.window]:
                wrong.append(f"{use} should {'not ' if use.begins else ''}be set up")
        for task in range(len(self.spec.tasks)):
            share = sum(use.share_frac for use in self.uses(task))
            due = self.decision.scale_frac if stretches(self.spec, task) else 1.0
            if abs(share - due) > 1e-6 * max(1.0, due):
                wrong.append(f"task {task} does {share} of {due}")
        return wrong

    def _times(self) -> list[str]:
        wrong, slack = [], self.tolerance_days
        for use in self.decision.uses:
            option, (start, end) = self.spec.options[use.option], self.spec.windows[use.window]
            days = use.share_frac * option.work_days + (option.setup_days if use.begins else 0.0)
            if abs(use.end_days - use.start_days - days) > slack:
                wrong.append(f"{use} takes {days} days")
            if use.start_days < start - slack or use.end_days > end + slack:
                wrong.append(f"{use} outside its window")
            if start < self.spec.tasks[option.task].release_days:
                wrong.append(f"{use} before its release")
        for task in range(len(self.spec.tasks)):
            mine = self.uses(task)
            for one, other in zip(mine, mine[1:], strict=False):
                if other.start_days < one.end_days - slack or other.window < one.window:
                    wrong.append(f"{one} and {other} overlap")
        return wrong

    def _order(self) -> list[str]:
        wrong = []
        for task, spec in enumerate(self.spec.tasks):
            for before in spec.predecessors:
                ends = max((use.end_days for use in self.uses(before)), default=0.0)
                if any(use.start_days < ends - self.tolerance_days for use in self.uses(task)):
                    wrong.append(f"task {task} starts before task {before} ends")
        return wrong

    def _stock(self) -> list[str]:
        spec, bought = self.spec, self.decision.bought
        wrong = [
            f"{nodes} nodes of resource {resource} in window {window}"
            for (resource, window), nodes in needs(spec, self.kept()).items()
            if nodes > stock(spec, bought, resource, window) + EPSILON
        ]
        return wrong + [
            f"{n} of product {k}" for k, n in bought.items() if not 0 <= n <= spec.products[k].most
        ]

    def _tails(self) -> list[str]:
        spec = self.spec
        return [
            f"{use} in an unusable tail"
            for use in self.decision.uses
            for resource in [spec.options[use.option].resource]
            if ends_with(spec, self.decision.bought, resource, use.window)
            and use.end_days
            > spec.windows[use.window][1] - spec.resources[resource].unusable_tail_days + self.tolerance_days
        ]

    def orders(self, task: int) -> list[Pair]:
        """(first, last) region, in every way the decision can be read."""
        mine, options = self.uses(task), self.spec.options
        held = {region for t, region in self.decision.tiers if t == task}
        places = sorted({options[o].region for o, _ in reaches(self.spec) if options[o].task == task})
        told = {c.region for c in self.spec.datasets if c.task == task}
        found = []
        for first in places:
            for last in places:
                used = {options[use.option].region for use in mine}
                here = {first, last}
                sequence = [options[use.option].region == last for use in mine]
                if used <= here and here & told == held and (first == last or sequence == sorted(sequence)):
                    found.append((first, last))
        return found

    def _places(self) -> list[str]:
        wrong = [
            f"task {t} has no order of regions" for t in range(len(self.spec.tasks)) if not self.orders(t)
        ]
        known = {(c.task, c.region, c.tier) for c in self.spec.datasets}
        return wrong + [
            f"no tier {tier}" for key, tier in self.decision.tiers.items() if (*key, tier) not in known
        ]

    def _limits(self) -> list[str]:
        spec, decision, wrong, slack = self.spec, self.decision, [], self.tolerance_days
        finish = max((use.end_days for use in decision.uses), default=0.0)
        if abs(finish - decision.finish_days) > slack or finish > spec.deadline_days + slack:
            wrong.append(f"finish {finish}, said {decision.finish_days}")
        for task in range(len(spec.tasks)):
            if any(use.end_days > spec.tasks[task].due_days + slack for use in self.uses(task)):
                wrong.append(f"task {task} is overdue")
        for number, resource in enumerate(spec.resources):
            mine = [use for use in decision.uses if spec.options[use.option].resource == number]
            drawn = sum(
                (use.end_days - use.start_days) * spec.options[use.option].accelerator_hours_per_day
                for use in mine
            )
            if drawn > resource.grant_hours * (1 + 1e-6) + 1e-6:
                wrong.append(f"{drawn} hours of resource {number}")
        if decision.usd > spec.budget_usd * (1 + 1e-6):
            wrong.append(f"{decision.usd} USD")
        return wrong

    def cost_usd(self) -> list[float]:
        """What the decision costs, in every way its regions can be read."""
        spec, decision = self.spec, self.decision
        usd = sum(usd for _, usd in spec.programme_once)
        usd += sum(usd for _, usd in spec.programme_daily) * decision.finish_days
        late = decision.finish_days - min(spec.delay_after_days, spec.windows[-1][1])
        usd += spec.delay_usd_per_day * max(0.0, late)
        usd += sum(spec.products[k].usd * count for k, count in decision.bought.items())
        usd += sum(spec.options[o].once_usd for o in {o for o, _ in self.kept()})
        for use in decision.uses:
            usd += (use.end_days - use.start_days) * spec.options[use.option].daily_usd
        clouds = {spec.options[o].cloud for o, _ in self.kept()}
        usd += sum(spec.cloud_once_usd.get(cloud, 0.0) for cloud in clouds)
        usd += sum(self._held_usd(choice) for choice in spec.datasets)
        return [usd + network for network in self._network_usd()]

    def _held_usd(self, choice: DatasetChoice) -> float:
        if self.decision.tiers.get((choice.task, choice.region)) != choice.tier:
            return 0.0
        inside = [u for u in self.uses(choice.task) if self.spec.options[u.option].region == choice.region]
        days = sum(use.end_days - use.start_days for use in inside)
        read = sum(use.share_frac for use in inside) * choice.read_usd
        return choice.once_usd + choice.usd_per_day * max(days, choice.min_days) + read

    def _network_usd(self) -> list[float]:
        spec, found = self.spec, []
        for orders in product(*(self.orders(task) for task in range(len(spec.tasks)))):
            usd = 0.0
            for task, (first, last) in enumerate(orders):
                usd += sum(spec.staging_usd.get((task, region), 0.0) for region in {first, last})
                usd += spec.move_usd.get((task, first, last), 0.0) if first != last else 0.0
                for p in spec.tasks[task].predecessors:
                    usd += spec.handover_usd.get((p, task, orders[p][1], first), 0.0)
            found.append(usd)
        return found
