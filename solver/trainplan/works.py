"""What each task of a case amounts to: its training setup, its work and the bytes it moves and keeps."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from trainplan_models.base import InputError, Problem
from trainplan_models.case import Case, Shape, Task
from trainplan_models.catalog import Catalog
from trainplan_models.checkpoint import checkpoint_bytes, weights_bytes
from trainplan_models.efficiency import optimizer_of
from trainplan_models.rollout import Samples
from trainplan_models.workload import ModelShape, TrainSetup, lora_params, shape_of, total_params

TRAINING = ("pretrain", "continue", "sft", "reward-model", "preference", "rl")
"""Kinds whose compute counts as training, on which experiments are a share."""
DEFAULT_SEQUENCE_LENGTH = 4096
DEFAULT_BATCH_TOKENS = {"pretrain": 4e6, "continue": 4e6}
OTHER_BATCH_TOKENS = 0.5e6
NEAR_BATCH_FRAC = 0.05
"""How far a global batch may be moved to one that more layouts can divide."""


@dataclass(frozen=True, slots=True)
class Work:
    """One task, all its rounds together."""

    task: Task
    setup: TrainSetup | None
    """None for work that is a fixed time or a number of accelerator-hours."""
    tokens: float
    """Over all rounds; 0 where work is not counted in tokens."""
    accelerator_hours: float
    """Over all rounds, for work known in hours."""
    fixed_days: float
    checkpoint_bytes: float
    weights_bytes: float
    """What the next task starts from."""
    samples: Samples | None = None
    """What is generated in one step (reinforcement learning) or in all."""

    @property
    def training(self) -> bool:
        """Whether its compute counts as training."""
        return self.task.kind in TRAINING


def works_of(case: Case, catalog: Catalog) -> tuple[Work, ...]:
    """The work of every task, in the order of the case.

    Raises:
        InputError: a model is unknown, or a task names none and follows none that has one.
    """
    shapes: dict[str, ModelShape] = {}
    found = []
    for task in _in_order(case.tasks):
        shape = _shape(task, shapes, catalog)
        if shape is not None:
            shapes[task.name] = shape
        found.append(_work(case, task, shape))
    order = {task.name: number for number, task in enumerate(case.tasks)}
    return tuple(sorted(found, key=lambda work: order[work.task.name]))


def _in_order(tasks: tuple[Task, ...]) -> list[Task]:
    """Tasks after those they follow."""
    ordered: list[Task] = []
    waiting = list(tasks)
    while waiting:
        known = {task.name for task in ordered}
        ready = [task for task in waiting if set(task.after) <= known]
        ordered += ready
        waiting = [task for task in waiting if task not in ready]
    return ordered


def _shape(task: Task, known: dict[str, ModelShape], catalog: Catalog) -> ModelShape | None:
    if isinstance(task.model, Shape):
        return shape_of(task.model)
    if isinstance(task.model, str):
        if Path(task.model).suffix == ".json":
            from trainplan_models.hf_config import from_hf_config

            return from_hf_config(Path(task.model))
        return shape_of(catalog.model(task.model))
    inherited = next((known[name] for name in task.after if name in known), None)
    if inherited is None and task.kind in TRAINING:
        raise InputError(
            Problem(
                f"task {task.name!r} has no model and follows no task that has one",
                key=f"tasks.{task.name}.model",
                fix="Give a catalogue name, a config.json or a shape.",
            )
        )
    return inherited


def _work(case: Case, task: Task, shape: ModelShape | None) -> Work:
    setup = None
    if shape is not None and task.accelerator_hours is None and task.duration_s is None:
        setup = _setup(case, task, shape)
    trained = 0.0 if shape is None else float(total_params(shape))
    if shape is not None and task.lora is not None:
        trained = float(lora_params(shape, task.lora.rank))
    samples = _samples(task)
    recipe = optimizer_of(task.optimizer)
    saved = float(checkpoint_bytes(trained, recipe.disk_bytes)) if task.kind in TRAINING else 0.0
    return Work(
        task=task,
        setup=setup,
        tokens=_tokens(task, samples) * task.rounds,
        accelerator_hours=(task.accelerator_hours or 0.0) * task.rounds,
        fixed_days=(task.duration_s or 0.0) / 86400.0 * task.rounds,
        checkpoint_bytes=saved,
        weights_bytes=weights_bytes(saved),
        samples=samples,
    )


def _samples(task: Task) -> Samples | None:
    rollout = task.rollout
    if rollout is None:
        return None
    prompts = rollout.prompts if task.kind == "rl" else rollout.prompts * rollout.steps
    return Samples(prompts, rollout.samples_per_prompt, rollout.prompt_tokens, rollout.response_tokens)


def _tokens(task: Task, samples: Samples | None) -> float:
    """Tokens of one round: told, or those of everything generated."""
    if samples is None or task.rollout is None:
        return task.tokens or 0.0
    return samples.tokens * (task.rollout.steps if task.kind == "rl" else 1)


def _setup(case: Case, task: Task, shape: ModelShape) -> TrainSetup:
    sequence_length = task.sequence_length or min(
        DEFAULT_SEQUENCE_LENGTH, shape.max_positions or DEFAULT_SEQUENCE_LENGTH
    )
    batch_tokens = task.global_batch_tokens or DEFAULT_BATCH_TOKENS.get(task.kind, OTHER_BATCH_TOKENS)
    samples = _samples(task)
    if task.kind == "rl" and samples is not None:
        # One update on all samples of a step, each padded to the longest.
        sequence_length = int(samples.prompt_tokens + samples.response_tokens)
        batch_tokens = samples.tokens
    return TrainSetup(
        shape=shape,
        sequence_length=sequence_length,
        global_batch_sequences=nice_batch(batch_tokens / sequence_length),
        precision=task.precision,
        optimizer=task.optimizer,
        lora=task.lora,
        kind=task.kind,
        framework=task.framework,
        software=case.assumptions.software or "",
        ramp=_ramp(task, sequence_length),
    )


def _ramp(task: Task, sequence_length: int) -> tuple[tuple[float, int], ...]:
    """Share of the tokens and sequences of each smaller batch of a ramp-up."""
    starts = [0.0, *(step.until_tokens for step in task.batch_ramp)]
    return tuple(
        (
            (step.until_tokens - start) / (task.tokens or step.until_tokens),
            nice_batch(step.global_batch_tokens / sequence_length),
        )
        for start, step in zip(starts, task.batch_ramp, strict=False)
    )


def nice_batch(sequences: float) -> int:
    """The whole number of sequences near ``sequences`` that the most layouts can divide.

    A batch of "4M tokens" means about that many: within 5 % the multiple of the largest power of two
    is taken, and of those the nearest.
    """
    nearest = max(1, round(sequences))
    low, high = sequences * (1.0 - NEAR_BATCH_FRAC), sequences * (1.0 + NEAR_BATCH_FRAC)
    power = 1 << max(nearest.bit_length(), 1)
    while power > 1:
        multiple = power * max(1, round(sequences / power))
        if low <= multiple <= high:
            return multiple
        power //= 2
    return nearest
