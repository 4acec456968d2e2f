"""From a plan to files that launchers take.

``export(plan, target)`` gives a folder as a mapping of relative path to text; it reads and writes nothing. A target is
one module of this package with its templates, listed in ``EXPORTERS``.
"""

from __future__ import annotations

from typing import Any

from trainplan.export import (
    accelerate,
    deepspeed,
    interchange,
    kubernetes,
    maxtext,
    megatron,
    skypilot,
    slurm,
    torchrun,
    torchtitan,
    trl,
    verl,
)
from trainplan.export.launch import Launch, LaunchUnit, launch
from trainplan.export.launcher import reservation_notes
from trainplan.export.target import Exporter, dump_json, render
from trainplan_models.base import InputError, Problem
from trainplan_models.plan import Plan

__all__ = ["EXPORTERS", "Exporter", "Launch", "LaunchUnit", "export", "launch"]

ORDER_VERSION = 1

EXPORTERS: dict[str, Exporter] = {
    module.EXPORTER.name: module.EXPORTER
    for module in (
        skypilot,
        slurm,
        kubernetes,
        torchtitan,
        megatron,
        deepspeed,
        accelerate,
        trl,
        verl,
        maxtext,
        torchrun,
        interchange,
    )
}


def export(plan: Plan, target: str) -> dict[str, str]:
    """The files of ``plan`` for ``target``: relative path to text, with ``README.md`` and ``order.json``.

    Raises:
        InputError: the target is not known, the plan has nothing for it, or it cannot run a layout as planned.
    """
    exporter = _exporter(target)
    prepared = launch(plan)
    suited = tuple(unit for unit in prepared.units if not exporter.unsuited(unit))
    if not suited:
        reasons = [Problem(exporter.unsuited(unit), key=unit.name) for unit in prepared.units]
        able = f"Targets that take it: {', '.join(_able(prepared))}"
        raise InputError(
            [Problem(f"the plan has no task for {exporter.title}", key="--to", fix=able), *reasons]
        )
    problems = [Problem(reason, key=unit.name) for unit in suited for reason in exporter.problems(unit)]
    if problems:
        message = f"{exporter.title} cannot run this plan"
        able = f"Targets that can: {', '.join(_able(prepared))}"
        raise InputError([Problem(message, key="--to", fix=able), *problems])
    files = exporter.files(prepared)
    files["order.json"] = dump_json(_order(exporter, prepared, suited, files))
    files["README.md"] = _readme(exporter, prepared, suited, files)
    return dict(sorted(files.items()))


def _exporter(target: str) -> Exporter:
    if target in EXPORTERS:
        return EXPORTERS[target]
    import difflib

    close = difflib.get_close_matches(target, EXPORTERS, n=1)
    hint = f"Did you mean {close[0]}? " if close else ""
    raise InputError(
        Problem(f"no export target {target!r}", key="--to", fix=f"{hint}Known: {', '.join(EXPORTERS)}")
    )


def _able(prepared: Launch) -> list[str]:
    """Targets that take every unit of the plan."""
    return [
        name
        for name, exporter in EXPORTERS.items()
        if not any(exporter.unsuited(unit) or exporter.problems(unit) for unit in prepared.units)
    ]


def _order(
    exporter: Exporter, prepared: Launch, suited: tuple[LaunchUnit, ...], files: dict[str, str]
) -> dict[str, Any]:
    return {
        "schema_version": ORDER_VERSION,
        "plan_id": prepared.plan_id,
        "plan": prepared.plan.name,
        "trainplan_version": prepared.plan.trainplan_version,
        "target": exporter.name,
        "checked_with": exporter.checked,
        "start": prepared.plan.start,
        "labels": dict(prepared.plan.labels),
        "units": [_unit_record(unit, files) for unit in suited],
        "left_out": {unit.name: exporter.unsuited(unit) for unit in prepared.units if unit not in suited},
        "files": sorted({*files, "README.md", "order.json"}),
        "purchases": [purchase.model_dump(mode="json") for purchase in prepared.plan.purchases],
    }


def _unit_record(unit: LaunchUnit, files: dict[str, str]) -> dict[str, Any]:
    segment = unit.segment
    return {
        "name": unit.name,
        "task": unit.task.name,
        "after": list(unit.after),
        "takes_over_from": unit.predecessor,
        "start_s": segment.start_s,
        "end_s": segment.end_s,
        "pool": segment.pool,
        "cloud": segment.cloud,
        "region": segment.region,
        "instance_type": segment.instance_type,
        "mode": segment.mode,
        "preemptible": unit.preemptible,
        "nodes": segment.nodes,
        "spare_nodes": segment.spare_nodes,
        "accelerators_per_node": segment.accelerators_per_node,
        "layout": segment.layout.model_dump(mode="json"),
        "sequence_length": segment.sequence_length,
        "global_batch_sequences": unit.batch_sequences,
        "first_step": unit.first_step,
        "last_step": unit.last_step,
        "total_steps": unit.total_steps,
        "checkpoint": {
            "interval_s": segment.checkpoint.interval_s,
            "interval_steps": unit.interval_steps,
            "keep_last": unit.keep_last,
            "milestone_steps": unit.milestone_steps,
            "target": segment.checkpoint.target,
        },
        "labels": dict(unit.labels),
        **({"beside": [one.model_dump(mode="json") for one in unit.beside]} if unit.beside else {}),
        "files": sorted(path for path in files if unit.name in path or unit.name.replace("-", "_") in path),
    }


def _readme(
    exporter: Exporter, prepared: Launch, suited: tuple[LaunchUnit, ...], files: dict[str, str]
) -> str:
    left_out = {unit.name: exporter.unsuited(unit) for unit in prepared.units if unit not in suited}
    fallbacks = [pair for pair in prepared.fallbacks() if pair[0] in suited] if "fallback.sh" in files else []
    return render(
        "README.md.j2",
        exporter=exporter,
        launch=prepared,
        units=suited,
        left_out=left_out,
        commands=exporter.commands(prepared),
        cannot_express=list(dict.fromkeys(exporter.cannot_express(prepared))),
        placeholders=list(dict.fromkeys(exporter.placeholders(prepared))),
        purchases=reservation_notes(prepared),
        fallbacks=fallbacks,
    )
