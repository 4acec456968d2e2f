"""Candidates of each task on each kind of machine: worked out once, for all sites that share it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace

from trainplan.candidate_cache import CandidateCache
from trainplan.candidates import Candidate, NearMiss, Screened, node_counts
from trainplan.rollouts import decoding, scoring, with_rollout
from trainplan.sites import Site
from trainplan.works import Work
from trainplan_models.case import Case
from trainplan_models.catalog.records import Accelerator
from trainplan_models.efficiency import precision_on
from trainplan_models.frameworks import framework_on
from trainplan_models.plan import Layout
from trainplan_models.units import format_quantity
from trainplan_models.workload import TrainSetup

NO_ROOM = "checkpoints, one of them in flight,"
"""Begins the rule on the storage of an owned cluster."""
THREADS = 2
Machine = tuple[str, int, float, int]


@dataclass(slots=True)
class Screening:
    """What was found for the tasks of a case so far."""

    case: Case
    cache: CandidateCache
    screened: dict[tuple[str, Machine], Screened] = field(default_factory=dict)
    nearest: dict[str, tuple[Site, NearMiss]] = field(default_factory=dict)
    """By task without a candidate on some machine, what came closest to fitting."""
    trained: dict[tuple[str, Machine], tuple[Candidate, ...]] = field(default_factory=dict)
    """Of reinforcement learning, candidates that only train, at the speed of the update alone."""
    evaluated: int = 0

    def screen(self, work: Work, sites: Sequence[Site], removed: Counter[str]) -> None:
        """Works out the candidates of a task on every kind of machine of the sites.

        Several kinds at a time, since numpy works outside Python's lock.
        """
        if work.setup is None:
            return
        kinds: dict[Machine, list[Site]] = {}
        for site in sites:
            if setup_on(work, site.accelerator) is not None:
                kinds.setdefault(site.machine, []).append(site)
        with ThreadPoolExecutor(THREADS) as pool:
            results = list(pool.map(lambda alike: self._screened(work, alike), kinds.values()))
        for alike, result in zip(kinds.values(), results, strict=True):
            self.screened[work.task.name, alike[0].machine] = result
            self.evaluated += result.evaluated
            removed.update(result.removed)
            known = self.nearest.get(work.task.name)
            near = result.nearest
            if near is not None and (known is None or _shortfall(near) < _shortfall(known[1])):
                self.nearest[work.task.name] = (alike[0], near)

    def candidates(self, work: Work, site: Site, removed: Counter[str]) -> tuple[Candidate, ...]:
        """Candidates of a task at a site; none where the site lacks what it needs."""
        most = ceiling(self.case, site)
        if framework_on(work.task.framework, site.accelerator.vendor) is None:
            removed[f"{work.task.framework} does not run on {site.accelerator.vendor} chips"] += 1
            return ()
        if work.setup is not None and setup_on(work, site.accelerator) is None:
            removed[f"{site.accelerator.name} has no {work.task.precision}"] += 1
            return ()
        kept_bytes = (self.case.checkpoints.keep_last + 1) * work.checkpoint_bytes
        free_bytes = site.owned.storage_free_bytes if site.owned else None
        if free_bytes is not None and kept_bytes > free_bytes:
            need, free = (format_quantity(size, "bytes") for size in (kept_bytes, free_bytes))
            removed[f"{NO_ROOM} need {need} of the {free} free on {site.name}"] += 1
            return ()
        if work.setup is None:
            counts = node_counts(most, self.case.resources.node_counts)
            return tuple(_hours_only(count, site) for count in counts if count <= MOST_NODES_FOR_HOURS)
        found = self.screened[work.task.name, site.machine].candidates
        return tuple(c for c in found if most is None or c.nodes <= most)

    def training(self, work: Work, site: Site) -> tuple[Candidate, ...]:
        """Candidates of a reinforcement learning task that only train, where its candidates may be at all."""
        able = {candidate.nodes for candidate in self.candidates(work, site, Counter())}
        return tuple(c for c in self.trained.get((work.task.name, site.machine), ()) if c.nodes in able)

    def _screened(self, work: Work, alike: Sequence[Site]) -> Screened:
        """Candidates on one kind of machine, up to the highest ceiling of its sites, by what the task does."""
        site, factor = alike[0], self.case.assumptions.throughput_factor
        setup = setup_on(work, site.accelerator)
        if setup is None:
            raise ValueError(f"{work.task.name} has no setup on {site.name}")
        ceilings = [ceiling(self.case, one) for one in alike]
        limited = [most for most in ceilings if most is not None]
        most = max(limited) if len(limited) == len(ceilings) else None
        counts = node_counts(most, self.case.resources.node_counts)
        chip, node, samples = site.accelerator, site.node, work.samples
        if work.training:
            result = self.cache.screen(setup, chip, node, counts, factor)
            if work.task.kind == "rl" and samples is not None:
                self.trained[work.task.name, site.machine] = result.candidates
                return replace(result, candidates=with_rollout(result.candidates, setup, samples, chip, node))
            return result
        alone = [count for count in counts if count == 1 or node.nic_bytes_per_s > 0.0]
        if samples is not None:
            found = decoding(setup, samples, chip, node, alone)
        else:
            found = scoring(setup, work.tokens, chip, node, alone)
        return Screened(found, Counter(), len(found))


MOST_NODES_FOR_HOURS = 64
"""Work known in accelerator-hours is not spread over more nodes than this."""


def setup_on(work: Work, accelerator: Accelerator) -> TrainSetup | None:
    """What a task runs on a chip, in the framework and precision it has; None where it lacks them."""
    framework = framework_on(work.task.framework, accelerator.vendor)
    precision = precision_on(work.task.precision, accelerator)
    if work.setup is None or framework is None or precision is None:
        return None
    return replace(work.setup, framework=framework, precision=precision)


def _shortfall(miss: NearMiss) -> float:
    return miss.peak_memory_bytes / miss.usable_memory_bytes


def _hours_only(nodes: int, site: Site) -> Candidate:
    return Candidate(nodes, Layout(dp=nodes * site.node.accelerators), 0.0, 0.0, 0.0, 0.0)


def ceiling(case: Case, site: Site) -> int | None:
    """Most nodes the case allows in one pool of this kind."""
    limits = []
    if case.resources.max_nodes is not None:
        limits.append(int(case.resources.max_nodes))
    if case.resources.max_accelerators is not None:
        limits.append(int(case.resources.max_accelerators) // site.node.accelerators)
    if site.owned is not None:
        limits.append(int(site.owned.nodes))
    if site.grant is not None:
        limits.append(int(site.grant.nodes))
    return min(limits) if limits else None
