from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from trainplan_models import storage
from trainplan_models.base import InputError
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import Default, StorageTier
from trainplan_models.storage import MONTH_S, TIB_BYTES, Speeds

DAY_S = 86400.0
SPEED = Speeds(
    object_write_bytes_per_s_per_node=1e9,
    object_read_bytes_per_s_per_node=2e9,
    local_write_bytes_per_s_per_node=4e9,
    snapshot_bytes_per_s_per_accelerator=5e9,
    blocking_overhead_s=0.5,
    parallel_fs_share=0.8,
)
EMPTY = Catalog({}, {}, (), {}, (), (), (), {}, {}, (), {}, {})


def tier(name: str = "Standard", **changes: Any) -> StorageTier:
    values: dict[str, Any] = {
        "cloud": "aws",
        "service": "S3",
        "tier": name,
        "kind": "object",
        "usd_per_gb_month": 0.023,
        "source": "test",
        "as_of": "2024",
    }
    return StorageTier.model_validate(values | changes)


INFREQUENT = tier(
    "Standard-IA",
    usd_per_gb_month=0.0125,
    min_days=30,
    min_object_bytes=128e3,
    retrieval_usd_per_gb=0.01,
    write_usd_per_10k=0.1,
    read_usd_per_10k=0.01,
)
DEEP = tier("Deep Archive", usd_per_gb_month=0.00099, min_days=180, retrieval_s=12 * 3600.0)
FROZEN = tier("Bulk", usd_per_gb_month=0.0005, retrieval_s=48 * 3600.0)
LUSTRE = tier(
    "Persistent 250",
    service="FSx",
    kind="parallel-fs",
    usd_per_gb_month=0.21,
    mbps_per_tib=250,
    min_size_bytes=1.2e12,
)
SHARE = tier("Standard", service="EFS", kind="file", usd_per_gb_month=0.01)
DISK = tier("gp3", service="EBS", kind="block", usd_per_gb_month=0.01)
LOCAL = tier("instance store", cloud="any", service="local NVMe", kind="local", usd_per_gb_month=0.0)


def test_a_month_of_a_terabyte() -> None:
    assert storage.storage_usd(tier(), 1e12, MONTH_S) == pytest.approx(23.0)


def test_leaving_early_costs_the_rest_of_the_minimum() -> None:
    charge = storage.storage_charge(INFREQUENT, 1e12, 10 * DAY_S, object_bytes=1e12)
    assert charge.kept_usd == pytest.approx(12.5 * 10 * DAY_S / MONTH_S)
    assert charge.unmet_usd == pytest.approx(12.5 * 20 * DAY_S / MONTH_S)
    late = storage.storage_charge(INFREQUENT, 1e12, 40 * DAY_S)
    assert late.unmet_usd == 0.0


def test_reading_back_costs_retrieval_and_requests() -> None:
    charge = storage.storage_charge(INFREQUENT, 1e12, 30 * DAY_S, read_bytes=2e12, object_bytes=1e8)
    assert charge.retrieval_usd == pytest.approx(20.0)
    assert charge.requests == pytest.approx(30_000)
    assert charge.request_usd == pytest.approx(0.1 * 1 + 0.01 * 2)
    assert charge.usd == pytest.approx(
        charge.kept_usd + charge.unmet_usd + charge.retrieval_usd + charge.request_usd
    )


def test_small_objects_are_billed_at_their_minimum() -> None:
    small = storage.storage_charge(INFREQUENT, 1e9, MONTH_S, object_bytes=32e3)
    assert small.kept_gb_months == pytest.approx(4.0)


def test_nothing_stored_costs_nothing() -> None:
    assert storage.storage_usd(LUSTRE, 0.0, 0.0) == 0.0


def test_rate_and_once_make_the_whole_bill() -> None:
    for kind in (tier(), INFREQUENT):
        held_s = 75 * DAY_S
        grown = storage.tier_rate_usd_per_byte_day(kind) * 3e12 * (75 - kind.min_days)
        whole = storage.storage_usd(kind, 3e12, held_s, read_bytes=1e12)
        assert storage.once_usd(kind, 3e12, read_bytes=1e12) + grown == pytest.approx(whole)


def test_an_hour_of_recent_checkpoints() -> None:
    hour = storage.recent_checkpoints_usd_per_h(tier(), 4e12)
    assert hour == pytest.approx(storage.storage_charge(tier(), 4e12, 3600.0).kept_usd)
    assert storage.save_requests_usd(INFREQUENT, 1e12, 1e8) == pytest.approx(0.1)


def test_capacity_is_bought_for_data_throughput_or_the_least_sold() -> None:
    assert storage.parallel_fs_bytes(LUSTRE, 1e11) == 1.2e12
    assert storage.parallel_fs_bytes(LUSTRE, 5e13) == 5e13
    assert storage.parallel_fs_bytes(LUSTRE, 1e11, 20e9) == pytest.approx(100 * TIB_BYTES)


def test_throughput_grows_with_what_it_is_made_of() -> None:
    nodes, size = np.array([2, 4]), 10 * TIB_BYTES
    assert storage.throughput_bytes_per_s(tier(), nodes, size, SPEED, True) == pytest.approx([2e9, 4e9])
    assert storage.throughput_bytes_per_s(tier(), nodes, size, SPEED, False) == pytest.approx([4e9, 8e9])
    assert storage.throughput_bytes_per_s(LUSTRE, nodes, size, SPEED, True) == pytest.approx([2e9, 2e9])
    assert storage.throughput_bytes_per_s(LOCAL, nodes, size, SPEED, True) == pytest.approx([8e9, 16e9])


def test_a_dataset_lies_where_it_can_be_read_fast_enough() -> None:
    tiers = (tier(), INFREQUENT, DEEP, LUSTRE, SHARE, DISK, LOCAL)
    assert storage.dataset_tiers(tiers, 4, 1e9, SPEED) == (tier(), INFREQUENT, LUSTRE)
    assert storage.dataset_tiers(tiers, 4, 9e9, SPEED) == (LUSTRE,)


def test_recent_checkpoints_avoid_minimum_durations_and_disks_that_go_with_the_gang() -> None:
    tiers = (tier(), INFREQUENT, DEEP, LUSTRE, SHARE, DISK, LOCAL)
    assert storage.checkpoint_tiers(tiers, preemptible=False) == (tier(), LUSTRE, LOCAL)
    assert storage.checkpoint_tiers(tiers, preemptible=True) == (tier(), LUSTRE)


def test_milestones_go_to_object_stores_that_answer_in_time() -> None:
    tiers = (tier(), INFREQUENT, DEEP, FROZEN, LUSTRE)
    assert storage.milestone_tiers(tiers) == (tier(), INFREQUENT, DEEP)
    assert storage.milestone_tiers(tiers, 3600.0) == (tier(), INFREQUENT)


@pytest.mark.parametrize(("days", "best"), [(7, "Standard"), (60, "Standard-IA"), (360, "Deep Archive")])
def test_the_cheapest_tier_depends_on_how_long_it_is_kept(days: float, best: str) -> None:
    deep = DEEP.model_copy(update={"usd_per_gb_month": 0.005})
    found, usd = storage.cheapest_tier((tier(), INFREQUENT, deep), 1e12, days * DAY_S)
    assert found.tier == best
    assert usd == pytest.approx(storage.storage_usd(found, 1e12, days * DAY_S))


def test_nothing_to_choose_from_is_refused() -> None:
    with pytest.raises(InputError, match="no storage tier"):
        storage.cheapest_tier((), 1e12, DAY_S)


def test_the_row_of_the_region_goes_before_that_of_the_cloud() -> None:
    tokyo = LUSTRE.model_copy(update={"region": "ap-northeast-1", "usd_per_gb_month": 0.28})
    known = replace(EMPTY, tiers=(LUSTRE, tokyo))
    assert storage.find_tier(known, "aws/FSx/Persistent 250", "ap-northeast-1") == tokyo
    assert storage.find_tier(known, "aws/FSx/Persistent 250", "us-east-1") == LUSTRE
    with pytest.raises(InputError, match="no storage tier 'aws/S3/Standard'"):
        storage.find_tier(known, "aws/S3/Standard", "us-east-1")


def test_storage_of_an_owned_cluster_costs_nothing_more() -> None:
    known = replace(EMPTY, tiers=(tier(), LOCAL))
    own = storage.tiers_at(known, "dc1", "dc1", rented=False)
    assert [row.name for row in own] == ["dc1/storage/own", LOCAL.name]
    assert storage.storage_usd(own[0], 1e15, MONTH_S) == 0.0
    assert storage.find_tier(known, "dc1/storage/own", "dc1") == own[0]
    assert storage.tiers_at(known, "aws", "us-east-1") == (tier(), LOCAL)


def test_speeds_are_defaults_of_the_catalogue() -> None:
    keys = {
        "checkpoint.object_write_bytes_per_s_per_node": 1e9,
        "checkpoint.object_read_bytes_per_s_per_node": 2e9,
        "checkpoint.local_write_bytes_per_s_per_node": 4e9,
        "checkpoint.snapshot_bytes_per_s_per_accelerator": 5e9,
        "checkpoint.blocking_overhead_s": 0.5,
        "storage.parallel_fs_share": 0.8,
    }
    rows = {key: Default(key=key, value=v, unit="", source="t", as_of="t") for key, v in keys.items()}
    assert storage.speeds(replace(EMPTY, defaults=rows)) == SPEED
