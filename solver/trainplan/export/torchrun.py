"""torchrun: the start scripts alone, for nodes that are already there."""

from __future__ import annotations

from trainplan.export import launcher
from trainplan.export.choice import trainer_for
from trainplan.export.devices import is_tpu
from trainplan.export.launch import Launch, LaunchUnit
from trainplan.export.target import Exporter
from trainplan.export.trainer import hand_commands, launcher_note, unit_files


def _files(launch: Launch) -> dict[str, str]:
    found: dict[str, str] = {}
    for unit in launch.units:
        found |= unit_files(unit, trainer_for(unit))
    commands = {
        spot.name: f"echo 'stop {spot.name} and start {safe.name}.sh on every node'"
        for spot, safe in launch.fallbacks()
    }
    return found | launcher.fallback_files(launch, commands)


def _refusals(unit: LaunchUnit) -> list[str]:
    if is_tpu(unit.segment.accelerator):
        return [
            f"torchrun starts one process per GPU, not {unit.segment.accelerator}; use maxtext or skypilot"
        ]
    return []


EXPORTER = Exporter(
    name="torchrun",
    title="torchrun command lines",
    checked="torch 2.13.0",
    files=_files,
    commands=lambda launch: hand_commands(launch.units),
    refusals=_refusals,
    cannot_express=lambda launch: [launcher_note(launch.units), *launcher.trainer_notes(launch)],
    placeholders=launcher.placeholders,
)
