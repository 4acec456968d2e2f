"""The start script alone, for work whose program is the user's own."""

from __future__ import annotations

from trainplan.export.launch import LaunchUnit
from trainplan.export.trainer import Trainer


def _note(unit: LaunchUnit) -> list[str]:
    return [
        f"{unit.name}: no training program is exported for a task of kind {unit.task.kind} with this layout. The "
        "start script runs `TRAINPLAN_COMMAND` with the plan's numbers in `TRAINPLAN_*`."
    ]


CUSTOM = Trainer(
    name="custom",
    title="the user's own program",
    checked="",
    starter=lambda _unit: "custom",
    files=lambda _unit: {},
    command=lambda _unit: [],
    unsuited=lambda _unit: "",
    refusals=lambda _unit: [],
    cannot_express=_note,
)
