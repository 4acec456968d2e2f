"""The shipped rows are complete and agree with each other."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

import trainplan
import trainplan_models
from trainplan_models import catalog
from trainplan_models.base import InputError
from trainplan_models.catalog import reading
from trainplan_models.catalog.checks import findings
from trainplan_models.catalog.dates import last_day
from trainplan_models.catalog.records import Offer, Row, TransferPrice
from trainplan_models.catalog.tables import TABLES

KNOWN = catalog.builtin()
ATTRIBUTES = {"dropped_offers": "dropped", "storage_tiers": "tiers", "failure_profiles": "failures"}
ATTRIBUTES |= {"spot_profiles": "spot"}


def rows_of(kind: str, known: catalog.Catalog = KNOWN) -> list[Row]:
    rows = getattr(known, ATTRIBUTES.get(kind, kind))
    return list(rows.values() if isinstance(rows, dict) else rows)


# Every row


# Prices for certain days are a user's own: a shipped one would ask every case for its day 0.
@pytest.mark.parametrize("kind", sorted(TABLES.keys() - {"dated_prices"}))
def test_every_row_says_where_it_is_from_and_of_when(kind: str) -> None:
    rows = rows_of(kind)
    assert rows
    assert [row for row in rows if not row.source or last_day(row.as_of) is None] == []


@pytest.mark.parametrize("kind", TABLES)
def test_rows_written_and_read_again_are_the_same(kind: str, tmp_path: Path) -> None:
    table, rows = TABLES[kind], rows_of(kind)
    (tmp_path / table.file_name).write_text(reading.write_records(table.record, rows), encoding="utf-8")
    sheet = reading.read_table(table, tmp_path)
    assert sheet is not None and sheet.rows == rows


def test_nothing_in_the_catalogue_refers_to_what_is_not_there() -> None:
    assert [finding for finding in findings(KNOWN, date(2026, 9, 30)) if finding.severity == "error"] == []


def test_numbers_that_cannot_be_are_refused() -> None:
    offer = KNOWN.offers[0].model_dump()
    for usd in (0.0, -1.0, float("nan"), float("inf")):
        with pytest.raises(ValidationError):
            Offer(**{**offer, "usd_per_node_h": usd})


def test_every_default_the_code_asks_for_is_there() -> None:
    asked = set()
    for package in (trainplan, trainplan_models):
        for path in Path(package.__path__[0]).rglob("*.py"):
            text = path.read_text(encoding="utf-8")
            asked |= set(re.findall(r"\.default\(\s*\"([a-z_.0-9]+)\"", text))
    assert asked and asked - set(KNOWN.defaults) == set()
    with pytest.raises(InputError, match="Did you mean pue"):
        KNOWN.default("pux")


# Chips and machines


@pytest.mark.parametrize(
    ("said", "name"),
    [
        ("A100", "A100-SXM-40GB"),
        ("A100-80GB", "A100-SXM-80GB"),
        ("NVIDIA A100-SXM4-80GB", "A100-SXM-80GB"),
        ("H100", "H100-SXM"),
        ("h100_80gb", "H100-SXM"),
        ("H100-MEGA", "H100-SXM"),
        ("H100-80GB-SXM (A3)", "H100-SXM"),
        ("H100-PCIe", "H100-PCIe"),
        ("NVIDIA Blackwell GPU (B200-SXM-180GB)", "B200-SXM"),
        ("tpu-v5e", "TPU-v5e"),
        ("TPU-v5e", "TPU-v5e"),
        ("TPU-trillium", "TPU-v6e"),
        ("Trainium", "Trainium1"),
        ("Gaudi HL-205", "Gaudi"),
        ("Intel(R) Gaudi(R) 2 AI Accelerator", "Gaudi2"),
        ("V100", "V100-SXM2-16GB"),
        ("V100-32GB", "V100-SXM2-32GB"),
        ("GH200", "GH200"),
    ],
)
def test_chips_go_by_the_names_people_use(said: str, name: str) -> None:
    assert KNOWN.accelerator(said).name == name


@given(st.sampled_from(sorted(KNOWN.accelerators)), st.sampled_from(["", "-", "_", " "]), st.booleans())
def test_case_and_dashes_do_not_matter(name: str, joiner: str, upper: bool) -> None:
    said = name.upper() if upper else name.lower()
    assert KNOWN.accelerator(said.replace("-", joiner)).name == name


def test_an_unknown_chip_is_refused_with_the_nearest() -> None:
    with pytest.raises(InputError, match="unknown accelerator 'H1000'. Did you mean H100"):
        KNOWN.accelerator("H1000")


@pytest.mark.parametrize(
    ("name", "dense_flops"),
    [
        ("H100-SXM", 989e12),
        ("B200-SXM", 2250e12),
        ("B300-SXM", 2250e12),
        ("L40S", 362e12),
        ("Trainium2", 667e12),
        ("Gaudi3", 1677e12),
        ("A100-SXM-80GB", 312e12),
    ],
)
def test_peaks_are_dense(name: str, dense_flops: float) -> None:
    assert KNOWN.accelerator(name).bf16_flops == dense_flops


def test_chips_are_consistent() -> None:
    for chip in KNOWN.accelerators.values():
        assert (chip.fp8_flops or chip.bf16_flops) >= chip.bf16_flops, chip.name
        assert (chip.fp4_flops or math.inf) >= (chip.fp8_flops or 0.0), chip.name
        assert (chip.matmul_bf16_flops or 0.0) <= chip.bf16_flops, chip.name
        assert chip.has_bf16 is not chip.name.startswith("V100")
        assert 15e9 < chip.memory_bytes < 310e9, chip.name
        assert KNOWN.reference_node(chip.name, 8).accelerators == 8


def test_blackwell_has_fp4() -> None:
    blackwell = [chip for chip in KNOWN.accelerators.values() if chip.generation == "blackwell"]
    assert len(blackwell) == 4
    assert all(chip.fp4_flops and "fp4" in chip.source for chip in blackwell)


def test_memory_is_what_the_driver_shows_not_the_round_number() -> None:
    assert KNOWN.accelerator("H100").memory_bytes / 2**30 == pytest.approx(79.65, abs=0.01)
    assert KNOWN.accelerator("A100-80GB").memory_bytes / 2**30 == 80.0


@pytest.mark.parametrize(
    ("cloud", "instance_type", "gbit_per_node"),
    [
        ("aws", "p4d.24xlarge", 400),
        ("aws", "p5.48xlarge", 3200),
        ("aws", "trn1n.32xlarge", 1600),
        ("gcp", "a3-megagpu-8g", 1600),
        ("gcp", "a4-highgpu-8g", 3200),
        ("azure", "Standard_ND96isr_H100_v5", 3200),
        ("azure", "Standard_ND96is_H100_v5", 80),
        ("lambda", "gpu_8x_h100_sxm5", 100),
        ("oci", "BM.GPU.H100.8", 3200),
    ],
)
def test_network_is_per_accelerator(cloud: str, instance_type: str, gbit_per_node: float) -> None:
    node = KNOWN.node(cloud, instance_type)
    assert node.nic_bytes_per_s * node.accelerators * 8 == pytest.approx(gbit_per_node * 1e9)
    if cloud == "lambda":
        assert "no InfiniBand" in node.note


def test_machines_are_consistent() -> None:
    for key, node in KNOWN.nodes.items():
        chip = KNOWN.accelerator(node.accelerator)
        assert chip.name == node.accelerator, f"{key} names its chip by an alias"
        assert node.vcpus and node.host_memory_bytes, key
        assert node.scaleup_devices in {1, node.accelerators, chip.scaleup_devices}, key
        if node.power_w is not None and chip.tdp_w is not None:
            assert 1.0 <= node.power_w / (chip.tdp_w * node.accelerators) <= 3.0, key


def test_a_reference_machine_with_other_counts_is_scaled() -> None:
    whole, half = KNOWN.reference_node("H100", 8), KNOWN.reference_node("H100", 4)
    assert (half.accelerators, half.scaleup_devices) == (4, 4)
    assert (half.power_w or 0) * 2 == whole.power_w and half.nic_bytes_per_s == whole.nic_bytes_per_s
    assert KNOWN.reference_node("GB200", 72).scaleup_devices == 72


# Prices and pools


def test_money_is_per_node_hour() -> None:
    (offer,) = [o for o in KNOWN.offers if o.pool == "aws/us-east-1/p5.48xlarge" and o.mode == "on-demand"]
    assert offer.usd_per_node_h == 55.04
    assert offer.usd_per_node_h / KNOWN.node("aws", "p5.48xlarge").accelerators == pytest.approx(6.88)


def test_pools_have_every_price_of_a_place() -> None:
    pools = KNOWN.pools()
    p5 = pools["aws/us-east-1/p5.48xlarge"]
    assert (p5.accelerator.name, p5.node.accelerators) == ("H100-SXM", 8)
    assert p5.usd_per_node_h["capacity-block"] / 8 == pytest.approx(4.916, abs=1e-3)
    assert p5.price_as_of["capacity-block"] == "2024-11", "a block price keeps its own, older date"
    assert p5.usd_per_node_h["reserved-1y"] == pytest.approx(55.04 * 0.65)
    p5e = pools["aws/us-east-2/p5e.48xlarge"]
    assert p5e.usd_per_node_h["capacity-block"] == 39.80 and "on-demand" not in p5e.usd_per_node_h
    a3 = pools["gcp/us-central1/a3-highgpu-8g"].usd_per_node_h
    assert "on-demand" not in a3 and a3["flex-start"] == 43.06615
    assert pools["gcp/us-east4/a3-highgpu-8g"].usd_per_node_h["reserved-3y"] == pytest.approx(
        87.83247 * 0.439
    )


def test_every_other_way_of_paying_is_cheaper_than_on_demand() -> None:
    pools = KNOWN.pools()
    assert len(pools) > 400 and all(name == pool.name for name, pool in pools.items())
    for pool in pools.values():
        usd = pool.usd_per_node_h
        assert usd and usd.keys() == pool.price_as_of.keys() and usd.keys() <= KNOWN.modes.keys(), pool.name
        on_demand = usd.get("on-demand", math.inf)
        assert all(price < on_demand for mode, price in usd.items() if mode != "on-demand"), pool.name


def test_offers_are_found_by_alias_and_place() -> None:
    found = KNOWN.offers_for(
        accelerators=["H100-80GB"], clouds=["aws"], regions=["us-east-1"], modes=["spot"]
    )
    assert [offer.instance_type for offer in found] == ["p5.48xlarge"]
    assert KNOWN.offers_for() == KNOWN.offers
    for wrong in (
        {"clouds": ["awz"]},
        {"regions": ["us-east-9"]},
        {"modes": ["sport"]},
        {"accelerators": ["Q9"]},
    ):
        with pytest.raises(InputError):
            KNOWN.offers_for(**wrong)


def test_billing_modes_behave_as_sold() -> None:
    block = KNOWN.modes["capacity-block"]
    assert block.durations_days[:14] == tuple(range(1, 15)) and block.durations_days[14:16] == (21, 28)
    assert block.durations_days[-1] == 182 and block.sizes_nodes == (1, 2, 4, 8, 16, 32, 64)
    assert (block.upfront_frac, block.unusable_tail_s, block.max_nodes) == (1.0, 1800.0, 256)
    assert [mode for mode, row in KNOWN.modes.items() if row.preemptible] == ["spot"]
    assert KNOWN.modes["flex-start"].max_run_s == 7 * 86400
    assert {row.paid for row in KNOWN.modes.values()} == {"per-hour", "committed", "held"}
    assert {row.mode for row in KNOWN.commitments} <= {
        m for m, r in KNOWN.modes.items() if r.paid == "committed"
    }


# Storage, traffic, failures, spot


def test_storage_of_a_place_prefers_its_region_and_falls_back() -> None:
    tokyo = {tier.name: tier.usd_per_gb_month for tier in KNOWN.tiers_for("aws", "ap-northeast-1")}
    virginia = {tier.name: tier.usd_per_gb_month for tier in KNOWN.tiers_for("aws", "us-east-1")}
    assert (tokyo["aws/fsx-lustre/persistent-125"], virginia["aws/fsx-lustre/persistent-125"]) == (
        0.1886,
        0.145,
    )
    assert virginia["aws/s3/standard"] == 0.023 and virginia["any/local-nvme/instance-store"] == 0.0
    assert not [name for name in virginia if name.startswith("*")]
    for cloud in ("lambda", "oci", "nebius", "runpod", "somewhere"):
        kinds = {tier.kind for tier in KNOWN.tiers_for(cloud, "x")}
        assert kinds == {"object", "parallel-fs", "local"}
    assumed = [tier for tier in KNOWN.tiers if tier.cloud == "*"]
    assert assumed and not any(tier.verified for tier in assumed)


def brackets(cloud: str, region: str, to: str) -> list[tuple[float, float]]:
    return [(row.from_gb, row.usd_per_gb) for row in KNOWN.transfers_for(cloud, region, to)]


def test_traffic_is_priced_by_volume_and_place() -> None:
    internet = [(0.0, 0.09), (10240.0, 0.085), (51200.0, 0.07), (153600.0, 0.05)]
    assert brackets("aws", "us-east-1", "internet") == internet
    assert brackets("aws", "us-east-1", "eu-west-1") == [(0.0, 0.02)]
    assert brackets("aws", "us-east-1", "us-east-2") == [(0.0, 0.01)]
    assert brackets("aws", "af-south-1", "internet")[0] == (0.0, 0.154)
    assert brackets("aws", "me-central-1", "cross-region") == [(0.0, 0.085)]
    assert brackets("azure", "eastus", "internet")[:2] == [(0.0, 0.0), (100.0, 0.087)]
    assert brackets("elsewhere", "x", "internet") == [(0.0, 0.09)]
    assert 1000 * brackets("aws", "us-west-2", "cross-region")[0][1] == pytest.approx(20.0), (
        "1 TB costs 20 USD"
    )


def test_the_row_that_says_most_wins_whatever_the_order() -> None:
    tiers = replace(KNOWN, tiers=KNOWN.tiers[::-1]).tiers_for("aws", "ap-northeast-1")
    assert {t.name: t.usd_per_gb_month for t in tiers}["aws/fsx-lustre/persistent-125"] == 0.1886
    any_region = TransferPrice(
        cloud="aws", region="us-east-1", to="cross-region", usd_per_gb=5, source="s", as_of="2025"
    )
    known = replace(KNOWN, transfers=(any_region, *KNOWN.transfers))
    assert [row.usd_per_gb for row in known.transfers_for("aws", "us-east-1", "us-east-2")] == [0.01]


def test_the_commitment_that_says_most_of_a_pool_wins_whatever_the_order() -> None:
    shipped = next(row for row in KNOWN.commitments if row.discount_frac == 0.35)
    here = {"regions": ("us-east-1",), "usd_per_node_h": 30.0, "discount_frac": None}
    by_region = shipped.model_copy(update=here)
    by_cloud = shipped.model_copy(update={"instance_type": "*", "discount_frac": 0.5})
    for order in ((by_region, by_cloud), (by_cloud, by_region)):
        pools = replace(KNOWN, commitments=(*order, *KNOWN.commitments)).pools()
        names = ("us-east-1/p5.48xlarge", "us-west-2/p5.48xlarge", "us-east-1/p4d.24xlarge")
        found = [pools[f"aws/{name}"].usd_per_node_h for name in names]
        assert found[0]["reserved-1y"] == 30.0
        assert found[1]["reserved-1y"] == pytest.approx(found[1]["on-demand"] * 0.65)
        assert found[2]["reserved-1y"] == pytest.approx(found[2]["on-demand"] * 0.5)


def test_gaps_between_volume_brackets_are_found() -> None:
    gap = TransferPrice(
        cloud="aws", region="us-east-2", to="x", from_gb=5, usd_per_gb=1, source="s", as_of="2025"
    )
    found = findings(replace(KNOWN, transfers=(*KNOWN.transfers, gap)), date(2026, 9, 30))
    assert [f.problem.key for f in found if f.severity == "error"] == ["aws/us-east-2 to x"]


def test_failure_rates_are_those_of_the_clusters() -> None:
    assert KNOWN.failures["llama3"].failures_per_1000_node_days == pytest.approx(419 / (54 * 2.048), rel=1e-3)
    rates = {name: row.failures_per_1000_node_days for name, row in KNOWN.failures.items()}
    assert (rates["rsc-1"], rates["rsc-2"]) == (6.5, 2.34)
    assert 3.8 <= rates["standard"] <= 6.5 < rates["all-cause"] == pytest.approx(1000 / 47.7, rel=0.06)
    assert KNOWN.failures["small-team"].detect_s >= 5400


@pytest.mark.parametrize(
    ("band", "share"), [("<5%", 0.05), ("5-10%", 0.11), ("10-15%", 0.16), ("15-20%", 0.22)]
)
def test_aws_bands_are_shares_of_a_month(band: str, share: float) -> None:
    rate = KNOWN.spot["advisor", band].preemptions_per_node_h
    assert 1 - math.exp(-rate * 730) == pytest.approx(share, rel=1e-3)


def test_azure_bands_are_shares_of_an_hour_and_worlds_stay_apart() -> None:
    rate = KNOWN.spot["azure", "5-10%"].preemptions_per_node_h
    assert 1 - math.exp(-rate) == pytest.approx(0.10, rel=1e-3)
    assert (
        KNOWN.spot["stress", ""].preemptions_per_node_h
        > 100 * KNOWN.spot["advisor", ""].preemptions_per_node_h
    )
    for row in KNOWN.spot.values():
        assert 0 <= row.gang_correlation < 1 and row.reacquire_s >= 600
    assert {band.band for band in KNOWN.spot_bands} <= {
        band for name, band in KNOWN.spot if name == "advisor"
    }
