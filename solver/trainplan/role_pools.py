"""Reinforcement learning on two groups of nodes: some train, others generate what is trained on.

Both groups lie in one region, where weights travel for nothing; they are of one pool or of two, under one billing
mode or two. For each pool and mode that trains, all numbers of its nodes are set against all numbers of nodes of
every pool that may generate, and of all pairs those are kept that no other beats in time and cost: ``KEPT`` of them,
and as many again on each resource that is there in limited number or has to be bought.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from trainplan.candidates import Candidate
from trainplan.sites import RolloutNodes, Site
from trainplan_models.case_resources import Resources
from trainplan_models.catalog.records import SpotProfile
from trainplan_models.rollout import Samples
from trainplan_models.separate_rollout import Group, SeparateStep, separate_step
from trainplan_models.spot import availability_frac
from trainplan_models.workload import TrainSetup

KEPT = 16
"""Pairs of node counts kept for a pool that trains, spread over the range from cheapest to fastest."""
Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]


@dataclass(frozen=True, slots=True)
class Generator:
    """Nodes of one pool under one billing mode that may generate."""

    site: Site
    mode: str
    resource: int
    counts: tuple[int, ...]
    """Node counts that are looked at."""
    limited: bool
    """Whether only so many nodes are there, or none before they are bought."""
    profile: SpotProfile | None
    """How they are taken away; None where they are not."""


@dataclass(frozen=True, slots=True)
class Pair:
    """Training and generating nodes that make up one job."""

    candidate: Candidate
    """What trains, at the speed of whole steps."""
    generator: Generator
    rollout: RolloutNodes


@dataclass(frozen=True, slots=True)
class Training:
    """What is trained where, and what is generated for it in a step."""

    site: Site
    mode: str
    candidates: Sequence[Candidate]
    """At the speed of the update alone."""
    setup: TrainSetup
    samples: Samples
    overlapped: bool
    """Whether the next samples are generated during the update."""


@dataclass(frozen=True, slots=True)
class _Table:
    """All pairs with one generator; training node counts by row, generating ones by column."""

    generator: Generator
    step: SeparateStep
    days: Floats
    """Calendar time of a step in any unit, waits for spot included; infinite where a pair cannot be."""
    usd: Floats
    """Cost of a step in any unit."""


def pairs_of(
    training: Training, generators: Iterable[Generator], resources: Resources, between_bytes_per_s: float
) -> Iterator[Pair]:
    """The pairs worth an option.

    Args:
        training: the nodes that train.
        generators: the nodes that may generate.
        resources: ceilings on nodes and accelerators.
        between_bytes_per_s: rate at which a node takes in weights from another pool.
    """
    tables = [_table(training, generator, resources, between_bytes_per_s) for generator in generators]
    free = [table for table in tables if not table.generator.limited]
    for group in (free, *([table] for table in tables if table.generator.limited)):
        places = [(table, place) for table in group for place in front(table.days.ravel(), table.usd.ravel())]
        days = np.array([table.days.flat[place] for table, place in places])
        usd = np.array([table.usd.flat[place] for table, place in places])
        for number in front(days, usd, KEPT):
            yield _pair(training, *places[number])


def front(days: Floats, usd: Floats, most: int | None = None) -> list[int]:
    """Places that no other beats in time and money, from the fastest to the cheapest.

    Args:
        days: time by place.
        usd: money by place.
        most: at most so many, spread over all of them; absent, all.
    """
    order = np.lexsort((usd, days))
    order = order[np.isfinite(days[order])]
    if not len(order):
        return []
    least_before = np.minimum.accumulate(np.concatenate([[np.inf], usd[order][:-1]]))
    kept = order[usd[order] < least_before]
    count = len(kept) if most is None else min(most, len(kept))
    wanted = np.unique(np.linspace(0, len(kept) - 1, count).round().astype(int))
    return [int(place) for place in kept[wanted]]


def _table(
    training: Training, generator: Generator, resources: Resources, between_bytes_per_s: float
) -> _Table:
    site, other = training.site, generator.site
    nodes = np.array([candidate.nodes for candidate in training.candidates])
    counts = np.array(generator.counts)
    step = separate_step(
        training.setup,
        training.samples,
        Group(site.accelerator, site.node, nodes),
        Group(other.accelerator, other.node, counts),
        np.array([candidate.tokens_per_s for candidate in training.candidates]),
        between_bytes_per_s=None if other.name == site.name else between_bytes_per_s,
        overlapped=training.overlapped,
    )
    up = np.ones(len(counts)) if generator.profile is None else availability_frac(counts, generator.profile)
    chips = nodes[:, None] * site.node.accelerators + counts[None, :] * other.node.accelerators
    allowed = np.ones(chips.shape, dtype=bool)
    if resources.max_nodes is not None:
        allowed &= nodes[:, None] + counts[None, :] <= resources.max_nodes
    if resources.max_accelerators is not None:
        allowed &= chips <= resources.max_accelerators
    days = np.where(allowed, step.step_s / up[None, :], np.inf)
    own = nodes * (site.usd_per_node_h[training.mode] + site.power_usd_per_node_h)
    beside = counts * up * (other.usd_per_node_h[generator.mode] + other.power_usd_per_node_h)
    return _Table(generator, step, days, days * (own[:, None] + beside[None, :]))


def _pair(training: Training, table: _Table, place: int) -> Pair:
    (row, column), step, generator = divmod(place, table.usd.shape[1]), table.step, table.generator
    seconds, trained = float(step.step_s[row, column]), training.candidates[row]
    candidate = replace(
        trained,
        step_s=seconds,
        tokens_per_s=training.samples.tokens / seconds,
        mfu_frac=trained.mfu_frac * float(step.update_s[row]) / seconds,
    )
    rollout = RolloutNodes(
        site=generator.site,
        mode=generator.mode,
        nodes=generator.counts[column],
        spares=0,
        paid_frac=1.0,
        tensor=int(step.tensor[column]),
        scores=bool(step.scored_by_rollout[row, column]),
        generation_s=float(step.generation_s[column]),
        weight_transfer_s=float(step.weight_transfer_s[row, column]),
    )
    return Pair(candidate, generator, rollout)
