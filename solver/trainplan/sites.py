"""Where tasks may run: the pools the case allows, rented, owned or granted, under one shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from types import MappingProxyType

from trainplan_models.base import InputError, Problem
from trainplan_models.case import Case, Grant, Owned
from trainplan_models.case_resources import PriceChange
from trainplan_models.catalog import Catalog, Pool
from trainplan_models.catalog.records import Accelerator, DatedPrice, NodeType
from trainplan_models.costs import discount_frac, power_usd_per_node_h
from trainplan_models.efficiency import hardware_rows
from trainplan_models.network import Place
from trainplan_models.node_prices import NodePrice, dated_changes, node_price

OWNED, GRANT = "owned", "grant"
HELD_HINT = {
    OWNED: "List the clusters under `resources.owned`, or remove it here.",
    GRANT: "List the grants under `resources.grants`, or remove it here.",
}
MOST_NAMES = 20
"""Known names that are told where none is near."""


@dataclass(frozen=True, slots=True)
class Site:
    """One pool with the billing modes that may be used in it."""

    name: str
    place: Place
    node: NodeType
    accelerator: Accelerator
    usd_per_node_h: dict[str, float]
    """By billing mode, after discounts; for committed modes the price of a committed node-hour."""
    price_as_of: dict[str, str] = field(default_factory=dict)
    price_over_time: dict[str, NodePrice] = field(default_factory=dict)
    """By billing mode whose price changes at a date."""
    power_usd_per_node_h: float = 0.0
    owned: Owned | None = None
    grant: Grant | None = None

    @property
    def machine(self) -> tuple[str, int, float, int]:
        """What throughput depends on; sites that agree in it share their candidates."""
        return (
            self.accelerator.name,
            self.node.accelerators,
            self.node.nic_bytes_per_s,
            self.node.scaleup_devices,
        )


@dataclass(frozen=True, slots=True)
class RolloutNodes:
    """Nodes that generate the samples of a reinforcement learning task while others train on them."""

    site: Site
    mode: str
    nodes: int
    """Working nodes."""
    spares: int
    paid_frac: float
    tensor: int
    """Devices of one replica."""
    scores: bool
    """Whether they do the scoring too."""
    generation_s: float
    """Of a step."""
    weight_transfer_s: float


def modes_at(site: Site, billing: Sequence[str]) -> tuple[str, ...]:
    """Billing modes of a site that a task with its own ``billing`` may use; all where it has none."""
    return tuple(mode for mode in site.usd_per_node_h if not billing or mode in (*billing, OWNED, GRANT))


def find_sites(case: Case, catalog: Catalog) -> tuple[tuple[Site, ...], Counter[str]]:
    """All pools the case allows, and how many each of its limits removed.

    Raises:
        InputError: the case names an accelerator, cloud, region or billing mode that the catalogue has not.
    """
    _refuse_unknown(case, catalog)
    removed: Counter[str] = Counter()
    allowed = {catalog.accelerator(name).name for name in case.resources.accelerators}
    allowed |= {catalog.accelerator(name).name for task in case.tasks for name in task.accelerators}
    found = [_owned_site(case, catalog, owned) for owned in case.resources.owned]
    found += [_grant_site(catalog, grant) for grant in case.resources.grants]
    rented = []
    for pool in catalog.pools().values():
        if allowed and pool.accelerator.name not in allowed:
            removed["accelerator not in resources.accelerators"] += 1
        elif pool.accelerator.generation not in hardware_rows():
            removed["nothing is known of how fast its chip trains"] += 1
        elif case.resources.clouds and pool.cloud not in case.resources.clouds:
            removed["cloud not in resources.clouds"] += 1
        elif case.resources.regions and not _in_regions(case, pool.cloud, pool.region):
            removed["region not in resources.regions"] += 1
        else:
            prices = _prices(case, pool)
            if prices:
                place = Place(pool.cloud, pool.region)
                as_of = dict(pool.price_as_of)
                dated = {mode: dated_changes(case, pool, mode) for mode in prices} if pool.dated else {}
                over_time = _over_time(case, pool.name, place, prices, dated)
                rented.append(Site(pool.name, place, pool.node, pool.accelerator, prices, as_of, over_time))
            else:
                removed["no offer under resources.billing"] += 1
    kept = _without_dearer_regions(case, rented, catalog.dated_prices)
    if len(kept) < len(rented):
        removed["another region sells the same machine for no more"] += len(rented) - len(kept)
    return tuple([*found, *kept]), removed


def _refuse_unknown(case: Case, catalog: Catalog) -> None:
    pools, clouds = catalog.pools().values(), {pool.cloud for pool in catalog.pools().values()}
    held = {OWNED: case.resources.owned, GRANT: case.resources.grants}
    modes = {mode for mode in catalog.modes if held.get(mode, True)}
    regions = {pool.region for pool in pools}
    named = [
        ("resources.clouds", "cloud", case.resources.clouds, clouds),
        (
            "resources.regions",
            "region",
            case.resources.regions,
            regions | {f"{pool.cloud}/{pool.region}" for pool in pools},
        ),
        ("resources.billing", "billing mode", case.resources.billing, modes),
    ]
    named += [
        (f"tasks[{number}].billing", "billing mode", task.billing, modes)
        for number, task in enumerate(case.tasks)
    ]
    wrong = [
        case.problem(f"{key}[{number}]", f"{what} {name!r}: the case lists none", HELD_HINT[name])
        if name in HELD_HINT and what == "billing mode"
        else case.problem(f"{key}[{number}]", f"unknown {what} {name!r}", _hint(name, known))
        for key, what, names, known in named
        for number, name in enumerate(names)
        if name not in known
    ]
    wrong += [
        case.problem(
            f"resources.quotas[{number}].pool", f"unknown pool {quota.pool!r}", _hint(quota.pool, names)
        )
        for number, quota in enumerate(case.resources.quotas)
        if quota.pool not in (names := set(catalog.pools()))
    ]
    wrong += [
        case.problem(f"resources.discounts.{place}", f"unknown cloud or pool {place!r}", _hint(place, clouds))
        for place in case.resources.discounts
        if place not in clouds and place not in catalog.pools()
    ]
    wrong += _price_change_mistakes(case, catalog, clouds | regions, modes)
    if wrong:
        raise InputError(wrong)


def _price_change_mistakes(case: Case, catalog: Catalog, places: set[str], modes: set[str]) -> list[Problem]:
    """Pools, clouds and billing modes of price changes that are not known, or have no price to change."""
    owned = {own.name: own for own in case.resources.owned}
    pools = catalog.pools()
    known = places | {f"{pool.cloud}/{pool.region}" for pool in pools.values()} | set(pools) | set(owned)
    wrong = []
    for number, change in enumerate(case.resources.price_changes):
        key = f"resources.price_changes[{number}]"
        for place, name in enumerate(change.pools):
            if name not in known:
                wrong.append(
                    case.problem(
                        f"{key}.pools[{place}]", f"unknown pool or cloud {name!r}", _hint(name, known)
                    )
                )
            elif name in owned and not owned[name].node_usd_per_h:
                message = f"{name} has no price that could change"
                wrong.append(
                    case.problem(f"{key}.pools[{place}]", message, "Give the cluster a `node_price`.")
                )
            elif change.usd_per_node_h is not None and name not in pools and name not in owned:
                message = f"{name} has machines of many kinds, and `price` is that of one"
                wrong.append(case.problem(f"{key}.pools[{place}]", message, "Name pools, or write `cut`."))
        wrong += [
            case.problem(
                f"{key}.billing[{place}]", f"unknown billing mode {mode!r}", _hint(mode, modes | {OWNED})
            )
            for place, mode in enumerate(change.billing)
            if mode not in modes | {OWNED}
        ]
    return wrong


def _over_time(
    case: Case,
    name: str,
    place: Place,
    prices: dict[str, float],
    dated: Mapping[str, tuple[PriceChange, ...]] = MappingProxyType({}),
) -> dict[str, NodePrice]:
    """The prices that change at a date, by billing mode."""
    if not case.resources.price_changes and not any(dated.values()):
        return {}
    where = (place.cloud, place.region)
    found = {
        mode: node_price(case, name, where, mode, usd, dated.get(mode, ())) for mode, usd in prices.items()
    }
    return {mode: price for mode, price in found.items() if price.changes or price.at(0.0) != prices[mode]}


def _hint(name: str, known: set[str]) -> str:
    near = get_close_matches(name, sorted(known), n=3, cutoff=0.6)
    if near:
        return f"Did you mean {' or '.join(near)}?"
    few = len(known) <= MOST_NAMES
    return f"Known: {', '.join(sorted(known))}" if few else "See `trainplan catalog show offers`"


def _in_regions(case: Case, cloud: str, region: str) -> bool:
    return region in case.resources.regions or f"{cloud}/{region}" in case.resources.regions


def _prices(case: Case, pool: Pool) -> dict[str, float]:
    """Price of a node-hour under each mode the case allows."""
    wanted = set(case.resources.billing) | {mode for task in case.tasks for mode in task.billing}
    factor = 1.0 - discount_frac(case, pool.cloud, pool.name)
    return {mode: usd * factor for mode, usd in sorted(pool.usd_per_node_h.items()) if mode in wanted}


def _without_dearer_regions(case: Case, sites: list[Site], dated: Iterable[DatedPrice] = ()) -> list[Site]:
    """Drops a region where every mode of the same machine costs no less than in another region.

    Regions that the case names (quotas, data) always stay, and so do regions to which data would
    have to be brought from less far.
    """
    named = {quota.pool for quota in case.resources.quotas}
    # A price that changes here and not there can make either region the cheaper one.
    places = {name for change in case.resources.price_changes for name in change.pools}
    named |= {
        s.name
        for s in sites
        if s.price_over_time or places & {s.name, s.place.region, f"{s.place.cloud}/{s.place.region}"}
    }
    data_at = {task.dataset.at for task in case.tasks if task.dataset and task.dataset.at}
    kept: list[Site] = []
    for site in sorted(sites, key=lambda s: (s.node.cloud, s.node.instance_type, _rank(s), s.name)):
        near_data = f"{site.place.cloud}/{site.place.region}" in data_at
        beaten = any(_no_dearer(other, site) for other in kept if other.name not in named)
        if site.name in named or near_data or not beaten:
            kept.append(site)
    order = {site.name: number for number, site in enumerate(sites)}
    return sorted(kept, key=lambda site: order[site.name])


def _rank(site: Site) -> float:
    return sum(site.usd_per_node_h.values()) / len(site.usd_per_node_h)


def _no_dearer(other: Site, site: Site) -> bool:
    same = (other.node.cloud, other.node.instance_type) == (site.node.cloud, site.node.instance_type)
    return same and all(
        other.usd_per_node_h.get(mode, float("inf")) <= usd for mode, usd in site.usd_per_node_h.items()
    )


def _held_node(catalog: Catalog, held: Owned | Grant) -> tuple[NodeType, Accelerator]:
    """The maker's reference machine with the network of the case."""
    node = catalog.reference_node(held.accelerator, held.accelerators_per_node)
    nic = node.nic_bytes_per_s if held.network is None else held.network
    return node.model_copy(update={"nic_bytes_per_s": nic}), catalog.accelerator(held.accelerator)


def _owned_site(case: Case, catalog: Catalog, owned: Owned) -> Site:
    node, chip = _held_node(catalog, owned)
    place, prices = Place(owned.name, owned.name, rented=False), {OWNED: owned.node_usd_per_h or 0.0}
    return Site(
        name=owned.name,
        place=place,
        node=node,
        accelerator=chip,
        usd_per_node_h=prices,
        price_over_time=_over_time(case, owned.name, place, prices),
        power_usd_per_node_h=power_usd_per_node_h(owned, catalog, node),
        owned=owned,
    )


def _grant_site(catalog: Catalog, grant: Grant) -> Site:
    node, chip = _held_node(catalog, grant)
    place = Place(grant.name, grant.name, rented=False)
    return Site(grant.name, place, node, chip, {GRANT: 0.0}, grant=grant)
