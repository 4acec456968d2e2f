"""What it costs to keep bytes on a tier, how fast a tier is, and which tiers can hold what.

A GB is 1e9 bytes and a month 730 hours, as everywhere in the product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from trainplan_models.base import InputError, Problem
from trainplan_models.catalog.records import StorageTier
from trainplan_models.reliability import DAY_S, HOUR_S, MONTH_H

if TYPE_CHECKING:
    from trainplan_models.catalog import Catalog

FloatArray = NDArray[np.float64]

GB_BYTES = 1e9
TIB_BYTES = 2.0**40
MONTH_S = MONTH_H * HOUR_S
ONLINE_S = 60.0
"""A tier whose first byte takes longer than this cannot feed a running job."""
ARCHIVE_WAIT_S = DAY_S
"""Longest wait for a milestone that is asked for again."""


@dataclass(frozen=True, slots=True)
class Speeds:
    """Throughput that does not depend on the tier's size."""

    object_write_bytes_per_s_per_node: float
    object_read_bytes_per_s_per_node: float
    local_write_bytes_per_s_per_node: float
    """To local disks, with a copy on a peer's."""
    snapshot_bytes_per_s_per_accelerator: float
    """From device to host memory."""
    blocking_overhead_s: float
    """Time a save stops training whatever its size (barrier, planning)."""
    parallel_fs_share: float
    """Share of the nominal throughput that is reached."""


def speeds(catalog: Catalog) -> Speeds:
    """The catalogue's storage speeds."""
    return Speeds(
        object_write_bytes_per_s_per_node=catalog.default("checkpoint.object_write_bytes_per_s_per_node"),
        object_read_bytes_per_s_per_node=catalog.default("checkpoint.object_read_bytes_per_s_per_node"),
        local_write_bytes_per_s_per_node=catalog.default("checkpoint.local_write_bytes_per_s_per_node"),
        snapshot_bytes_per_s_per_accelerator=catalog.default(
            "checkpoint.snapshot_bytes_per_s_per_accelerator"
        ),
        blocking_overhead_s=catalog.default("checkpoint.blocking_overhead_s"),
        parallel_fs_share=catalog.default("storage.parallel_fs_share"),
    )


# Charges


@dataclass(frozen=True, slots=True)
class StorageCharge:
    """What keeping an object costs, by the fees a provider lists."""

    kept_gb_months: float
    kept_usd: float
    unmet_gb_months: float
    """Part of the tier's minimum duration in which the object is already gone."""
    unmet_usd: float
    read_gb: float
    retrieval_usd: float
    requests: float
    request_usd: float

    @property
    def usd(self) -> float:
        """All fees together."""
        return self.kept_usd + self.unmet_usd + self.retrieval_usd + self.request_usd


def billed_bytes(tier: StorageTier, size_bytes: float, object_bytes: float) -> float:
    """Bytes the bill counts: small objects and small file systems are charged at their minimum."""
    if size_bytes <= 0:
        return 0.0
    return max(size_bytes * max(1.0, tier.min_object_bytes / object_bytes), tier.min_size_bytes)


def storage_charge(
    tier: StorageTier, size_bytes: float, held_s: float, read_bytes: float = 0.0, object_bytes: float = 256e6
) -> StorageCharge:
    """The bill for writing an object once, keeping it and reading it back.

    Args:
        tier: where it lies.
        size_bytes: its size; for a file system sold by capacity, the capacity.
        held_s: how long it is kept; the tier's minimum duration is owed all the same.
        read_bytes: bytes read from it over its life.
        object_bytes: size of the objects it consists of, which sets the number of requests.
    """
    gb = billed_bytes(tier, size_bytes, object_bytes) / GB_BYTES
    kept = gb * held_s / MONTH_S
    unmet = gb * max(0.0, tier.min_days * DAY_S - held_s) / MONTH_S if held_s > 0 else 0.0
    writes, reads = size_bytes / object_bytes, read_bytes / object_bytes
    return StorageCharge(
        kept_gb_months=kept,
        kept_usd=kept * tier.usd_per_gb_month,
        unmet_gb_months=unmet,
        unmet_usd=unmet * tier.usd_per_gb_month,
        read_gb=read_bytes / GB_BYTES,
        retrieval_usd=read_bytes / GB_BYTES * tier.retrieval_usd_per_gb,
        requests=writes + reads,
        request_usd=(writes * tier.write_usd_per_10k + reads * tier.read_usd_per_10k) / 1e4,
    )


def storage_usd(
    tier: StorageTier, size_bytes: float, held_s: float, read_bytes: float = 0.0, object_bytes: float = 256e6
) -> float:
    """All fees of :func:`storage_charge` together."""
    return storage_charge(tier, size_bytes, held_s, read_bytes, object_bytes).usd


def tier_rate_usd_per_byte_day(tier: StorageTier, object_bytes: float = 256e6) -> float:
    """Price of keeping a byte for a day, above the tier's minimum size and duration."""
    grown = max(1.0, tier.min_object_bytes / object_bytes)
    return grown * tier.usd_per_gb_month / GB_BYTES * DAY_S / MONTH_S


def once_usd(
    tier: StorageTier, size_bytes: float, read_bytes: float = 0.0, object_bytes: float = 256e6
) -> float:
    """What does not grow with time: the minimum duration, retrieval and requests.

    With ``held_s`` above the minimum duration, the whole bill is
    ``once_usd + rate * size * (held_s - minimum)``.
    """
    return storage_usd(tier, size_bytes, tier.min_days * DAY_S, read_bytes, object_bytes)


def recent_checkpoints_usd_per_h(tier: StorageTier, capacity_bytes: float) -> float:
    """Keeping the recent checkpoints of a segment, or the file system bought for them, for an hour."""
    return capacity_bytes / GB_BYTES * tier.usd_per_gb_month * HOUR_S / MONTH_S


def save_requests_usd(tier: StorageTier, size_bytes: float, object_bytes: float = 256e6) -> float:
    """Request fees of writing one checkpoint."""
    return size_bytes / object_bytes * tier.write_usd_per_10k / 1e4


# Throughput


def parallel_fs_bytes(
    tier: StorageTier, data_bytes: float, need_bytes_per_s: float = 0.0, share: float = 0.8
) -> float:
    """Capacity to buy: for the data, for the throughput, and at least what is sold.

    Args:
        tier: a tier whose throughput is bought with capacity.
        data_bytes: what it must hold.
        need_bytes_per_s: throughput it must give.
        share: share of the nominal throughput that is reached.
    """
    per_byte = bytes_per_s_per_byte(tier, share)
    for_speed = need_bytes_per_s / per_byte if per_byte > 0 else 0.0
    return max(data_bytes, for_speed, tier.min_size_bytes)


def bytes_per_s_per_byte(tier: StorageTier, share: float = 0.8) -> float:
    """Throughput that comes with a byte of capacity; 0 where it is not tied to size."""
    return 0.0 if tier.mbps_per_tib is None else tier.mbps_per_tib * 1e6 / TIB_BYTES * share


def throughput_bytes_per_s(
    tier: StorageTier, nodes: ArrayLike, capacity_bytes: ArrayLike, speed: Speeds, write: bool
) -> FloatArray:
    """Throughput of a tier as ``nodes`` nodes together see it.

    An object store grows with the nodes that use it, a parallel file system with the capacity bought,
    local disks with the nodes.
    """
    count, capacity = np.broadcast_arrays(np.asarray(nodes, float), np.asarray(capacity_bytes, float))
    if tier.mbps_per_tib is not None:
        return np.asarray(capacity * bytes_per_s_per_byte(tier, speed.parallel_fs_share))
    if tier.kind == "local":
        return np.asarray(count * speed.local_write_bytes_per_s_per_node)
    per_node = speed.object_write_bytes_per_s_per_node if write else speed.object_read_bytes_per_s_per_node
    return np.asarray(count * per_node)


# Where things may lie


def owned_tier(name: str) -> StorageTier:
    """The storage that comes with an owned cluster or a grant: it is there and costs nothing more."""
    return StorageTier(
        cloud=name,
        service="storage",
        tier="own",
        kind="object",
        usd_per_gb_month=0.0,
        source="case",
        as_of="",
    )


def tiers_at(catalog: Catalog, cloud: str, region: str, rented: bool = True) -> tuple[StorageTier, ...]:
    """Every tier of a place: what the cloud sells there, or what an owned cluster has."""
    if rented:
        return catalog.tiers_for(cloud, region)
    local = tuple(tier for tier in catalog.tiers if tier.cloud == "any")
    return (owned_tier(cloud), *local)


def find_tier(catalog: Catalog, name: str, region: str) -> StorageTier:
    """The row of a tier by name, that of the region before the one for all regions.

    Raises:
        InputError: there is no such tier there.
    """
    rows = [tier for tier in catalog.tiers if tier.name == name and tier.region in (region, "*")]
    if rows:
        return min(rows, key=lambda tier: tier.region == "*")
    if name.endswith("/storage/own"):
        return owned_tier(name.removesuffix("/storage/own"))
    raise InputError(Problem(f"no storage tier {name!r} in region {region!r}", key="storage tier"))


def _shared(tier: StorageTier) -> bool:
    """Whether a whole job can use it at a speed that is known: file shares and disks often give none."""
    return tier.kind == "object" or tier.mbps_per_tib is not None


def dataset_tiers(
    tiers: Iterable[StorageTier], nodes: float, need_bytes_per_s: float, speed: Speeds
) -> tuple[StorageTier, ...]:
    """Tiers a running job can read its data from at ``need_bytes_per_s``."""

    def fits(tier: StorageTier) -> bool:
        if not _shared(tier) or tier.retrieval_s > ONLINE_S:
            return False
        if tier.mbps_per_tib is not None:
            return True
        return float(throughput_bytes_per_s(tier, nodes, 0.0, speed, write=False)) >= need_bytes_per_s

    return tuple(tier for tier in tiers if fits(tier))


def checkpoint_tiers(tiers: Iterable[StorageTier], preemptible: bool) -> tuple[StorageTier, ...]:
    """Tiers that recent checkpoints can go to.

    A minimum duration would be owed for every save, so such tiers are left out; local disks are left out
    where a whole gang can be lost at once.
    """
    return tuple(
        tier
        for tier in tiers
        if (_shared(tier) or tier.kind == "local")
        and tier.retrieval_s <= ONLINE_S
        and tier.min_days == 0
        and not (preemptible and tier.kind == "local")
    )


def milestone_tiers(
    tiers: Iterable[StorageTier], longest_wait_s: float = ARCHIVE_WAIT_S
) -> tuple[StorageTier, ...]:
    """Object stores whose first byte comes within ``longest_wait_s``, for what is kept and rarely read."""
    return tuple(tier for tier in tiers if tier.kind == "object" and tier.retrieval_s <= longest_wait_s)


def cheapest_tier(
    tiers: Iterable[StorageTier],
    size_bytes: float,
    held_s: float,
    read_bytes: float = 0.0,
    object_bytes: float = 256e6,
) -> tuple[StorageTier, float]:
    """The tier with the smallest bill and that bill; ties go to the first name.

    Raises:
        InputError: there is no tier to choose from.
    """
    charges = sorted(
        (storage_usd(tier, size_bytes, held_s, read_bytes, object_bytes), tier.name, tier) for tier in tiers
    )
    if not charges or math.isnan(charges[0][0]):
        raise InputError(Problem("no storage tier can hold it", key="storage tier"))
    return charges[0][2], charges[0][0]
