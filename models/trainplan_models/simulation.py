"""A plan against many scenarios and the events of each: when it ends, what it costs, how sure that is.

Nothing here is shared with the optimization: the plan's own records are taken, with rates of failures and
spot, and every failure, loss, wait and move is drawn. A scenario is one draw of the causes that the whole
plan shares (``Scenarios``); within it chance decides event by event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from math import inf
from typing import TYPE_CHECKING

import numpy as np
from numpy.random import Generator, default_rng
from numpy.typing import NDArray

from trainplan_models.node_prices import segment_price
from trainplan_models.plan import Plan, Segment
from trainplan_models.simulation_cost import Usage, cost_usd
from trainplan_models.simulation_events import Hazards, Saving, work_through
from trainplan_models.simulation_plan import Step, on_demand_usd, steps_of
from trainplan_models.simulation_results import Cause as Cause
from trainplan_models.simulation_results import Samples as Samples
from trainplan_models.simulation_results import Simulation as Simulation
from trainplan_models.simulation_results import TaskSpread as TaskSpread
from trainplan_models.simulation_results import summary as summary
from trainplan_models.simulation_rounds import done_frac, part_done
from trainplan_models.simulation_spot import Fallback, Gang, work_on_spot
from trainplan_models.simulation_stays import Stay, parts_of
from trainplan_models.simulation_world import DENSE, MOE, Scenarios, World, gang_up_s, world_of

if TYPE_CHECKING:
    from trainplan_models.case import Case
    from trainplan_models.catalog import Catalog

FloatArray = NDArray[np.float64]

DAY_S, HOUR_S = 86400.0, 3600.0
LEAST_INTERVAL_S = 1.0
SAME_TIME_S = 1.0


def simulate(plan: Plan, case: Case, catalog: Catalog, scenarios: Scenarios, seed: int = 0) -> Simulation:
    """Run a plan through scenarios and sum up.

    Args:
        plan: what is launched.
        case: deadline, budget, due dates and order of the tasks.
        catalog: profiles, billing modes and prices.
        scenarios: draws of the causes all of the plan shares.
        seed: of the events; the same seed gives the same numbers.

    Raises:
        InputError: the case names a profile that the catalogue has not.
    """
    return summary(sample(plan, case, catalog, scenarios, seed), case, scenarios, seed)


def sample(plan: Plan, case: Case, catalog: Catalog, scenarios: Scenarios, seed: int = 0) -> Samples:
    """As ``simulate``, the outcome of every scenario."""
    world = world_of(plan, case, catalog)
    done = done_frac(case, scenarios.count, seed)
    return _Runner(plan, case, catalog, world, scenarios, default_rng(seed), done).run()


class _Runner:
    """One plan over all scenarios."""

    def __init__(
        self,
        plan: Plan,
        case: Case,
        catalog: Catalog,
        world: World,
        scenarios: Scenarios,
        rng: Generator,
        done: Mapping[str, FloatArray],
    ) -> None:
        self.done = done
        self.plan, self.case, self.catalog, self.world = plan, case, catalog, world
        self.scenarios, self.rng = scenarios, rng
        self.count = scenarios.count
        self.steps = steps_of(plan, case, catalog, world)
        self.kinds = _kinds(case, catalog)
        self.pools = catalog.pools() if case.resources.price_changes else {}

    def run(self) -> Samples:
        ends: list[FloatArray] = []
        stays: list[tuple[Step, Stay]] = []
        carried: dict[str, FloatArray] = defaultdict(lambda: np.zeros(self.count))
        first: dict[str, FloatArray] = {}
        planned: dict[str, float] = defaultdict(float)
        for step in self.steps:
            ready_s = np.full(self.count, step.not_before_s)
            for before in step.after:
                ready_s = np.maximum(ready_s, ends[before])
            first.setdefault(step.task, ready_s)
            if step.segment is None:
                ends.append(ready_s + step.planned_s * self.done.get(step.task, 1.0))
                continue
            part = self._part(step.segment, planned[step.task])
            planned[step.task] += step.segment.work_frac
            stay = self._stay(step, step.segment, ready_s, carried[step.task], part)
            carried[step.task] = stay.undone_frac
            stays.append((step, stay))
            ends.append(stay.end_s)
        return self._samples(ends, stays, first)

    # One step

    def _part(self, segment: Segment, start_frac: float) -> FloatArray:
        """How much of a segment is done, where rounds of its task may be left out."""
        done = self.done.get(segment.task)
        return np.ones(self.count) if done is None else part_done(done, start_frac, segment.work_frac)

    def _stay(
        self, step: Step, segment: Segment, ready_s: FloatArray, carried: FloatArray, part: FloatArray
    ) -> Stay:
        """Run ``part`` of a step from when it may start, with work left over from the step before."""
        delay = self._delay_s(segment, step)
        share = part + carried / max(segment.work_frac, 1e-9)
        any_work = share > 0.0
        start_s = ready_s + (np.where(any_work, delay, 0.0) if delay is not None and step.fresh else 0.0)
        base_s, stretch = self._planned_work(segment)
        speed = self.scenarios.throughput_factor.get(
            (self._generation(segment), self.kinds.get(segment.task, DENSE)), np.ones(self.count)
        )
        speed = speed if segment.tokens > 0.0 else np.ones(self.count)
        work_s = base_s * share * (1.0 + self.scenarios.redone_frac) / speed
        # Every round is set up anew, so that set-ups are left out with rounds.
        overhead_s = part * max(0.0, step.planned_s - stretch * base_s / max(segment.goodput_frac, 1e-6))
        if step.rule is not None:
            return self._on_spot(step, segment, start_s, overhead_s, work_s)
        saving, hazards = _saving(segment), self._hazards(segment, step)
        history = work_through(work_s, saving, hazards, self.rng)
        wall_s = np.where(any_work, history.wall_s, 0.0)
        length_s = overhead_s + stretch * wall_s
        room_s = np.maximum(step.window_end_s - start_s, 0.0)
        inside = np.minimum(length_s, room_s)
        missing = np.where(length_s > room_s, 1.0 - inside / np.maximum(length_s, 1e-9), 0.0)
        extra_s = np.zeros(self.count)
        if step.last:
            extra_s = np.where(missing > 0.0, missing * stretch * wall_s + overhead_s, 0.0)
            missing = np.zeros(self.count)
        return Stay(
            start_s=start_s,
            end_s=start_s + inside + extra_s,
            held_hours=inside / HOUR_S,
            fallback_hours=extra_s / HOUR_S,
            useful_s=work_s * (1.0 - missing),
            lost_s=history.lost_work_s,
            failures_count=history.failures.astype(float),
            losses_count=np.zeros(self.count),
            undone_frac=missing * share * segment.work_frac,
        )

    def _delay_s(self, segment: Segment, step: Step) -> FloatArray | None:
        """Until all nodes are there."""
        delays = [self.scenarios.capacity_delay_s.get((s.pool, s.mode)) for s in (segment, *step.beside)]
        known = [delay for delay in delays if delay is not None]
        return np.max(known, axis=0) if known else None

    def _on_spot(
        self, step: Step, segment: Segment, start_s: FloatArray, overhead_s: FloatArray, work_s: FloatArray
    ) -> Stay:
        rule, moving = step.rule, step.moving
        if rule is None or moving is None:
            raise ValueError("a step on spot needs a rule")
        profile, unknown = self.world.spot[moving.pool], np.ones(self.count)
        hazard = self.scenarios.spot_hazard_factor.get(moving.pool, unknown)
        wait = self.scenarios.spot_wait_factor.get(moving.pool, unknown)
        gang = Gang(
            up_s=gang_up_s(moving.nodes, profile) / np.maximum(hazard, 1e-9),
            down_s=profile.reacquire_s * wait,
            up_shape_factor=self.world.spot_up_shape_factor,
            down_shape_factor=self.world.spot_down_shape_factor,
            notice_s=self.catalog.modes[moving.mode].notice_s or 0.0,
        )
        finish_by_s = inf if rule.finish_by_s is None else rule.finish_by_s
        delay = self.scenarios.capacity_delay_s.get((moving.pool, "on-demand"))
        out = Fallback(
            rule=rule,
            time_left_s=finish_by_s - start_s - overhead_s,
            allowed=step.fallback_usd_per_node_h is not None,
            wait_s=np.zeros(self.count) if delay is None else delay,
            pace_frac=min(1.0, segment.goodput_frac / max(moving.paid_frac, 1e-6)),
        )
        hazards = self._hazards(segment, step)
        history = work_on_spot(work_s, _saving(segment), hazards, gang, out, self.rng)
        any_work = work_s > 0.0
        return Stay(
            start_s=start_s,
            end_s=start_s + overhead_s + np.where(any_work, history.wall_s, 0.0),
            held_hours=(np.where(any_work, history.spot_s, 0.0) + overhead_s) / HOUR_S,
            fallback_hours=np.where(any_work, history.on_demand_s, 0.0) / HOUR_S,
            useful_s=work_s,
            lost_s=history.lost_work_s,
            failures_count=history.failures.astype(float),
            losses_count=history.losses.astype(float),
            undone_frac=np.zeros(self.count),
        )

    def _planned_work(self, segment: Segment) -> tuple[float, float]:
        """Work at full speed as planned, and calendar time per hour of use (machines with a queue)."""
        owned = next((own for own in self.case.resources.owned if own.name == segment.pool), None)
        stretch = 1.0 if owned is None else 24.0 / owned.queue_hours_per_day
        if segment.tokens > 0.0 and segment.tokens_per_s > 0.0:
            return segment.tokens / segment.tokens_per_s, stretch
        used_s = segment.end_s - segment.start_s - segment.setup_s
        return max(used_s, 0.0) * segment.goodput_frac / stretch, stretch

    def _generation(self, segment: Segment) -> str:
        chip = self.catalog.find_accelerator(segment.accelerator)
        return "" if chip is None else chip.generation

    def _hazards(self, segment: Segment, step: Step) -> Hazards:
        """Failures of a job on the nodes of a segment and of those beside it."""
        profile, scenarios, moving = self.world.failures, self.scenarios, step.moving or segment
        nodes = segment.nodes + sum(other.nodes for other in step.beside)
        node = nodes * profile.failures_per_1000_node_days / 1000.0 / DAY_S
        soft = profile.soft_failures_per_day / DAY_S
        losses = 0.0
        if moving.pool in self.world.spot and self.catalog.modes[moving.mode].preemptible:
            losses = 1.0 / gang_up_s(moving.nodes, self.world.spot[moving.pool])
        replace_s = profile.spare_swap_s if segment.spare_nodes else profile.requeue_s
        among = (node + soft) / max(node + soft + losses, 1e-30)
        # What the plan's mean restart holds besides detection and replacement is loading and warming up.
        resume_s = segment.checkpoint.restart_s - among * (profile.detect_s + replace_s)
        return Hazards(
            node_per_s=node * scenarios.failure_factor,
            soft_per_s=soft * scenarios.soft_failure_factor,
            hang_frac=self.world.hang_frac,
            hang_s=scenarios.hang_s,
            detect_s=profile.detect_s,
            swap_s=profile.spare_swap_s,
            requeue_s=profile.requeue_s,
            resume_s=max(resume_s, 0.0),
            spares=segment.spare_nodes,
            repair_s=profile.repair_s,
            recovery_factor=scenarios.recovery_factor,
            recovery_spread_factor=self.world.recovery_spread_factor,
        )

    # All steps

    def _samples(
        self, ends: list[FloatArray], stays: list[tuple[Step, Stay]], first: dict[str, FloatArray]
    ) -> Samples:
        zero = np.zeros(self.count)
        task_end: dict[str, FloatArray] = {}
        for step, end_s in zip(self.steps, ends, strict=True):
            task_end[step.task] = np.maximum(task_end.get(step.task, zero), end_s)
        finish_s = np.max(list(task_end.values()), axis=0) if task_end else zero
        useful_s = held_s = lost_s = failures = losses = spot = away = zero
        for step, stay in stays:
            for segment, held_hours, away_hours in parts_of(step, stay, self.catalog):
                useful_s = useful_s + segment.nodes * stay.useful_s / (1.0 + self.scenarios.redone_frac)
                held_s = held_s + segment.nodes * (held_hours + away_hours) * HOUR_S
                if step.rule is not None and segment is step.moving:
                    spot, away = spot + segment.nodes * held_hours, away + segment.nodes * away_hours
            lost_s, failures, losses = (
                lost_s + stay.lost_s,
                failures + stay.failures_count,
                losses + stay.losses_count,
            )
        return Samples(
            weight=self.scenarios.weight,
            finish_s=finish_s,
            cost_usd=cost_usd(self.plan, self.case, self._usage(finish_s, task_end, stays, first)),
            late=self._late(finish_s, task_end),
            ettr_frac=np.asarray(useful_s / np.maximum(held_s, 1e-9)) if stays else np.ones(self.count),
            lost_work_s=lost_s,
            failures_count=failures,
            preemptions_count=losses,
            spot_node_hours=spot,
            fallback_node_hours=away,
            task_end_s=task_end,
            rules=tuple(
                f"{step.task} on {step.moving.pool}: {step.rule.sentence()}"
                for step in self.steps
                if step.rule is not None and step.moving is not None
            ),
        )

    def _late(self, finish_s: FloatArray, task_end: dict[str, FloatArray]) -> NDArray[np.bool_]:
        """Scenarios in which the programme or a task ends after its date."""
        late = finish_s > (inf if self.case.deadline_s is None else self.case.deadline_s) + SAME_TIME_S
        for task in self.case.tasks:
            due_s = self.case.seconds_from_start(task.due)
            if due_s is not None and task.name in task_end:
                late = late | (task_end[task.name] > due_s + SAME_TIME_S)
        return np.asarray(late)

    def _usage(
        self,
        finish_s: FloatArray,
        task_end: dict[str, FloatArray],
        stays: list[tuple[Step, Stay]],
        first: dict[str, FloatArray],
    ) -> Usage:
        """Node-hours and their price, spares included."""
        zero = np.zeros(self.count)
        node_hours: dict[str, FloatArray] = defaultdict(lambda: zero)
        hourly_usd: dict[str, FloatArray] = defaultdict(lambda: zero)
        for step, stay in stays:
            for segment, held_hours, away_hours in parts_of(step, stay, self.catalog):
                nodes = segment.nodes + segment.spare_nodes
                own, other = self._prices(step, segment, stay)
                node_hours[step.task] = node_hours[step.task] + nodes * (held_hours + away_hours)
                usd = nodes * (held_hours * own + away_hours * other)
                hourly_usd[step.task] = hourly_usd[step.task] + usd
        hours = {task: (task_end[task] - first[task]) / HOUR_S for task in node_hours}
        rounds = {name: done / self.case.task(name).expected_frac for name, done in self.done.items()}
        return Usage(finish_s, node_hours, hours, hourly_usd, self.scenarios.experiments_factor, rounds)

    def _prices(
        self, step: Step, segment: Segment, stay: Stay
    ) -> tuple[FloatArray | float, FloatArray | float]:
        """Price of a node-hour on the segment's own nodes and on what takes over, when they are used."""
        paid = self.catalog.modes[segment.mode].paid
        buys = [b for b in self.plan.purchases if (b.pool, b.mode) == (segment.pool, segment.mode)]
        bought = max((b.usd / b.bought_node_h for b in buys), default=0.0)
        moves = segment is step.moving
        away_s = stay.end_s - (stay.fallback_hours * HOUR_S if moves else 0.0)
        own: FloatArray | float = 0.0
        if paid != "committed":
            moved = self._price_ratio(segment, segment.mode, stay.start_s, away_s)
            own = segment.usd_per_node_h * moved
        if step.rule is not None and moves:
            own = own * self.scenarios.spot_price_factor.get(segment.pool, np.ones(self.count))
        other = step.fallback_usd_per_node_h
        if not moves:
            other = on_demand_usd(segment, self.case, self.catalog) if paid == "committed" else None
        if other is None:
            return own, bought or segment.usd_per_node_h
        return own, other * self._price_ratio(segment, "on-demand", away_s, stay.end_s)

    def _price_ratio(
        self, segment: Segment, mode: str, start_s: FloatArray, end_s: FloatArray
    ) -> FloatArray | float:
        """Mean price of the time in which nodes are used over that of the time in which the plan uses them."""
        if not self.case.resources.price_changes:
            return 1.0
        price = segment_price(segment, mode, self.case, self.catalog, self.pools)
        planned = float(price.mean(segment.start_s, segment.end_s))
        return price.mean(start_s, end_s) / planned if planned > 0.0 else 1.0


def _saving(segment: Segment) -> Saving:
    saved = segment.checkpoint
    interval_s = max(saved.interval_s, LEAST_INTERVAL_S)
    return Saving(interval_s, saved.blocking_s, max(saved.persist_s, saved.blocking_s))


def _kinds(case: Case, catalog: Catalog) -> dict[str, str]:
    """Whether each task trains a dense model or a mixture of experts; a task without a model takes that of
    the one it follows."""
    found: dict[str, str] = {}
    for task in case.tasks:
        model = task.model
        if model is None:
            found[task.name] = next((found[name] for name in task.after if name in found), DENSE)
            continue
        if isinstance(model, str):
            known = catalog.models.get(model)
            experts = known.experts if known is not None else 0
        else:
            experts = model.experts
        found[task.name] = MOE if experts else DENSE
    return found
