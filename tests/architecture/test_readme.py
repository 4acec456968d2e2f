"""What the README tells a new user is what works."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from trainplan.report.build import document
from trainplan_models.plan import Plan

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
SHELL = re.findall(r"```sh\n(.*?)```", README, re.DOTALL)


def test_the_first_two_shell_blocks_are_one_command_each() -> None:
    plan, tests = (block.strip() for block in SHELL[:2])
    assert "\n" not in plan
    assert re.search(r"trainplan plan cases/\S+\.yaml$", plan)
    assert "\n" not in tests
    assert re.search(r"-m pytest\b", tests)


def test_ci_runs_the_very_commands_of_the_readme(checkout: Path) -> None:
    """The pattern by which .ci/run finds a command finds the one meant, and nothing else."""
    script = (checkout / ".ci" / "run").read_text(encoding="utf-8")
    patterns = re.findall(r"readme_command '([^']+)'", script)
    assert len(patterns) == 2
    found = [
        subprocess.run(
            ["grep", "-E", f"^python3 -m venv .*{pattern}", "README.md"],
            cwd=checkout,
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for pattern in patterns
    ]
    assert found == SHELL[:2]


@pytest.mark.parametrize("path", sorted(set(re.findall(r"(?:cases|models|solver|tests)/[\w./-]*\w", README))))
def test_every_path_in_the_readme_exists(checkout: Path, path: str) -> None:
    assert (checkout / path).exists()


def test_the_case_shown_is_the_case_planned() -> None:
    (path,) = re.findall(r"trainplan plan (cases/\S+\.yaml)$", SHELL[0], re.MULTILINE)
    (shown,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    assert shown == (ROOT / path).read_text(encoding="utf-8")


def test_the_sample_has_the_lines_of_a_headline() -> None:
    golden = ROOT / "tests" / "golden" / "report" / "full.plan.json"
    headline = document(Plan.model_validate_json(golden.read_text(encoding="utf-8"))).sections[0]
    for name, _ in headline.facts:
        assert re.search(rf"^{name}  ", README, re.MULTILINE), name
