"""A case and a catalogue become a problem in plain numbers, with the way back from options to what they mean."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from math import inf

from trainplan import calendar_windows, regional
from trainplan.candidate_cache import CandidateCache
from trainplan.candidates import NearMiss
from trainplan.options import Detail, OptionMaker
from trainplan.precedence import fewest_chains
from trainplan.problem import (
    Charges,
    Option,
    ProblemSpec,
    Product,
    Resource,
    TaskSpec,
)
from trainplan.products import products
from trainplan.screening import Screening
from trainplan.separate_roles import SeparateRoles, may_take_turns
from trainplan.sites import Site, find_sites, modes_at
from trainplan.works import Work, works_of
from trainplan.worlds import World, world_of
from trainplan_models import costs
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.network import Place

DAY_S = 86400.0
SCALABLE = ("pretrain", "continue")


@dataclass(slots=True)
class Assembly:
    """A problem and what its parts stand for."""

    case: Case
    catalog: Catalog
    world: World
    works: tuple[Work, ...]
    sites: tuple[Site, ...]
    spec: ProblemSpec
    details: tuple[Detail | None, ...]
    """One per option; None where the work takes no accelerators."""
    places: tuple[Place, ...]
    """One per region of the problem."""
    removed: dict[str, Counter[str]]
    """By task (the empty name: for all), how many configurations each rule removed."""
    evaluated: int
    nearest: dict[str, tuple[Site, NearMiss]]
    """By task without any candidate, what came closest to fitting."""
    _build: _Builder

    def removed_at(self, task: str, site: Site) -> Counter[str]:
        """How many layouts of a task each rule removed on the machines of a site."""
        screened = self._build.screening.screened.get((task, site.machine))
        return Counter() if screened is None else screened.removed

    def beyond(self) -> ProblemSpec:
        """The same problem with time past the deadline, to see how much later it would have to be.

        Options keep their numbers.
        """
        build = self._build
        spans = calendar_windows.windows(self.case, self.sites, self.catalog.modes, beyond=True)
        return _spec(_rewindowed(build, spans), _predecessors(self.case))


@dataclass(slots=True)
class _Builder:
    case: Case
    catalog: Catalog
    world: World
    works: tuple[Work, ...]
    sites: tuple[Site, ...]
    windows: tuple[tuple[float, float], ...]
    parallel: bool
    screening: Screening
    resources: list[Resource] = field(default_factory=list)
    places: list[Place] = field(default_factory=list)
    made: list[tuple[Option, Detail | None]] = field(default_factory=list)
    removed: dict[str, Counter[str]] = field(default_factory=dict)


def assemble(case: Case, catalog: Catalog, cache: CandidateCache | None = None) -> Assembly:
    """Everything the decision is made from.

    Args:
        case: what is asked.
        catalog: prices, machines, models.
        cache: candidates worked out before; what is new is added to it.

    Raises:
        InputError: the case names something the catalogue has not.
    """
    works = works_of(case, catalog)
    sites, site_removals = find_sites(case, catalog)
    predecessors = _predecessors(case)
    parallel = len(fewest_chains(predecessors)) > 1
    windows = calendar_windows.windows(case, sites, catalog.modes)
    screening = Screening(case, CandidateCache() if cache is None else cache)
    build = _Builder(case, catalog, world_of(case, catalog), works, sites, windows, parallel, screening)
    build.removed[""] = site_removals
    for number, work in enumerate(works):
        _add_task(build, number, work)
    spec = _spec(build, predecessors)
    return Assembly(
        case=case,
        catalog=catalog,
        world=build.world,
        works=works,
        sites=sites,
        spec=spec,
        details=tuple(detail for _, detail in build.made),
        places=tuple(build.places),
        removed=build.removed,
        evaluated=build.screening.evaluated,
        nearest=build.screening.nearest,
        _build=build,
    )


def _rewindowed(build: _Builder, windows: tuple[tuple[float, float], ...]) -> _Builder:
    """The same options and resources over other windows."""
    sites = {site.name: site for site in build.sites}
    again = replace(build, windows=windows, resources=[])
    for known in build.resources:
        site = sites.get(known.pool)
        held = tuple(inf for _ in windows) if site is None else _held(again, site, known.mode)
        frozen = () if site is None else calendar_windows.frozen_windows(build.case, site, windows)
        factors = () if site is None else _price_factors(again, site, known.mode)
        again.resources.append(replace(known, held_nodes=held, frozen=frozen, price_factor=factors))
    return again


def _predecessors(case: Case) -> list[tuple[int, ...]]:
    order = {task.name: number for number, task in enumerate(case.tasks)}
    return [tuple(order[name] for name in task.after) for task in case.tasks]


# Options


def _add_task(build: _Builder, number: int, work: Work) -> None:
    removed = build.removed.setdefault(work.task.name, Counter())
    if work.accelerator_hours == 0.0 and (work.setup is None or work.tokens == 0.0):
        _add_fixed(build, number, work)
        return
    chips = {build.catalog.accelerator(name).name for name in work.task.accelerators}
    sites = [site for site in build.sites if not chips or site.accelerator.name in chips]
    build.screening.screen(work, sites, removed)
    for site in sites:
        found = build.screening.candidates(work, site, removed)
        if not found:
            continue
        maker = OptionMaker(build.case, build.catalog, build.world, work, site)
        for mode in modes_at(site, work.task.billing) if may_take_turns(work) else ():
            resource = _resource(build, site, mode)
            build.made += maker.make(number, resource, _region(build, site.place), mode, found)
        removed.update(maker.removed)
    roles = SeparateRoles(build.case, build.catalog, build.world, work, build.screening, build.sites)
    for site, mode in roles.trainers(sites):
        resource, region = _resource(build, site, mode), _region(build, site.place)
        near = [(other, m, _resource(build, other, m)) for other, m in roles.generators_near(site)]
        build.made += roles.options(number, resource, region, (site, mode), near, build.resources)
    removed.update(roles.removed)


def _add_fixed(build: _Builder, number: int, work: Work) -> None:
    """Work of fixed length that takes no accelerators; its price is charged with the programme."""
    resource = len(build.resources)
    build.resources.append(Resource(f"{work.task.name}", "", "none", tuple(inf for _ in build.windows)))
    place = Place("", "")
    option = Option(
        task=number,
        resource=resource,
        region=_region(build, place),
        nodes=0,
        work_days=max(work.fixed_days, 1e-6),
        setup_days=0.0,
        daily=(),
        key=work.task.name,
    )
    build.made.append((option, None))


def _region(build: _Builder, place: Place) -> int:
    if place not in build.places:
        build.places.append(place)
    return build.places.index(place)


def _resource(build: _Builder, site: Site, name: str) -> int:
    for number, known in enumerate(build.resources):
        if (known.pool, known.mode) == (site.name, name):
            return number
    mode = build.catalog.modes[name]
    quota = _quota(build.case, site.name, mode.quota_key)
    build.resources.append(
        Resource(
            name=f"{site.name} {name}",
            pool=site.name,
            mode=name,
            held_nodes=_held(build, site, name),
            quota_name=f"resources.quotas[{site.name}].{mode.quota_key}" if quota < inf else "",
            committed=mode.paid == "committed",
            usd_per_node_day=site.usd_per_node_h[name] * 24.0 if mode.paid == "committed" else 0.0,
            grant_hours=inf if site.grant is None else site.grant.hours,
            unusable_tail_days=mode.unusable_tail_s / DAY_S,
            most_at_once_nodes=min(quota, inf if mode.max_nodes is None else mode.max_nodes),
            latest_start_days=inf if mode.max_lead_days is None else mode.max_lead_days,
            frozen=calendar_windows.frozen_windows(build.case, site, build.windows),
            price_factor=_price_factors(build, site, name),
        )
    )
    return len(build.resources) - 1


def _price_factors(build: _Builder, site: Site, mode: str) -> tuple[float, ...]:
    """What is bought is paid at the price of the day its purchase begins (see ``_products``)."""
    if build.catalog.modes[mode].paid == "committed":
        return ()
    return calendar_windows.price_factor(site, mode, build.windows)


def _begins_at_once(build: _Builder) -> bool:
    """A lone task that nothing holds back begins on day 0, and so does the first that is bought for it."""
    held_back = (
        any(site.owned or site.grant for site in build.sites)
        or build.case.tasks[0].release is not None
        or bool(build.case.resources.freezes)
        or any(site.price_over_time for site in build.sites)
    )
    return len(build.works) == 1 and not held_back


def _held(build: _Builder, site: Site, name: str) -> tuple[float, ...]:
    """Nodes of a pool under a mode in each window without buying anything."""
    mode = build.catalog.modes[name]
    if mode.paid == "committed":
        return tuple(0.0 for _ in build.windows)
    held = calendar_windows.held_nodes(build.case, site, build.windows)
    if mode.paid == "per-hour":
        return tuple(min(nodes, _quota(build.case, site.name, mode.quota_key)) for nodes in held)
    return held


def _quota(case: Case, pool: str, key: str) -> float:
    for quota in case.resources.quotas:
        if quota.pool == pool:
            nodes = getattr(quota, key.replace("-", "_"), None)
            if nodes is not None:
                return float(nodes)
    return inf


# The rest of the problem


def _spec(build: _Builder, predecessors: list[tuple[int, ...]]) -> ProblemSpec:
    case, catalog = build.case, build.catalog
    deadline = inf if case.deadline_s is None else case.deadline_s / DAY_S
    tasks = tuple(
        TaskSpec(
            name=work.task.name,
            predecessors=predecessors[number],
            release_days=(case.seconds_from_start(work.task.release) or 0.0) / DAY_S,
            due_days=_due_days(case, work),
            scalable=case.question == "most-tokens" and work.task.kind in SCALABLE,
            tokens=work.tokens,
        )
        for number, work in enumerate(build.works)
    )
    daily: Charges = (
        (costs.PEOPLE, costs.people_usd_per_day(case, catalog) + costs.operations_usd_per_day(case, catalog)),
        (costs.SECURITY, costs.security_usd_per_day(case, catalog)),
        (costs.METADATA, costs.metadata_usd_per_day(case, catalog)),
        (costs.CPU_NODES, costs.cpu_nodes_usd_per_day(case, catalog)),
    )
    bought = tuple(
        (costs.bought_category(work.task.kind), (work.task.cost_usd or 0.0) * work.task.expected_rounds)
        for work in build.works
        if work.task.cost_usd
    )
    migration = costs.migration_usd_per_cloud(case)
    clouds = {option.cloud for option, _ in build.made if option.cloud}
    return ProblemSpec(
        tasks=tasks,
        options=tuple(option for option, _ in build.made),
        resources=tuple(build.resources),
        regions=tuple(f"{place.cloud}/{place.region}" for place in build.places),
        windows=build.windows,
        products=_products(build, predecessors),
        datasets=tuple(regional.datasets(build)),
        staging_usd=regional.staging(build),
        move_usd=regional.moves(build),
        handover_usd=regional.handovers(build, predecessors),
        programme_daily=tuple((name, usd) for name, usd in daily if usd > 0.0),
        programme_once=bought,
        cloud_once_usd={cloud: migration for cloud in costs.new_clouds(case, clouds)} if migration else {},
        delay_usd_per_day=costs.delay_usd_per_day(case),
        delay_after_days=0.0 if deadline == inf else deadline,
        deadline_days=deadline,
        budget_usd=inf if case.budget_usd is None else case.budget_usd,
        max_nodes=inf if case.resources.max_nodes is None else float(case.resources.max_nodes),
        question=case.question if case.question != "safest" else "cheapest",
    )


def _due_days(case: Case, work: Work) -> float:
    due_s = case.seconds_from_start(work.task.due)
    return inf if due_s is None else due_s / DAY_S


def _products(build: _Builder, predecessors: list[tuple[int, ...]]) -> tuple[Product, ...]:
    return products(
        tuple(build.resources),
        [option for option, _ in build.made],
        build.sites,
        build.catalog.modes,
        build.windows,
        side_by_side=len(fewest_chains(predecessors)),
        at_once=_begins_at_once(build),
    )
