"""torchtitan 0.3: a Python module per unit with one function that returns its ``Trainer.Config``."""

from __future__ import annotations

from trainplan.export.devices import runs_on
from trainplan.export.launch import LaunchUnit
from trainplan.export.model_names import ModelNames, known_to, names_of
from trainplan.export.target import header_of, render
from trainplan.export.trainer import Trainer, exporter_of
from trainplan_models.workload import family_of

_RECOMPUTE = {"none": "None", "selective": "SelectiveAC.Config()", "full": "FullAC.Config()"}
_PARAM_DTYPE = {"bf16": "bfloat16", "fp8": "bfloat16", "fp32": "float32"}
_CONVERTERS = {"fp8": "Float8LinearConverter"}
_WEIGHTS = {"adamw": "float32", "adamw-fp32": "float32", "adamw-bf16": "bfloat16"}
"""Type of weights, gradients and optimizer state by optimizer recipe."""


def module_name(unit: LaunchUnit) -> str:
    """Name of the unit's module: a legal Python identifier."""
    return f"trainplan_{unit.name.replace('-', '_')}"


def local_batch(unit: LaunchUnit) -> int:
    """``training.local_batch_size``: a micro-batch, or all of a step where the pipeline splits it further."""
    layout = unit.segment.layout
    return layout.micro_batch * (unit.accumulation if layout.pp > 1 else 1)


def shard_degrees(unit: LaunchUnit) -> tuple[int, int]:
    """Data-parallel replicate and shard degree."""
    layout = unit.segment.layout
    if layout.zero_stage == 0:
        return layout.dp, 1
    return layout.dp // unit.shard_degree, unit.shard_degree


def keep_latest(unit: LaunchUnit) -> int:
    """``checkpoint.keep_latest_k``: torchtitan refuses to keep only one."""
    return max(2, unit.keep_last)


def _pipeline_ends(unit: LaunchUnit) -> tuple[int, int]:
    """Layers the first and the last stage have less, so that the layers split evenly."""
    shape, layout = unit.task.shape, unit.segment.layout
    stages = layout.pp * layout.vp
    layers = shape.layers if shape is not None else 0
    return next((ends for ends in ((0, 0), (0, 1), (1, 1)) if (layers + sum(ends)) % stages == 0), (1, 1))


_LLAMA = ModelNames(torchtitan_module="llama3", torchtitan_config="llama3_8b", torchtitan_flavor="trainplan")


def _is_own(unit: LaunchUnit) -> bool:
    """Whether the model is written out as a llama, as torchtitan has no name for its sizes."""
    shape = unit.task.shape
    if shape is None or names_of(shape).torchtitan_config:
        return False
    other = (
        shape.is_moe
        or shape.kv_lora_rank
        or shape.sliding_window
        or shape.max_positions
        or not shape.gated_mlp
    )
    biased = shape.qkv_bias or shape.linear_bias or shape.norm_bias or shape.parallel_block
    plain = family_of(shape.family).qk_norm == "none" and family_of(shape.family).norms_per_layer == 2
    return plain and not other and not biased and shape.head_dim * shape.heads == shape.hidden


def _names(unit: LaunchUnit) -> ModelNames:
    return _LLAMA if _is_own(unit) else names_of(unit.task.shape)


def _files(unit: LaunchUnit) -> dict[str, str]:
    replicate, shard = shard_degrees(unit)
    first, last = _pipeline_ends(unit)
    text = render(
        "torchtitan.py.j2",
        header=header_of(unit),
        unit=unit,
        layout=unit.segment.layout,
        names=_names(unit),
        own_shape=_is_own(unit),
        function="plan",
        local_batch=local_batch(unit),
        replicate=replicate,
        shard=shard,
        keep_latest=keep_latest(unit),
        recompute=_RECOMPUTE[unit.segment.layout.recompute],
        weights=_WEIGHTS[unit.task.optimizer],
        param_dtype=_PARAM_DTYPE[unit.segment.layout.precision],
        converter=_CONVERTERS.get(unit.segment.layout.precision, ""),
        reshard="never" if unit.segment.layout.zero_stage == 2 else "always",
        first_less=first,
        last_less=last,
    )
    return {f"{module_name(unit)}.py": text}


def _command(unit: LaunchUnit) -> list[str]:
    return ["-m", "torchtitan.train", "--module", module_name(unit), "--config", "plan"]


def _unsuited(unit: LaunchUnit) -> str:
    if unit.task.kind not in ("pretrain", "continue"):
        return f"torchtitan's own trainer is for pretraining, not for a task of kind {unit.task.kind}"
    return ""


def _refusals(unit: LaunchUnit) -> list[str]:
    layout = unit.segment.layout
    found = []
    if not runs_on(unit.segment.accelerator, "nvidia", "amd", "intel"):
        found.append(f"torchtitan does not run on {unit.segment.accelerator}")
    if not _names(unit).torchtitan_config:
        known = ", ".join(known_to("torchtitan_flavor"))
        found.append(
            f"torchtitan 0.3 has no model of this shape ({unit.task.model or 'written out'}); it has: {known}"
        )
    if layout.zero_stage == 1 and layout.dp > 1:
        found.append(
            "torchtitan shards weights and gradients with the optimizer (FSDP2): ZeRO stage 1 cannot run; "
            "plan the task with `framework: torchtitan`"
        )
    if layout.zero_stage == 0 and (layout.tp > 1 or layout.pp > 1) and layout.dp > 1 and layout.ep > 1:
        found.append("torchtitan needs sharded data parallelism for expert parallelism")
    if layout.precision not in _PARAM_DTYPE:
        found.append(
            f"torchtitan 0.3 does not train in {layout.precision}; it does in: {', '.join(_PARAM_DTYPE)}"
        )
    if unit.task.optimizer not in _WEIGHTS:
        found.append(f"torchtitan 0.3 is exported with {', '.join(_WEIGHTS)} only, not {unit.task.optimizer}")
    return found


def _cannot_express(unit: LaunchUnit) -> list[str]:
    found = []
    if unit.keep_last < 2:
        found.append(
            f"{unit.name}: torchtitan refuses to keep a single checkpoint; it keeps {keep_latest(unit)}."
        )
    if _is_own(unit):
        found.append(
            f"{unit.name}: torchtitan has no name for this model; its sizes are written out on torchtitan's llama. The "
            "rotary base is not in a plan: `ROPE_THETA` (default 10000)."
        )
    if unit.milestone_steps:
        found.append(
            f"{unit.name}: no milestones; copy every {unit.milestone_steps}th step out of `step-N` yourself."
        )
    if unit.task.rounds > 1:
        found.append(
            f"{unit.task.name}: {unit.task.rounds} rounds of {unit.round_steps} steps run as one of all."
        )
    return found


TORCHTITAN = Trainer(
    name="torchtitan",
    title="torchtitan",
    checked="torchtitan 0.3.0",
    starter=lambda _unit: "torchrun",
    files=_files,
    command=_command,
    unsuited=_unsuited,
    refusals=_refusals,
    cannot_express=_cannot_express,
    environment=lambda _unit: {"PYTHONPATH": "${PWD}:${PYTHONPATH:-}"},
)
EXPORTER = exporter_of(TORCHTITAN)
