"""Work that generates text: reinforcement learning steps, evaluation and data generation.

Decoding reads all weights (of a mixture, those of the experts a batch touches) and the key-value cache of every
sequence for each token, so it is bound by memory bandwidth until the batch is large; the batch is what the cache
leaves room for. Answers end one by one: their lengths are taken as exponential, cut off where the longest allowed
sequence ends, so that a batch thins out while the last of them are decoded. Scoring and the update are bound by
compute. In a reinforcement learning step the phases follow each other on the same devices, or generation and
training run side by side on their own, and new weights go to the generating replicas in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Protocol

import numpy as np
from numpy.typing import NDArray

from trainplan_models.collectives import all_reduce_s
from trainplan_models.efficiency import hardware_of, links_of, matmul_flops
from trainplan_models.generation_engine import Engine, engine
from trainplan_models.workload import ModelShape, TrainSetup, expert_params, matmul_params, total_params

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

SERVING_FRAC = 0.88
"""Share of the memory that an inference engine gives to weights and cache where it has the devices to itself."""
COLOCATED_FRAC = 0.6
"""The same beside what training keeps on the devices (default of public recipes)."""
PREFILL_FRAC = 0.7
"""Share of the training matmul rate that prefill and scoring reach."""
SCORING_FRAC = 0.35
"""Further share of it where nothing but scoring is done: texts of unequal length in small batches."""
FORWARD_FRAC = 1.0 / 3.0
"""Arithmetic of a forward pass against that of a training step."""
SCORING_PASSES = 2.0
"""Forward passes over every sample beside the update: old and reference log-probabilities, or a reward."""
MOST_SEQUENCES = 1024.0
"""Sequences an engine decodes at once in one replica."""
EULER = 0.5772
SPAN = (np.arange(12) + 0.5) / 12.0
"""Points along the decoding of a batch at which its token time is taken."""
MOST_CUT = 0.98
"""Mean over longest answer up to which a limit says anything about the lengths in between."""
LONGEST = 2.0
"""Longest answer an engine allows over the mean one where nothing else is known; 1.3 to 3.8 in public recipes."""


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
class Samples:
    """What is generated in one step, or in all where there are no steps."""

    prompts: int
    samples_per_prompt: int
    prompt_tokens: float
    response_tokens: float

    @property
    def tokens(self) -> float:
        """Tokens of all samples, prompts included."""
        return self.prompts * self.samples_per_prompt * (self.prompt_tokens + self.response_tokens)


@dataclass(frozen=True, slots=True)
class Serving:
    """How text is generated."""

    memory_frac: float = SERVING_FRAC
    """Share of the memory for weights and cache."""
    weight_bytes: float = 2.0
    """Bytes per weight while generating."""
    tensor: int = 0
    """Devices of one replica; 0: whichever number is fastest."""
    sequence_tokens: float = 0.0
    """Longest prompt with its answer; 0: not known."""
    engine: Engine | None = None
    """What the engine achieves; None: the values of the catalogue."""

    @property
    def achieved(self) -> Engine:
        """What the engine achieves."""
        return self.engine or engine()


@dataclass(frozen=True, slots=True)
class _Place:
    accelerator: Accelerator
    node: NodeType
    serving: Serving


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


def cache_copies(shape: ModelShape, tensor: int) -> float:
    """How often a replica of ``tensor`` devices holds the cache: a head lies on at least one device."""
    return float(tensor) if shape.kv_lora_rank else max(tensor / shape.kv_heads, 1.0)


def weights_read_bytes(shape: ModelShape, batch: Floats, weight_bytes: float) -> Floats:
    """Weights that one decoding step of ``batch`` sequences reads."""
    everything = total_params(shape) * weight_bytes * np.ones_like(batch)
    if not shape.is_moe:
        return everything
    experts = shape.moe_layers * expert_params(shape) * weight_bytes
    touched = 1.0 - (1.0 - shape.experts_per_token / shape.experts) ** np.minimum(batch, 1e6)
    return everything - experts * (1.0 - touched)


def length_scale(mean: float, longest: float) -> float:
    """Scale of the exponential distribution that has this mean, below ``longest``, once it is cut off there."""
    target = mean / longest
    low, high = 1e-3, 1.0 / target
    for _ in range(40):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if -np.expm1(-middle) / middle > target else (low, middle)
    return longest / low


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
    serving: Serving | None = None,
) -> Generation:
    """Time to decode all samples of ``rollout`` on ``nodes`` nodes, with the best replica size for each.

    Args:
        nodes: node counts.
    """
    place = _Place(accelerator, node, serving or Serving())
    samples = float(rollout.prompts * rollout.samples_per_prompt)
    best = np.full(len(nodes), np.inf)
    size = np.ones(len(nodes), dtype=np.int64)
    held = np.zeros(len(nodes))
    sizes = [place.serving.tensor] if place.serving.tensor else _replica_sizes(shape, node)
    for tensor in sizes:
        seconds, batch = _decode(shape, rollout, place, nodes, tensor)
        better = seconds < best
        best, size = np.where(better, seconds, best), np.where(better, tensor, size)
        held = np.where(better, batch, held)
    rate = np.where(np.isfinite(best), samples * rollout.response_tokens / best, 0.0)
    return Generation(best, rate, size, held)


def _token_s(shape: ModelShape, place: _Place, tensor: int, batch: Floats, context: Floats | float) -> Floats:
    """One decoding step of ``batch`` sequences of ``context`` tokens in a replica of ``tensor`` devices."""
    accelerator, node, achieved = place.accelerator, place.node, place.serving.achieved
    hardware = hardware_of(accelerator.generation)
    cache = cache_bytes_per_token(shape) * cache_copies(shape, tensor)
    bandwidth = (
        tensor * accelerator.memory_bytes_per_s * hardware.memory_frac * achieved.decode_bandwidth_frac
    )
    read = (
        weights_read_bytes(shape, batch, place.serving.weight_bytes) + batch * cache * context
    ) / bandwidth
    compute = 2.0 * matmul_params(shape) * batch / _rate(accelerator, tensor)
    busy = np.maximum(read, compute) + shape.layers * achieved.layer_gap_s + achieved.token_host_s
    if tensor == 1:
        return busy
    links = replace(
        links_of(hardware, accelerator, node), scaleup_latency_s=0.0, scaleout_latency_s=0.0, half_message_bytes=0.0
    )  # fmt: skip
    size = batch * shape.hidden * 2.0
    moved = all_reduce_s(size, np.full_like(size, float(tensor)), np.ones_like(size), links)
    wide = tensor > node.scaleup_devices
    latency = achieved.exchange_across_s if wide else achieved.exchange_inside_s
    return busy + 2.0 * shape.layers * (moved + latency)


def _rate(accelerator: Accelerator, devices: float) -> float:
    return devices * matmul_flops(hardware_of(accelerator.generation), accelerator, "bf16") * PREFILL_FRAC


def _decode(
    shape: ModelShape, rollout: RolloutLike, place: _Place, nodes: Ints, tensor: int
) -> tuple[Floats, Floats]:
    """Seconds and batch per replica with replicas of ``tensor`` devices."""
    replicas = np.floor(nodes * place.node.accelerators / tensor)
    usable = replicas > 0
    prompt, response = rollout.prompt_tokens, rollout.response_tokens
    memory = place.serving.memory_frac * place.accelerator.memory_bytes * tensor
    room = memory - total_params(shape) * place.serving.weight_bytes
    cache = cache_bytes_per_token(shape) * cache_copies(shape, tensor)
    capacity = np.floor(max(room, 0.0) / (cache * (prompt + response)))
    wanted = np.ceil(rollout.prompts * rollout.samples_per_prompt / np.maximum(replicas, 1.0))
    batch = np.minimum(np.minimum(wanted, capacity), MOST_SEQUENCES)
    usable = usable & (batch >= 1.0)
    batch = np.maximum(batch, 1.0)
    # Full batches while more wait; then the last one thins out until its longest answer ends.
    full = (wanted / batch - 1.0) * response * _token_s(shape, place, tensor, batch, prompt + 0.5 * response)
    limit = place.serving.sequence_tokens - prompt
    limit = limit if response < MOST_CUT * limit else LONGEST * response
    scale = length_scale(response, limit)
    last = np.minimum(limit, scale * (np.log(batch) + EULER + 0.5 / batch))[:, None]
    alive = np.maximum(batch[:, None] * np.exp(-SPAN * last / scale), 1.0)
    context = np.asarray(prompt + SPAN * last, dtype=np.float64)
    thinning = last[:, 0] * _token_s(shape, place, tensor, alive, context).mean(axis=1)
    prefill = 2.0 * matmul_params(shape) * prompt * wanted / _rate(place.accelerator, tensor)
    return np.where(usable, full + thinning + prefill, np.inf), batch


def score_s(
    shape: ModelShape,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    nodes: Ints,
    passes: float = SCORING_PASSES,
) -> Floats:
    """Forward passes over all samples, spread over all devices."""
    tokens = rollout.prompts * rollout.samples_per_prompt * (rollout.prompt_tokens + rollout.response_tokens)
    rate = _rate(accelerator, 1.0) * SCORING_FRAC
    return (
        passes * 2.0 * matmul_params(shape) * tokens / (rate * nodes.astype(np.float64) * node.accelerators)
    )


def weight_transfer_s(
    shape: ModelShape, accelerator: Accelerator, node: NodeType, achieved: Engine | None = None
) -> float:
    """New weights to all replicas: every device sees all of them pass and picks those of its other sharding."""
    achieved = achieved or engine()
    links = links_of(hardware_of(accelerator.generation), accelerator, node)
    return 2.0 * total_params(shape) / (achieved.refit_frac * links.scaleout_bytes_per_s)


def training_s(
    rollout: RolloutLike, train_tokens_per_s: Floats, achieved: Engine, passes: float = SCORING_PASSES
) -> tuple[Floats, Floats]:
    """Scoring and update of all samples, given what pretraining in the same layout and batch would reach."""
    samples = rollout.prompts * rollout.samples_per_prompt
    tokens = samples * (rollout.prompt_tokens + rollout.response_tokens)
    update = tokens / np.maximum(train_tokens_per_s * achieved.update_frac, 1e-9)
    return passes * FORWARD_FRAC * update, update


def rollout_step(
    setup: TrainSetup,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    nodes: Ints,
    train_tokens_per_s: Floats,
    serving: Serving | None = None,
    passes: float = SCORING_PASSES,
) -> RolloutStep:
    """One step of generation, scoring, update and weight transfer, one after the other on ``nodes`` nodes.

    Args:
        train_tokens_per_s: throughput of the update on each node count.
        passes: forward passes over every sample beside the update.
    """
    serving = serving or Serving(COLOCATED_FRAC, sequence_tokens=setup.sequence_length)
    made = generate(setup.shape, rollout, accelerator, node, nodes, serving)
    scoring, update = training_s(rollout, train_tokens_per_s, serving.achieved, passes)
    transfer = np.full(len(nodes), weight_transfer_s(setup.shape, accelerator, node, serving.achieved))
    step = made.seconds + scoring + update + transfer + serving.achieved.step_overhead_s
    return RolloutStep(made.seconds, scoring, update, transfer, step, _samples(rollout) / step)


def apart_step(
    setup: TrainSetup,
    rollout: RolloutLike,
    accelerator: Accelerator,
    node: NodeType,
    nodes: Ints,
    train_tokens_per_s: Floats,
    serving: Serving | None = None,
    passes: float = SCORING_PASSES,
    lag: int = 1,
) -> RolloutStep:
    """One step where ``nodes`` nodes only generate, at most ``lag`` steps ahead of others that only train.

    The slower of the two sides sets the pace, and ``lag`` batches are decoded at once.
    """
    serving = serving or Serving(sequence_tokens=setup.sequence_length)
    several = Samples(
        rollout.prompts * lag, rollout.samples_per_prompt, rollout.prompt_tokens, rollout.response_tokens
    )
    made = generate(setup.shape, several, accelerator, node, nodes, serving).seconds / lag
    scoring, update = training_s(rollout, train_tokens_per_s, serving.achieved, passes)
    transfer = np.full(len(nodes), weight_transfer_s(setup.shape, accelerator, node, serving.achieved))
    step = np.maximum(made, scoring + update + transfer + serving.achieved.step_overhead_s)
    return RolloutStep(made, scoring, update, transfer, step, _samples(rollout) / step)


def _samples(rollout: RolloutLike) -> int:
    return rollout.prompts * rollout.samples_per_prompt
