"""The windows of the plan: between two of them what can be used does not change."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf

from trainplan.products import cut_days
from trainplan.sites import Site
from trainplan_models.case import Case
from trainplan_models.catalog.records import BillingMode

DAY_S = 86400.0
BEYOND_FACTOR = 8.0
"""How far past the deadline is looked when a later one has to be proposed."""
OPEN_HORIZON_DAYS = 1095.0
"""How far is looked without a deadline."""


def windows(
    case: Case, sites: tuple[Site, ...], modes: Mapping[str, BillingMode], *, beyond: bool = False
) -> tuple[tuple[float, float], ...]:
    """Contiguous windows from day 0 to the deadline, or far enough where there is none.

    They are cut where owned nodes come or go, grants expire, freezes begin or end, prices change, tasks are
    released or due, and one purchase may have to follow another.

    Args:
        case: what is asked.
        sites: where.
        modes: billing modes by name.
        beyond: whether to look past the deadline, to see how much later it would have to be.
    """
    deadline = inf if case.deadline_s is None else case.deadline_s / DAY_S
    end = OPEN_HORIZON_DAYS if case.deadline_s is None else deadline * (BEYOND_FACTOR if beyond else 1.0)
    cuts = {0.0, end, deadline}
    for task in case.tasks:
        for when in (task.release, task.due):
            cuts.add((case.seconds_from_start(when) or 0.0) / DAY_S)
    for site in sites:
        cuts |= _held_cuts(case, site)
        cuts |= {cut_days(modes[mode]) for mode in site.usd_per_node_h if modes[mode].paid == "committed"}
        cuts |= {moment / DAY_S for price in site.price_over_time.values() for moment in price.starts_s}
    for since_days, until_days, _ in freezes(case):
        cuts |= {since_days, until_days}
    inside = sorted(cut for cut in cuts if 0.0 <= cut <= end)
    kept = [inside[0]]
    for cut in inside[1:]:
        if cut - kept[-1] > 1e-6:
            kept.append(cut)
    return tuple(zip(kept, kept[1:], strict=False))


def _held_cuts(case: Case, site: Site) -> set[float]:
    moments = []
    if site.owned is not None:
        moments = [free.since for free in site.owned.free]
    if site.grant is not None and site.grant.expires is not None:
        moments = [site.grant.expires]
    return {(case.seconds_from_start(moment) or 0.0) / DAY_S for moment in moments}


def held_nodes(case: Case, site: Site, spans: tuple[tuple[float, float], ...]) -> tuple[float, ...]:
    """Nodes of an owned cluster or a grant in each window."""
    if site.grant is not None:
        expires = case.seconds_from_start(site.grant.expires)
        last = inf if expires is None else expires / DAY_S
        return tuple(float(site.grant.nodes) if end <= last + 1e-6 else 0.0 for _, end in spans)
    if site.owned is None:
        return tuple(inf for _ in spans)
    steps = sorted(
        ((case.seconds_from_start(free.since) or 0.0) / DAY_S, float(free.nodes)) for free in site.owned.free
    )
    if not steps:
        return tuple(float(site.owned.nodes) for _ in spans)
    found = []
    for start, _ in spans:
        reached = [nodes for since, nodes in steps if since <= start + 1e-6]
        found.append(reached[-1] if reached else 0.0)
    return tuple(found)


def price_factor(site: Site, mode: str, spans: tuple[tuple[float, float], ...]) -> tuple[float, ...]:
    """Price under a mode in each window over the price without changes; empty where nothing changes it."""
    price, usd = site.price_over_time.get(mode), site.usd_per_node_h[mode]
    if price is None or usd == 0.0:
        return ()
    return tuple(price.at((start + end) / 2.0 * DAY_S) / usd for start, end in spans)


def freezes(case: Case) -> tuple[tuple[float, float, tuple[str, ...]], ...]:
    """Start and end in days of the times in which nothing runs, and where (empty: everywhere)."""
    return tuple(
        (
            (case.seconds_from_start(freeze.since) or 0.0) / DAY_S,
            (case.seconds_from_start(freeze.until) or 0.0) / DAY_S,
            tuple(freeze.pools),
        )
        for freeze in case.resources.freezes
    )


def frozen_windows(case: Case, site: Site, spans: tuple[tuple[float, float], ...]) -> tuple[int, ...]:
    """Windows in which nothing runs at a site."""
    names = {site.name, site.place.cloud, site.place.region, f"{site.place.cloud}/{site.place.region}"}
    times = [(since, until) for since, until, pools in freezes(case) if not pools or names & set(pools)]
    return tuple(
        number
        for number, (start, end) in enumerate(spans)
        if any(since < end - 1e-6 and start + 1e-6 < until for since, until in times)
    )
