from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from trainplan_models import costs
from trainplan_models.base import InputError
from trainplan_models.case import Case, Owned
from trainplan_models.catalog import Catalog, Pool
from trainplan_models.catalog.records import Accelerator, Default, NodeType

DEFAULTS = {
    "people.rate_usd_per_h": 150.0,
    "electricity.usd_per_kwh": 0.1,
    "pue": 1.5,
    "power.load_frac": 0.8,
    "power.node_w_per_accelerator_w": 1.8,
    "cpu_node.usd_per_h": 0.5,
    "logs.gb_per_node_day": 2.0,
    "logs.keep_days": 73.0,
    "logs.ingest_usd_per_gb": 0.5,
    "logs.storage_usd_per_gb_month": 0.03,
    "monitoring.usd_per_node_month": 7.3,
    "security.usd_per_month": 730.0,
    "metadata.usd_per_month": 73.0,
    "operations.usd_per_month": 1460.0,
    "network.nat_usd_per_gb": 0.045,
    "milestones.keep_for_days": 90.0,
}
CHIP = Accelerator(
    name="H100-SXM",
    vendor="nvidia",
    generation="hopper",
    bf16_flops=989e12,
    memory_bytes=80e9,
    memory_bytes_per_s=3.35e12,
    scaleup_bytes_per_s=450e9,
    scaleup_devices=8,
    tdp_w=700.0,
    source="t",
    as_of="2024",
)
NODE = NodeType(
    cloud="reference",
    instance_type="DGX H100",
    accelerator="H100-SXM",
    accelerators=8,
    nic_bytes_per_s=50e9,
    power_w=10_200.0,
    scaleup_devices=8,
    source="t",
    as_of="2024",
)
CATALOG = replace(
    Catalog({}, {}, (), {}, (), (), (), {}, {}, (), {}, {}),
    accelerators={"H100-SXM": CHIP},
    accelerator_names={"h100sxm": "H100-SXM"},
    nodes={("reference", "DGX H100"): NODE},
    defaults={k: Default(key=k, value=v, unit="", source="t", as_of="t") for k, v in DEFAULTS.items()},
)
TASK = {"name": "t", "kind": "pretrain", "model": "llama-3-8b", "tokens": "1B tokens"}


def case(**keys: Any) -> Case:
    return Case.model_validate({"name": "c", "tasks": [TASK], **keys})


def owned(**keys: Any) -> Owned:
    return Owned.model_validate({"name": "dc1", "accelerator": "H100-SXM", "nodes": "4 nodes", **keys})


def test_categories_are_those_of_the_report() -> None:
    assert [category.name for category in costs.CATEGORIES] == [
        "compute",
        "cpu nodes",
        "power and cooling",
        "storage",
        "network",
        "data preparation",
        "evaluation",
        "logging and monitoring",
        "metadata database",
        "security",
        "operations and people",
        "experiments and retries",
        "migration",
        "delay",
        "unused commitments",
    ]
    assert {category.name for category in costs.CATEGORIES if category.fixed} == {
        "cpu nodes",
        "metadata database",
        "security",
        "operations and people",
        "migration",
        "unused commitments",
    }


@pytest.mark.parametrize(
    ("kind", "nodes", "bought"),
    [
        ("pretrain", "compute", "data preparation"),
        ("rl", "compute", "data preparation"),
        ("prepare-data", "data preparation", "data preparation"),
        ("generate-data", "data preparation", "data preparation"),
        ("evaluate", "evaluation", "evaluation"),
    ],
)
def test_where_a_task_is_counted(kind: str, nodes: str, bought: str) -> None:
    assert (costs.node_category(kind), costs.bought_category(kind)) == (nodes, bought)


def test_a_discount_for_the_pool_goes_before_that_for_its_cloud() -> None:
    asked = case(resources={"discounts": {"aws": "10%", "aws/us-east-1/p5": "20%"}})
    p5 = Pool("aws/us-east-1/p5", "aws", "us-east-1", NODE, CHIP, {"on-demand": 50.0}, {})
    other = replace(p5, name="aws/us-east-2/p5", region="us-east-2")
    foreign = replace(p5, name="gcp/x/a3", cloud="gcp")
    prices = [costs.node_usd_per_h(asked, pool, "on-demand") for pool in (p5, other, foreign)]
    assert prices == pytest.approx([40.0, 45.0, 50.0])


def test_electricity_of_an_owned_node() -> None:
    assert costs.power_usd_per_node_h(owned(), CATALOG) == pytest.approx(10.2 * 0.8 * 1.5 * 0.1)
    own = owned(electricity="0.2 USD/kWh", pue=1.1)
    assert costs.power_usd_per_node_h(own, CATALOG) == pytest.approx(10.2 * 0.8 * 1.1 * 0.2)


def test_power_that_nobody_published_follows_the_chips() -> None:
    unknown = NODE.model_copy(update={"power_w": None})
    assert costs.power_usd_per_node_h(owned(), CATALOG, unknown) == pytest.approx(
        0.7 * 8 * 1.8 * 0.8 * 1.5 * 0.1
    )
    chip = CHIP.model_copy(update={"tdp_w": None})
    with pytest.raises(InputError, match="power of H100-SXM"):
        costs.power_usd_per_node_h(owned(), replace(CATALOG, accelerators={"H100-SXM": chip}), unknown)


Rate = Callable[[Case, Catalog], float]


@pytest.mark.parametrize(
    ("rate", "said", "silent", "told"),
    [
        (costs.people_usd_per_day, {"people": {"engineers": 2, "rate": "70 USD/hour"}}, 0.0, 800.0),
        (costs.operations_usd_per_day, {"overheads": {"operations": "7300 USD/month"}}, 48.0, 240.0),
        (costs.security_usd_per_day, {"overheads": {"security": "3650 USD/month"}}, 24.0, 120.0),
        (costs.metadata_usd_per_day, {"overheads": {"metadata": "365 USD/month"}}, 2.4, 12.0),
        (
            costs.cpu_nodes_usd_per_day,
            {"overheads": {"cpu_nodes": "3 nodes", "cpu_node_price": "2 USD/hour"}},
            0.0,
            144.0,
        ),
        (
            costs.monitoring_usd_per_node_day,
            {"overheads": {"monitoring_per_node": "73 USD/month"}},
            0.24,
            2.4,
        ),
        (
            costs.log_ingest_usd_per_node_day,
            {"overheads": {"logs": {"per_node": "10 GB/day", "keep": "30 days"}}},
            1.0,
            5.0,
        ),
        (
            costs.log_storage_usd_per_node_day,
            {"overheads": {"logs": {"per_node": "10 GB/day", "keep": "730 hours"}}},
            2.0 * 2.4 * 0.03,
            0.3,
        ),
    ],
)
def test_a_rate_is_what_the_case_says_else_the_default(
    rate: Rate, said: dict[str, Any], silent: float, told: float
) -> None:
    assert rate(case(), CATALOG) == pytest.approx(silent)
    assert rate(case(**said), CATALOG) == pytest.approx(told)


def test_people_take_the_default_rate() -> None:
    assert costs.people_usd_per_day(case(people={"engineers": 1}), CATALOG) == pytest.approx(150 * 40 / 7)


def test_rates_by_node_and_by_day_add_up() -> None:
    asked = case(people={"engineers": 1}, overheads={"cpu_nodes": "2 nodes"})
    traffic = costs.log_traffic_usd_per_node_day(asked, CATALOG, rented=True)
    assert traffic == pytest.approx(0.09)
    assert costs.log_traffic_usd_per_node_day(asked, CATALOG, rented=False) == 0.0
    by_node = costs.logs_usd_per_node_day(asked, CATALOG) + traffic + 0.24
    assert costs.observability_usd_per_node_day(asked, CATALOG, rented=True) == pytest.approx(by_node)
    by_day = 150 * 40 / 7 + 48.0 + 24.0 + 2.4 + 2 * 0.5 * 24
    assert costs.programme_usd_per_day(asked, CATALOG) == pytest.approx(by_day)


def test_delay_counts_from_the_deadline_else_from_the_start() -> None:
    late = case(deadline="30 days", overheads={"delay": "5k USD/day"})
    assert [costs.delay_days(late, days * 86400.0) for days in (10, 30, 32.5)] == [0.0, 0.0, 2.5]
    assert costs.delay_days(case(), 10 * 86400.0) == 10.0
    assert (costs.delay_usd_per_day(late), costs.delay_usd_per_day(case())) == (5000.0, 0.0)


def test_a_cloud_that_is_known_or_owned_needs_no_migration() -> None:
    asked = case(
        overheads={"migration": "20k USD", "known_clouds": ["aws"]},
        resources={"owned": [owned().model_dump(by_alias=True) | {"nodes": "4 nodes"}]},
    )
    assert costs.new_clouds(asked, ["aws", "gcp", "dc1", "gcp"]) == ("gcp",)
    assert costs.migration_usd_per_cloud(asked) == 20_000.0


def test_milestones_and_copies_follow_the_case() -> None:
    silent = case()
    assert (costs.milestones_per_s(silent), costs.copies_per_s(silent)) == (0.0, 0.0)
    assert costs.milestone_keep_s(silent, CATALOG) == 90 * 86400.0
    kept = case(checkpoints={"keep_every": "12 hours", "keep_for": "30 days", "copy_to_second_region": True})
    assert costs.milestones_per_s(kept) == costs.copies_per_s(kept) == pytest.approx(1 / 43_200)
    assert costs.milestone_keep_s(kept, CATALOG) == 30 * 86400.0
    daily = case(checkpoints={"copy_to_second_region": True})
    assert (costs.milestones_per_s(daily), costs.copies_per_s(daily)) == (0.0, 1 / 86400)
