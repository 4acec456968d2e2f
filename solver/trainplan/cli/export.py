"""``trainplan export PLAN --to TARGET``: the files a launcher takes."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer

from trainplan.cli.options import AsJson


def export(
    plan: Annotated[
        Path, typer.Argument(metavar="PLAN", help="A plan.json that plan -o wrote.", show_default=False)
    ],
    to: Annotated[
        str,
        typer.Option(
            "--to", metavar="TARGET", help="Which launcher; a wrong name lists them.", show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="DIR", help="Where to; without it, a directory named TARGET."),
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Write into a directory that is not empty, over an older export.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Write the files that a launcher takes."""
    from trainplan import export as exports
    from trainplan.cli.inputs import load_plan
    from trainplan.cli.output import print_json, write_files

    texts = exports.export(load_plan(plan), to)
    if as_json:
        print_json(texts)
        return
    directory = output or Path(to)
    _refuse_what_is_there(directory, force=force)
    old = _files_of_older_export(directory)
    for path in write_files(directory, texts):
        sys.stdout.write(f"{path}\n")
    _remove(directory, old, texts)


def _refuse_what_is_there(directory: Path, *, force: bool) -> None:
    from trainplan_models.base import InputError, Problem

    if directory.exists() and not directory.is_dir():
        raise InputError(Problem(f"{directory} is a file", key="--output", fix="Name a directory"))
    if directory.is_dir() and any(directory.iterdir()) and not force:
        fix = "Name another with --output, or add --force to write over it"
        raise InputError(Problem(f"{directory} is not empty", key="--output", fix=fix))


def _files_of_older_export(directory: Path) -> list[str]:
    """What an export wrote there before, as its order file says."""
    try:
        order = json.loads((directory / "order.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return []
    files = order.get("files", []) if isinstance(order, dict) else []
    return [name for name in files if isinstance(name, str)]


def _remove(directory: Path, old: list[str], texts: Mapping[str, str]) -> None:
    """Take away files of the older export that the new one does not have, and nothing outside the directory."""
    for name in old:
        path = directory / name
        if name not in texts and directory.resolve() in path.resolve().parents:
            path.unlink(missing_ok=True)
