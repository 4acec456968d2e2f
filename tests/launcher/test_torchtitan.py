"""torchtitan's own configuration manager and mesh checks on every exported module."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from .launching import Unit, probe

pytestmark = pytest.mark.launcher


def module_of(unit: Unit) -> str:
    return f"trainplan_{unit.name.replace('-', '_')}"


def asked(unit: Unit) -> dict[str, Any]:
    return {"folder": str(unit.folder), "module": module_of(unit), "world": unit.world}


@pytest.fixture(scope="module")
def parsed(exported: dict[str, list[Unit]]) -> list[tuple[Unit, dict[str, Any]]]:
    units = exported["torchtitan"]
    found = probe("trainers", "torchtitan_probe.py", json.dumps([asked(unit) for unit in units]))
    return list(zip(units, found, strict=True))


def test_every_number_comes_back(parsed: list[tuple[Unit, dict[str, Any]]]) -> None:
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
        assert found["recompute"].lower().startswith({"none": "none", "selective": "sel", "full": "full"}[layout.recompute])


def test_a_world_that_does_not_fit_is_refused(exported: dict[str, list[Unit]]) -> None:
    unit = exported["torchtitan"][0]
    (found,) = probe("trainers", "torchtitan_probe.py", json.dumps([asked(unit) | {"world": unit.world + 8}]))
    assert "error" in found


@pytest.mark.parametrize(
    ("old", "new"), [("tensor_parallel_degree", "tensor_parallel_size"), ("keep_latest_k=3", "keep_latest_k=1")]
)
def test_torchtitan_refuses_what_is_wrong(exported: dict[str, list[Unit]], tmp_path: Path, old: str, new: str) -> None:
    unit = next(u for u in exported["torchtitan"] if u.plan == "fsdp_titan")
    text = (unit.folder / f"{module_of(unit)}.py").read_text(encoding="utf-8")
    assert old in text
    (tmp_path / "wrong_config.py").write_text(text.replace(old, new), encoding="utf-8")
    wrong = {"folder": str(tmp_path), "module": "wrong_config", "world": unit.world}
    (found,) = probe("trainers", "torchtitan_probe.py", json.dumps([wrong]))
    assert "error" in found
