"""Runs start scripts with stand-ins for the programs they start, and says what these were given."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from .launching import Unit, read_plan

PROGRAMS = ("torchrun", "accelerate", "python3", "ray")
START_S = 60.0
STAND_IN = """#!{python}
import json, os, sys
with open(os.environ["STARTED"], "a") as file:
    json.dump([os.path.basename(sys.argv[0]), sys.argv[1:], dict(os.environ)], file)
    file.write("\\n")
"""


@dataclass(frozen=True, slots=True)
class Started:
    """What a start script started last, which is the training program."""

    program: str
    words: list[str]
    environment: dict[str, str]


def start(unit: Unit, script: Path, folder: Path) -> Started:
    """Run the start script of a unit for node 0 of its nodes.

    Args:
        unit: whose script it is.
        script: the script, beside the files it needs.
        folder: an empty directory of its own.
    """
    programs = folder / "bin"
    programs.mkdir(parents=True)
    for name in PROGRAMS:
        (programs / name).write_text(STAND_IN.format(python=sys.executable), encoding="utf-8")
        (programs / name).chmod(0o755)
    record = folder / "started"
    environment = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "HOME": str(folder),
        "STARTED": str(record),
        "CHECKPOINT_DIR": str(folder / "checkpoints"),
        "MODEL": "/weights",
        "TOKENIZER": "tokenizer",
        "TRAINPLAN_COMMAND": "python3 own.py",
    }
    done = subprocess.run(
        ["bash", str(script)], env=environment, capture_output=True, text=True, timeout=START_S, check=False
    )
    assert done.returncode == 0, f"{unit.id}: {done.stderr[-2000:]}"
    program, words, seen = json.loads(record.read_text(encoding="utf-8").splitlines()[-1])
    return Started(program, words, seen)


def numbers(unit: Unit) -> dict[str, str]:
    """What a start script has to say of its unit, reckoned from the plan alone."""
    layout = unit.segment.layout
    found = {
        "NNODES": sum(part.nodes for part in (unit.segment, *read_plan(unit.plan).beside(unit.segment))),
        "PROCESSES_PER_NODE": unit.world // unit.segment.nodes,
        "DP": layout.dp,
        "TP": layout.tp,
        "PP": layout.pp,
        "VP": layout.vp,
        "CP": layout.cp,
        "EP": layout.ep,
        "ZERO_STAGE": layout.zero_stage,
        "RECOMPUTE": layout.recompute,
        "PRECISION": layout.precision,
        "MICRO_BATCH": layout.micro_batch,
        "GLOBAL_BATCH": unit.sequences,
        **({"ACCUMULATION": unit.accumulation} if unit.sequences else {}),
        "SEQUENCE_LENGTH": unit.segment.sequence_length,
        "TOTAL_STEPS": unit.total_steps,
        "CHECKPOINT_STEPS": unit.interval_steps,
        "KEEP_LAST": unit.keep_last,
        "CHECKPOINT_TARGET": unit.segment.checkpoint.target,
    }
    return {f"TRAINPLAN_{name}": str(value) for name, value in found.items()}
