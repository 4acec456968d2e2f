"""A job on spot capacity under its fallback rule, event by event, for many scenarios at once.

Each round takes every unfinished scenario to its next event: spot is lost or comes back, a failure, the moment
at which the rule moves the job, the end of the work. A gang of nodes is lost as one.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gamma

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from trainplan_models.simulation_events import FloatArray, Hazards, IntArray, Saving
from trainplan_models.spot_policy import ON_DEMAND, SPOT, WAIT, FallbackRule

BoolArray = NDArray[np.bool_]

LEAST_WAIT_S = 60.0
"""The rule is asked again no sooner than this while the job waits."""
LONGEST_FACTOR, NEVER_FACTOR = 60.0, 600.0
"""A job that is not done after so many times its work is given up, and counts as done after the second number."""


@dataclass(frozen=True, slots=True)
class Gang:
    """How spot behaves for the nodes of one job; arrays over scenarios."""

    up_s: FloatArray
    """Mean time until it is lost."""
    down_s: FloatArray
    """Mean time until it is back."""
    up_shape_factor: float
    """Weibull shape; below 1, what has been up for long stays up."""
    down_shape_factor: float
    notice_s: float
    """Warning before a loss."""

    def next_up_s(self, who: IntArray, rng: Generator) -> FloatArray:
        """How long it stays up this time."""
        return _weibull(self.up_s[who], self.up_shape_factor, rng)

    def next_down_s(self, who: IntArray, rng: Generator) -> FloatArray:
        """How long it stays away this time."""
        return _weibull(self.down_s[who], self.down_shape_factor, rng)


def _weibull(mean_s: FloatArray, shape: float, rng: Generator) -> FloatArray:
    return np.asarray(mean_s / gamma(1.0 + 1.0 / shape) * rng.weibull(shape, mean_s.size))


@dataclass(frozen=True, slots=True)
class Fallback:
    """The way out of spot."""

    rule: FallbackRule
    time_left_s: FloatArray
    """From the start of the job to the deadline of the stretch, by scenario; inf where there is none."""
    allowed: bool
    """On-demand nodes of the same kind may be used."""
    wait_s: FloatArray
    """Until they are there, by scenario."""
    pace_frac: float
    """Useful share of the time on nodes that are not taken away, by which the launcher judges the work left."""


@dataclass(frozen=True, slots=True)
class SpotHistory:
    """What became of a job on spot; arrays over scenarios."""

    wall_s: FloatArray
    """From start to end."""
    spot_s: FloatArray
    """Paid on spot."""
    on_demand_s: FloatArray
    """Paid on on-demand."""
    wait_s: FloatArray
    lost_work_s: FloatArray
    down_s: FloatArray
    """Time in recoveries and restarts."""
    failures: IntArray
    losses: IntArray
    """Times that spot was lost under the job."""


class _Runs:
    """State of all scenarios. ``time_s`` counts from the start; a *life* is a stretch between two restarts."""

    def __init__(
        self, work_s: FloatArray, saving: Saving, hazards: Hazards, gang: Gang, out: Fallback, rng: Generator
    ) -> None:
        count = work_s.size
        self.saving, self.hazards, self.gang, self.out, self.rng = saving, hazards, gang, out, rng
        self.left_s = work_s.astype(float)
        self.work_s = work_s
        self.mode = np.full(count, WAIT, np.int8)
        self.time_s, self.life_s, self.ready_s = np.zeros(count), np.zeros(count), np.zeros(count)
        self.up = np.ones(count, bool)
        self.since_s = np.zeros(count)
        self.change_s = gang.next_up_s(np.arange(count), rng)
        self.seen_losses = np.zeros(count)
        self.waited_on_demand = np.zeros(count, bool)
        self.end_s = np.full(count, np.nan)
        self.spent_s = np.zeros((3, count))
        self.lost_s, self.down_s = np.zeros(count), np.zeros(count)
        self.failures, self.losses = np.zeros(count, np.int64), np.zeros(count, np.int64)
        # The nodes are there and set up at the start.
        enough = self.slack_s(np.arange(count)) >= out.rule.guard_s
        self.mode[enough | (not out.allowed)] = SPOT

    # What the rule sees

    def slack_s(self, who: IntArray) -> FloatArray:
        """Time left less the time that the work left takes on on-demand, at the start of a life."""
        return np.asarray(
            self.out.time_left_s[who] - self.time_s[who] - self.left_s[who] / self.out.pace_frac
        )

    def reserve_s(self, who: IntArray) -> FloatArray:
        return self.out.rule.reserve(self.left_s[who], self.time_s[who], self.seen_losses[who])

    # Changes of state

    def toggle(self, who: IntArray) -> None:
        """Spot comes or goes at ``change_s``."""
        self.seen_losses[who] += self.up[who]
        self.up[who] = ~self.up[who]
        self.since_s[who] = self.change_s[who]
        up, down = who[self.up[who]], who[~self.up[who]]
        self.change_s[up] += self.gang.next_up_s(up, self.rng)
        self.change_s[down] += self.gang.next_down_s(down, self.rng)

    def begin(self, who: IntArray, mode: int) -> None:
        """A life on nodes that have to be started."""
        self.mode[who] = mode
        if mode == ON_DEMAND:
            first = who[~self.waited_on_demand[who]]
            self.waited_on_demand[first] = True
            self.spent_s[WAIT, first] += self.out.wait_s[first]
            self.time_s[first] += self.out.wait_s[first]
            self.catch_up(first)
        self.life_s[who] = self.time_s[who]
        self.ready_s[who] = self.time_s[who] + self.out.rule.restart_s
        self.down_s[who] += self.out.rule.restart_s

    def catch_up(self, who: IntArray) -> None:
        """Let spot come and go until now."""
        late = who[self.change_s[who] < self.time_s[who]]
        while late.size:
            self.toggle(late)
            late = late[self.change_s[late] < self.time_s[late]]

    def stop(self, who: IntArray, at_s: FloatArray, saved: bool | BoolArray) -> None:
        """End a life; what was not saved is lost."""
        done_s, durable_s = self.saving.done_s(np.maximum(at_s - self.ready_s[who], 0.0))
        kept_s = np.where(saved, done_s, durable_s)
        self.left_s[who] -= np.minimum(kept_s, self.left_s[who])
        self.lost_s[who] += done_s - kept_s
        self.spent_s[self.mode[who], who] += at_s - self.life_s[who]
        self.time_s[who] = at_s

    def finish(self, who: IntArray, at_s: FloatArray) -> None:
        self.spent_s[self.mode[who], who] += at_s - self.life_s[who]
        self.end_s[who] = at_s

    def fail(self, who: IntArray, at_s: FloatArray) -> None:
        """A node or the job fails; the job recovers on the nodes it has."""
        self.stop(who, at_s, saved=False)
        recovery_s, again = self.hazards.recover(who, self.rng)
        self.failures[who] += 1 + again.astype(np.int64)
        self.down_s[who] += recovery_s
        self.life_s[who] = at_s
        self.ready_s[who] = at_s + recovery_s

    # One round for those in each mode

    def wait(self, who: IntArray) -> None:
        """Waiting: spot comes back, or the slack is used up."""
        slack_s, now_s = self.slack_s(who), self.time_s[who]
        rule = self.out.rule
        reserve_s = np.maximum(self.reserve_s(who), rule.guard_s)
        grace_end_s = np.minimum(
            self.since_s[who] + rule.grace_s,
            now_s + slack_s - np.maximum(rule.grace_frac * reserve_s, rule.guard_s),
        )
        until_s = np.maximum(now_s + slack_s - reserve_s, grace_end_s)
        until_s = until_s if self.out.allowed else np.full(who.size, np.inf)
        up = self.up[who]
        may_start = (slack_s - rule.restart_s >= rule.guard_s) | (not self.out.allowed)
        self.begin(who[up & may_start], SPOT)
        give_up = (~up & (until_s < now_s + LEAST_WAIT_S)) | (up & ~may_start)
        self.begin(who[give_up], ON_DEMAND)
        stay = ~up & ~give_up
        rest, end_s = who[stay], np.minimum(until_s, self.change_s[who])[stay]
        self.spent_s[WAIT, rest] += end_s - self.time_s[rest]
        self.time_s[rest] = end_s
        self.toggle(rest[self.change_s[rest] <= end_s])

    def spot(self, who: IntArray, fail_s: FloatArray) -> None:
        """On spot: lost, failed or done."""
        done_s = self.ready_s[who] + self.saving.wall_s(self.left_s[who])
        end_s = np.minimum(np.minimum(done_s, fail_s), self.change_s[who])
        done, lost = done_s <= end_s, self.change_s[who] <= end_s
        self.finish(who[done], end_s[done])
        gone = who[lost & ~done]
        in_time = self.gang.notice_s >= self.saving.persist_s
        self.stop(gone, end_s[lost & ~done], saved=in_time)
        self.losses[gone] += 1
        self.toggle(gone)
        self.mode[gone] = WAIT
        failed = ~done & ~lost
        self.fail(who[failed], end_s[failed])

    def on_demand(self, who: IntArray, fail_s: FloatArray) -> None:
        """On on-demand: done, failed, spot settled, or spot came or went."""
        rule, change_s = self.out.rule, self.change_s[who]
        done_s = self.ready_s[who] + self.saving.wall_s(self.left_s[who])
        settled_s = np.maximum(self.time_s[who], self.since_s[who] + rule.settle_s)
        settled_s = np.where(self.up[who] & (settled_s < change_s), settled_s, np.inf)
        ran_s, _ = self.saving.done_s(np.maximum(np.minimum(settled_s, change_s) - self.ready_s[who], 0.0))
        left_s = np.maximum(self.left_s[who] - ran_s, 0.0)
        slack_s = self.out.time_left_s[who] - settled_s - left_s / self.out.pace_frac
        settled_s = np.where(slack_s - rule.restart_s >= rule.guard_s, settled_s, np.inf)
        end_s = np.minimum(np.minimum(done_s, fail_s), np.minimum(settled_s, change_s))
        done, failed = done_s <= end_s, fail_s <= end_s
        self.finish(who[done], end_s[done])
        self.fail(who[failed & ~done], end_s[failed & ~done])
        rest = ~done & ~failed
        back = rest & (settled_s <= end_s)
        self.stop(who[back], end_s[back], saved=True)
        self.begin(who[back], SPOT)
        changed = who[rest & ~back]
        self.time_s[changed] = self.change_s[changed]
        self.toggle(changed)

    def step(self) -> bool:
        """Every unfinished scenario to its next event; False when there is none."""
        open_ = np.flatnonzero(np.isnan(self.end_s))
        late = open_[self.time_s[open_] > LONGEST_FACTOR * self.work_s[open_]]
        self.end_s[late] = NEVER_FACTOR * self.work_s[late]
        open_ = np.flatnonzero(np.isnan(self.end_s))
        if not open_.size:
            return False
        mode = self.mode[open_].copy()
        # Failures have no memory, so that the next one may be drawn anew in every round.
        gap_s = self.rng.exponential(size=open_.size) / np.maximum(self.hazards.per_s[open_], 1e-30)
        fail_s = self.time_s[open_] + gap_s
        # During a recovery failures are part of the recovery itself.
        fail_s = np.maximum(fail_s, self.ready_s[open_] + gap_s)
        for act, chosen in ((self.spot, SPOT), (self.on_demand, ON_DEMAND)):
            these = mode == chosen
            if these.any():
                act(open_[these], fail_s[these])
        waiting = open_[mode == WAIT]
        if waiting.size:
            self.wait(waiting)
        return True


def work_on_spot(
    work_s: FloatArray, saving: Saving, hazards: Hazards, gang: Gang, out: Fallback, rng: Generator
) -> SpotHistory:
    """How long work takes on spot with its saves, failures, losses, waits and stays on on-demand.

    Args:
        work_s: work at full speed, by scenario; spot is there at the start.
        saving: how state is saved.
        hazards: failures and recoveries.
        gang: how spot behaves.
        out: the rule and the way out.
        rng: source of randomness.
    """
    runs = _Runs(work_s, saving, hazards, gang, out, rng)
    while runs.step():
        pass
    return SpotHistory(
        wall_s=runs.end_s,
        spot_s=runs.spent_s[SPOT],
        on_demand_s=runs.spent_s[ON_DEMAND],
        wait_s=runs.spent_s[WAIT],
        lost_work_s=runs.lost_s,
        down_s=runs.down_s,
        failures=runs.failures,
        losses=runs.losses,
    )
