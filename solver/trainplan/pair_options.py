"""Options of jobs on two groups of nodes (see ``role_pools``): what a day of both costs, how long the task takes.

The job stands when either group does: its failures are those of all nodes, and where the generating nodes are on spot
it waits for them to come back while the training nodes are paid. State is saved by the nodes that train, and kept in
their region.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from trainplan.options import Detail, Fleet, Floats, OptionMaker
from trainplan.problem import Beside, Option
from trainplan.role_pools import Generator, Pair
from trainplan.sites import Site
from trainplan.works import Work
from trainplan.worlds import World
from trainplan_models import reliability
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import SpotProfile
from trainplan_models.checkpoint import CheckpointPolicy
from trainplan_models.spot import availability_frac


@dataclass(frozen=True, slots=True)
class _PairFleet(Fleet):
    """The training nodes of pairs, with the generating ones; arrays by pair."""

    pairs: list[Pair]
    others: Floats
    """Generating nodes that work."""
    other_spare_nodes: Floats
    up_frac: Floats
    """Share of the time in which all generating nodes are there."""


class PairMaker(OptionMaker):
    """Makes the options of one task that train at one site and generate on the nodes of one generator."""

    def __init__(
        self, case: Case, catalog: Catalog, world: World, work: Work, site: Site, generator: Generator
    ) -> None:
        super().__init__(case, catalog, world, work, site)
        self.generator = generator
        self.other = OptionMaker(case, catalog, world, work, generator.site)

    def make_pairs(
        self, task: int, resource: int, region: int, mode: str, pairs: Sequence[Pair]
    ) -> list[tuple[Option, Detail]]:
        """Options of all pairs under the mode of the nodes that train, the useless ones dropped."""
        fleet, profile = self._pair_fleet(pairs), self.generator.profile
        made = []
        for tier in self._targets(profile is not None):
            variant = self._variant(mode, fleet, profile, tier)
            beside = self.other._daily(
                self.generator.mode,
                None,
                variant.policy,
                fleet.others + fleet.other_spare_nodes,
                fleet.up_frac,
            )
            for row in np.flatnonzero(variant.usable).tolist():
                option, detail = self._option(task, resource, region, mode, variant, row)
                made.append(
                    (self._widened(option, fleet, beside, row), self._with_rollout(detail, fleet, row))
                )
        return _undominated(made)

    def _pair_fleet(self, pairs: Sequence[Pair]) -> _PairFleet:
        """The pairs without spares, followed by those that are worth some on both sides."""
        failures, profile, every = self.world.failures, self.generator.profile, list(pairs)
        nodes = np.array([pair.candidate.nodes for pair in every], dtype=float)
        others = np.array([pair.rollout.nodes for pair in every], dtype=float)
        spares = np.zeros((2, len(every)))
        if self.case.assumptions.spares:
            quantile = self.catalog.default("spares.quantile")
            wanted = np.array([reliability.spares_for(n, failures, quantile) for n in (nodes, others)], float)
            worth = np.flatnonzero((wanted > 0).all(axis=0)).tolist()
            every += [pairs[place] for place in worth]
            nodes, others = np.append(nodes, nodes[worth]), np.append(others, others[worth])
            spares = np.concatenate([spares, wanted[:, worth]], axis=1)
        failed = reliability.failure_rate_per_s(nodes + others, failures)
        lost = reliability.preemption_rate_per_s(others, profile)
        total = np.maximum(failed + lost, 1.0 / reliability.MTBF_CEILING_S)
        restart_s = reliability.restart_s(failures, spares[0] > 0, 0.0)
        return _PairFleet(
            candidates=[pair.candidate for pair in every],
            nodes=nodes,
            spare_nodes=spares[0],
            mtbf_s=1.0 / total,
            base_s=(failed * restart_s + lost * failures.warmup_s) / total,
            pairs=every,
            others=others,
            other_spare_nodes=spares[1],
            up_frac=np.ones(len(nodes)) if profile is None else availability_frac(others, profile),
        )

    def _shares(
        self, fleet: Fleet, profile: SpotProfile | None, policy: CheckpointPolicy
    ) -> tuple[Floats, Floats]:
        assert isinstance(fleet, _PairFleet)
        return np.ones(len(fleet.nodes)), fleet.up_frac * policy.efficiency_frac

    def _setup_s(self, mode: str, load_s: Floats) -> Floats:
        """The later of both groups; only what is not there yet has to be acquired."""
        held = self.catalog.modes[mode].paid == "held"
        return super()._setup_s(self.generator.mode if held else mode, load_s)

    def _widened(self, option: Option, fleet: _PairFleet, beside: dict[str, Floats], row: int) -> Option:
        rollout, spares = fleet.pairs[row].rollout, int(fleet.other_spare_nodes[row])
        nodes = rollout.nodes + spares
        other = Beside(
            resource=self.generator.resource,
            nodes=nodes,
            daily=tuple((name, float(usd[row])) for name, usd in beside.items()),
            accelerator_hours_per_day=self.other._grant_hours_per_node_day() * nodes,
        )
        site = self.generator.site
        names = {
            "accelerator": site.accelerator.name,
            "pool": site.name,
            "billing": rollout.mode,
            "nodes": str(rollout.nodes),
        }
        groups = tuple(
            (kind, name if names[kind] == name else f"{name} + {names[kind]}") for kind, name in option.groups
        )
        key = f"{option.key}|{site.name}|{rollout.mode}|{rollout.nodes:05d}+{spares}"
        return replace(option, beside=(other,), key=key, groups=groups)

    def _with_rollout(self, detail: Detail, fleet: _PairFleet, row: int) -> Detail:
        rollout = replace(
            fleet.pairs[row].rollout,
            spares=int(fleet.other_spare_nodes[row]),
            paid_frac=float(fleet.up_frac[row]),
        )
        return replace(detail, rollout=rollout)


def _undominated(made: list[tuple[Option, Detail]]) -> list[tuple[Option, Detail]]:
    """Drops options that another beats in time, in each kind of cost of the work and of a start, and in nodes.

    All have the same task, resources and region. Each part's cost is compared by category, so that the comparison
    holds whatever becomes of prices.
    """
    if not made:
        return made
    names = sorted({name for option, _ in made for part in _parts(option) for name, _ in part.daily})

    def traits(option: Option) -> list[float]:
        usd = [dict(part.daily).get(name, 0.0) for part in _parts(option) for name in names]
        nodes = [part.nodes for part in _parts(option)]
        span = [option.work_days, option.setup_days]
        return [*span, *nodes, *(days * amount for days in span for amount in usd)]

    rows = np.array([traits(option) for option, _ in made])
    no_worse = (rows[:, None, :] <= rows[None, :, :]).all(axis=2)
    equal = no_worse & no_worse.T
    beaten = (no_worse & ~equal).any(axis=0) | np.tril(equal, -1).any(axis=1)
    return [made[place] for place in np.flatnonzero(~beaten)]


def _parts(option: Option) -> list[Option | Beside]:
    return [option, *option.beside]
