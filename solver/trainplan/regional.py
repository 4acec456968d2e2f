"""What a region costs a task beside its nodes: data kept there, data and state brought there.

Options of one task in one region share these costs; the optimization charges them once per region.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from trainplan.options import Detail
from trainplan.problem import DatasetChoice, Option
from trainplan.works import Work
from trainplan_models import network, storage
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import StorageTier
from trainplan_models.network import Place

DAY_S = 86400.0


class Offered(Protocol):
    """What is known once all options are made."""

    @property
    def case(self) -> Case: ...
    @property
    def catalog(self) -> Catalog: ...
    @property
    def works(self) -> tuple[Work, ...]: ...
    @property
    def places(self) -> list[Place]: ...
    @property
    def made(self) -> Sequence[tuple[Option, Detail | None]]: ...


def datasets(build: Offered) -> Iterable[DatasetChoice]:
    speed = storage.speeds(build.catalog)
    per_object = build.catalog.default("storage.object_bytes")
    for number, work in enumerate(build.works):
        dataset = work.task.dataset
        if dataset is None:
            continue
        regions = sorted({option.region for option, _ in build.made if option.task == number})
        for region in regions:
            place = build.places[region]
            need = _read_bytes_per_s(build, number, work, region)
            yield from _tiers_of_dataset(build, number, work, region, place, need, speed, per_object)


def _read_bytes_per_s(build: Offered, number: int, work: Work, region: int) -> float:
    """Fastest read a node of the region needs."""
    dataset = work.task.dataset
    if dataset is None or work.tokens == 0.0:
        return 0.0
    per_token = dataset.size_bytes * dataset.format_factor / (work.tokens / work.task.rounds)
    rates = [
        detail.candidate.tokens_per_s / detail.candidate.nodes
        for option, detail in build.made
        if detail is not None and option.task == number and option.region == region
    ]
    return per_token * max(rates, default=0.0)


def _tiers_of_dataset(
    build: Offered,
    number: int,
    work: Work,
    region: int,
    place: Place,
    need_bytes_per_s: float,
    speed: storage.Speeds,
    per_object: float,
) -> Iterable[DatasetChoice]:
    dataset = work.task.dataset
    if dataset is None:
        return
    if not place.rented:
        yield DatasetChoice(number, region, storage.owned_tier(place.cloud).name, 0.0, 0.0)
        return
    read = dataset.size_bytes * dataset.format_factor * work.task.rounds
    choices = []
    expected = work.task.expected_frac
    tiers = storage.tiers_at(build.catalog, place.cloud, place.region)
    for tier in storage.dataset_tiers(tiers, 1.0, need_bytes_per_s, speed):
        size = dataset_bytes(tier, dataset.size_bytes, need_bytes_per_s, speed)
        charge = storage.storage_charge(tier, size, DAY_S, 0.0, per_object)
        reading = storage.storage_charge(tier, size, DAY_S, read, per_object)
        billed = storage.billed_bytes(tier, size, per_object) / storage.GB_BYTES
        choices.append(
            DatasetChoice(
                task=number,
                region=region,
                tier=tier.name,
                usd_per_day=expected * billed * tier.usd_per_gb_month * DAY_S / storage.MONTH_S,
                min_days=tier.min_days,
                once_usd=expected * charge.request_usd,
                read_usd=expected * (reading.retrieval_usd + reading.request_usd - charge.request_usd),
            )
        )
    yield from (c for c in choices if not any(_worse(c, other) for other in choices))


def dataset_bytes(
    tier: StorageTier, size_bytes: float, need_bytes_per_s: float, speed: storage.Speeds
) -> float:
    """Capacity a dataset takes on a tier: its size, or what has to be bought for its read speed."""
    if tier.mbps_per_tib is None:
        return size_bytes
    return storage.parallel_fs_bytes(tier, size_bytes, need_bytes_per_s, speed.parallel_fs_share)


def _worse(one: DatasetChoice, other: DatasetChoice) -> bool:
    mine = (one.usd_per_day, one.min_days * one.usd_per_day, one.once_usd, one.read_usd)
    theirs = (other.usd_per_day, other.min_days * other.usd_per_day, other.once_usd, other.read_usd)
    no_better = all(a >= b for a, b in zip(mine, theirs, strict=True))
    return no_better and (mine != theirs or one.tier > other.tier)


# Traffic


def _regions_of(build: Offered, number: int) -> list[int]:
    return sorted({option.region for option, _ in build.made if option.task == number})


def staging(build: Offered) -> dict[tuple[int, int], float]:
    found = {}
    for number, work in enumerate(build.works):
        if work.task.dataset is None:
            continue
        for region in _regions_of(build, number):
            usd = network.staging_usd(build.catalog, build.case, work.task.dataset, build.places[region])
            if usd > 0.0:
                found[number, region] = usd
    return found


def moves(build: Offered) -> dict[tuple[int, int, int], float]:
    found = {}
    for number, work in enumerate(build.works):
        if work.checkpoint_bytes == 0.0:
            continue
        regions = _regions_of(build, number)
        for (a, b), usd in _prices_between(build, regions, regions, work.checkpoint_bytes).items():
            found[number, a, b] = usd
    return found


def handovers(build: Offered, predecessors: list[tuple[int, ...]]) -> dict[tuple[int, int, int, int], float]:
    found = {}
    for number, before in enumerate(predecessors):
        for p in before:
            size = build.works[p].weights_bytes
            if size == 0.0 or build.works[number].setup is None:
                continue
            prices = _prices_between(build, _regions_of(build, p), _regions_of(build, number), size)
            for (a, b), usd in prices.items():
                found[p, number, a, b] = usd
    return found


def _prices_between(
    build: Offered, sources: list[int], targets: list[int], size_bytes: float
) -> dict[tuple[int, int], float]:
    found = {}
    for a in sources:
        for b in targets:
            usd = network.move_usd(build.catalog, build.places[a], build.places[b], size_bytes)
            if a != b and usd > 0.0:
                found[a, b] = usd
    return found
