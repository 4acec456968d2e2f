from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from trainplan_models import accounting, costs, network, storage
from trainplan_models.accounting import account, commitment_use, total_usd
from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import (
    Accelerator,
    BillingMode,
    Default,
    NodeType,
    Offer,
    StorageTier,
    TransferPrice,
)
from trainplan_models.over_time import line_spans
from trainplan_models.plan import (
    CheckpointPlan,
    CostLine,
    Layout,
    Placement,
    Plan,
    Purchase,
    Segment,
    SolverInfo,
    TaskTime,
)
from trainplan_models.plan_checks import plan_problems

DAY_S = 86400.0
DEFAULTS = {
    "people.rate_usd_per_h": 150.0,
    "electricity.usd_per_kwh": 0.1,
    "pue": 1.5,
    "power.load_frac": 0.8,
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
    "storage.object_bytes": 1e9,
}
EAST, WEST, GCP = "aws/us-east-1/p5", "aws/us-west-2/p5", "gcp/us-central1/a3"


def node(cloud: str, instance_type: str, power_w: float | None = None) -> NodeType:
    return NodeType(
        cloud=cloud,
        instance_type=instance_type,
        accelerator="H100-SXM",
        accelerators=8,
        nic_bytes_per_s=50e9,
        scaleup_devices=8,
        power_w=power_w,
        source="t",
        as_of="2024",
    )


def offer(pool: str, mode: str, usd: float) -> Offer:
    cloud, region, instance_type = pool.split("/")
    return Offer(
        cloud=cloud,
        region=region,
        instance_type=instance_type,
        mode=mode,
        usd_per_node_h=usd,
        source="t",
        as_of="2024-01-01",
    )


def mode(name: str, paid: str, **more: Any) -> BillingMode:
    return BillingMode(mode=name, paid=paid, quota_key=name, source="t", as_of="2024", **more)


def egress(cloud: str, region: str, to: str, usd: float) -> TransferPrice:
    return TransferPrice(cloud=cloud, region=region, to=to, usd_per_gb=usd, source="t", as_of="2024")


S3 = StorageTier(
    cloud="aws",
    service="S3",
    tier="Standard",
    kind="object",
    usd_per_gb_month=0.0365,
    write_usd_per_10k=0.05,
    read_usd_per_10k=0.004,
    source="t",
    as_of="2024",
)
INFREQUENT = S3.model_copy(
    update={"tier": "IA", "usd_per_gb_month": 0.0146, "min_days": 30.0, "retrieval_usd_per_gb": 0.01}
)
CHIP = Accelerator(
    name="H100-SXM",
    vendor="nvidia",
    generation="hopper",
    bf16_flops=989e12,
    memory_bytes=80e9,
    memory_bytes_per_s=3.35e12,
    scaleup_bytes_per_s=450e9,
    scaleup_devices=8,
    source="t",
    as_of="2024",
)
CATALOG = Catalog(
    accelerators={"H100-SXM": CHIP},
    nodes={
        (n.cloud, n.instance_type): n
        for n in (node("aws", "p5"), node("gcp", "a3"), node("reference", "DGX H100", 10_000.0))
    },
    offers=(
        offer(EAST, "on-demand", 50.0),
        offer(EAST, "spot", 20.0),
        offer(EAST, "capacity-block", 40.0),
        offer(WEST, "on-demand", 60.0),
        offer(GCP, "on-demand", 80.0),
    ),
    modes={
        m.mode: m
        for m in (
            mode("on-demand", "per-hour"),
            mode("spot", "per-hour"),
            mode(
                "capacity-block",
                "committed",
                durations_days=(5.0, 10.0),
                sizes_nodes=(1, 2, 4),
                max_lead_days=8.0,
                upfront_frac=1.0,
                max_nodes=16,
            ),
            mode("owned", "held"),
        )
    },
    commitments=(),
    tiers=(S3, INFREQUENT),
    transfers=(
        egress("aws", "*", "internet", 0.09),
        egress("aws", "*", "cross-region", 0.02),
        egress("aws", "us-east-1", "us-east-2", 0.01),
        egress("gcp", "*", "internet", 0.12),
        egress("gcp", "*", "cross-region", 0.02),
    ),
    failures={},
    spot={},
    spot_bands=(),
    defaults={k: Default(key=k, value=v, unit="", source="t", as_of="t") for k, v in DEFAULTS.items()},
    models={},
    accelerator_names={"h100sxm": "H100-SXM"},
)
PRETRAIN: dict[str, Any] = {
    "name": "pretrain",
    "kind": "pretrain",
    "model": "llama-3-8b",
    "tokens": "100B tokens",
}
SFT: dict[str, Any] = {"name": "sft", "kind": "sft", "after": ["pretrain"], "tokens": "1B tokens"}
EVALUATE: dict[str, Any] = {
    "name": "evals",
    "kind": "evaluate",
    "after": ["pretrain"],
    "accelerator_hours": "64 GPU-hours",
}


def case(*tasks: dict[str, Any], **keys: Any) -> Case:
    return Case.model_validate({"name": "c", "tasks": [*(tasks or (PRETRAIN,))], **keys})


def segment(pool: str = EAST, billing: str = "on-demand", **changes: Any) -> Segment:
    cloud, region, instance_type = pool.split("/") if "/" in pool else (pool, pool, "DGX H100")
    prices = {(o.pool, o.mode): o.usd_per_node_h for o in CATALOG.offers if o.mode != "capacity-block"}
    values: dict[str, Any] = {
        "task": "pretrain",
        "pool": pool,
        "cloud": cloud,
        "region": region,
        "instance_type": instance_type,
        "accelerator": "H100-SXM",
        "accelerators_per_node": 8,
        "nodes": 4,
        "mode": billing,
        "start_s": 0.0,
        "end_s": 10 * DAY_S,
        "work_frac": 1.0,
        "tokens": 1e11,
        "tokens_per_s": 1e5,
        "goodput_frac": 0.9,
        "mfu_frac": 0.4,
        "peak_memory_bytes": 7e10,
        "layout": Layout(dp=32),
        "global_batch_tokens": 4e6,
        "sequence_length": 8192,
        "checkpoint": checkpoint(),
        "usd_per_node_h": prices.get((pool, billing), 0.0),
    }
    return Segment.model_validate(values | changes)


def checkpoint(size_bytes: float = 0.0) -> CheckpointPlan:
    return CheckpointPlan(
        interval_s=1795.0,
        target=S3.name,
        size_bytes=size_bytes,
        blocking_s=5.0,
        persist_s=60.0,
        restart_s=600.0,
        mtbf_s=1e5,
        lost_work_s=1860.0,
    )


def purchase(**changes: Any) -> Purchase:
    values: dict[str, Any] = {
        "pool": EAST,
        "mode": "capacity-block",
        "nodes": 4,
        "start_s": 0.0,
        "end_s": 10 * DAY_S,
        "usd": 40.0 * 960,
        "upfront_usd": 40.0 * 960,
        "used_node_h": 960.0,
        "bought_node_h": 960.0,
    }
    return Purchase.model_validate(values | changes)


def plan(*segments: Segment, **changes: Any) -> Plan:
    values: dict[str, Any] = {
        "trainplan_version": "0",
        "name": "c",
        "question": "cheapest",
        "status": "optimal",
        "total_usd": 0.0,
        "finish_s": max((s.end_s for s in segments), default=0.0),
        "tokens": 1e11,
        "price_dates": (),
        "segments": segments,
        "tasks": (TaskTime(task="pretrain", start_s=0.0, end_s=1.0),),
        "solver": SolverInfo(
            objective_usd=0,
            bound_usd=0,
            gap_frac=0,
            columns=0,
            rows=0,
            nodes=0,
            seconds=0,
            highs_version="",
            scope="",
        ),
        "case": {},
    }
    return Plan.model_validate(values | changes)


def amounts(lines: list[CostLine], category: str) -> dict[str, float]:
    return {line.item: line.usd for line in lines if line.category == category}


def by_category(lines: list[CostLine]) -> dict[str, float]:
    names = {line.category for line in lines}
    return {name: round(sum(line.usd for line in lines if line.category == name), 2) for name in names}


def test_every_category_of_a_plain_run() -> None:
    lines = account(plan(segment(spare_nodes=1)), case(people={"engineers": 1}), CATALOG)
    assert by_category(lines) == {
        "compute": 5 * 240 * 50.0,
        "storage": round(50 * 2.0 * 2.4 * 0.03, 2),
        "network": 50 * 0.09,
        "logging and monitoring": 50 * 1.0 + 50 * 0.24,
        "metadata database": 24.0,
        "security": 240.0,
        "operations and people": round(10 * 150 * 40 / 7, 2) + 480.0,
    }


def test_spot_is_paid_while_it_is_up_and_a_discount_counts() -> None:
    asked = case(resources={"discounts": {"aws": "25%"}})
    lines = account(plan(segment(billing="spot", paid_frac=0.8)), asked, CATALOG)
    (line,) = [line for line in lines if line.category == "compute"]
    assert (line.quantity, line.unit_usd, line.usd) == (4 * 240 * 0.8, 15.0, 11_520.0)
    assert not line.fixed


def test_an_offer_that_is_gone_leaves_the_price_of_the_plan() -> None:
    lines = account(plan(segment(WEST, "spot", usd_per_node_h=7.0)), case(), CATALOG)
    assert by_category(lines)["compute"] == 4 * 240 * 7.0


def test_a_commitment_is_split_into_what_is_used_and_what_is_not() -> None:
    tasks = (PRETRAIN, SFT)
    segments = (
        segment(billing="capacity-block", start_s=0.0, end_s=6 * DAY_S),
        segment(billing="capacity-block", task="sft", nodes=2, start_s=6 * DAY_S, end_s=9 * DAY_S),
    )
    lines = account(plan(*segments, purchases=(purchase(),)), case(*tasks), CATALOG)
    used = {line.task: line for line in lines if line.category == "compute"}
    assert used["pretrain"].usd == 4 * 144 * 40.0
    assert used["sft"].usd == 2 * 72 * 40.0
    assert all(line.fixed for line in used.values())
    assert by_category(lines)["unused commitments"] == 40.0 * (960 - 4 * 144 - 2 * 72)
    assert sum(by_category(lines)[name] for name in ("compute", "unused commitments")) == 40.0 * 960


def test_use_of_overlapping_purchases_is_shared_by_their_nodes() -> None:
    segments = [segment(billing="capacity-block", nodes=6, end_s=4 * DAY_S)]
    buys = [purchase(nodes=2, count=2, end_s=2 * DAY_S), purchase(nodes=4, end_s=4 * DAY_S)]
    used, uncovered = commitment_use(segments, buys)
    assert used[0]["pretrain"] == pytest.approx(6 * 48 * 4 / 8)
    assert used[1]["pretrain"] == pytest.approx(6 * 48 * 4 / 8 + 4 * 48)
    assert uncovered == pytest.approx(2 * 48)


def test_owned_nodes_cost_electricity_and_their_internal_price() -> None:
    cluster = {"name": "dc1", "accelerator": "H100-SXM", "nodes": "4 nodes", "node_price": "3 USD/hour"}
    lines = account(plan(segment("dc1", "owned")), case(resources={"owned": [cluster]}), CATALOG)
    found = by_category(lines)
    assert found["compute"] == 960 * 3.0
    assert found["power and cooling"] == round(960 * 10.0 * 0.8 * 1.5 * 0.1, 2)
    assert "network" not in found


def test_nodes_that_are_already_owned_show_up_at_nothing() -> None:
    cluster = {"name": "dc1", "accelerator": "H100-SXM", "nodes": "4 nodes"}
    lines = account(plan(segment("dc1", "owned")), case(resources={"owned": [cluster]}), CATALOG)
    (line,) = [line for line in lines if line.category == "compute"]
    assert (line.quantity, line.usd) == (960.0, 0.0)


def test_nodes_of_data_and_evaluation_tasks_are_counted_as_such() -> None:
    data = {"name": "clean", "kind": "prepare-data", "accelerator_hours": "64 GPU-hours", "cost": "7k USD"}
    segments = (segment(), segment(task="clean", end_s=DAY_S), segment(task="evals", end_s=DAY_S))
    lines = account(
        plan(*segments), case(PRETRAIN, data, EVALUATE, overheads={"experiments": "10%"}), CATALOG
    )
    found = by_category(lines)
    assert found["data preparation"] == 4 * 24 * 50.0 + 7000.0
    assert found["evaluation"] == 4 * 24 * 50.0
    assert found["experiments and retries"] == 0.1 * 4 * 240 * 50.0


def test_experiments_follow_what_is_used_of_a_commitment() -> None:
    segments = (segment(billing="capacity-block", end_s=5 * DAY_S),)
    lines = account(plan(*segments, purchases=(purchase(),)), case(overheads={"experiments": "10%"}), CATALOG)
    assert by_category(lines)["experiments and retries"] == 0.1 * 4 * 120 * 40.0


def test_bought_data_is_paid_once_a_round() -> None:
    lines = account(plan(segment()), case(PRETRAIN | {"cost": "500 USD", "rounds": 3}), CATALOG)
    assert by_category(lines)["data preparation"] == 1500.0


def test_delay_and_migration() -> None:
    overheads = {"delay": "1k USD/day", "migration": "20k USD", "known_clouds": ["aws"]}
    segments = (segment(), segment(GCP, start_s=10 * DAY_S, end_s=12 * DAY_S))
    found = by_category(account(plan(*segments), case(deadline="9 days", overheads=overheads), CATALOG))
    assert (found["delay"], found["migration"]) == (3000.0, 20_000.0)


def test_cpu_nodes_run_until_the_end() -> None:
    lines = account(plan(segment()), case(overheads={"cpu_nodes": "2 nodes"}), CATALOG)
    assert by_category(lines)["cpu nodes"] == 2 * 0.5 * 240


def test_placements_are_priced_from_the_catalogue() -> None:
    places = (
        Placement(
            task="pretrain",
            pool=EAST,
            what="dataset",
            tier=INFREQUENT.name,
            size_bytes=2e12,
            held_s=10 * DAY_S,
            usd=0,
        ),
        Placement(
            task="pretrain",
            pool=EAST,
            what="checkpoints",
            tier=S3.name,
            size_bytes=4e12,
            held_s=10 * DAY_S,
            usd=0,
        ),
        Placement(
            task="pretrain", pool=EAST, what="logs", tier=S3.name, size_bytes=9e15, held_s=DAY_S, usd=0
        ),
    )
    data = PRETRAIN | {"dataset": {"size": "2 TB", "format_factor": 1.5}, "rounds": 2}
    lines = account(plan(segment(), placements=places), case(data), CATALOG)
    found = amounts(lines, "storage")
    month = 240 / 730
    assert found["dataset on aws/S3/IA"] == pytest.approx(2000 * 0.0146 * month, abs=0.01)
    assert found["dataset on aws/S3/IA: rest of the minimum duration"] == pytest.approx(
        2000 * 0.0146 * 480 / 730, abs=0.01
    )
    assert found["dataset on aws/S3/IA: retrieval"] == 60.0
    assert found["dataset on aws/S3/IA: requests"] == pytest.approx(0.01)
    assert found["checkpoints on aws/S3/Standard"] == pytest.approx(4000 * 0.0365 * month, abs=0.01)
    assert not any(item.startswith("logs on") for item in found)


def test_saves_pay_their_requests() -> None:
    lines = account(plan(segment(checkpoint=checkpoint(1e12))), case(), CATALOG)
    (line,) = [line for line in lines if line.item.startswith("checkpoints written")]
    assert (line.quantity, line.unit) == (480.0, "save")
    assert line.usd == round(480 * 1000 * 0.05 / 1e4, 2)


def test_traffic_of_a_run_that_moves() -> None:
    tasks = (PRETRAIN | {"dataset": {"size": "2 TB", "at": "aws/us-east-1"}}, SFT)
    full = checkpoint(1.4e12)
    segments = (
        segment(work_frac=0.5, checkpoint=full),
        segment(WEST, work_frac=0.5, checkpoint=full, start_s=10 * DAY_S, end_s=12 * DAY_S),
        segment(GCP, task="sft", checkpoint=checkpoint(), start_s=12 * DAY_S, end_s=13 * DAY_S),
    )
    found = amounts(account(plan(*segments), case(*tasks), CATALOG), "network")
    moves = {item: usd for item, usd in found.items() if not item.startswith("log traffic")}
    assert moves == {
        "dataset from aws/us-east-1 to aws/us-west-2": 40.0,
        "checkpoint from aws/us-east-1 to aws/us-west-2": 28.0,
        "weights of pretrain from aws/us-west-2 to gcp/us-central1": 18.0,
    }


def test_two_pools_at_once_move_nothing() -> None:
    segments = (segment(checkpoint=checkpoint(1e12)), segment(WEST, checkpoint=checkpoint(1e12)))
    found = amounts(account(plan(*segments), case(), CATALOG), "network")
    assert all(item.startswith("log traffic") for item in found)


@pytest.mark.parametrize(("every", "copies"), [({"keep_every": "12 hours"}, 20), ({}, 10)])
def test_second_region_copies_pay_traffic_and_requests(every: dict[str, str], copies: int) -> None:
    asked = case(checkpoints={"copy_to_second_region": True, **every})
    place = Placement(
        task="pretrain",
        pool=EAST,
        what="second-region copy",
        tier=S3.name,
        size_bytes=3e12,
        held_s=10 * DAY_S,
        usd=0,
    )
    lines = account(plan(segment(checkpoint=checkpoint(1e12)), placements=(place,)), asked, CATALOG)
    assert amounts(lines, "network")[f"second-region copies of {EAST}"] == copies * 10.0
    requests = amounts(lines, "storage")[f"copies written to the second region to {S3.name}: requests"]
    assert requests == round(copies * 1000 * 0.05 / 1e4, 2)


def test_every_line_is_its_quantity_times_its_price_and_the_total_their_sum() -> None:
    full = checkpoint(1.37e11)
    tasks = (PRETRAIN | {"dataset": {"size": "1.23 TB", "at": "gcp/us-central1"}}, SFT)
    segments = (
        segment(billing="spot", paid_frac=0.77, checkpoint=full, end_s=7.3 * DAY_S),
        segment(WEST, task="sft", nodes=3, start_s=7.3 * DAY_S, end_s=9.9 * DAY_S),
    )
    asked = case(*tasks, overheads={"experiments": "13%"}, people={"engineers": 1.5})
    lines = account(plan(*segments), asked, CATALOG)
    assert len(lines) > 15
    for line in lines:
        assert abs(line.quantity * line.unit_usd - line.usd) <= 0.005 + 1e-9
    assert total_usd(lines) == round(math.fsum(line.usd for line in lines), 2)
    order = [category.name for category in costs.CATEGORIES]
    assert [order.index(line.category) for line in lines] == sorted(order.index(x.category) for x in lines)


def test_unit_rates_times_quantities_give_the_same_total() -> None:
    """What the optimization charges by coefficients is what the bill says, to a cent a line."""
    asked = case(
        PRETRAIN | {"dataset": {"size": "2 TB", "at": "aws/us-west-2"}},
        overheads={"experiments": "10%"},
        checkpoints={"keep_last": 3, "keep_every": "1 day", "copy_to_second_region": True},
        people={"engineers": 2},
    )
    full, run = checkpoint(1e12), 10 * DAY_S
    size, keep_s = full.size_bytes, costs.milestone_keep_s(asked, CATALOG)
    milestones = run * costs.milestones_per_s(asked)
    places = (
        ("dataset", S3, 2e12, run),
        ("checkpoints", S3, 4 * size, run),
        ("milestones", INFREQUENT, milestones * size, keep_s),
        ("second-region copy", S3, 3 * size, run),
    )
    placements = tuple(
        Placement.model_validate(
            {
                "task": "pretrain",
                "pool": EAST,
                "what": w,
                "tier": t.name,
                "size_bytes": b,
                "held_s": h,
                "usd": 0,
            }
        )
        for w, t, b, h in places
    )
    lines = account(plan(segment(checkpoint=full), placements=placements), asked, CATALOG)
    pool, hours = CATALOG.pools()[EAST], 240.0
    saved = storage.save_requests_usd(S3, size, 1e9)
    copied = network.second_region_usd(CATALOG, network.Place("aws", "us-east-1"), size)
    charged = (
        4 * hours * costs.node_usd_per_h(asked, pool, "on-demand") * (1 + costs.experiments_frac(asked))
        + 4 * hours / 24 * costs.observability_usd_per_node_day(asked, CATALOG, rented=True)
        + 10 * costs.programme_usd_per_day(asked, CATALOG)
        + hours * storage.recent_checkpoints_usd_per_h(S3, 4 * size)
        + hours * storage.recent_checkpoints_usd_per_h(S3, 3 * size)
        + hours * 3600 / 1800 * saved
        + run * costs.copies_per_s(asked) * (saved + copied)
        + milestones * storage.storage_usd(INFREQUENT, size, keep_s, object_bytes=1e9)
        + storage.storage_usd(S3, 2e12, run, read_bytes=2e12, object_bytes=1e9)
        + network.transfer_usd(CATALOG, "aws", "us-west-2", "aws", "us-east-1", 2e12)
    )
    assert total_usd(lines) == pytest.approx(charged, abs=0.005 * len(lines))


def test_a_task_that_the_case_has_not_is_refused() -> None:
    with pytest.raises(InputError, match="'other'"):
        account(plan(segment(task="other")), case(), CATALOG)


def good_plan() -> Plan:
    segments = (
        segment(end_s=5 * DAY_S),
        segment(billing="capacity-block", start_s=5 * DAY_S, end_s=10 * DAY_S),
    )
    usd = 40.0 * 480
    buy = purchase(start_s=5 * DAY_S, usd=usd, upfront_usd=usd, used_node_h=480.0, bought_node_h=480.0)
    bare = plan(*segments, purchases=(buy,))
    lines = account(bare, case(), CATALOG)
    return bare.model_copy(update={"cost_lines": tuple(lines), "total_usd": total_usd(lines)})


def test_a_plan_that_agrees_with_its_bill_has_no_problems() -> None:
    assert plan_problems(good_plan(), case(), CATALOG) == []


def _segment_changed(answer: Plan, place: int, **changes: Any) -> Plan:
    segments = list(answer.segments)
    segments[place] = segments[place].model_copy(update=changes)
    return answer.model_copy(update={"segments": tuple(segments)})


def _purchase_changed(answer: Plan, **changes: Any) -> Plan:
    return answer.model_copy(update={"purchases": (answer.purchases[0].model_copy(update=changes),)})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (lambda p: _segment_changed(p, 0, usd_per_node_h=49.0), "the price is 50"),
        (lambda p: _segment_changed(p, 0, mode="spot", pool=GCP), "nobody sells"),
        (lambda p: _segment_changed(p, 1, nodes=5), "are run and not bought"),
        (lambda p: _segment_changed(p, 1, nodes=3), "said to be used"),
        (lambda p: _purchase_changed(p, usd=1.0), "should be 19200.00"),
        (lambda p: _purchase_changed(p, nodes=8), "said to be bought"),
        (lambda p: p.model_copy(update={"purchases": ()}), "nothing is bought"),
        (lambda p: _purchase_changed(p, end_s=11 * DAY_S), "6 days, a length in which it is not sold"),
        (lambda p: _purchase_changed(p, nodes=3), "3 nodes, a size in which it is not sold"),
        (lambda p: _purchase_changed(p, start_s=9 * DAY_S), "9 days ahead, at most 8"),
        (lambda p: _purchase_changed(p, upfront_usd=0.0), "0.00 USD up front, should be 19200.00"),
        (lambda p: _purchase_changed(p, count=5), "20 nodes of capacity-block"),
        (lambda p: p.model_copy(update={"total_usd": p.total_usd + 0.02}), "the total says"),
        (lambda p: _segment_changed(p, 0, checkpoint=checkpoint(1e12)), "of checkpoints are stored"),
        (
            lambda p: p.model_copy(
                update={
                    "cost_lines": (p.cost_lines[0].model_copy(update={"quantity": 1.0}), *p.cost_lines[1:])
                }
            ),
            "is not 24000.00",
        ),
    ],
)
def test_a_contradiction_is_found(wrong: Any, message: str) -> None:
    assert any(message in problem for problem in plan_problems(wrong(good_plan()), case(), CATALOG))


def test_what_runs_until_the_end_of_nodes_that_are_taken_back_before_it_is_found() -> None:
    modes = CATALOG.modes | {
        "capacity-block": mode("capacity-block", "committed", unusable_tail_s=1800.0, upfront_frac=1.0)
    }
    (problem,) = plan_problems(good_plan(), case(), replace(CATALOG, modes=modes))
    assert problem == f"2 node-hours on capacity-block {EAST} are run and not bought"


def test_purchases_of_one_pool_are_told_apart_on_the_bill_and_paid_each_in_its_time() -> None:
    first = purchase(end_s=5 * DAY_S, usd=40.0 * 480, upfront_usd=40.0 * 480, bought_node_h=480.0)
    second = first.model_copy(update={"start_s": 20 * DAY_S, "end_s": 25 * DAY_S})
    runs = [segment(billing="capacity-block", start_s=b.start_s, end_s=b.end_s) for b in (first, second)]
    bare = plan(*runs, purchases=(first, second))
    lines = [line for line in account(bare, case(), CATALOG) if line.category == "compute"]
    told = [line.item.split(" nodes ")[1] for line in lines]
    assert told == ["from day 0 to 5", "from day 20 to 25"]
    days = [start / DAY_S for line in lines for start, _, _ in line_spans(bare, line)]
    assert days == [0.0, 20.0]


def test_dataset_reads_follow_the_share_of_the_work() -> None:
    asked = case(PRETRAIN | {"dataset": {"size": "2 TB"}, "rounds": 2})
    answer = plan(segment(work_frac=0.25), segment(WEST, work_frac=0.75))
    read = [accounting.dataset_read_bytes(answer, asked.tasks[0], pool) for pool in (EAST, WEST)]
    assert read == [1e12, 3e12]


def test_a_dataset_is_read_by_all_pools_of_its_region() -> None:
    asked = case(PRETRAIN | {"dataset": {"size": "2 TB"}})
    other = EAST.replace("p5", "p4d")
    answer = plan(
        segment(work_frac=0.25),
        segment(other, usd_per_node_h=1.0, work_frac=0.5),
        segment(WEST, work_frac=0.25),
    )
    assert accounting.dataset_read_bytes(answer, asked.tasks[0], EAST) == 1.5e12


def test_a_placement_is_charged_as_its_lines_say() -> None:
    asked = case(PRETRAIN | {"dataset": {"size": "2 TB"}})
    places = tuple(
        Placement.model_validate(
            {
                "task": "pretrain",
                "pool": EAST,
                "what": w,
                "tier": t.name,
                "size_bytes": 2e12,
                "held_s": DAY_S,
                "usd": 0,
            }
        )
        for w, t in (("dataset", INFREQUENT), ("checkpoints", S3), ("logs", S3))
    )
    answer = plan(segment(), placements=places)
    found = amounts(account(answer, asked, CATALOG), "storage")
    for place in places:
        lines = sum(usd for item, usd in found.items() if item.startswith(f"{place.what} on"))
        usd = accounting.placement_charge(answer, asked, CATALOG, place).usd
        assert usd == pytest.approx(lines, abs=0.021)
