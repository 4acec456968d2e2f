"""The few options of each task that can be best at some price of a day: varied in kind, cheap to find.

Whatever holds a programme back in time puts a price on its days. For a ladder of such prices, from nothing up to
where the programme is done in half the time it has, options are ranked by what they cost with their days priced;
those that come near the best at any step are kept, and of every kind (accelerator, billing mode, a resource that is
there in limited number) the best one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import inf
from typing import Any

import numpy as np

from trainplan.problem import Option, ProblemSpec

Floats = np.ndarray[Any, np.dtype[np.float64]]

STEPS = 10
"""Prices of a day that are looked at."""
KEPT = 96
"""Options kept of all tasks together."""
FEWEST, MOST = 6, 24
"""Options kept of a task."""


def shortlist(spec: ProblemSpec, options: Sequence[int], used: Iterable[int] = ()) -> tuple[int, ...]:
    """Options worth a closer look.

    Args:
        spec: the problem.
        options: to choose from.
        used: options that are kept whatever they cost.
    """
    kept = set(used)
    per_task = int(np.clip(KEPT // len(spec.tasks), FEWEST, MOST))
    by_task = [[o for o in options if spec.options[o].task == t] for t in range(len(spec.tasks))]
    prices = _day_prices(spec, by_task)
    for mine in by_task:
        kept |= _kept(spec, mine, prices, per_task) if mine else set()
    return tuple(sorted(kept))


def _days_and_usd(spec: ProblemSpec, mine: Sequence[int]) -> tuple[Floats, Floats]:
    """Time and money of a whole task by each of its options."""
    days, usd = [], []
    for o in mine:
        option = spec.options[o]
        bought = sum(nodes * spec.resources[r].usd_per_node_day for r, nodes in option.taken)
        span = option.work_days + option.setup_days
        days.append(span)
        usd.append(span * (option.daily_usd + bought) + option.once_usd)
    return np.array(days), np.array(usd)


def _day_prices(spec: ProblemSpec, by_task: list[list[int]]) -> list[float]:
    """Prices of a day from none to where all that is held back by time is fast."""
    table = [_days_and_usd(spec, mine) for mine in by_task if mine]
    slope = max(
        (float(np.ptp(usd) / max(np.ptp(days), 1e-6)) for days, usd in table if len(days) > 1), default=0.0
    )
    base = sum(usd for _, usd in spec.programme_daily)
    top = max(slope, base, 1.0)
    return [base, *(base + top * 4.0 ** (k - STEPS + 2) for k in range(STEPS - 1))]


def _kept(spec: ProblemSpec, mine: list[int], prices: list[float], most: int) -> set[int]:
    days, usd = _days_and_usd(spec, mine)
    priced = np.stack([usd + price * days for price in prices])
    regret = (priced / priced.min(axis=1, keepdims=True)).min(axis=0)
    order = np.argsort(regret, kind="stable")
    kinds = [_kind(spec, spec.options[o]) for o in mine]
    firsts: dict[tuple[str, ...], int] = {}
    for place in order.tolist():
        firsts.setdefault(kinds[place], place)
    best_of_kinds = sorted(firsts.values(), key=lambda place: regret[place])
    ranked = [*order[: max(most - len(firsts), most // 2)].tolist(), *best_of_kinds]
    return {mine[place] for place in list(dict.fromkeys(ranked))[:most]}


def _kind(spec: ProblemSpec, option: Option) -> tuple[str, ...]:
    groups = dict(option.groups)
    taken = [spec.resources[number] for number, _ in option.taken]
    limited = [r.name for r in taken if r.committed or min(r.held_nodes) < inf or r.grant_hours < inf]
    return (groups.get("accelerator", ""), groups.get("billing", ""), " ".join(limited))
