"""Megatron-LM's own argument parser and checks on exported argument files. Runs in the trainers' environment, on CPU.

Usage: python megatron_probe.py JSON, a list of {"args": [...], "world": N}; prints one result for each.
"""

from __future__ import annotations

import json
import os
import sys
import typing
import warnings
from typing import Any

KEYS = [
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "data_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "micro_batch_size",
    "global_batch_size",
    "seq_length",
    "train_iters",
    "save_interval",
    "sequence_parallel",
    "use_distributed_optimizer",
    "use_megatron_fsdp",
    "data_parallel_sharding_strategy",
    "num_distributed_optimizer_instances",
    "recompute_granularity",
    "num_layers",
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "num_query_groups",
    "num_experts",
    "moe_router_topk",
    "vocab_size",
    "bf16",
    "fp16",
    "fp8",
    "step_batch_size_schedule",
    "train_samples",
    "async_save",
    "world_size",
    "kv_channels",
    "swiglu",
    "untie_embeddings_and_output_weights",
]


def prepare() -> None:
    """Stand in for the GPU that the checks ask about, as nothing is run."""
    warnings.simplefilter("ignore")
    import torch
    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    properties = type("Properties", (), {"major": 9, "minor": 0, "total_memory": 80 << 30})
    torch.cuda.get_device_properties = lambda *_: properties()


def parsed(words: list[str], world: int, environment: dict[str, str]) -> dict[str, Any]:
    """The arguments as Megatron-LM understood and accepted them."""
    for name in ("CUDA_DEVICE_MAX_CONNECTIONS",):
        os.environ.pop(name, None)
    os.environ.update({"WORLD_SIZE": str(world), "RANK": "0", "LOCAL_RANK": "0"} | environment)
    from megatron.training.arguments import core_transformer_config_from_args, parse_args, validate_args

    sys.argv = ["pretrain_gpt.py", *words, "--no-rope-fusion"]
    arguments = validate_args(parse_args())
    core_transformer_config_from_args(arguments)
    return {key: value for key in KEYS if not callable(value := getattr(arguments, key, None))}


def main() -> None:
    """Check every unit given."""
    prepare()
    results: list[dict[str, Any]] = []
    for unit in json.loads(sys.argv[1]):
        try:
            results.append(parsed(unit["args"], unit["world"], unit.get("environment", {})))
        except (Exception, SystemExit) as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
