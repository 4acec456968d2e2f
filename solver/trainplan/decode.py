"""A decision in days becomes the plan in the words of the case."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from trainplan.assembly import Assembly
from trainplan.batch_phases import with_batches
from trainplan.options import Detail
from trainplan.regional import dataset_bytes
from trainplan.sites import RolloutNodes, Site
from trainplan.solve import Decision, Outcome, Use
from trainplan_models import costs, storage
from trainplan_models.accounting import commitment_use
from trainplan_models.plan import (
    CheckpointPlan,
    Layout,
    LimitUse,
    Placement,
    Plan,
    PriceFrom,
    Purchase,
    Removed,
    Role,
    Segment,
    SolverInfo,
    TaskTime,
)

DAY_S = 86400.0
SAME_MOMENT_DAYS = 1e-6
BINDING_FRAC = 1e-4


def segments_of(assembly: Assembly, decision: Decision) -> tuple[Segment, ...]:
    """The stretches of the plan in order of time; a stretch that runs on into the next window is one."""
    joined: list[list[Use]] = []
    for use in sorted(decision.uses, key=lambda u: (u.start_days, u.end_days, u.option)):
        last = next((run for run in reversed(joined) if run[-1].option == use.option), None)
        if last and not use.begins and abs(last[-1].end_days - use.start_days) <= SAME_MOMENT_DAYS:
            last.append(use)
        else:
            joined.append([use])
    found = []
    for run in joined:
        detail = assembly.details[run[0].option]
        if detail is not None:
            found.append((_segment(detail, run), detail))
    segments = with_batches(found, assembly.case.assumptions.throughput_factor)
    return tuple(
        one
        for segment, (_, detail) in zip(segments, found, strict=True)
        for one in (segment, *_beside(segment, detail.rollout))
    )


def _beside(lead: Segment, rollout: RolloutNodes | None) -> list[Segment]:
    """The nodes that generate for others, as long as these work; the work is counted where it is trained on."""
    if rollout is None:
        return []
    site, nothing = rollout.site, {"interval_s": 0.0, "target": "", "size_bytes": 0.0, "blocking_s": 0.0}
    beside = {
        "roles": ("rollout", "scoring") if rollout.scores else ("rollout",),
        "pool": site.name,
        "instance_type": site.node.instance_type,
        "accelerator": site.accelerator.name,
        "accelerators_per_node": site.node.accelerators,
        "nodes": rollout.nodes,
        "spare_nodes": rollout.spares,
        "mode": rollout.mode,
        "work_frac": 0.0,
        "tokens": 0.0,
        "paid_frac": rollout.paid_frac,
        "mfu_frac": 0.0,
        "peak_memory_bytes": 0.0,
        "layout": Layout(
            dp=rollout.nodes * site.node.accelerators // rollout.tensor, tp=rollout.tensor, zero_stage=0
        ),
        "checkpoint": lead.checkpoint.model_copy(update=nothing | {"persist_s": 0.0, "lost_work_s": 0.0}),
        **_price(site, rollout.mode, lead.start_s, lead.end_s),
    }
    return [lead.model_copy(update=beside)]


def _price(site: Site, mode: str, start_s: float, end_s: float) -> dict[str, Any]:
    """What a node of a segment costs an hour, and from when on where that changes."""
    if mode not in ("on-demand", "spot", "flex-start", "owned"):
        return {"usd_per_node_h": 0.0, "prices": ()}
    usd, over_time = site.usd_per_node_h[mode], site.price_over_time.get(mode)
    pieces = () if over_time is None else over_time.pieces(start_s, end_s)
    prices = tuple(PriceFrom(start_s=at_s, usd_per_node_h=at_usd) for at_s, _, at_usd in pieces)
    if over_time is not None and prices:
        usd = prices[0].usd_per_node_h if len(prices) == 1 else float(over_time.mean(start_s, end_s))
    return {"usd_per_node_h": usd, "prices": prices if len(prices) > 1 else ()}


def _segment(detail: Detail, run: list[Use]) -> Segment:
    site, candidate, work, rollout = detail.site, detail.candidate, detail.work, detail.rollout
    share = sum(use.share_frac for use in run)
    setup = work.setup
    start_s, end_s = run[0].start_days * DAY_S, run[-1].end_days * DAY_S
    roles: tuple[Role, ...] = () if rollout is None else ("scoring", "update")
    return Segment(
        task=work.task.name,
        roles=roles[1:] if rollout is not None and rollout.scores else roles,
        pool=site.name,
        cloud=site.place.cloud,
        region=site.place.region,
        instance_type=site.node.instance_type,
        accelerator=site.accelerator.name,
        accelerators_per_node=site.node.accelerators,
        nodes=candidate.nodes,
        spare_nodes=detail.spares,
        mode=detail.mode,
        start_s=start_s,
        end_s=end_s,
        setup_s=detail.setup_s * sum(1 for use in run if use.begins),
        work_frac=share,
        tokens=work.tokens * share,
        tokens_per_s=candidate.tokens_per_s,
        goodput_frac=detail.goodput_frac,
        paid_frac=detail.paid_frac,
        expected_frac=work.task.expected_frac,
        mfu_frac=candidate.mfu_frac,
        peak_memory_bytes=candidate.peak_memory_bytes,
        layout=candidate.layout,
        global_batch_tokens=0.0 if setup is None else setup.tokens_per_step,
        sequence_length=0 if setup is None else setup.sequence_length,
        checkpoint=CheckpointPlan(
            interval_s=detail.interval_s,
            target="" if detail.tier is None else detail.tier.name,
            size_bytes=work.checkpoint_bytes,
            blocking_s=detail.blocking_s,
            persist_s=detail.persist_s,
            restart_s=detail.restart_s,
            mtbf_s=detail.mtbf_s,
            lost_work_s=detail.lost_work_s,
        ),
        **_price(site, detail.mode, start_s, end_s),
    )


def purchases_of(
    assembly: Assembly, decision: Decision, segments: tuple[Segment, ...]
) -> tuple[Purchase, ...]:
    """What to buy, in the sizes it is sold in."""
    found: list[Purchase] = []
    for number, nodes in sorted(decision.bought.items()):
        product = assembly.spec.products[number]
        resource = assembly.spec.resources[product.resource]
        sizes = assembly.catalog.modes[resource.mode].sizes_nodes
        start_days = round(decision.bought_from_days[number])
        for size, count in _in_sizes(nodes, sizes):
            usd = product.usd_per_node * size * count
            found.append(
                Purchase(
                    pool=resource.pool,
                    mode=resource.mode,
                    nodes=size,
                    count=count,
                    start_s=start_days * DAY_S,
                    end_s=(start_days + product.days) * DAY_S,
                    usd=usd,
                    upfront_usd=usd * product.upfront_frac,
                    used_node_h=0.0,
                    bought_node_h=product.days * 24.0 * size * count,
                )
            )
    return tuple(_with_use(found, segments))


def _in_sizes(nodes: int, sizes: tuple[int, ...]) -> list[tuple[int, int]]:
    """(size, count) pairs that make up a number of nodes, the largest sizes first."""
    if not sizes:
        return [(nodes, 1)]
    parts = []
    for size in sorted(sizes, reverse=True):
        count, nodes = divmod(nodes, size)
        if count:
            parts.append((size, count))
    return parts


def _with_use(purchases: list[Purchase], segments: tuple[Segment, ...]) -> list[Purchase]:
    groups: dict[tuple[str, str], list[int]] = defaultdict(list)
    for place, purchase in enumerate(purchases):
        groups[purchase.pool, purchase.mode].append(place)
    found = list(purchases)
    for (pool, mode), places in groups.items():
        runs = [s for s in segments if (s.pool, s.mode) == (pool, mode)]
        used, _ = commitment_use(runs, [purchases[place] for place in places])
        for place, by_task in zip(places, used, strict=True):
            hours = sum(by_task.values())
            found[place] = purchases[place].model_copy(update={"used_node_h": hours})
    return found


def placements_of(
    assembly: Assembly, decision: Decision, segments: tuple[Segment, ...]
) -> tuple[Placement, ...]:
    """What lies where and for how long."""
    found = _dataset_placements(assembly, decision, segments)
    details = {_key(d): d for d in assembly.details if d is not None and d.tier is not None}
    for place, segment in enumerate(segments):
        after = segments[place + 1] if segment.roles and segment.leads else None
        beside = () if after is None else (after.pool, after.mode, after.nodes, after.spare_nodes)
        nodes = (segment.pool, segment.mode, segment.nodes, segment.spare_nodes)
        detail = details.get((segment.task, *nodes, segment.checkpoint.target, *beside))
        if detail is not None:
            found += _checkpoint_placements(assembly, segment, detail)
    return tuple(found)


def _key(detail: Detail) -> tuple[str | int, ...]:
    """What tells the options of a task apart in a plan."""
    other = detail.rollout
    beside = () if other is None else (other.site.name, other.mode, other.nodes, other.spares)
    tier = "" if detail.tier is None else detail.tier.name
    nodes = (detail.site.name, detail.mode, detail.candidate.nodes, detail.spares)
    return (detail.work.task.name, *nodes, tier, *beside)


def _dataset_placements(
    assembly: Assembly, decision: Decision, segments: tuple[Segment, ...]
) -> list[Placement]:
    speed = storage.speeds(assembly.catalog)
    found = []
    for (task, region), tier_name in sorted(decision.tiers.items()):
        work, place = assembly.works[task], assembly.places[region]
        runs = [
            s
            for s in segments
            if s.leads and s.task == work.task.name and (s.region, s.cloud) == (place.region, place.cloud)
        ]
        if not runs or work.task.dataset is None:
            continue
        tier = storage.find_tier(assembly.catalog, tier_name, place.region)
        rate = max(s.tokens_per_s / s.nodes for s in runs)
        per_token = work.task.dataset.size_bytes * work.task.dataset.format_factor
        need = rate * per_token / max(work.tokens / work.task.rounds, 1.0)
        held_s = sum(s.end_s - s.start_s for s in runs)
        found.append(
            Placement(
                task=work.task.name,
                pool=runs[0].pool,
                what="dataset",
                tier=tier_name,
                size_bytes=dataset_bytes(tier, work.task.dataset.size_bytes, need, speed),
                held_s=held_s,
                usd=0.0,
            )
        )
    return found


def _checkpoint_placements(assembly: Assembly, segment: Segment, detail: Detail) -> list[Placement]:
    case, catalog = assembly.case, assembly.catalog
    lasted_s, size = segment.end_s - segment.start_s, segment.checkpoint.size_bytes
    rows: list[tuple[Any, str, float, float]] = [
        ("checkpoints", segment.checkpoint.target, detail.capacity_bytes, lasted_s)
    ]
    if detail.milestone_tier is not None:
        kept = lasted_s * costs.milestones_per_s(case) * size
        rows.append(("milestones", detail.milestone_tier.name, kept, costs.milestone_keep_s(case, catalog)))
    if detail.copy_tier is not None:
        copies = case.checkpoints.keep_last * size
        rows.append(("second-region copy", detail.copy_tier.name, copies, lasted_s))
    return [
        Placement(
            task=segment.task,
            pool=segment.pool,
            what=what,
            tier=tier,
            size_bytes=held_bytes,
            held_s=held_s,
            usd=0.0,
        )
        for what, tier, held_bytes, held_s in rows
    ]


def task_times(assembly: Assembly, decision: Decision) -> tuple[TaskTime, ...]:
    """When each task starts and ends."""
    found = []
    for number, task in enumerate(assembly.spec.tasks):
        uses = [use for use in decision.uses if assembly.spec.options[use.option].task == number]
        if uses:
            found.append(
                TaskTime(
                    task=task.name,
                    start_s=min(use.start_days for use in uses) * DAY_S,
                    end_s=max(use.end_days for use in uses) * DAY_S,
                )
            )
    return tuple(found)


def limits_of(assembly: Assembly, plan: Plan) -> tuple[LimitUse, ...]:
    """How much of each limit of the case the plan uses."""
    case = assembly.case
    rows: list[tuple[str, float, float | None, str]] = [
        ("deadline", plan.finish_s, case.deadline_s, "s"),
        ("budget", plan.total_usd, case.budget_usd, "USD"),
        (
            "max_lost_work",
            max((s.checkpoint.lost_work_s for s in plan.segments), default=0.0),
            case.max_lost_work_s,
            "s",
        ),
        (
            "resources.max_nodes",
            max(
                (float(sum(p.nodes + p.spare_nodes for p in (s, *plan.beside(s)))) for s in plan.segments),
                default=0.0,
            ),
            None if case.resources.max_nodes is None else float(case.resources.max_nodes),
            "nodes",
        ),
    ]
    return tuple(
        LimitUse(
            limit=name, used=used, allowed=allowed, unit=unit, binding=used >= allowed * (1 - BINDING_FRAC)
        )
        for name, used, allowed, unit in rows
        if allowed is not None
    )


def solver_info(assembly: Assembly, outcome: Outcome) -> SolverInfo:
    """What was solved and how well."""
    decision = outcome.decision
    return SolverInfo(
        objective_usd=0.0 if decision is None else decision.usd,
        bound_usd=outcome.bound,
        gap_frac=outcome.gap_frac,
        columns=outcome.columns,
        rows=outcome.rows,
        nodes=outcome.nodes,
        seconds=outcome.seconds,
        highs_version=outcome.version,
        scope=outcome.scope
        or f"all {len(assembly.spec.options):,} options kept of {assembly.evaluated:,} legal layouts",
    )


def removed_of(assembly: Assembly) -> tuple[Removed, ...]:
    """How many configurations each rule removed, the most first."""
    return tuple(
        Removed(task=task, rule=rule, count=count)
        for task, rules in assembly.removed.items()
        for rule, count in sorted(rules.items(), key=lambda item: (-item[1], item[0]))
    )
