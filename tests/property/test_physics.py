"""What must hold of any model on any machine: monotonicity, additivity, scale invariance."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trainplan_models import catalog
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.distinct import distinct
from trainplan_models.layout import LayoutGrid, check_layout, enumerate_layouts
from trainplan_models.memory import peak_memory
from trainplan_models.step_time import StepTime, step_time
from trainplan_models.workload import ModelShape, TrainSetup, active_params, flops_per_token, total_params

FRAMEWORKS = ("megatron", "torchtitan", "fsdp", "deepspeed", "maxtext")
PARTS = [
    name for name in StepTime.__slots__ if name.endswith("_s") and name not in ("step_s", "tokens_per_s")
]


@st.composite
def shapes(draw: st.DrawFn) -> ModelShape:
    head_dim = draw(st.sampled_from([64, 128]))
    kv_heads = draw(st.sampled_from([1, 2, 4, 8]))
    heads = kv_heads * draw(st.sampled_from([1, 2, 4, 8]))
    hidden = heads * head_dim
    experts = draw(st.sampled_from([0, 0, 8, 64]))
    layers = draw(st.integers(1, 48))
    return ModelShape(
        layers=layers,
        hidden=hidden,
        heads=heads,
        kv_heads=kv_heads,
        head_dim=head_dim,
        ffn=draw(st.sampled_from([2, 3, 4])) * hidden,
        vocab=draw(st.integers(1000, 260000)),
        gated_mlp=draw(st.booleans()),
        tied_embeddings=draw(st.booleans()),
        experts=experts,
        experts_per_token=min(2, experts),
        expert_ffn=hidden if experts else 0,
        dense_layers=draw(st.integers(0, max(layers // 8, 0))) if experts else 0,
    )


def machine(name: str) -> tuple[Accelerator, NodeType]:
    accelerator = catalog.builtin().accelerator(name)
    node = NodeType(
        source="test", as_of="2026", cloud="test", instance_type="test", accelerator=accelerator.name, accelerators=8,
        nic_bytes_per_s=accelerator.nic_bytes_per_s or 1e9, scaleup_devices=accelerator.scaleup_devices,
    )  # fmt: skip
    return accelerator, node


chips = st.sampled_from(["H100-SXM", "A100-SXM-80GB", "B200-SXM", "GB200-NVL72", "TPU-v5p", "MI300X"])


@st.composite
def cases(draw: st.DrawFn) -> tuple[TrainSetup, Accelerator, NodeType, LayoutGrid]:
    task = TrainSetup(
        draw(shapes()),
        sequence_length=draw(st.sampled_from([512, 2048, 8192, 32768])),
        global_batch_sequences=draw(st.sampled_from([8, 48, 64, 512])),
        precision=draw(st.sampled_from(["bf16", "fp8"])),
        framework=draw(st.sampled_from(FRAMEWORKS)),
    )
    accelerator, node = machine(draw(chips))
    grid, _ = enumerate_layouts(task, accelerator, node, draw(st.sampled_from([[1], [2, 3], [1, 4, 8]])))
    if len(grid) > 400:
        keep = np.linspace(0, len(grid) - 1, 400).astype(np.intp)
        grid = grid.take(keep)
    return task, accelerator, node, grid


@settings(max_examples=40, deadline=None)
@given(cases())
def test_time_and_memory_are_finite_positive_and_add_up(
    case: tuple[TrainSetup, Accelerator, NodeType, LayoutGrid],
) -> None:
    task, accelerator, node, grid = case
    if not len(grid):
        return
    time, memory = step_time(task, accelerator, node, grid), peak_memory(task, accelerator, node, grid)
    assert np.isfinite(time.step_s).all()
    assert all((getattr(time, part) >= -1e-12).all() for part in PARTS)
    np.testing.assert_allclose(sum(getattr(time, part) for part in PARTS), time.step_s, rtol=1e-9)
    assert (time.mfu_frac > 0).all() and (time.mfu_frac < 1.6).all()
    assert (memory.total_bytes > 0).all() and np.isfinite(memory.total_bytes).all()
    assert all(
        (getattr(memory, name) >= 0).all()
        for name in memory.__slots__
        if name.endswith("_bytes") and name != "usable_bytes"
    )


@settings(max_examples=25, deadline=None)
@given(cases())
def test_enumeration_yields_only_legal_layouts(
    case: tuple[TrainSetup, Accelerator, NodeType, LayoutGrid],
) -> None:
    task, accelerator, node, grid = case
    for i in range(0, len(grid), max(len(grid) // 20, 1)):
        assert check_layout(task, grid.record(i), accelerator, node) == []


@settings(max_examples=25, deadline=None)
@given(cases())
def test_a_layout_does_not_depend_on_its_neighbours(
    case: tuple[TrainSetup, Accelerator, NodeType, LayoutGrid],
) -> None:
    task, accelerator, node, grid = case
    if len(grid) < 2:
        return
    half = grid.take(np.arange(0, len(grid), 2))
    whole = step_time(task, accelerator, node, grid).step_s[::2]
    np.testing.assert_allclose(step_time(task, accelerator, node, half).step_s, whole, rtol=1e-12)
    full = peak_memory(task, accelerator, node, grid).total_bytes[::2]
    np.testing.assert_allclose(peak_memory(task, accelerator, node, half).total_bytes, full, rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(cases(), st.sampled_from(["bf16_flops", "memory_bytes_per_s", "scaleup_bytes_per_s"]))
def test_a_faster_chip_is_never_slower(
    case: tuple[TrainSetup, Accelerator, NodeType, LayoutGrid], part: str
) -> None:
    task, accelerator, node, grid = case
    if not len(grid) or task.precision != "bf16":
        return
    # The power limit belongs to the peak rate, so both grow.
    changed = {
        part: 2.0 * getattr(accelerator, part),
        "tdp_w": 2.0 * accelerator.tdp_w if accelerator.tdp_w else None,
    }
    if part != "bf16_flops":
        changed.pop("tdp_w")
    better = accelerator.model_copy(update=changed)
    before, after = (step_time(task, chip, node, grid).step_s for chip in (accelerator, better))
    # Communication that runs beside compute slows it; in steps of a few milliseconds with less compute to
    # hide behind that can outweigh a little of the gain.
    assert (after <= before * 1.01).all()


@settings(max_examples=25, deadline=None)
@given(cases())
def test_a_faster_network_is_never_slower(case: tuple[TrainSetup, Accelerator, NodeType, LayoutGrid]) -> None:
    task, accelerator, node, grid = case
    if not len(grid):
        return
    better = node.model_copy(update={"nic_bytes_per_s": 4.0 * node.nic_bytes_per_s})
    before, after = (step_time(task, accelerator, place, grid).step_s for place in (node, better))
    assert (after <= before * (1 + 0.06)).all()


@settings(max_examples=25, deadline=None)
@given(cases())
def test_more_layers_need_more_time_and_memory(
    case: tuple[TrainSetup, Accelerator, NodeType, LayoutGrid],
) -> None:
    task, accelerator, node, grid = case
    grid = grid.take(np.flatnonzero((grid.pp == 1) & (grid.vp == 1)))
    if not len(grid):
        return
    deeper = replace(task, shape=replace(task.shape, layers=2 * task.shape.layers))
    assert (
        step_time(deeper, accelerator, node, grid).step_s > step_time(task, accelerator, node, grid).step_s
    ).all()
    assert (
        peak_memory(deeper, accelerator, node, grid).total_bytes
        >= peak_memory(task, accelerator, node, grid).total_bytes
    ).all()


@given(shapes(), st.integers(128, 100000))
def test_counts_and_work_are_ordered(shape: ModelShape, length: int) -> None:
    assert 0 < active_params(shape) <= total_params(shape)
    causal, full = (flops_per_token(shape, length, causal) for causal in (True, False))
    assert 0 < causal < full
    assert flops_per_token(shape, 2 * length) > causal


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 4), st.integers(1, 3)), min_size=1, max_size=60))
def test_distinct_rows_restore_every_column(rows: list[tuple[int, int, int]]) -> None:
    columns = [np.array(column, dtype=np.int64) for column in zip(*rows, strict=True)]
    first, inverse = distinct(*columns)
    assert len(first) == len(set(rows))
    for column in columns:
        assert (column[first][inverse] == column).all()
