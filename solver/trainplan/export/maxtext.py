"""MaxText: a configuration file per unit, for TPU slices and for GPUs."""

from __future__ import annotations

import math
from typing import Any

from trainplan.export.devices import is_tpu
from trainplan.export.launch import LaunchUnit
from trainplan.export.model_names import names_of
from trainplan.export.target import dump_yaml, header_of
from trainplan.export.trainer import Trainer, exporter_of
from trainplan_models.workload import ModelShape

GPU_SEGMENTS = 32
"""Most documents packed into one sequence. On GPUs MaxText packs only with such a bound; its own GPU configurations
have this one."""

_REMAT = {"none": "minimal", "selective": "save_qkv_proj", "full": "full"}
_OPTIMIZERS = {"adamw": "adamw", "adamw-fp32": "adamw", "adamw-bf16": "adamw", "sgd": "sgd", "muon": "muon"}


def mesh(unit: LaunchUnit) -> dict[str, int]:
    """Mesh axes: ``ici_*`` within what fast links reach (a TPU slice, a GPU node), ``dcn_*`` across."""
    layout = unit.segment.layout
    data = layout.dp // layout.ep
    shard = min(unit.shard_degree, data) if layout.zero_stage == 3 else 1
    degrees = {
        "tensor": layout.tp,
        "context": layout.cp,
        "expert": layout.ep,
        "fsdp": shard,
        "data": data // shard,
        "pipeline": layout.pp,
    }
    room = layout.accelerators if is_tpu(unit.segment.accelerator) else unit.processes_per_node
    found: dict[str, int] = {}
    for axis, degree in degrees.items():
        inside = math.gcd(degree, room)
        room //= inside
        found[f"ici_{axis}_parallelism"] = inside
        found[f"dcn_{axis}_parallelism"] = degree // inside
    return found


def model(shape: ModelShape) -> dict[str, Any]:
    """The model by MaxText's name, or written out as a decoder of its llama or mixtral block."""
    name = names_of(shape).maxtext
    if name:
        return {"model_name": name}
    found: dict[str, Any] = {
        "model_name": "default",
        "decoder_block": "mixtral" if shape.is_moe else "llama2",
        "base_emb_dim": shape.hidden,
        "base_num_query_heads": shape.heads,
        "base_num_kv_heads": shape.kv_heads,
        "base_num_decoder_layers": shape.layers,
        "base_mlp_dim": shape.routed_ffn if shape.is_moe else shape.ffn,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "logits_via_embedding": shape.tied_embeddings,
        "mlp_activations": ["silu", "linear"],
    }
    if shape.is_moe:
        found |= {"num_experts": shape.experts, "num_experts_per_tok": shape.experts_per_token}
        found["base_moe_mlp_dim"] = shape.routed_ffn
    return found


def config(unit: LaunchUnit) -> dict[str, Any]:
    """The configuration; folders come from the start script."""
    layout, shape = unit.segment.layout, unit.task.shape
    assert shape is not None, "refused before"
    tpu = is_tpu(unit.segment.accelerator)
    found: dict[str, Any] = {
        "base_config": "base.yml",
        "run_name": unit.task.name,
        "hardware": "tpu" if tpu else "gpu",
        **model(shape),
        "per_device_batch_size": per_device_batch(unit),
        "gradient_accumulation_steps": gradient_steps(unit),
        "max_target_length": unit.segment.sequence_length,
        "steps": unit.total_steps,
        "opt_type": _OPTIMIZERS[unit.task.optimizer],
        "dtype": "float32" if layout.precision == "fp32" else "bfloat16",
        "weight_dtype": "bfloat16" if unit.task.optimizer == "adamw-bf16" else "float32",
        "quantization": "fp8" if layout.precision == "fp8" else "",
        "remat_policy": _REMAT[layout.recompute],
        **mesh(unit),
        "shard_optimizer_over_data": layout.zero_stage == 1,
        "enable_checkpointing": True,
        "async_checkpointing": unit.asynchronous,
        "checkpoint_period": unit.interval_steps,
        "max_num_checkpoints_to_keep": unit.keep_last,
    }
    if layout.pp > 1:
        found["num_layers_per_pipeline_stage"] = shape.layers // (layout.pp * layout.vp)
        found["num_pipeline_microbatches"] = unit.accumulation
    if not tpu:
        found |= {"attention": "cudnn_flash_te", "max_segments_per_seq": GPU_SEGMENTS}
    return found


def gradient_steps(unit: LaunchUnit) -> int:
    """Gradient accumulation; a pipeline takes its micro-batches from one step instead."""
    return 1 if unit.segment.layout.pp > 1 else unit.accumulation


def per_device_batch(unit: LaunchUnit) -> float:
    """``per_device_batch_size``: sequences of one forward pass by device, a fraction where devices share one."""
    return unit.batch_sequences / gradient_steps(unit) / unit.segment.layout.accelerators


def _files(unit: LaunchUnit) -> dict[str, str]:
    return {f"{unit.name}.maxtext.yml": dump_yaml(config(unit), header=header_of(unit))}


def _command(unit: LaunchUnit) -> list[str]:
    return [
        "python3", "-m", "maxtext.trainers.pre_train.train", f"{unit.name}.maxtext.yml",
        "base_output_directory=$CHECKPOINT_DIR", "dataset_path=$DATA", "learning_rate=$LEARNING_RATE",
    ]  # fmt: skip


def _unsuited(unit: LaunchUnit) -> str:
    if unit.task.kind not in ("pretrain", "continue"):
        return f"MaxText is exported for pretraining, not for a task of kind {unit.task.kind}"
    return ""


def _refusals(unit: LaunchUnit) -> list[str]:
    layout, shape = unit.segment.layout, unit.task.shape
    found = []
    if shape is None:
        found.append(
            f"the model {unit.task.model!r} is not in the plan, the catalogue or a file that is here"
        )
    elif not names_of(shape).maxtext and (unlike := _unlike_llama(shape)):
        found.append(f"MaxText's llama and mixtral blocks have no {' and no '.join(unlike)}")
    if layout.zero_stage == 2 and layout.dp > 1:
        found.append(
            "MaxText shards gradients with the weights (FSDP) or not at all: ZeRO stage 2 cannot run"
        )
    if layout.ep > 1 and layout.dp % layout.ep:
        found.append(
            f"MaxText's expert axis lies inside data parallelism: {layout.ep} does not divide {layout.dp}"
        )
    if layout.pp > 1 and shape is not None and shape.layers % (layout.pp * layout.vp):
        found.append(f"{shape.layers} layers do not split over {layout.pp * layout.vp} pipeline chunks")
    if layout.pp > 1 and unit.accumulation % layout.pp:
        found.append(
            f"MaxText needs pipeline micro-batches ({unit.accumulation}) in multiples of {layout.pp}"
        )
    if layout.precision in ("fp16", "fp4"):
        found.append(f"MaxText is exported in bf16, fp8 and fp32, not {layout.precision}")
    if unit.task.optimizer not in _OPTIMIZERS:
        found.append(f"MaxText has no optimizer {unit.task.optimizer}; it has: {', '.join(_OPTIMIZERS)}")
    return found


def _unlike_llama(shape: ModelShape) -> list[str]:
    """What a model has that the decoder blocks it would be written out with have not."""
    has = {
        "latent attention": shape.kv_lora_rank,
        "biases": shape.linear_bias or shape.qkv_bias or shape.norm_bias,
        "ungated MLP": not shape.gated_mlp,
        "learned positions": shape.max_positions,
        "sliding window": shape.sliding_window,
        "shared experts": shape.shared_experts,
        "dense layers between experts": shape.dense_layers,
    }
    return [name for name, there in has.items() if there]


def _cannot_express(unit: LaunchUnit) -> list[str]:
    found = []
    if unit.segment.layout.recompute == "none":
        found.append(
            f"{unit.name}: MaxText always recomputes a little; the policy with the least is `minimal`."
        )
    if not is_tpu(unit.segment.accelerator):
        found.append(
            f"{unit.name}: on GPUs MaxText packs at most `max_segments_per_seq` documents into a sequence, which a "
            f"plan does not say; the file has {GPU_SEGMENTS}."
        )
    if unit.milestone_steps:
        found.append(f"{unit.name}: no milestones; copy every {unit.milestone_steps}th step away yourself.")
    if unit.task.rounds > 1:
        found.append(
            f"{unit.task.name}: {unit.task.rounds} rounds of {unit.round_steps} steps run as one of all."
        )
    return found


MAXTEXT = Trainer(
    name="maxtext",
    title="MaxText",
    checked="maxtext 0.2.5",
    starter=lambda _unit: "direct",
    files=_files,
    command=_command,
    unsuited=_unsuited,
    refusals=_refusals,
    cannot_express=_cannot_express,
)
EXPORTER = exporter_of(MAXTEXT)
