"""Bytes on the fullest device of a layout, by component.

Activations follow Korthikanti et al. (arXiv 2205.05198), counted per tensor kept for the backward pass, so that
gated MLPs, grouped queries, latent attention and experts need no special case. Sharding follows ZeRO
(arXiv 1910.02054) and hybrid sharding of PyTorch FSDP. In-flight micro-batches follow 1F1B and its interleaved
form (arXiv 2104.04473).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from trainplan_models.distinct import distinct
from trainplan_models.efficiency import Optimizer, Software, optimizer_of, software_of
from trainplan_models.layout import LayoutGrid
from trainplan_models.workload import (
    ModelShape,
    TrainSetup,
    embedding_params,
    expert_params,
    family_of,
    head_params,
    layer_params,
    lora_params,
)

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

Floats = NDArray[np.float64]

CHUNK = 1 << 14
"""Layouts evaluated at once, so that intermediate arrays stay in cache."""
CONTEXT_BYTES = 1.2e9
"""Driver context and library handles of one process (CUDA, cuBLAS, cuDNN)."""
COMMUNICATOR_BYTES = 0.35e9
"""Buffers of one NCCL or RCCL communicator."""
USABLE_FRAC = 0.975
"""Share of the nominal memory that a training process can allocate before it is refused."""
QUANTIZED_BYTES = 0.56
"""Bytes of a 4-bit weight with its block scales (arXiv 2305.14314)."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Arrays of bytes per layout; the components are those of the stage that decides."""

    weights_bytes: Floats
    gradients_bytes: Floats
    optimizer_bytes: Floats
    activations_bytes: Floats
    logits_bytes: Floats
    buffers_bytes: Floats
    """Gathered weights, recomputed block, communication and expert buffers."""
    reserve_bytes: Floats
    """Context, communicators and fragmentation."""
    total_bytes: Floats
    host_bytes: Floats
    """Offloaded to the host, per device."""
    stage: NDArray[np.int64]
    """Pipeline stage that decides: 0 the first, 1 the last."""
    usable_bytes: float

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether the fullest device holds it."""
        return self.total_bytes <= self.usable_bytes

    @property
    def allocated_bytes(self) -> Floats:
        """What the framework's allocator reports: everything but context and communicators."""
        return self.total_bytes - self.reserve_bytes


@dataclass(frozen=True, slots=True)
class _Kept:
    """Bytes per layer and micro-batch kept for the backward pass, by recompute code, and the working set."""

    dense: Floats
    moe: Floats
    working: Floats
    logits: Floats
    embedding: Floats


def layer_activation_bytes(
    setup: TrainSetup,
    tokens: Floats,
    tp: Floats,
    spread: Floats,
    software: Software,
    scores: Floats,
    moe: bool,
) -> tuple[Floats, Floats, Floats]:
    """Activations of one layer kept under no, selective and full recompute.

    Selective recompute drops attention scores where the kernel keeps them, and otherwise the outputs of norms and
    activation functions and latent up-projections.

    Args:
        tokens: tokens per device and micro-batch.
        tp: tensor-parallel degree.
        spread: devices over which norms and residuals are spread (tp with sequence parallelism, else 1).
        scores: attention scores of one layer (0 with a fused kernel).
    """
    shape = setup.shape
    operand = 1.2 if setup.precision in ("fp8", "fp4") else 2.0
    channel = tokens * shape.hidden / spread
    norms = family_of(shape.family).norms_per_layer / 2.0
    latent = tokens * (shape.q_lora_rank + shape.kv_lora_rank + shape.rope_head_dim) * 2.0
    core = 2.0 * tokens * (shape.query_dim + shape.kv_dim) / tp
    core_out = 2.0 * tokens * shape.value_dim / tp
    gated = 2.0 if shape.gated_mlp else 1.0
    if moe:
        routed = tokens * shape.experts_per_token
        width = routed * shape.routed_ffn + tokens * shape.shared_ffn / tp
        entry = routed * shape.hidden * (operand + 2.0)
    else:
        width, entry = tokens * shape.ffn / tp, 0.0 * tokens
    inputs = 2.0 * channel * (1.0 + norms) + operand * channel + software.norm_bytes * tokens * shape.hidden
    masks = 2.0 * channel * (0.0 if software.fused_attention else 1.0)
    none = inputs + core + core_out + latent + entry + width * (2.0 * gated + operand) + masks + scores
    if not software.fused_attention:
        return none, none - scores, 2.0 * channel
    kept_core = latent if shape.kv_lora_rank else core
    dropped = 1.0 - software.selective_recompute
    selective = (
        2.0 * channel * (1.0 + norms) + kept_core + core_out + entry * 0.7 + width * 2.0 * gated * dropped
    )
    return none, np.minimum(selective, none), 2.0 * channel


def _kept(setup: TrainSetup, software: Software, grid: LayoutGrid) -> _Kept:
    """What is kept, worked out once for every distinct inner layout."""
    first, inverse = distinct(grid.tp, grid.cp, grid.micro_batch, grid.recompute, grid.sequence_parallel)
    table = _kept_table(setup, software, grid.take(first))
    return _Kept(*(getattr(table, name)[inverse] for name in _Kept.__slots__))


def _kept_table(setup: TrainSetup, software: Software, grid: LayoutGrid) -> _Kept:
    shape = setup.shape
    tp, cp, micro = (np.asarray(x, dtype=float) for x in (grid.tp, grid.cp, grid.micro_batch))
    tokens = micro * setup.sequence_length / cp
    spread = np.where(grid.sequence_parallel > 0, tp, 1.0)
    scores = np.zeros_like(tokens)
    if not software.fused_attention:
        scores = 5.0 * micro * shape.heads * float(setup.sequence_length) ** 2 / (cp * tp)
    args = (setup, tokens, tp, spread, software, scores)
    kept_dense = layer_activation_bytes(*args, False)
    kept_moe = layer_activation_bytes(*args, True) if shape.is_moe else kept_dense
    dense, moe = (np.choose(grid.recompute, kept) for kept in (kept_dense, kept_moe))
    heavy = np.maximum(kept_dense[0], kept_moe[0]) + 1.3 * scores
    working = np.where(grid.recompute == 2, 2.0 * heavy, 0.3 * heavy)
    logits = tokens * shape.vocab * software.logits_bytes / np.where(software.logits_split, tp, 1.0)
    return _Kept(dense, moe, working, logits, 2.0 * tokens * shape.hidden / spread)


@dataclass(frozen=True, slots=True)
class _StageParams:
    """Parameters per device of one stage: dense part and routed experts, and the devices that share shards."""

    dense: Floats
    expert: Floats
    layer: Floats
    """Parameters of one layer on a device."""


def stage_params(shape: ModelShape, grid: LayoutGrid, last: bool, layers: Floats) -> _StageParams:
    """Parameters on one device of the first or last pipeline stage with ``layers`` layers."""
    tp, ep, pp = (np.asarray(x, dtype=float) for x in (grid.tp, grid.ep, grid.pp))
    with_experts = moe_layers_of(shape, grid, last, layers)
    experts = float(expert_params(shape)) if shape.is_moe else 0.0
    moe_layer = layer_params(shape, True) - experts if shape.is_moe else 0.0
    dense_part = (layers - with_experts) * layer_params(shape, False) + with_experts * moe_layer
    expert_layer = experts / np.where(ep > 1.0, ep, tp)
    first_end, last_end = 1.0 * embedding_params(shape), 1.0 * head_params(shape)
    if shape.tied_embeddings and last:
        last_end = first_end + last_end
    ends = np.where(pp > 1.0, last_end if last else first_end, embedding_params(shape) + head_params(shape))
    dense = (dense_part + ends) / tp
    per_layer = dense_part / np.maximum(layers, 1.0) / tp + expert_layer
    return _StageParams(dense, with_experts * expert_layer, per_layer)


def moe_layers_of(shape: ModelShape, grid: LayoutGrid, last: bool, layers: Floats) -> Floats:
    """Layers with experts in the first or last stage: few dense layers lead the model, many alternate."""
    if not shape.is_moe:
        return np.zeros_like(layers)
    if shape.dense_layers * 4 > shape.layers:
        return layers * shape.moe_layers / shape.layers
    whole = grid.pp == 1
    # Under interleaving the first stage holds the leading chunk and later ones.
    leading = np.minimum(layers / grid.vp, float(shape.dense_layers))
    return np.where(whole | (not last), layers - np.where(whole, float(shape.dense_layers), leading), layers)


def stage_layers(shape: ModelShape, grid: LayoutGrid) -> tuple[Floats, Floats, Floats]:
    """Layers of the fullest stage, of the first and of the last one.

    Where the layers do not split evenly, embedding and loss stand in for one layer each.
    """
    chunks = grid.pp * grid.vp
    even = shape.layers % chunks == 0
    per_chunk = -(-shape.layers // chunks)
    full = (per_chunk * grid.vp).astype(float)
    missing = np.where(even, 0, per_chunk * chunks - shape.layers).astype(float)
    last = np.maximum(full - np.where(missing > 0, np.maximum(np.ceil(missing / 2.0), 1.0), 0.0), 0.0)
    first = np.maximum(full - np.floor(missing / 2.0), 0.0)
    return full, first, last


def in_flight(grid: LayoutGrid, micro_batches: Floats, last: bool) -> Floats:
    """Micro-batches whose activations the first (or last) stage holds at once, in units of whole stages."""
    pp, vp = grid.pp.astype(float), grid.vp.astype(float)
    if last:
        return np.where(vp > 1, np.minimum(1.0 + (pp - 1.0) / vp * 0.0 + (vp - 1.0) / vp, micro_batches), 1.0)
    held = np.where(vp > 1, pp * (1.0 + (pp - 1.0) / (pp * vp)), pp)
    return np.where(pp > 1, np.minimum(held, micro_batches), 1.0)


def shard_sizes(grid: LayoutGrid) -> tuple[Floats, Floats]:
    """Devices over which dense and expert parameters are replicated or sharded by data parallelism."""
    dense = (grid.dp * grid.cp).astype(float)
    copies = dense * np.where(grid.ep > 1, grid.tp, 1)
    return dense, np.maximum(copies / np.maximum(grid.ep, 1), 1.0)


def _states(
    setup: TrainSetup, recipe: Optimizer, grid: LayoutGrid, params: _StageParams
) -> tuple[Floats, Floats, Floats, Floats]:
    """Weights, gradients, optimizer and host bytes of one stage."""
    dense_copies, expert_copies = shard_sizes(grid)
    group = np.where(grid.shard_group > 0, np.minimum(grid.shard_group, dense_copies), dense_copies)
    stage = grid.zero_stage

    def sharded(per_param: float, from_stage: int) -> Floats:
        shard = stage >= from_stage
        dense = params.dense / np.where(shard, group, 1.0)
        expert = params.expert / np.where(shard, np.minimum(group, expert_copies), 1.0)
        return per_param * (dense + expert)

    whole = params.dense + params.expert
    if setup.lora is not None:
        trained = lora_params(setup.shape, setup.lora.rank) / (grid.pp * grid.tp).astype(float)
        frozen = QUANTIZED_BYTES if setup.lora.quantized_base else 2.0
        # Embedding and output projection stay in 16 bits.
        ends = np.minimum(
            (embedding_params(setup.shape) + head_params(setup.shape)) / grid.tp.astype(float), whole
        )
        weights = (
            sharded(frozen, 3) + 2.0 * trained + (2.0 - frozen) * np.where(grid.pp == 1, ends, ends / 2.0)
        )
        return (
            weights,
            recipe.grad_bytes * trained,
            (recipe.master_bytes + recipe.state_bytes) * trained,
            whole * 0.0,
        )
    weight = recipe.weight_bytes
    fp8_copy = 0.5 if setup.precision in ("fp8", "fp4") else 0.0
    own_master = np.where((stage >= 3) & (recipe.master_bytes > 0), 0.0, 1.0)
    weights = sharded(weight, 3) * own_master + np.where(stage < 3, fp8_copy * whole, 0.0)
    optimizer = sharded(recipe.master_bytes + recipe.state_bytes, 1)
    return weights, sharded(recipe.grad_bytes, 2), optimizer, sharded(recipe.host_bytes, 1)


def _gathered(
    setup: TrainSetup, software: Software, grid: LayoutGrid, params: _StageParams, vocab_bytes: Floats
) -> Floats:
    """Weights and gradients gathered at once under ZeRO 3, or communication buckets below.

    With a pipeline the weights of the stage stay gathered and its gradients whole until the last micro-batch.
    """
    layer = 2.0 * params.layer
    flowing = 3.0 * layer + np.maximum(vocab_bytes, layer)
    staying = (2.0 + software.grad_sync_bytes) * (params.dense + params.expert)
    bucket = np.where(grid.dp > 1, software.buffer_gb * 1e9, 0.0)
    return np.where(grid.zero_stage >= 3, np.where(grid.pp > 1, staying, flowing), bucket)


def peak_memory(setup: TrainSetup, accelerator: Accelerator, node: NodeType, grid: LayoutGrid) -> Memory:
    """Peak memory of the fullest device of every layout of ``grid``.

    The first stage (embedding, most micro-batches in flight) and the last one (output projection, logits) are
    both evaluated; the larger decides.

    Raises:
        InputError: unknown optimizer recipe or software generation.
    """
    size = len(grid)
    if size <= CHUNK:
        return _peak(setup, accelerator, grid)
    pieces = [_peak(setup, accelerator, grid.take(slice(i, i + CHUNK))) for i in range(0, size, CHUNK)]
    names = [field.name for field in fields(Memory) if field.name != "usable_bytes"]
    arrays: dict[str, Any] = {name: np.concatenate([getattr(p, name) for p in pieces]) for name in names}
    return Memory(**arrays, usable_bytes=pieces[0].usable_bytes)


def _stage(
    setup: TrainSetup, software: Software, recipe: Optimizer, grid: LayoutGrid, kept: _Kept, last: bool
) -> list[Floats]:
    """Weights, gradients, optimizer, activations, logits, buffers, host bytes of one stage."""
    shape = setup.shape
    _, first_layers, last_layers = stage_layers(shape, grid)
    layers = last_layers if last else first_layers
    params = stage_params(shape, grid, last, layers)
    weights, gradients, optimizer, host = _states(setup, recipe, grid, params)
    micro_batches = setup.global_batch_sequences / (grid.dp * grid.micro_batch).astype(float)
    held = in_flight(grid, np.maximum(micro_batches, 1.0), last)
    with_experts = moe_layers_of(shape, grid, last, layers)
    per_batch = kept.dense * (layers - with_experts) + kept.moe * with_experts
    stored = per_batch * held
    if setup.activation_offload:
        host = host + np.where(grid.recompute == 2, stored, 0.0)
        stored = np.where(grid.recompute == 2, 2.0 * kept.dense, stored)
    holds_logits = (grid.pp == 1) | last
    logits = np.where(holds_logits, kept.logits, 0.0)
    activations = stored + kept.embedding
    vocab_bytes = 2.0 * shape.vocab * shape.hidden / grid.tp.astype(float)
    buffers = _gathered(setup, software, grid, params, np.where(holds_logits | (not last), vocab_bytes, 0.0))
    # The peak is either the backward pass of the loss or that of a block, never both.
    working = np.maximum(kept.working - logits, 0.0)
    return [weights, gradients, optimizer, activations, logits, buffers + working, host]


def _peak(setup: TrainSetup, accelerator: Accelerator, grid: LayoutGrid) -> Memory:
    first, last = _both_stages(setup, grid)
    heavier = np.sum(last[:6], axis=0) > np.sum(first[:6], axis=0)
    parts = [np.where(heavier, b, a) for a, b in zip(first, last, strict=True)]
    return _memory(setup, accelerator, grid, parts, heavier.astype(np.int64))


def memory_by_stage(setup: TrainSetup, accelerator: Accelerator, grid: LayoutGrid) -> dict[str, Memory]:
    """Memory of the first and of the last pipeline stage; without a pipeline they are the same."""
    first, last = _both_stages(setup, grid)
    zeros = np.zeros(len(grid), dtype=np.int64)
    return {
        "first": _memory(setup, accelerator, grid, first, zeros),
        "last": _memory(setup, accelerator, grid, last, zeros + 1),
    }


def _both_stages(setup: TrainSetup, grid: LayoutGrid) -> tuple[list[Floats], list[Floats]]:
    software, recipe = software_of(setup.framework, setup.software), optimizer_of(setup.optimizer)
    kept = _kept(setup, software, grid)
    return _stage(setup, software, recipe, grid, kept, False), _stage(
        setup, software, recipe, grid, kept, True
    )


def _memory(
    setup: TrainSetup,
    accelerator: Accelerator,
    grid: LayoutGrid,
    parts: list[Floats],
    stage: NDArray[np.int64],
) -> Memory:
    """The components with what the driver, the communicators and fragmentation take."""
    groups = 1.0 + sum((column > 1).astype(float) for column in (grid.tp, grid.pp, grid.cp, grid.ep, grid.dp))
    transient = parts[3] + parts[4] + parts[5]
    lost = software_of(setup.framework, setup.software).fragmentation_frac * transient
    reserve = CONTEXT_BYTES + COMMUNICATOR_BYTES * groups + lost
    return Memory(
        weights_bytes=parts[0],
        gradients_bytes=parts[1],
        optimizer_bytes=parts[2],
        activations_bytes=parts[3],
        logits_bytes=parts[4],
        buffers_bytes=parts[5],
        reserve_bytes=reserve,
        total_bytes=sum(parts[:6]) + reserve,
        host_bytes=parts[6],
        stage=stage,
        usable_bytes=USABLE_FRAC * accelerator.memory_bytes,
    )
