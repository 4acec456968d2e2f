"""Which pools may train and which may generate, for reinforcement learning on two groups of nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from math import inf

from trainplan.candidates import node_counts
from trainplan.options import Detail
from trainplan.pair_options import PairMaker
from trainplan.problem import Option, Resource
from trainplan.role_pools import Generator, Pair, Training, pairs_of
from trainplan.screening import Screening, ceiling, setup_on
from trainplan.sites import Site, modes_at
from trainplan.works import Work
from trainplan.worlds import World
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.spot import profile_for

BETWEEN_POOLS = "network.between_pools_bytes_per_s_per_node"
TAKEN_AWAY = "training on its own nodes: not where they can be taken away or end after a time"
TWO_PURCHASES = "separate pools: only one of the two is bought in advance"


def may_take_turns(work: Work) -> bool:
    """Whether generation, scoring and update may take turns on the same nodes."""
    rollout = work.task.rollout
    return work.task.kind != "rl" or rollout is None or rollout.placement != "separate"


class SeparateRoles:
    """The options of one task that train and generate on different nodes; none for what is no such task."""

    def __init__(
        self,
        case: Case,
        catalog: Catalog,
        world: World,
        work: Work,
        screening: Screening,
        sites: Sequence[Site],
    ) -> None:
        self.case, self.catalog, self.world, self.work = case, catalog, world, work
        self.screening, self.sites = screening, sites
        self.removed: Counter[str] = Counter()
        rollout = work.task.rollout if work.task.kind == "rl" else None
        self.rollout = None if rollout is None or rollout.placement == "together" else rollout

    def trainers(self, sites: Sequence[Site]) -> Iterator[tuple[Site, str]]:
        """Pools and billing modes that may train."""
        if self.rollout is None:
            return
        for site in sites:
            for mode in modes_at(site, self.work.task.billing):
                known = self.catalog.modes[mode]
                if known.preemptible or known.max_run_s is not None:
                    self.removed[TAKEN_AWAY] += 1
                elif self.screening.training(self.work, site):
                    yield site, mode

    def generators_near(self, site: Site) -> list[tuple[Site, str]]:
        """Pools and billing modes that may generate for nodes that train at a site: of the same region and maker."""
        if self.rollout is None:
            return []
        wanted = self.rollout.accelerators or self.work.task.accelerators
        chips = {self.catalog.accelerator(name).name for name in wanted}
        found = [
            (other, mode)
            for other in self.sites
            if other.place == site.place
            and other.accelerator.vendor == site.accelerator.vendor
            and (not chips or other.accelerator.name in chips)
            and setup_on(self.work, other.accelerator) is not None
            for mode in modes_at(other, self.rollout.billing or self.work.task.billing)
        ]
        return [(other, mode) for other, mode in found if self.catalog.modes[mode].max_run_s is None]

    def options(
        self,
        task: int,
        resource: int,
        region: int,
        trainer: tuple[Site, str],
        near: Sequence[tuple[Site, str, int]],
        resources: Sequence[Resource],
    ) -> list[tuple[Option, Detail]]:
        """Options that train on one resource.

        Args:
            task: number of the task.
            resource: number of the resource that trains.
            region: number of its region.
            trainer: its pool and mode.
            near: pools and modes that may generate, with the number of their resource.
            resources: all resources so far.
        """
        site, mode = trainer
        setup, samples = setup_on(self.work, site.accelerator), self.work.samples
        own = resources[resource]
        most = inf if own.committed else max(own.held_nodes)
        candidates = [c for c in self.screening.training(self.work, site) if c.nodes <= most]
        if self.rollout is None or setup is None or samples is None or not candidates:
            return []
        overlapped = self.rollout.max_staleness_steps > 0
        training = Training(site, mode, candidates, setup, samples, overlapped)
        generators = [
            self._generator(other, m, number, resources[number])
            for other, m, number in near
            if self._may_both(number, resource, resources)
        ]
        by_generator: dict[int, list[Pair]] = {}
        between = self.catalog.default(BETWEEN_POOLS)
        for pair in pairs_of(training, generators, self.case.resources, between):
            by_generator.setdefault(pair.generator.resource, []).append(pair)
        made = []
        for pairs in by_generator.values():
            maker = PairMaker(self.case, self.catalog, self.world, self.work, site, pairs[0].generator)
            made += maker.make_pairs(task, resource, region, mode, pairs)
            self.removed.update(maker.removed)
        return made

    def _may_both(self, one: int, other: int, resources: Sequence[Resource]) -> bool:
        """A task runs on one purchase at a time."""
        allowed = one == other or not (resources[one].committed and resources[other].committed)
        if not allowed:
            self.removed[TWO_PURCHASES] += 1
        return allowed

    def _generator(self, site: Site, mode: str, number: int, resource: Resource) -> Generator:
        most = inf if resource.committed else max(resource.held_nodes)
        counts = node_counts(ceiling(self.case, site), self.case.resources.node_counts)
        node, preemptible = site.node, self.catalog.modes[mode].preemptible
        held = min(resource.held_nodes) < inf or resource.grant_hours < inf
        return Generator(
            site=site,
            mode=mode,
            resource=number,
            counts=tuple(n for n in counts if n <= most and (n == 1 or node.nic_bytes_per_s > 0.0)),
            limited=resource.committed or held,
            profile=profile_for(
                self.catalog, node.cloud, site.place.region, node.instance_type, self.world.spot_name
            )
            if preemptible
            else None,
        )
