"""Slurm: one batch script per unit, a chain of dependencies, spare nodes inside the allocation."""

from __future__ import annotations

import math

from trainplan.export import launcher
from trainplan.export.choice import trainer_for
from trainplan.export.devices import device, gres_type, is_tpu
from trainplan.export.launch import Launch, LaunchUnit, slug
from trainplan.export.target import Command, Exporter, header_of, mentioned, render

SIGNAL_S = 300
"""Least warning before the time limit, so that a running checkpoint can end."""


def partition(unit: LaunchUnit) -> str:
    """The partition a unit is sent to unless ``TRAINPLAN_PARTITION`` says otherwise: one per pool and mode."""
    return slug(f"{unit.segment.pool.replace('/', '-')}-{unit.segment.mode}", 60)


def time_limit(unit: LaunchUnit) -> str:
    """The window of the unit as ``days-hours:minutes:00``; the last unit of a task gets a tenth more."""
    seconds = unit.window_s if unit.successor else math.ceil(unit.window_s * 1.1)
    minutes = max(1, math.ceil(seconds / 60))
    return f"{minutes // 1440}-{minutes // 60 % 24:02d}:{minutes % 60:02d}:00"


def signal_s(unit: LaunchUnit) -> int:
    """Seconds before the time limit at which the script is warned."""
    checkpoint = unit.segment.checkpoint
    need = math.ceil(checkpoint.blocking_s + checkpoint.persist_s + unit.step_s)
    return min(max(SIGNAL_S, need), max(60, unit.window_s // 2))


def _files(launch: Launch) -> dict[str, str]:
    found = {
        f"{unit.name}.sbatch": render(
            "slurm.sbatch.j2",
            header=header_of(unit),
            unit=unit,
            partition=partition(unit),
            time_limit=time_limit(unit),
            signal_s=signal_s(unit),
            nodes=unit.segment.nodes + unit.segment.spare_nodes,
            gres=device(unit.segment.accelerator).slurm_gres,
            gres_type=gres_type(unit.segment.accelerator),
            trainer=trainer_for(unit),
            comment=";".join(f"{key}={value}" for key, value in unit.labels),
        )
        for unit in launch.units
    }
    found["submit.sh"] = render("slurm_submit.sh.j2", launch=launch)
    commands = {
        spot.name: f'scancel --name={spot.name} --user="$(id -un)"  # {safe.name} waits for it to end'
        for spot, safe in launch.fallbacks()
    }
    return found | launcher.fallback_files(launch, commands) | launcher.trainer_files(launch)


def _cannot_express(launch: Launch) -> list[str]:
    rented = [unit for unit in launch.units if not unit.owned]
    found = []
    if rented:
        places = mentioned(
            f"{u.segment.pool} ({u.segment.mode}) as partition `{partition(u)}`" for u in rented
        )
        found.append(
            f"Region, instance type and billing mode: a Slurm job asks for a partition. Map {places}, or set "
            "`TRAINPLAN_PARTITION` when submitting."
        )
    if any(unit.segment.mode == "spot" for unit in launch.units):
        found.append(
            "Slurm buys no spot capacity: the spot partition must be of preemptible nodes; a preempted job is "
            "requeued and goes on from its last checkpoint."
        )
    return found + launcher.trainer_notes(launch)


def _placeholders(launch: Launch) -> list[str]:
    found = [
        "`TRAINPLAN_PARTITION`, or partitions of the names above.",
        "`SBATCH_ACCOUNT`, `SBATCH_QOS`, `SBATCH_CONSTRAINT`: read by sbatch itself where the site wants them.",
        "The GPU type after `--gpus-per-node` is the plan's accelerator in lower case; use the site's name for it.",
    ]
    if any(unit.purchase for unit in launch.units):
        found.append(
            "`SBATCH_RESERVATION`: the reservation made from the purchase, for the units that name one."
        )
    return found + launcher.placeholders(launch)


def _commands(launch: Launch) -> list[Command]:
    found = [
        Command(
            "check every script against the cluster, without running anything", "./submit.sh --test-only"
        ),
        Command("submit all units in order, each after the ones it waits for", "./submit.sh"),
    ]
    found += [
        Command(
            f"ask whether to leave {spot.name} for {safe.name} now (exit code 10: yes)",
            f"./fallback.sh {spot.name}",
        )
        for spot, safe in launch.fallbacks()
    ]
    return found


EXPORTER = Exporter(
    name="slurm",
    title="Slurm",
    checked="slurm 22.05.8",
    files=_files,
    commands=_commands,
    refusals=lambda unit: (
        [f"Slurm does not make slices of {unit.segment.accelerator}; use skypilot or kubernetes"]
        if is_tpu(unit.segment.accelerator)
        else []
    ),
    cannot_express=_cannot_express,
    placeholders=_placeholders,
)
