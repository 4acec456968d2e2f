from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from trainplan.cli import app

CASES = Path(__file__).parents[2] / "cases"
SMALL = CASES / "lora-one-node.yaml"


def run(*words: str) -> Result:
    return CliRunner().invoke(app, ["check", *words])


def sizes(*words: str) -> dict[str, object]:
    result = run(*words, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert isinstance(found, dict)
    return found


def test_sizes_add_up() -> None:
    found = sizes(str(CASES / "assistant-programme.yaml"))
    assert found["status"] == "ok"
    tasks = found["tasks"]
    assert isinstance(tasks, list)
    assert [task["task"] for task in tasks] == ["clean-data", "pretrain", "sft", "preference", "evaluate"]
    assert sum(task["options"] for task in tasks) == found["options"]
    sft = tasks[2]
    assert sft["after"] == ["pretrain"]
    assert sft["tokens"] == 5 * 400e6
    assert set(sft["modes"]) <= {"on-demand", "spot"}
    assert set(sft["accelerators"]) <= {"H100-SXM", "A100-SXM-80GB"}


def test_text_says_the_same_as_json() -> None:
    found = sizes(str(SMALL))
    text = run(str(SMALL)).stdout
    for key in ("options", "layouts_evaluated", "pools"):
        assert f"{found[key]:,}" in text
    for _, rule, count in found["removed"]:  # type: ignore[attr-defined]
        assert rule in text
        assert f"{count:,}" in text


def test_overrides_change_what_is_decided() -> None:
    narrowed = sizes(str(SMALL), "--set", "resources.billing=[on-demand]")
    assert narrowed["modes"] == ["on-demand"]


def test_a_task_that_nothing_can_run_exits_3() -> None:
    words = (
        str(CASES / "llama-70b-continue.yaml"),
        "--set",
        "resources.accelerators=[V100-SXM2-16GB]",
        "--set",
        "resources.max_nodes=1 node",
    )
    result = run(*words)
    assert result.exit_code == 3
    assert "does not fit in memory" in result.stdout
    assert "nothing that the case allows can run" in result.stderr
    assert json.loads(run(*words, "--json").stdout)["status"] == "infeasible"


@pytest.mark.parametrize("extra", [(), ("--json",)])
def test_a_wrong_case_exits_2_with_its_place(tmp_path: Path, extra: tuple[str, ...]) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(SMALL.read_text(encoding="utf-8").replace("deadline:", "deadlin:"), encoding="utf-8")
    result = run(str(wrong), *extra)
    assert result.exit_code == 2
    assert "deadlin" in result.output
    assert "wrong.yaml" in result.output


def test_a_missing_case_exits_2() -> None:
    result = run("nowhere.yaml")
    assert result.exit_code == 2
    assert "nowhere.yaml" in result.stderr
