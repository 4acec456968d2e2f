"""Options that another option beats in every plan get no columns.

An option *b* is dropped when one option *a* of the same task takes no longer, costs no more for the work
and for each start, brings no more fixed cost (data staged, results handed over, clouds adapted to) and is
bound by no limit that *b* is not bound by: wherever *b* stands in a plan, *a* can stand instead.

Where *a* lies in another region, what its place can cost at most is set against what *b*'s place costs
at least, and ``TOLERANCE_FRAC`` of the cheapest way to do the task is forgiven; the plan's gap is widened
by what was forgiven. For a task that stands alone the price of moving to another region is left out of the
comparison: its plan is bounded by one in which moves are free (``Solver.bound_with_free_moves``).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np

from trainplan.problem import ProblemSpec

TOLERANCE_FRAC = 1e-4
Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True, slots=True)
class _Place:
    """Bounds on what a region costs a task beside the options themselves."""

    fixed_low_usd: float
    fixed_high_usd: float
    daily_low_usd: float
    daily_high_usd: float


def thinned(
    spec: ProblemSpec, wanted: Sequence[int] | None = None, *, by_nodes: bool = False
) -> tuple[tuple[int, ...], float]:
    """Options worth a column, and the USD by which leaving out the others may cost at most.

    Args:
        spec: the problem.
        wanted: options to choose from; all when absent.
        by_nodes: whether an option with fewer nodes is never beaten by one with more, so that what is left
            serves under every limit on nodes.
    """
    numbers = range(len(spec.options)) if wanted is None else wanted
    kept: list[int] = []
    forgiven_usd = 0.0
    for task in range(len(spec.tasks)):
        mine = [n for n in numbers if spec.options[n].task == task]
        if not mine:
            continue
        allowance = TOLERANCE_FRAC * min(
            spec.options[n].work_days * spec.cheapest_daily_usd(n) + spec.options[n].once_usd for n in mine
        )
        kept += _undominated(spec, task, mine, allowance, by_nodes)
        forgiven_usd += 2.0 * allowance
    return tuple(sorted(kept)), forgiven_usd


def _undominated(
    spec: ProblemSpec, task: int, mine: list[int], allowance: float, by_nodes: bool
) -> list[int]:
    options = [spec.options[n] for n in mine]
    places = {region: _place(spec, task, region) for region in {o.region for o in options}}
    region = np.array([o.region for o in options])
    low = np.array([places[o.region].fixed_low_usd for o in options])
    high = np.array([places[o.region].fixed_high_usd for o in options])
    held_low = np.array([places[o.region].daily_low_usd for o in options])
    held_high = np.array([places[o.region].daily_high_usd for o in options])
    work = np.array([o.work_days for o in options])
    setup = np.array([o.setup_days for o in options])
    daily = _daily_usd(spec, mine)
    once = np.array([o.once_usd for o in options])
    nodes = np.array([float(o.all_nodes) for o in options])
    grants = [number for number, resource in enumerate(spec.resources) if resource.grant_hours < inf]
    grant = np.array([[o.hours_of(r) for r in grants] or [0.0] for o in options])
    cloud = np.array([spec.cloud_once_usd.get(o.cloud, 0.0) for o in options])
    stands_in = _stands_in(spec, mine)
    order = np.argsort(work * (daily.min(axis=1) + held_low) + low, kind="stable")
    alive = np.ones(len(mine), dtype=bool)
    count_nodes = by_nodes or spec.width > 1
    for a in order:
        if not alive[a]:
            continue
        here = region == region[a]
        mine_usd = daily[a] + np.where(here, 0.0, held_high[a])[:, None]
        other_usd = daily + np.where(here, 0.0, held_low)[:, None]
        forgiven = np.where(here, 0.0, allowance)
        fixed_gap = np.where(here, 0.0, high[a] + cloud[a] - low - cloud)
        worse = (
            (work[a] <= work)
            & (work[a] * mine_usd <= work[:, None] * other_usd).all(axis=1)
            & (setup[a] <= setup)
            & (setup[a] * mine_usd <= setup[:, None] * other_usd + forgiven[:, None]).all(axis=1)
            & (once[a] + np.maximum(fixed_gap, 0.0) <= once + forgiven)
            & (work[a] * grant[a] <= work[:, None] * grant).all(axis=1)
            & stands_in(int(a))
        )
        if count_nodes:
            worse &= nodes[a] <= nodes
        worse[a] = False
        alive &= ~worse
    return [mine[i] for i in np.flatnonzero(alive)]


def _daily_usd(spec: ProblemSpec, mine: list[int]) -> Floats:
    """Cost of a day at work by option and window; one column where no price changes."""
    changes = any(spec.resources[r].price_factor for n in mine for r, _ in spec.options[n].taken)
    if not changes:
        return np.array([[spec.options[n].daily_usd] for n in mine])
    return np.array([[spec.daily_usd_in(n, w) for w in range(len(spec.windows))] for n in mine])


def _stands_in(spec: ProblemSpec, mine: list[int]) -> Any:
    """For an option, which others its resources and nodes are never scarcer than."""
    taken = [dict(spec.options[n].taken) for n in mine]
    place = {r: number for number, r in enumerate(sorted({r for one in taken for r in one}))}
    held = np.array([spec.resources[r].held_nodes for r in place])
    for r, number in place.items():
        held[number, list(spec.resources[r].frozen)] = 0.0
    rows, at, counts = np.array(
        [(row, place[r], count) for row, one in enumerate(taken) for r, count in one.items()]
    ).T
    nodes = np.zeros((len(place), len(mine)), dtype=int)
    nodes[at, rows] = counts
    there = np.ones((len(mine), held.shape[1]), dtype=bool)
    np.logical_and.at(there, rows, counts[:, None] <= held[at])
    soft = {option for limit in spec.soft_limits for option in limit.amounts}
    limited = {r for r in place if spec.resources[r].committed or spec.resources[r].grant_hours < inf}
    ends = (
        {r for r, number in place.items() if np.isfinite(held[number]).any()}
        if len(spec.tasks) > 1
        else set()
    )
    scarce = [n in soft or not (limited | ends).isdisjoint(one) for n, one in zip(mine, taken, strict=True)]

    def others(a: int) -> np.ndarray[Any, np.dtype[np.bool_]]:
        # No more nodes of any resource: what limits this one limits the other at least as much.
        first, *more = (place[r] for r in taken[a])
        same = nodes[first, a] <= nodes[first]
        for r in more:
            same &= nodes[r, a] <= nodes[r]
        if scarce[a]:
            return np.asarray(same)
        # Wherever the other can run, this one can too.
        return np.asarray(same | (there[a] | ~there).all(axis=1))

    return others


def _place(spec: ProblemSpec, task: int, region: int) -> _Place:
    """What a region may cost a task: staging, moves, handovers, and the dataset kept there."""
    staging = spec.staging_usd.get((task, region), 0.0)
    traffic = _traffic_usd(spec, task, region)
    choices = [c for c in spec.datasets if (c.task, c.region) == (task, region)]
    if not choices:
        return _Place(staging, staging + traffic, 0.0, 0.0)
    least = [(c.once_usd + c.min_days * c.usd_per_day, c.usd_per_day, c.read_usd) for c in choices]
    plain = min(choices, key=lambda c: (c.min_days * c.usd_per_day + c.once_usd + c.read_usd, c.tier))
    return _Place(
        fixed_low_usd=staging + min(once for once, _, _ in least),
        fixed_high_usd=staging
        + traffic
        + plain.once_usd
        + plain.read_usd
        + plain.min_days * plain.usd_per_day,
        daily_low_usd=min(daily for _, daily, _ in least),
        daily_high_usd=plain.usd_per_day,
    )


def _traffic_usd(spec: ProblemSpec, task: int, region: int) -> float:
    """Most that moves and handovers to and from a region can cost; nothing where a task stands alone.

    A single task has nobody to hand over to; of its moves see the module.
    """
    if len(spec.tasks) == 1:
        return 0.0
    followers = sum(task in other.predecessors for other in spec.tasks)
    return (
        _most(usd for (t, a, b), usd in spec.move_usd.items() if t == task and region in (a, b))
        + _most(usd for (p, _, a, _), usd in spec.handover_usd.items() if p == task and a == region)
        * followers
        + _most(usd for (_, t, _, b), usd in spec.handover_usd.items() if t == task and b == region)
        * len(spec.tasks[task].predecessors)
    )


def _most(amounts: Any) -> float:
    return max(amounts, default=0.0)
