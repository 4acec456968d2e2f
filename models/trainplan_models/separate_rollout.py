"""A reinforcement learning step whose samples are generated on other nodes than those that train.

Nothing is shared but weights: after each update the generating nodes fetch them. On-policy, the phases follow
each other and each group of nodes stands still while the other works. Where samples may be one step old, the next
ones are generated while these are trained on, and the longer of the two decides. Scoring is done by whichever
group of nodes makes the step shorter.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from trainplan_models.rollout import (
    Floats,
    Ints,
    RolloutLike,
    Serving,
    generate,
    score_s,
    training_s,
    weight_transfer_s,
)
from trainplan_models.workload import ModelShape, TrainSetup, total_params

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

WEIGHT_BYTES = 2.0
"""Of a weight that is sent to generate with."""


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes of one kind, in several counts."""

    accelerator: Accelerator
    node: NodeType
    nodes: Ints
    """Node counts."""


@dataclass(frozen=True, slots=True)
class SeparateStep:
    """One step for each count of training nodes (rows) and of generating nodes (columns); seconds."""

    generation_s: Floats
    """By column."""
    scoring_s: Floats
    update_s: Floats
    """By row."""
    weight_transfer_s: Floats
    step_s: Floats
    """Infinite where the weights do not fit the generating nodes."""
    scored_by_rollout: np.ndarray[tuple[int, int], np.dtype[np.bool_]]
    """Whether the generating nodes do the scoring."""
    tensor: Ints
    """Devices of one generating replica, by column."""


def separate_step(
    setup: TrainSetup,
    rollout: RolloutLike,
    trainer: Group,
    generator: Group,
    train_tokens_per_s: Floats,
    *,
    between_bytes_per_s: float | None,
    overlapped: bool,
) -> SeparateStep:
    """One step with ``trainer`` nodes for the update and ``generator`` nodes for the samples.

    Args:
        setup: what is trained.
        rollout: what is generated in a step.
        trainer: the nodes that train.
        generator: the nodes that generate.
        train_tokens_per_s: throughput of the update on each count of training nodes.
        between_bytes_per_s: rate at which a node takes in bytes from nodes of another pool; None where both
            groups are of one pool, with its network.
        overlapped: whether samples may be a step old.
    """
    shape, serving = setup.shape, Serving(sequence_tokens=setup.sequence_length)
    made = generate(shape, rollout, generator.accelerator, generator.node, generator.nodes, serving)
    here, update = training_s(rollout, train_tokens_per_s, serving.achieved)
    there = score_s(shape, rollout, generator.accelerator, generator.node, generator.nodes)
    transfer = _transfer_s(shape, trainer, generator, made.tensor, between_bytes_per_s)

    def busy(generating: Floats, training: Floats) -> Floats:
        return np.asarray(np.maximum(generating, training) if overlapped else generating + training)

    by_trainer = busy(made.seconds[None, :], (update + here)[:, None])
    by_generator = busy((made.seconds + there)[None, :], update[:, None])
    moved = by_generator < by_trainer
    step = np.minimum(by_trainer, by_generator) + transfer + serving.achieved.step_overhead_s
    return SeparateStep(
        generation_s=made.seconds,
        scoring_s=np.where(moved, there[None, :], here[:, None]),
        update_s=update,
        weight_transfer_s=transfer,
        step_s=step,
        scored_by_rollout=moved,
        tensor=made.tensor,
    )


def _transfer_s(
    shape: ModelShape, trainer: Group, generator: Group, tensor: Ints, between_bytes_per_s: float | None
) -> Floats:
    """Until all generating nodes have the new weights, by count of training and of generating nodes.

    Within a pool they come as on shared nodes. Between pools the training nodes send the weights once, all at a
    time; the generating nodes pass them on to each other while they take them in, each node what its replicas
    hold.
    """
    if between_bytes_per_s is None:
        alone = weight_transfer_s(shape, generator.accelerator, generator.node)
        return np.full((len(trainer.nodes), len(tensor)), alone)
    size = total_params(shape) * WEIGHT_BYTES
    sent = size / (between_bytes_per_s * trainer.nodes)
    taken = size * np.minimum(generator.node.accelerators / tensor, 1.0) / between_bytes_per_s
    return np.asarray(np.maximum(sent[:, None], taken[None, :]), dtype=float)
