"""What launcher tests share: units reckoned from plans, and the environments launchers live in."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from trainplan_models.plan import Plan, Segment

HERE = Path(__file__).parent
PLANS = HERE.parent / "golden" / "export"
ENVIRONMENTS = Path(os.environ.get("TRAINPLAN_LAUNCHERS", Path.home() / ".cache" / "trainplan" / "launchers"))
PROBE_S = 400.0
"""A launcher's parser that takes longer hangs."""


@dataclass(frozen=True, slots=True)
class Unit:
    """One segment of a plan and what a launcher has to read out of its files, reckoned from the plan alone."""

    plan: str
    name: str
    folder: Path
    segment: Segment
    kind: str
    world: int
    sequences: int
    accumulation: int
    total_steps: int
    interval_steps: int
    keep_last: int

    @property
    def id(self) -> str:
        """For test reports."""
        return f"{self.plan}-{self.name}"


def read_plan(name: str) -> Plan:
    """A plan of the golden folder."""
    return Plan.model_validate_json((PLANS / f"{name}.plan.json").read_text(encoding="utf-8"))


def plan_names() -> list[str]:
    """All plans of the golden folder."""
    return sorted(path.name.removesuffix(".plan.json") for path in PLANS.glob("*.plan.json"))


def total_steps(plan: Plan, segment: Segment) -> int:
    """Optimizer steps of the segment's task over all its segments, rounded up."""
    record = next(task for task in plan.case["tasks"] if task["name"] == segment.task)
    if record["kind"] == "rl" and record["rollout"]:
        return int(record["rollout"]["steps"] * record["rounds"])
    if not segment.global_batch_tokens:
        return 0
    parts = [part for s in plan.segments if s.task == segment.task for part in s.batches or [s]]
    steps = sum(part.tokens / part.global_batch_tokens for part in parts)
    return int(-(-round(steps, 3) // 1))


def interval_steps(plan: Plan, segment: Segment) -> int:
    """Whole steps in the planned checkpoint interval, at least one."""
    seconds = step_s(plan, segment)
    return max(1, int(segment.checkpoint.interval_s / seconds + 1e-4)) if seconds > 0 else 1


def step_s(plan: Plan, segment: Segment) -> float:
    """Seconds of one optimizer step while it trains; of the longest where the batch grows."""
    record = next(task for task in plan.case["tasks"] if task["name"] == segment.task)
    if record["kind"] == "rl" and record["rollout"]:
        tokens = sum(s.tokens for s in plan.segments if s.task == segment.task)
        return tokens / segment.tokens_per_s / total_steps(plan, segment)
    parts = segment.batches or [segment]
    return max(part.global_batch_tokens / part.tokens_per_s if part.tokens_per_s else 0.0 for part in parts)


def units_of(name: str, target: str, folder: Path) -> list[Unit]:
    """The units an export of a plan has files for."""
    plan = read_plan(name)
    order = json.loads((folder / "order.json").read_text(encoding="utf-8"))
    segments = sorted((s for s in plan.segments if s.leads), key=lambda s: s.start_s)
    found = []
    for record in order["units"]:
        segment = segments[int(record["name"][:2]) - 1]
        layout = segment.layout
        sequences = round(segment.global_batch_tokens / max(segment.sequence_length, 1))
        found.append(
            Unit(
                plan=name,
                name=record["name"],
                folder=folder,
                segment=segment,
                kind=next(task["kind"] for task in plan.case["tasks"] if task["name"] == segment.task),
                world=layout.dp * layout.tp * layout.pp * layout.cp,
                sequences=sequences,
                accumulation=sequences // layout.dp // layout.micro_batch,
                total_steps=total_steps(plan, segment),
                interval_steps=interval_steps(plan, segment),
                keep_last=plan.case["checkpoints"]["keep_last"],
            )
        )
    return found


def python_of(environment: str) -> str:
    """The Python of a launcher's environment, or a skip that says what is missing."""
    python = ENVIRONMENTS / environment / "bin" / "python"
    if not python.exists():
        pytest.skip(
            f"{environment} is not installed under {ENVIRONMENTS}: tests/launcher/setup.sh installs it"
        )
    return str(python)


def probe(environment: str, script: str, *arguments: str) -> Any:
    """What a probe prints, run in a launcher's environment."""
    done = subprocess.run(
        [python_of(environment), str(HERE / "probes" / script), *arguments],
        capture_output=True,
        text=True,
        timeout=PROBE_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


_ANSWERS: dict[tuple[str, str, str], Any] = {}


def ask(environment: str, script: str, questions: list[Any]) -> list[Any]:
    """What a probe answers to each of a list of questions; what was asked before is not asked again."""
    keys = [(environment, script, json.dumps(question, sort_keys=True)) for question in questions]
    new = {key: question for key, question in zip(keys, questions, strict=True) if key not in _ANSWERS}
    if new:
        _ANSWERS.update(zip(new, probe(environment, script, json.dumps(list(new.values()))), strict=True))
    return [_ANSWERS[key] for key in keys]


def array_of(file: Path, array: str, **environment: str) -> list[str]:
    """The words of a bash array that a file defines."""
    script = f'set -u; eval "$(sed -n \'/^{array}=(/,/^)/p\' "$1")"; printf "%s\\0" "${{{array}[@]}}"'
    done = subprocess.run(
        ["bash", "-c", script, "bash", str(file)], capture_output=True, text=True, check=True, env=environment
    )
    return done.stdout.split("\0")[:-1]
