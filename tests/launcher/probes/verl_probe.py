"""Hydra with verl's own configuration files on exported overrides. Runs in verl's environment (no torch).

Usage: python verl_probe.py JSON, a list of {"config": "...", "overrides": [...]}; prints the composed configuration.
"""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf


def main() -> None:
    """Compose every unit given."""
    found = find_spec("verl")
    assert found is not None and found.origin is not None
    verl = Path(found.origin).parent
    results: list[Any] = []
    for unit in json.loads(sys.argv[1]):
        ahead = unit["config"].startswith("one_step_off")
        folder = verl / ("experimental/one_step_off_policy" if ahead else "trainer") / "config"
        with initialize_config_dir(str(folder), version_base=None):
            try:
                config = compose(config_name=unit["config"], overrides=unit["overrides"])
                results.append(OmegaConf.to_container(config, resolve=False))
            except Exception as error:
                results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
