"""MaxText's own configuration reader on exported files. Runs in MaxText's environment, on CPU.

Usage: python maxtext_probe.py JSON, a list of {"args": [...], "devices": N, "slices": N}; prints one result for each.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

os.environ["JAX_PLATFORMS"] = "cpu"

AXES = ("data", "fsdp", "tensor", "context", "expert", "pipeline")
KEYS = [
    "run_name",
    "model_name",
    "hardware",
    "steps",
    "per_device_batch_size",
    "gradient_accumulation_steps",
    "global_batch_size_to_train_on",
    "micro_batch_size_to_train_on",
    "max_target_length",
    "num_target_devices",
    "checkpoint_period",
    "max_num_checkpoints_to_keep",
    "enable_checkpointing",
    "async_checkpointing",
    "shard_optimizer_over_data",
    "remat_policy",
    "quantization",
    "learning_rate",
    "dataset_path",
    "base_output_directory",
    "num_decoder_layers",
    "emb_dim",
    "mlp_dim",
    "moe_mlp_dim",
    "num_query_heads",
    "num_kv_heads",
    "head_dim",
    "vocab_size",
    "num_experts",
    "num_experts_per_tok",
    "num_layers_per_pipeline_stage",
    "num_pipeline_repeats",
    "num_pipeline_microbatches",
    *(f"{kind}_{axis}_parallelism" for kind in ("ici", "dcn") for axis in AXES),
]

WITHOUT_DEVICES = ["skip_jax_distributed_system=true", "internal_compile=true"]
"""As when MaxText compiles ahead for a slice that is not there: it takes the number of devices as told."""


def parsed(words: list[str], devices: int, slices: int) -> dict[str, Any]:
    """The configuration as MaxText understood and accepted it, with a mesh that has every device once."""
    from maxtext.configs import pyconfig
    from maxtext.utils.max_utils import fill_unspecified_mesh_axes

    there = [f"internal_compile_num_devices={devices}", f"num_slices={slices}"]
    config = pyconfig._initialize_pydantic(["train.py", *words, *WITHOUT_DEVICES, *there])
    fill_unspecified_mesh_axes(list(config.ici_parallelism), devices // slices, "ICI")
    fill_unspecified_mesh_axes(list(config.dcn_parallelism), slices, "DCN")
    return {key: getattr(config, key) for key in KEYS}


def main() -> None:
    """Check every unit given."""
    results: list[dict[str, Any]] = []
    for unit in json.loads(sys.argv[1]):
        try:
            results.append(parsed(unit["args"], unit["devices"], unit["slices"]))
        except (Exception, SystemExit) as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
