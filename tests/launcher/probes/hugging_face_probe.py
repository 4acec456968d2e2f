"""DeepSpeed's, Accelerate's and TRL's own readers on exported files. Runs in the trainers' environment, on CPU.

Usage: python hugging_face_probe.py JSON, a list of {"kind": "deepspeed|accelerate|trl", "file": "...", ...}:
``deepspeed`` takes ``world`` (data-parallel size), ``trl`` takes ``program``.
"""

from __future__ import annotations

import json
import os
import sys
import warnings
from types import SimpleNamespace
from typing import Any


def deepspeed(file: str, world: int) -> dict[str, Any]:
    """The configuration as ``DeepSpeedConfig`` accepted it."""
    from deepspeed.runtime import config as reader

    reader.dist.get_rank = lambda *_: 0
    mpu = SimpleNamespace(get_data_parallel_world_size=lambda: world)
    config: Any = reader.DeepSpeedConfig(file, mpu=mpu)
    zero = config.zero_config
    return {
        "train_batch_size": config.train_batch_size,
        "micro_batch": config.train_micro_batch_size_per_gpu,
        "accumulation": config.gradient_accumulation_steps,
        "stage": int(zero.stage),
        "hpz": zero.zero_hpz_partition_size,
        "bf16": bool(config.bfloat16_config.enabled),
        "autotp": config.tensor_parallel_config.autotp_size,
    }


def accelerate(file: str) -> dict[str, Any]:
    """The configuration as ``accelerate launch`` reads it, and the environment it gives its processes."""
    from accelerate.commands.config.config_args import load_config_from_file
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_deepspeed_cmd_env, prepare_multi_gpu_env

    config: Any = load_config_from_file(file)
    parser = launch_command_parser()
    arguments = parser.parse_args(["--config_file", file, "train.py"])
    arguments, _, _ = _validate_launch_command(arguments)
    if arguments.use_deepspeed:
        arguments.deepspeed_fields_from_accelerate_config = ",".join(config.deepspeed_config)
        _, environment = prepare_deepspeed_cmd_env(arguments)
    else:
        environment = prepare_multi_gpu_env(arguments)
    wanted = ("FSDP_", "PARALLELISM_", "ACCELERATE_")
    return {
        "distributed_type": str(config.distributed_type.value),
        "num_machines": int(arguments.num_machines),
        "num_processes": int(arguments.num_processes),
        "mixed_precision": arguments.mixed_precision,
        "environment": {key: value for key, value in environment.items() if key.startswith(wanted)},
    }


def trl(file: str, program: str) -> dict[str, Any]:
    """The arguments as TRL's own parser for ``program`` reads them."""
    from trl.scripts import dpo, reward, sft
    from trl.scripts.utils import TrlParser  # noqa: F401

    module = {"sft": sft, "dpo": dpo, "reward": reward}[program]
    parser = module.make_parser()
    words = [
        "--config", file, "--use_cpu", "true", "--model_name_or_path", "m", "--dataset_name", "d",
        "--output_dir", "/tmp/out", "--learning_rate", "1e-5",
    ]  # fmt: skip
    _, training, model = [
        part for part in parser.parse_args_and_config(words, fail_with_unknown_args=True) if part is not None
    ][:3]
    keys = [
        "per_device_train_batch_size",
        "gradient_accumulation_steps",
        "max_length",
        "max_steps",
        "save_steps",
        "save_total_limit",
        "bf16",
        "gradient_checkpointing",
        "packing",
        "optim",
    ]
    found = {key: getattr(training, key, None) for key in keys}
    found["save_strategy"] = str(training.save_strategy.value)
    return found | {"use_peft": model.use_peft, "lora_r": model.lora_r, "dtype": model.dtype}


def main() -> None:
    """Check every unit given."""
    warnings.simplefilter("ignore")
    os.environ.setdefault("DS_ACCELERATOR", "cpu")
    kinds = {"deepspeed": deepspeed, "accelerate": accelerate, "trl": trl}
    results: list[dict[str, Any]] = []
    for unit in json.loads(sys.argv[1]):
        kind = unit.pop("kind")
        try:
            results.append(kinds[kind](**unit))
        except (Exception, SystemExit) as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
