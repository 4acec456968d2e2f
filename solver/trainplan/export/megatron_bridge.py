"""Megatron-Bridge: the plan's numbers as values to set on the configuration of a recipe."""

from __future__ import annotations

from trainplan.export.launch import LaunchUnit
from trainplan_models.workload import ModelShape

CHECKED = "megatron-bridge 0.6.2"

_MIXED_PRECISION = {
    "fp32": "None",
    "bf16": '"bf16_mixed"',
    "fp16": '"fp16_mixed"',
    "fp8": '"bf16_with_fp8_delayed_scaling_mixed"',
    "fp4": '"bf16_with_nvfp4_mixed"',
}
_OPTIMIZERS: dict[str, dict[str, str]] = {
    "adamw": {"optimizer.optimizer": '"adam"'},
    "adamw-grad16": {
        "optimizer.optimizer": '"adam"',
        "optimizer.use_precision_aware_optimizer": "True",
        "optimizer.main_grads_dtype": "torch.bfloat16",
    },
    "adamw-offload": {
        "optimizer.optimizer": '"adam"',
        "optimizer.optimizer_cpu_offload": "True",
        "optimizer.overlap_cpu_optimizer_d2h_h2d": "True",
    },
    "sgd": {"optimizer.optimizer": '"sgd"'},
    "muon": {"optimizer.optimizer": '"muon"'},
}
_SHARDING = {2: "optim_grads", 3: "optim_grads_params"}

Values = dict[str, str]
"""Python expressions by the attribute of the configuration they are for."""


def values(unit: LaunchUnit, uneven: tuple[str, ...]) -> Values:
    """All that a unit sets; ``uneven`` has Megatron-LM's flags for layers that do not split evenly."""
    shape = unit.task.shape
    assert shape is not None, "refused before"
    return _parallel(unit, shape, uneven) | _sharding(unit) | _training(unit) | _checkpoint(unit)


def _parallel(unit: LaunchUnit, shape: ModelShape, uneven: tuple[str, ...]) -> Values:
    layout = unit.segment.layout
    found = {
        "model.tensor_model_parallel_size": str(layout.tp),
        "model.pipeline_model_parallel_size": str(layout.pp),
        "model.virtual_pipeline_model_parallel_size": str(layout.vp) if layout.vp > 1 else "None",
        "model.context_parallel_size": str(layout.cp),
        "model.sequence_parallel": str(layout.sequence_parallel and layout.tp > 1),
    }
    for flag in uneven:
        found["model." + flag.removeprefix("--").replace("-", "_")] = "True"
    if shape.is_moe:
        found["model.expert_model_parallel_size"] = str(layout.ep)
        found["model.expert_tensor_parallel_size"] = "1" if layout.ep > 1 else "None"
    if layout.recompute == "none":
        found["model.recompute_granularity"] = "None"
    elif layout.recompute == "selective":
        found |= {"model.recompute_granularity": '"selective"', "model.recompute_modules": '["core_attn"]'}
    else:
        found |= {"model.recompute_granularity": '"full"', "model.recompute_method": '"uniform"'}
        found["model.recompute_num_layers"] = "1"
    return found


def _sharding(unit: LaunchUnit) -> Values:
    layout = unit.segment.layout
    shards = str(layout.zero_stage > 0)
    found = {
        "ddp.use_distributed_optimizer": shards,
        "ddp.overlap_param_gather": shards,
        "optimizer.use_distributed_optimizer": shards,
        "optimizer.overlap_param_gather": shards,
        "ddp.use_megatron_fsdp": str(layout.zero_stage > 1),
    }
    if layout.zero_stage > 1:
        found["ddp.data_parallel_sharding_strategy"] = f'"{_SHARDING[layout.zero_stage]}"'
    if layout.shard_group and layout.shard_group < layout.dp * layout.cp:
        found["ddp.num_distributed_optimizer_instances"] = str(layout.dp * layout.cp // layout.shard_group)
    return found


def _training(unit: LaunchUnit) -> Values:
    length = str(unit.segment.sequence_length)
    found = {
        "model.seq_length": length,
        "dataset.seq_length": length,
        "train.train_iters": str(unit.total_steps),
        "train.global_batch_size": str(unit.batch_sequences),
        "train.micro_batch_size": str(unit.segment.layout.micro_batch),
        "mixed_precision": _MIXED_PRECISION[unit.segment.layout.precision],
    }
    if unit.task.kind == "sft":
        # Recipes for fine-tuning pack sequences, which allows one sequence in a micro-batch.
        found |= {"dataset.enable_offline_packing": "False", "dataset.offline_packing_specs": "None"}
        if unit.segment.layout.cp > 1:
            found |= {"model.calculate_per_token_loss": "True", "ddp.average_in_collective": "False"}
    return found | _OPTIMIZERS[unit.task.optimizer]


def _checkpoint(unit: LaunchUnit) -> Values:
    sharded = unit.segment.layout.zero_stage > 1
    found = {
        "checkpoint.save": 'os.environ["CHECKPOINT_DIR"]',
        "checkpoint.load": 'os.environ["CHECKPOINT_DIR"]',
        "checkpoint.save_interval": str(unit.interval_steps),
        "checkpoint.most_recent_k": str(unit.keep_last),
        "checkpoint.async_save": str(unit.asynchronous and not sharded),
        "checkpoint.ckpt_format": '"fsdp_dtensor"' if sharded else '"torch_dist"',
    }
    if unit.task.kind in ("continue", "sft"):
        found["checkpoint.pretrained_checkpoint"] = 'os.environ["MODEL"]'
    return found
