"""torchtitan's own configuration manager on exported modules. Runs in the trainers' environment, on CPU.

Usage: python torchtitan_probe.py JSON, a list of {"folder": "...", "module": "...", "world": N}.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from typing import Any


def parsed(folder: str, module: str, world: int) -> dict[str, Any]:
    """The job's configuration as torchtitan parsed it, with the mesh it makes of it."""
    from torchtitan.config.manager import ConfigManager
    from torchtitan.distributed import ParallelDims

    sys.path.insert(0, folder)
    try:
        importlib.invalidate_caches()
        config: Any = ConfigManager().parse_args(["--module", module, "--config", "plan"])
    finally:
        sys.path.remove(folder)
        sys.modules.pop(module, None)
    parallel = config.parallelism
    dims = ParallelDims(
        dp_replicate=parallel.data_parallel_replicate_degree,
        dp_shard=parallel.data_parallel_shard_degree,
        cp=parallel.context_parallel_degree,
        tp=parallel.tensor_parallel_degree,
        pp=parallel.pipeline_parallel_degree,
        ep=parallel.expert_parallel_degree,
        world_size=world,
    )
    model = config.model_spec.model
    return {
        "replicate": dims.dp_replicate,
        "shard": dims.dp_shard,
        "tp": dims.tp,
        "pp": dims.pp,
        "cp": dims.cp,
        "ep": dims.ep,
        "schedule": parallel.pipeline_parallel_schedule,
        "microbatch": parallel.pipeline_parallel_microbatch_size,
        "reshard": parallel.fsdp_reshard_after_forward,
        "local_batch": config.training.local_batch_size,
        "global_batch": config.training.global_batch_size,
        "seq_len": config.training.seq_len,
        "steps": config.training.steps,
        "dtype": config.training.dtype,
        "checkpoint": config.checkpoint.enable,
        "interval": config.checkpoint.interval,
        "keep": config.checkpoint.keep_latest_k,
        "async_mode": str(config.checkpoint.async_mode),
        "recompute": type(config.activation_checkpoint).__qualname__
        if config.activation_checkpoint
        else "none",
        "layers": len(model.layers),
        "dim": model.dim,
        "vocab": model.vocab_size,
    }


def main() -> None:
    """Check every unit given, as on a Hopper GPU."""
    from torchtitan.tools import utils

    utils.has_cuda_capability = lambda *_: True
    os.environ.setdefault("CHECKPOINT_DIR", "/checkpoints/task")
    os.environ.setdefault("MODEL", "/checkpoints/model")
    results: list[dict[str, Any]] = []
    for unit in json.loads(sys.argv[1]):
        try:
            results.append(parsed(unit["folder"], unit["module"], unit["world"]))
        except (Exception, SystemExit) as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
