"""A plan as steps that can be late: what each waits for, what it needs anew, until when its nodes are there."""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import takewhile
from math import inf
from typing import TYPE_CHECKING

from trainplan_models.at_work import most_nodes_at_once
from trainplan_models.node_prices import price_over_time
from trainplan_models.plan import Plan, Segment
from trainplan_models.simulation_world import World, gang_up_s, world_of
from trainplan_models.spot_policy import FallbackRule

if TYPE_CHECKING:
    from trainplan_models.case import Case, Task
    from trainplan_models.catalog import Catalog

HOUR_S = 3600.0
SOON_S = HOUR_S
"""What the plan lets follow within this time follows at once."""
SAME_S = 1.0
"""Moments this close are the same."""
ON_DEMAND_WAIT_S = 2 * HOUR_S
"""Wait for on-demand nodes that the rule leaves time for."""
LATER_SLOWER_FACTOR = 1.15
"""Room left for what comes after a stretch on spot, which may run slower than planned as well."""


@dataclass(frozen=True, slots=True)
class Step:
    """One segment, or a task that needs no nodes (``segment`` is None)."""

    task: str
    segment: Segment | None
    planned_start_s: float
    planned_end_s: float
    after: tuple[int, ...]
    """Steps that have to end first."""
    not_before_s: float
    """The plan waits until then (a window, a release, a turn)."""
    window_end_s: float
    """Its nodes are gone from then on; inf where they are not."""
    fresh: bool
    """Its nodes have to be got first; else they are taken over from the step before."""
    last: bool
    """Of its task: it runs until all the work is done."""
    rule: FallbackRule | None = None
    fallback_usd_per_node_h: float | None = None
    """Price of on-demand nodes of the same pool; None where they may not be used or are not sold."""
    beside: tuple[Segment, ...] = ()
    """Segments that work for this one, without which it stands still."""
    moving: Segment | None = None
    """Of the segment and those beside it, the one whose nodes may be taken away or end, and be replaced."""

    @property
    def planned_s(self) -> float:
        """Planned length."""
        return self.planned_end_s - self.planned_start_s


Row = tuple[str, Segment | None, float, float]
"""Task, segment, planned start and planned end."""


def steps_of(plan: Plan, case: Case, catalog: Catalog, world: World) -> tuple[Step, ...]:
    """The steps of a plan in an order in which each comes after what it waits for."""
    tasks = {task.name: task for task in case.tasks}
    rows: list[Row] = [(s.task, s, s.start_s, s.end_s) for s in plan.segments if s.leads]
    with_nodes = {s.task for s in plan.segments}
    rows += [(t.task, None, t.start_s, t.end_s) for t in plan.tasks if t.task not in with_nodes]
    # A task of no length comes after what ends when it starts.
    rows.sort(key=lambda row: (row[2], row[3]))
    most = most_nodes_at_once(plan.segments)
    found: list[Step] = []
    for place, (name, segment, start_s, end_s) in enumerate(rows):
        after = _after(rows, place, tasks[name], most)
        release_s = case.seconds_from_start(tasks[name].release) or 0.0
        planned_ready_s = max([release_s, *(rows[i][3] for i in after)])
        not_before_s = start_s if start_s - planned_ready_s > SOON_S else release_s
        beside = () if segment is None else plan.beside(segment)
        windows = [_window(plan, case, catalog, one) for one in (segment, *beside)]
        window_start_s, window_end_s = max(start for start, _ in windows), min(end for _, end in windows)
        later = any(row[0] == name for row in rows[place + 1 :])
        if later and segment is not None and catalog.modes[segment.mode].paid == "held":
            window_end_s = min(window_end_s, end_s)
        found.append(
            Step(
                task=name,
                segment=segment,
                planned_start_s=start_s,
                planned_end_s=end_s,
                after=after,
                not_before_s=max(not_before_s, window_start_s),
                window_end_s=window_end_s,
                fresh=segment is not None and not _takes_over(rows, after, segment),
                last=not later,
                beside=beside,
                moving=_moving(segment, beside, windows, catalog),
            )
        )
    return tuple(_with_rule(found, place, case, catalog, world) for place in range(len(found)))


def _moving(
    segment: Segment | None, beside: tuple[Segment, ...], windows: list[tuple[float, float]], catalog: Catalog
) -> Segment | None:
    every = (segment, *beside)
    preemptible = [one for one in every if one is not None and catalog.modes[one.mode].preemptible]
    ends = [one for one, (_, end_s) in zip(every, windows, strict=True) if end_s < inf]
    return next(iter([*preemptible, *ends]), segment)


def _after(
    rows: list[Row],
    place: int,
    task: Task,
    most: dict[tuple[str, str], int],
) -> tuple[int, ...]:
    """Steps before it: of tasks it follows, of its own task, and those whose nodes it is to use next."""
    name, segment, start_s, _ = rows[place]
    found = []
    for i, (other, held, _, end_s) in enumerate(rows[:place]):
        turn = False
        if (
            segment is not None
            and held is not None
            and (held.pool, held.mode) == (segment.pool, segment.mode)
        ):
            both = held.nodes + held.spare_nodes + segment.nodes + segment.spare_nodes
            turn = end_s <= start_s + 1.0 and both > most[segment.pool, segment.mode]
        if other == name or other in task.after or turn:
            found.append(i)
    return tuple(found)


def _takes_over(rows: list[Row], after: tuple[int, ...], segment: Segment) -> bool:
    for i in after:
        held = rows[i][1]
        if held is None or (held.pool, held.mode) != (segment.pool, segment.mode):
            continue
        if held.nodes + held.spare_nodes >= segment.nodes and segment.start_s - held.end_s <= SOON_S:
            return True
    return False


def _window(plan: Plan, case: Case, catalog: Catalog, segment: Segment | None) -> tuple[float, float]:
    """From when until when the committed nodes of a segment are there."""
    if segment is None or catalog.modes[segment.mode].paid != "committed":
        return 0.0, inf
    tail_s = catalog.modes[segment.mode].unusable_tail_s
    spans = [
        (buy.start_s, buy.end_s - tail_s, buy.nodes * buy.count)
        for buy in plan.purchases
        if (buy.pool, buy.mode) == (segment.pool, segment.mode)
    ]
    if not any(start_s < segment.end_s and end_s > segment.start_s for start_s, end_s, _ in spans):
        return 0.0, inf
    nodes = segment.nodes + segment.spare_nodes

    def enough(at_s: float) -> bool:
        return sum(count for start_s, end_s, count in spans if start_s <= at_s < end_s) >= nodes

    moments = sorted({moment for start_s, end_s, _ in spans for moment in (start_s, end_s)})
    before = list(takewhile(enough, (t for t in reversed(moments) if t <= segment.start_s + SAME_S)))
    gone = (t for t in moments if t >= segment.end_s - SAME_S and not enough(t))
    return before[-1] if before else moments[0], next(gone, moments[-1])


# The way out of spot


def with_rules(plan: Plan, case: Case, catalog: Catalog) -> Plan:
    """The plan with the standard rule on every segment that can be preempted and has none.

    Raises:
        InputError: the case names a profile that the catalogue has not.
    """
    steps = steps_of(plan, case, catalog, world_of(plan, case, catalog))
    rules = {id(step.moving): step.rule for step in steps if step.rule is not None}
    segments = tuple(
        s.model_copy(update={"fallback": rules[id(s)]}) if id(s) in rules else s for s in plan.segments
    )
    return plan.model_copy(update={"segments": segments})


def _with_rule(steps: list[Step], place: int, case: Case, catalog: Catalog, world: World) -> Step:
    step = steps[place]
    segment = step.moving
    if segment is None:
        return step
    every = () if step.segment is None else (step.segment, *step.beside)
    there = sum(s.nodes for s in every if (s.pool, s.mode) == (segment.pool, "on-demand"))
    price = on_demand_usd(segment, case, catalog, there)
    if not catalog.modes[segment.mode].preemptible:
        return replace(step, fallback_usd_per_node_h=price)
    rule = segment.fallback or rule_for(steps, place, case, catalog, world, price)
    return replace(step, fallback_usd_per_node_h=price, rule=rule)


def on_demand_usd(segment: Segment, case: Case, catalog: Catalog, nodes_there: int = 0) -> float | None:
    """On-demand price of a node of the segment's pool while it runs, less the discount; None where it may not be
    used, or not on top of the nodes that the task has there already."""
    task = next(task for task in case.tasks if task.name == segment.task)
    own = task.rollout.billing if task.rollout is not None and not segment.leads else ()
    allowed = own or task.billing or case.resources.billing
    if "on-demand" not in case.resources.billing or "on-demand" not in allowed:
        return None
    quota = next((q.on_demand for q in case.resources.quotas if q.pool == segment.pool), None)
    if quota is not None and quota < segment.nodes + nodes_there:
        return None
    price = price_over_time(segment.pool, "on-demand", case, catalog.pools())
    return None if price is None else float(price.mean(segment.start_s, segment.end_s))


def latest_end_s(steps: list[Step], place: int, case: Case) -> float | None:
    """When a step has to end so that what follows it can end in time; None without a deadline."""
    due = {task.name: case.seconds_from_start(task.due) for task in case.tasks}
    known = [due[steps[place].task] if steps[place].last else None, case.deadline_s]
    followers = [
        (latest_end_s(steps, i, case), LATER_SLOWER_FACTOR * steps[i].planned_s)
        for i in range(place + 1, len(steps))
        if place in steps[i].after
    ]
    known += [None if end_s is None else end_s - length_s for end_s, length_s in followers]
    limits = [limit for limit in known if limit is not None]
    return min(limits) if limits else None


def rule_for(
    steps: list[Step],
    place: int,
    case: Case,
    catalog: Catalog,
    world: World,
    on_demand_usd_per_node_h: float | None,
) -> FallbackRule:
    """The standard rule of a segment on spot, from its overheads, prices and the deadline behind it."""
    lead, segment = steps[place].segment, steps[place].moving
    if lead is None or segment is None:
        raise ValueError("a step without nodes has no fallback rule")
    saved, profile = lead.checkpoint, world.spot[segment.pool]
    notice_s = catalog.modes[segment.mode].notice_s or 0.0
    return FallbackRule.standard(
        restart_s=max(segment.setup_s, saved.restart_s),
        spot_usd_per_h=segment.usd_per_node_h,
        on_demand_usd_per_h=on_demand_usd_per_node_h or inf,
        cycle_s=gang_up_s(segment.nodes, profile) + profile.reacquire_s,
        lost_work_s=0.0 if notice_s >= saved.persist_s else saved.lost_work_s,
        on_demand_wait_s=ON_DEMAND_WAIT_S,
        finish_by_s=latest_end_s(steps, place, case),
    )
