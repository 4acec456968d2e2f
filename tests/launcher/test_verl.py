"""verl's own configuration files, composed by Hydra with every exported override."""

from __future__ import annotations

import re
from typing import Any

import pytest

from .launching import ENVIRONMENTS, Unit, array_of, ask, read_plan

pytestmark = pytest.mark.launcher


def asked(unit: Unit, environment: dict[str, str]) -> dict[str, Any]:
    file = unit.folder / f"{unit.name}.verl.sh"
    config = re.search(r"--config-name=(\S+)", file.read_text(encoding="utf-8"))
    assert config is not None
    folder = next((ENVIRONMENTS / "verl").glob("lib/python*/site-packages/verl"), ENVIRONMENTS)
    words = array_of(file, "VERL_OVERRIDES", **environment, VERL_FOLDER=str(folder))
    return {"config": config[1], "overrides": words}


@pytest.fixture(scope="module")
def parsed(
    exported: dict[str, list[Unit]], shell_environment: dict[str, str]
) -> list[tuple[Unit, dict[str, Any]]]:
    units = exported["verl"]
    found = ask("verl", "verl_probe.py", [asked(unit, shell_environment) for unit in units])
    return list(zip(units, found, strict=True))


def test_every_number_comes_back(parsed: list[tuple[Unit, dict[str, Any]]]) -> None:
    assert {unit.kind for unit, _ in parsed} == {"sft", "rl"}
    for unit, found in parsed:
        layout, trainer = unit.segment.layout, found.get("trainer")
        assert trainer is not None, f"{unit.id}: {found}"
        assert trainer["nnodes"] == unit.segment.nodes
        assert trainer["nnodes"] * trainer["n_gpus_per_node"] == unit.world
        assert trainer["save_freq"] == unit.interval_steps
        assert trainer["total_training_steps"] == unit.total_steps
        if unit.kind == "rl":
            actor = found["actor_rollout_ref"]["actor"]
            assert trainer["max_actor_ckpt_to_keep"] == unit.keep_last
            assert actor["ppo_micro_batch_size_per_gpu"] == layout.micro_batch
            engine = actor.get("megatron") or actor["fsdp_config"]
        else:
            assert trainer["max_ckpt_to_keep"] == unit.keep_last
            assert found["data"]["train_batch_size"] == unit.sequences
            assert found["data"]["micro_batch_size_per_gpu"] == layout.micro_batch
            engine = found["engine"]
        if "tensor_model_parallel_size" in engine:
            degrees = (
                engine["tensor_model_parallel_size"],
                engine["pipeline_model_parallel_size"],
                engine["context_parallel_size"],
                engine["expert_model_parallel_size"],
            )
            assert degrees == (layout.tp, layout.pp, layout.cp, layout.ep), unit.id


def test_rollout_comes_back(parsed: list[tuple[Unit, dict[str, Any]]]) -> None:
    found = next(one for unit, one in parsed if unit.plan == "programme" and unit.kind == "rl")
    assert found["data"]["train_batch_size"] == 256
    assert found["data"]["max_prompt_length"] == 512
    assert found["data"]["max_response_length"] == 2048
    assert found["actor_rollout_ref"]["rollout"]["n"] == 8


def test_nodes_that_generate_come_back(parsed: list[tuple[Unit, dict[str, Any]]]) -> None:
    unit, found = next((unit, one) for unit, one in parsed if unit.plan == "case-rl-split-cluster")
    plan = read_plan(unit.plan)
    (other,) = plan.beside(next(segment for segment in plan.segments if segment.leads))
    assert found["rollout"] == {"nnodes": other.nodes, "n_gpus_per_node": other.accelerators_per_node}
    assert found["trainer"]["nnodes"] == unit.segment.nodes
    assert not found["actor_rollout_ref"]["hybrid_engine"]
    assert found["actor_rollout_ref"]["rollout"]["tensor_model_parallel_size"] == other.layout.tp
    assert found["actor_rollout_ref"]["rollout"]["calculate_log_probs"]


def test_unknown_overrides_are_refused(
    exported: dict[str, list[Unit]], shell_environment: dict[str, str]
) -> None:
    wrong = asked(exported["verl"][0], shell_environment)
    wrong["overrides"].append("trainer.save_frequency=3")
    (found,) = ask("verl", "verl_probe.py", [wrong])
    assert "error" in found
