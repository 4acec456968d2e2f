"""Megatron-Bridge's own configuration classes on exported overrides. Runs in Megatron-Bridge's environment, on CPU.

Usage: python bridge_probe.py JSON, a list of {"file": ..., "world": N, "kind": ..., "model": {...}, "environment":
{...}}; prints one result for each.

Packages that configurations do not use stand there by name alone: transformer_engine, which needs a GPU's compiler,
and those that load pictures, make images or quantize.
"""

from __future__ import annotations

import abc
import importlib.abc
import importlib.machinery
import json
import logging
import os
import runpy
import sys
import types
import typing
import warnings
from typing import Any

ABSENT = ("transformer_engine", "megatron.energon", "modelopt", "diffusers")
MODEL_KEYS = [
    "tensor_model_parallel_size",
    "pipeline_model_parallel_size",
    "virtual_pipeline_model_parallel_size",
    "context_parallel_size",
    "expert_model_parallel_size",
    "expert_tensor_parallel_size",
    "sequence_parallel",
    "recompute_granularity",
    "seq_length",
    "num_layers",
    "bf16",
    "fp8",
]


class _Anything(abc.ABCMeta):
    """A class that has whatever is asked of it, classes again, and that leaves what it decorates as it is."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Anything(name, (), {"stands_in": True})
        setattr(cls, name, made)
        return made

    def __call__(cls, *arguments: Any, **named: Any) -> Any:
        if not cls.__dict__.get("stands_in"):
            return super().__call__(*arguments, **named)
        return arguments[0] if len(arguments) == 1 and callable(arguments[0]) and not named else cls


class _Module(types.ModuleType):
    __version__ = "2.20.2"
    __path__: list[str] = []

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        made = _Anything(name, (), {"stands_in": True})
        setattr(self, name, made)
        return made


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name.startswith(ABSENT):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: Any) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def prepare() -> None:
    """Stand in for the GPU that the checks ask about, as nothing is run."""
    warnings.simplefilter("ignore")
    logging.disable(logging.INFO)
    import torch
    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    torch.cuda.get_device_capability = lambda *_: (9, 0)
    properties = type("Properties", (), {"major": 9, "minor": 0, "total_memory": 80 << 30})
    torch.cuda.get_device_properties = lambda *_: properties()
    sys.meta_path.insert(0, _Finder())


def parsed(unit: dict[str, Any]) -> dict[str, Any]:
    """The numbers of a recipe's configuration with the plan's override, after its own validation."""
    os.environ.pop("CUDA_DEVICE_MAX_CONNECTIONS", None)
    os.environ.update({"WORLD_SIZE": str(unit["world"]), "RANK": "0", "CHECKPOINT_DIR": "/checkpoints/task"})
    os.environ.update(unit["environment"])
    from megatron.bridge.models import GPTModelProvider
    from megatron.bridge.recipes.common import _pretrain_common, _sft_common
    from megatron.bridge.training.config import runtime_config_update

    config = _sft_common() if unit["kind"] == "sft" else _pretrain_common()
    config.model = GPTModelProvider(**unit["model"])
    config.tokenizer.tokenizer_model = "tokenizer"
    runpy.run_path(unit["file"])["apply_plan"](config)
    runtime_config_update(config)
    found = {key: getattr(config.model, key, None) for key in MODEL_KEYS}
    return found | {
        "data_parallel_size": config.data_parallel_size,
        "train_iters": config.train.train_iters,
        "global_batch_size": config.train.global_batch_size,
        "micro_batch_size": config.train.micro_batch_size,
        "dataset_seq_length": config.dataset.seq_length,
        "use_distributed_optimizer": config.optimizer.use_distributed_optimizer,
        "use_megatron_fsdp": config.ddp.use_megatron_fsdp,
        "data_parallel_sharding_strategy": config.ddp.data_parallel_sharding_strategy,
        "instances": config.ddp.num_distributed_optimizer_instances,
        "save_interval": config.checkpoint.save_interval,
        "most_recent_k": config.checkpoint.most_recent_k,
        "async_save": config.checkpoint.async_save,
        "save": config.checkpoint.save,
        "load": config.checkpoint.load,
        "ckpt_format": config.checkpoint.ckpt_format,
    }


def main() -> None:
    """Check every unit given."""
    prepare()
    results: list[dict[str, Any]] = []
    for unit in json.loads(sys.argv[1]):
        try:
            results.append(parsed(unit))
        except (Exception, SystemExit) as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
