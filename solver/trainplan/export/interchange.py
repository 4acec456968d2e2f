"""The plan itself with its JSON Schema, for programs that read it."""

from __future__ import annotations

from typing import Any

from trainplan.export.launch import Launch
from trainplan.export.target import Command, Exporter, dump_json
from trainplan_models.plan import SCHEMA_VERSION, Plan


def plan_schema() -> dict[str, Any]:
    """JSON Schema (2020-12) of ``plan.json``."""
    schema = Plan.model_json_schema(mode="validation")
    head = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"trainplan plan, schema version {SCHEMA_VERSION}",
    }
    return head | {key: value for key, value in schema.items() if key != "title"}


def _files(launch: Launch) -> dict[str, str]:
    return {
        "plan.json": launch.plan.model_dump_json(indent=2) + "\n",
        "plan.schema.json": dump_json(plan_schema()),
    }


EXPORTER = Exporter(
    name="json",
    title="plan.json",
    checked="JSON Schema 2020-12",
    separate_roles=True,
    files=_files,
    commands=lambda _launch: [
        Command("check the plan", "check-jsonschema --schemafile plan.schema.json plan.json")
    ],
)
