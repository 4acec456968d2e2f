"""Time of one optimizer step of a layout, split into what it is spent on.

Compute and communication per layer come from ``kernels``; here they are put together over micro-batches, pipeline
stages and data-parallel replicas. The pipeline is 1F1B or interleaved 1F1B (arXiv 2104.04473): the slowest stage
sets the pace, filling and draining adds the other stages once, divided by the number of chunks per stage.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from trainplan_models.block_recompute import full_share, selective_share
from trainplan_models.collectives import Links, all_reduce_s, gather_s, send_s
from trainplan_models.distinct import distinct
from trainplan_models.efficiency import (
    Hardware,
    Software,
    hardware_of,
    links_of,
    matmul_flops,
    optimizer_of,
    software_of,
)
from trainplan_models.kernels import Chip, Inner, Pass, inner_of, layer_pass, loss_pass
from trainplan_models.layout import LayoutGrid
from trainplan_models.memory import shard_sizes, stage_layers, stage_params
from trainplan_models.workload import TrainSetup, flops_per_token, lora_params

if TYPE_CHECKING:
    from trainplan_models.catalog.records import Accelerator, NodeType

Floats = NDArray[np.float64]

CHUNK = 1 << 14
"""Layouts evaluated at once, so that intermediate arrays stay in cache."""

HOST_PARAMETER_S = 2e-9
"""Update of one parameter in host memory, with its way there and back (ZeRO-Offload, one device's share)."""

LAUNCHES = {"rl": 3.0}
"""Host time of launches against pretraining, by task kind: packed samples of unequal length keep steps from being
captured and replayed. Chosen among 1 to 6 by the rows that ``tests/benchmark/fit_rollout.py`` fits to."""

EXTRA_FORWARDS = {"preference": 1.0}
"""Forward passes of a frozen reference model per training token, by task kind."""


@dataclass(frozen=True, slots=True)
class StepTime:
    """Seconds per step and layout; the parts add up to ``step_s``."""

    compute_s: Floats
    """Matrix products and attention, without recompute."""
    memory_bound_s: Floats
    """Element-wise operations."""
    launch_s: Floats
    recompute_s: Floats
    tp_s: Floats
    """Exposed tensor-parallel communication; the same for the next ones."""
    cp_s: Floats
    ep_s: Floats
    pp_s: Floats
    dp_s: Floats
    bubble_s: Floats
    """Idle in the pipeline, stages of unequal length included."""
    optimizer_s: Floats
    overhead_s: Floats
    """Host work once a step, and waiting for the slowest device."""
    step_s: Floats
    tokens_per_s: Floats
    """Of the whole job; where the batch grows, over all its tokens, while the other times are of its last batch."""
    mfu_frac: Floats
    """Model FLOPs (causal attention) over the dense 16-bit peak."""


@dataclass(frozen=True, slots=True)
class _Context:
    setup: TrainSetup
    hardware: Hardware
    software: Software
    chip: Chip
    links: Links
    accelerator: Accelerator


def _context(
    setup: TrainSetup,
    accelerator: Accelerator,
    node: NodeType,
    hardware: Hardware | None,
    software: Software | None,
) -> _Context:
    hardware = hardware or hardware_of(accelerator.generation)
    software = software or software_of(setup.framework, setup.software)
    factor = software.compute_factor
    wide = matmul_flops(hardware, accelerator, "bf16") * factor
    chip = Chip(
        matmul_flops=matmul_flops(hardware, accelerator, setup.precision) * factor,
        wide_flops=wide,
        attention_flops=accelerator.bf16_flops * hardware.attention_frac * software.attention_factor,
        attention_half_tokens=hardware.attention_half_tokens,
        memory_bytes_per_s=accelerator.memory_bytes_per_s * hardware.memory_frac,
        tail_elements=hardware.tail_elements,
        gap_s=hardware.gap_s,
        host_s=hardware.host_s * LAUNCHES.get(setup.kind, 1.0),
        matmul_bytes=1.0 if setup.precision in ("fp8", "fp4") else 2.0,
    )
    return _Context(setup, hardware, software, chip, links_of(hardware, accelerator, node), accelerator)


def step_time(
    setup: TrainSetup,
    accelerator: Accelerator,
    node: NodeType,
    grid: LayoutGrid,
    *,
    hardware: Hardware | None = None,
    software: Software | None = None,
    rowwise: bool = False,
) -> StepTime:
    """Step time of every layout of ``grid``; ``hardware`` and ``software`` override the catalogue.

    With ``rowwise`` the sizes in ``setup`` may be arrays, one entry for each layout.

    Raises:
        InputError: no parameters for the accelerator generation, or an unknown software generation or recipe.
    """
    if setup.ramp:
        return _over_ramp(
            [
                (share, step_time(one, accelerator, node, grid, hardware=hardware, software=software))
                for share, one in setup.phases
            ]
        )
    context = _context(setup, accelerator, node, hardware, software)
    columns = (grid.tp, grid.cp, grid.ep, grid.micro_batch, grid.recompute, grid.sequence_parallel)
    first, inverse = (np.arange(len(grid)),) * 2 if rowwise else distinct(*columns)
    table = _inner_table(context, grid.take(first))
    size = len(grid)
    if rowwise or size <= CHUNK:
        return _outer(context, grid, table, inverse)
    pieces = [
        _outer(context, grid.take(slice(i, i + CHUNK)), table, inverse[i : i + CHUNK])
        for i in range(0, size, CHUNK)
    ]
    return StepTime(*(np.concatenate([getattr(p, f.name) for p in pieces]) for f in fields(StepTime)))


def _over_ramp(phases: list[tuple[float, StepTime]]) -> StepTime:
    """The last batch's step, with the speed that all tokens together are trained at."""
    last = phases[-1][1]
    tokens_per_s = 1.0 / np.sum([share / time.tokens_per_s for share, time in phases], axis=0)
    mfu_frac = last.mfu_frac * tokens_per_s / last.tokens_per_s
    return replace(last, tokens_per_s=tokens_per_s, mfu_frac=mfu_frac)


@dataclass(frozen=True, slots=True)
class _Table:
    """Per distinct inner layout: a layer's passes, the loss, and the sizes sent."""

    ahead: Pass
    back: Pass
    again: Pass
    """What is computed a second time."""
    loss: Pass
    residual_bytes: Floats
    layer_s: Floats
    """One layer, forward, backward and recompute."""


def _inner_table(context: _Context, grid: LayoutGrid) -> _Table:
    setup, shape = context.setup, context.setup.shape
    at: Inner = inner_of(setup, grid)
    args = (setup, context.hardware, context.software, context.chip, context.links, at)
    share = shape.moe_layers / shape.layers
    ahead, back, core = layer_pass(*args, False)
    if shape.is_moe:
        expert = layer_pass(*args, True)
        ahead, back, core = (
            a.scaled(share).plus(b.scaled(1.0 - share))
            for a, b in zip(expert, (ahead, back, core), strict=True)
        )
    full, some = full_share(grid.recompute), selective_share(grid.recompute)
    again = ahead.scaled(full + context.software.selective_recompute * some).plus(core.scaled(some))
    extra = EXTRA_FORWARDS.get(setup.kind, 0.0)
    if extra:
        ahead = ahead.scaled(1.0 + extra)
    loss = loss_pass(setup, context.software, context.chip, context.links, at)
    if setup.kind == "reward-model":
        loss = loss.scaled(0.0)
    residual = 2.0 * at.tokens * shape.hidden / at.spread
    return _Table(ahead, back, again, loss, residual, ahead.total + back.total + again.total)


def _outer(context: _Context, grid: LayoutGrid, table: _Table, inverse: NDArray[np.intp]) -> StepTime:
    setup, shape = context.setup, context.setup.shape
    pp, vp, dp = (np.asarray(x, dtype=float) for x in (grid.pp, grid.vp, grid.dp))
    count = np.maximum(setup.global_batch_sequences / (dp * grid.micro_batch), 1.0)
    full, first, last = stage_layers(shape, grid)
    layer, loss = table.layer_s[inverse], table.loss.total[inverse]
    busiest = np.maximum(full * layer, last * layer + loss)
    send = _send(context, grid, table.residual_bytes[inverse])
    send = send + np.where(pp > 1, context.software.stall_frac * busiest, 0.0)
    slowest = busiest + send
    whole = shape.layers * layer + loss + pp * send
    mean = whole / pp
    pipeline = count * slowest + np.where(pp > 1, (whole - slowest) / vp, 0.0)
    dp_s, hidden = _data_parallel(context, grid, count, full, table, inverse)
    per_layer = count * shape.layers / pp

    def part(name: str) -> Floats:
        layers = (getattr(table.ahead, name) + getattr(table.back, name))[inverse]
        return np.asarray(per_layer * layers + count / pp * getattr(table.loss, name)[inverse])

    parts = {
        "compute_s": part("compute") + context.hardware.overlap_slowdown * hidden,
        "memory_bound_s": part("memory"),
        "launch_s": part("launch"),
        "recompute_s": per_layer * table.again.total[inverse],
        "tp_s": part("tp"),
        "cp_s": part("cp"),
        "ep_s": part("ep"),
        "pp_s": count * send,
        "dp_s": dp_s,
        "bubble_s": pipeline - count * mean,
        "optimizer_s": _optimizer(context, grid, full),
    }
    busy = np.sum(list(parts.values()), axis=0)
    waiting = busy * context.hardware.straggler_frac * np.log2(np.maximum(grid.nodes, 1))
    overhead = waiting + context.software.step_overhead_s
    step = busy + overhead
    tokens = setup.tokens_per_step / step
    work = flops_per_token(shape, setup.sequence_length, setup.causal, setup.lora)
    mfu = tokens * work / (grid.accelerators * context.accelerator.bf16_flops)
    return StepTime(**parts, overhead_s=overhead, step_s=step, tokens_per_s=tokens, mfu_frac=mfu)


def _send(context: _Context, grid: LayoutGrid, size_bytes: Floats) -> Floats:
    """Exposed sends between stages per micro-batch: forward and backward, once per chunk."""
    distance = (grid.tp * grid.cp * grid.dp).astype(float)
    once = send_s(size_bytes, distance, context.links)
    exposed = 2.0 * grid.vp * once * (1.0 - context.software.pp_overlap)
    return np.where(grid.pp > 1, exposed, 0.0)


@dataclass(frozen=True, slots=True)
class _Exchange:
    """Seconds of one gradient reduction, of one gathering of all weights, and of that of the trained ones."""

    gradients: Floats
    weights: Floats
    trained: Floats
    group: Floats
    """Devices over which dense parameters are replicated or sharded."""


def _exchange(context: _Context, grid: LayoutGrid, layers: Floats) -> _Exchange:
    setup, software, links = context.setup, context.software, context.links
    params = stage_params(setup.shape, grid, False, layers)
    dense_group, expert_group = shard_sizes(grid)
    stride = grid.tp.astype(float)
    expert_stride = stride * np.maximum(grid.ep, 1)
    dense, expert = params.dense, params.expert
    if setup.lora is not None:
        dense = lora_params(setup.shape, setup.lora.rank) / (grid.pp * grid.tp).astype(float)
        expert = dense * 0.0
    shard = np.where(grid.shard_group > 0, np.minimum(grid.shard_group, dense_group), dense_group)
    messages = np.maximum(layers * software.buckets_per_layer, 1.0)
    sync = software.grad_sync_bytes

    def gathered(dense_bytes: Floats, expert_bytes: Floats) -> Floats:
        inside = gather_s(dense_bytes, shard, stride, links, messages)
        return inside + gather_s(expert_bytes, expert_group, expert_stride, links, messages)

    replicas = dense_group / shard
    copies = all_reduce_s(dense * sync / shard, replicas, stride * shard, links, messages)
    sharded = gathered(dense * sync, expert * sync) + np.where(replicas > 1, copies, 0.0)
    whole = all_reduce_s(dense * sync, dense_group, stride, links, messages)
    whole = whole + all_reduce_s(expert * sync, expert_group, expert_stride, links, messages)
    return _Exchange(
        np.where(grid.zero_stage >= 1, sharded, whole),
        gathered(params.dense * 2.0, params.expert * 2.0),
        np.where(grid.zero_stage >= 1, gathered(dense * 2.0, expert * 2.0), 0.0),
        dense_group,
    )


def _data_parallel(
    context: _Context,
    grid: LayoutGrid,
    count: Floats,
    layers: Floats,
    table: _Table,
    inverse: NDArray[np.intp],
) -> tuple[Floats, Floats]:
    """Exposed and hidden gradient and weight communication of one step."""
    found, overlap = _exchange(context, grid, layers), context.software.dp_overlap
    grads, weights = found.gradients, found.weights
    ahead = table.ahead.total[inverse] * layers
    back = (table.back.total + table.again.total)[inverse] * layers
    zero3 = grid.zero_stage >= 3
    # Below ZeRO 3 gradients leave during the last micro-batch and weights come back during the next first one.
    late = _exposed(grads, back, overlap) + _exposed(found.trained, ahead, overlap)
    each = _exposed(weights, ahead, overlap) + _exposed(weights + grads, back, overlap)
    some = _exposed(grads, back, overlap) * np.where(grid.zero_stage == 2, count - 1.0, 0.0)
    exposed = np.where(zero3, count * each, late + some)
    total = np.where(zero3, count * (2.0 * weights + grads), grads + found.trained)
    exposed = np.where(found.group > 1, exposed, 0.0)
    hidden = np.where(found.group > 1, np.maximum(total - exposed, 0.0), 0.0)
    return exposed, hidden


def _exposed(communication: Floats, window: Floats, overlap: float) -> Floats:
    """What does not hide: the share that cannot, or what exceeds the window."""
    return np.maximum(communication * (1.0 - overlap), communication - window)


def _optimizer(context: _Context, grid: LayoutGrid, layers: Floats) -> Floats:
    """The optimizer step: memory traffic of the states a device owns."""
    setup = context.setup
    recipe = optimizer_of(setup.optimizer)
    params = stage_params(setup.shape, grid, False, layers)
    dense_group, expert_group = shard_sizes(grid)
    shard = np.where(grid.shard_group > 0, np.minimum(grid.shard_group, dense_group), dense_group)
    sharded = grid.zero_stage >= 1
    own = params.dense / np.where(sharded, shard, 1.0) + params.expert / np.where(sharded, expert_group, 1.0)
    if setup.lora is not None:
        own = lora_params(setup.shape, setup.lora.rank) / (grid.pp * grid.tp).astype(float)
    device = own * (recipe.step_bytes + 8.0) / context.chip.memory_bytes_per_s
    return device + own * HOST_PARAMETER_S * (recipe.host_bytes > 0)
