"""DeepSpeed: one JSON configuration per unit."""

from __future__ import annotations

from typing import Any

from trainplan.export.devices import runs_on
from trainplan.export.launch import LaunchUnit
from trainplan.export.target import NO_TRAINER, dump_json
from trainplan.export.trainer import Trainer, exporter_of

_PRECISION: dict[str, dict[str, Any]] = {
    "fp32": {},
    "bf16": {"bf16": {"enabled": True}},
    "fp16": {"fp16": {"enabled": True}},
    "fp8": {"bf16": {"enabled": True}},
    "fp4": {"bf16": {"enabled": True}},
}


def config(unit: LaunchUnit) -> dict[str, Any]:
    """The DeepSpeed configuration of a unit."""
    layout = unit.segment.layout
    found: dict[str, Any] = {
        "train_batch_size": unit.batch_sequences,
        "train_micro_batch_size_per_gpu": layout.micro_batch,
        "gradient_accumulation_steps": unit.accumulation,
        "gradient_clipping": 1.0,
        **_PRECISION[layout.precision],
        "zero_optimization": _zero(unit),
    }
    if layout.tp > 1:
        found["tensor_parallel"] = {"autotp_size": layout.tp}
    if layout.recompute == "full":
        found["activation_checkpointing"] = {"partition_activations": layout.tp > 1}
    found["steps_per_print"] = 100
    return found


def _zero(unit: LaunchUnit) -> dict[str, Any]:
    layout = unit.segment.layout
    found: dict[str, Any] = {"stage": layout.zero_stage}
    if layout.zero_stage >= 1:
        found |= {"overlap_comm": True, "contiguous_gradients": True}
    if unit.task.optimizer == "adamw-offload":
        found["offload_optimizer"] = {"device": "cpu", "pin_memory": True}
    if layout.shard_group and layout.shard_group < layout.dp:
        found["zero_hpz_partition_size"] = layout.shard_group
    if layout.zero_stage == 3:
        found["stage3_gather_16bit_weights_on_model_save"] = True
    return found


def refusals(unit: LaunchUnit) -> list[str]:
    """Why DeepSpeed cannot run the unit's layout."""
    layout = unit.segment.layout
    found = []
    if not runs_on(unit.segment.accelerator, "nvidia", "amd", "intel"):
        found.append(f"DeepSpeed does not run on {unit.segment.accelerator}")
    if layout.pp > 1 and layout.zero_stage > 1:
        found.append(f"DeepSpeed has no ZeRO stage {layout.zero_stage} with a pipeline; stages 0 and 1 only")
    if layout.vp > 1:
        found.append("DeepSpeed has no interleaved pipeline (virtual stages)")
    if layout.zero_stage == 3 and layout.tp > 1:
        found.append("DeepSpeed AutoTP works with ZeRO stages 0 to 2")
    if layout.shard_group and layout.shard_group < layout.dp and layout.zero_stage < 3:
        found.append("DeepSpeed shards over part of the data parallel group (hpZ) in ZeRO stage 3 only")
    return found


def _cannot_express(unit: LaunchUnit) -> list[str]:
    layout = unit.segment.layout
    found = [
        f"{unit.name}: a DeepSpeed configuration has no checkpoint interval, number kept, or number of steps; the "
        f"program reads them from `TRAINPLAN_CHECKPOINT_STEPS` ({unit.interval_steps}), `TRAINPLAN_KEEP_LAST` "
        f"({unit.keep_last}) and `TRAINPLAN_TOTAL_STEPS` ({unit.total_steps})."
    ]
    degrees = {"pipeline": layout.pp, "context": layout.cp, "expert": layout.ep}
    coded = ", ".join(f"{name} {degree}" for name, degree in degrees.items() if degree > 1)
    if coded:
        found.append(
            f"{unit.name}: {coded} parallel are set in the program (TRAINPLAN_PP, TRAINPLAN_CP, TRAINPLAN_EP)."
        )
    if unit.task.optimizer not in ("adamw", "adamw-offload"):
        found.append(
            f"{unit.name}: the optimizer {unit.task.optimizer} is made by the program (TRAINPLAN_OPTIMIZER)."
        )
    if layout.precision in ("fp8", "fp4"):
        found.append(
            f"{unit.name}: {layout.precision} matmuls are set in the program; the configuration says bf16."
        )
    if layout.recompute != "none":
        found.append(
            f"{unit.name}: {layout.recompute} recompute is switched on in the program (TRAINPLAN_RECOMPUTE)."
        )
    return found


DEEPSPEED = Trainer(
    name="deepspeed",
    title="DeepSpeed",
    checked="deepspeed 0.19.8",
    starter=lambda _unit: "torchrun",
    files=lambda unit: {f"{unit.name}.deepspeed.json": dump_json(config(unit))},
    command=lambda unit: ["${TRAIN_SCRIPT:-train.py}", "--deepspeed", f"{unit.name}.deepspeed.json"],
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
EXPORTER = exporter_of(DEEPSPEED)
