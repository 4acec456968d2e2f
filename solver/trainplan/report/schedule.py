"""The plan itself: segments, how each is configured and saved, purchases, storage, task times."""

from __future__ import annotations

from trainplan.report import wording
from trainplan.report.document import Column, Section, Table
from trainplan.report.risk import fallback_words
from trainplan_models.plan import Placement, Plan, Purchase, Segment, TaskTime

NUMBER = Column("#", numeric=True)

SEGMENTS = (
    NUMBER,
    Column("Task"),
    Column("Pool"),
    Column("Nodes", numeric=True),
    Column("Layout"),
    Column("Billing"),
    Column("From"),
    Column("To"),
    Column("Save every"),
    Column("Save to"),
    Column("Tokens/s", numeric=True),
    Column("MFU", numeric=True),
    Column("Goodput", numeric=True),
)
CONFIGURATION = (
    NUMBER,
    Column("Share of task", numeric=True),
    Column("Tokens", numeric=True),
    Column("Accelerators"),
    Column("Spare nodes", numeric=True),
    Column("Set-up", numeric=True),
    Column("Sequence", numeric=True),
    Column("Global batch", numeric=True),
    Column("Precision"),
    Column("Peak memory", numeric=True),
    Column("USD/node-hour", numeric=True),
    Column("Paid share", numeric=True),
)
CHECKPOINTS = (
    NUMBER,
    Column("Size", numeric=True),
    Column("Training stops", numeric=True),
    Column("Durable after", numeric=True),
    Column("MTBF", numeric=True),
    Column("Restart", numeric=True),
    Column("Most lost work", numeric=True),
)
PURCHASES = (
    Column("Buy"),
    Column("Pool"),
    Column("Nodes", numeric=True),
    Column("Count", numeric=True),
    Column("From"),
    Column("To"),
    Column("USD", numeric=True),
    Column("Paid up front", numeric=True),
    Column("Unused", numeric=True),
)
PLACEMENTS = (
    Column("Task"),
    Column("What"),
    Column("Pool"),
    Column("Tier"),
    Column("Size", numeric=True),
    Column("Held", numeric=True),
)
TRIALS = (
    Column("Task"),
    Column("Rounds reserved", numeric=True),
    Column("Expected", numeric=True),
    Column("All are done", numeric=True),
    Column("None is done", numeric=True),
    Column("Expected USD", numeric=True),
    Column("Every round, USD", numeric=True),
)
TASKS = (Column("Task"), Column("From"), Column("To"), Column("Length", numeric=True))


def schedule(plan: Plan) -> Section:
    """What runs where, when and how, and what is bought for it."""
    tables = [
        Table(
            title="Segments",
            columns=SEGMENTS,
            rows=tuple(_segment_row(plan, i, s) for i, s in enumerate(plan.segments, 1)),
            note=(
                f"{wording.LAYOUT_LEGEND} Tokens/s: while it trains. MFU: model FLOPs (causal attention, "
                "no recomputation) over the dense peak. Goodput: useful share of calendar time after "
                "failures, checkpoints and waits."
            ),
        ),
        Table(
            title="Configuration",
            columns=CONFIGURATION,
            rows=tuple(_configuration_row(plan, i, s) for i, s in enumerate(plan.segments, 1)),
        ),
        Table(
            title="Checkpoints and failures",
            columns=CHECKPOINTS,
            rows=tuple(_checkpoint_row(i, s) for i, s in enumerate(plan.segments, 1)),
        ),
    ]
    if plan.tasks:
        rows = tuple(_task_row(plan, task) for task in plan.tasks)
        tables.append(Table(title="Tasks", columns=TASKS, rows=rows))
    if plan.trials:
        tables.append(_trials(plan))
    paragraphs = []
    if plan.purchases:
        rows = tuple(_purchase_row(plan, purchase) for purchase in plan.purchases)
        tables.append(Table(title="Commitments to buy", columns=PURCHASES, rows=rows))
    else:
        paragraphs.append("Nothing has to be bought in advance.")
    paragraphs.extend(fallback_words(plan))
    if plan.placements:
        rows = tuple(_placement_row(placement) for placement in plan.placements)
        tables.append(Table(title="Storage", columns=PLACEMENTS, rows=rows))
    return Section(title="The plan", paragraphs=tuple(paragraphs), tables=tuple(tables))


def _trials(plan: Plan) -> Table:
    """What is expected of tasks that may end early, and what the plan is prepared for."""
    rows = tuple(
        (
            trial.task,
            str(trial.rounds),
            wording.number(trial.expected_rounds_count),
            wording.percent(trial.all_chance_frac),
            wording.percent(trial.none_chance_frac),
            wording.usd(trial.expected_usd),
            wording.usd(trial.worst_usd),
        )
        for trial in plan.trials
    )
    note = (
        "From, to and nodes of these tasks, and the planned finish, are for all rounds: time is reserved for each. "
        "The bill, its total and the budget line count the expected rounds"
    )
    if plan.worst_usd is not None:
        note += f"; with every round the plan costs {wording.usd(plan.worst_usd)} USD as planned"
    return Table(title="Rounds that may be left out", columns=TRIALS, rows=rows, note=f"{note}.")


def _segment_row(plan: Plan, index: int, segment: Segment) -> tuple[str, ...]:
    return (
        str(index),
        wording.task_words(segment),
        segment.pool,
        str(segment.nodes),
        wording.layout_words(segment.layout),
        segment.mode,
        wording.moment(plan, segment.start_s),
        wording.moment(plan, segment.end_s),
        wording.duration(segment.checkpoint.interval_s),
        segment.checkpoint.target,
        f"{segment.tokens_per_s:,.0f}",
        wording.percent(segment.mfu_frac),
        wording.percent(segment.goodput_frac),
    )


def _price_words(plan: Plan, segment: Segment) -> str:
    """The price of a node-hour, and from when on where it changes."""
    if not segment.prices:
        return wording.number(segment.usd_per_node_h) if segment.usd_per_node_h else "none by the hour"
    first, *later = segment.prices
    changes = [
        f"{wording.number(price.usd_per_node_h)} from {wording.moment(plan, price.start_s)}"
        for price in later
    ]
    return ", ".join([wording.number(first.usd_per_node_h), *changes])


def _batch_words(segment: Segment) -> str:
    """The global batch, or how it grows."""
    if not segment.batches:
        return wording.tokens(segment.global_batch_tokens)
    return ", then ".join(
        f"{wording.tokens(phase.global_batch_tokens)} for {wording.tokens(phase.tokens)}"
        for phase in segment.batches
    )


def _configuration_row(plan: Plan, index: int, segment: Segment) -> tuple[str, ...]:
    return (
        str(index),
        wording.percent(segment.work_frac),
        wording.tokens(segment.tokens),
        f"{segment.nodes * segment.accelerators_per_node} x {segment.accelerator}",
        str(segment.spare_nodes),
        wording.duration(segment.setup_s),
        f"{segment.sequence_length:,}",
        _batch_words(segment),
        segment.layout.precision,
        wording.size(segment.peak_memory_bytes),
        _price_words(plan, segment),
        wording.percent(segment.paid_frac),
    )


def _checkpoint_row(index: int, segment: Segment) -> tuple[str, ...]:
    saved = segment.checkpoint
    return (
        str(index),
        wording.size(saved.size_bytes),
        wording.duration(saved.blocking_s),
        wording.duration(saved.persist_s),
        wording.duration(saved.mtbf_s),
        wording.duration(saved.restart_s),
        wording.duration(saved.lost_work_s),
    )


def _task_row(plan: Plan, task: TaskTime) -> tuple[str, ...]:
    return (
        task.task,
        wording.moment(plan, task.start_s),
        wording.moment(plan, task.end_s),
        wording.duration(task.end_s - task.start_s),
    )


def _purchase_row(plan: Plan, purchase: Purchase) -> tuple[str, ...]:
    return (
        purchase.mode,
        purchase.pool,
        str(purchase.nodes),
        str(purchase.count),
        wording.moment(plan, purchase.start_s),
        wording.moment(plan, purchase.end_s),
        wording.usd(purchase.usd),
        wording.usd(purchase.upfront_usd),
        wording.percent(purchase.unused_frac),
    )


def _placement_row(placement: Placement) -> tuple[str, ...]:
    return (
        placement.task,
        placement.what,
        placement.pool,
        placement.tier,
        wording.size(placement.size_bytes),
        wording.duration(placement.held_s),
    )
