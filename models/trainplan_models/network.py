"""What moving bytes costs: egress by volume, between regions, between clouds.

Incoming traffic is free everywhere. Each move is priced on its own, from the first volume bracket, so that
its price does not depend on what else moves in the month. Owned clusters and grants send for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import TransferPrice
from trainplan_models.storage import GB_BYTES

if TYPE_CHECKING:
    from trainplan_models.case import Case, Dataset
    from trainplan_models.catalog import Catalog

INTERNET = "internet"
CROSS_REGION = "cross-region"
_KINDS = {INTERNET, CROSS_REGION, "cross-zone"}


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pool or an object is."""

    cloud: str
    region: str
    rented: bool = True
    """False for an owned cluster or a grant, which is a place of its own and charges nothing."""

    def __str__(self) -> str:
        return f"{self.cloud}/{self.region}" if self.rented else self.cloud


def bracket_usd(rows: Iterable[TransferPrice], size_bytes: float) -> float:
    """Price of moving ``size_bytes`` through the volume brackets of ``rows``, from the first one on."""
    gb = size_bytes / GB_BYTES
    usd = 0.0
    for row in rows:
        end = gb if row.to_gb is None else min(gb, row.to_gb)
        usd += max(0.0, end - row.from_gb) * row.usd_per_gb
    return usd


def transfer_usd(
    catalog: Catalog, from_cloud: str, from_region: str, to_cloud: str, to_region: str, size_bytes: float
) -> float:
    """Price of moving bytes out of a rented place to any other; 0 within a region.

    Another region of the same cloud is charged at the price to that region, or at the cloud's cross-region
    price; everything else is reached over the internet.

    Raises:
        InputError: the catalogue has no price for it.
    """
    if from_cloud == to_cloud and from_region == to_region:
        return 0.0
    to = to_region if from_cloud == to_cloud else INTERNET
    return bracket_usd(catalog.transfers_for(from_cloud, from_region, to), size_bytes)


def move_usd(catalog: Catalog, source: Place, target: Place, size_bytes: float) -> float:
    """:func:`transfer_usd` between two places; 0 from what is not rented."""
    if not source.rented:
        return 0.0
    return transfer_usd(catalog, source.cloud, source.region, target.cloud, target.region, size_bytes)


def second_region_usd(catalog: Catalog, source: Place, size_bytes: float) -> float:
    """Price of copying bytes to the region of the same cloud that is cheapest to reach from here."""
    if not source.rented:
        return 0.0
    named = {
        row.to
        for row in catalog.transfers
        if row.cloud == source.cloud and row.region in (source.region, "*") and row.to not in _KINDS
    }
    return min(
        bracket_usd(catalog.transfers_for(source.cloud, source.region, to), size_bytes)
        for to in sorted(named - {source.region} | {CROSS_REGION})
    )


def _own_names(case: Case) -> set[str]:
    return {owned.name for owned in case.resources.owned} | {grant.name for grant in case.resources.grants}


def place_of_dataset(dataset: Dataset, case: Case) -> Place | None:
    """Where the data lies before the programme; None: wherever the task runs.

    Raises:
        InputError: ``at`` is neither ``cloud/region`` nor an owned cluster or grant.
    """
    if not dataset.at:
        return None
    if dataset.at in _own_names(case):
        return Place(dataset.at, dataset.at, rented=False)
    cloud, _, region = dataset.at.partition("/")
    if not cloud or not region:
        raise InputError(
            Problem(
                f"{dataset.at!r} is not a place",
                key="dataset.at",
                fix="Write cloud/region, e.g. aws/us-east-1, or the name of an owned cluster",
            )
        )
    return Place(cloud, region)


def pool_place(pool: str, cloud: str, region: str, case: Case) -> Place:
    """The place of a pool; it is not rented when the pool or its cloud has the name of an owned cluster."""
    own = _own_names(case)
    name = next((name for name in (pool, cloud) if name in own), None)
    return Place(cloud, region) if name is None else Place(name, name, rented=False)


def staging_usd(catalog: Catalog, case: Case, dataset: Dataset, target: Place) -> float:
    """Price of bringing a dataset to where a task runs; 0 when it is there already."""
    source = place_of_dataset(dataset, case)
    return 0.0 if source is None else move_usd(catalog, source, target, dataset.size_bytes)
