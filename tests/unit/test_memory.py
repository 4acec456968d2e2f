from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.training_setups import grid, machine, setup

from trainplan_models import catalog
from trainplan_models.memory import memory_by_stage, peak_memory
from trainplan_models.plan import Layout
from trainplan_models.workload import Adapter, TrainSetup, shape_of, total_params

PARTS = (
    "weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "logits_bytes", "buffers_bytes",
    "reserve_bytes",
)  # fmt: skip


def peak(
    task: TrainSetup, *layouts: Layout, chip: str = "H100-SXM"
) -> np.ndarray[tuple[int], np.dtype[np.float64]]:
    return peak_memory(task, *machine(chip), grid(*layouts)).total_bytes


def test_components_add_up_to_the_total() -> None:
    memory = peak_memory(setup("llama-3-70b"), *machine(), grid(Layout(dp=2, tp=4, pp=2), Layout(dp=8, tp=8)))
    assert sum(getattr(memory, part) for part in PARTS) == pytest.approx(memory.total_bytes)


def test_states_are_the_recipe_times_the_parameters() -> None:
    task = setup()
    memory = peak_memory(task, *machine(), grid(Layout(dp=1, zero_stage=0)))
    params = total_params(task.shape)
    assert float(memory.weights_bytes[0]) == pytest.approx(2 * params)
    assert float(memory.gradients_bytes[0]) == pytest.approx(4 * params)
    assert float(memory.optimizer_bytes[0]) == pytest.approx(12 * params)


def test_each_zero_stage_shards_more() -> None:
    task = setup(framework="deepspeed")
    layouts = [Layout(dp=64, zero_stage=stage, recompute="full") for stage in range(4)]
    memory = peak_memory(task, *machine(), grid(*layouts))
    states = memory.weights_bytes + memory.gradients_bytes + memory.optimizer_bytes
    assert (np.diff(states) < 0).all()
    assert float(states[3]) == pytest.approx(16 * total_params(task.shape) / 64, rel=0.02)


def test_hybrid_sharding_keeps_whole_states_in_each_group() -> None:
    task = setup(framework="torchtitan")
    whole, local = (Layout(dp=64, zero_stage=3, shard_group=group) for group in (0, 8))
    memory = peak_memory(task, *machine(), grid(whole, local))
    assert float(memory.optimizer_bytes[1]) == pytest.approx(8 * float(memory.optimizer_bytes[0]))


def test_recompute_trades_activations() -> None:
    task = setup()
    layouts = [Layout(dp=8, recompute=kind) for kind in ("none", "selective", "full")]
    kept = peak_memory(task, *machine(), grid(*layouts)).activations_bytes
    assert kept[0] > kept[1] > kept[2] > 0


def test_attention_scores_are_kept_without_a_fused_kernel() -> None:
    task = setup("gpt3-175b", 2048, 64)
    layout = grid(Layout(dp=1, tp=8, pp=8))
    fused = peak_memory(task, *machine("A100-SXM-80GB"), layout)
    unfused = peak_memory(replace(task, software="megatron-2021"), *machine("A100-SXM-80GB"), layout)
    assert unfused.activations_bytes[0] > 1.5 * fused.activations_bytes[0]


def test_first_stage_holds_most_micro_batches_and_the_last_one_the_logits() -> None:
    task = setup("llama-3-70b", batch=64)
    stages = memory_by_stage(task, machine()[0], grid(Layout(dp=1, tp=4, pp=8)))
    assert stages["first"].activations_bytes[0] > 4 * stages["last"].activations_bytes[0]
    assert stages["first"].logits_bytes[0] == 0.0 < stages["last"].logits_bytes[0]


def test_interleaving_holds_more_in_flight() -> None:
    plain, virtual = peak(setup("llama-3-70b"), Layout(dp=1, tp=8, pp=4), Layout(dp=1, tp=8, pp=4, vp=5))
    assert virtual > plain


def test_adapters_need_no_states_for_the_frozen_weights() -> None:
    full, lora, qlora = (
        peak(replace(setup(sequence=512), lora=adapter), Layout(dp=1))[0]
        for adapter in (None, Adapter(16), Adapter(16, True))
    )
    assert qlora < 0.6 * lora < 0.25 * full


def test_offloaded_states_leave_the_device() -> None:
    memory = peak_memory(replace(setup(), optimizer="adamw-offload"), *machine(), grid(Layout(dp=8)))
    assert memory.optimizer_bytes[0] == 0.0
    assert memory.host_bytes[0] == pytest.approx(12 * total_params(setup().shape) / 8)
    kept = peak_memory(
        replace(setup(), activation_offload=True), *machine(), grid(Layout(dp=8, recompute="full"))
    )
    assert kept.host_bytes[0] > 0


def test_usable_is_less_than_nominal_memory() -> None:
    accelerator, node = machine()
    memory = peak_memory(setup(), accelerator, node, grid(Layout(dp=8)))
    assert 0.9 * accelerator.memory_bytes < memory.usable_bytes < accelerator.memory_bytes


def test_experts_are_split_over_expert_parallelism() -> None:
    task = setup("mixtral-8x7b")
    one, eight = peak_memory(task, *machine(), grid(Layout(dp=8), Layout(dp=8, ep=8))).weights_bytes
    assert eight < 0.25 * one


def test_known_runs_fit_where_they_ran_and_not_where_they_could_not() -> None:
    task = TrainSetup(
        shape_of(catalog.builtin().model("bloom-176b")), 2048, 2048, software="megatron-deepspeed-2022"
    )
    fits = peak_memory(
        task,
        *machine("A100-SXM-80GB"),
        grid(Layout(dp=8, tp=4, pp=12, micro_batch=2, recompute="full"), Layout(dp=48, tp=4, pp=2)),
    ).fits
    assert list(fits) == [True, False]
