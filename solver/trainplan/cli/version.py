"""``trainplan version``: what is installed, for bug reports and provenance."""

from __future__ import annotations

import sys

from trainplan.cli.options import AsJson

DEPENDENCIES = ("pyomo", "highspy", "numpy", "pydantic", "scipy", "typer")


def version(as_json: AsJson = False) -> None:
    """Print what is installed, for bug reports."""
    import platform
    from importlib import metadata

    from trainplan import __version__
    from trainplan.cli.output import print_json

    versions = {"trainplan": __version__, "python": platform.python_version()}
    versions |= {name: metadata.version(name) for name in DEPENDENCIES}
    if as_json:
        print_json(versions)
    else:
        sys.stdout.writelines(f"{name} {value}\n" for name, value in versions.items())
