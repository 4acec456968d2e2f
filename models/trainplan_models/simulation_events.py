"""A job on nodes that are not taken away, failure by failure, for many scenarios at once.

Between two saves a job must live for a whole cycle (work between saves and the time they block). Failures come
as a Poisson process, so the cycles are independent trials: the number of failed ones before the last success
is negative binomial, and each failure falls at a truncated exponential moment of its cycle. That is the whole
event history, drawn in a few rounds instead of one event after the other; nothing is averaged.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]

EVENTS_AT_ONCE = 1_500_000
"""Failures drawn at a time, which bounds the memory."""


@dataclass(frozen=True, slots=True)
class Saving:
    """How the state of a job is saved."""

    interval_s: float
    """Work between two saves."""
    blocking_s: float
    persist_s: float
    """From the start of a save until it can be loaded; a failure before that falls back to the save before."""

    @property
    def cycle_s(self) -> float:
        """Time from save to save without a failure; the next one waits for the last to be written."""
        return max(self.interval_s + self.blocking_s, self.persist_s)

    def wall_s(self, work_s: FloatArray) -> FloatArray:
        """Time that work takes when nothing happens."""
        full = np.floor(work_s / self.interval_s - 1e-9)
        return np.asarray(full * self.cycle_s + work_s - full * self.interval_s)

    def done_s(self, ran_s: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Work done and work that can be loaded again, after running for a time since a save."""
        cycles = np.floor(ran_s / self.cycle_s + 1e-12)
        within_s = ran_s - cycles * self.cycle_s
        # A save begins when the interval ends and counts once it is persisted.
        pending = (within_s < self.persist_s - self.blocking_s) & (cycles > 0)
        durable = cycles - pending
        done_s = cycles * self.interval_s + np.minimum(within_s, self.interval_s)
        return np.asarray(done_s), np.asarray(durable * self.interval_s)


@dataclass(frozen=True, slots=True)
class Hazards:
    """What goes wrong and how long it takes to recover; arrays over scenarios."""

    node_per_s: FloatArray
    """Rate of failures caused by a node of the job."""
    soft_per_s: FloatArray
    """Rate of other failures."""
    hang_frac: float
    """Share of the other failures that are hangs."""
    hang_s: FloatArray
    """Until a hang is noticed."""
    detect_s: float
    swap_s: float
    """Replacement by a spare."""
    requeue_s: float
    """Replacement without one."""
    resume_s: float
    """Loading and warming up."""
    spares: int
    repair_s: float
    """Until a failed node is back as a spare."""
    recovery_factor: FloatArray
    recovery_spread_factor: float
    """Standard deviation of the logarithm of one recovery."""

    @property
    def per_s(self) -> FloatArray:
        """Rate of all failures."""
        return self.node_per_s + self.soft_per_s

    def recover(self, who: IntArray, rng: Generator) -> tuple[FloatArray, FloatArray]:
        """Time from a failure until work goes on, for one failure of each scenario in ``who``.

        A failure during a recovery starts it anew; the second array counts them.
        """
        total_s, again = np.zeros(who.size), np.zeros(who.size)
        pending = np.arange(who.size)
        while pending.size:
            owner = who[pending]
            try_s = self._attempt_s(owner, rng)
            rate = self.per_s[owner]
            cut = rng.exponential(size=owner.size) / np.maximum(rate, 1e-30)
            failed = cut < try_s
            total_s[pending] += np.where(failed, cut, try_s)
            again[pending] += failed
            pending = pending[failed]
        return total_s, again

    def _attempt_s(self, owner: IntArray, rng: Generator) -> FloatArray:
        """One recovery that is not disturbed."""
        node = rng.random(owner.size) * self.per_s[owner] < self.node_per_s[owner]
        spare = np.full(owner.size, self.spares > 0)
        if self.spares:
            # Nodes in repair when one more fails: an infinite-server queue in its steady state.
            in_repair = rng.poisson(self.node_per_s[owner] * self.repair_s)
            spare = ~node | (in_repair < self.spares)
        hang = ~node & (rng.random(owner.size) < self.hang_frac)
        base_s = self.detect_s + np.where(spare, self.swap_s, self.requeue_s)
        base_s = base_s + np.where(hang, self.hang_s[owner], 0.0)
        spread = self.recovery_spread_factor
        noise = np.exp(spread * rng.standard_normal(owner.size) - spread**2 / 2.0) if spread else 1.0
        return np.asarray(base_s * self.recovery_factor[owner] * noise + self.resume_s)


@dataclass(frozen=True, slots=True)
class History:
    """What became of a job; arrays over scenarios."""

    wall_s: FloatArray
    """From start to end."""
    lost_work_s: FloatArray
    down_s: FloatArray
    """Time in recoveries."""
    failures: IntArray
    """Those during recoveries included."""


def work_through(work_s: FloatArray, saving: Saving, hazards: Hazards, rng: Generator) -> History:
    """How long work takes with its saves and failures.

    Args:
        work_s: work at full speed, by scenario.
        saving: how state is saved.
        hazards: failures and recoveries.
        rng: source of randomness.
    """
    count = work_s.size
    wall_s, lost_s, down_s = np.zeros(count), np.zeros(count), np.zeros(count)
    failures = np.zeros(count, np.int64)
    expected = work_s / saving.interval_s * np.expm1(np.minimum(hazards.per_s * saving.cycle_s, 30.0)) + 1.0
    block = np.floor(np.cumsum(expected) / EVENTS_AT_ONCE).astype(np.int64)
    edges = np.flatnonzero(np.diff(block, prepend=-1))
    for start, end in zip(edges, [*edges[1:], count], strict=True):
        who = np.arange(start, end)
        part = _block(who, work_s[who], saving, hazards, rng)
        wall_s[who], lost_s[who], down_s[who], failures[who] = part
    return History(wall_s, lost_s, down_s, failures)


def _block(
    who: IntArray, work_s: FloatArray, saving: Saving, hazards: Hazards, rng: Generator
) -> tuple[FloatArray, FloatArray, FloatArray, IntArray]:
    """The scenarios ``who``: wall time, lost work, time down, failures."""
    full = np.maximum(np.floor(work_s / saving.interval_s - 1e-9), 0.0)
    last_s = work_s - full * saving.interval_s
    wall_s, lost_s, down_s = np.zeros(who.size), np.zeros(who.size), np.zeros(who.size)
    failures = np.zeros(who.size, np.int64)
    rounds = [(np.ones(who.size), last_s + saving.blocking_s), (full, np.full(who.size, saving.cycle_s))]
    while rounds:
        trials, length_s = rounds.pop()
        failed, again = _trials(who, trials, length_s, saving, hazards, rng)
        wall_s += trials * length_s + failed[0]
        lost_s += failed[1]
        down_s += failed[2]
        failures += failed[3].astype(np.int64)
        if again.any():
            rounds.append((again, np.full(who.size, saving.cycle_s)))
    return wall_s, lost_s, down_s, failures


def _trials(
    who: IntArray, trials: FloatArray, length_s: FloatArray, saving: Saving, hazards: Hazards, rng: Generator
) -> tuple[tuple[FloatArray, FloatArray, FloatArray, FloatArray], FloatArray]:
    """Failures until ``trials`` stretches of ``length_s`` succeeded.

    Returns:
        Time spent on failed stretches and recoveries, lost work, time down and number of failures; and the
        stretches that have to be done again because their save was not yet persisted.
    """
    rate = hazards.per_s[who]
    live = np.exp(-rate * length_s)
    needed = trials.astype(np.int64)
    risky = (needed > 0) & (live < 1.0)
    count = np.zeros(who.size, np.int64)
    count[risky] = rng.negative_binomial(needed[risky], np.maximum(live[risky], 1e-12))
    place = np.repeat(np.arange(who.size), count)
    at_s = -np.log1p(-rng.random(place.size) * (1.0 - live[place])) / rate[place]
    lost_s = np.minimum(at_s, np.minimum(saving.interval_s, length_s[place]))
    # The stretch before succeeded, else the job has just been loaded from a save that is there.
    unsaved = (at_s < saving.persist_s - saving.blocking_s) & (rng.random(place.size) < live[place])
    lost_s = lost_s + np.where(unsaved, saving.interval_s, 0.0)
    down_s, repeated = hazards.recover(who[place], rng)

    def by_scenario(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(place, weights=values, minlength=who.size), np.float64)

    failures = count + by_scenario(repeated)
    return (
        (by_scenario(at_s + down_s), by_scenario(lost_s), by_scenario(down_s), failures),
        by_scenario(unsaved.astype(float)),
    )
