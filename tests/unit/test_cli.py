"""The command line: exit codes, streams and files. What it calls is replaced here and tested elsewhere."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import trainplan
from trainplan.cli import app
from trainplan.highs import Session
from trainplan_models.base import (
    InfeasibleError,
    InputError,
    NoAnswerError,
    Problem,
    TrainplanError,
    VerificationError,
)
from trainplan_models.plan import Plan

FULL = Path(__file__).parents[1] / "golden" / "report" / "full.plan.json"
TWO_PROBLEMS = [
    Problem("no unit in 30", key="deadline", file="a.yaml", line=3, fix="Write it like 30 days"),
    Problem("unknown key tokns", key="tasks[0].tokns", file="a.yaml", line=9),
]


@pytest.fixture(scope="module")
def full() -> Plan:
    return Plan.model_validate_json(FULL.read_text(encoding="utf-8"))


class Planning:
    """Stands in for the solver: returns a plan, or raises."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answer: Plan | BaseException | None = None
        self.asked: dict[str, Any] = {}
        module = ModuleType("trainplan.planning")
        module.plan = self.plan  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "trainplan.planning", module)
        monkeypatch.setattr("trainplan.cli.inputs.load_case", self.load_case)
        monkeypatch.setattr("trainplan.cli.inputs.load_catalog", self.load_catalog)

    def load_case(self, path: Path, overrides: list[str] | None, question: str | None = None) -> str:
        self.asked |= {"path": path, "overrides": overrides, "question": question}
        return "the case"

    def load_catalog(self, directory: Path | None) -> str:
        self.asked["catalog"] = directory
        return "the catalogue"

    def plan(self, case: str, catalog: str, *, time_limit_s: float, progress: Any, session: Session) -> Plan:
        assert (case, catalog) == ("the case", "the catalogue")
        self.asked["time_limit_s"] = time_limit_s
        progress("solving")
        if isinstance(self.answer, BaseException):
            raise self.answer
        assert self.answer is not None
        return self.answer


@pytest.fixture
def planning(monkeypatch: pytest.MonkeyPatch, full: Plan) -> Planning:
    stand_in = Planning(monkeypatch)
    stand_in.answer = full
    return stand_in


def run(*words: str) -> Result:
    return CliRunner().invoke(app, list(words))


FAILURES: list[tuple[BaseException, int, str]] = [
    (InputError(TWO_PROBLEMS), 2, "bad-input"),
    (InfeasibleError("infeasible", explanation="deadline 30 -> 37 days", details={"a": 1}), 3, "infeasible"),
    (NoAnswerError("no plan found in 60 s"), 4, "no-answer"),
    (VerificationError("cost does not add up"), 1, "error"),
    (TrainplanError("something known"), 1, "error"),
    (ZeroDivisionError("division\nby zero"), 1, "error"),
    (KeyboardInterrupt(), 130, "interrupted"),
]


def test_a_plan_is_reported_and_exits_0(planning: Planning, full: Plan) -> None:
    result = run("plan", "a.yaml")
    assert result.exit_code == 0
    assert f"{full.total_usd:,.2f} USD" in result.stdout
    assert result.stderr == ""


@pytest.mark.parametrize(("error", "code", "status"), FAILURES)
def test_failures_as_text(planning: Planning, error: BaseException, code: int, status: str) -> None:
    planning.answer = error
    result = run("plan", "a.yaml")
    assert result.exit_code == code
    assert result.stdout == ""
    assert "Traceback" not in result.stderr
    assert result.stderr.strip()


@pytest.mark.parametrize(("error", "code", "status"), FAILURES)
def test_failures_as_json(planning: Planning, error: BaseException, code: int, status: str) -> None:
    planning.answer = error
    result = run("plan", "a.yaml", "--json")
    assert result.exit_code == code
    record = json.loads(result.stdout)
    assert record["status"] == status
    assert record["problems"]
    assert all(problem["message"] for problem in record["problems"])
    assert result.stderr == ""


def test_every_problem_on_a_line_of_its_own(planning: Planning) -> None:
    planning.answer = InputError(TWO_PROBLEMS)
    assert run("plan", "a.yaml").stderr.splitlines() == [
        "a.yaml:3: deadline: no unit in 30. Write it like 30 days",
        "a.yaml:9: tasks[0].tokns: unknown key tokns",
    ]


def test_problems_as_json_have_file_line_key_and_fix(planning: Planning) -> None:
    planning.answer = InputError(TWO_PROBLEMS)
    assert json.loads(run("plan", "a.yaml", "--json").stdout)["problems"][0] == {
        "message": "no unit in 30",
        "key": "deadline",
        "file": "a.yaml",
        "line": 3,
        "fix": "Write it like 30 days",
    }


def test_infeasible_prints_the_explanation(planning: Planning) -> None:
    planning.answer = InfeasibleError("infeasible", explanation="deadline 30 -> 37 days", details={"d": [1]})
    assert run("plan", "a.yaml").stderr == "deadline 30 -> 37 days\n"
    record = json.loads(run("plan", "a.yaml", "--json").stdout)
    assert record["explanation"] == "deadline 30 -> 37 days"
    assert record["d"] == [1]


def test_an_unexpected_error_is_one_line(planning: Planning) -> None:
    planning.answer = ZeroDivisionError("division\nby zero")
    lines = run("plan", "a.yaml").stderr.splitlines()
    assert lines == ["unexpected ZeroDivisionError: division by zero. Set TRAINPLAN_DEBUG=1 to see where"]


def test_the_traceback_of_an_unexpected_error_on_demand(
    planning: Planning, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRAINPLAN_DEBUG", "1")
    planning.answer = ZeroDivisionError("division by zero")
    assert "Traceback" in run("plan", "a.yaml").stderr
    planning.answer = InputError(TWO_PROBLEMS)
    assert "Traceback" not in run("plan", "a.yaml").stderr


def test_a_plan_that_is_not_proven_is_written_marked_and_exits_4(
    planning: Planning, full: Plan, tmp_path: Path
) -> None:
    planning.answer = full.model_copy(update={"status": "feasible"})
    result = run("plan", "a.yaml", "-o", str(tmp_path))
    assert result.exit_code == 4
    assert "not proven optimal" in result.stdout
    assert "not proven optimal" in result.stderr
    assert json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))["status"] == "feasible"


def test_json_on_stdout_is_the_plan(planning: Planning, full: Plan) -> None:
    assert Plan.model_validate_json(run("plan", "a.yaml", "--json").stdout) == full


def test_output_directory_gets_both_files(planning: Planning, full: Plan, tmp_path: Path) -> None:
    target = tmp_path / "new" / "out"
    result = run("plan", "a.yaml", "-o", str(target))
    assert result.exit_code == 0
    assert sorted(path.name for path in target.iterdir()) == ["plan.json", "report.md"]
    assert Plan.model_validate_json((target / "plan.json").read_text(encoding="utf-8")) == full
    assert f"{full.total_usd:,.2f}" in (target / "report.md").read_text(encoding="utf-8")


def test_quiet_prints_nothing(planning: Planning, tmp_path: Path) -> None:
    result = run("plan", "a.yaml", "-q", "-o", str(tmp_path))
    assert (result.exit_code, result.output) == (0, "")
    assert (tmp_path / "plan.json").exists()


def test_options_reach_the_case_the_catalogue_and_the_solver(planning: Planning) -> None:
    words = ("--question", "fastest", "--set", "budget=1M USD", "--set", "deadline=9 days")
    assert run("plan", "a.yaml", *words, "--catalog", "mine", "--time-limit", "2 min").exit_code == 0
    assert planning.asked == {
        "path": Path("a.yaml"),
        "overrides": ["budget=1M USD", "deadline=9 days"],
        "question": "fastest",
        "catalog": Path("mine"),
        "time_limit_s": 120.0,
    }


def test_nothing_is_written_when_interrupted(planning: Planning, tmp_path: Path) -> None:
    planning.answer = KeyboardInterrupt()
    assert run("plan", "a.yaml", "-o", str(tmp_path / "out")).exit_code == 130
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("words", [["schema", "plan"], ["version"]])
def test_a_closed_pipe_ends_quietly(words: list[str]) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "wb") as closed:
        done = subprocess.run(
            [sys.executable, "-m", "trainplan", *words],
            stdout=closed,
            stderr=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            check=False,
        )
    assert (done.returncode, done.stderr) == (141, b"")


@pytest.mark.parametrize("encoding", ["ascii", "cp1252", "utf-8"])
@pytest.mark.parametrize("words", [["--help"], ["schema", "case"], ["version"], ["plan", "größe.yaml"]])
def test_every_command_survives_any_encoding(words: list[str], encoding: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "trainplan", *words],
        capture_output=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONIOENCODING": encoding},
        check=False,
    )
    assert done.returncode == (2 if words[0] == "plan" else 0)
    assert b"Traceback" not in done.stderr
    assert done.stdout.decode(encoding) or done.stderr.decode(encoding)


@pytest.mark.parametrize("limit", ["60", "soon", "-3 s", "3 GB"])
def test_a_time_limit_needs_a_unit_of_time(planning: Planning, limit: str) -> None:
    result = run("plan", "a.yaml", "--time-limit", limit)
    assert result.exit_code == 2
    assert "--time-limit" in result.stderr


@pytest.mark.parametrize(
    "words", [("plan",), ("plan", "a.yaml", "--jsn"), ("nonsense",), ("schema", "bill"), ()]
)
def test_usage_errors_exit_2_with_a_hint(words: tuple[str, ...]) -> None:
    result = run(*words)
    assert result.exit_code == 2
    assert "Traceback" not in result.output
    assert "--help" in result.stderr


def test_usage_errors_as_json() -> None:
    result = run("plan", "--json")
    assert result.exit_code == 2
    assert json.loads(result.stdout)["status"] == "bad-input"


def test_version_is_the_packages_own() -> None:
    assert run("--version").stdout == f"trainplan {trainplan.__version__}\n"
    assert run("version").stdout.startswith(f"trainplan {trainplan.__version__}\n")
    assert json.loads(run("version", "--json").stdout)["trainplan"] == trainplan.__version__


@pytest.mark.parametrize("what", ["case", "plan"])
def test_schema_is_a_valid_json_schema(what: str) -> None:
    import jsonschema

    result = run("schema", what)
    assert result.exit_code == 0
    jsonschema.Draft202012Validator.check_schema(json.loads(result.stdout))


def test_the_plan_schema_accepts_a_plan_and_refuses_another_file(full: Plan) -> None:
    import jsonschema

    validator = jsonschema.Draft202012Validator(json.loads(run("schema", "plan").stdout))
    record = full.model_dump(mode="json")
    assert validator.is_valid(record)
    assert not validator.is_valid({**record, "total_usd": "much"})
    del record["segments"]
    assert not validator.is_valid(record)
