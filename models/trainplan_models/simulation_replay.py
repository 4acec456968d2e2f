"""A job with a deadline replayed on recorded spot capacity, step by step, for many start times at once."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan_models.spot_policy import ON_DEMAND, SPOT, WAIT, ModeArray, Policy, View
from trainplan_models.traces import Windows

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]

DONE_S = 1e-6
"""Work left below which a job counts as done."""


@dataclass(frozen=True, slots=True)
class Job:
    """What is replayed."""

    work_s: float
    """Work at full speed."""
    deadline_s: float
    restart_s: float
    """From a start on nodes of either kind until the job makes progress."""
    spot_usd_per_h: float
    """Price of all its nodes; taken where the recording has no price."""
    on_demand_usd_per_h: float
    nodes: int = 1
    """Multiplies recorded prices, which are per node."""
    checkpoint_s: float = 0.0
    """Work between saves; a loss of spot throws away what came after the last one. 0: nothing is lost,
    because the notice is long enough to save."""


@dataclass(frozen=True, slots=True)
class Replay:
    """What came of it; arrays over runs."""

    usd: FloatArray
    finish_s: FloatArray
    """Since the start; inf where the work was not done by the deadline."""
    spot_s: FloatArray
    """Time paid for on spot."""
    on_demand_s: FloatArray
    wait_s: FloatArray
    starts: NDArray[np.int64]
    """Times that nodes of either kind were started."""
    losses: NDArray[np.int64]
    """Times that spot was lost while the job ran on it."""
    lost_work_s: FloatArray

    @property
    def missed(self) -> BoolArray:
        """Runs that were late."""
        return ~np.isfinite(self.finish_s)


class _Clock:
    """State of all runs."""

    def __init__(self, job: Job, windows: Windows) -> None:
        runs, zones = windows.runs, windows.up.shape[1]
        self.job, self.windows = job, windows
        self.done_s = np.zeros(runs)
        self.starting_s = np.zeros(runs)
        self.mode = np.full(runs, WAIT, np.int8)
        self.zone = np.zeros(runs, np.int64)
        self.up_for_s = np.zeros((zones, runs))
        self.down_for_s = np.zeros(runs)
        self.seen_up = np.zeros(runs, bool)
        self.seen_losses = np.zeros(runs)
        self.usd = np.zeros(runs)
        self.finish_s = np.full(runs, np.inf)
        self.spent_s = np.zeros((3, runs))
        self.starts = np.zeros(runs, np.int64)
        self.losses = np.zeros(runs, np.int64)
        self.lost_work_s = np.zeros(runs)
        self.index = np.arange(runs)

    def saved_s(self, done_s: FloatArray) -> FloatArray:
        """Work that a loss leaves."""
        every = self.job.checkpoint_s
        return np.floor(done_s / every + 1e-9) * every if every > 0 else done_s

    def lose(self, step: int, active: BoolArray) -> None:
        """Take the nodes of runs whose zone lost some."""
        hit = self.windows.hit[step, self.zone, self.index] & (self.mode == SPOT) & active
        saved_s = self.saved_s(self.done_s)
        self.lost_work_s += np.where(hit, self.done_s - saved_s, 0.0)
        self.done_s = np.where(hit, saved_s, self.done_s)
        self.losses += hit
        self.mode = np.where(hit, WAIT, self.mode).astype(np.int8)

    def prices(self, step: int) -> FloatArray:
        """Spot price of the job by zone and run."""
        recorded = self.windows.usd_per_node_h
        if recorded is None:
            return np.full(self.up_for_s.shape, self.job.spot_usd_per_h)
        return np.asarray(recorded[step] * self.job.nodes)

    def look(self, step: int) -> tuple[View, NDArray[np.int64], FloatArray]:
        """What the launcher sees, the zone it would take or keep, and the prices."""
        tick_s, usd = self.windows.tick_s, self.prices(step)
        up = self.windows.up[step] & (usd < self.job.on_demand_usd_per_h)
        rank = np.where(up, self.up_for_s - 1e9 * usd, -np.inf)
        best = np.argmax(rank, axis=0)
        keep = (self.mode == SPOT) & up[self.zone, self.index]
        zone = np.where(keep, self.zone, best)
        any_up = up[zone, self.index]
        # Losses are those of the zone that is or would be used, also while the job runs elsewhere.
        self.seen_losses += self.seen_up & (~any_up | self.windows.hit[step, self.zone, self.index])
        self.seen_up = any_up
        left_s = self.job.work_s - self.done_s
        gain_s = np.where(self.mode != WAIT, np.maximum(tick_s - self.starting_s, 0.0), 0.0)
        view = View(
            tick_s=tick_s,
            elapsed_s=step * tick_s,
            left_s=left_s,
            safe_left_s=self.job.work_s - self.saved_s(self.done_s + np.minimum(gain_s, left_s)),
            time_left_s=np.full(left_s.shape, self.job.deadline_s - step * tick_s),
            deadline_s=self.job.deadline_s,
            work_s=self.job.work_s,
            mode=self.mode,
            starting_s=self.starting_s,
            spot_up=any_up,
            up_for_s=np.where(any_up, self.up_for_s[zone, self.index], 0.0),
            down_for_s=np.where(any_up, 0.0, self.down_for_s),
            losses=self.seen_losses,
        )
        self.up_for_s = np.where(self.windows.up[step], self.up_for_s + tick_s, 0.0)
        self.down_for_s = np.where(any_up, 0.0, self.down_for_s + tick_s)
        return view, zone, usd

    def run(self, step: int, choice: ModeArray, zone: NDArray[np.int64], usd: FloatArray) -> None:
        """One step of work, waiting or starting."""
        tick_s = self.windows.tick_s
        left_s = self.job.work_s - self.done_s
        active = left_s > DONE_S
        choice = np.where(active, choice, WAIT).astype(np.int8)
        held = choice != WAIT
        new = held & ((choice != self.mode) | ((choice == SPOT) & (zone != self.zone)))
        self.starting_s = np.where(new, self.job.restart_s, np.where(held, self.starting_s, 0.0))
        self.starts += new
        overhead_s = np.where(held, np.minimum(self.starting_s, tick_s), 0.0)
        room_s = np.where(held, tick_s - overhead_s, 0.0)
        gain_s = np.minimum(room_s, left_s)
        billed_s = np.where(left_s <= room_s, overhead_s + gain_s, np.where(held, tick_s, 0.0))
        price = np.where(choice == ON_DEMAND, self.job.on_demand_usd_per_h, usd[zone, self.index])
        self.usd += np.where(held, billed_s * price / 3600.0, 0.0)
        for mode in (SPOT, ON_DEMAND):
            self.spent_s[mode] += np.where(choice == mode, billed_s, 0.0)
        self.spent_s[WAIT] += np.where(active & ~held, tick_s, 0.0)
        self.starting_s = self.starting_s - overhead_s
        self.done_s = self.done_s + gain_s
        finish_s = step * tick_s + billed_s
        ended = (
            active & (self.job.work_s - self.done_s <= DONE_S) & (finish_s <= self.job.deadline_s + DONE_S)
        )
        self.finish_s = np.where(ended, finish_s, self.finish_s)
        self.mode, self.zone = choice, zone


def replay(policy: Policy, job: Job, windows: Windows) -> Replay:
    """Run a job under a policy on every stretch of recording.

    A step's capacity is known at its start, as in the simulator of Wu et al. (NSDI 2024); time within
    a step counts, so that the last one is paid for only until the job ends.

    Args:
        policy: decides at the start of every step.
        job: what is run.
        windows: capacity by step, zone and run, as long as the job's deadline.
    """
    clock = _Clock(job, windows)
    for step in range(windows.up.shape[0]):
        active = job.work_s - clock.done_s > DONE_S
        if not active.any():
            break
        clock.lose(step, active)
        view, zone, usd = clock.look(step)
        choice = policy.decide(view)
        clock.run(step, np.where(view.spot_up | (choice != SPOT), choice, WAIT).astype(np.int8), zone, usd)
    return Replay(
        usd=clock.usd,
        finish_s=clock.finish_s,
        spot_s=clock.spent_s[SPOT],
        on_demand_s=clock.spent_s[ON_DEMAND],
        wait_s=clock.spent_s[WAIT],
        starts=clock.starts,
        losses=clock.losses,
        lost_work_s=clock.lost_work_s,
    )


def on_demand_usd(job: Job) -> float:
    """Cost of the job on on-demand alone."""
    return (job.work_s + job.restart_s) * job.on_demand_usd_per_h / 3600.0


def offline_bound_usd(job: Job, windows: Windows) -> FloatArray:
    """Least cost of a job that knows the future and restarts for free, by run.

    The cheapest hours of spot that lie before the deadline are used as far as there is work, on-demand for
    the rest.
    """
    tick_s = windows.tick_s
    usd = job.spot_usd_per_h if windows.usd_per_node_h is None else windows.usd_per_node_h * job.nodes
    price = np.where(windows.up, usd, np.inf).min(axis=1)
    price = np.sort(np.minimum(price, job.on_demand_usd_per_h), axis=0)
    used_s = np.clip(job.work_s - np.arange(price.shape[0])[:, None] * tick_s, 0.0, tick_s)
    return np.asarray((price * used_s).sum(axis=0) / 3600.0)
