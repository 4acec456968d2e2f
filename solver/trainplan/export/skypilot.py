"""SkyPilot: one task file per unit, and a managed-job pipeline per chain of units."""

from __future__ import annotations

import csv
import re
from functools import lru_cache
from importlib.resources import files
from typing import Any

from trainplan.export import launcher
from trainplan.export.choice import trainer_for
from trainplan.export.devices import is_tpu
from trainplan.export.launch import Launch, LaunchUnit, slug
from trainplan.export.target import Command, Exporter, dump_yaml, header_of, render

CHECKPOINTS = "/checkpoints"


@lru_cache(maxsize=1)
def _stores() -> dict[str, str]:
    """Clouds SkyPilot 0.14 rents from, with the object store it mounts there (empty: none)."""
    text = files("trainplan.export").joinpath("skypilot_clouds.csv").read_text(encoding="utf-8")
    return {row["cloud"]: row["store"] for row in csv.DictReader(text.splitlines())}


def is_object_store(unit: LaunchUnit) -> bool:
    """Whether the checkpoint target is an object store that SkyPilot can mount."""
    from trainplan_models import catalog

    kinds = {tier.name: tier.kind for tier in catalog.builtin().tiers}
    return bool(_stores().get(unit.segment.cloud)) and kinds.get(unit.segment.checkpoint.target) == "object"


def slice_name(unit: LaunchUnit) -> str:
    """The TPU slice of all nodes of a unit: ``tpu-v5p-8`` on 16 nodes is ``tpu-v5p-128``."""
    match = re.fullmatch(r"(.*-)(\d+)", unit.segment.instance_type)
    if match is None:
        return unit.segment.accelerator
    return f"{match[1]}{int(match[2]) * unit.segment.nodes}"


def resources(unit: LaunchUnit, successor: LaunchUnit | None = None) -> dict[str, Any]:
    """The ``resources`` of a unit; with the unit that takes over when capacity cannot be had."""
    found = _place(unit)
    shared: dict[str, Any] = {"labels": {slug(key, 60): slug(value, 60) for key, value in unit.labels}}
    if not is_tpu(unit.segment.accelerator):
        shared["disk_size"] = 512
    if unit.preemptible:
        shared["job_recovery"] = {"strategy": "EAGER_NEXT_REGION" if successor is None else "FAILOVER"}
    if successor is None or _place(successor) == found:
        return found | shared
    return {"ordered": [found, _place(successor)]} | shared


def _place(unit: LaunchUnit) -> dict[str, Any]:
    segment = unit.segment
    if unit.owned:
        count = unit.segment.accelerators_per_node
        return {
            "infra": f"slurm/{slug(segment.pool)}",
            "accelerators": f"{_generic(segment.accelerator)}:{count}",
        }
    found: dict[str, Any] = {"infra": f"{segment.cloud}/{segment.region}"}
    if is_tpu(segment.accelerator):
        found["accelerators"] = slice_name(unit)
    else:
        found["instance_type"] = segment.instance_type
    found["use_spot"] = segment.mode == "spot"
    return found


def _generic(accelerator: str) -> str:
    return accelerator.upper().split("-")[0]


def task(launch: Launch, unit: LaunchUnit) -> dict[str, Any]:
    """The task document of a unit."""
    safe = launch.unit(unit.successor) if unit.successor and unit.preemptible else None
    if safe is not None and (safe.preemptible or safe.segment.nodes != unit.segment.nodes):
        safe = None
    environment = {"CHECKPOINT_DIR": f"{CHECKPOINTS}/{unit.task.name}", "DATA": "/data"}
    if launch.day0 is not None:
        environment["TRAINPLAN_DAY0"] = str(launch.day0)
    found: dict[str, Any] = {
        "name": unit.name,
        "num_nodes": 1 if is_tpu(unit.segment.accelerator) else unit.segment.nodes,
        "resources": resources(unit, safe),
        "workdir": ".",
        "envs": environment | _secrets(unit),
    }
    if is_object_store(unit):
        bucket = {"name": f"{launch.plan_id}-checkpoints", "store": _stores()[unit.segment.cloud]}
        found["file_mounts"] = {CHECKPOINTS: bucket | {"mode": "MOUNT_CACHED", "persistent": True}}
    found["setup"] = (
        "# Install the training software here, or start from an image that has it (resources.image_id).\ntrue\n"
    )
    found["run"] = render("skypilot_run.sh.j2", unit=unit, trainer=trainer_for(unit))
    return found


def _secrets(unit: LaunchUnit) -> dict[str, str]:
    return {name: "" for name in (("TOKENIZER",) if trainer_for(unit).name == "megatron" else ())}


def chains(launch: Launch) -> dict[str, list[LaunchUnit]]:
    """Pipelines of more than one unit, by name: units that wait for at most one other and follow it at once."""
    follower = {unit.after[0]: unit for unit in launch.units if len(unit.after) == 1}
    started = {unit.name for unit in follower.values()}
    found = {}
    for unit in launch.units:
        if unit.name in started:
            continue
        chain = [unit]
        while chain[-1].name in follower:
            chain.append(follower[chain[-1].name])
        if len(chain) > 1:
            found[f"pipeline-{unit.name}"] = chain
    return found


def _files(launch: Launch) -> dict[str, str]:
    tasks = {unit.name: task(launch, unit) for unit in launch.units}
    found = {
        f"{unit.name}.yaml": dump_yaml(tasks[unit.name], header=header_of(unit)) for unit in launch.units
    }
    for name, chain in chains(launch).items():
        documents = [
            {"name": f"{launch.plan_id}-{slug(chain[0].task.name, 20)}"},
            *(tasks[unit.name] for unit in chain),
        ]
        found[f"{name}.yaml"] = dump_yaml(
            *documents, header=f"plan {launch.plan_id}: units one after the other"
        )
    reserved = [
        unit for unit in launch.units if unit.purchase is not None and unit.segment.cloud in ("aws", "gcp")
    ]
    if reserved:
        clouds = {unit.segment.cloud for unit in reserved}
        config = {
            cloud: {"specific_reservations": [_reservation(cloud)], "prioritize_reservations": True}
            for cloud in sorted(clouds)
        }
        found["sky-config.yaml"] = dump_yaml(
            config, header="Replace the reservation by the one that was bought."
        )
    commands = {
        spot.name: f"sky jobs cancel --yes --name {spot.name}\nsky jobs launch --yes {safe.name}.yaml"
        for spot, safe in launch.fallbacks()
    }
    return found | launcher.fallback_files(launch, commands) | launcher.trainer_files(launch)


def _reservation(cloud: str) -> str:
    return {"aws": "cr-REPLACE_ME"}.get(cloud, "projects/REPLACE_ME/reservations/REPLACE_ME")


def _commands(launch: Launch) -> list[Command]:
    config = (
        " --config sky-config.yaml"
        if any(u.purchase and u.segment.cloud in ("aws", "gcp") for u in launch.units)
        else ""
    )
    piped = chains(launch)
    inside = {unit.name for chain in piped.values() for unit in chain}
    found = []
    for name, chain in piped.items():
        names = " then ".join(unit.name for unit in chain)
        found.append(Command(f"{names}, as one managed pipeline", f"sky jobs launch{config} {name}.yaml"))
    for unit in launch.units:
        if unit.name not in inside:
            after = f", after {', '.join(unit.after)}" if unit.after else ""
            found.append(Command(f"{unit.name}{after}", f"sky jobs launch{config} {unit.name}.yaml"))
    for spot, safe in launch.fallbacks():
        found.append(
            Command(
                f"whether to leave {spot.name} for {safe.name} now (exit code 10: yes)",
                f"./fallback.sh {spot.name}",
            )
        )
    return found


def _refusals(unit: LaunchUnit) -> list[str]:
    if unit.owned or unit.segment.cloud in _stores():
        return []
    return [f"SkyPilot does not rent from {unit.segment.cloud}; it does from: {', '.join(sorted(_stores()))}"]


def _cannot_express(launch: Launch) -> list[str]:
    found = []
    for unit in launch.units:
        if unit.segment.spare_nodes:
            found.append(
                f"{unit.name}: {unit.segment.spare_nodes} spare nodes; SkyPilot replaces a node when it fails instead."
            )
        if unit.segment.checkpoint.target and not is_object_store(unit):
            found.append(
                f"{unit.name}: {unit.segment.checkpoint.target} is not mounted by SkyPilot; mount it at {CHECKPOINTS}."
            )
        if is_tpu(unit.segment.accelerator):
            found.append(
                f"{unit.name}: {unit.segment.nodes} hosts are one TPU slice, {slice_name(unit)}, so `num_nodes` is 1."
            )
        if unit.segment.mode not in ("on-demand", "spot", "owned", "grant"):
            found.append(
                f"{unit.name}: {unit.segment.mode} is bought outside SkyPilot; `sky-config.yaml` names the reservation."
            )
        if unit.segment.start_s > 0 and not unit.after:
            found.append(
                f"{unit.name}: starts on day {unit.segment.start_s / 86400:.2f}; SkyPilot has no start time."
            )
    return found + launcher.trainer_notes(launch)


def _placeholders(launch: Launch) -> list[str]:
    found = ["`setup` in each task: installing the training software."]
    if any(unit.owned for unit in launch.units):
        found.append(
            "`infra: slurm/CLUSTER`: the name the owned cluster has in `~/.slurm/config` (or `k8s/CONTEXT`)."
        )
    if any(unit.purchase for unit in launch.units):
        found.append("`sky-config.yaml`: the id of the reservation or capacity block.")
    return found + launcher.placeholders(launch)


EXPORTER = Exporter(
    name="skypilot",
    title="SkyPilot",
    checked="skypilot 0.14.1",
    files=_files,
    commands=_commands,
    refusals=_refusals,
    cannot_express=_cannot_express,
    placeholders=_placeholders,
)
