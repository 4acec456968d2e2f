from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trainplan.cli import app
from trainplan.export import EXPORTERS, export
from trainplan_models.plan import Plan

PLANS = sorted((Path(__file__).parents[1] / "golden" / "export").rglob("*.plan.json"))


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["export", *words])


@pytest.fixture(scope="module")
def plan() -> Path:
    """A plan that has something for Slurm."""
    assert PLANS
    return PLANS[0]


def test_files_are_those_of_the_exporter(plan: Path, tmp_path: Path) -> None:
    result = run(str(plan), "--to", "slurm", "-o", str(tmp_path))
    assert result.exit_code == 0, result.output
    expected = export(Plan.model_validate_json(plan.read_text(encoding="utf-8")), "slurm")
    written = {
        path.relative_to(tmp_path).as_posix(): path.read_text(encoding="utf-8")
        for path in tmp_path.rglob("*")
        if path.is_file()
    }
    assert written == expected
    assert len(result.stdout.splitlines()) == len(expected)


def test_json_is_the_files(plan: Path) -> None:
    expected = export(Plan.model_validate_json(plan.read_text(encoding="utf-8")), "slurm")
    assert json.loads(run(str(plan), "--to", "slurm", "--json").stdout) == expected


def test_an_unknown_target_lists_the_known(plan: Path) -> None:
    result = run(str(plan), "--to", "slrum")
    assert result.exit_code == 2
    assert all(name in result.stderr for name in EXPORTERS)


@pytest.mark.parametrize(
    ("content", "expected"),
    [(None, "cannot be read"), ("{", "not a plan"), ('{"schema_version": 1}', "segments")],
)
def test_what_is_no_plan_is_bad_input(tmp_path: Path, content: str | None, expected: str) -> None:
    path = tmp_path / "plan.json"
    if content is not None:
        path.write_text(content, encoding="utf-8")
    result = run(str(path), "--to", "slurm", "-o", str(tmp_path / "out"))
    assert result.exit_code == 2
    assert expected in result.stderr
    assert str(path) in result.stderr
    assert not (tmp_path / "out").exists()
