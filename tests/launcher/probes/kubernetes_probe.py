"""Objects against Kubernetes' own schemas and the CEL rules of custom resources. Runs in the k8s environment.

Usage: python kubernetes_probe.py SCHEMAS FILE...; ``SCHEMAS`` holds ``kind.schema.json`` of custom resources. Prints
for each file its errors, and how many CEL rules ran.
"""

from __future__ import annotations

import copy
import json
import sys
from pathlib import Path
from typing import Any

import celpy
import jsonschema
import kubernetes_validate
import yaml
from celpy.adapter import json_to_cel

RULES = {"run": 0, "skipped": 0}
ENVIRONMENT = celpy.Environment()


def fill(schema: dict[str, Any], value: Any) -> None:
    """Fill in defaults, as the API server does before it looks at rules."""
    if isinstance(value, dict):
        for key, inner in (schema.get("properties") or {}).items():
            if key not in value and "default" in inner:
                value[key] = copy.deepcopy(inner["default"])
            if key in value:
                fill(inner, value[key])
    elif isinstance(value, list):
        for item in value:
            fill(schema.get("items", {}), item)


def broken_rules(schema: dict[str, Any], value: Any, path: str = "") -> list[str]:
    """CEL rules that the value breaks; rules on changes (``oldSelf``) do not apply to new objects."""
    found = []
    for rule in schema.get("x-kubernetes-validations", []):
        if "oldSelf" in rule["rule"]:
            RULES["skipped"] += 1
            continue
        try:
            holds = ENVIRONMENT.program(ENVIRONMENT.compile(rule["rule"])).evaluate(
                {"self": json_to_cel(value)}
            )
            RULES["run"] += 1
        except Exception:
            RULES["skipped"] += 1
            continue
        if not holds:
            found.append(f"{path}: {rule.get('message', rule['rule'])}")
    if isinstance(value, dict):
        for key, inner in value.items():
            below = (schema.get("properties") or {}).get(key)
            found += broken_rules(below, inner, f"{path}.{key}") if isinstance(below, dict) else []
    elif isinstance(value, list) and isinstance(schema.get("items"), dict):
        for index, item in enumerate(value):
            found += broken_rules(schema["items"], item, f"{path}[{index}]")
    return found


def errors_of(document: dict[str, Any], schemas: Path) -> list[str]:
    """What is wrong with one object."""
    file = schemas / f"{document['kind'].lower()}.schema.json"
    if not file.exists():
        try:
            kubernetes_validate.validate(document, kubernetes_validate.latest_version(), strict=True)
        except kubernetes_validate.ValidationError as error:
            return [str(error.message)]
        return []
    schema = json.loads(file.read_text(encoding="utf-8"))
    fill(schema, document)
    checker = jsonschema.Draft202012Validator(schema)
    found = [
        "/".join(map(str, e.absolute_path)) + ": " + e.message[:200] for e in checker.iter_errors(document)
    ]
    return found or broken_rules(schema, document)


def main() -> None:
    """Check every file named on the command line."""
    schemas = Path(sys.argv[1])
    result: dict[str, Any] = {}
    for path in sys.argv[2:]:
        documents = [one for one in yaml.safe_load_all(Path(path).read_text(encoding="utf-8")) if one]
        result[path] = [error for document in documents for error in errors_of(document, schemas)]
    sys.stdout.write("\n" + json.dumps({"errors": result, "rules": RULES}) + "\n")


if __name__ == "__main__":
    main()
