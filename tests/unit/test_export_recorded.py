"""Exported files against what launchers were recorded to accept; tests/launcher asks the launchers themselves."""

from __future__ import annotations

import ast
import json
import re
import shlex
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jsonschema
import pytest
from ruamel.yaml import YAML

from trainplan.export import EXPORTERS, export
from trainplan_models.base import InputError
from trainplan_models.plan import Plan

TESTS = Path(__file__).parents[1]
PLANS = TESTS / "golden" / "export"
SCHEMAS = TESTS / "launcher" / "schemas"


def recorded(name: str) -> Any:
    return json.loads((SCHEMAS / f"{name}.keys.json").read_text(encoding="utf-8"))["recorded"]


def files_of(target: str) -> dict[str, str]:
    """The files of a target for every plan it takes."""
    found: dict[str, str] = {}
    for path in sorted(PLANS.glob("*.plan.json")):
        plan = Plan.model_validate_json(path.read_text(encoding="utf-8"))
        try:
            files = export(plan, target)
        except InputError:
            continue
        found |= {f"{path.name.removesuffix('.plan.json')}/{name}": text for name, text in files.items()}
    return found


def documents(text: str) -> list[Any]:
    return [one for one in YAML(typ="safe").load_all(text) if one]


def errors(schema: Any, value: Any) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(schema).iter_errors(value)]


def test_skypilot_tasks_fit_the_recorded_schema() -> None:
    schemas = recorded("skypilot")
    seen = 0
    for name, text in files_of("skypilot").items():
        if not name.endswith(".yaml") or "/trainer/" in name:
            continue
        if name.endswith("sky-config.yaml"):
            assert errors(schemas["config"], documents(text)[0]) == [], name
            continue
        for task in documents(text):
            if set(task) == {"name"}:
                continue
            assert errors(schemas["task"], task) == [], name
            assert errors(schemas["resources"], task["resources"]) == [], name
            for mount in task.get("file_mounts", {}).values():
                assert errors(schemas["storage"], mount) == [], name
            seen += 1
    assert seen > 10


def test_objects_fit_the_recorded_custom_resources() -> None:
    schemas = {
        path.name.removesuffix(".schema.json"): json.loads(path.read_text(encoding="utf-8"))
        for path in SCHEMAS.glob("*.schema.json")
    }
    seen = set()
    for name, text in files_of("kubernetes").items():
        if name.endswith(".yaml"):
            for one in documents(text):
                kind = one["kind"].lower()
                seen.add(kind)
                if kind != "configmap":
                    assert errors(schemas[kind], one) == [], name
    assert seen == {*schemas, "configmap"}


def test_megatron_flags_exist_and_have_their_values() -> None:
    flags = recorded("megatron")
    seen = 0
    for name, text in files_of("megatron").items():
        if not name.endswith(".args.sh"):
            continue
        body = text[text.index("(") + 1 : text.rindex(")")]
        for line in body.splitlines():
            words = shlex.split(line, comments=True)
            if words:
                known = flags[words[0]]
                assert len(words) == (2 if known["value"] else 1), f"{name}: {line}"
                assert not known["choices"] or not known["value"] or words[1] in known["choices"], (
                    f"{name}: {line}"
                )
                seen += 1
    assert seen > 300


def test_torchtitan_fields_exist() -> None:
    fields = recorded("torchtitan")
    seen = set()
    for name, text in files_of("torchtitan").items():
        if not name.endswith(".py"):
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in fields:
                kind = ast.unparse(node.func)
                seen.add(kind)
                assert {keyword.arg for keyword in node.keywords} <= set(fields[kind]), name
    assert seen == set(fields)


def test_accelerate_keys_exist() -> None:
    keys = recorded("accelerate")
    found = files_of("accelerate") | files_of("trl")
    configurations = {name: text for name, text in found.items() if name.endswith(".accelerate.yaml")}
    assert configurations
    for name, text in configurations.items():
        (content,) = documents(text)
        assert set(content) <= set(keys["file"]), name
        for section in ("fsdp_config", "parallelism_config"):
            assert set(content.get(section, {})) <= set(keys["launch"]), name


def test_trl_keys_exist() -> None:
    keys = recorded("trl")
    programs = {"sft": "sft", "dpo": "dpo", "reward": "reward", "tune": "sft", "adapt": "sft"}
    seen = 0
    for name, text in files_of("trl").items():
        if name.endswith(".trl.yaml"):
            start = files_of("trl")[name.replace(".trl.yaml", ".sh")]
            program = re.search(r"trl\.scripts\.(\w+)", start)
            assert program is not None
            assert program[1] in programs.values()
            assert set(documents(text)[0]) <= set(keys[program[1]]), name
            seen += 1
    assert seen >= 3


def test_verl_overrides_exist() -> None:
    keys = recorded("verl")
    seen = 0
    for name, text in files_of("verl").items():
        if not name.endswith(".verl.sh"):
            continue
        config = re.search(r"--config-name=(\S+)", text)
        assert config is not None
        body = text[text.index("VERL_OVERRIDES=(") + 16 : text.index("\n)\n")]
        overrides = dict(shlex.split(line)[0].split("=", 1) for line in body.strip().splitlines())
        known = keys[f"{config[1]}/{overrides['engine']}" if "engine" in overrides else config[1]]
        own = ("engine", "optim", "hydra.searchpath")
        unknown = [key for key in overrides if key not in own and key not in known]
        assert unknown == [], name
        seen += 1
    assert seen >= 3


def test_maxtext_keys_exist() -> None:
    known = recorded("maxtext")
    seen = 0
    for name, text in files_of("maxtext").items():
        if name.endswith(".maxtext.yml"):
            (content,) = documents(text)
            assert set(content) - {"base_config"} <= set(known["fields"]), name
            assert content["remat_policy"] in known["remat_policies"]
            seen += 1
    assert seen >= 2


def test_maxtext_reads_every_number_back() -> None:
    plan = Plan.model_validate_json((PLANS / "tpu_maxtext.plan.json").read_text(encoding="utf-8"))
    (content,) = documents(export(plan, "maxtext")["01-pretrain-on-demand.maxtext.yml"])
    (segment,) = plan.segments
    devices = 1
    for axis in ("tensor", "context", "expert", "fsdp", "data", "pipeline"):
        devices *= content[f"ici_{axis}_parallelism"] * content[f"dcn_{axis}_parallelism"]
    assert devices == segment.layout.accelerators
    sequences = content["per_device_batch_size"] * devices * content["gradient_accumulation_steps"]
    assert sequences * segment.sequence_length == segment.global_batch_tokens
    assert content["max_target_length"] == segment.sequence_length
    assert content["steps"] == -(-300_000_000_000 // 4_194_304)
    assert content["max_num_checkpoints_to_keep"] == 3
    assert content["checkpoint_period"] * segment.global_batch_tokens / segment.tokens_per_s <= 1800.0
    assert content["model_name"] == "llama3.1-8b"


def test_megatron_bridge_is_told_what_megatron_is() -> None:
    """The same numbers on the command line and on a recipe's configuration."""
    seen = 0
    for name, text in files_of("megatron").items():
        if not name.endswith(".bridge.py"):
            continue
        config = SimpleNamespace(
            **{
                part: SimpleNamespace()
                for part in ("model", "train", "ddp", "optimizer", "dataset", "checkpoint")
            }
        )
        scope: dict[str, Any] = {}
        exec(compile(text, name, "exec"), scope)
        scope["os"] = SimpleNamespace(environ={"CHECKPOINT_DIR": "/c", "MODEL": "/m"})
        assert scope["apply_plan"](config) is config
        arguments = files_of_plan(name)[name.split("/", 1)[1].replace(".bridge.py", ".args.sh")]
        words = shlex.split(arguments.split("(", 1)[1].rsplit(")", 1)[0])
        flags = {
            "--tensor-model-parallel-size": config.model.tensor_model_parallel_size,
            "--pipeline-model-parallel-size": config.model.pipeline_model_parallel_size,
            "--context-parallel-size": config.model.context_parallel_size,
            "--micro-batch-size": config.train.micro_batch_size,
            "--save-interval": config.checkpoint.save_interval,
            "--seq-length": config.dataset.seq_length,
        }
        if "--step-batch-size-schedule" in words:
            # The recipe has the batch that the schedule ends with.
            assert words[words.index("--step-batch-size-schedule") + 1].endswith(
                f":{config.train.global_batch_size}"
            )
        else:
            flags["--global-batch-size"] = config.train.global_batch_size
            flags["--train-iters"] = config.train.train_iters
        for flag, value in flags.items():
            assert words[words.index(flag) + 1] == str(value), (name, flag)
        uneven = [word for word in words if word.startswith("--account-for-")]
        assert uneven == [
            "--" + key.replace("_", "-") for key in vars(config.model) if key.startswith("account_for_")
        ]
        assert ("--use-megatron-fsdp" in words) == config.ddp.use_megatron_fsdp
        seen += 1
    assert seen > 10


def files_of_plan(name: str) -> dict[str, str]:
    path = PLANS / f"{name.split('/', 1)[0]}.plan.json"
    return export(Plan.model_validate_json(path.read_text(encoding="utf-8")), "megatron")


def maxtext_of(plan: str) -> dict[str, Any]:
    texts = export(Plan.model_validate_json((PLANS / f"{plan}.plan.json").read_text("utf-8")), "maxtext")
    (content,) = documents(next(text for name, text in texts.items() if name.endswith(".maxtext.yml")))
    return dict(content)


def test_maxtext_is_told_the_width_of_experts() -> None:
    content = maxtext_of("tpu_experts")
    assert content["base_moe_mlp_dim"] == content["base_mlp_dim"] == 2816
    assert (content["num_experts"], content["num_experts_per_tok"]) == (16, 2)


def test_maxtext_is_told_how_many_documents_it_packs_on_gpus() -> None:
    """On TPUs it needs no such bound."""
    assert maxtext_of("gpu_pipeline")["max_segments_per_seq"] > 0
    assert "max_segments_per_seq" not in maxtext_of("tpu_experts")


@pytest.mark.parametrize(
    "name", ["skypilot", "megatron", "trl", "accelerate", "verl", "torchtitan", "maxtext"]
)
def test_recordings_name_their_source(name: str) -> None:
    content = json.loads((SCHEMAS / f"{name}.keys.json").read_text(encoding="utf-8"))
    assert re.search(r"\d+\.\d+\.\d+ .*(Apache-2\.0|BSD-3-Clause)", content["source"])
    checked = EXPORTERS[name].checked
    assert re.findall(r"\d+\.\d+\.\d+", content["source"])[0] in checked
