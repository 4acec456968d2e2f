"""The commands. Each has a module of its own that imports what it needs only when it runs."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from trainplan.cli import catalog
from trainplan.cli.check import check
from trainplan.cli.estimate import estimate
from trainplan.cli.explain import explain
from trainplan.cli.export import export
from trainplan.cli.frontier import frontier
from trainplan.cli.group import Commands
from trainplan.cli.init import init
from trainplan.cli.plan import plan
from trainplan.cli.schema import schema
from trainplan.cli.simulate import simulate
from trainplan.cli.validate import validate
from trainplan.cli.version import version
from trainplan.cli.what_if import what_if

__all__ = ["app"]

app = typer.Typer(
    name="trainplan",
    cls=Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        from trainplan import __version__

        sys.stdout.write(f"trainplan {__version__}\n")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool,
        typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True),
    ] = False,
) -> None:
    """The cheapest way to get a model trained by a date, how sure that is, and what to launch."""


for command in (
    init,
    check,
    plan,
    explain,
    what_if,
    frontier,
    simulate,
    estimate,
    export,
    validate,
    schema,
    version,
):
    app.command()(command)
app.add_typer(catalog.app)
