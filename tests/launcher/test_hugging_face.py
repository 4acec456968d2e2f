"""DeepSpeed's, Accelerate's and TRL's own readers on every exported configuration."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .launching import Unit, ask

pytestmark = pytest.mark.launcher

PROGRAMS = {"sft": "sft", "preference": "dpo", "reward-model": "reward"}
Found = list[tuple[Unit, dict[str, Any]]]


WRONG = (
    ("deepspeed", "deepspeed.json", '"train_batch_size": ', '"train_batch_size": 1'),
    ("deepspeed", "deepspeed.json", '"stage": 3', '"stage": 4'),
    ("deepspeed", "deepspeed.json", '"overlap_comm"', '"overlap_com"'),
    ("accelerate", "accelerate.yaml", "num_machines:", "machines:"),
    ("accelerate", "accelerate.yaml", "distributed_type: DEEPSPEED", "distributed_type: FDSP"),
)


def wrong_questions(exported: dict[str, list[Unit]], folder: Path) -> list[dict[str, Any]]:
    """Configurations with one mistake each."""
    found = []
    for number, (kind, suffix, old, new) in enumerate(WRONG):
        unit = next(u for u in exported[kind] if u.plan == "capacity_block")
        text = (unit.folder / f"{unit.name}.{suffix}").read_text(encoding="utf-8")
        assert old in text
        bad = folder / f"{number}.{suffix}"
        bad.write_text(text.replace(old, new), encoding="utf-8")
        asked: dict[str, Any] = {"kind": kind, "file": str(bad)}
        found.append(asked | ({"world": unit.segment.layout.dp} if kind == "deepspeed" else {}))
    return found


def questions(unit: Unit, target: str) -> list[tuple[str, dict[str, Any]]]:
    """What the readers are asked of a unit, each with its kind; TRL's programs are started by Accelerate."""
    path = f"{unit.folder / unit.name}"
    if target == "deepspeed":
        question = {"kind": target, "file": f"{path}.deepspeed.json", "world": unit.segment.layout.dp}
        return [(target, question)]
    found: list[tuple[str, dict[str, Any]]] = [
        ("accelerate", {"kind": "accelerate", "file": f"{path}.accelerate.yaml"})
    ]
    if target == "trl":
        program = PROGRAMS[unit.kind]
        found.append((target, {"kind": target, "file": f"{path}.trl.yaml", "program": program}))
    return found


@pytest.fixture(scope="module")
def parsed(exported: dict[str, list[Unit]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Found]:
    """What each reader says to every unit; under ``wrong`` to what is wrong on purpose."""
    units = [
        (kind, unit, question)
        for target in ("deepspeed", "accelerate", "trl")
        for unit in exported[target]
        for kind, question in questions(unit, target)
    ]
    wrong = wrong_questions(exported, tmp_path_factory.mktemp("wrong"))
    found = ask("trainers", "hugging_face_probe.py", [question for _, _, question in units] + wrong)
    result: dict[str, Found] = {"deepspeed": [], "accelerate": [], "trl": [], "wrong": []}
    for (kind, unit, _), one in zip(units, found, strict=False):
        assert "error" not in one, f"{kind} {unit.id}: {one}"
        result[kind].append((unit, one))
    result["wrong"] = [(units[0][1], one) for one in found[len(units) :]]
    return result


def test_deepspeed_reads_every_number_back(parsed: dict[str, Found]) -> None:
    assert parsed["deepspeed"]
    for unit, found in parsed["deepspeed"]:
        layout = unit.segment.layout
        assert found == {
            "train_batch_size": unit.sequences,
            "micro_batch": layout.micro_batch,
            "accumulation": unit.accumulation,
            "stage": layout.zero_stage,
            "hpz": layout.shard_group if 0 < layout.shard_group < layout.dp else 1,
            "bf16": layout.precision in ("bf16", "fp8"),
            "autotp": layout.tp if layout.tp > 1 else 0,
        }, unit.id


def test_accelerate_reads_every_number_back(parsed: dict[str, Found]) -> None:
    assert parsed["accelerate"]
    for unit, found in parsed["accelerate"]:
        layout = unit.segment.layout
        environment = found["environment"]
        assert (found["num_machines"], found["num_processes"]) == (unit.segment.nodes, unit.world), unit.id
        if found["distributed_type"] != "FSDP":
            assert found["distributed_type"] == "DEEPSPEED" or layout.zero_stage == 0
            continue
        assert environment["FSDP_VERSION"] == "2"
        assert environment["FSDP_RESHARD_AFTER_FORWARD"] == str(layout.zero_stage == 3).lower()
        assert environment["FSDP_ACTIVATION_CHECKPOINTING"] == str(layout.recompute == "full").lower()
        sizes = {
            key: int(environment[f"PARALLELISM_CONFIG_{key}_SIZE"])
            for key in ("DP_REPLICATE", "DP_SHARD", "TP", "CP")
        }
        assert sizes["DP_REPLICATE"] * sizes["DP_SHARD"] == layout.dp
        if layout.shard_group:
            assert sizes["DP_SHARD"] * layout.cp == layout.shard_group
        assert (sizes["TP"], sizes["CP"]) == (layout.tp, layout.cp)


def test_trl_reads_every_number_back(parsed: dict[str, Found]) -> None:
    assert parsed["trl"]
    for unit, found in parsed["trl"]:
        expected = {
            "per_device_train_batch_size": unit.segment.layout.micro_batch,
            "gradient_accumulation_steps": unit.accumulation,
            "max_length": unit.segment.sequence_length,
            "max_steps": unit.total_steps,
            "save_strategy": "steps",
            "save_steps": unit.interval_steps,
            "save_total_limit": unit.keep_last,
            "bf16": unit.segment.layout.precision in ("bf16", "fp8"),
        }
        assert {key: found[key] for key in expected} == expected, unit.id


def test_wrong_files_are_refused(parsed: dict[str, Found]) -> None:
    answers = [found for _, found in parsed["wrong"]]
    assert [wrong for wrong, found in zip(WRONG, answers, strict=True) if "error" not in found] == []
