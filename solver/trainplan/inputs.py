"""Scaling: the only place that turns days and USD into the solver's units.

HiGHS compares with absolute tolerances (1e-6), so the model is stated in units in which the
programme costs about 1,000 and lasts about 100. The units follow from the case alone, which makes
the decision independent of the currency.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from math import inf

from trainplan.problem import Option, ProblemSpec, Resource

TARGET_MONEY = 1_000.0
TARGET_TIME = 100.0
LEAST_COEFFICIENT = 1e-6
"""Money below this many units (1e-9 of the programme) is nothing; HiGHS would ignore it silently."""
LEAST_SHARE = 1e-3
"""An option that could do less of its task than this in all its time is no option."""
DEAREST_FACTOR = 1_000.0
"""An option this many times dearer than the cheapest way to do its task is no option."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """A problem in solver units, with the pairs (option, window) that can be used at all."""

    spec: ProblemSpec
    usd_per_unit: float
    days_per_unit: float
    uses: dict[tuple[int, int], float]
    """(option, window) -> the largest share of its task the option can do in the window."""
    most_scale: float
    """Largest stretch of the scalable tasks; 1 unless tokens are maximised."""
    loose: tuple[tuple[int, int], ...] = ()
    """(option, window) that can be used, of options without whole numbers (see ``formulation.loose``)."""

    def money(self, usd: float) -> float:
        """USD in solver units."""
        amount = usd / self.usd_per_unit
        return amount if abs(amount) >= LEAST_COEFFICIENT else 0.0

    def time(self, days: float) -> float:
        """Days in solver units."""
        return days / self.days_per_unit

    def length(self, window: int) -> float:
        """Length of a window in solver units."""
        start, end = self.spec.windows[window]
        return self.time(end - start)

    def start(self, window: int) -> float:
        """Start of a window in solver units."""
        return self.time(self.spec.windows[window][0])


def scale(spec: ProblemSpec, options: Collection[int] | None = None, loose: Collection[int] = ()) -> Inputs:
    """States a problem in solver units.

    Options that cannot matter (see ``LEAST_SHARE`` and ``DEAREST_FACTOR``) get no columns.

    Args:
        spec: the problem.
        options: the options that get columns; all when absent. Units do not depend on them.
        loose: options beside them that get columns without whole numbers.
    """
    wanted = range(len(spec.options)) if options is None else sorted(options)
    horizon_days = spec.windows[-1][1]
    cheapest = [_cheapest_usd(spec, task) for task in range(len(spec.tasks))]
    fastest_days = sum(
        min((o.work_days + o.setup_days for o in spec.options if o.task == task), default=0.0)
        for task in range(len(spec.tasks))
    )
    usd_per_unit = _reference_usd(spec, cheapest, fastest_days) / TARGET_MONEY
    days_per_unit = max(fastest_days, horizon_days / 100.0, 1e-6) / TARGET_TIME
    most_scale = _most_scale(spec)

    def uses_of(numbers: Iterable[int]) -> dict[tuple[int, int], float]:
        uses: dict[tuple[int, int], float] = {}
        for number in numbers:
            o = spec.options[number]
            if o.work_days * spec.cheapest_daily_usd(number) <= DEAREST_FACTOR * cheapest[o.task] or (
                cheapest[o.task] <= 0.0
            ):
                uses |= {(number, window): reach for window, reach in _reaches(spec, o, most_scale)}
        return uses

    free = tuple(uses_of(sorted(set(loose).difference(wanted))))
    return Inputs(spec, usd_per_unit, days_per_unit, uses_of(wanted), most_scale, free)


def share_without_setup(spec: ProblemSpec, option: int, window: int, most_scale: float) -> float:
    """Largest share of its task an option can do in a window in which it is not set up."""
    o, (start_days, end_days) = spec.options[option], spec.windows[window]
    most = most_scale if spec.tasks[o.task].scalable else 1.0
    return most if o.work_days == 0.0 else min(most, (end_days - start_days) / o.work_days)


def _reaches(spec: ProblemSpec, option: Option, most_scale: float) -> list[tuple[int, float]]:
    task = spec.tasks[option.task]
    most = most_scale if task.scalable else 1.0
    taken = [(spec.resources[number], nodes) for number, nodes in option.taken]
    found: list[tuple[int, float]] = []
    for window, (start, end) in enumerate(spec.windows):
        usable_days = max(end - start - option.setup_days, 0.0)
        # Too short to set up in, a window can still be run through.
        runs_on = bool(found) and found[-1][0] == window - 1
        if start < task.release_days or not (usable_days or runs_on):
            continue
        if any(_is_missing(resource, nodes, window) for resource, nodes in taken):
            continue
        reach = most if option.work_days == 0.0 else min(most, usable_days / option.work_days)
        if reach >= LEAST_SHARE or runs_on:
            found.append((window, reach if reach >= LEAST_SHARE else 0.0))
    return found


def _is_missing(resource: Resource, nodes: int, window: int) -> bool:
    """Whether so many nodes are not there in a window, whatever is bought."""
    short = not resource.committed and nodes > resource.held_nodes[window]
    return short or window in resource.frozen


def _cheapest_usd(spec: ProblemSpec, task: int) -> float:
    """What a task costs in the cheapest way that is there for the asking.

    Owned nodes and grants cost next to nothing and are limited; they only count where there is nothing
    else, since what is dear beside them may well be needed.
    """
    asked: list[float] = []
    held: list[float] = []
    for number, option in enumerate(spec.options):
        if option.task != task:
            continue
        taken = [(spec.resources[r], nodes) for r, nodes in option.taken]
        daily = spec.cheapest_daily_usd(number) + sum(nodes * r.usd_per_node_day for r, nodes in taken)
        limited = any(not r.committed and (r.grant_hours < inf or min(r.held_nodes) < inf) for r, _ in taken)
        (held if limited else asked).append(option.work_days * daily + option.once_usd)
    return min(
        (usd for usd in asked if usd > 0.0), default=min((usd for usd in held if usd > 0.0), default=0.0)
    )


def _reference_usd(spec: ProblemSpec, cheapest: list[float], fastest_days: float) -> float:
    """About what the programme costs: its work and what has to be paid beside it, at their cheapest."""
    daily = sum(usd for _, usd in spec.programme_daily)
    reference = sum(cheapest) + daily * fastest_days + sum(usd for _, usd in spec.programme_once)
    reference += sum(_least_beside_usd(spec, task) for task in range(len(spec.tasks)))
    reference += min((spec.cloud_once_usd.get(o.cloud, 0.0) for o in spec.options), default=0.0)
    return reference or min((p.usd_per_node for p in spec.products if p.usd_per_node > 0.0), default=1.0)


def _least_beside_usd(spec: ProblemSpec, task: int) -> float:
    """What bringing and keeping the data of a task costs in the cheapest of its regions."""
    regions = {o.region for o in spec.options if o.task == task}
    tiers: dict[int, float] = {}
    for choice in spec.datasets:
        if choice.task == task and choice.region in regions:
            usd = choice.once_usd + choice.usd_per_day * choice.min_days
            tiers[choice.region] = min(usd, tiers.get(choice.region, inf))
    return min(
        (spec.staging_usd.get((task, region), 0.0) + tiers.get(region, 0.0) for region in regions),
        default=0.0,
    )


def _most_scale(spec: ProblemSpec) -> float:
    if spec.question != "most-tokens":
        return 1.0
    horizon_days = min(spec.deadline_days, spec.windows[-1][1])
    reachable = [
        horizon_days / option.work_days
        for option in spec.options
        if spec.tasks[option.task].scalable and option.work_days > 0.0
    ]
    return max(reachable, default=1.0)
