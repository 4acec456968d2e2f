"""MaxText's own configuration reader on every exported file, with the words its start script adds."""

from __future__ import annotations

import math
import shlex
from pathlib import Path
from typing import Any

import pytest

from trainplan.export.launch import launch
from trainplan.export.model_names import names_of
from trainplan_models.catalog import builtin
from trainplan_models.workload import shape_of

from .launching import Unit, ask, read_plan

pytestmark = pytest.mark.launcher

AXES = ("data", "fsdp", "tensor", "context", "expert", "pipeline")
REMAT = {"none": "minimal", "selective": "save_qkv_proj", "full": "full"}


def words(unit: Unit, environment: dict[str, str]) -> list[str]:
    """The words the start script gives MaxText's training program, its file first."""
    script = (unit.folder / f"{unit.name}.sh").read_text(encoding="utf-8").replace("\\\n", " ")
    (line,) = [line for line in script.splitlines() if "maxtext.trainers.pre_train.train" in line]
    given = line.split("maxtext.trainers.pre_train.train", 1)[1].split('"$@"', 1)[0]
    for name, value in environment.items():
        given = given.replace(f"${name}", value)
    file, *rest = shlex.split(given)
    return [str(unit.folder / file), *rest]


def slices(unit: Unit) -> int:
    """Groups of accelerators with fast links: TPUs are one slice, GPUs one group a node."""
    return 1 if unit.segment.accelerator.startswith("TPU") else unit.segment.nodes


def asked(unit: Unit, environment: dict[str, str]) -> dict[str, Any]:
    return {"args": words(unit, environment), "devices": unit.world, "slices": slices(unit)}


WRONG = {
    "unknown key": ("checkpoint_period:", "checkpoint_periods:"),
    "word for a number": ("steps: ", "steps: many"),
    "mesh of another size": ("ici_fsdp_parallelism: 8", "ici_fsdp_parallelism: 4"),
    "unknown block of layers": ("model_name: llama3.1-8b", "decoder_block: llama9"),
    "packing without a bound on GPUs": ("max_segments_per_seq: 32", "max_segments_per_seq: -1"),
}
Found = list[tuple[Unit, dict[str, Any]]]


@pytest.fixture(scope="module")
def answers(
    exported: dict[str, list[Unit]],
    shell_environment: dict[str, str],
    tmp_path_factory: pytest.TempPathFactory,
) -> tuple[Found, dict[str, dict[str, Any]]]:
    """What MaxText says to every unit, and to what is wrong on purpose."""
    units = exported["maxtext"]
    good = next(unit for unit in units if unit.plan == "capacity_block")
    question = asked(good, shell_environment)
    text = Path(question["args"][0]).read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("wrong")
    wrong = {"a learning rate that is a word": question | {"args": [*question["args"], "learning_rate=high"]}}
    for name, (old, new) in WRONG.items():
        assert old in text
        file = folder / f"{name}.yml"
        file.write_text(text.replace(old, new), encoding="utf-8")
        wrong[name] = question | {"args": [str(file), *question["args"][1:]]}
    questions = [asked(unit, shell_environment) for unit in units] + list(wrong.values())
    found = ask("maxtext", "maxtext_probe.py", questions)
    return list(zip(units, found[: len(units)], strict=True)), dict(
        zip(wrong, found[len(units) :], strict=True)
    )


def test_every_number_comes_back(answers: tuple[Found, dict[str, dict[str, Any]]]) -> None:
    parsed, _ = answers
    assert {unit.plan for unit, _ in parsed} >= {"tpu_maxtext", "tpu_experts", "gpu_pipeline", "fsdp_titan"}
    for unit, found in parsed:
        layout = unit.segment.layout
        assert "error" not in found, f"{unit.id}: {found}"
        degrees = {axis: found[f"ici_{axis}_parallelism"] * found[f"dcn_{axis}_parallelism"] for axis in AXES}
        assert degrees["data"] * degrees["fsdp"] * degrees["expert"] == layout.dp, unit.id
        across = math.prod(found[f"dcn_{axis}_parallelism"] for axis in AXES)
        pipeline = layout.pp > 1
        expected = {
            "num_target_devices": unit.world,
            "global_batch_size_to_train_on": unit.sequences,
            "gradient_accumulation_steps": 1 if pipeline else unit.accumulation,
            "max_target_length": unit.segment.sequence_length,
            "steps": unit.total_steps,
            "enable_checkpointing": True,
            "checkpoint_period": unit.interval_steps,
            "max_num_checkpoints_to_keep": unit.keep_last,
            "shard_optimizer_over_data": layout.zero_stage == 1,
            "remat_policy": REMAT[layout.recompute],
            "base_output_directory": "/checkpoints/task",
            "dataset_path": "/data",
            "learning_rate": 1e-4,
        }
        assert {key: found[key] for key in expected} == expected, unit.id
        assert {"tensor": layout.tp, "context": layout.cp, "expert": layout.ep, "pipeline": layout.pp} == {
            axis: degrees[axis] for axis in ("tensor", "context", "expert", "pipeline")
        }, unit.id
        assert across == slices(unit), unit.id
        assert degrees["fsdp"] == 1 or layout.zero_stage == 3, unit.id
        if pipeline:
            assert found["num_pipeline_microbatches"] == unit.accumulation, unit.id
            assert found["num_pipeline_repeats"] == layout.vp, unit.id
        if layout.shard_group:
            assert degrees["fsdp"] * layout.cp == layout.shard_group, unit.id


def test_the_model_is_the_plan_s(answers: tuple[Found, dict[str, dict[str, Any]]]) -> None:
    """Named models are read from MaxText's own files, the others from what the export writes out."""
    parsed, _ = answers
    named = 0
    for unit, found in parsed:
        shape = launch(read_plan(unit.plan)).unit(unit.name).task.shape
        assert shape is not None
        sizes = {
            "num_decoder_layers": shape.layers,
            "emb_dim": shape.hidden,
            "num_query_heads": shape.heads,
            "num_kv_heads": shape.kv_heads,
            "head_dim": shape.head_dim,
            "vocab_size": shape.vocab,
            "num_experts": shape.experts if shape.is_moe else 1,
            "num_experts_per_tok": shape.experts_per_token if shape.is_moe else 1,
            "moe_mlp_dim" if shape.is_moe else "mlp_dim": shape.routed_ffn if shape.is_moe else shape.ffn,
        }
        assert {key: found[key] for key in sizes} == sizes, unit.id
        named += found["model_name"] != "default"
    assert 0 < named < len(parsed)


def test_models_it_has_a_name_for_have_the_catalogue_s_sizes() -> None:
    shapes = {name: shape_of(row) for name, row in builtin().models.items()}
    named = {name: found for name, shape in shapes.items() if (found := names_of(shape).maxtext)}
    assert len(named) > 20
    questions = [{"args": [f"model_name={name}"], "devices": 1, "slices": 1} for name in named.values()]
    wrong = {}
    for name, found in zip(named, ask("maxtext", "maxtext_probe.py", questions), strict=True):
        shape = shapes[name]
        ours = (
            shape.layers,
            shape.hidden,
            shape.heads,
            shape.vocab,
            shape.routed_ffn if shape.is_moe else shape.ffn,
        )
        keys = ("num_decoder_layers", "emb_dim", "num_query_heads", "vocab_size")
        theirs = (*(found.get(key) for key in keys), found.get("moe_mlp_dim" if shape.is_moe else "mlp_dim"))
        if ours != theirs:
            wrong[name] = (ours, theirs, found.get("error", ""))
    assert wrong == {}


def test_maxtext_refuses_what_is_wrong(answers: tuple[Found, dict[str, dict[str, Any]]]) -> None:
    _, refused = answers
    assert [name for name, found in refused.items() if "error" not in found] == []
