"""Arguments and options that several commands share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

CaseFile = Annotated[Path, typer.Argument(metavar="CASE", help="The case, a YAML file.", show_default=False)]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Replace a value of the case, e.g. --set 'deadline=20 days'. May be repeated.",
    ),
]
CatalogDirectory = Annotated[
    Path | None,
    typer.Option("--catalog", metavar="DIR", help="A directory of your own rows, laid over the catalogue."),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON on stdout, failures too.")]
Risk = Annotated[
    bool,
    typer.Option(
        "--risk/--no-risk", help="Whether plans are simulated and tightened to the wanted reliability."
    ),
]
PointTimeLimit = Annotated[
    str, typer.Option(metavar="TIME", help="Longest time to search for the best plan of a point.")
]
