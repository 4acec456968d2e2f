"""What a command does not need, it does not import."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import trainplan

ROOT = Path(__file__).parents[2]
SOLVER = {"pyomo", "highspy"}
HEAVY = SOLVER | {"numpy", "scipy", "rich", "jinja2", "joblib", "networkx", "ruamel"}

RUN = """
import json, sys
from trainplan.cli import app
try:
    app({words!r}, prog_name="trainplan")
except SystemExit as end:
    assert not end.code, end.code
print("\\n" + json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""


def imported_by(code: str) -> set[str]:
    """Top-level packages that are loaded after ``code`` ran in a new interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": "utf-8"},
        cwd=ROOT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return set(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize("words", [["--help"], ["plan", "--help"], ["--version"]])
def test_help_loads_nothing_heavy(words: list[str]) -> None:
    """Typer itself loads pydantic for a command with a path among its options."""
    assert imported_by(RUN.format(words=words)) & HEAVY == set()


def test_check_needs_no_solver() -> None:
    case = next((ROOT / "cases").glob("*.yaml"))
    assert imported_by(RUN.format(words=["check", str(case)])) & SOLVER == set()


def test_reports_need_no_solver() -> None:
    code = f"""
import json, sys
from pathlib import Path
from trainplan import report
from trainplan_models.plan import Plan
plan = Plan.model_validate_json(Path({str(ROOT / "tests/golden/report/full.plan.json")!r}).read_text("utf-8"))
report.markdown(plan), report.terminal(plan)
print(json.dumps(sorted({{name.partition(".")[0] for name in sys.modules}})))
"""
    assert imported_by(code) & SOLVER == set()


def test_importing_the_package_loads_nothing() -> None:
    code = "import json, sys, trainplan; print(json.dumps(sorted(m.partition('.')[0] for m in sys.modules)))"
    assert imported_by(code) & (HEAVY | {"pydantic", "typer", "trainplan_models"}) == set()


@pytest.mark.parametrize("name", trainplan.__all__)
def test_the_public_api_is_there(name: str) -> None:
    assert getattr(trainplan, name)
    assert name in dir(trainplan)


def test_the_public_api_has_nothing_else() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        getattr(trainplan, "nonsense")  # noqa: B009
