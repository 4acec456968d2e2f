"""What each launcher says to every unit of a target, in one form: nothing, or why it does not take it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jsonschema

from trainplan_models.plan import Plan

from . import (
    test_hugging_face,
    test_maxtext,
    test_megatron,
    test_megatron_bridge,
    test_skypilot,
    test_torchtitan,
    test_verl,
)
from .launching import HERE, Unit, ask, probe, read_plan
from .slurm_cluster import Cluster
from .starting import start

Environment = dict[str, str]
Errors = dict[str, str]
"""Why a unit is not taken, by its id; empty where it is."""
Check = Callable[[Sequence[Unit], Environment, Path], Errors]
"""Takes the units of a target, values of the variables that start scripts fill in, and an empty directory."""


def _asked(environment: str, script: str, units: Sequence[Unit], questions: list[Any]) -> Errors:
    answers = ask(environment, script, questions)
    return {unit.id: str(one.get("error", "")) for unit, one in zip(units, answers, strict=True)}


def skypilot(units: Sequence[Unit], _: Environment, folder: Path) -> Errors:
    """Its parser, on a catalogue that has every machine."""
    home = folder / "home"
    home.mkdir()
    files = {unit.id: str(unit.folder / f"{unit.name}.yaml") for unit in units}
    rows = json.dumps(test_skypilot.rows_for(list(units)))
    found = probe("sky", "skypilot_probe.py", str(home), rows, *files.values())
    return {name: str(found[file].get("error", "")) for name, file in files.items()}


def kubernetes(units: Sequence[Unit], _: Environment, __: Path) -> Errors:
    """The schemas and rules of its objects."""
    files = {unit.id: sorted(map(str, unit.folder.rglob(f"{unit.name}.yaml"))) for unit in units}
    given = sorted({file for some in files.values() for file in some})
    errors = probe("k8s", "kubernetes_probe.py", str(HERE / "schemas"), *given)["errors"]
    return {name: "; ".join(str(e) for file in some for e in errors[file]) for name, some in files.items()}


def torchtitan(units: Sequence[Unit], _: Environment, __: Path) -> Errors:
    """Its configuration manager."""
    questions = [test_torchtitan.asked(unit) for unit in units]
    return _asked("trainers", "torchtitan_probe.py", units, questions)


def megatron(units: Sequence[Unit], environment: Environment, _: Path) -> Errors:
    """Megatron-LM's argument parser, and Megatron-Bridge's configuration classes."""
    questions = [test_megatron.arguments(unit, environment) for unit in units]
    first = _asked("trainers", "megatron_probe.py", units, questions)
    questions = [test_megatron_bridge.asked(unit) for unit in units]
    second = _asked("bridge", "bridge_probe.py", units, questions)
    return {name: first[name] or second[name] for name in first}


def _hugging_face(target: str) -> Check:
    def check(units: Sequence[Unit], _: Environment, __: Path) -> Errors:
        asked = [
            (unit, question) for unit in units for _, question in test_hugging_face.questions(unit, target)
        ]
        answers = ask("trainers", "hugging_face_probe.py", [question for _, question in asked])
        errors: Errors = {}
        for (unit, _), one in zip(asked, answers, strict=True):
            errors[unit.id] = errors.get(unit.id, "") or str(one.get("error", ""))
        return errors

    return check


def verl(units: Sequence[Unit], environment: Environment, _: Path) -> Errors:
    """Hydra with its configuration files."""
    questions = [test_verl.asked(unit, environment) for unit in units]
    return _asked("verl", "verl_probe.py", units, questions)


def maxtext(units: Sequence[Unit], environment: Environment, _: Path) -> Errors:
    """Its configuration reader."""
    questions = [test_maxtext.asked(unit, environment) for unit in units]
    return _asked("maxtext", "maxtext_probe.py", units, questions)


def torchrun(units: Sequence[Unit], _: Environment, folder: Path) -> Errors:
    """Its command line, for units that it starts; the others start a program of their own."""
    started = {unit.id: start(unit, unit.folder / f"{unit.name}.sh", folder / unit.id) for unit in units}
    words = {name: one.words for name, one in started.items() if one.program == "torchrun"}
    answers = ask("trainers", "torchrun_probe.py", list(words.values()))
    errors = {name: str(one.get("error", "")) for name, one in zip(words, answers, strict=True)}
    return {unit.id: errors.get(unit.id, "") for unit in units}


def interchange(units: Sequence[Unit], _: Environment, __: Path) -> Errors:
    """The published JSON Schema, and the plan itself."""
    errors = {}
    for unit in units:
        text = (unit.folder / "plan.json").read_text(encoding="utf-8")
        schema = json.loads((unit.folder / "plan.schema.json").read_text(encoding="utf-8"))
        found = [e.message for e in jsonschema.Draft202012Validator(schema).iter_errors(json.loads(text))]
        same = Plan.model_validate_json(text) == read_plan(unit.plan)
        errors[unit.id] = "; ".join(found) if found or same else "the plan is not what it was"
    return errors


def slurm(cluster: Cluster) -> Check:
    """The scheduler of a running cluster."""

    def check(units: Sequence[Unit], _: Environment, __: Path) -> Errors:
        errors = {}
        for unit in units:
            words = ("sbatch", "--partition=paper", "--test-only", f"{unit.name}.sbatch")
            try:
                cluster.run(*words, cwd=unit.folder)
            except subprocess.CalledProcessError as error:
                errors[unit.id] = str(error.stderr).strip()
            else:
                errors[unit.id] = ""
        return errors

    return check


CHECKS: dict[str, Check] = {
    "skypilot": skypilot,
    "kubernetes": kubernetes,
    "torchtitan": torchtitan,
    "megatron": megatron,
    "deepspeed": _hugging_face("deepspeed"),
    "accelerate": _hugging_face("accelerate"),
    "trl": _hugging_face("trl"),
    "verl": verl,
    "maxtext": maxtext,
    "torchrun": torchrun,
    "json": interchange,
}
"""By target; Slurm's needs a running cluster."""
