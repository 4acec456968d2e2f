"""Exports of every plan of the golden folder, written out once."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainplan.export import EXPORTERS, export
from trainplan_models.base import InputError

from .launching import HERE, Unit, plan_names, read_plan, units_of
from .slurm_cluster import Cluster, cluster, missing_tools


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out of ordinary runs: they start other programs and take minutes."""
    asked = "launcher" in str(config.getoption("markexpr")) or "TRAINPLAN_LAUNCHERS" in os.environ
    skip = pytest.mark.skip(
        reason="takes minutes: pytest -m launcher tests/launcher, after tests/launcher/setup.sh"
    )
    for item in items:
        if not asked and HERE in item.path.parents:
            item.add_marker(skip)


@dataclass(frozen=True, slots=True)
class Exports:
    """Every plan of the golden folder for every target."""

    units: dict[str, list[Unit]]
    """By target: the units of every plan the target can run, with their files written out."""
    folders: dict[tuple[str, str], Path]
    """By plan and target: the folder of an export."""
    refused: dict[tuple[str, str], InputError]
    """By plan and target: why there is none."""


@pytest.fixture(scope="session")
def exports(tmp_path_factory: pytest.TempPathFactory) -> Exports:
    """All exports, written out once."""
    root = tmp_path_factory.mktemp("exports")
    found = Exports({}, {}, {})
    for name in plan_names():
        for target in EXPORTERS:
            try:
                files = export(read_plan(name), target)
            except InputError as error:
                found.refused[name, target] = error
                continue
            folder = root / name / target
            for path, text in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text, encoding="utf-8")
                if path.endswith(".sh"):
                    (folder / path).chmod(0o755)
            found.folders[name, target] = folder
            found.units.setdefault(target, []).extend(units_of(name, target, folder))
    return found


@pytest.fixture(scope="session")
def exported(exports: Exports) -> dict[str, list[Unit]]:
    """By target: the units of every plan the target can run."""
    return exports.units


@pytest.fixture(scope="session")
def slurm(tmp_path_factory: pytest.TempPathFactory, exported: dict[str, list[Unit]]) -> Iterator[Cluster]:
    """A running private cluster, with nodes on paper for every kind of node the plans want."""
    if missing_tools():
        pytest.skip(
            f"{', '.join(missing_tools())} not installed: tests/launcher/setup.sh slurm installs them"
        )
    if os.getuid() != 0:
        pytest.skip("a private cluster needs root")
    segments = [unit.segment for unit in exported["slurm"]]
    paper = {segment.accelerator.lower().split("-")[0]: segment.accelerators_per_node for segment in segments}
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=3, paper=paper) as found:
        yield found


@pytest.fixture(scope="session")
def shell_environment() -> dict[str, str]:
    """Values of the variables that start scripts fill in."""
    return {
        "LEARNING_RATE": "1e-4",
        "CHECKPOINT_DIR": "/checkpoints/task",
        "DATA": "/data",
        "TOKENIZER": "tokenizer",
        "MODEL": "/checkpoints/model",
        "PATH": os.environ["PATH"],
    }
