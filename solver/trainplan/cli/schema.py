"""``trainplan schema case|plan``: the JSON Schema of the two files of the product."""

from __future__ import annotations

from typing import Annotated, Literal

import typer


def schema(
    what: Annotated[
        Literal["case", "plan"], typer.Argument(metavar="case|plan", help="Which file.", show_default=False)
    ],
) -> None:
    """Print the JSON Schema of a case or of a plan.json."""
    from trainplan.cli.output import print_json

    if what == "case":
        from trainplan_models.casefile import case_schema

        print_json(case_schema())
    else:
        from trainplan_models.plan import Plan

        print_json(Plan.model_json_schema(mode="serialization"))
