"""A task as a training program sees it, read from the case inside a plan."""

from __future__ import annotations

from dataclasses import dataclass

from trainplan_models.base import InputError
from trainplan_models.case import TRAINING_KINDS, Case, Rollout, Shape, Task
from trainplan_models.workload import ModelShape


@dataclass(frozen=True, slots=True)
class TaskView:
    """What a trainer needs to know of a task, read from the case inside the plan."""

    name: str
    kind: str
    framework: str
    precision: str
    optimizer: str
    rounds: int
    expected_rounds_count: float
    """Fewer than ``rounds`` where not all need be done."""
    model: str
    """Catalogue name or path as the case has it; empty when the shape is written out."""
    shape: ModelShape | None
    """None when the model cannot be resolved from the plan alone."""
    lora_rank: int
    quantized_base: bool
    rollout: Rollout | None
    labels: tuple[tuple[str, str], ...]
    after: tuple[str, ...]
    weights_from: str
    """The task whose trained weights this one starts from; empty when there is none in the plan."""


def task_view(case: Case, task: Task) -> TaskView:
    """What an exporter needs to know of ``task``."""
    model = case.model_of(task)
    return TaskView(
        name=task.name,
        kind=task.kind,
        framework=task.framework,
        precision=task.precision,
        optimizer=task.optimizer,
        rounds=task.rounds,
        expected_rounds_count=task.expected_rounds,
        model=model if isinstance(model, str) else "",
        shape=_shape(model),
        lora_rank=task.lora.rank if task.lora is not None else 0,
        quantized_base=task.lora is not None and task.lora.quantized_base,
        rollout=task.rollout,
        labels=tuple(task.labels.items()),
        after=task.after,
        weights_from=_weights_from(case, task),
    )


def _weights_from(case: Case, task: Task) -> str:
    """The first task it follows that trains a model, looking through those that do not."""
    if task.kind == "pretrain":
        return ""
    for name in task.after:
        before = case.task(name)
        found = name if before.kind in TRAINING_KINDS else _weights_from(case, before)
        if found:
            return found
    return ""


def _shape(model: str | Shape | None) -> ModelShape | None:
    from trainplan_models import catalog
    from trainplan_models.hf_config import from_hf_config
    from trainplan_models.workload import shape_of

    if model is None:
        return None
    if not isinstance(model, str):
        return shape_of(model)
    try:
        return from_hf_config(model) if model.endswith(".json") else shape_of(catalog.builtin().model(model))
    except InputError:
        return None
