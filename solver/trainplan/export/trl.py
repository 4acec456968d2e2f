"""TRL and the Hugging Face Trainer: arguments of ``trl sft``, ``dpo`` and ``reward``, started by Accelerate."""

from __future__ import annotations

from typing import Any

from trainplan.export import accelerate
from trainplan.export.launch import LaunchUnit
from trainplan.export.target import dump_yaml, header_of
from trainplan.export.trainer import Trainer, exporter_of

_PROGRAMS = {"sft": "sft", "preference": "dpo", "reward-model": "reward"}
_OPTIMIZERS = {
    "adamw": "adamw_torch_fused",
    "adamw-fp32": "adamw_torch_fused",
    "adamw-bf16": "adamw_torch_fused",
    "adamw-offload": "adamw_torch_fused",
    "adamw-8bit": "adamw_bnb_8bit",
    "sgd": "sgd",
}
_WEIGHTS_16_BIT = ("adamw-bf16", "adamw-8bit")
_PRECISION = {"bf16": {"bf16": True}, "fp8": {"bf16": True}, "fp16": {"fp16": True}, "fp32": {}}


def arguments(unit: LaunchUnit) -> dict[str, Any]:
    """The content of ``trl PROGRAM --config``; model, data and output folder come from the start script."""
    layout = unit.segment.layout
    found: dict[str, Any] = {
        "per_device_train_batch_size": layout.micro_batch,
        "gradient_accumulation_steps": unit.accumulation,
        "max_length": unit.segment.sequence_length,
        "max_steps": unit.total_steps,
        "optim": _OPTIMIZERS[unit.task.optimizer],
        **_PRECISION[layout.precision],
        "dtype": "bfloat16" if unit.task.optimizer in _WEIGHTS_16_BIT or unit.task.lora_rank else "float32",
        "gradient_checkpointing": layout.recompute == "full" and accelerate.distributed_type(unit) != "FSDP",
        "save_strategy": "steps",
        "save_steps": unit.interval_steps,
        "save_total_limit": unit.keep_last,
        "logging_steps": 10,
        "run_name": unit.name,
    }
    if unit.task.kind == "sft":
        found["packing"] = True
    if unit.task.lora_rank:
        found |= {"use_peft": True, "lora_r": unit.task.lora_rank, "lora_alpha": 2 * unit.task.lora_rank}
        found["lora_target_modules"] = "all-linear"
    if unit.task.quantized_base:
        found["load_in_4bit"] = True
    return found


def _files(unit: LaunchUnit) -> dict[str, str]:
    text = dump_yaml(
        arguments(unit), header=header_of(unit) + "\nmodel, data and output folder come from the start script"
    )
    return accelerate.files(unit) | {f"{unit.name}.trl.yaml": text}


def _command(unit: LaunchUnit) -> list[str]:
    return [
        "-m", f"trl.scripts.{_PROGRAMS[unit.task.kind]}", "--config", f"{unit.name}.trl.yaml",
        "--model_name_or_path", "$MODEL", "--dataset_name", "$DATA", "--output_dir", "$CHECKPOINT_DIR",
        "--learning_rate", "$LEARNING_RATE",
        "${resume[@]}",
    ]  # fmt: skip


def _unsuited(unit: LaunchUnit) -> str:
    known = ", ".join(_PROGRAMS)
    return "" if unit.task.kind in _PROGRAMS else f"TRL is exported for {known}, not for {unit.task.kind}"


def _refusals(unit: LaunchUnit) -> list[str]:
    found = accelerate.refusals(unit)
    if unit.task.optimizer not in _OPTIMIZERS:
        found.append(
            f"the Hugging Face Trainer is exported with {', '.join(_OPTIMIZERS)}, not {unit.task.optimizer}"
        )
    if unit.task.optimizer == "adamw-offload" and accelerate.distributed_type(unit) != "DEEPSPEED":
        found.append("an optimizer on the host is exported for DeepSpeed only (`framework: deepspeed`)")
    if (
        unit.task.quantized_base
        and accelerate.distributed_type(unit) == "DEEPSPEED"
        and unit.segment.layout.zero_stage == 3
    ):
        found.append(
            "4-bit weights are not sharded by DeepSpeed ZeRO stage 3 here; use FSDP2 or ZeRO stage 1"
        )
    return found


def _cannot_express(unit: LaunchUnit) -> list[str]:
    found = [
        f"{unit.name}: no global batch key; {unit.batch_sequences} is micro-batch times accumulation times ranks."
    ]
    if unit.milestone_steps:
        found.append(
            f"{unit.name}: no milestones; copy every {unit.milestone_steps}th `checkpoint-N` away yourself."
        )
    if unit.task.rounds > 1:
        found.append(
            f"{unit.task.name}: {unit.task.rounds} rounds of {unit.round_steps} steps are one run of "
            f"{unit.total_steps}; to change the data between rounds start each with its own `--max_steps` and "
            "`--dataset_name`."
        )
    return found


TRL = Trainer(
    name="trl",
    title="TRL / Hugging Face Trainer",
    checked="trl 1.16.0 with transformers 5.24.0",
    starter=lambda _unit: "accelerate",
    files=_files,
    command=_command,
    unsuited=_unsuited,
    refusals=_refusals,
    cannot_express=_cannot_express,
)
EXPORTER = exporter_of(TRL)
