"""The shipped numbers are those of the reference data they were taken from."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from trainplan_models import catalog

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
pytestmark = [
    pytest.mark.shared,
    pytest.mark.skipif(not SHARED.is_dir(), reason="no reference data"),
]

KNOWN = catalog.builtin()


def shared(name: str) -> list[dict[str, str]]:
    with (SHARED / name).open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def brackets(cloud: str, region: str, to: str) -> list[tuple[float, float]]:
    return [(row.from_gb, row.usd_per_gb) for row in KNOWN.transfers_for(cloud, region, to)]


def test_names_in_all_reference_data_resolve() -> None:
    files = ("prices.csv", "published_runs.csv", "measured_throughput.csv", "measured_memory.csv")
    names = {row["accelerator"] for file in files for row in shared(file)} - {""}
    assert {name for name in names if KNOWN.find_accelerator(name) is None} == set()


def test_chips_are_as_in_the_source() -> None:
    for row in shared("accelerators.csv"):
        chip = KNOWN.accelerator(row["accelerator"])
        assert chip.bf16_flops == float(row["bf16_dense_tflops"]) * 1e12
        assert (chip.fp8_flops or 0) == float(row["fp8_dense_tflops"] or 0) * 1e12
        assert (chip.matmul_bf16_flops or 0) == float(row["mamf_bf16_tflops"] or 0) * 1e12
        assert chip.memory_bytes_per_s == float(row["mem_bw_gbps"]) * 1e9
        assert chip.memory_bytes / 1e9 == pytest.approx(float(row["memory_gb"]), rel=0.09)
        if row["link_gbps_per_dir"]:
            assert chip.scaleup_bytes_per_s == float(row["link_gbps_per_dir"]) * 1e9
        if row["nic_gbit_per_accel"]:
            assert (chip.nic_bytes_per_s or 0) * 8 == float(row["nic_gbit_per_accel"]) * 1e9


def test_machines_are_as_in_the_price_list() -> None:
    for row in shared("prices.csv"):
        node = KNOWN.node(row["cloud"], row["instance_type"])
        assert node.accelerators == float(row["accelerator_count"])
        if row["memory_gib"]:
            assert node.host_memory_bytes == float(row["memory_gib"]) * 2**30


def test_traffic_and_storage_are_as_in_the_source() -> None:
    for row in shared("network_prices.csv"):
        to = {"internet": "internet", "other AWS region": "cross-region"}.get(row["to"])
        if row["provider"] == "aws" and to:
            found = dict(brackets("aws", row["region"], to))
            assert found[float(row["from_gb"])] == float(row["usd_per_gb"])
    for row in shared("aws_transfer_costs.csv"):
        if row["dst"] != "internet":
            assert brackets("aws", row["src"], row["dst"])[0][1] == float(row["cost"])
    shipped = {tier.usd_per_gb_month for tier in KNOWN.tiers if tier.cloud == "aws"}
    object_tiers = [
        r for r in shared("storage_tiers.csv") if r["service"] == "S3" and "Tiering" not in r["tier"]
    ]
    assert {float(row["usd_per_gb_month"]) for row in object_tiers} <= shipped
