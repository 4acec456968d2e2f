"""Candidates become options: what a day of each costs and how long the task takes, under each billing mode.

Checkpoint policy, goodput, spot waits and spares are worked out here, for all node counts of a site at
once, so that the optimization sees only days and USD.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from trainplan.candidates import Candidate
from trainplan.problem import Option
from trainplan.sites import RolloutNodes, Site
from trainplan.works import Work
from trainplan.worlds import World
from trainplan_models import costs, network, reliability, spot, storage
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.catalog.records import SpotProfile, StorageTier
from trainplan_models.checkpoint import CheckpointPolicy, best_policy

Floats = np.ndarray[Any, np.dtype[np.float64]]

DAY_S = 86400.0
LEAST_GOODPUT_FRAC = 0.02
"""A job that does less useful work than this share of its time never finishes."""
TOO_LITTLE_GOODPUT = "interruptions leave almost no time for work"
LOST_WORK = "no checkpoint interval keeps max_lost_work"
TARGETS_KEPT = 3
"""Checkpoint targets looked at per site: the cheapest and the fastest ones."""


@dataclass(frozen=True, slots=True)
class Detail:
    """What an option stands for, for the plan and the report."""

    work: Work
    site: Site
    candidate: Candidate
    mode: str
    spares: int
    tier: StorageTier | None
    interval_s: float
    blocking_s: float
    persist_s: float
    restart_s: float
    lost_work_s: float
    mtbf_s: float
    capacity_bytes: float
    goodput_frac: float
    paid_frac: float
    setup_s: float
    milestone_tier: StorageTier | None
    copy_tier: StorageTier | None
    rollout: RolloutNodes | None = None
    """The nodes that generate, where they are others than those that train."""

    @property
    def working_nodes(self) -> int:
        """All nodes but spares."""
        return self.candidate.nodes + (0 if self.rollout is None else self.rollout.nodes)

    @property
    def working_accelerators(self) -> int:
        """Accelerators of all nodes but spares."""
        other = self.rollout
        beside = 0 if other is None else other.nodes * other.site.node.accelerators
        return self.candidate.nodes * self.site.node.accelerators + beside


class OptionMaker:
    """Makes the options of one task at one site."""

    def __init__(self, case: Case, catalog: Catalog, world: World, work: Work, site: Site) -> None:
        self.case, self.catalog, self.world, self.work, self.site = case, catalog, world, work, site
        self.speed = storage.speeds(catalog)
        self.object_bytes = catalog.default("storage.object_bytes")
        self.tiers = storage.tiers_at(catalog, site.place.cloud, site.place.region, site.place.rented)
        self.removed: Counter[str] = Counter()

    def make(
        self, task: int, resource: int, region: int, mode: str, found: Sequence[Candidate]
    ) -> list[tuple[Option, Detail]]:
        """Options of all node counts under one mode, the useless ones dropped."""
        preemptible = self.catalog.modes[mode].preemptible
        profile = self._spot_profile() if preemptible else None
        fleet = self._fleet(found, profile)
        variants = [self._variant(mode, fleet, profile, tier) for tier in self._targets(preemptible)]
        rows = [(variant, row) for variant in variants for row in np.flatnonzero(variant.usable).tolist()]
        kept = _undominated(rows, self._grant_hours_per_node_day(), mode in self.site.price_over_time)
        return [self._option(task, resource, region, mode, variant, row) for variant, row in kept]

    def _fleet(self, found: Sequence[Candidate], profile: SpotProfile | None) -> Fleet:
        """The candidates without spares, followed by those that are worth some with them."""
        nodes = np.array([candidate.nodes for candidate in found], dtype=float)
        spares, candidates = np.zeros(len(nodes)), list(found)
        if self.case.assumptions.spares:
            quantile = self.catalog.default("spares.quantile")
            wanted = np.asarray(reliability.spares_for(nodes, self.world.failures, quantile), dtype=float)
            candidates += [candidate for candidate, some in zip(found, wanted, strict=True) if some]
            nodes = np.concatenate([nodes, nodes[wanted > 0]])
            spares = np.concatenate([spares, wanted[wanted > 0]])
        return Fleet(
            candidates=candidates,
            nodes=nodes,
            spare_nodes=spares,
            mtbf_s=reliability.job_mtbf_s(nodes, self.world.failures, profile),
            base_s=reliability.mean_restart_s(nodes, self.world.failures, profile, spares > 0, 0.0),
        )

    def _spot_profile(self) -> SpotProfile:
        node, region = self.site.node, self.site.place.region
        return spot.profile_for(self.catalog, node.cloud, region, node.instance_type, self.world.spot_name)

    def _targets(self, preemptible: bool) -> list[StorageTier | None]:
        if self.work.checkpoint_bytes == 0.0:
            return [None]
        usable = [t for t in storage.checkpoint_tiers(self.tiers, preemptible) if t.kind != "local"]
        objects = [t for t in usable if t.mbps_per_tib is None]
        parallel = [t for t in usable if t.mbps_per_tib is not None]
        objects.sort(key=lambda t: (t.usd_per_gb_month, t.name))
        parallel.sort(key=lambda t: (t.usd_per_gb_month / (t.mbps_per_tib or 1.0), t.name))
        return [*objects[:1], *parallel[: TARGETS_KEPT - 1]]

    def _variant(
        self, mode: str, fleet: Fleet, profile: SpotProfile | None, tier: StorageTier | None
    ) -> Variant:
        nodes, spares = fleet.nodes, fleet.spare_nodes
        policy = self._policy(tier, nodes, fleet.mtbf_s, fleet.base_s)
        paid, goodput = self._shares(fleet, profile, policy)
        setup_s = self._setup_s(mode, np.maximum(policy.restart_s - fleet.base_s, 0.0))
        bare, starved = spares == 0, goodput < LEAST_GOODPUT_FRAC
        self.removed[LOST_WORK] += int(np.count_nonzero(bare & ~policy.feasible))
        self.removed[TOO_LITTLE_GOODPUT] += int(np.count_nonzero(bare & policy.feasible & starved))
        return Variant(
            fleet=fleet,
            tier=tier,
            policy=policy,
            nodes=nodes + spares,
            goodput_frac=goodput,
            paid_frac=paid,
            setup_s=setup_s,
            work_days=self._work_days(mode, fleet, np.maximum(goodput, 1e-9), setup_s),
            daily=self._daily(mode, tier, policy, nodes + spares, paid),
            usable=policy.feasible & ~starved,
        )

    def _shares(
        self, fleet: Fleet, profile: SpotProfile | None, policy: CheckpointPolicy
    ) -> tuple[Floats, Floats]:
        """Paid and useful share of the time."""
        if profile is None:
            return np.ones(len(fleet.nodes)), policy.efficiency_frac
        shares = spot.shares(fleet.nodes, profile, policy.efficiency_frac)
        return shares.paid_frac, shares.useful_frac

    def _policy(
        self, tier: StorageTier | None, nodes: Floats, mtbf_s: Floats, base_s: Floats
    ) -> CheckpointPolicy:
        kept = self.case.checkpoints
        if tier is None:
            # Work without state to save: a failure repeats what one node had in hand, which is little.
            ones, zeros = np.ones(len(nodes)), np.zeros(len(nodes))
            efficiency = mtbf_s / (mtbf_s + base_s)
            return CheckpointPolicy(ones, zeros, zeros, base_s, zeros, efficiency, ones > 0.0, zeros)
        return best_policy(
            self.work.checkpoint_bytes,
            nodes,
            mtbf_s,
            base_s,
            tier,
            self.speed,
            accelerators_per_node=self.site.node.accelerators,
            max_lost_work_s=self.case.max_lost_work_s,
            fixed_interval_s=kept.interval_s,
            asynchronous=kept.asynchronous,
            keep_last=kept.keep_last,
        )

    def _setup_s(self, mode: str, load_s: Floats) -> Floats:
        held = self.catalog.modes[mode].paid == "held"
        acquire_s = 0.0 if held else self.catalog.default("setup.acquire_s")
        return acquire_s + load_s + self.world.failures.warmup_s

    def _work_days(self, mode: str, fleet: Fleet, goodput_frac: Floats, setup_s: Floats) -> Floats:
        work = self.work
        if work.setup is not None:
            useful_s = work.tokens / np.array([candidate.tokens_per_s for candidate in fleet.candidates])
        else:
            useful_s = work.accelerator_hours * 3600.0 / (fleet.nodes * self.site.node.accelerators)
        stretch = 1.0 if self.site.owned is None else 24.0 / self.site.owned.queue_hours_per_day
        days = useful_s / goodput_frac / DAY_S * stretch
        starts = work.task.rounds - 1.0 + np.zeros(len(fleet.nodes))
        longest_s = self.catalog.modes[mode].max_run_s
        if longest_s is not None:
            # Every run ends after the longest time allowed and has to be set up again.
            starts += days * DAY_S / longest_s
        return np.asarray(days + starts * setup_s / DAY_S)

    # What a calendar day costs, by category; the same rates as the accounting charges

    def _daily(
        self, mode: str, tier: StorageTier | None, policy: CheckpointPolicy, nodes: Floats, paid_frac: Floats
    ) -> dict[str, Floats]:
        case, catalog, site = self.case, self.catalog, self.site
        node_hours = nodes * 24.0 * paid_frac
        price = site.usd_per_node_h[mode]
        category = costs.node_category(self.work.task.kind)
        charges: dict[str, Floats] = {}
        if catalog.modes[mode].paid != "committed":
            charges[category] = node_hours * price
        if category == costs.COMPUTE:
            charges[costs.EXPERIMENTS] = costs.experiments_frac(case) * node_hours * price
        charges[costs.POWER] = node_hours * site.power_usd_per_node_h
        rate = costs.observability_usd_per_node_day(case, catalog, site.place.rented)
        charges[costs.LOGGING] = node_hours / 24.0 * rate
        if tier is not None:
            charges[costs.STORAGE] = self._storage_usd_per_day(tier, policy, paid_frac)
            charges[costs.NETWORK] = np.full(len(nodes), self._copy_traffic_usd_per_day)
        expected = self.work.task.expected_frac
        return {name: usd * expected for name, usd in charges.items() if usd.any()}

    def _storage_usd_per_day(self, tier: StorageTier, policy: CheckpointPolicy, paid_frac: Floats) -> Floats:
        kept = np.array(
            [storage.billed_bytes(tier, size, self.object_bytes) for size in policy.capacity_bytes]
        )
        saves = DAY_S * paid_frac / (policy.interval_s + policy.blocking_s)
        each = storage.save_requests_usd(tier, self.work.checkpoint_bytes, self.object_bytes)
        return np.asarray(_kept_usd_per_day(tier, kept) + saves * each + self._kept_copies_usd_per_day)

    @cached_property
    def _copy_traffic_usd_per_day(self) -> float:
        copies = costs.copies_per_s(self.case) * DAY_S
        if copies == 0.0:
            return 0.0
        return copies * network.second_region_usd(self.catalog, self.site.place, self.work.checkpoint_bytes)

    @cached_property
    def _kept_copies_usd_per_day(self) -> float:
        """Milestones and copies in the second region."""
        size, usd = self.work.checkpoint_bytes, 0.0
        if self.milestone_tier is not None:
            keep_s = costs.milestone_keep_s(self.case, self.catalog)
            each = storage.storage_usd(self.milestone_tier, size, keep_s, 0.0, self.object_bytes)
            usd += costs.milestones_per_s(self.case) * DAY_S * each
        if self.copy_tier is not None:
            copies = costs.copies_per_s(self.case) * DAY_S
            usd += copies * storage.save_requests_usd(self.copy_tier, size, self.object_bytes)
            held = self.case.checkpoints.keep_last * size
            billed = storage.billed_bytes(self.copy_tier, held, self.object_bytes)
            usd += float(_kept_usd_per_day(self.copy_tier, billed))
        return usd

    @cached_property
    def milestone_tier(self) -> StorageTier | None:
        """Cheapest tier for what is kept long."""
        if costs.milestones_per_s(self.case) == 0.0 or self.work.checkpoint_bytes == 0.0:
            return None
        keep_s = costs.milestone_keep_s(self.case, self.catalog)
        tiers = storage.milestone_tiers(self.tiers) or self.tiers
        return storage.cheapest_tier(tiers, self.work.checkpoint_bytes, keep_s, 0.0, self.object_bytes)[0]

    @cached_property
    def copy_tier(self) -> StorageTier | None:
        """Cheapest tier for the copies in the second region, which change all the time."""
        if costs.copies_per_s(self.case) == 0.0 or self.work.checkpoint_bytes == 0.0:
            return None
        tiers = [t for t in storage.milestone_tiers(self.tiers) if t.min_days == 0] or list(self.tiers)
        size = self.work.checkpoint_bytes
        return storage.cheapest_tier(tiers, size, 30 * DAY_S, 0.0, self.object_bytes)[0]

    def _grant_hours_per_node_day(self) -> float:
        grant = self.site.grant
        if grant is None:
            return 0.0
        return self.site.node.accelerators * 24.0 * grant.units_per_accelerator_hour

    def _option(
        self, task: int, resource: int, region: int, mode: str, variant: Variant, row: int
    ) -> tuple[Option, Detail]:
        candidate, tier = variant.fleet.candidates[row], variant.tier
        detail = Detail(
            work=self.work,
            site=self.site,
            candidate=candidate,
            mode=mode,
            spares=int(variant.fleet.spare_nodes[row]),
            tier=tier,
            interval_s=float(variant.policy.interval_s[row]),
            blocking_s=float(variant.policy.blocking_s[row]),
            persist_s=float(variant.policy.persist_s[row]),
            restart_s=float(variant.policy.restart_s[row]),
            lost_work_s=float(variant.policy.lost_work_s[row]),
            mtbf_s=float(variant.fleet.mtbf_s[row]),
            capacity_bytes=float(variant.policy.capacity_bytes[row]),
            goodput_frac=float(variant.goodput_frac[row]),
            paid_frac=float(variant.paid_frac[row]),
            setup_s=float(variant.setup_s[row]),
            milestone_tier=self.milestone_tier,
            copy_tier=self.copy_tier,
        )
        option = Option(
            task=task,
            resource=resource,
            region=region,
            nodes=candidate.nodes + detail.spares,
            work_days=float(variant.work_days[row]),
            setup_days=detail.setup_s / DAY_S,
            daily=tuple((name, float(usd[row])) for name, usd in variant.daily.items()),
            accelerator_hours_per_day=self._grant_hours_per_node_day() * variant.nodes[row],
            cloud=self.site.place.cloud if self.site.place.rented else "",
            key=f"{self.site.name}|{mode}|{candidate.nodes:05d}+{detail.spares}|{tier.name if tier else ''}",
            groups=(
                ("accelerator", self.site.accelerator.name),
                ("pool", self.site.name),
                ("billing", mode),
                ("nodes", str(candidate.nodes)),
            ),
        )
        return option, detail


@dataclass(frozen=True, slots=True)
class Fleet:
    """Node counts without and with spares under one billing mode; lists and arrays by candidate."""

    candidates: list[Candidate]
    nodes: Floats
    """Nodes that work."""
    spare_nodes: Floats
    mtbf_s: Floats
    base_s: Floats
    """Mean restart without the load."""


@dataclass(frozen=True, slots=True)
class Variant:
    """All node counts under one checkpoint target; arrays by candidate."""

    fleet: Fleet
    tier: StorageTier | None
    policy: CheckpointPolicy
    nodes: Floats
    """Spares included."""
    goodput_frac: Floats
    paid_frac: Floats
    setup_s: Floats
    work_days: Floats
    daily: dict[str, Floats]
    usable: np.ndarray[Any, np.dtype[np.bool_]]


def _kept_usd_per_day(tier: StorageTier, billed: Any) -> Any:
    return billed / storage.GB_BYTES * tier.usd_per_gb_month * DAY_S / storage.MONTH_S


def _daily_usd(variant: Variant, row: int, priced: bool | None) -> float:
    """Cost of a day: what follows the price of nodes, what does not, or (None) all of it."""
    return sum(
        float(usd[row]) for name, usd in variant.daily.items() if priced in (None, name in costs.PRICED)
    )


def _undominated(
    rows: list[tuple[Variant, int]], grant_hours_per_node_day: float, price_changes: bool
) -> list[tuple[Variant, int]]:
    """Drops options of one site and mode that another beats in time, cost of the work and of a start, and nodes.

    All have the same task, resource and region, so one that is no worse in all of these can stand in for
    another in every plan. Where the price of nodes changes, what follows it is compared apart from the rest.
    """
    if not rows:
        return rows
    work = np.array([variant.work_days[row] for variant, row in rows])
    setup = np.array([variant.setup_s[row] for variant, row in rows])
    kinds = (True, False) if price_changes else (None,)
    daily = np.array([[_daily_usd(variant, row, kind) for variant, row in rows] for kind in kinds])
    nodes = np.array([variant.nodes[row] for variant, row in rows])
    drawn = work * nodes * grant_hours_per_node_day
    traits = np.stack([work, *work * daily, setup, *setup * daily, nodes, drawn])
    no_worse = (traits[:, :, None] <= traits[:, None, :]).all(axis=0)
    equal = no_worse & no_worse.T
    repeated = np.tril(equal, -1).any(axis=1)
    beaten = np.asarray((no_worse & ~equal).any(axis=0) | repeated)
    return [rows[place] for place in np.flatnonzero(~beaten)]
