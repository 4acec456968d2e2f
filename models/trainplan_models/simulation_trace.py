"""The spot segments of a plan replayed on recorded capacity, under its rule and under two known policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from trainplan_models.base import InputError, Problem, Record
from trainplan_models.plan import Plan, Segment
from trainplan_models.simulation_plan import Step, steps_of
from trainplan_models.simulation_replay import Job, offline_bound_usd, on_demand_usd, replay
from trainplan_models.simulation_statistics import quantiles
from trainplan_models.simulation_world import world_of
from trainplan_models.spot_policy import FallbackRule, Greedy, Policy, SpotOnly, UniformProgress
from trainplan_models.traces import Trace, Windows, windows

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog

NO_DEADLINE_FACTOR = 3.0
"""A job without a deadline is replayed for this many times its work."""


class PolicyResult(Record):
    """What a policy makes of a job."""

    policy: str
    missed_count: int
    cost_mean_usd: float
    saving_frac: float
    """Against on-demand alone."""
    preemptions_mean_count: float


class TraceReplay(Record):
    """One spot segment of a plan on recorded capacity."""

    task: str
    pool: str
    traces: tuple[str, ...]
    nodes: int
    gang_nodes: int
    """Nodes that had to be there at once in the recording, which may have fewer than the plan."""
    runs_count: int
    """Start times replayed."""
    work_s: float
    """Time the work takes on nodes that are not taken away."""
    deadline_s: float
    """Time from the start of the segment until it has to end; earlier where the recording is short."""
    on_demand_usd: float
    """Cost on on-demand alone."""
    finish_quantiles_s: dict[str, float]
    """Of the runs that ended in time, since the start of the segment."""
    policies: tuple[PolicyResult, ...]
    """The plan's rule first; the bound, which knows the future, last."""
    rule: str


def replay_plan(
    plan: Plan, case: Case, catalog: Catalog, zones: Sequence[Trace], starts: int = 100
) -> tuple[TraceReplay, ...]:
    """Replay every spot segment from evenly spaced start times.

    Args:
        plan: with segments on spot.
        case: deadline and order of tasks.
        catalog: billing modes and prices.
        zones: recordings of one zone or of several between which the job may move.
        starts: start times wanted.

    Raises:
        InputError: the plan has no spot segment, or a recording is too short for one.
    """
    steps = steps_of(plan, case, catalog, world_of(plan, case, catalog))
    found = [
        _replay(step, _moving(step.segment, step.moving), step.rule, catalog, zones, starts)
        for step in steps
        if step.segment is not None and step.moving is not None and step.rule is not None
    ]
    if not found:
        raise InputError(
            Problem("the plan has no segment on spot, so there is nothing to replay", key="PLAN")
        )
    return tuple(found)


def _moving(lead: Segment, moving: Segment) -> Segment:
    """The nodes on spot with the work that stands still without them; those that wait for them are not counted."""
    work = {name: getattr(lead, name) for name in ("tokens", "tokens_per_s", "goodput_frac", "checkpoint")}
    return lead if moving is lead else moving.model_copy(update=work)


def _replay(
    step: Step,
    segment: Segment,
    rule: FallbackRule,
    catalog: Catalog,
    zones: Sequence[Trace],
    starts: int,
) -> TraceReplay:
    gang = min(segment.nodes, *(zone.most_nodes for zone in zones))
    if gang < 1:
        raise InputError(Problem("no node was ever there in a recording", key="--trace"))
    job = _within(_job(step, segment, rule, catalog), rule, min(zone.length_s for zone in zones))
    stretch = windows(zones, gang, job.deadline_s, starts)
    if step.fallback_usd_per_node_h is None:
        stretch = replace(stretch, usd_per_node_h=None)
    base_usd = on_demand_usd(job)
    rows, finish = [], np.zeros(0)
    for name, policy in _policies(rule, step.fallback_usd_per_node_h is not None):
        result = replay(policy, job, stretch)
        rows.append(
            PolicyResult(
                policy=name,
                missed_count=int(result.missed.sum()),
                cost_mean_usd=float(result.usd.mean()),
                saving_frac=1.0 - float(result.usd.mean()) / base_usd,
                preemptions_mean_count=float(result.losses.mean()),
            )
        )
        if not rows[1:]:
            finish = result.finish_s[~result.missed]
    rows.append(_bound(job, stretch, base_usd))
    weight = np.full(finish.size, 1.0 / max(finish.size, 1))
    return TraceReplay(
        task=segment.task,
        pool=segment.pool,
        traces=tuple(zone.name for zone in zones),
        nodes=segment.nodes,
        gang_nodes=gang,
        runs_count=stretch.runs,
        work_s=job.work_s,
        deadline_s=job.deadline_s,
        on_demand_usd=base_usd,
        finish_quantiles_s=quantiles(finish, weight) if finish.size else {},
        policies=tuple(rows),
        rule=rule.sentence(),
    )


def _within(job: Job, rule: FallbackRule, length_s: float) -> Job:
    """The job with a deadline that a recording can hold several times; an earlier one is the harder test."""
    if job.deadline_s <= length_s / 2.0:
        return job
    least_s = 1.25 * (job.work_s + rule.guard_s)
    return replace(job, deadline_s=min(job.deadline_s, max(least_s, length_s / 2.0)))


def _bound(job: Job, stretch: Windows, base_usd: float) -> PolicyResult:
    usd = float(offline_bound_usd(job, stretch).mean())
    return PolicyResult(
        policy="bound (knows the future, restarts for free)",
        missed_count=0,
        cost_mean_usd=usd,
        saving_frac=1.0 - usd / base_usd,
        preemptions_mean_count=0.0,
    )


def _policies(rule: FallbackRule, way_out: bool) -> list[tuple[str, Policy]]:
    if not way_out:
        return [("spot alone", SpotOnly())]
    # The known policies get the same room for a restart, or they would be late where the rule is not.
    return [
        ("the plan's rule", rule),
        ("greedy", Greedy(rule.restart_s, rule.guard_s)),
        ("uniform progress", UniformProgress(rule.restart_s, rule.guard_s)),
    ]


def _job(step: Step, segment: Segment, rule: FallbackRule, catalog: Catalog) -> Job:
    """The work of a segment with its saves and failures, which spot's losses come on top of."""
    pace = min(1.0, segment.goodput_frac / max(segment.paid_frac, 1e-6))
    work_s = (step.planned_s - segment.setup_s) * segment.paid_frac * pace
    if segment.tokens > 0.0 and segment.tokens_per_s > 0.0:
        work_s = segment.tokens / segment.tokens_per_s
    work_s = max(work_s, 1.0) / pace
    deadline_s = work_s * NO_DEADLINE_FACTOR
    if rule.finish_by_s is not None:
        deadline_s = rule.finish_by_s - step.planned_start_s - segment.setup_s
    notice_s = catalog.modes[segment.mode].notice_s or 0.0
    saved = segment.checkpoint
    nodes = segment.nodes + segment.spare_nodes
    # Without on-demand the same nodes, never taken away, are what spot is held against.
    on_demand = step.fallback_usd_per_node_h or segment.usd_per_node_h * (1.0 + 1e-9)
    return Job(
        work_s=work_s,
        deadline_s=max(deadline_s, work_s + rule.guard_s),
        restart_s=rule.restart_s,
        spot_usd_per_h=segment.usd_per_node_h * nodes,
        on_demand_usd_per_h=on_demand * nodes,
        nodes=nodes,
        checkpoint_s=0.0 if notice_s >= saved.persist_s else saved.interval_s,
    )
