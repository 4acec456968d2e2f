from __future__ import annotations

import heapq
import json
import sys
from dataclasses import dataclass, replace
from math import exp, expm1
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from numpy.random import Generator, default_rng
from typer.testing import CliRunner

from trainplan.cli.simulate import simulate as command
from trainplan.scenarios import for_plan
from trainplan_models import catalog
from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import FailureProfile
from trainplan_models.plan import (
    CheckpointPlan,
    CostLine,
    Layout,
    Plan,
    Purchase,
    Segment,
    SolverInfo,
    TaskTime,
)
from trainplan_models.simulation import sample, simulate
from trainplan_models.simulation_cost import Usage, cost_usd
from trainplan_models.simulation_events import Hazards, Saving, work_through
from trainplan_models.simulation_plan import steps_of, with_rules
from trainplan_models.simulation_replay import Job, replay
from trainplan_models.simulation_spot import Fallback, Gang, work_on_spot
from trainplan_models.simulation_statistics import explained, quantile, wilson_low
from trainplan_models.simulation_trace import replay_plan
from trainplan_models.simulation_world import Scenarios, certain, world_of
from trainplan_models.spot_policy import FallbackRule
from trainplan_models.traces import Trace, Windows

DAY_S, HOUR_S = 86400.0, 3600.0
POOL = ("aws", "us-east-1", "p5.48xlarge")
CATALOG = catalog.builtin()


def hazards(count: int, mtbf_s: float, **changes: Any) -> Hazards:
    """Failures by nodes alone, recovered from in a fixed time, unless changed."""
    ones, zeros = np.ones(count), np.zeros(count)
    values: dict[str, Any] = {
        "node_per_s": ones / mtbf_s,
        "soft_per_s": zeros,
        "hang_frac": 0.0,
        "hang_s": zeros,
        "detect_s": 300.0,
        "swap_s": 0.0,
        "requeue_s": 0.0,
        "resume_s": 0.0,
        "spares": 0,
        "repair_s": 0.0,
        "recovery_factor": ones,
        "recovery_spread_factor": 0.0,
    }
    values |= changes
    return Hazards(**values)


# Plans made by hand


def checkpoint(**changes: float | str) -> CheckpointPlan:
    values: dict[str, Any] = {
        "interval_s": 1800.0,
        "target": "aws/S3/standard",
        "size_bytes": 1e11,
        "blocking_s": 5.0,
        "persist_s": 65.0,
        "restart_s": 900.0,
        "mtbf_s": 5 * DAY_S,
        "lost_work_s": 1865.0,
    }
    return CheckpointPlan.model_validate(values | changes)


def segment(
    task: str,
    mode: str,
    start_s: float,
    end_s: float,
    work_frac: float = 1.0,
    nodes: int = 8,
    saved: CheckpointPlan | None = None,
    **changes: Any,
) -> Segment:
    """A segment of a job that does 1e6 tokens a second when nothing happens."""
    cloud, region, instance_type = POOL
    goodput = 0.97
    values: dict[str, Any] = {
        "task": task,
        "pool": "/".join(POOL),
        "cloud": cloud,
        "region": region,
        "instance_type": instance_type,
        "accelerator": "H100-SXM",
        "accelerators_per_node": 8,
        "nodes": nodes,
        "mode": mode,
        "start_s": start_s,
        "end_s": end_s,
        "work_frac": work_frac,
        "tokens": (end_s - start_s) * 1e6 * goodput,
        "tokens_per_s": 1e6,
        "goodput_frac": goodput,
        "mfu_frac": 0.4,
        "peak_memory_bytes": 6e10,
        "layout": Layout(dp=nodes * 8),
        "global_batch_tokens": 4e6,
        "sequence_length": 8192,
        "checkpoint": saved or checkpoint(),
        "usd_per_node_h": 0.0 if mode == "capacity-block" else 20.0 if mode == "spot" else 55.0,
    }
    return Segment.model_validate(values | changes)


def plan_of(
    segments: list[Segment],
    purchases: tuple[Purchase, ...] = (),
    lines: tuple[CostLine, ...] = (),
) -> Plan:
    names = list(dict.fromkeys(s.task for s in segments))
    times = tuple(
        TaskTime(
            task=name,
            start_s=min(s.start_s for s in segments if s.task == name),
            end_s=max(s.end_s for s in segments if s.task == name),
        )
        for name in names
    )
    hourly = tuple(
        CostLine(
            category="compute",
            task=s.task,
            item=f"{s.mode} {s.pool}",
            quantity=s.nodes * (s.end_s - s.start_s) * s.paid_frac / HOUR_S,
            unit="node-hour",
            unit_usd=s.usd_per_node_h,
            usd=s.nodes * (s.end_s - s.start_s) * s.paid_frac / HOUR_S * s.usd_per_node_h,
            fixed=False,
        )
        for s in segments
        if s.usd_per_node_h > 0.0
    )
    total = sum(line.usd for line in (*hourly, *lines))
    return Plan(
        trainplan_version="0",
        name="by-hand",
        question="cheapest",
        status="optimal",
        total_usd=total,
        finish_s=max(time.end_s for time in times),
        tokens=sum(s.tokens for s in segments),
        price_dates=("2025-01",),
        segments=tuple(segments),
        tasks=times,
        purchases=purchases,
        cost_lines=(*hourly, *lines),
        solver=SolverInfo(
            objective_usd=total,
            bound_usd=total,
            gap_frac=0.0,
            columns=1,
            rows=1,
            nodes=1,
            seconds=0.0,
            highs_version="1",
            scope="by hand",
        ),
        case={},
    )


def case_of(*tasks: dict[str, Any], **changes: Any) -> Case:
    rows = tasks or ({"name": "pretrain"},)
    kind = {"kind": "pretrain", "model": "llama-3-8b", "tokens": "1T tokens"}
    return Case.model_validate({"name": "by-hand", "tasks": [kind | row for row in rows], **changes})


# The event engine


@pytest.mark.parametrize(
    ("mtbf_s", "blocking_s", "restart_s", "interval_s", "days"),
    [
        (11135.0, 20.0, 300.0, 654.0, 30.0),
        (28440.0, 60.0, 300.0, 1808.0, 60.0),
        (810.0, 2.0, 60.0, 56.0, 2.0),
        (6480.0, 60.0, 300.0, 843.0, 10.0),
    ],
)
def test_mean_time_is_that_of_dalys_complete_model(
    mtbf_s: float, blocking_s: float, restart_s: float, interval_s: float, days: float
) -> None:
    cycles = int(days * DAY_S / interval_s)
    count = 4000
    found = work_through(
        np.full(count, cycles * interval_s),
        Saving(interval_s, blocking_s, blocking_s),
        hazards(count, mtbf_s, detect_s=restart_s),
        default_rng(3),
    )
    daly_s = cycles * mtbf_s * exp(restart_s / mtbf_s) * expm1((interval_s + blocking_s) / mtbf_s)
    error_s = float(found.wall_s.std()) / count**0.5
    assert abs(float(found.wall_s.mean()) - daly_s) < 4.0 * error_s


@dataclass
class SlowRun:
    """One job, one event after the other, with a shop that repairs nodes."""

    saving: Saving
    node_per_s: float
    soft_per_s: float
    hang_frac: float
    hang_s: float
    spares: int
    repair_s: float
    rng: Generator
    detect_s: float = 300.0
    swap_s: float = 60.0
    requeue_s: float = 600.0
    resume_s: float = 240.0

    def recovery_s(self, now_s: float, shop: list[float]) -> tuple[float, bool]:
        while shop and shop[0] <= now_s:
            heapq.heappop(shop)
        node = self.rng.random() * (self.node_per_s + self.soft_per_s) < self.node_per_s
        swap = self.spares > 0
        length_s = 0.0
        if node:
            swap = len(shop) < self.spares
            heapq.heappush(shop, now_s + self.repair_s)
        elif self.rng.random() < self.hang_frac:
            length_s = self.hang_s
        length_s += self.detect_s + (self.swap_s if swap else self.requeue_s) + self.resume_s
        next_s = self.rng.exponential(1.0 / (self.node_per_s + self.soft_per_s))
        return (next_s, True) if next_s < length_s else (length_s, False)

    def run(self, work_s: float) -> tuple[float, float, int]:
        """Wall time, lost work and failures of the job."""
        now_s = lost_s = 0.0
        failures, saved_s = 0, 0.0
        shop: list[float] = []
        rate = self.node_per_s + self.soft_per_s
        durable: list[tuple[float, float]] = [(0.0, 0.0)]
        while True:
            start_s, fail_s = now_s, now_s + self.rng.exponential(1.0 / rate)
            done_s = durable[-1][1]
            at_s = start_s
            while True:
                piece_s = min(self.saving.interval_s, work_s - done_s)
                end_s = at_s + piece_s + self.saving.blocking_s
                if fail_s < end_s:
                    break
                at_s, done_s = end_s, done_s + piece_s
                if done_s >= work_s - 1e-9:
                    return at_s, lost_s, failures
                late_s = self.saving.persist_s - self.saving.blocking_s
                durable.append((at_s + late_s, done_s))
            failures += 1
            reached_s = done_s + min(fail_s - at_s, self.saving.interval_s)
            saved_s = max(work for since, work in durable if since <= fail_s)
            durable = [(0.0, saved_s)]
            lost_s += reached_s - saved_s
            now_s, again = fail_s, True
            while again:
                length_s, again = self.recovery_s(now_s, shop)
                now_s += length_s
                failures += again


@pytest.mark.parametrize(
    ("spares", "persist_s", "soft_share"), [(0, 20.0, 0.0), (2, 200.0, 0.3), (6, 400.0, 0.1)]
)
def test_the_fast_events_are_those_of_a_plain_loop(spares: int, persist_s: float, soft_share: float) -> None:
    saving, rate = Saving(900.0, 20.0, persist_s), 1.0 / 7200.0
    node, soft = rate * (1 - soft_share), rate * soft_share
    work_s, count, repeats = 5.0 * DAY_S, 6000, 400
    fast = work_through(
        np.full(count, work_s),
        saving,
        hazards(
            count,
            1.0,
            node_per_s=np.full(count, node),
            soft_per_s=np.full(count, soft),
            hang_frac=0.4,
            hang_s=np.full(count, 3600.0),
            swap_s=60.0,
            requeue_s=600.0,
            resume_s=240.0,
            spares=spares,
            repair_s=4 * HOUR_S,
        ),
        default_rng(5),
    )
    rng = default_rng(6)
    slow = np.array(
        [
            SlowRun(saving, node, soft, 0.4, 3600.0, spares, 4 * HOUR_S, rng).run(work_s)
            for _ in range(repeats)
        ]
    )
    for name, values, place in (
        ("wall", fast.wall_s, 0),
        ("lost", fast.lost_work_s, 1),
        ("failures", fast.failures, 2),
    ):
        error = (slow[:, place].var() / repeats + values.var() / count) ** 0.5
        assert abs(values.mean() - slow[:, place].mean()) < 4.0 * error, name
    assert np.quantile(fast.wall_s, 0.9) == pytest.approx(np.quantile(slow[:, 0], 0.9), rel=0.01)


def test_a_run_of_54_days_on_2048_nodes_keeps_its_memory_small() -> None:
    count = 10_000
    found = work_through(
        np.full(count, 49 * DAY_S), Saving(654.0, 20.0, 60.0), hazards(count, 11135.0), default_rng(1)
    )
    assert found.failures.mean() == pytest.approx(found.wall_s.mean() / 11135.0, rel=0.005)
    assert np.all(found.wall_s > 49 * DAY_S)


def test_recoveries_slower_than_planned_cost_what_they_take() -> None:
    count = 3000
    work_s = np.full(count, 20 * DAY_S)
    quick = work_through(work_s, Saving(900.0, 5.0, 60.0), hazards(count, 10 * HOUR_S), default_rng(1))
    slow = work_through(
        work_s,
        Saving(900.0, 5.0, 60.0),
        hazards(count, 10 * HOUR_S, recovery_factor=np.full(count, 6.0)),
        default_rng(1),
    )
    each_s = (slow.down_s.mean() / slow.failures.mean()) - (quick.down_s.mean() / quick.failures.mean())
    assert each_s == pytest.approx(1500.0, rel=0.05)


# Spot


def test_spot_events_agree_with_the_replay_of_the_same_process() -> None:
    count, tick_s = 1500, 60.0
    up_s, down_s, work_s, deadline_s = 3 * HOUR_S, 1.5 * HOUR_S, 36 * HOUR_S, 50 * HOUR_S
    rng = default_rng(11)
    rule = FallbackRule.standard(720.0, 0.918, 3.06, cycle_s=up_s + down_s)
    found = work_on_spot(
        np.full(count, work_s),
        Saving(1e9, 0.0, 0.0),
        hazards(count, 1e12),
        Gang(np.full(count, up_s), np.full(count, down_s), 1.0, 1.0, 1.0),
        Fallback(rule, np.full(count, deadline_s), True, np.zeros(count), 1.0),
        rng,
    )
    lengths = rng.exponential(1.0, (80, count)) * np.where(np.arange(80) % 2, down_s, up_s)[:, None]
    ends = np.cumsum(lengths, axis=0)
    ticks = np.arange(int(deadline_s / tick_s)) * tick_s
    up = np.stack(
        [np.searchsorted(ends[:, run], ticks, side="right") % 2 == 0 for run in range(count)], axis=1
    )
    job = Job(work_s, deadline_s, 720.0, 0.918, 3.06)
    ticked = replay(rule, job, Windows(tick_s, up[:, None, :], ~up[:, None, :]))
    assert not ticked.missed.any()
    assert np.all(found.wall_s <= deadline_s + 1.0)
    # The replay starts with a restart, the events with nodes that are set up.
    assert found.spot_s.mean() == pytest.approx(ticked.spot_s.mean() - 720.0, rel=0.03)
    assert found.on_demand_s.mean() == pytest.approx(ticked.on_demand_s.mean(), rel=0.06)
    assert found.losses.mean() == pytest.approx(ticked.losses.mean(), rel=0.06)


def test_without_a_way_out_the_job_waits_for_spot() -> None:
    count = 500
    rule = FallbackRule.standard(600.0, 1.0, 3.0)
    found = work_on_spot(
        np.full(count, 2 * DAY_S),
        Saving(1800.0, 5.0, 60.0),
        hazards(count, 1e12),
        Gang(np.full(count, 4 * HOUR_S), np.full(count, 4 * HOUR_S), 1.0, 1.0, 30.0),
        Fallback(rule, np.full(count, 2.2 * DAY_S), False, np.zeros(count), 1.0),
        default_rng(2),
    )
    assert np.all(found.on_demand_s == 0.0)
    assert found.wall_s.mean() == pytest.approx(found.spot_s.mean() + found.wait_s.mean())
    assert found.wait_s.mean() > DAY_S
    assert found.lost_work_s.mean() > 0.0


def test_a_gang_that_never_comes_back_moves_to_on_demand_in_time() -> None:
    count = 200
    rule = FallbackRule.standard(600.0, 1.0, 3.0)
    found = work_on_spot(
        np.full(count, 2 * DAY_S),
        Saving(600.0, 1.0, 2.0),
        hazards(count, 1e12),
        Gang(np.full(count, HOUR_S), np.full(count, 1e9), 1.0, 1.0, 30.0),
        Fallback(rule, np.full(count, 3 * DAY_S), True, np.zeros(count), 0.99),
        default_rng(2),
    )
    assert np.all(found.wall_s <= 3 * DAY_S)
    assert np.all(found.on_demand_s > DAY_S)


# Whole plans


def test_when_all_goes_as_planned_a_plan_ends_as_planned() -> None:
    saved = checkpoint(interval_s=1800.0, blocking_s=30.0, persist_s=60.0)
    rate = 8 * 5 / 1000 / DAY_S + 0.05 / DAY_S
    cycle_s, restart_s = 1830.0, 900.0
    factor = exp(restart_s * rate) * expm1(cycle_s * rate) / rate / 1800.0
    length_s = 20 * DAY_S
    one = segment("pretrain", "on-demand", 0.0, length_s, saved=saved, goodput_frac=1 / factor)
    one = one.model_copy(update={"tokens": length_s / factor * 1e6})
    plan, case = plan_of([one]), case_of(assumptions={"failure_profile": "standard"})
    found = simulate(plan, case, no_hangs(CATALOG), certain(4000), 1)
    assert found.finish_mean_s == pytest.approx(plan.finish_s, rel=2e-3)
    assert found.cost_mean_usd == pytest.approx(plan.total_usd, rel=2e-3)
    assert found.ettr_mean_frac == pytest.approx(1 / factor, rel=2e-3)


def no_hangs(known: Catalog) -> Catalog:
    """The catalogue with recoveries of 900 s in the mean: 720 s and 180 s to warm up."""
    plain = known.failures["standard"].model_copy(update={"detect_s": 120.0, "requeue_s": 600.0})
    return replace(known, failures={**known.failures, "standard": plain})


def test_the_same_seeds_give_the_same_answer() -> None:
    plan = plan_of([segment("pretrain", "spot", 0.0, 5 * DAY_S, paid_frac=0.9)])
    case = case_of(deadline="8 days")
    one = simulate(plan, case, CATALOG, for_plan(plan, case, CATALOG, 500, 1), 1)
    same = simulate(plan, case, CATALOG, for_plan(plan, case, CATALOG, 500, 1), 1)
    other = simulate(plan, case, CATALOG, for_plan(plan, case, CATALOG, 500, 2), 2)
    assert one == same
    assert one.finish_mean_s != other.finish_mean_s


def test_slower_machines_are_late_in_proportion_and_cost_more() -> None:
    plan = plan_of([segment("pretrain", "on-demand", 0.0, 10 * DAY_S)])
    case = case_of(deadline="11 days", budget="110k USD")
    slow = np.where(np.arange(1000) < 250, 0.5, 1.0)
    draws = replace(certain(1000), throughput_factor={("hopper", "dense"): slow})
    found = sample(plan, case, CATALOG, draws, 1)
    assert np.mean(found.late) == pytest.approx(0.25, abs=0.01)
    assert found.finish_s[:250].mean() / found.finish_s[250:].mean() == pytest.approx(2.0, rel=0.01)
    assert found.cost_usd[:250].mean() / found.cost_usd[250:].mean() == pytest.approx(2.0, rel=0.01)
    summed = simulate(plan, case, CATALOG, draws, 1)
    assert summed.p_in_time == pytest.approx(0.75, abs=0.01)
    assert summed.p_in_budget == pytest.approx(0.75, abs=0.01)
    assert summed.p_both_low < summed.p_both <= min(summed.p_in_time, summed.p_in_budget)
    assert summed.causes[0].name == "throughput"
    assert summed.causes[0].finish_share > 0.95


def test_a_late_task_delays_what_follows_and_no_other() -> None:
    plan = plan_of(
        [
            segment("first", "on-demand", 0.0, 4 * DAY_S),
            segment("second", "on-demand", 4 * DAY_S, 6 * DAY_S),
            segment("beside", "on-demand", 0.0, 5 * DAY_S, nodes=4),
        ]
    )
    case = case_of({"name": "first"}, {"name": "second", "after": ["first"]}, {"name": "beside"})
    late = {("/".join(POOL), "on-demand"): np.full(100, DAY_S)}
    base = sample(plan, case, CATALOG, certain(100), 1)
    held_up = sample(plan, case, CATALOG, replace(certain(100), capacity_delay_s=late), 1)
    moved = {name: held_up.task_end_s[name].mean() - base.task_end_s[name].mean() for name in base.task_end_s}
    assert moved["first"] == pytest.approx(DAY_S, rel=0.02)
    # The nodes of the first task are handed over, so that they are waited for once.
    assert moved["second"] == pytest.approx(DAY_S, rel=0.02)
    assert moved["beside"] == pytest.approx(DAY_S, rel=0.02)


def test_what_a_block_of_days_cannot_hold_runs_on_on_demand() -> None:
    block = Purchase(
        pool="/".join(POOL),
        mode="capacity-block",
        nodes=8,
        start_s=0.0,
        end_s=10 * DAY_S,
        usd=60_000.0,
        upfront_usd=60_000.0,
        used_node_h=1900.0,
        bought_node_h=1920.0,
    )
    bought = CostLine(
        category="compute",
        task="pretrain",
        item="block",
        quantity=1920.0,
        unit="node-hour",
        unit_usd=31.25,
        usd=60_000.0,
        fixed=True,
    )
    plan = plan_of([segment("pretrain", "capacity-block", 0.0, 9.9 * DAY_S)], (block,), (bought,))
    case = case_of(resources={"billing": ["capacity-block", "on-demand"]})
    slow = replace(certain(200), throughput_factor={("hopper", "dense"): np.full(200, 0.8)})
    found = sample(plan, case, CATALOG, slow, 1)
    extra_h = (found.finish_s - (10 * DAY_S - 1800.0)) / HOUR_S
    price = next(
        o.usd_per_node_h for o in CATALOG.offers if o.pool == "/".join(POOL) and o.mode == "on-demand"
    )
    assert np.all(extra_h > 24.0)
    assert found.cost_usd == pytest.approx(60_000.0 + 8 * extra_h * price, rel=1e-6)


def test_work_left_at_the_end_of_owned_nodes_goes_on_in_the_next_segment() -> None:
    own = {"name": "dc1", "accelerator": "H100-SXM", "nodes": "12 nodes"}
    parts = [
        segment(
            "pretrain", "owned", 0.0, 5 * DAY_S, 0.5, nodes=4, pool="dc1", cloud="dc1", usd_per_node_h=0.0
        ),
        segment("pretrain", "owned", 5 * DAY_S, 10 * DAY_S, 0.5, nodes=4, pool="dc1", cloud="dc1"),
    ]
    case = case_of(resources={"owned": [own], "billing": ["on-demand"]})
    slow = replace(certain(200), throughput_factor={("hopper", "dense"): np.full(200, 0.8)})
    found = sample(plan_of(parts), case, CATALOG, slow, 1)
    planned = sample(plan_of(parts), case, CATALOG, certain(200), 1)
    assert found.finish_s.mean() == pytest.approx(planned.finish_s.mean() / 0.8, rel=0.005)


def test_spot_with_a_deadline_behind_it_falls_back_and_is_on_time() -> None:
    plan = plan_of([segment("pretrain", "spot", 0.0, 10 * DAY_S, paid_frac=0.6, goodput_frac=0.58)])
    one = plan.segments[0].model_copy(update={"tokens": 10 * DAY_S * 1e6 * 0.58})
    plan = plan.model_copy(update={"segments": (one,)})
    case = case_of(deadline="10 days", assumptions={"spot_profile": "stress"})
    found = simulate(plan, case, CATALOG, certain(500), 1)
    assert found.p_in_time > 0.99
    assert 0.05 < found.on_demand_share < 0.95
    assert found.preemptions_mean_count > 10.0
    assert "on-demand" in found.fallback[0]
    alone = case_of(
        deadline="10 days", assumptions={"spot_profile": "stress"}, resources={"billing": ["spot"]}
    )
    stuck = simulate(plan, alone, CATALOG, certain(500), 1)
    assert stuck.p_in_time < found.p_in_time
    assert stuck.on_demand_share == 0.0


def test_the_rule_leaves_time_for_what_comes_after() -> None:
    plan = plan_of(
        [
            segment("first", "spot", 0.0, 4 * DAY_S, paid_frac=0.9),
            segment("second", "on-demand", 4 * DAY_S, 6 * DAY_S),
        ]
    )
    case = case_of({"name": "first"}, {"name": "second", "after": ["first"]}, deadline="10 days")
    first = steps_of(plan, case, CATALOG, world_of(plan, case, CATALOG))[0]
    assert first.rule is not None
    assert first.rule.finish_by_s == pytest.approx(10 * DAY_S - 1.15 * 2 * DAY_S)
    told = with_rules(plan, case, CATALOG)
    assert told.segments[0].fallback == first.rule
    assert told.segments[1].fallback is None
    mine = first.rule.model_copy(update={"reserve_s": 1.0})
    changed = told.model_copy(
        update={"segments": (told.segments[0].model_copy(update={"fallback": mine}), told.segments[1])}
    )
    assert steps_of(changed, case, CATALOG, world_of(plan, case, CATALOG))[0].rule == mine


def test_a_due_date_counts_as_a_deadline() -> None:
    plan = plan_of([segment("pretrain", "on-demand", 0.0, 10 * DAY_S)])
    missed = case_of({"name": "pretrain", "due": "9 days"})
    assert simulate(plan, missed, CATALOG, certain(100), 1).p_in_time == 0.0
    assert simulate(plan, case_of({"name": "pretrain"}), CATALOG, certain(100), 1).p_in_time == 1.0


def test_a_job_that_never_ends_is_late_and_has_finite_figures() -> None:
    plan = plan_of([segment("pretrain", "spot", 0.0, 10 * DAY_S, paid_frac=0.9)])
    case = case_of(
        deadline="20 days",
        budget="1M USD",
        resources={"billing": ["spot"]},
        assumptions={"spot_profile": "stress"},
    )
    lost = replace(certain(50), spot_hazard_factor={"/".join(POOL): np.full(50, 1e4)})
    found = simulate(plan, case, CATALOG, lost, 1)
    assert (found.p_in_time, found.p_in_budget, found.p_both) == (0.0, 1.0, 0.0)
    assert found.late_mean_s > 0.0


def test_an_unknown_failure_profile_is_named() -> None:
    plan = plan_of([segment("pretrain", "on-demand", 0.0, DAY_S)])
    with pytest.raises(InputError, match="typo"):
        simulate(plan, case_of(assumptions={"failure_profile": "typo"}), CATALOG, certain(10), 1)


# Money


def line(category: str, unit: str, usd: float, fixed: bool = False, task: str = "pretrain") -> CostLine:
    return CostLine(
        category=category, task=task, item="x", quantity=1.0, unit=unit, unit_usd=usd, usd=usd, fixed=fixed
    )


@pytest.mark.parametrize(
    ("made", "expected_usd"),
    [
        (line("operations and people", "day", 100.0, task=""), 150.0),
        (line("logging and monitoring", "node-day", 100.0), 200.0),
        (line("power and cooling", "node-hour", 100.0), 200.0),
        (line("storage", "GB-month", 100.0), 300.0),
        (line("network", "GB", 100.0), 100.0),
        (line("compute", "node-hour", 100.0, fixed=True), 100.0),
        (line("unused commitments", "node-hour", 100.0, fixed=True, task=""), 100.0),
        (line("delay", "day", 100.0, task=""), 0.0),
        (line("experiments and retries", "USD", 100.0), 100.0 * 2.0 * 1.1),
    ],
)
def test_each_line_grows_with_what_it_is_paid_for(made: CostLine, expected_usd: float) -> None:
    one = segment("pretrain", "on-demand", 0.0, 10 * DAY_S)
    plan = plan_of([one], lines=(made,))
    hours = 8 * 240.0
    nodes_usd = plan.total_usd - made.usd
    usage = Usage(
        finish_s=np.full(1, 15 * DAY_S),
        node_hours={"pretrain": np.full(1, 2.0 * hours)},
        task_hours={"pretrain": np.full(1, 720.0)},
        hourly_usd={"pretrain": np.full(1, 2.0 * nodes_usd)},
        experiments_factor=np.full(1, 1.1),
    )
    committed = made.fixed and made.category == "compute"
    found = float(cost_usd(plan, case_of(deadline="20 days"), usage)[0]) - 2.0 * nodes_usd
    assert found == pytest.approx(100.0 if committed else expected_usd)


def test_delay_is_paid_by_the_day() -> None:
    plan = plan_of([segment("pretrain", "on-demand", 0.0, 10 * DAY_S)])
    case = case_of(deadline="8 days", overheads={"delay": "1000 USD/day"})
    usage = Usage(np.array([7.0, 10.5]) * DAY_S, {}, {}, {}, np.ones(2))
    assert cost_usd(plan, case, usage) == pytest.approx([0.0, 2500.0])


# Statistics


def test_explained_finds_the_cause_and_leaves_chance_alone() -> None:
    rng = default_rng(1)
    a, b, noise = rng.standard_normal((3, 20_000))
    found = explained({"a": [a], "b": [b], "nothing": [rng.standard_normal(20_000)]}, 3 * a + b**2 + noise)
    assert found["a"] == pytest.approx(9 / 12, abs=0.03)
    assert found["b"] == pytest.approx(2 / 12, abs=0.03)
    assert found["nothing"] < 0.01


def test_quantiles_follow_the_weights() -> None:
    values, weight = np.array([3.0, 1.0, 2.0]), np.array([0.2, 0.5, 0.3])
    assert quantile(values, weight, [0.5, 0.51, 0.8, 0.81, 1.0]).tolist() == [1.0, 2.0, 2.0, 3.0, 3.0]


def test_the_lower_bound_is_wilsons() -> None:
    # 95 of 100, one-sided 95%, worked out by hand.
    assert wilson_low(0.95, 100.0) == pytest.approx(0.90084, abs=1e-4)
    assert wilson_low(1.0, 10_000.0) < 1.0


# What was published


def published(
    days: float,
    nodes: int,
    profile: FailureProfile,
    saved: CheckpointPlan,
    spares: int,
    count: int = 4000,
) -> tuple[Plan, Case, Catalog, Scenarios]:
    """A run of so many days of work at full speed."""
    one = segment(
        "pretrain",
        "on-demand",
        0.0,
        days * DAY_S,
        nodes=nodes,
        saved=saved,
        spare_nodes=spares,
        tokens=days * DAY_S * 1e6,
        goodput_frac=1.0,
        setup_s=0.0,
    )
    plan = plan_of([one])
    case = case_of(assumptions={"failure_profile": profile.name})
    known = replace(CATALOG, failures={**CATALOG.failures, profile.name: profile})
    return plan, case, known, for_plan(plan, case, known, count, 7)


def test_llama_3_405b_on_16384_h100() -> None:
    # arXiv 2407.21783: 54 days, 2,048 nodes, 419 unexpected interruptions, more than 90% effective time.
    profile = CATALOG.failures["llama3"]
    saved = checkpoint(interval_s=300.0, blocking_s=3.0, persist_s=63.0, restart_s=620.0)
    plan, case, known, draws = published(0.925 * 54.0, 2048, profile, saved, spares=32)
    draws = replace(draws, throughput_factor={}, capacity_delay_s={}, redone_frac=np.zeros(draws.count))
    found = sample(plan, case, known, draws, 1)
    events = found.failures_count * (54 * DAY_S / found.finish_s)
    assert np.quantile(events, 0.1) < 419 < np.quantile(events, 0.9)
    assert np.quantile(found.ettr_frac, 0.1) < 0.92 < np.quantile(found.ettr_frac, 0.9)
    assert np.median(found.ettr_frac) > 0.9
    middle = sample(plan, case, known, certain(500), 1)
    assert middle.failures_count.mean() == pytest.approx(419, rel=0.06)
    assert middle.finish_s.mean() == pytest.approx(54 * DAY_S, rel=0.02)


@pytest.mark.parametrize(
    ("nodes", "per_1000_node_days", "write_s", "interval_s", "restart_s"),
    [(128, 6.5, 60.0, 3600.0, 300.0), (512, 6.5, 10.0, 1800.0, 300.0), (1024, 2.34, 30.0, 1800.0, 600.0)],
)
def test_effective_time_is_that_of_metas_formula(
    nodes: int, per_1000_node_days: float, write_s: float, interval_s: float, restart_s: float
) -> None:
    # arXiv 2410.21680: E[ETTR] ~ (1 - N r (u0 + dt / 2)) / (1 + w / dt), to first order in the waste.
    rate = nodes * per_1000_node_days / 1000.0 / DAY_S
    meta = (1.0 - rate * (restart_s + interval_s / 2.0)) / (1.0 + write_s / interval_s)
    profile = CATALOG.failures["rsc-1"].model_copy(
        update={
            "name": "meta",
            "failures_per_1000_node_days": per_1000_node_days,
            "soft_failures_per_day": 0.0,
            "detect_s": restart_s,
            "requeue_s": 0.0,
            "spare_swap_s": 0.0,
        }
    )
    saved = checkpoint(interval_s=interval_s, blocking_s=write_s, persist_s=write_s, restart_s=restart_s)
    plan, case, known, _ = published(20.0, nodes, profile, saved, spares=0)
    found = simulate(plan, case, known, certain(1000), 1)
    assert found.ettr_mean_frac == pytest.approx(meta, abs=0.015)


def test_opt_175b_took_56_to_63_days_for_33_days_of_work() -> None:
    # metaseq chronicles: 992 A100 (124 nodes), about two machines a day lost, restarts by hand and with them
    # weeks of divergence; 12 to 18 spare nodes; hourly checkpoints.
    profile = CATALOG.failures["small-team"].model_copy(
        update={"failures_per_1000_node_days": 2.0 / 124 * 1000}
    )
    saved = checkpoint(interval_s=HOUR_S, blocking_s=60.0, persist_s=600.0, restart_s=6600.0)
    plan, case, known, draws = published(33.0, 124, profile, saved, spares=14)
    days = sample(plan, case, known, replace(draws, capacity_delay_s={}), 1).finish_s / DAY_S
    assert np.quantile(days, 0.1) < 56.0
    assert np.quantile(days, 0.9) > 63.0


def test_bloom_took_118_days_for_106_days_of_work() -> None:
    # tr11 chronicles: 366B tokens at 105 s a step of 2048 x 2048 tokens on 384 A100, 4 spare nodes, hangs of 6
    # to 18 h; 118 days 5 h in all (arXiv 2211.05100).
    work_days = 366e9 / 2048**2 * 105.0 / DAY_S
    saved = checkpoint(interval_s=3 * HOUR_S, blocking_s=40.0, persist_s=60.0, restart_s=6600.0)
    plan, case, known, draws = published(work_days, 48, CATALOG.failures["small-team"], saved, spares=4)
    days = sample(plan, case, known, replace(draws, capacity_delay_s={}), 1).finish_s / DAY_S
    assert np.quantile(days, 0.1) < 118.2 < np.quantile(days, 0.9)


# Recorded capacity, and the command


def test_a_plan_is_replayed_on_recorded_capacity() -> None:
    plan = plan_of([segment("pretrain", "spot", 0.0, 2 * DAY_S, paid_frac=0.9)])
    case = case_of(deadline="4 days")
    steps = 20 * 288
    up = (np.arange(steps) // 50) % 3 > 0
    trace = Trace("made-up", 300.0, np.where(up, 8, 3).astype(np.int64))
    (found,) = replay_plan(plan, case, CATALOG, [trace], 20)
    by_name = {row.policy: row for row in found.policies}
    assert found.gang_nodes == 8
    assert found.runs_count == 20
    rule, bound = found.policies[0], found.policies[-1]
    assert rule.missed_count == 0
    assert 0.0 < rule.saving_frac < bound.saving_frac
    assert by_name["greedy"].missed_count == by_name["uniform progress"].missed_count == 0
    with pytest.raises(InputError, match="no segment on spot"):
        replay_plan(plan_of([segment("pretrain", "on-demand", 0.0, DAY_S)]), case, CATALOG, [trace])


def run_command(*words: str) -> dict[str, Any]:
    app = typer.Typer()
    app.command()(command)
    result = CliRunner().invoke(app, list(words), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.stdout)) if "--json" in words else {"text": result.stdout}


def test_the_command_prints_chances_and_replays(tmp_path: Path) -> None:
    plan = plan_of([segment("pretrain", "spot", 0.0, 2 * DAY_S, paid_frac=0.9)])
    case = case_of(deadline="4 days")
    file = tmp_path / "plan.json"
    file.write_text(plan.model_copy(update={"case": case.canonical()}).model_dump_json(), encoding="utf-8")
    found = run_command(str(file), "--scenarios", "300", "--seed", "4", "--json")
    assert found["simulation"]["scenarios_count"] == 300
    assert 0.0 <= found["simulation"]["p_both"] <= 1.0
    assert "in time and in budget" in run_command(str(file), "--scenarios", "300")["text"]
    rows = "".join(f"{300 * step},{8 * ((step // 40) % 3 > 0)}\n" for step in range(4000))
    trace = tmp_path / "trace.csv"
    trace.write_text("timestamp_s,available\n" + rows, encoding="utf-8")
    found = run_command(str(file), "--trace", str(trace), "--starts", "10", "--json")
    assert found["simulation"] is None
    assert found["replays"][0]["policies"][0]["missed_count"] == 0
    assert (
        "Policies on the recordings" in run_command(str(file), "--trace", str(trace), "--starts", "5")["text"]
    )


def test_the_simulation_knows_nothing_of_the_optimization() -> None:
    before = {name for name in sys.modules if name.startswith(("pyomo", "highspy"))}
    simulate(plan_of([segment("pretrain", "on-demand", 0.0, DAY_S)]), case_of(), CATALOG, certain(10), 1)
    assert {name for name in sys.modules if name.startswith(("pyomo", "highspy"))} == before
