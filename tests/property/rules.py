"""The rules a decision has to obey, in raw days and USD, stated once more without Pyomo.

The brute-force search and the re-evaluation of decisions both read them; neither knows the model.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import chain, combinations, product
from math import inf

from trainplan.problem import Beside, DatasetChoice, Option, ProblemSpec
from trainplan.solve import Decision, Use

Pair = tuple[int, int]
"""(option, window)."""
EPSILON = 1e-9
FOLLOWS_THE_PRICE = {"compute", "evaluation", "data preparation", "experiments and retries"}
LEAST_SHARE = 1e-3
"""A window in which an option could do less of its task than this after its setup is not used by it."""


def stretches(spec: ProblemSpec, task: int) -> bool:
    """Whether the work of a task is stretched."""
    return spec.tasks[task].scalable and spec.question == "most-tokens"


def usable(spec: ProblemSpec) -> list[Pair]:
    """The pairs (option, window) that may be used at all."""
    found: list[Pair] = []
    for number, option in enumerate(spec.options):
        task, parts = spec.tasks[option.task], nodes_of(spec, number)
        for window, (start, end) in enumerate(spec.windows):
            fits = start >= task.release_days
            for resource, nodes in ((spec.resources[r], nodes) for r, nodes in parts.items()):
                fits = fits and (resource.committed or nodes <= resource.held_nodes[window])
                fits = fits and window not in resource.frozen
            starts = end - start > option.setup_days
            starts = starts and reach(spec, (number, window), runs_on=False) >= LEAST_SHARE
            # Too short to set up in, a window can still be run through.
            if fits and (starts or (number, window - 1) in found):
                found.append((number, window))
    return found


def reach(spec: ProblemSpec, pair: Pair, runs_on: bool) -> float:
    """The largest share of its task an option has time for in a window."""
    option, (start, end) = spec.options[pair[0]], spec.windows[pair[1]]
    days = max(end - start - (0.0 if runs_on else option.setup_days), 0.0)
    most = inf if stretches(spec, option.task) else 1.0
    return most if option.work_days == 0.0 else min(most, days / option.work_days)


def daily_usd(spec: ProblemSpec, option: int, window: int) -> float:
    """What a day at work costs in a window: what follows the price of nodes at the price of the window."""
    found = 0.0
    for part in parts_of(spec, option):
        factors = spec.resources[part.resource].price_factor or (1.0,) * len(spec.windows)
        found += sum(
            usd * (factors[window] if name in FOLLOWS_THE_PRICE else 1.0) for name, usd in part.daily
        )
    return found


def parts_of(spec: ProblemSpec, option: int) -> list[Option | Beside]:
    """What an option takes of its own resource and of others."""
    return [spec.options[option], *spec.options[option].beside]


def nodes_of(spec: ProblemSpec, option: int) -> dict[int, int]:
    """Nodes an option takes, by resource."""
    found: dict[int, int] = {}
    for part in parts_of(spec, option):
        found[part.resource] = found.get(part.resource, 0) + part.nodes
    return found


def antichains(spec: ProblemSpec) -> list[tuple[int, ...]]:
    """Every set of tasks none of which has to wait for another."""
    before: dict[int, set[int]] = {}
    for number, task in enumerate(spec.tasks):
        before[number] = set(task.predecessors).union(*(before[p] for p in task.predecessors))
    tasks = range(len(spec.tasks))
    sets = chain.from_iterable(combinations(tasks, size) for size in range(1, len(spec.tasks) + 1))
    return [s for s in sets if not any(a in before[b] for a in s for b in s)]


@dataclass(slots=True)
class Review:
    """A decision held against every rule, and what it costs."""

    spec: ProblemSpec
    decision: Decision
    tolerance_days: float

    def task(self, use: Use) -> int:
        """The task a use belongs to."""
        return self.spec.options[use.option].task

    def region(self, use: Use) -> int:
        """Where a use runs."""
        return self.spec.options[use.option].region

    def uses(self, task: int) -> list[Use]:
        """The uses of a task in order of time."""
        mine = [use for use in self.decision.uses if self.task(use) == task]
        return sorted(mine, key=lambda use: (use.start_days, use.end_days))

    def violations(self) -> list[str]:
        """Every rule that is broken, in words."""
        checks = (self._work, self._times, self._order, self._stock, self._bought, self._places, self._limits)
        return [f"{check.__name__[1:]}: {what}" for check in checks for what in check()]

    def _work(self) -> list[str]:
        allowed, wrong = usable(self.spec), []
        for use in self.decision.uses:
            limit = reach(self.spec, (use.option, use.window), not use.begins)
            if (use.option, use.window) not in allowed:
                wrong.append(f"{use} cannot be used")
            if not -1e-6 <= use.share_frac <= limit * (1 + 1e-6) + 1e-6:
                wrong.append(f"{use} does more than {limit}")
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
            if not use.begins and not self._runs_on(use):
                wrong.append(f"{use} should be set up")
        for task in range(len(self.spec.tasks)):
            mine = self.uses(task)
            for one, other in zip(mine, mine[1:], strict=False):
                if other.start_days < one.end_days - slack or other.window < one.window:
                    wrong.append(f"{one} and {other} overlap")
        return wrong

    def _runs_on(self, use: Use) -> bool:
        return any(
            (other.option, other.window) == (use.option, use.window - 1)
            and abs(other.end_days - use.start_days) <= self.tolerance_days
            for other in self.decision.uses
        )

    def _order(self) -> list[str]:
        wrong = []
        for task, spec in enumerate(self.spec.tasks):
            for before in spec.predecessors:
                ends = max((use.end_days for use in self.uses(before)), default=0.0)
                if any(use.start_days < ends - self.tolerance_days for use in self.uses(task)):
                    wrong.append(f"task {task} starts before task {before} ends")
        return wrong

    def _stock(self) -> list[str]:
        """Nodes at every moment, of every resource and in all."""
        spec, wrong = self.spec, []
        starts = [(use.start_days, use.window) for use in self.decision.uses]
        starts += [
            (end + 4 * self.tolerance_days, use.window)
            for _, _, end in self._purchases()
            for use in self.decision.uses
            if use.start_days < end < use.end_days - 8 * self.tolerance_days
        ]
        for start, window in starts:
            at = start + 2 * self.tolerance_days
            running = [u.option for u in self.decision.uses if u.start_days <= at < u.end_days]
            taken: Counter[int] = Counter()
            for option in running:
                taken.update(nodes_of(spec, option))
            if taken.total() > spec.max_nodes:
                wrong.append(f"more nodes than are allowed at day {at}")
            for resource, nodes in taken.items():
                there = spec.resources[resource].held_nodes[window] + sum(
                    self.decision.bought[k]
                    for k, start, end in self._purchases()
                    if spec.products[k].resource == resource and start <= at <= end + 4 * self.tolerance_days
                )
                if nodes > there:
                    wrong.append(f"more nodes of resource {resource} than {there} at day {at}")
        return wrong

    def _purchases(self) -> list[tuple[int, float, float]]:
        """Product, start and usable end of every purchase."""
        spec, decision = self.spec, self.decision
        found = []
        for k, day in decision.bought_from_days.items():
            one = spec.products[k]
            found.append((k, day, day + one.days - spec.resources[one.resource].unusable_tail_days))
        return found

    def _bought(self) -> list[str]:
        spec, decision, wrong = self.spec, self.decision, []
        if decision.bought_from_days.keys() != decision.bought.keys():
            wrong.append(f"{decision.bought} bought, from {decision.bought_from_days}")
        made = [(spec.products[k].resource, spec.products[k].purchase) for k in decision.bought]
        if len(set(made)) < len(made):
            wrong.append(f"one purchase of two products: {decision.bought}")
        for k, nodes in decision.bought.items():
            one, day = spec.products[k], decision.bought_from_days[k]
            latest = min(one.last_day, spec.resources[one.resource].latest_start_days, spec.windows[-1][1])
            if not 0 < nodes <= one.most:
                wrong.append(f"{nodes} nodes of product {k}")
            if day != round(day) or not max(one.first_day, 0) <= day <= latest:
                wrong.append(f"product {k} from day {day}")
        return wrong + self._too_many_at_once()

    def _too_many_at_once(self) -> list[str]:
        """Nodes of all purchases of a resource that are there on a day, over what may be bought."""
        spec, wrong = self.spec, []
        paid = [
            (spec.products[k].resource, day, day + spec.products[k].days, self.decision.bought[k])
            for k, day in self.decision.bought_from_days.items()
        ]
        for resource, at, _, _ in paid:
            there = sum(n for r, start, end, n in paid if r == resource and start <= at < end)
            if there > spec.resources[resource].most_at_once_nodes:
                wrong.append(f"{there} nodes of resource {resource} are there on day {at}")
        return wrong

    def orders(self, task: int) -> list[Pair]:
        """(first, last) region, in every way the decision can be read."""
        mine, options = self.uses(task), self.spec.options
        held = {region for t, region in self.decision.tiers if t == task}
        places = sorted({options[o].region for o, _ in usable(self.spec) if options[o].task == task})
        told = {c.region for c in self.spec.datasets if c.task == task}
        found = []
        for first, last in product(places, places):
            here = {first, last}
            sequence = [self.region(use) == last for use in mine]
            fits = {self.region(use) for use in mine} <= here and here & told == held
            if fits and (first == last or sequence == sorted(sequence)):
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
        for use in decision.uses:
            if use.end_days > spec.tasks[self.task(use)].due_days + slack:
                wrong.append(f"{use} is overdue")
        for number, resource in enumerate(spec.resources):
            drawn = sum(
                (use.end_days - use.start_days) * part.accelerator_hours_per_day
                for use in decision.uses
                for part in parts_of(spec, use.option)
                if part.resource == number
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
        usd += sum(spec.products[k].usd_per_node * nodes for k, nodes in decision.bought.items())
        options = {use.option for use in decision.uses}
        usd += sum(spec.options[o].once_usd for o in options)
        usd += sum(spec.cloud_once_usd.get(cloud, 0.0) for cloud in {spec.options[o].cloud for o in options})
        for use in decision.uses:
            usd += (use.end_days - use.start_days) * daily_usd(spec, use.option, use.window)
        usd += sum(self._held_usd(choice) for choice in spec.datasets)
        return [usd + network for network in self._network_usd()]

    def _held_usd(self, choice: DatasetChoice) -> float:
        if self.decision.tiers.get((choice.task, choice.region)) != choice.tier:
            return 0.0
        inside = [use for use in self.uses(choice.task) if self.region(use) == choice.region]
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
