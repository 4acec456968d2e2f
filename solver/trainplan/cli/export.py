"""``trainplan export PLAN --to TARGET``: the files a launcher takes."""

from __future__ import annotations

import sys
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
    for path in write_files(output or Path(to), texts):
        sys.stdout.write(f"{path}\n")
