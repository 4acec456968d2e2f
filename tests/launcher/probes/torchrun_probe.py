"""torchrun's own command line on the words of start scripts. Runs in the trainers' environment, on CPU.

Usage: python torchrun_probe.py JSON, a list of lists of words after ``torchrun``; prints one result for each.
"""

from __future__ import annotations

import json
import logging
import sys
from typing import Any


def parsed(words: list[str]) -> dict[str, Any]:
    """What torchrun would start."""
    from torch.distributed.run import config_from_args, parse_args

    arguments = parse_args(words)
    config, command, rest = config_from_args(arguments)
    return {
        "nodes": [config.min_nodes, config.max_nodes],
        "processes": config.nproc_per_node,
        "backend": config.rdzv_backend,
        "endpoint": config.rdzv_endpoint,
        "run_id": config.run_id,
        "restarts": config.max_restarts,
        "node_rank": arguments.node_rank,
        "command": [str(command), *rest],
    }


def main() -> None:
    """Check every unit given."""
    logging.disable(logging.WARNING)
    results: list[dict[str, Any]] = []
    for words in json.loads(sys.argv[1]):
        try:
            results.append(parsed(words))
        except (Exception, SystemExit) as error:
            results.append({"error": f"{type(error).__name__}: {error}"})
    sys.stdout.write("\n" + json.dumps(results, default=str) + "\n")


if __name__ == "__main__":
    main()
