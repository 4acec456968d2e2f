"""Ctrl-C during a search: a plan, marked as what it is."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

CASE = Path(__file__).parents[2] / "cases" / "three-products.yaml"


def test_ctrl_c_during_the_search_gives_the_best_plan_so_far(tmp_path: Path) -> None:
    words = [sys.executable, "-m", "trainplan", "plan", str(CASE), "--output", str(tmp_path)]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as command:
        assert command.stderr is not None
        said = next(line for line in command.stderr if "best so far" in line)
        assert said
        # As a terminal does: to the command and to its solver.
        os.killpg(command.pid, signal.SIGINT)
        shown, left = command.communicate(timeout=120)
    assert command.returncode == 4
    assert "not proven optimal when it was stopped" in left
    assert "best found, not proven" in shown
    plan = json.loads((tmp_path / "plan.json").read_text(encoding="utf-8"))
    assert plan["status"] == "feasible"
    assert plan["alternatives"] == []
    assert {task["task"] for task in plan["tasks"]} >= {"search-pretrain", "code-rl", "support-tune"}
