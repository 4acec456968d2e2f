"""The import rules of pyproject.toml."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest


def test_imports_go_one_way(
    checkout: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from importlinter.cli import lint_imports

    monkeypatch.chdir(checkout)
    code = lint_imports(config_filename=str(checkout / "pyproject.toml"), no_cache=True)
    assert code == 0, capsys.readouterr().out


def test_every_module_of_the_solver_has_a_layer(checkout: Path) -> None:
    """A module outside the layers could import anything."""
    settings = tomllib.loads((checkout / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = settings["tool"]["importlinter"]["contracts"]
    layers = next(contract["layers"] for contract in contracts if contract["type"] == "layers")
    placed = {name.strip(" ()") for layer in layers for name in layer.replace(":", "|").split("|")}
    package = checkout / "solver" / "trainplan"
    there = {
        f"trainplan.{path.stem}"
        for path in package.iterdir()
        if (path.suffix == ".py" and not path.stem.startswith("__"))
        or (path.is_dir() and any(path.glob("*.py")))
    }
    assert there - placed == set()
