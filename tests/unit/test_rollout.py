from __future__ import annotations

import numpy as np
import pytest

from trainplan_models import catalog
from trainplan_models.case import Rollout
from trainplan_models.catalog.records import Accelerator, NodeType
from trainplan_models.generation_engine import engine
from trainplan_models.rollout import (
    Serving,
    apart_step,
    cache_bytes_per_token,
    cache_copies,
    generate,
    length_scale,
    rollout_step,
    score_s,
    weight_transfer_s,
    weights_read_bytes,
)
from trainplan_models.workload import TrainSetup, shape_of, total_params


def machine(name: str = "H100-SXM") -> tuple[Accelerator, NodeType]:
    accelerator = catalog.builtin().accelerator(name)
    node = NodeType(
        source="test", as_of="2026-01", cloud="test", instance_type="test", accelerator=accelerator.name,
        accelerators=8, nic_bytes_per_s=accelerator.nic_bytes_per_s or 1e9, scaleup_devices=accelerator.scaleup_devices,
    )  # fmt: skip
    return accelerator, node


LLAMA_8B = shape_of(catalog.builtin().model("llama-3-8b"))
DEEPSEEK = shape_of(catalog.builtin().model("deepseek-v3"))


def rollout(prompts: int = 64, samples: int = 16) -> Rollout:
    return Rollout(prompts=prompts, samples_per_prompt=samples, prompt_tokens=512, response_tokens=1024)


def test_cache_of_grouped_and_latent_attention() -> None:
    assert cache_bytes_per_token(LLAMA_8B) == 2 * 32 * 2 * 8 * 128
    assert cache_bytes_per_token(DEEPSEEK) == 2 * 61 * (512 + 64)


def test_a_mixture_reads_only_the_experts_a_batch_touches() -> None:
    one, many = weights_read_bytes(DEEPSEEK, np.array([1.0, 4096.0]), 2.0)
    assert one < 0.1 * many
    assert many == pytest.approx(2 * total_params(DEEPSEEK), rel=0.01)


def test_one_sequence_decodes_at_memory_bandwidth() -> None:
    accelerator, node = machine()
    single = Rollout(prompts=1, samples_per_prompt=1, prompt_tokens=1, response_tokens=1000)
    rate = float(generate(LLAMA_8B, single, accelerator, node, np.array([1])).tokens_per_s[0])
    most = 8 * accelerator.memory_bytes_per_s / (2 * total_params(LLAMA_8B))
    assert 0.02 * most < rate < 0.9 * most


def test_more_nodes_generate_faster_with_falling_returns() -> None:
    made = generate(LLAMA_8B, rollout(), *machine(), np.array([1, 2, 4, 32]))
    assert (np.diff(made.seconds) < 0).all()
    assert made.seconds[0] / made.seconds[-1] < 32


def test_what_does_not_fit_takes_forever() -> None:
    made = generate(DEEPSEEK, rollout(), *machine(), np.array([1, 16]))
    assert np.isinf(made.seconds[0]) and np.isfinite(made.seconds[1])
    assert made.tokens_per_s[0] == 0.0


def test_the_cache_bounds_the_batch() -> None:
    accelerator, node = machine()
    small = accelerator.model_copy(update={"memory_bytes": 24e9})
    free, tight = (
        generate(LLAMA_8B, rollout(256), chip, node, np.array([1])) for chip in (accelerator, small)
    )
    assert tight.seconds[0] > free.seconds[0]


def test_a_step_is_the_sum_of_its_phases() -> None:
    accelerator, node = machine()
    nodes = np.array([2, 8])
    task = TrainSetup(LLAMA_8B, 2048, 512, kind="rl")
    step = rollout_step(task, rollout(), accelerator, node, nodes, np.array([2e5, 8e5]))
    parts = step.generation_s + step.scoring_s + step.update_s + step.weight_transfer_s
    assert parts + engine().step_overhead_s == pytest.approx(step.step_s)
    assert step.samples_per_s == pytest.approx(64 * 16 / step.step_s)


def test_scoring_scales_with_devices_and_transfer_with_the_model() -> None:
    accelerator, node = machine()
    two, four = score_s(LLAMA_8B, rollout(), accelerator, node, np.array([2, 4]))
    assert two == pytest.approx(2 * four)
    small, large = (weight_transfer_s(s, accelerator, node) for s in (LLAMA_8B, DEEPSEEK))
    assert large > 5 * small


def test_lengths_cut_off_keep_their_mean() -> None:
    scale = length_scale(3200.0, 4000.0)
    assert scale > 3200.0
    assert scale * (1.0 - np.exp(-4000.0 / scale)) == pytest.approx(3200.0, rel=1e-3)
    assert length_scale(100.0, 1e5) == pytest.approx(100.0, rel=1e-3)


def test_a_limit_on_the_length_ends_the_wait_for_the_longest_answer() -> None:
    accelerator, node = machine()
    tight, usual, wide = (
        generate(
            LLAMA_8B, rollout(), accelerator, node, np.array([1]), Serving(sequence_tokens=limit)
        ).seconds[0]
        for limit in (1700.0, 0.0, 8192.0)
    )
    assert tight < usual < wide


def test_latent_attention_keeps_its_cache_on_every_device_of_a_replica() -> None:
    assert cache_copies(DEEPSEEK, 8) == 8.0
    assert (cache_copies(LLAMA_8B, 8), cache_copies(LLAMA_8B, 16)) == (1.0, 2.0)


def test_side_by_side_the_slower_side_sets_the_pace() -> None:
    accelerator, node = machine()
    task = TrainSetup(LLAMA_8B, 2048, 512, kind="rl")
    quick, slow = (
        apart_step(task, rollout(), accelerator, node, np.array([1]), np.array([rate])) for rate in (1e7, 1e4)
    )
    assert quick.step_s[0] == pytest.approx(quick.generation_s[0])
    assert slow.step_s[0] > slow.update_s[0] > slow.generation_s[0]


def test_running_further_ahead_decodes_larger_batches() -> None:
    accelerator, node = machine()
    task = TrainSetup(LLAMA_8B, 2048, 512, kind="rl")
    one, eight = (
        apart_step(task, rollout(), accelerator, node, np.array([2]), np.array([1e7]), lag=lag)
        for lag in (1, 8)
    )
    assert eight.generation_s[0] < one.generation_s[0]
