"""What can be bought of committed nodes: in which lengths, at which prices, how often."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil, inf
from typing import TYPE_CHECKING

from trainplan.problem import Option, Product, Resource
from trainplan_models.catalog.records import BillingMode

if TYPE_CHECKING:
    from trainplan.sites import Site

DAY_S = 86400.0
MOST_PURCHASES = 3
"""Purchases of one resource in a plan."""
MOST_CHOICES = 400
"""Lengths, prices and purchases of all resources together; beyond it each is bought less often."""
MOST_STRETCHES = 24
"""As ``MOST_CHOICES``, for stretches of tasks on what is bought, which draw from each purchase."""


def lengths_days(mode: BillingMode, end_days: float) -> tuple[float, ...]:
    """Lengths of a purchase, up to the shortest with which the nodes are there until the end of the plan.

    What is sold in one length and keeps its nodes until the end of it is renewed without a gap.
    """
    sold = sorted(mode.durations_days)
    tail = mode.unusable_tail_s / DAY_S
    if len(sold) == 1 and tail == 0.0:
        return tuple(sold[0] * count for count in range(1, ceil(end_days / sold[0]) + 1))
    reaching = [number for number, days in enumerate(sold) if days - tail >= end_days]
    return tuple(sold[: reaching[0] + 1] if reaching else sold)


def cut_days(mode: BillingMode) -> float:
    """Where a calendar is cut so that one purchase can follow another; ``inf`` where none needs to.

    Up to there lengths are sold in their shortest step; longer ones in longer steps, which a purchase of each
    kind, one after the other, makes up for.
    """
    sold = sorted(mode.durations_days)
    steps = [b - a for a, b in zip(sold, sold[1:], strict=False)]
    longer = [number for number, step in enumerate(steps) if step > steps[0]]
    return sold[longer[0]] if longer else inf


def products(
    resources: Sequence[Resource],
    options: Sequence[Option],
    sites: Sequence[Site],
    modes: Mapping[str, BillingMode],
    windows: Sequence[tuple[float, float]],
    *,
    side_by_side: int,
    at_once: bool,
) -> tuple[Product, ...]:
    """Everything that may be bought: each length at each price, once for every purchase of a resource.

    Args:
        resources: all resources; the committed ones are sold.
        options: who may use them.
        sites: where they are.
        modes: billing modes by name.
        windows: of the plan, in days.
        side_by_side: most tasks that may run at the same time.
        at_once: whether the first purchase begins on day 0.
    """
    end = windows[-1][1]
    at = {site.name: site for site in sites}
    once: dict[int, list[Product]] = {}
    stretches: dict[int, int] = {}
    for number, resource in enumerate(resources):
        if not resource.committed:
            continue
        mine = [option for option in options if option.nodes_of(number)]
        if not mine:
            continue
        most = int(
            min(max(option.nodes_of(number) for option in mine) * side_by_side, resource.most_at_once_nodes)
        )
        mode = modes[resource.mode]
        prices = _prices_by_day(at[resource.pool], resource, end)
        once[number] = list(_once(number, mode, lengths_days(mode, end), prices, most))
        usable = len(windows) - len(resource.frozen)
        stretches[number] = len({option.task for option in mine}) * usable
        if _one_serves(resource, mode, windows, len(prices)):
            stretches[number] = 1
    times = _times(once, stretches)
    return tuple(
        replace(product, purchase=number, last_day=0.0 if at_once and number == 0 else product.last_day)
        for resource, sold in once.items()
        for number in range(times[resource])
        for product in sold
    )


def _one_serves(
    resource: Resource, mode: BillingMode, windows: Sequence[tuple[float, float]], prices: int
) -> bool:
    """Whether the shortest length lasts to the end, so that one purchase of all nodes costs no more."""
    if prices > 1:
        return False
    shortest = min(mode.durations_days) - resource.unusable_tail_days
    return shortest >= windows[-1][1] - windows[0][0]


def _times(once: dict[int, list[Product]], stretches: dict[int, int]) -> dict[int, int]:
    """How often each resource may be bought: no more often than there are stretches to buy it for."""
    for most in range(MOST_PURCHASES, 1, -1):
        times = {resource: min(most, max(stretches[resource], 1)) for resource in once}
        repeated = [resource for resource, count in times.items() if count > 1]
        choices = sum(len(once[resource]) * times[resource] for resource in repeated)
        if choices <= MOST_CHOICES and sum(stretches[resource] for resource in repeated) <= MOST_STRETCHES:
            return times
    return dict.fromkeys(once, 1)


def _once(
    number: int,
    mode: BillingMode,
    lengths: Iterable[float],
    prices: Sequence[tuple[float, float, float]],
    most: int,
) -> Iterator[Product]:
    for days in lengths:
        for usd_per_node_day, first_day, last_day in prices:
            yield Product(
                resource=number,
                days=days,
                usd_per_node=usd_per_node_day * days,
                most=most,
                upfront_frac=mode.upfront_frac,
                first_day=first_day,
                last_day=last_day,
            )


def _prices_by_day(site: Site, resource: Resource, end_days: float) -> list[tuple[float, float, float]]:
    """Price of a node-day of a committed resource, with the first and last day on which it can be had."""
    price = site.price_over_time.get(resource.mode)
    if price is None:
        return [(resource.usd_per_node_day, 0.0, inf)]
    found = []
    for start_s, next_s, usd in price.pieces(0.0, end_days * DAY_S):
        last = inf if next_s >= end_days * DAY_S else ceil(next_s / DAY_S) - 1.0
        if ceil(start_s / DAY_S) <= last:
            found.append((usd * 24.0, float(ceil(start_s / DAY_S)), last))
    return found
