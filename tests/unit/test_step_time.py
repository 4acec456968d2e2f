from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from tests.unit.training_setups import grid, machine, setup

from trainplan_models import catalog
from trainplan_models.efficiency import hardware_of, software_of
from trainplan_models.plan import Layout
from trainplan_models.step_time import StepTime, step_time
from trainplan_models.workload import Adapter, TrainSetup, attention_params, mlp_params

PARTS = [
    name for name in StepTime.__slots__ if name.endswith("_s") and name not in ("step_s", "tokens_per_s")
]


def time(task: TrainSetup, *layouts: Layout, chip: str = "H100-SXM") -> StepTime:
    return step_time(task, *machine(chip), grid(*layouts))


def test_parts_add_up_to_the_step() -> None:
    for task in (setup("llama-3-70b"), setup("mixtral-8x7b"), setup("deepseek-v3")):
        found = time(
            task, Layout(dp=16, tp=2, pp=4, ep=1), Layout(dp=128), Layout(dp=16, tp=8, recompute="full")
        )
        assert sum(getattr(found, part) for part in PARTS) == pytest.approx(found.step_s)
        assert all((getattr(found, part) >= 0).all() for part in PARTS)


def test_well_tuned_layouts_reach_the_published_utilisation() -> None:
    found = time(
        setup("llama-3-70b", batch=128), Layout(dp=2, tp=4, pp=4, vp=5, cp=2, sequence_parallel=True)
    )
    assert 0.42 < float(found.mfu_frac[0]) < 0.6
    pretraining = time(setup(batch=128), Layout(dp=4, cp=2))
    assert 0.45 < float(pretraining.mfu_frac[0]) < 0.62


def test_full_recompute_costs_about_a_forward_pass() -> None:
    plain, full = time(setup(), Layout(dp=64), Layout(dp=64, recompute="full")).step_s
    assert 1.2 < full / plain < 1.4


def test_bubble_shrinks_with_micro_batches_and_interleaving() -> None:
    layout = Layout(dp=1, tp=8, pp=4)
    few, many = (time(setup("llama-3-70b", batch=size), layout) for size in (4, 64))
    assert few.bubble_s[0] / few.step_s[0] > 5 * many.bubble_s[0] / many.step_s[0]
    plain, virtual = time(setup("llama-3-70b", batch=8), layout, layout.model_copy(update={"vp": 5})).bubble_s
    assert virtual < 0.6 * plain


def test_tensor_parallelism_across_nodes_is_slow() -> None:
    accelerator, node = machine("A100-SXM-80GB")
    slow = node.model_copy(update={"nic_bytes_per_s": 6.25e9})
    layouts = grid(Layout(dp=2, tp=8, pp=8), Layout(dp=1, tp=16, pp=8))
    inside, across = step_time(setup("gpt3-175b", 2048, 64), accelerator, slow, layouts).tp_s
    assert across > 3 * inside


def test_tiny_models_are_bound_by_launches() -> None:
    task = replace(setup("gpt2", 256, 8), software="megatron-2021")
    found = time(task, Layout(dp=8), chip="A100-SXM-80GB")
    assert found.launch_s[0] > found.compute_s[0]


def test_eight_bit_is_faster_than_sixteen_but_not_twice() -> None:
    task = setup("llama-3-70b")
    wide, narrow = (time(replace(task, precision=p), Layout(dp=2, tp=8)).step_s[0] for p in ("bf16", "fp8"))
    assert 1.2 < wide / narrow < 2.0


def test_a_format_the_chip_lacks_runs_in_the_next_wider() -> None:
    task = setup()
    eight, sixteen = (
        time(replace(task, precision=p), Layout(dp=8), chip="A100-SXM-80GB").compute_s[0]
        for p in ("fp8", "bf16")
    )
    assert eight == pytest.approx(sixteen, rel=0.02)


def test_adapters_are_faster_than_full_training() -> None:
    task = setup(batch=64)
    full, lora = (
        time(task, Layout(dp=8)).step_s[0],
        time(replace(task, lora=Adapter(16)), Layout(dp=8)).step_s[0],
    )
    assert 0.6 < lora / full < 0.9


def test_a_preference_task_pays_for_the_reference_model() -> None:
    plain, preference = (
        time(replace(setup(), kind=k), Layout(dp=8)).step_s[0] for k in ("sft", "preference")
    )
    assert 1.15 < preference / plain < 1.45


def test_slow_networks_expose_fully_sharded_training() -> None:
    accelerator, node = machine()
    slow = node.model_copy(update={"nic_bytes_per_s": 1.5e9})
    task = setup("llama-3-70b", 4096, 128, framework="torchtitan")
    layout = grid(Layout(dp=128, zero_stage=3, recompute="full"))
    fast_s, slow_s = (float(step_time(task, accelerator, place, layout).step_s[0]) for place in (node, slow))
    assert slow_s > 2 * fast_s


def test_large_grids_are_evaluated_like_single_layouts() -> None:
    layouts = [Layout(dp=d, tp=t, micro_batch=m) for d in (8, 16) for t in (1, 2) for m in (1, 2)]
    together = time(setup(), *layouts).step_s
    assert together == pytest.approx([float(time(setup(), layout).step_s[0]) for layout in layouts])


@pytest.mark.parametrize("name", sorted(catalog.builtin().accelerators))
def test_every_chip_of_the_catalogue_has_a_step_time(name: str) -> None:
    found = time(setup(batch=64), Layout(dp=8), chip=name)
    assert np.isfinite(found.step_s).all()
    assert 0.02 < float(found.mfu_frac[0]) < 0.95


def test_adding_gradients_costs_traffic_for_every_micro_batch() -> None:
    task = setup()
    chip, node = machine()
    layouts = grid(Layout(dp=8, tp=1, micro_batch=1), Layout(dp=8, tp=1, micro_batch=4), Layout(dp=4, tp=2))
    software = software_of("megatron")
    none = step_time(task, chip, node, layouts, software=replace(software, accumulate_bytes=0.0))
    some = step_time(task, chip, node, layouts, software=replace(software, accumulate_bytes=8.0))
    more = some.memory_bound_s - none.memory_bound_s
    micro_batches = np.array([64, 16, 128])
    layer = task.shape.layers * (attention_params(task.shape) + mlp_params(task.shape, task.shape.ffn))
    rate = chip.memory_bytes_per_s * hardware_of(chip.generation).memory_frac
    assert more == pytest.approx(8.0 * layer / np.array([1, 1, 2]) * micro_batches / rate, rel=1e-6)
    adapters = replace(task, lora=Adapter(rank=16))
    frozen = [
        step_time(adapters, chip, node, layouts, software=replace(software, accumulate_bytes=size)).step_s
        for size in (0.0, 8.0)
    ]
    assert frozen[0] == pytest.approx(frozen[1])
