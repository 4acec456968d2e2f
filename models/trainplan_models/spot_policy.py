"""Rules that decide, as time goes by, between spot, on-demand and waiting, so that a deadline is kept.

A rule acts only on what a launcher sees: progress, time left, whether spot is up and for how long, how
often it was lost, the restart overhead and prices. ``FallbackRule`` is the rule that plans carry. ``Greedy``
and ``UniformProgress`` are the policies it is measured against, after Wu et al., "Can't Be Late:
Optimizing Spot Instance Savings under Deadlines" (NSDI 2024).

Every rule here keeps a deadline that can be kept at all, provided on-demand nodes come when asked for within
the restart time: it leaves spot, or stops waiting, while on-demand alone can still finish.

Slack is the time left less the work left at full speed. It never grows: waiting and restarts consume it,
running on either kind of node keeps it. Once waiting is paid for, each stay on spot costs two restarts (one to
get there, one to come back), so slack is worth most as the means to use spot until the very end.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from trainplan_models.base import Record

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
ModeArray = NDArray[np.int8]

WAIT, SPOT, ON_DEMAND = 0, 1, 2
"""What a job does in a step."""


@dataclass(frozen=True, slots=True)
class View:
    """What a launcher sees at the start of a step, for many runs at once (arrays over runs)."""

    tick_s: float
    elapsed_s: float
    """Since the start."""
    left_s: FloatArray
    """Work left at full speed."""
    safe_left_s: FloatArray
    """Work left when the nodes are lost at the end of this step (since the last saved checkpoint)."""
    time_left_s: FloatArray
    """Until the deadline."""
    deadline_s: float
    """Length of the whole stretch from start to deadline."""
    work_s: float
    """Work of the whole stretch."""
    mode: ModeArray
    """What it did until now; WAIT for those that just lost spot."""
    starting_s: FloatArray
    """Part of the restart that is still to come where nodes are held."""
    spot_up: BoolArray
    """Spot (some zone) can be had, and is cheaper than on-demand."""
    up_for_s: FloatArray
    """How long it has been so; 0 when not."""
    down_for_s: FloatArray
    """How long it has not been so; 0 when up."""
    losses: FloatArray
    """Times that spot was seen to go away."""

    @property
    def slack_s(self) -> FloatArray:
        """Time left less work left."""
        return self.time_left_s - self.left_s


class Policy(Protocol):
    """Chooses WAIT, SPOT or ON_DEMAND for each run; SPOT only where it is up."""

    def decide(self, view: View) -> ModeArray: ...


def may_wait(view: View, guard_s: float) -> BoolArray:
    """Waiting one step leaves time to finish on on-demand."""
    return np.asarray(view.slack_s - view.tick_s >= guard_s)


def may_stay(view: View, guard_s: float) -> BoolArray:
    """Losing spot at the end of this step leaves time to finish on on-demand."""
    return np.asarray(view.time_left_s - view.tick_s - view.safe_left_s >= guard_s - 1e-6)


class FallbackRule(Record):
    """Run on spot while it lasts; wait or move to on-demand by how much slack is left."""

    restart_s: float
    """From the decision to start on nodes of either kind until the job makes progress."""
    guard_s: float
    """Slack below which nothing is risked any more: a restart on on-demand, its wait for nodes, lost work."""
    reserve_s: float
    """Slack kept in any case while there is work left."""
    reserve_per_loss_s: float
    """Slack kept on top for each loss of spot still to be expected."""
    cycle_s: float
    """Mean time between losses that is assumed before any was seen."""
    cycle_weight: float = 2.0
    """How many seen losses that assumption weighs as much as."""
    settle_s: float = 0.0
    """Spot must have been up this long before on-demand is left for it."""
    grace_s: float = 0.0
    """After a loss, spot may come back this long before on-demand is asked for, even below the reserve..."""
    grace_frac: float = 0.6
    """...but not below this share of it."""
    release_factor: float = 2.0
    """On-demand is given up for waiting above this many reserves."""
    finish_by_s: float | None = None
    """Deadline of the stretch from day 0; None where nothing has to be finished by a date."""

    @classmethod
    def standard(
        cls,
        restart_s: float,
        spot_usd_per_h: float,
        on_demand_usd_per_h: float,
        cycle_s: float = 4 * 3600.0,
        lost_work_s: float = 0.0,
        on_demand_wait_s: float = 0.0,
        finish_by_s: float | None = None,
    ) -> FallbackRule:
        """The rule for a job with these overheads.

        A stay on spot costs one restart on spot, one on on-demand and the work thrown away. It pays when spot
        then stays up for longer than both restarts cost at their prices, and the chance that it does grows
        with its age: hence ``settle_s``.

        Args:
            restart_s: restart overhead on either kind of node.
            spot_usd_per_h: price of the job's nodes on spot.
            on_demand_usd_per_h: the same on on-demand.
            cycle_s: expected mean time between losses (up and down together).
            lost_work_s: most work that one loss throws away.
            on_demand_wait_s: longest wait for on-demand nodes that has to be survived.
            finish_by_s: deadline from day 0.
        """
        ratio = min(spot_usd_per_h / on_demand_usd_per_h, 0.95) if on_demand_usd_per_h > 0 else 0.95
        guard_s = restart_s + on_demand_wait_s + lost_work_s
        stay_s = restart_s + guard_s
        return cls(
            restart_s=restart_s,
            guard_s=guard_s,
            reserve_s=2.0 * stay_s,
            reserve_per_loss_s=1.5 * stay_s,
            cycle_s=cycle_s,
            settle_s=restart_s * (1.0 + ratio) / (1.0 - ratio),
            grace_s=1.5 * restart_s,
            finish_by_s=finish_by_s,
        )

    def reserve(self, left_s: FloatArray, elapsed_s: FloatArray | float, losses: FloatArray) -> FloatArray:
        """Slack to keep: enough for the losses to be expected until the work is done."""
        seen_s = elapsed_s + self.cycle_weight * self.cycle_s
        ahead = left_s * (losses + self.cycle_weight) / seen_s
        return np.asarray(self.reserve_s + self.reserve_per_loss_s * ahead)

    def decide(self, view: View) -> ModeArray:
        """The rule, for a step of many runs."""
        slack_s = view.slack_s
        reserve_s = self.reserve(view.left_s, view.elapsed_s, view.losses)
        ample = slack_s > self.release_factor * reserve_s
        wait = may_wait(view, self.guard_s)
        start = slack_s - self.restart_s >= self.guard_s
        held = view.mode == ON_DEMAND
        on_spot = view.mode == SPOT
        settled = (view.up_for_s >= self.settle_s) | ample
        grace = (view.down_for_s < self.grace_s) & (slack_s > self.grace_frac * reserve_s)
        idle = wait & np.where(held, ample, (slack_s > reserve_s) | grace)
        go = view.spot_up & np.where(on_spot, may_stay(view, self.guard_s), start & (~held | settled))
        return np.where(go, SPOT, np.where(idle & ~view.spot_up, WAIT, ON_DEMAND)).astype(np.int8)

    def sentence(self) -> str:
        """The rule in words."""
        from trainplan_models.units import format_quantity

        def say(seconds: float) -> str:
            return format_quantity(seconds, "s", digits=2)

        return (
            f"Run on spot while it is up. When it is lost, wait for it as long as the slack (time left less work"
            f" left) exceeds the reserve of {say(self.reserve_s)} plus {say(self.reserve_per_loss_s)} for each"
            f" loss still to be expected (work left over the mean time between losses so far, at first"
            f" {say(self.cycle_s)}), and for {say(self.grace_s)} after the loss while it exceeds"
            f" {self.grace_frac:.0%} of the reserve; else move to on-demand. Go back to spot once it has been up"
            f" for {say(self.settle_s)} and the slack is {say(self.restart_s + self.guard_s)} or more; stop"
            f" on-demand and wait only above {self.release_factor:g} reserves. Below {say(self.guard_s)} of"
            f" slack stay on on-demand to the end."
        )

    def milestones(
        self, work_s: float, deadline_s: float, days: float = 1.0
    ) -> tuple[tuple[float, float], ...]:
        """By when how much must be done, lest the next loss of spot means on-demand.

        Args:
            work_s: work of the stretch at full speed.
            deadline_s: time from its start to its deadline.
            days: distance of the marks.

        Returns:
            Pairs of seconds since the start and least share of the work done, at the assumed loss rate.
        """
        marks = np.arange(days, deadline_s / 86400.0, days) * 86400.0
        per_s = self.reserve_per_loss_s / self.cycle_s
        left_s = (deadline_s - marks - self.reserve_s) / (1.0 + per_s)
        done = np.clip(1.0 - left_s / work_s, 0.0, 1.0)
        return tuple((float(t), float(share)) for t, share in zip(marks, done, strict=True) if share > 0)


@dataclass(frozen=True, slots=True)
class SpotOnly:
    """Spot whenever it is up, wait otherwise, deadline or not: where on-demand may not be used."""

    def decide(self, view: View) -> ModeArray:
        return np.where(view.spot_up, SPOT, WAIT).astype(np.int8)


@dataclass(frozen=True, slots=True)
class Greedy:
    """Spot whenever it is up, wait otherwise, on-demand when slack is gone, then to the end."""

    restart_s: float
    guard_s: float | None = None
    """Slack below which it goes to on-demand; None: one restart."""

    def decide(self, view: View) -> ModeArray:
        guard_s = self.restart_s if self.guard_s is None else self.guard_s
        start = view.slack_s - self.restart_s >= guard_s
        stay = may_stay(view, guard_s)
        go = view.spot_up & (view.mode != ON_DEMAND) & np.where(view.mode == SPOT, stay, start)
        wait = ~view.spot_up & (view.mode != ON_DEMAND) & may_wait(view, guard_s)
        return np.where(go, SPOT, np.where(wait, WAIT, ON_DEMAND)).astype(np.int8)


@dataclass(frozen=True, slots=True)
class UniformProgress:
    """Uniform Progress: never fall behind the straight line from start to deadline.

    Idle and behind the line: on-demand. Spot is taken whenever it is up and kept until it is lost. On-demand
    is given up for waiting only when ahead of where the line will be two restarts later. When idle with
    less slack than two restarts: on-demand to the end.
    """

    restart_s: float
    guard_s: float | None = None
    """Slack that a restart on on-demand needs; None: one restart."""
    catch_up_first: bool = False
    """Stay on on-demand, even when spot is up, until ahead of the line two restarts later, and never leave
    it to wait (the second reading of the hysteresis rule)."""

    def decide(self, view: View) -> ModeArray:
        done_s = view.work_s - view.left_s
        line_s = view.elapsed_s * view.work_s / view.deadline_s
        later_s = (view.elapsed_s + 2.0 * self.restart_s) * view.work_s / view.deadline_s
        held = view.mode == ON_DEMAND
        guard_s = self.restart_s if self.guard_s is None else self.guard_s
        short = (view.slack_s - view.tick_s < self.restart_s + guard_s) & (view.mode != SPOT)
        behind = np.where(held, done_s < later_s, done_s < line_s)
        if self.catch_up_first:
            go = view.spot_up & ~(held & (done_s < later_s))
            wait = ~held & ~behind
        else:
            go = view.spot_up
            wait = ~behind
        go = go & ~short & ((view.mode != SPOT) | may_stay(view, guard_s))
        return np.where(go, SPOT, np.where(wait & ~short & ~view.spot_up, WAIT, ON_DEMAND)).astype(np.int8)
