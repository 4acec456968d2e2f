"""What the result rests on besides the case: prices with their dates, defaults, models of the world."""

from __future__ import annotations

from math import inf

from trainplan.assembly import Assembly
from trainplan.candidates import HEADROOM_FRAC
from trainplan.separate_roles import BETWEEN_POOLS
from trainplan.sites import Site
from trainplan.works import Work
from trainplan_models import costs
from trainplan_models.at_work import most_nodes_at_once
from trainplan_models.plan import AssumedValue, Plan, Segment

DAY_S = 86400.0


def price_dates(assembly: Assembly, segments: tuple[Segment, ...]) -> tuple[str, ...]:
    """Dates of the prices the plan uses."""
    sites = {site.name: site for site in assembly.sites}
    dates = {sites[s.pool].price_as_of.get(s.mode, "") for s in segments if s.pool in sites}
    return tuple(sorted(dates - {""}))


def assumptions_of(assembly: Assembly, plan: Plan) -> tuple[AssumedValue, ...]:
    """Every default and price that moved the result, with its source."""
    rows = [*_prices(assembly, plan), *_quotas(assembly, plan), *_world(assembly, plan), *_tasks(assembly)]
    rows += _roles(assembly, plan)
    if any(segment.peak_memory_bytes > 0.0 for segment in plan.segments):
        rows.append(_headroom())
    return (*rows, *_purchases(assembly), *_defaults(assembly, plan))


def _purchases(assembly: Assembly) -> list[AssumedValue]:
    """How often each committed resource could be bought, where it might be needed more often than once."""
    spec = assembly.spec
    if not spec.products or (len(spec.tasks) == 1 and len(spec.windows) == 1):
        return []
    times = 1 + max(product.purchase for product in spec.products)
    return [
        AssumedValue(
            key="purchases of a pool under one billing mode",
            value=f"at most {times}",
            source="keeps the problem small enough to be solved; see trainplan.products",
            as_of="",
            effect="plans that buy it more often are not looked at",
        )
    ]


def _prices(assembly: Assembly, plan: Plan) -> list[AssumedValue]:
    offers = {(offer.pool, offer.mode): offer for offer in assembly.catalog.offers}
    sites = {site.name: site for site in assembly.sites}
    rows = []
    for pool, mode in dict.fromkeys((s.pool, s.mode) for s in plan.segments):
        offer = offers.get((pool, mode))
        usd = sites[pool].usd_per_node_h[mode]
        rows.append(
            AssumedValue(
                key=f"price {pool} {mode}",
                value=f"{usd:.4g} USD per node-hour",
                source=offer.source if offer else "commitments of the catalogue or the case",
                as_of=sites[pool].price_as_of.get(mode, ""),
                effect="as the catalogue has it; what you are quoted may differ" if offer else "",
            )
        )
        dated = [row.source for row in assembly.catalog.dated_prices if (row.pool, row.mode) == (pool, mode)]
        told = ["resources.price_changes of the case"] if assembly.case.resources.price_changes else []
        rows += _price_changes(sites[pool], mode, "; ".join(dict.fromkeys([*dated, *told])))
    return rows


def _price_changes(site: Site, mode: str, source: str) -> list[AssumedValue]:
    price = site.price_over_time.get(mode)
    if price is None:
        return []
    return [
        AssumedValue(
            key=f"price {site.name} {mode} from day {start_s / DAY_S:.4g}",
            value=f"{usd:.4g} USD per node-hour",
            source=source,
            as_of="",
            effect="when the work is done and what is bought when",
        )
        for start_s, usd in zip(price.starts_s, price.usd_per_node_h, strict=True)
    ]


def _quotas(assembly: Assembly, plan: Plan) -> list[AssumedValue]:
    return [
        AssumedValue(
            key=f"quota {pool} {mode}",
            value=f"none: {nodes} nodes at once are taken to be there",
            source="resources.quotas of the case does not name it",
            as_of="",
            effect="node counts and dates, where you can have fewer",
        )
        for (pool, mode), nodes in _unlimited(assembly, plan).items()
    ]


def _unlimited(assembly: Assembly, plan: Plan) -> dict[tuple[str, str], int]:
    """Most nodes at once, by pool and billing mode, of those that nobody has said are there."""
    unlimited = {
        (resource.pool, resource.mode)
        for resource in assembly.spec.resources
        if not resource.committed and max(resource.held_nodes) == inf == resource.grant_hours
    }
    return {
        place: nodes
        for place, nodes in most_nodes_at_once(plan.segments).items()
        if place in unlimited and nodes
    }


def _world(assembly: Assembly, plan: Plan) -> list[AssumedValue]:
    failures = assembly.world.failures
    rows = [
        AssumedValue(
            key="failure profile",
            value=f"{failures.name}: {failures.failures_per_1000_node_days:g} failures per 1,000 node-days",
            source=failures.source,
            as_of=failures.as_of,
            effect="checkpoint intervals, goodput, spares",
        )
    ]
    if any(assembly.catalog.modes[s.mode].preemptible for s in plan.segments):
        name = assembly.world.spot_name
        row = next(row for (profile, _), row in sorted(assembly.catalog.spot.items()) if profile == name)
        rows.append(
            AssumedValue(
                key="spot profile",
                value=name,
                source=row.source,
                as_of=row.as_of,
                effect="how often spot nodes are lost; recorded traces are far worse than published bands",
            )
        )
    return rows


def _headroom() -> AssumedValue:
    return AssumedValue(
        key="memory headroom",
        value=f"{HEADROOM_FRAC:.0%} of the usable memory",
        source="error of predicted peaks against the measured rows (trainplan validate)",
        as_of="",
        effect="layouts nearer to the limit count as not fitting",
    )


def _tasks(assembly: Assembly) -> list[AssumedValue]:
    rows = []
    for work in assembly.works:
        task, setup = work.task, work.setup
        if setup is None:
            continue
        asked = task.global_batch_tokens
        if asked is None or abs(setup.tokens_per_step - asked) > 1e-9 * asked:
            rows.append(
                AssumedValue(
                    key=f"tasks.{task.name}.global_batch",
                    value=f"{setup.tokens_per_step:,.0f} tokens ({setup.global_batch_sequences} sequences)",
                    source="the whole number of sequences nearby that most layouts divide"
                    if asked
                    else "default of the product",
                    as_of="",
                    effect="layouts and step time",
                )
            )
        rows += _ramp(work)
        if task.sequence_length is None:
            rows.append(
                AssumedValue(
                    key=f"tasks.{task.name}.sequence_length",
                    value=f"{setup.sequence_length} tokens",
                    source="default of the product",
                    as_of="",
                    effect="memory and step time",
                )
            )
    return rows


def _roles(assembly: Assembly, plan: Plan) -> list[AssumedValue]:
    """How nodes that generate and nodes that train wait for each other."""
    names = {segment.task for segment in plan.segments if segment.roles}
    return [
        AssumedValue(
            key=f"tasks.{task.name}.rollout.max_staleness",
            value="0: generation and update take turns",
            source="default of the product",
            as_of="",
            effect="each group of nodes stands still while the other works; 1 lets them work at the same time",
        )
        for task in assembly.case.tasks
        if task.name in names and task.rollout is not None and not task.rollout.max_staleness_steps
    ]


def _ramp(work: Work) -> list[AssumedValue]:
    """Batches of a ramp-up that are not the very ones asked for, and what is left out of their time."""
    if work.setup is None or not work.setup.ramp:
        return []
    length = work.setup.sequence_length
    rows = [
        AssumedValue(
            key=f"tasks.{work.task.name}.batch_ramp[{index}].global_batch",
            value=f"{sequences * length:,.0f} tokens ({sequences} sequences)",
            source="the whole number of sequences nearby that most layouts divide",
            as_of="",
            effect="layouts and step time",
        )
        for index, (step, (_, sequences)) in enumerate(
            zip(work.task.batch_ramp, work.setup.ramp, strict=True)
        )
        if abs(sequences * length - step.global_batch_tokens) > 1e-9 * step.global_batch_tokens
    ]
    return [
        *rows,
        AssumedValue(
            key=f"tasks.{work.task.name}.batch_ramp",
            value="one layout for all batches, at their mean speed",
            source="model of the product",
            as_of="",
            effect="a task on several machines in turn counts the mean speed on each",
        ),
    ]


def _defaults(assembly: Assembly, plan: Plan) -> list[AssumedValue]:
    case = assembly.case
    categories = {line.category for line in plan.cost_lines}
    silent = [
        ("people.rate_usd_per_h", case.people.rate_usd_per_h is None and case.people.engineers > 0),
        ("operations.usd_per_month", case.overheads.operations_usd_per_month is None),
        ("security.usd_per_month", case.overheads.security_usd_per_month is None),
        ("metadata.usd_per_month", case.overheads.metadata_usd_per_month is None),
        ("monitoring.usd_per_node_month", case.overheads.monitoring_usd_per_node_month is None),
        ("logs.gb_per_node_day", case.overheads.logs.per_node_bytes_per_day is None),
        ("logs.keep_days", case.overheads.logs.keep_s is None),
        ("electricity.usd_per_kwh", costs.POWER in categories and _no_electricity(assembly)),
        ("pue", costs.POWER in categories),
        ("setup.acquire_s", True),
        (BETWEEN_POOLS, any({lead.pool} != {s.pool for s in plan.beside(lead)} for lead in _split(plan))),
        ("checkpoint.object_write_bytes_per_s_per_node", bool(plan.placements)),
        (
            "milestones.keep_for_days",
            case.checkpoints.keep_every_s is not None and case.checkpoints.keep_for_s is None,
        ),
    ]
    rows = []
    for key, used in silent:
        row = assembly.catalog.defaults.get(key)
        if used and row is not None and row.value != 0.0:
            rows.append(
                AssumedValue(
                    key=key,
                    value=f"{row.value:g} {row.unit}",
                    source=row.source,
                    as_of=row.as_of,
                    effect=row.note,
                )
            )
    return rows


def _split(plan: Plan) -> list[Segment]:
    """Segments that others generate for."""
    return [segment for segment in plan.segments if segment.leads and segment.roles]


def _no_electricity(assembly: Assembly) -> bool:
    return any(owned.electricity_usd_per_kwh is None for owned in assembly.case.resources.owned)


def warnings_of(assembly: Assembly, plan: Plan) -> tuple[str, ...]:
    """What the reader should know before signing."""
    found = []
    old = [date for date in plan.price_dates if date[:4].isdigit() and date[:4] <= "2024"]
    if old:
        found.append(f"prices of {', '.join(old)} may no longer be on sale; check them before you buy")
    if asked := _unlimited(assembly, plan):
        named = ", ".join(f"{nodes} of {pool} {mode}" for (pool, mode), nodes in asked.items())
        found.append(
            f"nodes at once that nobody has said can be had: {named}; "
            "name what you can have under resources.quotas"
        )
    if plan.status != "optimal":
        found.append(f"the plan is proven only to within {plan.solver.gap_frac:.2%} of the best")
    return tuple(found)
