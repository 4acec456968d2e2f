"""What the targets that rent or schedule nodes share."""

from __future__ import annotations

from trainplan.export.choice import trainer_for, why_custom
from trainplan.export.launch import Launch, LaunchUnit
from trainplan.export.target import render
from trainplan.export.trainer import trainer_placeholders, unit_files

FOLDER = "trainer"
"""Folder of the start scripts and trainer files inside a launcher's export."""


def trainer_files(launch: Launch) -> dict[str, str]:
    """Start scripts and trainer files of all units."""
    found: dict[str, str] = {}
    for unit in launch.units:
        found |= unit_files(unit, trainer_for(unit), FOLDER)
    return found


def trainer_notes(launch: Launch) -> list[str]:
    """What the chosen training programs cannot express."""
    found: list[str] = []
    for unit in launch.units:
        trainer = trainer_for(unit)
        found += trainer.notes(unit)
        if trainer.name == "custom":
            found += why_custom(unit)
    return list(dict.fromkeys(found))


def placeholders(launch: Launch) -> list[str]:
    """Variables of the start scripts."""
    trainers = tuple(trainer_for(unit) for unit in launch.units)
    return trainer_placeholders(launch.units, trainers)


def fallback_files(launch: Launch, commands: dict[str, str]) -> dict[str, str]:
    """``fallback.sh``: says stay or move for every unit that can be preempted, and moves with ``--run``.

    Args:
        launch: the plan's units.
        commands: by unit that can be preempted, the shell lines that stop it and start its successor.
    """
    pairs = [(spot, safe, commands.get(spot.name, "")) for spot, safe in launch.fallbacks()]
    if not pairs:
        return {}
    return {
        "fallback.sh": render(
            "fallback.sh.j2", plan_id=launch.plan_id, day0=launch.day0, pairs=pairs, slow=slow_step_s
        )
    }


def slow_step_s(unit: LaunchUnit) -> float:
    """Calendar seconds of one step with failures and checkpoints."""
    return unit.step_s / unit.segment.goodput_frac if unit.segment.goodput_frac > 0 else unit.step_s


def reservation_notes(launch: Launch) -> list[str]:
    """What has to be bought before the units that use it start."""
    return [
        f"{p.mode} of {p.pool}: {p.count} x {p.nodes} nodes, day {p.start_s / 86400:.2f} to {p.end_s / 86400:.2f}, "
        f"{p.usd:,.2f} USD ({p.upfront_usd:,.2f} USD up front)"
        for p in launch.plan.purchases
    ]
