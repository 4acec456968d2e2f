"""Megatron-Bridge's own configuration classes, with the plan's numbers set on its recipes for any model."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from trainplan.export import export
from trainplan.export.launch import launch

from .launching import HERE, Unit, ask, read_plan

pytestmark = pytest.mark.launcher

WRONG = {
    "a batch that does not divide": ("train.micro_batch_size = 2", "train.micro_batch_size = 3"),
    "degrees that do not divide the world": (
        "tensor_model_parallel_size = 2",
        "tensor_model_parallel_size = 3",
    ),
    "another length of the data": ("dataset.seq_length = 8192", "dataset.seq_length = 4096"),
    "a format of checkpoints for another sharding": ('"torch_dist"', '"fsdp_dtensor"'),
    "a precision it has not": ('"bf16_mixed"', '"bf17_mixed"'),
}
SHARDING = {2: "optim_grads", 3: "optim_grads_params"}
Found = list[tuple[Unit, dict[str, Any]]]


def asked(unit: Unit) -> dict[str, Any]:
    """What the probe takes for a unit: the model's sizes, as a recipe has them, and what its start script sets."""
    shape = launch(read_plan(unit.plan)).unit(unit.name).task.shape
    assert shape is not None
    model: dict[str, Any] = {
        "num_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_query_groups": shape.kv_heads,
        "ffn_hidden_size": shape.ffn or shape.routed_ffn,
        "kv_channels": shape.head_dim,
        "vocab_size": shape.vocab,
    }
    if shape.is_moe:
        model |= {"num_moe_experts": shape.experts, "moe_router_topk": shape.experts_per_token}
        model["moe_ffn_hidden_size"] = shape.routed_ffn
    script = (unit.folder / f"{unit.name}.sh").read_text(encoding="utf-8")
    environment = {"MODEL": str(HERE)}
    if "export CUDA_DEVICE_MAX_CONNECTIONS=1\n" in script:
        environment["CUDA_DEVICE_MAX_CONNECTIONS"] = "1"
    file = str(unit.folder / f"{unit.name}.bridge.py")
    return {
        "file": file,
        "world": unit.world,
        "kind": unit.kind,
        "model": model,
        "environment": environment,
    }


def variants(good: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """A unit in other precisions and with other optimizers; what the stand-in for Transformer Engine cannot say of
    its optimizer, as ``adamw-grad16`` asks, is left out."""
    plan = read_plan("dense_spot")
    segment, task = plan.segments[0], plan.case["tasks"][0]
    kinds = [("adamw", precision) for precision in ("fp32", "fp16", "fp8", "fp4")]
    kinds += [(optimizer, "bf16") for optimizer in ("adamw-offload", "sgd", "muon")]
    found = {}
    for optimizer, precision in kinds:
        changed = segment.model_copy(
            update={"layout": segment.layout.model_copy(update={"precision": precision})}
        )
        case = plan.case | {"tasks": [task | {"optimizer": optimizer}]}
        files = export(plan.model_copy(update={"segments": (changed,), "case": case}), "megatron")
        file = folder / f"{optimizer}-{precision}.py"
        file.write_text(files["01-pretrain-spot.bridge.py"], encoding="utf-8")
        found[file.stem] = good | {"file": str(file)}
    return found


@pytest.fixture(scope="module")
def answers(
    exported: dict[str, list[Unit]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Found, dict[str, dict[str, Any]], dict[str, dict[str, Any]]]:
    """What Megatron-Bridge says to every unit, to what is wrong on purpose, and to other precisions and optimizers."""
    folder = tmp_path_factory.mktemp("bridge")
    units = exported["megatron"]
    good = asked(next(unit for unit in units if unit.plan == "dense_spot"))
    text = Path(good["file"]).read_text(encoding="utf-8")
    wrong = {}
    for number, (name, (old, new)) in enumerate(WRONG.items()):
        assert old in text
        file = folder / f"wrong_{number}.py"
        file.write_text(text.replace(old, new), encoding="utf-8")
        wrong[name] = good | {"file": str(file)}
    others = variants(good, folder)
    questions = [*(asked(unit) for unit in units), *wrong.values(), *others.values()]
    found = ask("bridge", "bridge_probe.py", questions)
    named = dict(zip([*wrong, *others], found[len(units) :], strict=True))
    return (
        list(zip(units, found[: len(units)], strict=True)),
        {name: named[name] for name in wrong},
        {name: named[name] for name in others},
    )


def test_every_number_comes_back(answers: tuple[Found, Any, Any]) -> None:
    parsed, _, _ = answers
    assert parsed
    for unit, found in parsed:
        layout = unit.segment.layout
        assert "error" not in found, f"{unit.id}: {found}"
        expected = {
            "tensor_model_parallel_size": layout.tp,
            "pipeline_model_parallel_size": layout.pp,
            "virtual_pipeline_model_parallel_size": layout.vp if layout.vp > 1 else None,
            "context_parallel_size": layout.cp,
            "expert_model_parallel_size": layout.ep,
            "expert_tensor_parallel_size": 1 if layout.ep > 1 else layout.tp,
            "data_parallel_size": layout.dp,
            "sequence_parallel": layout.sequence_parallel and layout.tp > 1,
            "recompute_granularity": None if layout.recompute == "none" else layout.recompute,
            "train_iters": unit.total_steps,
            "global_batch_size": unit.sequences,
            "micro_batch_size": layout.micro_batch,
            "seq_length": unit.segment.sequence_length,
            "dataset_seq_length": unit.segment.sequence_length,
            "save_interval": unit.interval_steps,
            "most_recent_k": unit.keep_last,
            "save": "/checkpoints/task",
            "load": "/checkpoints/task",
            "use_distributed_optimizer": layout.zero_stage > 0,
            "use_megatron_fsdp": layout.zero_stage > 1,
            "ckpt_format": "fsdp_dtensor" if layout.zero_stage > 1 else "torch_dist",
            "bf16": layout.precision in ("bf16", "fp8"),
            "fp8": "hybrid" if layout.precision == "fp8" else None,
        }
        assert {key: found[key] for key in expected} == expected, unit.id
        if layout.zero_stage > 1:
            assert found["data_parallel_sharding_strategy"] == SHARDING[layout.zero_stage]
        groups = layout.dp * layout.cp // layout.shard_group if layout.shard_group else 1
        assert found["instances"] == groups, unit.id


def test_every_precision_and_optimizer_is_taken(
    answers: tuple[Found, Any, dict[str, dict[str, Any]]],
) -> None:
    _, _, taken = answers
    assert {name: found["error"] for name, found in taken.items() if "error" in found} == {}
    assert (taken["adamw-fp8"]["fp8"], taken["adamw-fp16"]["bf16"]) == ("hybrid", False)


def test_megatron_bridge_refuses_what_is_wrong(answers: tuple[Found, dict[str, dict[str, Any]], Any]) -> None:
    _, refused, _ = answers
    assert [name for name, found in refused.items() if "error" not in found] == []
