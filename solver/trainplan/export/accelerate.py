"""Hugging Face Accelerate: DDP, FSDP2 or DeepSpeed, from the sharding the plan chose."""

from __future__ import annotations

from typing import Any

from trainplan.export import deepspeed
from trainplan.export.devices import runs_on
from trainplan.export.launch import LaunchUnit
from trainplan.export.target import NO_TRAINER, dump_json, dump_yaml, header_of
from trainplan.export.trainer import Trainer, exporter_of

_PRECISION = {"fp32": "no", "bf16": "bf16", "fp16": "fp16", "fp8": "fp8"}


def distributed_type(unit: LaunchUnit) -> str:
    """``DEEPSPEED`` where the plan says so or only it shards that way, ``FSDP``, or ``MULTI_GPU``."""
    layout = unit.segment.layout
    if unit.task.framework == "deepspeed" or layout.zero_stage == 1:
        return "DEEPSPEED"
    return "FSDP" if layout.zero_stage >= 2 else "MULTI_GPU"


def config(unit: LaunchUnit) -> dict[str, Any]:
    """The content of ``accelerate launch --config_file``."""
    segment = unit.segment
    kind = distributed_type(unit)
    found: dict[str, Any] = {
        "compute_environment": "LOCAL_MACHINE",
        "distributed_type": kind,
        "num_machines": segment.nodes,
        "num_processes": segment.layout.accelerators,
        "machine_rank": 0,
        "main_process_ip": "127.0.0.1",
        "main_process_port": 29500,
        "main_training_function": "main",
        "rdzv_backend": "static",
        "same_network": True,
        "use_cpu": False,
        "debug": False,
    }
    if kind == "DEEPSPEED":
        found["deepspeed_config"] = {
            "deepspeed_config_file": f"{unit.name}.deepspeed.json",
            "deepspeed_multinode_launcher": "standard",
            "zero3_init_flag": segment.layout.zero_stage == 3,
        }
    else:
        found["mixed_precision"] = _PRECISION[segment.layout.precision]
    if kind == "FSDP":
        found["fsdp_config"] = _fsdp(unit)
        found["parallelism_config"] = _parallelism(unit)
    return found


def _fsdp(unit: LaunchUnit) -> dict[str, Any]:
    layout = unit.segment.layout
    return {
        "fsdp_version": 2,
        "fsdp_reshard_after_forward": layout.zero_stage == 3,
        "fsdp_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "fsdp_state_dict_type": "SHARDED_STATE_DICT",
        "fsdp_cpu_ram_efficient_loading": True,
        "fsdp_offload_params": False,
        "fsdp_activation_checkpointing": layout.recompute == "full",
    }


def _parallelism(unit: LaunchUnit) -> dict[str, Any]:
    layout = unit.segment.layout
    return {
        "parallelism_config_dp_replicate_size": layout.dp // unit.shard_degree,
        "parallelism_config_dp_shard_size": unit.shard_degree,
        "parallelism_config_tp_size": layout.tp,
        "parallelism_config_cp_size": layout.cp,
    }


def refusals(unit: LaunchUnit) -> list[str]:
    """Why Accelerate cannot run the unit's layout."""
    layout = unit.segment.layout
    kind = distributed_type(unit)
    found = []
    if not runs_on(unit.segment.accelerator, "nvidia", "amd", "intel"):
        found.append(f"this configuration is for GPUs, not for {unit.segment.accelerator}")
    beyond = {"pipeline": layout.pp, "expert": layout.ep}
    found += [
        f"Accelerate has no {name} parallelism (the plan has {d})" for name, d in beyond.items() if d > 1
    ]
    if kind != "FSDP" and layout.cp > 1:
        found.append(
            f"Accelerate has context parallelism with FSDP2 only, not with ZeRO stage {layout.zero_stage}"
        )
    if kind == "MULTI_GPU" and layout.tp > 1:
        found.append("Accelerate has tensor parallelism with FSDP2 or DeepSpeed only")
    if kind == "DEEPSPEED":
        found += deepspeed.refusals(unit)
    if layout.precision not in _PRECISION:
        found.append(f"Accelerate does not train in {layout.precision}")
    if layout.recompute == "selective":
        found.append("Accelerate recomputes whole blocks or nothing; the plan has selective recompute")
    return found


def files(unit: LaunchUnit) -> dict[str, str]:
    """The configuration file, and DeepSpeed's where it is used."""
    found = {f"{unit.name}.accelerate.yaml": dump_yaml(config(unit), header=header_of(unit))}
    if distributed_type(unit) == "DEEPSPEED":
        found[f"{unit.name}.deepspeed.json"] = dump_json(deepspeed.config(unit))
    return found


def _cannot_express(unit: LaunchUnit) -> list[str]:
    return [
        f"{unit.name}: Accelerate has no batch, steps, checkpoint interval or number kept; the program reads them from "
        f"`TRAINPLAN_MICRO_BATCH` ({unit.segment.layout.micro_batch}), `TRAINPLAN_ACCUMULATION` ({unit.accumulation}), "
        f"`TRAINPLAN_TOTAL_STEPS` ({unit.total_steps}), `TRAINPLAN_CHECKPOINT_STEPS` ({unit.interval_steps}) and "
        f"`TRAINPLAN_KEEP_LAST` ({unit.keep_last}). The target trl writes them for post-training."
    ]


ACCELERATE = Trainer(
    name="accelerate",
    title="Accelerate with FSDP2, DDP or DeepSpeed",
    checked="accelerate 1.15.0",
    starter=lambda _unit: "accelerate",
    files=files,
    command=lambda _unit: ["${TRAIN_SCRIPT:-train.py}"],
    unsuited=lambda unit: (
        f"a task of kind {unit.task.kind} trains nothing"
        if unit.task.kind in NO_TRAINER
        else "reinforcement learning is for verl"
        if unit.task.kind == "rl"
        else ""
    ),
    refusals=refusals,
    cannot_express=_cannot_express,
)
EXPORTER = exporter_of(ACCELERATE)
