"""torchtitan's own configuration manager and mesh checks on every exported module."""

from __future__ import annotations

from typing import Any

import pytest

from .launching import Unit, ask, read_plan

pytestmark = pytest.mark.launcher


def module_of(unit: Unit) -> str:
    return f"trainplan_{unit.name.replace('-', '_')}"


def model_of(unit: Unit) -> tuple[int, int, int] | None:
    """Layers, width and vocabulary, where the case writes the model out."""
    task = next(task for task in read_plan(unit.plan).case["tasks"] if task["name"] == unit.segment.task)
    model = task["model"]
    return (model["layers"], model["hidden"], model["vocab"]) if isinstance(model, dict) else None


def asked(unit: Unit) -> dict[str, Any]:
    return {"folder": str(unit.folder), "module": module_of(unit), "world": unit.world}


WRONG = {
    "unknown_field": ("tensor_parallel_degree", "tensor_parallel_size"),
    "keeps_one": ("keep_latest_k=3", "keep_latest_k=1"),
    "never_saves": ("interval=35", "interval=0"),
}
Found = list[tuple[Unit, dict[str, Any]]]


@pytest.fixture(scope="module")
def answers(
    exported: dict[str, list[Unit]], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Found, dict[str, dict[str, Any]]]:
    """What torchtitan says to every unit, and to what is wrong on purpose."""
    units = exported["torchtitan"]
    good = next(unit for unit in units if unit.plan == "fsdp_titan")
    text = (good.folder / f"{module_of(good)}.py").read_text(encoding="utf-8")
    folder = tmp_path_factory.mktemp("wrong")
    wrong = {"world_too_big": asked(good) | {"world": good.world + 8}}
    for name, (old, new) in WRONG.items():
        assert old in text
        (folder / f"{name}.py").write_text(text.replace(old, new), encoding="utf-8")
        wrong[name] = {"folder": str(folder), "module": name, "world": good.world}
    questions = [asked(unit) for unit in units] + list(wrong.values())
    found = ask("trainers", "torchtitan_probe.py", questions)
    return list(zip(units, found[: len(units)], strict=True)), dict(
        zip(wrong, found[len(units) :], strict=True)
    )


def test_every_number_comes_back(answers: tuple[Found, dict[str, dict[str, Any]]]) -> None:
    parsed, _ = answers
    assert parsed
    for unit, found in parsed:
        layout = unit.segment.layout
        assert "error" not in found, f"{unit.id}: {found}"
        assert found["replicate"] * found["shard"] == layout.dp, unit.id
        if layout.shard_group:
            assert found["shard"] * layout.cp == layout.shard_group
        expected = {
            "tp": layout.tp,
            "pp": layout.pp,
            "cp": layout.cp,
            "ep": layout.ep,
            "global_batch": unit.sequences,
            "local_batch": layout.micro_batch * (unit.accumulation if layout.pp > 1 else 1),
            "seq_len": unit.segment.sequence_length,
            "steps": unit.total_steps,
            "interval": unit.interval_steps,
            "keep": max(2, unit.keep_last),
            "checkpoint": True,
            "schedule": "Interleaved1F1B" if layout.vp > 1 else "1F1B",
        }
        assert {key: found[key] for key in expected} == expected, unit.id
        assert found["global_batch"] % (found["local_batch"] * layout.dp) == 0
        shape = model_of(unit)
        if shape is not None:
            assert (found["layers"], found["dim"], found["vocab"]) == shape
        assert (
            found["recompute"]
            .lower()
            .startswith({"none": "none", "selective": "sel", "full": "full"}[layout.recompute])
        )


def test_torchtitan_refuses_what_is_wrong(answers: tuple[Found, dict[str, dict[str, Any]]]) -> None:
    _, refused = answers
    assert [name for name, found in refused.items() if "error" not in found] == []
