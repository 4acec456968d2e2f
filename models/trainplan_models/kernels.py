"""Time of one layer's kernels and collectives on one device, for every distinct inner layout.

Everything here depends only on tensor, context and expert parallelism, the micro-batch, recompute and sequence
parallelism: few combinations, evaluated once and spread over all layouts.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from trainplan_models.collectives import Links, all_reduce_s, all_to_all_s, gather_s
from trainplan_models.efficiency import Hardware, Software
from trainplan_models.layout import LayoutGrid
from trainplan_models.workload import (
    ModelShape,
    TrainSetup,
    attended_tokens,
    attention_params,
    family_of,
    mlp_params,
)

Floats = NDArray[np.float64]

SPLIT_CONTRACTION = 4096.0
"""Contractions longer than this are split over cores, so that the last wave stays short."""
TILE = 64.0
"""Sizes are padded to a multiple of this by matmul kernels."""
KERNELS = 12.0
"""Kernels of the forward pass of a dense layer beside its matmuls."""
MOE_KERNELS = 12.0
"""Kernels that routing, permutation and shared experts add."""
LOSS_PASSES = 2.0
"""Times what the loss holds per logit is read or written."""
ATTENTION_BACKWARD = 2.5
"""Arithmetic of the fused attention backward pass relative to its forward pass (arXiv 2307.08691)."""


@dataclass(frozen=True, slots=True)
class Chip:
    """What one device achieves in a training setup."""

    matmul_flops: float
    """Sustained, in the training precision."""
    wide_flops: float
    """Sustained, in 16 bits."""
    attention_flops: float
    memory_bytes_per_s: float
    tail_elements: float
    attention_half_tokens: float
    gap_s: float
    host_s: float
    matmul_bytes: float
    """Bytes of an operand element."""


@dataclass(slots=True)
class Pass:
    """Seconds of one layer (or of the loss) for one micro-batch, forward or backward."""

    compute: Floats
    memory: Floats
    launch: Floats
    tp: Floats
    cp: Floats
    ep: Floats

    def scaled(self, factor: float | Floats) -> Pass:
        """Every part times ``factor``."""
        return Pass(*(getattr(self, name) * factor for name in Pass.__slots__))

    def plus(self, other: Pass) -> Pass:
        """Part by part."""
        return Pass(*(getattr(self, name) + getattr(other, name) for name in Pass.__slots__))

    @property
    def total(self) -> Floats:
        """All parts."""
        return self.compute + self.memory + self.launch + self.tp + self.cp + self.ep


def _padded(size: Floats) -> Floats:
    return np.ceil(size / TILE) * TILE


def matmul_s(
    m: Floats, n: Floats, k: Floats, flops: float, chip: Chip, count: Floats | float = 1.0
) -> Floats:
    """``count`` products of ``m x k`` by ``k x n``: arithmetic with padding and a last partial wave, or traffic.

    Weights stream from memory, so products with few rows are bound by it.
    """
    depth = np.minimum(k, SPLIT_CONTRACTION)
    arithmetic = 2.0 * (_padded(m) * _padded(n) * k * count + depth * chip.tail_elements) / flops
    traffic = count * (m * k + k * n + m * n) * chip.matmul_bytes / chip.memory_bytes_per_s
    return np.maximum(arithmetic, traffic)


def linear_s(
    m: Floats, n: Floats, k: Floats, flops: float, chip: Chip, count: Floats | float = 1.0
) -> tuple[Floats, Floats, Floats]:
    """Forward, input-gradient and weight-gradient times of a linear layer."""
    return (
        matmul_s(m, n, k, flops, chip, count),
        matmul_s(m, k, n, flops, chip, count),
        matmul_s(k, n, m, flops, chip, count),
    )


@dataclass(frozen=True, slots=True)
class Inner:
    """Degrees of the distinct inner layouts, as floats."""

    tp: Floats
    cp: Floats
    ep: Floats
    micro: Floats
    tokens: Floats
    """Tokens per device and micro-batch."""
    spread: Floats
    """Devices that share norms and residuals."""


def inner_of(setup: TrainSetup, grid: LayoutGrid) -> Inner:
    """The inner degrees of a grid."""
    tp, cp, ep, micro = (np.asarray(x, dtype=float) for x in (grid.tp, grid.cp, grid.ep, grid.micro_batch))
    spread = np.where(grid.sequence_parallel > 0, tp, 1.0)
    return Inner(tp, cp, ep, micro, micro * setup.sequence_length / cp, spread)


def _attention_linears(shape: ModelShape, at: Inner) -> list[tuple[Floats, Floats]]:
    hidden = 0.0 * at.tokens + shape.hidden
    if shape.kv_lora_rank:
        q_rank, kv_rank = float(shape.q_lora_rank), float(shape.kv_lora_rank)
        value = shape.v_head_dim or shape.head_dim
        down = np.full_like(at.tokens, q_rank + kv_rank + shape.rope_head_dim)
        pairs = [(down, hidden)]
        if q_rank:
            pairs.append((shape.query_dim / at.tp, np.full_like(hidden, q_rank)))
        else:
            pairs.append((shape.query_dim / at.tp, hidden))
        pairs.append((shape.heads * (shape.head_dim + value) / at.tp, np.full_like(hidden, kv_rank)))
    else:
        pairs = [((shape.query_dim + shape.kv_dim) / at.tp, hidden)]
    return [*pairs, (hidden, shape.value_dim / at.tp)]


def _linear_sum(
    pairs: list[tuple[Floats, Floats]], rows: Floats, chip: Chip, count: Floats | float = 1.0
) -> tuple[Floats, Floats, Floats]:
    parts = [linear_s(rows, n, k, chip.matmul_flops, chip, count) for n, k in pairs]
    return sum(p[0] for p in parts), sum(p[1] for p in parts), sum(p[2] for p in parts)  # type: ignore[return-value]


def _mlp_pairs(shape: ModelShape, width: Floats) -> list[tuple[Floats, Floats]]:
    hidden = 0.0 * width + shape.hidden
    return [(width * (2.0 if shape.gated_mlp else 1.0), hidden), (hidden, width)]


def _mlp(shape: ModelShape, at: Inner, chip: Chip, moe: bool) -> tuple[Floats, Floats, Floats]:
    if not moe:
        return _linear_sum(_mlp_pairs(shape, shape.ffn / at.tp), at.tokens, chip)
    split = np.where(at.ep > 1, 1.0, at.tp)
    local = np.maximum(shape.experts / at.ep, 1.0)
    received = at.tokens / np.where(at.ep > 1, at.spread, 1.0) * shape.experts_per_token
    rows = received / local
    routed = _linear_sum(_mlp_pairs(shape, shape.routed_ffn / split), rows, chip, local)
    if not shape.shared_experts:
        return routed
    shared = _linear_sum(_mlp_pairs(shape, shape.shared_ffn / at.tp), at.tokens, chip)
    return routed[0] + shared[0], routed[1] + shared[1], routed[2] + shared[2]


def attention_core_s(setup: TrainSetup, at: Inner, chip: Chip, software: Software) -> Floats:
    """Forward time of scores and weighted sum of one layer."""
    shape = setup.shape
    attended = attended_tokens(shape, setup.span, setup.causal and software.fused_attention)
    flops = 2.0 * at.tokens * attended * (shape.query_dim + shape.value_dim) / at.tp
    if software.fused_attention:
        length = setup.span / at.cp
        return flops / chip.attention_flops * (1.0 + chip.attention_half_tokens / length)
    scores = at.micro * shape.heads / at.tp * (1.0 * setup.sequence_length) ** 2 / at.cp
    return flops / (0.6 * chip.wide_flops) + scores * 11.0 / chip.memory_bytes_per_s


def elementwise_bytes(setup: TrainSetup, at: Inner, moe: bool) -> Floats:
    """Memory traffic of norms, residuals, rotations, activation functions and casts of one layer, forward."""
    shape = setup.shape
    norms = family_of(shape.family).norms_per_layer
    residual = at.tokens * shape.hidden * 2.0 * (3.0 * norms + 3.0 * norms / 2.0) / at.spread
    heads = at.tokens * (shape.query_dim + shape.kv_dim) * 2.0 * 2.0 / at.tp
    gate = (2.0 if shape.gated_mlp else 1.0) + 1.0
    if moe:
        routed = at.tokens / np.where(at.ep > 1, at.spread, 1.0) * shape.experts_per_token
        wide = routed * shape.routed_ffn + at.tokens * shape.shared_ffn / at.tp
        moved = wide * gate * 2.0 + routed * shape.hidden * 2.0 * 6.0
        # Grouped matmuls leave biases to passes of their own.
        biased = routed * ((gate - 1.0) * shape.routed_ffn + shape.hidden)
        moved = moved + biased * 2.0 * 2.0 * family_of(shape.family).expert_bias
    else:
        moved = at.tokens * shape.ffn / at.tp * gate * 2.0
    return residual + heads + moved


def cast_bytes(setup: TrainSetup, at: Inner, moe: bool) -> Floats:
    """Memory traffic of quantizing the operands of one layer's matmuls, forward: read in 16 bits, written in 8."""
    shape = setup.shape
    if setup.precision not in ("fp8", "fp4"):
        return 0.0 * at.tokens
    inputs = at.tokens * (2.0 * shape.hidden / at.spread + shape.value_dim / at.tp)
    if moe:
        routed = at.tokens / np.where(at.ep > 1, at.spread, 1.0) * shape.experts_per_token
        inputs = inputs + routed * (shape.hidden + shape.routed_ffn) + at.tokens * shape.shared_ffn / at.tp
        # Expert weights are quantized anew for each micro-batch.
        split = np.where(at.ep > 1, at.ep, at.tp)
        inputs = inputs + mlp_params(shape, shape.routed_ffn) * shape.experts / split
    else:
        inputs = inputs + at.tokens * shape.ffn / at.tp
    return 3.0 * inputs


def accumulate_bytes(setup: TrainSetup, at: Inner, software: Software, moe: bool) -> Floats:
    """Memory traffic of adding one layer's weight gradients to those of earlier micro-batches."""
    shape = setup.shape
    if setup.lora is not None:
        return 0.0 * at.tokens
    weights = attention_params(shape) / at.tp
    if moe:
        split = np.where(at.ep > 1, at.ep, at.tp)
        weights = weights + mlp_params(shape, shape.routed_ffn) * shape.experts / split
        weights = weights + mlp_params(shape, shape.shared_ffn) / at.tp
    else:
        weights = weights + mlp_params(shape, shape.ffn) / at.tp
    return weights * software.accumulate_bytes


def _tensor_s(setup: TrainSetup, at: Inner, links: Links, software: Software) -> Floats:
    """Exposed tensor-parallel communication of one layer, forward: two all-reduces or their two halves."""
    size = at.tokens * setup.shape.hidden * 2.0
    whole = 2.0 * all_reduce_s(size, at.tp, np.ones_like(at.tp), links)
    return np.where(at.tp > 1, whole * (1.0 - software.tp_overlap), 0.0)


def _context_s(setup: TrainSetup, at: Inner, links: Links, software: Software, core: Floats) -> Floats:
    """Exposed context-parallel communication of one layer, forward: keys and values pass around."""
    size = at.tokens * at.cp * setup.shape.kv_dim * 2.0 / at.tp
    whole = gather_s(size, at.cp, at.tp, links)
    hidden = np.minimum(whole * software.cp_overlap, core)
    return np.where(at.cp > 1, whole - hidden, 0.0)


def _expert_s(setup: TrainSetup, at: Inner, links: Links, software: Software) -> Floats:
    """Exposed dispatch and combine of one layer, forward."""
    shape = setup.shape
    rows = at.tokens / at.spread
    local = np.minimum(at.ep, np.maximum(links.domain / at.cp, 1.0))
    domains = at.ep / local
    copies: Floats | float = float(shape.experts_per_token)
    if software.dispatch_once:
        held = domains * (1.0 - (1.0 - 1.0 / domains) ** shape.experts_per_token)
        copies = np.minimum(float(shape.experts_per_token), held)
    size = rows * shape.hidden * 2.0
    across = all_to_all_s(size * copies, at.ep, np.ones_like(at.ep), links)
    inside = all_to_all_s(
        size * shape.experts_per_token, np.minimum(at.ep, local), np.ones_like(at.ep), links
    )
    whole = 2.0 * np.maximum(np.where(domains > 1, across, 0.0), inside)
    return np.where(at.ep > 1, whole * (1.0 - software.ep_overlap), 0.0)


def layer_pass(
    setup: TrainSetup, hardware: Hardware, software: Software, chip: Chip, links: Links, at: Inner, moe: bool
) -> tuple[Pass, Pass, Pass]:
    """Forward, backward and the recomputed attention core of one layer for one micro-batch."""
    shape = setup.shape
    pairs = _attention_linears(shape, at)
    forward, data_grad, weight_grad = _linear_sum(pairs, at.tokens, chip)
    mlp = _mlp(shape, at, chip, moe)
    core = attention_core_s(setup, at, chip, software)
    traffic = elementwise_bytes(setup, at, moe) * software.elementwise_factor
    traffic = traffic + cast_bytes(setup, at, moe) * software.cast_factor
    moved = traffic / chip.memory_bytes_per_s
    kernels: Floats | float = KERNELS + len(pairs)
    if moe:
        kernels = kernels + MOE_KERNELS + software.expert_kernels * np.maximum(shape.experts / at.ep, 1.0)
    tp, cp = _tensor_s(setup, at, links, software), _context_s(setup, at, links, software, core)
    ep = _expert_s(setup, at, links, software) if moe else np.zeros_like(core)
    needs_weights = 0.0 if setup.lora is not None else 1.0
    slow = software.moe_factor if moe else 1.0
    compute = forward + slow * mlp[0] + core
    backward = (
        data_grad + slow * mlp[1] + needs_weights * (weight_grad + slow * mlp[2]) + core * ATTENTION_BACKWARD
    )
    ahead = Pass(compute, moved, _launch_s(kernels, compute + moved + tp + ep, chip, software), tp, cp, ep)
    twice = moved * 2.0 + accumulate_bytes(setup, at, software, moe) / chip.memory_bytes_per_s
    back = Pass(
        backward,
        twice,
        _launch_s(2.0 * kernels, backward + twice + tp + ep, chip, software),
        tp,
        cp * 2.0,
        ep,
    )
    zero = np.zeros_like(core)
    again = Pass(core * (0.0 if software.fused_attention else 1.0), moved * 0.3, zero, zero, zero, zero)
    return ahead, back, again


def _launch_s(kernels: Floats | float, busy: Floats, chip: Chip, software: Software) -> Floats:
    """Time the device waits for kernels: the gap after each one, and the host where it is slower than the device."""
    host = kernels * chip.host_s * software.launch_factor
    return kernels * chip.gap_s + np.maximum(host - busy, 0.0)


def loss_pass(setup: TrainSetup, software: Software, chip: Chip, links: Links, at: Inner) -> Pass:
    """Output projection and loss of one micro-batch, forward and backward, in 16 bits."""
    shape, zero = setup.shape, np.zeros_like(at.tokens)
    parts = linear_s(at.tokens, shape.vocab / at.tp, zero + shape.hidden, chip.wide_flops, chip)
    split = at.tp if software.logits_split else zero + 1.0
    logits = at.tokens * shape.vocab
    weight = 0.0 if setup.lora is not None else 1.0
    gathered = 2.0 * gather_s(logits * 2.0, at.tp, zero + 1.0, links)
    return Pass(
        parts[0] + parts[1] + weight * parts[2],
        logits / split * max(LOSS_PASSES * software.logits_bytes, 8.0) / chip.memory_bytes_per_s,
        zero + 8.0 * chip.gap_s,
        zero if software.logits_split else np.where(at.tp > 1, gathered, 0.0),
        zero,
        zero,
    )
