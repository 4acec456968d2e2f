"""Records what launchers accept, for tests that must run without them: names of keys, and SkyPilot's own schema.

Usage, each in the environment that has the package:
``python record_keys.py skypilot | megatron | trl | accelerate | verl | torchtitan``, and ``maxtext FILE`` with the
``configs/types.py`` of a MaxText wheel. Versions and licences stand in ``SOURCES``.
"""

from __future__ import annotations

import ast
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SOURCES = {
    "skypilot": "skypilot 0.14.1 (Apache-2.0), sky.utils.schemas",
    "megatron": "megatron-core 0.19.2 (BSD-3-Clause), megatron.training.arguments",
    "trl": "trl 1.16.0 and transformers 5.24.0 (Apache-2.0), arguments of the sft, dpo and reward scripts",
    "accelerate": "accelerate 1.15.0 (Apache-2.0), ClusterConfig and the arguments of accelerate launch",
    "verl": "verl 0.9.1 (Apache-2.0), trainer/config and experimental/one_step_off_policy/config",
    "torchtitan": "torchtitan 0.3.0 (BSD-3-Clause), training, parallelism and checkpoint configuration",
    "maxtext": "maxtext 0.2.5 (Apache-2.0), configs/types.py",
}


def skypilot() -> Any:
    """JSON Schemas of a task, of its resources and storage, and of the configuration file."""
    from sky.utils import schemas

    return {
        "task": schemas.get_task_schema(),
        "resources": schemas.get_resources_schema(),
        "storage": schemas.get_storage_schema(),
        "config": schemas.get_config_schema(),
    }


def megatron() -> Any:
    """Every flag: whether it takes a value, and its choices."""
    import argparse
    import typing

    import typing_extensions

    if not hasattr(typing, "override"):
        typing.override = typing_extensions.override  # type: ignore[attr-defined]
    from megatron.training.arguments import add_megatron_arguments

    parser = add_megatron_arguments(argparse.ArgumentParser(allow_abbrev=False))
    found = {}
    for action in parser._actions:
        choices = [str(choice) for choice in action.choices or ()]
        for name in action.option_strings:
            if len(choices) > 20:
                choices = []
            found[name] = {"value": action.nargs != 0, "choices": choices}
    return found


def trl() -> Any:
    """Keys of each script's configuration file."""
    from trl.scripts import dpo, reward, sft

    return {
        name: sorted(
            field.name for kind in module.make_parser().dataclass_types for field in dataclasses.fields(kind)
        )
        for name, module in (("sft", sft), ("dpo", dpo), ("reward", reward))
    }


def accelerate() -> Any:
    """Keys of the configuration file, and of its sections as the command line names them."""
    from accelerate.commands.config.config_args import ClusterConfig
    from accelerate.commands.launch import launch_command_parser

    options = {action.dest for action in launch_command_parser()._actions}
    return {
        "file": sorted(field.name for field in dataclasses.fields(ClusterConfig)),
        "launch": sorted(options),
    }


def torchtitan() -> Any:
    """Fields of the configuration classes that exports fill in."""
    from torchtitan.components.checkpoint import CheckpointManager
    from torchtitan.config import ParallelismConfig, TrainingConfig

    kinds = {"TrainingConfig": TrainingConfig, "ParallelismConfig": ParallelismConfig}
    kinds["CheckpointManager.Config"] = CheckpointManager.Config  # type: ignore[assignment]
    return {name: sorted(field.name for field in dataclasses.fields(kind)) for name, kind in kinds.items()}


def verl() -> Any:
    """Dotted keys of the configurations that exports override."""
    from importlib.util import find_spec

    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    origin = find_spec("verl")
    assert origin is not None and origin.origin is not None
    found, trainer = {}, Path(origin.origin).parent / "trainer" / "config"
    ahead = Path(origin.origin).parent / "experimental" / "one_step_off_policy" / "config"
    for folder, name, overrides in (
        (trainer, "ppo_trainer", []),
        (trainer, "ppo_megatron_trainer", []),
        (trainer, "sft_trainer_engine/fsdp", []),
        (trainer, "sft_trainer_engine/megatron", ["engine=megatron", "optim=megatron"]),
        (ahead, "one_step_off_ppo_trainer", [f"hydra.searchpath=[file://{trainer}]"]),
        (ahead, "one_step_off_ppo_megatron_trainer", [f"hydra.searchpath=[file://{trainer}]"]),
    ):
        with initialize_config_dir(str(folder), version_base=None):
            config = OmegaConf.to_container(compose(name.split("/")[0], overrides=overrides), resolve=False)
            found[name] = sorted(_dotted(config))
    return found


def _dotted(value: Any, prefix: str = "") -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _dotted(inner, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix


def maxtext(path: str) -> Any:
    """Fields of the configuration classes, and the rematerialization policies."""
    tree = ast.parse(Path(path).read_text(encoding="utf-8"))
    fields, policies = set(), []
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            if node.name == "RematPolicy":
                policies = [s.value.value for s in node.body if isinstance(s, ast.Assign)]  # type: ignore[attr-defined]
            fields |= {
                item.target.id
                for item in node.body
                if isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name)
            }
    return {"fields": sorted(fields), "remat_policies": policies}


def main() -> None:
    """Record one launcher."""
    name, arguments = sys.argv[1], sys.argv[2:]
    recorders = {f.__name__: f for f in (skypilot, megatron, trl, accelerate, torchtitan, verl, maxtext)}
    content = {"source": SOURCES[name], "recorded": recorders[name](*arguments)}
    target = Path(__file__).with_name(f"{name}.keys.json")
    target.write_text(json.dumps(content, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
