"""Work that generates text: reinforcement learning steps, evaluation and data generation.

Decoding reads all weights (of a mixture, those of the experts a batch touches) and the key-value cache of every
sequence for each token, so it is bound by memory bandwidth until the batch is large; the batch is what the cache
leaves room for. Scoring and the update are bound by compute. In a reinforcement learning step the phases follow
each other on the same devices and new weights go to the generating replicas in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trainplan_models.collectives import all_reduce_s
from trainplan_models.efficiency import Hardware, hardware_of, links_of, matmul_flops
from trainplan_models.workload import ModelShape, TrainSetup, expert_params, matmul_params, total_params

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SERVING_FRAC = 0.88
"""Share of the memory that an inference engine gives to weights and cache."""
DECODE_BANDWIDTH_FRAC = 0.7
"""Share of the achieved memory bandwidth that decoding kernels reach."""
PREFILL_FRAC = 0.7
"""Share of the training matmul rate that prefill and scoring reach."""
LENGTH_TAIL = 1.8
"""Decoding steps over mean response length: a batch waits for its longest answers."""
TOKEN_HOST_S = 6e-3
"""Scheduling and sampling on the host between two decoding steps."""
EXCHANGE_S = (15e-6, 100e-6)
"""Latency of a small all-reduce while decoding, inside a domain and across domains."""
PHASE_FRAC = 0.35
"""Throughput of scoring and update in a reinforcement learning step against pretraining: answers of unequal length,
small batches, phases that wait for each other."""
REFIT_FRAC = 0.15
"""Share of the link rate that moving new weights into another sharding reaches."""
STEP_OVERHEAD_S = 10.0
"""Once a step: waking engines, moving samples, rewards, logging."""
SCORING_PASSES = 2.0
"""Forward passes over every sample beside the update: old and reference log-probabilities, or a reward."""
KERNELS_PER_LAYER = 10.0
MOST_SEQUENCES = 1024.0
"""Sequences an engine decodes at once in one replica."""


class RolloutLike(Protocol):
    """What a case says about generation."""

    @property
    def prompts(self) -> int: ...
    @property
    def samples_per_prompt(self) -> int: ...
    @property
    def prompt_tokens(self) -> float: ...
    @property
    def response_tokens(self) -> float: ...


@dataclass(frozen=True, slots=True)
class Generation:
    """Decoding of one batch of samples, by node count."""

    seconds: Floats
    """Until all samples are complete; infinite where the weights do not fit."""
    tokens_per_s: Floats
    """Response tokens of all replicas together."""
    tensor: Ints
    """Devices of one replica."""
    batch: Floats
    """Sequences decoded at once in one replica."""


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """One reinforcement learning step, by node count; seconds."""

    generation_s: Floats
    scoring_s: Floats
    update_s: Floats
    weight_transfer_s: Floats
    step_s: Floats
    """The phases one after another, with what a step costs whatever its size."""
    samples_per_s: Floats


def cache_bytes_per_token(shape: ModelShape) -> float:
    """Key-value cache of one token in 16 bits; latent attention keeps its compressed form."""
    width = (
        shape.kv_lora_rank + shape.rope_head_dim
        if shape.kv_lora_rank
        else 2 * shape.kv_heads * shape.head_dim
    )
    return 2.0 * shape.layers * width


def weights_read_bytes(shape: ModelShape, batch: Floats, weight_bytes: float) -> Floats:
    """Weights that one decoding step of ``batch`` sequences reads."""
    everything = total_params(shape) * weight_bytes * np.ones_like(batch)
    if not shape.is_moe:
        return everything
    experts = shape.moe_layers * expert_params(shape) * weight_bytes
    touched = 1.0 - (1.0 - shape.experts_per_token / shape.experts) ** np.minimum(batch, 1e6)
    return everything - experts * (1.0 - touched)


def _replica_sizes(shape: ModelShape, node: NodeType) -> list[int]:
    most = max(node.accelerators, min(node.scaleup_devices, 64))
    sizes = [1 << i for i in range(8) if (1 << i) <= most and shape.heads % (1 << i) == 0]
    # A model too large for one domain is spread over several by pipeline or expert parallelism.
    return [*sizes, *(sizes[-1] * factor for factor in (2, 4))]


def generate(
    shape: ModelShape,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    nodes: Ints,
    weight_bytes: float = 2.0,
    memory_frac: float = 1.0,
) -> Generation:
    """Time to decode all samples of ``rollout`` on ``nodes`` nodes, with the best replica size for each.

    Args:
        nodes: node counts.
        weight_bytes: bytes per weight while generating.
        memory_frac: share of the memory that training state leaves to generation.
    """
    hardware = hardware_of(accelerator.generation)
    samples = float(rollout.prompts * rollout.samples_per_prompt)
    best = np.full(len(nodes), np.inf)
    size = np.ones(len(nodes), dtype=np.int64)
    held = np.zeros(len(nodes))
    for tensor in _replica_sizes(shape, node):
        seconds, batch = _decode(
            shape, rollout, accelerator, node, hardware, nodes, tensor, samples, weight_bytes, memory_frac
        )
        better = seconds < best
        best, size = np.where(better, seconds, best), np.where(better, tensor, size)
        held = np.where(better, batch, held)
    rate = np.where(np.isfinite(best), samples * rollout.response_tokens / best, 0.0)
    return Generation(best, rate, size, held)


def _decode(
    shape: ModelShape,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    hardware: Hardware,
    nodes: Ints,
    tensor: int,
    samples: float,
    weight_bytes: float,
    memory_frac: float,
) -> tuple[Floats, Floats]:
    """Seconds and batch per replica with replicas of ``tensor`` devices."""
    replicas = np.floor(nodes * node.accelerators / tensor)
    usable = replicas > 0
    replicas = np.maximum(replicas, 1.0)
    length = rollout.prompt_tokens + rollout.response_tokens
    memory = SERVING_FRAC * memory_frac * accelerator.memory_bytes * tensor
    room = memory - total_params(shape) * weight_bytes
    cache = cache_bytes_per_token(shape)
    capacity = np.floor(max(room, 0.0) / (cache * length))
    wanted = np.ceil(samples / replicas)
    batch = np.minimum(np.minimum(wanted, capacity), MOST_SEQUENCES)
    usable = usable & (batch >= 1.0)
    batch = np.maximum(batch, 1.0)
    context = rollout.prompt_tokens + 0.5 * rollout.response_tokens
    bandwidth = tensor * accelerator.memory_bytes_per_s * hardware.memory_frac * DECODE_BANDWIDTH_FRAC
    read = (weights_read_bytes(shape, batch, weight_bytes) + batch * cache * context) / bandwidth
    rate = tensor * matmul_flops(hardware, accelerator, "bf16") * PREFILL_FRAC
    compute = 2.0 * matmul_params(shape) * batch / rate
    links = links_of(hardware, accelerator, node)
    size = batch * shape.hidden * 2.0
    exchange = (
        2.0
        * shape.layers
        * all_reduce_s(size, np.full_like(batch, float(tensor)), np.ones_like(batch), links)
    )
    gaps = shape.layers * KERNELS_PER_LAYER * hardware.gap_s
    latency = 2.0 * shape.layers * EXCHANGE_S[int(tensor > node.scaleup_devices)]
    token_s = np.maximum(read, compute) + gaps + TOKEN_HOST_S
    if tensor > 1:
        token_s = token_s + exchange + latency
    waves = np.maximum(wanted / batch, 1.0)
    decode = token_s * rollout.response_tokens * LENGTH_TAIL * waves
    prefill = 2.0 * matmul_params(shape) * rollout.prompt_tokens * wanted / rate
    return np.where(usable, decode + prefill, np.inf), batch


def score_s(
    shape: ModelShape,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    nodes: Ints,
    passes: float = SCORING_PASSES,
) -> Floats:
    """Forward passes over all samples of a step, spread over all devices."""
    tokens = rollout.prompts * rollout.samples_per_prompt * (rollout.prompt_tokens + rollout.response_tokens)
    rate = matmul_flops(hardware_of(accelerator.generation), accelerator, "bf16") * PREFILL_FRAC
    devices = nodes.astype(np.float64) * node.accelerators
    return passes * 2.0 * matmul_params(shape) * tokens / (rate * devices * PHASE_FRAC)


def weight_transfer_s(shape: ModelShape, accelerator: Accelerator, node: NodeType, tensor: Ints) -> Floats:
    """New weights to all replicas: a pipelined broadcast, every device of a replica fetching its share."""
    links = links_of(hardware_of(accelerator.generation), accelerator, node)
    rate = REFIT_FRAC * links.scaleout_bytes_per_s * tensor.astype(np.float64)
    return 2.0 * total_params(shape) * 2.0 / rate


def rollout_step(
    setup: TrainSetup,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    nodes: Ints,
    train_tokens_per_s: Floats,
) -> RolloutStep:
    """One step of generation, scoring, update and weight transfer on the same ``nodes`` nodes.

    Args:
        train_tokens_per_s: throughput of the update on each node count.
    """
    shape = setup.shape
    made = generate(shape, rollout, accelerator, node, nodes)
    scoring = score_s(shape, rollout, accelerator, node, nodes)
    samples = rollout.prompts * rollout.samples_per_prompt
    tokens = samples * (rollout.prompt_tokens + rollout.response_tokens)
    update = tokens / np.maximum(train_tokens_per_s * PHASE_FRAC, 1e-9)
    transfer = weight_transfer_s(shape, accelerator, node, made.tensor)
    step = made.seconds + scoring + update + transfer + STEP_OVERHEAD_S
    return RolloutStep(made.seconds, scoring, update, transfer, step, samples / step)
