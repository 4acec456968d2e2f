"""A plan as a launcher sees it: one launch unit per segment, with steps instead of seconds."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from trainplan.export.task_view import TaskView, task_view
from trainplan_models.base import InputError, Problem
from trainplan_models.case import Case
from trainplan_models.plan import Plan, Purchase, Segment

_SLACK = 1e-9
"""Relative error that floating point may leave on a whole number of steps."""


@dataclass(frozen=True, slots=True)
class LaunchUnit:
    """One segment of a plan, ready to be written down for a launcher."""

    index: int
    name: str
    """Unique in the plan; lower case letters, digits and dashes."""
    plan_id: str
    segment: Segment
    task: TaskView
    preemptible: bool
    first_step: int
    """Steps of the task that lie before this unit in the plan."""
    last_step: int
    """Step of the task the unit is planned to reach."""
    total_steps: int
    """Optimizer steps of the whole task, all rounds together."""
    step_s: float
    """Seconds of one step while it trains, before failures and checkpoints."""
    interval_steps: int
    """Steps between two checkpoints."""
    keep_last: int
    milestone_steps: int
    """A checkpoint this many steps apart is kept for good, a multiple of the interval; 0: none within the task."""
    asynchronous: bool
    """Whether training goes on while a checkpoint is written."""
    batch_sequences: int
    """Sequences in one optimizer step."""
    accumulation: int
    """Micro-batches per optimizer step and data-parallel rank."""
    after: tuple[str, ...]
    """Units that end before this one starts."""
    predecessor: str
    """The unit of the same task this one takes over from; empty for the first."""
    successor: str
    """The unit of the same task that takes over; empty for the last."""
    task_end_s: float
    """Latest end of the task that keeps the plan's deadline, from day 0."""
    labels: tuple[tuple[str, str], ...]
    purchase: Purchase | None
    task_tokens: float = 0.0
    """Tokens of the whole task in the plan."""
    beside: tuple[Segment, ...] = ()
    """Nodes that generate for it, where they are others than its own."""
    batch_schedule: tuple[tuple[float, int], ...] = ()
    """Where the batch of the task grows: from how many tokens on, how many sequences."""

    @property
    def window_s(self) -> int:
        """Calendar length of the unit in whole seconds."""
        return math.ceil(self.segment.end_s - self.segment.start_s)

    @property
    def processes_per_node(self) -> int:
        """Training processes on each node, one per accelerator in use."""
        return self.segment.layout.accelerators // self.segment.nodes

    @property
    def shard_degree(self) -> int:
        """Data-parallel ranks over which a ZeRO shard is spread; context-parallel ranks share it as well."""
        layout = self.segment.layout
        whole = not layout.shard_group or layout.shard_group >= layout.dp * layout.cp
        return layout.dp if whole else max(1, layout.shard_group // layout.cp)

    @property
    def nodes(self) -> int:
        """Nodes that work, those beside its own included."""
        return self.segment.nodes + sum(other.nodes for other in self.beside)

    @property
    def owned(self) -> bool:
        """Whether the nodes are already there and not rented for the plan."""
        return self.segment.mode in ("owned", "grant")

    @property
    def round_steps(self) -> int:
        """Optimizer steps of one round of the task."""
        return math.ceil(self.total_steps / self.task.rounds)


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything an exporter gets."""

    plan: Plan
    plan_id: str
    units: tuple[LaunchUnit, ...]
    day0: int | None
    """Start of the plan as seconds since 1970, when the case names a date."""

    def unit(self, name: str) -> LaunchUnit:
        """The unit called ``name``."""
        return next(unit for unit in self.units if unit.name == name)

    def fallbacks(self) -> tuple[tuple[LaunchUnit, LaunchUnit], ...]:
        """Pairs of a unit that can be preempted and the one that takes over on capacity that cannot."""
        pairs = (
            (unit, self.unit(unit.successor)) for unit in self.units if unit.successor and unit.preemptible
        )
        return tuple((spot, safe) for spot, safe in pairs if not safe.preemptible)


def slug(text: str, limit: int = 40) -> str:
    """``text`` in lower-case letters, digits and single dashes: legal as a DNS label, job name or tag value."""
    return re.sub(r"[^a-z0-9]+", "-", text.lower()).strip("-")[:limit].rstrip("-") or "x"


def plan_id(plan: Plan) -> str:
    """A short name that is the same for the same plan and differs for any other."""
    digest = hashlib.sha256(plan.model_dump_json(exclude_defaults=True).encode()).hexdigest()
    return f"{slug(plan.name, 30)}-{digest[:8]}"


def launch(plan: Plan) -> Launch:
    """Reads the launch units out of a plan.

    Raises:
        InputError: the plan has no segments, carries a case that cannot be read, or has a layout that does not
            fill its nodes or split its batch.
    """
    if not plan.segments:
        raise InputError(Problem("the plan has no segments, so there is nothing to launch", key="segments"))
    case = _case(plan)
    identity = plan_id(plan)
    leading = [segment for segment in plan.segments if segment.leads]
    segments = sorted(leading, key=lambda segment: segment.start_s)
    names = [f"{i + 1:02d}-{slug(s.task, 24)}-{slug(s.mode, 16)}" for i, s in enumerate(segments)]
    problems: list[Problem] = []
    units = []
    for position in range(len(segments)):
        problems += _problems(segments[position], names[position])
        if not problems:
            units.append(_unit(plan, case, identity, segments, names, position))
    if problems:
        raise InputError(problems)
    return Launch(plan, identity, tuple(units), _day0(plan.start))


def whole_steps(steps: float) -> int:
    """Steps rounded up, forgiving what floating point adds to a whole number."""
    nearest = round(steps)
    return nearest if abs(steps - nearest) <= _SLACK * max(1.0, steps) else math.ceil(steps)


def checkpoint_steps(interval_s: float, step_s: float) -> int:
    """Steps between checkpoints: the most whole steps that fit the planned interval, at least one."""
    return max(1, math.floor(interval_s / step_s * (1.0 + _SLACK))) if step_s > 0 else 1


def _problems(segment: Segment, name: str) -> list[Problem]:
    layout = segment.layout
    devices = segment.nodes * segment.accelerators_per_node
    found = []
    if layout.accelerators % segment.nodes or layout.accelerators > devices:
        found.append(
            Problem(
                f"the layout spans {layout.accelerators} accelerators, {segment.nodes} nodes have {devices}",
                key=f"{name}.layout",
                fix="every launcher starts the same number of processes on each node",
            )
        )
    sequences = _sequences(segment)
    if sequences % (layout.dp * layout.micro_batch):
        found.append(
            Problem(
                f"a global batch of {sequences} sequences does not divide by data parallel {layout.dp} times "
                f"micro-batch {layout.micro_batch}",
                key=f"{name}.global_batch_tokens",
                fix="every trainer refuses a batch it cannot split evenly",
            )
        )
    return found


def _case(plan: Plan) -> Case:
    from pydantic import ValidationError

    try:
        case = Case.from_canonical(plan.case)
    except (ValidationError, InputError) as error:
        first = str(error).splitlines()[0]
        raise InputError(Problem(f"the case inside the plan cannot be read: {first}", key="case")) from error
    unknown = {segment.task for segment in plan.segments} - {task.name for task in case.tasks}
    if unknown:
        names = ", ".join(sorted(unknown))
        raise InputError(Problem(f"the case inside the plan has no task {names}", key="case.tasks"))
    return case


def _unit(
    plan: Plan, case: Case, identity: str, segments: list[Segment], names: list[str], position: int
) -> LaunchUnit:
    segment = segments[position]
    task = _on_chip(task_view(case, case.task(segment.task)), segment.accelerator)
    mine = [i for i, other in enumerate(segments) if other.task == segment.task]
    place = mine.index(position)
    boundaries, total = _boundaries([segments[i] for i in mine], task)
    first = boundaries[place - 1] if place else 0
    last = boundaries[place]
    seconds = segment.tokens / segment.tokens_per_s if segment.tokens_per_s > 0 else 0.0
    share = _steps_of(segment, task, segments, mine)
    step_s = seconds / share if share > 0 else 0.0
    # Where the batch grows, the longest steps decide how many lie between two checkpoints.
    step_s = max([step_s, *(p.global_batch_tokens / p.tokens_per_s for p in segment.batches)])
    sequences = _sequences(segment)
    keep = case.checkpoints
    interval = checkpoint_steps(segment.checkpoint.interval_s, step_s)
    return LaunchUnit(
        index=position + 1,
        name=names[position],
        plan_id=identity,
        segment=segment,
        task=task,
        preemptible=_preemptible(segment.mode),
        first_step=first,
        last_step=last,
        total_steps=total,
        step_s=step_s,
        interval_steps=interval,
        keep_last=keep.keep_last,
        milestone_steps=_milestone(keep.keep_every_s or 0.0, step_s, interval, total),
        asynchronous=keep.asynchronous,
        batch_sequences=sequences,
        accumulation=max(1, sequences // (segment.layout.dp * segment.layout.micro_batch)),
        after=_after(task, segments, names, position, place, mine),
        predecessor=names[mine[place - 1]] if place else "",
        successor=names[mine[place + 1]] if place + 1 < len(mine) else "",
        task_end_s=max(segments[i].end_s for i in mine) + max(0.0, (case.deadline_s or 0.0) - plan.finish_s),
        labels=_labels(plan, identity, task, names[position]),
        purchase=_purchase(plan, segment),
        task_tokens=sum(segments[i].tokens for i in mine),
        beside=plan.beside(segment),
        batch_schedule=_schedule([segments[i] for i in mine]),
    )


def _schedule(segments: list[Segment]) -> tuple[tuple[float, int], ...]:
    """From how many tokens of the task on its batch has how many sequences; empty where it does not grow."""
    found: list[tuple[float, int]] = []
    done = 0.0
    for segment in segments:
        for phase in segment.batches:
            sequences = round(phase.global_batch_tokens / segment.sequence_length)
            if not found or found[-1][1] != sequences:
                found.append((done, sequences))
            done += phase.tokens
    return tuple(found)


def _sequences(segment: Segment) -> int:
    return round(segment.global_batch_tokens / segment.sequence_length) if segment.sequence_length else 0


def _milestone(keep_every_s: float, step_s: float, interval: int, total: int) -> int:
    if not keep_every_s or step_s <= 0:
        return 0
    steps = max(1, round(keep_every_s / step_s / interval)) * interval
    return steps if steps < total else 0


def _on_chip(task: TaskView, accelerator: str) -> TaskView:
    """The task with the framework that ``auto`` stands for on a chip."""
    from trainplan_models import catalog
    from trainplan_models.frameworks import framework_on

    chip = catalog.builtin().find_accelerator(accelerator)
    framework = framework_on(task.framework, chip.vendor) if chip is not None else None
    return replace(task, framework=framework or task.framework)


def _steps_of(segment: Segment, task: TaskView, segments: list[Segment], mine: list[int]) -> float:
    if task.rollout is not None:
        tokens = sum(segments[i].tokens for i in mine)
        return task.rollout.steps * task.rounds * (segment.tokens / tokens if tokens else 1.0)
    if segment.batches:
        return sum(phase.tokens / phase.global_batch_tokens for phase in segment.batches)
    return segment.tokens / segment.global_batch_tokens if segment.global_batch_tokens else 0.0


def _boundaries(segments: list[Segment], task: TaskView) -> tuple[list[int], int]:
    """The step each segment of a task is planned to reach, and the steps of the whole task."""
    indices = list(range(len(segments)))
    reached, boundaries = 0.0, []
    for segment in segments:
        reached += _steps_of(segment, task, segments, indices)
        boundaries.append(round(reached))
    total = whole_steps(reached)
    boundaries[-1] = total
    return boundaries, total


def _after(
    task: TaskView, segments: list[Segment], names: list[str], position: int, place: int, mine: list[int]
) -> tuple[str, ...]:
    if place:
        return (names[mine[place - 1]],)
    last = {segment.task: name for segment, name in zip(segments, names, strict=True)}
    return tuple(last[name] for name in task.after if name in last)


def _labels(plan: Plan, identity: str, task: TaskView, name: str) -> tuple[tuple[str, str], ...]:
    own = {"trainplan-plan": identity, "trainplan-task": task.name, "trainplan-unit": name}
    return tuple(({**plan.labels, **dict(task.labels)} | own).items())


def _purchase(plan: Plan, segment: Segment) -> Purchase | None:
    matching = (
        purchase
        for purchase in plan.purchases
        if purchase.pool == segment.pool
        and purchase.mode == segment.mode
        and purchase.start_s < segment.end_s
        and purchase.end_s > segment.start_s
    )
    return next(matching, None)


def _day0(start: str | None) -> int | None:
    if not start:
        return None
    try:
        moment = datetime.fromisoformat(start)
    except ValueError:
        return None
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp())


def _preemptible(mode: str) -> bool:
    from trainplan_models import catalog

    known = catalog.builtin().modes.get(mode)
    return known.preemptible if known is not None else False
