"""Exports of every plan of the golden folder, written out once."""

from __future__ import annotations

import os

import pytest

from trainplan.export import EXPORTERS, export
from trainplan_models.base import InputError

from .launching import HERE, Unit, plan_names, read_plan, units_of


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave these tests out of ordinary runs: they start other programs and take minutes."""
    asked = "launcher" in str(config.getoption("markexpr")) or "TRAINPLAN_LAUNCHERS" in os.environ
    skip = pytest.mark.skip(
        reason="takes minutes: pytest -m launcher tests/launcher, after tests/launcher/setup.sh"
    )
    for item in items:
        if not asked and HERE in item.path.parents:
            item.add_marker(skip)


@pytest.fixture(scope="session")
def exported(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[Unit]]:
    """By target: the units of every plan the target can run, with their files written out."""
    root = tmp_path_factory.mktemp("exports")
    found: dict[str, list[Unit]] = {}
    for name in plan_names():
        for target in EXPORTERS:
            try:
                files = export(read_plan(name), target)
            except InputError:
                continue
            folder = root / name / target
            for path, text in files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_text(text, encoding="utf-8")
                if path.endswith(".sh"):
                    (folder / path).chmod(0o755)
            found.setdefault(target, []).extend(units_of(name, target, folder))
    return found


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
