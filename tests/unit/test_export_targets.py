"""Every target on every kind of plan: what it writes, what it says it cannot, what it refuses."""

from __future__ import annotations

import json
import os
from pathlib import Path

import jsonschema
import pytest

from trainplan.export import EXPORTERS, export
from trainplan_models.base import InputError
from trainplan_models.plan import Plan

PLANS = Path(__file__).parents[1] / "golden" / "export"
EXPECTED = PLANS / "expected"
NAMES = sorted(path.name.removesuffix(".plan.json") for path in PLANS.glob("*.plan.json"))

ABLE = {
    "dense_spot": "skypilot slurm kubernetes megatron deepspeed maxtext torchrun json",
    "owned_growing": "skypilot slurm kubernetes megatron maxtext torchrun json",
    "moe_expert_parallel": "skypilot slurm kubernetes megatron deepspeed maxtext torchrun json",
    "fsdp_titan": "skypilot slurm kubernetes torchtitan megatron accelerate maxtext torchrun json",
    "fsdp_pretrain": "skypilot slurm kubernetes torchtitan megatron deepspeed accelerate torchrun json",
    "titan_pipeline": "skypilot slurm kubernetes torchtitan megatron torchrun json",
    "lora_one_node": "skypilot slurm kubernetes deepspeed accelerate trl verl torchrun json",
    "tpu_maxtext": "skypilot kubernetes maxtext json",
    "tpu_experts": "skypilot kubernetes maxtext json",
    "gpu_pipeline": "skypilot slurm kubernetes torchtitan megatron maxtext torchrun json",
    "capacity_block": "skypilot slurm kubernetes torchtitan megatron deepspeed accelerate maxtext torchrun json",
    "programme": "skypilot slurm kubernetes megatron deepspeed accelerate trl verl maxtext torchrun json",
}
"""The targets that take a plan, by plan; all others refuse it."""


def read_plan(name: str) -> Plan:
    return Plan.model_validate_json((PLANS / f"{name}.plan.json").read_text(encoding="utf-8"))


def able(name: str) -> list[str]:
    found = []
    for target in EXPORTERS:
        try:
            export(read_plan(name), target)
        except InputError:
            continue
        found.append(target)
    return found


@pytest.mark.parametrize("name", ABLE)
def test_a_target_takes_exactly_the_plans_it_can_run(name: str) -> None:
    assert able(name) == ABLE[name].split()


@pytest.mark.parametrize("name", NAMES)
def test_every_plan_has_a_launcher_and_its_own_form(name: str) -> None:
    found = able(name)
    assert "json" in found
    assert "skypilot" in found or any(segment.roles for segment in read_plan(name).segments)


@pytest.mark.parametrize("name", NAMES)
def test_folders_are_whole(name: str) -> None:
    plan = read_plan(name)
    every = {unit["name"] for unit in json.loads(export(plan, "json")["order.json"])["units"]}
    assert len(every) == sum(segment.leads for segment in plan.segments)
    for target in able(name):
        files = export(plan, target)
        order = json.loads(files["order.json"])
        readme = files["README.md"]
        assert order["files"] == sorted(files)
        assert {unit["name"] for unit in order["units"]} | set(order["left_out"]) == every
        assert EXPORTERS[target].checked in readme
        for unit in order["units"]:
            assert f"| {unit['name']} |" in readme
            assert unit["checkpoint"]["target"] in readme
        for reason in order["left_out"].values():
            assert reason in readme
        for label, value in plan.labels.items():
            assert f"`{label}={value}`" in readme
        for text in files.values():
            assert text.endswith("\n")
            assert "{{" not in text
            assert "None" not in readme


@pytest.mark.parametrize("name", NAMES)
def test_the_same_plan_gives_the_same_files(name: str) -> None:
    for target in able(name):
        assert export(read_plan(name), target) == export(read_plan(name), target)


def test_the_order_file_has_every_number_of_the_plan() -> None:
    plan = read_plan("dense_spot")
    order = json.loads(export(plan, "slurm")["order.json"])
    for segment, unit in zip(plan.segments, order["units"], strict=True):
        for key in ("pool", "region", "instance_type", "mode", "nodes", "spare_nodes", "start_s", "end_s"):
            assert unit[key] == getattr(segment, key)
        assert unit["layout"] == segment.layout.model_dump(mode="json")
        assert unit["checkpoint"]["interval_s"] == segment.checkpoint.interval_s
        assert unit["checkpoint"]["keep_last"] == 3
        assert unit["labels"]["team"] == "base-models"
        assert unit["labels"]["trainplan-plan"] == order["plan_id"]


def test_the_json_target_loses_nothing() -> None:
    for name in NAMES:
        plan = read_plan(name)
        files = export(plan, "json")
        assert Plan.model_validate_json(files["plan.json"]) == plan
        schema = json.loads(files["plan.schema.json"])
        jsonschema.Draft202012Validator.check_schema(schema)
        jsonschema.Draft202012Validator(schema).validate(json.loads(files["plan.json"]))


@pytest.mark.parametrize(
    ("name", "target", "words"),
    [
        ("dense_spot", "torchtitan", "ZeRO stage 1 cannot run"),
        ("fsdp_pretrain", "maxtext", "ZeRO stage 2 cannot run"),
        ("dense_spot", "accelerate", "selective recompute"),
        ("owned_growing", "deepspeed", "no interleaved pipeline"),
        ("moe_expert_parallel", "torchtitan", "no model of this shape"),
        ("moe_expert_parallel", "accelerate", "no expert parallelism"),
        ("tpu_maxtext", "slurm", "does not make slices of TPU-v5p"),
        ("tpu_maxtext", "megatron", "does not run on TPU-v5p"),
        ("lora_one_node", "megatron", "trains no adapters"),
        ("fsdp_titan", "trl", "not for pretrain"),
        ("dense_spot", "json5", "Did you mean json"),
    ],
)
def test_refusals_say_why(name: str, target: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        export(read_plan(name), target)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ({"shared_experts": 1}, "no shared experts"),
        ({"dense_layers": 2, "sliding_window": 1024}, "no sliding window and no dense layers between"),
        ({"max_positions": 4096}, "no learned positions"),
    ],
)
def test_maxtext_writes_no_model_out_that_its_blocks_are_not(sizes: dict[str, int], words: str) -> None:
    plan = read_plan("tpu_experts")
    task = plan.case["tasks"][0]
    unlike = task | {"model": task["model"] | sizes}
    with pytest.raises(InputError, match=words):
        export(plan.model_copy(update={"case": plan.case | {"tasks": [unlike]}}), "maxtext")


def test_a_refusal_names_the_targets_that_can() -> None:
    with pytest.raises(InputError, match=r"Targets that can: .*slurm.*megatron"):
        export(read_plan("dense_spot"), "torchtitan")


def test_what_a_target_cannot_say_is_in_its_readme() -> None:
    spot = read_plan("dense_spot")
    assert "spare nodes; SkyPilot replaces a node" in export(spot, "skypilot")["README.md"]
    assert "buys no spot capacity" in export(spot, "slurm")["README.md"]
    assert "cannot keep the last k" in export(spot, "megatron")["README.md"]
    assert "For Megatron-Bridge give a recipe's configuration" in export(spot, "megatron")["README.md"]
    assert "spare nodes are quota" in export(spot, "kubernetes")["README.md"]
    assert "does not rent nodes" in export(spot, "megatron")["README.md"]
    assert "no checkpoint interval" in export(spot, "deepspeed")["README.md"]
    assert "max_segments_per_seq" in export(spot, "maxtext")["README.md"]
    assert "max_segments_per_seq" not in export(read_plan("tpu_maxtext"), "maxtext")["README.md"]
    programme = read_plan("programme")
    assert "3 rounds of 763 steps" in export(programme, "verl")["README.md"]
    assert "Left out" in export(programme, "trl")["README.md"]


def test_a_purchase_is_named_before_it_is_needed() -> None:
    for target in ("skypilot", "slurm", "kubernetes"):
        readme = export(read_plan("capacity_block"), target)["README.md"]
        assert "Buy first" in readme
        assert "capacity-block of aws/us-east-1/p5.48xlarge: 1 x 8 nodes, day 3.00 to 10.00" in readme


GOLDEN = [
    ("dense_spot", "skypilot", "01-pretrain-spot.yaml"),
    ("dense_spot", "skypilot", "fallback.sh"),
    ("dense_spot", "slurm", "01-pretrain-spot.sbatch"),
    ("dense_spot", "slurm", "submit.sh"),
    ("dense_spot", "slurm", "README.md"),
    ("dense_spot", "kubernetes", "01-pretrain-spot.yaml"),
    ("dense_spot", "kubernetes", "launch.sh"),
    ("dense_spot", "kubernetes", "kueue.yaml"),
    ("moe_expert_parallel", "megatron", "01-pretrain-on-demand.args.sh"),
    ("fsdp_titan", "megatron", "01-pretrain-on-demand.bridge.py"),
    ("fsdp_titan", "torchtitan", "trainplan_01_pretrain_on_demand.py"),
    ("capacity_block", "deepspeed", "01-pretrain-capacity-block.deepspeed.json"),
    ("fsdp_titan", "accelerate", "01-pretrain-on-demand.accelerate.yaml"),
    ("lora_one_node", "trl", "01-tune-on-demand.trl.yaml"),
    ("programme", "verl", "04-rl-on-demand.verl.sh"),
    ("tpu_maxtext", "maxtext", "01-pretrain-on-demand.maxtext.yml"),
    ("tpu_maxtext", "skypilot", "01-pretrain-on-demand.yaml"),
]


@pytest.mark.parametrize(("name", "target", "file"), GOLDEN)
def test_files_are_as_before(name: str, target: str, file: str) -> None:
    """``TRAINPLAN_REGOLD=1`` rewrites what is expected."""
    text = export(read_plan(name), target)[file]
    expected = EXPECTED / name / target / f"{file}.txt"
    if os.environ.get("TRAINPLAN_REGOLD"):
        expected.parent.mkdir(parents=True, exist_ok=True)
        expected.write_text(text, encoding="utf-8")
    assert text == expected.read_text(encoding="utf-8")
