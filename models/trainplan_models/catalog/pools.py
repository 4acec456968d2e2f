"""Pools: the nodes of one instance type in one region, with what they cost under each billing mode."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from trainplan_models.catalog.records import Accelerator, Commitment, DatedPrice, NodeType

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

Place = tuple[str, str, str]
"""Cloud, region, instance type."""

ON_DEMAND = "on-demand"


@dataclass(frozen=True, slots=True)
class Pool:
    """Nodes that can be one cluster."""

    name: str
    """``cloud/region/instance_type``."""
    cloud: str
    region: str
    node: NodeType
    accelerator: Accelerator
    usd_per_node_h: dict[str, float]
    """Price by billing mode; modes absent are not sold here."""
    price_as_of: dict[str, str]
    """Date of each of these prices, as the catalogue has it."""
    dated: tuple[DatedPrice, ...] = ()
    """Prices that hold between days only."""


@lru_cache(maxsize=4)
def build_pools(catalog: Catalog) -> dict[str, Pool]:
    """Every pool that has a price, by name."""
    prices: dict[Place, dict[str, tuple[float, str]]] = {}
    for offer in catalog.offers:
        place = (offer.cloud, offer.region, offer.instance_type)
        prices.setdefault(place, {})[offer.mode] = (offer.usd_per_node_h, offer.as_of)
    for commitment in sorted(catalog.commitments, key=_precision):
        for place in list(_sold_in(commitment, prices)):
            price = _commitment_price(commitment, prices.get(place, {}))
            if price is not None:
                prices.setdefault(place, {})[commitment.mode] = price
    dated: dict[str, list[DatedPrice]] = {}
    for row in catalog.dated_prices:
        dated.setdefault(row.pool, []).append(row)
    return {
        "/".join(place): _pool(catalog, place, by_mode, tuple(dated.get("/".join(place), ())))
        for place, by_mode in sorted(prices.items())
    }


def _pool(
    catalog: Catalog, place: Place, by_mode: dict[str, tuple[float, str]], dated: tuple[DatedPrice, ...]
) -> Pool:
    cloud, region, instance_type = place
    return Pool(
        name="/".join(place),
        cloud=cloud,
        region=region,
        node=catalog.node(cloud, instance_type),
        accelerator=catalog.chip_of(cloud, instance_type),
        usd_per_node_h={mode: usd for mode, (usd, _) in by_mode.items()},
        price_as_of={mode: as_of for mode, (_, as_of) in by_mode.items()},
        dated=dated,
    )


def _precision(commitment: Commitment) -> tuple[bool, bool, bool]:
    """Sorts so that the row that says most about a pool comes last and wins."""
    return (
        commitment.instance_type != "*",
        bool(commitment.regions),
        commitment.usd_per_node_h is not None,
    )


def _sold_in(commitment: Commitment, places: Iterable[Place]) -> Iterator[Place]:
    if commitment.regions and commitment.instance_type != "*":
        yield from ((commitment.cloud, region, commitment.instance_type) for region in commitment.regions)
        return
    for place in places:
        cloud, region, instance_type = place
        if (
            cloud == commitment.cloud
            and commitment.instance_type in ("*", instance_type)
            and (not commitment.regions or region in commitment.regions)
        ):
            yield place


def _commitment_price(
    commitment: Commitment, prices: dict[str, tuple[float, str]]
) -> tuple[float, str] | None:
    """Price and date; None where it follows an on-demand price that the pool does not have."""
    on_demand = prices.get(ON_DEMAND)
    if commitment.usd_per_node_h is not None:
        if on_demand is None and not commitment.regions:
            return None
        return commitment.usd_per_node_h, commitment.as_of
    if on_demand is None or commitment.discount_frac is None:
        return None
    usd, as_of = on_demand
    return usd * (1.0 - commitment.discount_frac), as_of
