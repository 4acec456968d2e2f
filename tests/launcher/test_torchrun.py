"""torchrun's own command line on what every exported start script gives it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .launching import Unit, ask
from .starting import start

pytestmark = pytest.mark.launcher


def test_every_number_comes_back(exported: dict[str, list[Unit]], tmp_path: Path) -> None:
    units: list[Unit] = []
    words: list[list[str]] = []
    for number, unit in enumerate(exported["torchrun"]):
        started = start(unit, unit.folder / f"{unit.name}.sh", tmp_path / str(number))
        if started.program == "torchrun":
            units.append(unit)
            words.append(started.words)
    found: list[dict[str, Any]] = ask("trainers", "torchrun_probe.py", words)
    assert len(units) > 10
    for unit, one in zip(units, found, strict=True):
        assert "error" not in one, f"{unit.id}: {one}"
        nodes = unit.segment.nodes
        assert one["nodes"] == [nodes, nodes], unit.id
        assert one["processes"] * nodes == unit.world, unit.id
        assert (one["backend"], one["run_id"]) == ("c10d", unit.name)
        assert one["endpoint"] == "127.0.0.1:29500"
        assert one["node_rank"] == 0


@pytest.mark.parametrize("words", [["--nnodes=two"], ["--nproc-per-node=many"], ["--rdzv_backendd=c10d"]])
def test_torchrun_refuses_what_is_wrong(words: list[str]) -> None:
    (found,) = ask("trainers", "torchrun_probe.py", [[*words, "train.py"]])
    assert "error" in found
