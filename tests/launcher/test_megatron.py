"""Megatron-LM's own argument parser and consistency checks on every exported argument file."""

from __future__ import annotations

from typing import Any

import pytest

from .launching import Unit, array_of, ask

pytestmark = pytest.mark.launcher


def arguments(unit: Unit, environment: dict[str, str]) -> dict[str, Any]:
    """What the probe takes for a unit: its words, and the variables its start script sets."""
    words = array_of(unit.folder / f"{unit.name}.args.sh", "MEGATRON_ARGS", **environment)
    script = (unit.folder / f"{unit.name}.sh").read_text(encoding="utf-8")
    needed = (
        {"CUDA_DEVICE_MAX_CONNECTIONS": "1"} if "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in script else {}
    )
    return {"args": words, "world": unit.world, "environment": needed}


WRONG = (
    ("--global-batch-size", "513"),
    ("--tensor-model-parallel-size", "3"),
    ("--recompute-granularity", "some"),
    ("--save-intervall", "10"),
)
Found = list[tuple[Unit, dict[str, Any]]]


@pytest.fixture(scope="module")
def answers(
    exported: dict[str, list[Unit]], shell_environment: dict[str, str]
) -> tuple[Found, list[dict[str, Any]]]:
    """What Megatron-LM says to every unit, and to a unit with each of the wrong arguments."""
    units = exported["megatron"]
    asked = [arguments(unit, shell_environment) for unit in units]
    good = arguments(next(unit for unit in units if unit.plan == "dense_spot"), shell_environment)
    wrong = [good | {"args": [*good["args"], *words]} for words in WRONG]
    found = ask("trainers", "megatron_probe.py", asked + wrong)
    return list(zip(units, found[: len(units)], strict=True)), found[len(units) :]


def test_every_number_comes_back(answers: tuple[Found, list[dict[str, Any]]]) -> None:
    parsed, _ = answers
    assert parsed
    for unit, found in parsed:
        layout = unit.segment.layout
        assert "error" not in found, f"{unit.id}: {found}"
        expected = {
            "tensor_model_parallel_size": layout.tp,
            "pipeline_model_parallel_size": layout.pp,
            "context_parallel_size": layout.cp,
            "expert_model_parallel_size": layout.ep,
            "data_parallel_size": layout.dp,
            "world_size": unit.world,
            "virtual_pipeline_model_parallel_size": layout.vp if layout.vp > 1 else None,
            "micro_batch_size": layout.micro_batch,
            "global_batch_size": unit.sequences,
            "seq_length": unit.segment.sequence_length,
            "train_iters": unit.total_steps,
            "save_interval": unit.interval_steps,
            "sequence_parallel": layout.sequence_parallel and layout.tp > 1,
            "use_distributed_optimizer": layout.zero_stage > 0,
            "use_megatron_fsdp": layout.zero_stage > 1,
            "recompute_granularity": None if layout.recompute == "none" else layout.recompute,
            "bf16": layout.precision in ("bf16", "fp8"),
            "fp16": layout.precision == "fp16",
            "fp8": "hybrid" if layout.precision == "fp8" else None,
        }
        if unit.segment.batches:
            del expected["global_batch_size"], expected["train_iters"]
            *_, (_, last) = (step.split(":") for step in found["step_batch_size_schedule"].split())
            assert int(last) == unit.sequences
            assert found["train_samples"] > unit.sequences * 10
        assert {key: found[key] for key in expected} == expected, unit.id
        if layout.ep > 1:
            assert found["expert_tensor_parallel_size"] == 1
        if layout.zero_stage > 1:
            strategy = {2: "optim_grads", 3: "optim_grads_params"}[layout.zero_stage]
            assert found["data_parallel_sharding_strategy"] == strategy


def test_megatron_refuses_what_is_wrong(answers: tuple[Found, list[dict[str, Any]]]) -> None:
    _, refused = answers
    assert [words for words, found in zip(WRONG, refused, strict=True) if "error" not in found] == []


def test_keep_last_is_left_to_the_start_script(exported: dict[str, list[Unit]]) -> None:
    for unit in exported["megatron"]:
        script = (unit.folder / f"{unit.name}.sh").read_text(encoding="utf-8")
        assert f"head -n -{unit.keep_last} " in script
