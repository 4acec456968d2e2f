"""A reinforcement learning step on two groups of nodes."""

from __future__ import annotations

import numpy as np
import pytest

from trainplan_models import catalog
from trainplan_models.case import Rollout
from trainplan_models.catalog.records import NodeType
from trainplan_models.generation_engine import engine
from trainplan_models.rollout import (
    FORWARD_FRAC,
    SCORING_PASSES,
    Floats,
    Serving,
    generate,
    score_s,
    weight_transfer_s,
)
from trainplan_models.separate_rollout import Group, SeparateStep, separate_step
from trainplan_models.workload import ModelShape, TrainSetup, shape_of, total_params

LLAMA_8B = shape_of(catalog.builtin().model("llama-3-8b"))
LLAMA_70B = shape_of(catalog.builtin().model("llama-3-70b"))
SAMPLES = Rollout(prompts=512, samples_per_prompt=8, prompt_tokens=1024, response_tokens=4096)
TOKENS = 512 * 8 * (1024 + 4096)
RATES = np.array([40_000.0, 80_000.0, 320_000.0])
ETHERNET = 3.125e9
LENGTH = 5120
OVERHEAD_S = engine().step_overhead_s


def group(name: str, counts: list[int], accelerators: int = 8) -> Group:
    chip = catalog.builtin().accelerator(name)
    node = NodeType(
        source="test", as_of="2026-01", cloud="test", instance_type=name, accelerator=chip.name,
        accelerators=accelerators, nic_bytes_per_s=5e10, scaleup_devices=accelerators,
    )  # fmt: skip
    return Group(chip, node, np.array(counts))


TRAINER, GENERATOR = group("H100-SXM", [1, 2, 8]), group("A100-SXM-80GB", [1, 4, 16, 64])


def step(
    *,
    overlapped: bool,
    between: float | None = ETHERNET,
    generator: Group = GENERATOR,
    shape: ModelShape = LLAMA_8B,
) -> SeparateStep:
    setup = TrainSetup(shape, LENGTH, 4096)
    return separate_step(
        setup, SAMPLES, TRAINER, generator, RATES, between_bytes_per_s=between, overlapped=overlapped
    )


def phases() -> tuple[Floats, Floats, Floats, Floats]:
    serving = Serving(sequence_tokens=LENGTH)
    made = generate(
        LLAMA_8B, SAMPLES, GENERATOR.accelerator, GENERATOR.node, GENERATOR.nodes, serving
    ).seconds
    update = TOKENS / (RATES * engine().update_frac)
    here = SCORING_PASSES * FORWARD_FRAC * update
    there = score_s(LLAMA_8B, SAMPLES, GENERATOR.accelerator, GENERATOR.node, GENERATOR.nodes)
    return made, update, here, there


def test_on_policy_the_phases_follow_each_other_and_the_faster_nodes_score() -> None:
    found, (made, update, here, there) = step(overlapped=False), phases()
    for row, column in np.ndindex(found.step_s.shape):
        scoring = min(here[row], there[column])
        busy = made[column] + scoring + update[row]
        told = found.step_s[row, column] - found.weight_transfer_s[row, column] - OVERHEAD_S
        assert told == pytest.approx(busy)
        assert found.scored_by_rollout[row, column] == (there[column] < here[row])
    assert found.scored_by_rollout.any() and not found.scored_by_rollout.all()


def test_with_samples_one_update_old_the_longer_side_decides() -> None:
    found, (made, update, here, there) = step(overlapped=True), phases()
    for row, column in np.ndindex(found.step_s.shape):
        busy = min(max(made[column], update[row] + here[row]), max(made[column] + there[column], update[row]))
        told = found.step_s[row, column] - found.weight_transfer_s[row, column] - OVERHEAD_S
        assert told == pytest.approx(busy)
    assert (found.step_s <= step(overlapped=False).step_s).all()


def test_weights_come_over_the_network_between_the_pools() -> None:
    # 8B weights of 2 bytes over 25 Gbit/s a node; two training nodes or more send faster than that.
    size = 2.0 * total_params(LLAMA_8B)
    found = step(overlapped=True)
    assert found.weight_transfer_s == pytest.approx(np.full((3, 4), size / ETHERNET))
    slower = step(overlapped=True, between=ETHERNET / 10.0)
    assert (slower.step_s - found.step_s) == pytest.approx(np.full((3, 4), 9.0 * size / ETHERNET))


def test_within_a_pool_weights_come_as_on_shared_nodes() -> None:
    same = group("H100-SXM", [1, 4])
    found = step(overlapped=True, between=None, generator=same)
    alone = weight_transfer_s(LLAMA_8B, same.accelerator, same.node)
    assert found.weight_transfer_s == pytest.approx(np.full((3, 2), alone))


def test_nodes_that_the_weights_do_not_fit_generate_nothing() -> None:
    small = group("L40S", [1], accelerators=2)
    assert np.isinf(step(overlapped=True, generator=small, shape=LLAMA_70B).step_s).all()
