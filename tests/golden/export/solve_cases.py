"""Solves the cases that ship and writes their plans beside this file, sources on the path."""

from __future__ import annotations

import sys
from pathlib import Path


def solve_cases(folder: Path) -> None:
    """Solve the cases that ship and write their plans."""
    from trainplan.planning import plan as solve
    from trainplan_models.base import TrainplanError
    from trainplan_models.casefile import load_case
    from trainplan_models.catalog import builtin

    for path in sorted((folder.parents[2] / "cases").glob("*.yaml")):
        try:
            found = solve(load_case(path), builtin(), compare=False)
        except TrainplanError as error:
            sys.stdout.write(f"{path.stem}: {str(error).splitlines()[0]}\n")
            continue
        (folder / f"case-{path.stem}.plan.json").write_text(
            found.model_dump_json(indent=1) + "\n", encoding="utf-8"
        )
        sys.stdout.write(f"{path.stem}: {len(found.segments)} segments\n")


if __name__ == "__main__":
    solve_cases(Path(__file__).parent)
