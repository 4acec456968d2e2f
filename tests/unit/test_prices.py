"""Every known fault of price lists is caught by the rule made for it, and nothing else is lost."""

from __future__ import annotations

import csv
import re
from collections import Counter
from dataclasses import replace
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan_models import catalog, prices
from trainplan_models.base import InputError
from trainplan_models.catalog.dates import last_day
from trainplan_models.catalog.price_lists import read_price_list
from trainplan_models.prices import Imported, PriceRow, import_offers

SHARED = Path(__file__).resolve().parents[3] / "shared" / "data"
TODAY = date(2026, 9, 30)
UNPRICED = replace(catalog.builtin(), offers=())
"""The machines of the catalogue without its prices: a list is judged by itself."""


def row(**changes: object) -> PriceRow:
    """A sound row of p5.48xlarge."""
    sound = PriceRow(
        cloud="aws",
        region="us-east-1",
        zone="a",
        instance_type="p5.48xlarge",
        accelerator="H100",
        accelerators=8.0,
        on_demand_usd_per_h=55.04,
        spot_usd_per_h=20.0,
        source="test",
        as_of="2026-08-31",
    )
    return replace(sound, **changes)  # type: ignore[arg-type]


def gcp(region: str, on_demand: float, spot: float, **changes: object) -> PriceRow:
    return row(
        cloud="gcp",
        region=region,
        zone=f"{region}-a",
        instance_type="a3-highgpu-8g",
        on_demand_usd_per_h=on_demand,
        spot_usd_per_h=spot,
        **changes,
    )


def rules_of(imported: Imported) -> list[tuple[str, str]]:
    return sorted((dropped.mode, dropped.rule) for dropped in imported.dropped)


def offered(imported: Imported) -> dict[tuple[str, str], float]:
    return {(offer.region, offer.mode): offer.usd_per_node_h for offer in imported.offers}


def test_a_sound_row_gives_two_offers_of_a_node_hour() -> None:
    imported = import_offers([row()], UNPRICED, today=TODAY)
    assert offered(imported) == {("us-east-1", "on-demand"): 55.04, ("us-east-1", "spot"): 20.0}
    assert (imported.dropped, imported.nodes, imported.warnings) == ((), (), ())
    assert {(offer.source, offer.as_of) for offer in imported.offers} == {("test", "2026-08-31")}


@pytest.mark.parametrize(
    ("changes", "kept", "dropped"),
    [
        ({"on_demand_usd_per_h": 0.0}, {"spot"}, [("on-demand", "zero-price")]),
        ({"spot_usd_per_h": 0.0}, {"on-demand"}, [("spot", "zero-price")]),
        ({"on_demand_usd_per_h": -1.0}, {"spot"}, [("on-demand", "zero-price")]),
        ({"on_demand_usd_per_h": float("nan")}, {"spot"}, [("on-demand", "not-a-number")]),
        ({"on_demand_usd_per_h": float("inf")}, {"spot"}, [("on-demand", "not-a-number")]),
        ({"spot_usd_per_h": 700.0}, {"on-demand"}, [("spot", "placeholder")]),
        ({"on_demand_usd_per_h": None}, {"spot"}, [("on-demand", "no-on-demand-price")]),
        ({"spot_usd_per_h": None}, {"on-demand"}, []),
        ({"spot_usd_per_h": 55.04}, {"on-demand"}, [("spot", "spot-equals-on-demand")]),
        ({"spot_usd_per_h": 55.0401}, {"on-demand"}, [("spot", "spot-equals-on-demand")]),
        ({"spot_usd_per_h": 89.16}, {"on-demand"}, [("spot", "spot-above-on-demand")]),
        ({"host_usd_per_h": 0.0}, set(), [("on-demand", "host-price"), ("spot", "host-price")]),
        ({"host_usd_per_h": 5.0}, {"on-demand", "spot"}, []),
        ({"accelerators": 12.0}, set(), [("on-demand", "accelerator-count"), ("spot", "accelerator-count")]),
        (
            {"accelerator": "A100"},
            set(),
            [("on-demand", "wrong-accelerator"), ("spot", "wrong-accelerator")],
        ),
        (
            {"instance_type": "x.large", "accelerator": "Z9"},
            set(),
            [("on-demand", "unknown-accelerator"), ("spot", "unknown-accelerator")],
        ),
        (
            {"instance_type": "x.large", "accelerators": 0.5},
            set(),
            [("on-demand", "accelerator-count"), ("spot", "accelerator-count")],
        ),
    ],
)
def test_each_fault_is_caught_by_its_rule(
    changes: dict[str, object], kept: set[str], dropped: list[tuple[str, str]]
) -> None:
    imported = import_offers([row(**changes)], UNPRICED, today=TODAY)
    assert {offer.mode for offer in imported.offers} == kept
    assert rules_of(imported) == dropped
    assert all(d.reason and d.rule in prices.RULES for d in imported.dropped)


@pytest.mark.parametrize(("usd", "dropped"), [(0.01 * 8, True), (600.0, True), (30.0, False), (90.0, False)])
def test_a_price_far_from_what_the_chip_costs_is_dropped(usd: float, dropped: bool) -> None:
    small = row(instance_type="p5.4xlarge", accelerators=1.0, on_demand_usd_per_h=6.88, spot_usd_per_h=None)
    suspect = row(
        cloud="lambda", instance_type="gpu_8x_h100_sxm5", on_demand_usd_per_h=usd, spot_usd_per_h=None
    )
    imported = import_offers([row(spot_usd_per_h=None), small, suspect], UNPRICED, today=TODAY)
    assert ([d.rule for d in imported.dropped] == ["implausible"]) is dropped


def test_prices_of_the_catalogue_say_what_is_usual_for_a_list_of_one_row() -> None:
    cheap = row(cloud="lambda", region="x", instance_type="gpu_8x_b200_sxm6", accelerator="B200")
    cheap = replace(cheap, on_demand_usd_per_h=0.08, spot_usd_per_h=None)
    assert rules_of(import_offers([cheap], today=TODAY)) == [("on-demand", "implausible")]
    assert rules_of(import_offers([cheap], UNPRICED, today=TODAY)) == []


def test_the_price_for_a_defined_duration_is_not_taken_for_on_demand() -> None:
    rows = [gcp("us-east4", 87.83, 20.0), gcp("europe-west4", 111.8, 25.6), gcp("us-central1", 43.07, 26.8)]
    imported = import_offers(rows, UNPRICED, today=TODAY)
    assert rules_of(imported) == [("on-demand", "defined-duration")]
    assert offered(imported)["us-central1", "flex-start"] == 43.07
    assert ("us-central1", "on-demand") not in offered(imported)
    assert offered(imported)["us-central1", "spot"] == 26.8
    notes = {offer.mode: offer.note for offer in imported.offers if offer.region == "us-central1"}
    assert notes["flex-start"].startswith("inferred")


def test_spot_above_a_price_for_a_defined_duration_is_kept() -> None:
    rows = [gcp("us-east4", 87.83, 20.0), gcp("us-central1", 43.07, 44.0)]
    assert offered(import_offers(rows, UNPRICED, today=TODAY))["us-central1", "spot"] == 44.0


def test_defined_duration_is_found_in_a_list_that_has_no_other_price() -> None:
    imported = import_offers([gcp("us-central1", 43.07, 26.8)], today=TODAY)
    assert {offer.mode for offer in imported.offers} == {"flex-start", "spot"}


def test_the_cheapest_zone_stands_for_its_region_alone() -> None:
    rows = [
        row(zone="a", spot_usd_per_h=30.0),
        row(zone="b", spot_usd_per_h=10.24),
        row(zone="c", spot_usd_per_h=55.04),
        row(region="us-west-2", zone="d", on_demand_usd_per_h=60.0, spot_usd_per_h=25.0),
    ]
    imported = import_offers(rows, UNPRICED, today=TODAY)
    offers = {(offer.region, offer.mode): offer for offer in imported.offers}
    assert offers["us-east-1", "spot"].usd_per_node_h == 10.24
    assert offers["us-east-1", "spot"].zones == 2, "the zone without a spot price does not count"
    assert offers["us-east-1", "spot"].note == "zone b; other zones up to 30"
    assert offers["us-east-1", "on-demand"].zones == 3
    assert offers["us-west-2", "on-demand"].usd_per_node_h == 60.0, "minima of regions are never mixed"


def test_rows_without_accelerators_are_counted_and_not_reported() -> None:
    rows = [row(), row(instance_type="m7i.large", accelerator="", accelerators=0.0)]
    imported = import_offers(rows, UNPRICED, today=TODAY)
    assert (imported.ignored, imported.dropped) == (1, ())


def test_an_unknown_machine_comes_with_the_offer_and_no_network() -> None:
    imported = import_offers([row(instance_type="p7.metal", vcpus=96.0)], UNPRICED, today=TODAY)
    (node,) = imported.nodes
    assert (node.instance_type, node.accelerator, node.accelerators) == ("p7.metal", "H100-SXM", 8)
    assert node.nic_bytes_per_s == 0.0 and "nic_bytes_per_s" in node.note


def test_memory_that_no_such_chip_has_is_reported() -> None:
    imported = import_offers([row(device_memory_bytes=80 * 2.0**20)], UNPRICED, today=TODAY)
    assert ["0.07812 GiB" in str(warning) for warning in imported.warnings] == [True]
    fine = import_offers([row(device_memory_bytes=80 * 2.0**30)], UNPRICED, today=TODAY)
    assert fine.warnings == ()


@pytest.mark.parametrize(
    ("as_of", "warned"),
    [("2026-08-31", False), ("2025-11..2026-08", False), ("2024-11", True), ("soon", True)],
)
def test_old_prices_are_kept_and_reported(as_of: str, warned: bool) -> None:
    imported = import_offers([row(as_of=as_of)], UNPRICED, today=TODAY)
    assert len(imported.offers) == 2
    assert bool(imported.warnings) is warned


@pytest.mark.parametrize(
    ("as_of", "day"),
    [
        ("2025", date(2025, 12, 31)),
        ("2024-02", date(2024, 2, 29)),
        ("2025-12", date(2025, 12, 31)),
        ("2025-06-28", date(2025, 6, 28)),
        ("2025-11..2026-08", date(2026, 8, 31)),
        ("2025-13", None),
        ("2025-02-30", None),
        ("", None),
        ("last year", None),
    ],
)
def test_a_date_is_read_as_its_last_day(as_of: str, day: date | None) -> None:
    assert last_day(as_of) == day


def test_age_is_at_least_and_never_negative() -> None:
    assert prices.price_age_days("2025-06-28", date(2025, 7, 8)) == 10.0
    assert prices.price_age_days("2026-08", date(2026, 8, 15)) == 0.0
    assert prices.price_age_days("unknown") is None


money = st.one_of(st.none(), st.floats(0.5, 200.0).map(lambda usd: round(usd, 4)))
machines = st.sampled_from(
    [("p5.48xlarge", "H100", 8.0), ("p5.4xlarge", "H100", 1.0), ("p4d.24xlarge", "A100", 8.0)]
)
lists = st.lists(
    st.builds(
        lambda machine, region, zone, on_demand, spot: row(
            instance_type=machine[0],
            accelerator=machine[1],
            accelerators=machine[2],
            region=region,
            zone=zone,
            on_demand_usd_per_h=on_demand,
            spot_usd_per_h=spot,
        ),
        machines,
        st.sampled_from(["r1", "r2"]),
        st.sampled_from("abcd"),
        money,
        money,
    ),
    max_size=30,
)


@given(lists)
def test_every_listed_price_is_offered_or_reported(rows: list[PriceRow]) -> None:
    imported = import_offers(rows, UNPRICED, today=TODAY)
    listed = Counter(("on-demand", r.on_demand_usd_per_h) for r in rows)
    listed += Counter(("spot", r.spot_usd_per_h) for r in rows if r.spot_usd_per_h is not None)
    gone = Counter((d.mode, d.usd_per_node_h) for d in imported.dropped)
    assert not gone - listed
    left = listed - gone
    for offer in imported.offers:
        assert left[offer.mode, offer.usd_per_node_h] > 0
    keys = [(o.cloud, o.region, o.instance_type, o.mode) for o in imported.offers]
    assert len(keys) == len(set(keys))


@given(lists)
def test_no_offer_is_dearer_than_a_price_that_was_kept(rows: list[PriceRow]) -> None:
    imported = import_offers(rows, UNPRICED, today=TODAY)
    kept = Counter((r.region, r.instance_type, "on-demand", r.on_demand_usd_per_h) for r in rows)
    kept += Counter((r.region, r.instance_type, "spot", r.spot_usd_per_h) for r in rows)
    kept -= Counter((d.region, d.instance_type, d.mode, d.usd_per_node_h) for d in imported.dropped)
    for offer in imported.offers:
        place = (offer.region, offer.instance_type, offer.mode)
        assert offer.usd_per_node_h == min(key[3] for key in kept if key[:3] == place and key[3] is not None)


# Price lists in the columns of SkyPilot

HEADER = "InstanceType,vCPUs,MemoryGiB,AcceleratorName,AcceleratorCount,GpuInfo,Region,AvailabilityZone,Price,SpotPrice"


def price_list(folder: Path, *lines: str, header: str = HEADER) -> Path:
    path = folder / "gcp" / "vms.csv"
    path.parent.mkdir()
    path.write_text("\n".join((header, *lines)) + "\n", encoding="utf-8")
    return path


def test_machine_and_accelerators_priced_apart_are_summed(tmp_path: Path) -> None:
    path = price_list(
        tmp_path,
        "a3-highgpu-8g,208.0,1872.0,,,,us-east4,us-east4-a,9.46006,2.15966",
        "a4-highgpu-8g,224.0,3968.0,,,,us-east4,us-east4-b,0.0,0.0",
        "n1-standard-8,8.0,30.0,,,,us-east4,us-east4-a,0.38,0.08",
        ",,,H100,8.0,,us-east4,us-east4-a,78.37241,17.8848",
        ",,,H100,1.0,,us-east4,us-east4-a,9.8,2.2",
        ",,,B200,8.0,,us-east4,us-east4-b,64.44,32.6064",
        ",,,tpu-v6e-8,1,tpu-v6e-8,us-east5,us-east5-a,21.6,9.72",
        ",,,tpu-v6e-8,1,tpu-v6e-8,southamerica-west1,southamerica-west1-a,21.6,700.0",
        ",,,tpu-v6e-64,1,tpu-v6e-64,us-east5,us-east5-a,172.8,77.76",
        ",,,tpu-v5p-8,1,tpu-v5p-8,us-east5,us-east5-a,16.8,6.72",
    )
    imported = import_offers(read_price_list(path, as_of="2026-08-31"), UNPRICED, today=TODAY)
    assert {(o.instance_type, o.region, o.mode): round(o.usd_per_node_h, 5) for o in imported.offers} == {
        ("a3-highgpu-8g", "us-east4", "on-demand"): 87.83247,
        ("a3-highgpu-8g", "us-east4", "spot"): 20.04446,
        ("tpu-v6e-8", "us-east5", "on-demand"): 21.6,
        ("tpu-v6e-8", "us-east5", "spot"): 9.72,
        ("tpu-v6e-8", "southamerica-west1", "on-demand"): 21.6,
        ("tpu-v5p-8", "us-east5", "on-demand"): 16.8,
        ("tpu-v5p-8", "us-east5", "spot"): 6.72,
    }
    dropped = [("on-demand", "host-price"), ("spot", "host-price"), ("spot", "placeholder")]
    assert rules_of(imported) == dropped
    assert imported.ignored == 1


def test_cells_that_are_no_numbers_do_not_stop_the_list(tmp_path: Path) -> None:
    path = price_list(tmp_path, "a3-highgpu-8g,208,1872,H100,8,,us-east4,us-east4-a,n/a,17.9")
    imported = import_offers(read_price_list(path, as_of="2026-08-31"), UNPRICED, today=TODAY)
    assert rules_of(imported) == [("on-demand", "not-a-number")]


def test_a_list_without_its_columns_is_refused(tmp_path: Path) -> None:
    path = price_list(tmp_path, "a,b", header="InstanceType,Cost")
    with pytest.raises(InputError) as error:
        read_price_list(path)
    missing = {problem.key for problem in error.value.problems}
    assert missing == {"AcceleratorName", "AcceleratorCount", "Region", "Price"}
    assert all(problem.line == 1 and problem.file == str(path) for problem in error.value.problems)


def test_a_list_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        read_price_list(tmp_path / "vms.csv")


# The shipped offers against the list they come from


def shared_rows() -> list[PriceRow]:
    """The reference list; its notes say the price of the host where the list has it apart."""
    host = re.compile(r"\+ host ([\d.]+)/")
    dates = {"unknown; v5 schema (2023..2025)": "2023..2025", "2022-12-02": "2022-12-02"}
    with (SHARED / "prices.csv").open(encoding="utf-8", newline="") as stream:
        return [
            PriceRow(
                cloud=cells["cloud"],
                region=cells["region"],
                zone=cells["zone"],
                instance_type=cells["instance_type"],
                accelerator=cells["accelerator"],
                accelerators=float(cells["accelerator_count"]),
                on_demand_usd_per_h=float(cells["price_per_hour"]) if cells["price_per_hour"] else None,
                spot_usd_per_h=float(cells["spot_price_per_hour"]) if cells["spot_price_per_hour"] else None,
                host_usd_per_h=float(split[1]) if (split := host.search(cells["note"])) else None,
                source=cells["catalog_commit"],
                as_of=dates.get(cells["catalog_date"], "2025-11..2026-08"),
            )
            for cells in csv.DictReader(stream)
        ]


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no reference data")
def test_shipped_offers_are_what_the_rules_leave_of_the_list() -> None:
    imported = import_offers(shared_rows(), UNPRICED, today=TODAY)
    shipped = catalog.builtin()
    key = ("cloud", "region", "instance_type", "mode", "usd_per_node_h", "zones", "as_of")
    assert [[getattr(o, k) for k in key] for o in imported.offers] == [
        [getattr(o, k) for k in key] for o in shipped.offers
    ]
    counts = Counter(dropped.rule for dropped in imported.dropped)
    assert counts == {
        "defined-duration": 54,
        "spot-equals-on-demand": 86,
        "no-on-demand-price": 13,
        "host-price": 22,
    }
    assert Counter(d.rule for d in shipped.dropped) == counts + Counter({"placeholder": 1})


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no reference data")
def test_the_rules_find_every_row_marked_as_the_wrong_product() -> None:
    with (SHARED / "prices.csv").open(encoding="utf-8", newline="") as stream:
        marked = {(r["zone"], r["instance_type"]) for r in csv.DictReader(stream) if "SUSPECT" in r["note"]}
    found = {(d.zone, d.instance_type) for d in catalog.builtin().dropped if d.rule == "defined-duration"}
    assert found == marked


@pytest.mark.shared
@pytest.mark.skipif(not SHARED.is_dir(), reason="no reference data")
def test_a_list_as_downloaded_is_read() -> None:
    path = SHARED / "actuals" / "sample_skypilot_catalog_nebius_v8.csv"
    imported = import_offers(read_price_list(path, "nebius", as_of="2026-08-31"), today=TODAY)
    assert imported.ignored == 3 and imported.dropped == () and imported.nodes == ()
    prices_usd = {
        (o.instance_type.split("_")[0], o.region, o.mode): o.usd_per_node_h for o in imported.offers
    }
    assert prices_usd["gpu-b200-sxm", "us-central1", "on-demand"] == 44.0
