"""Records the schemas of custom resources as strict JSON Schemas: ``python record.py FOLDER_OF_CRDS``.

Unknown fields are refused, as ``kubectl apply --validate=strict`` does; descriptions are dropped, rules in CEL kept.
Sources (Apache-2.0): kubernetes-sigs/jobset@08dfbdf config/components/crd/bases, kubernetes-sigs/kueue@ff69552
config/components/crd/bases, kubeflow/trainer@8c0f505 manifests/base/crds; all of 2026-08.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

WANTED = {
    ("jobset.x-k8s.io", "JobSet", "v1alpha2"): "kubernetes-sigs/jobset@08dfbdf",
    ("kueue.x-k8s.io", "ClusterQueue", "v1beta2"): "kubernetes-sigs/kueue@ff69552",
    ("kueue.x-k8s.io", "LocalQueue", "v1beta2"): "kubernetes-sigs/kueue@ff69552",
    ("kueue.x-k8s.io", "ResourceFlavor", "v1beta2"): "kubernetes-sigs/kueue@ff69552",
    ("trainer.kubeflow.org", "TrainJob", "v1alpha1"): "kubeflow/trainer@8c0f505",
}
KEPT = {
    "type", "required", "enum", "pattern", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems",
    "minProperties", "maxProperties", "default", "x-kubernetes-validations",
}  # fmt: skip
MANY = ("allOf", "anyOf", "oneOf")


def strict(schema: dict[str, Any]) -> dict[str, Any]:
    """A structural schema as JSON Schema that refuses unknown fields."""
    found = {key: value for key, value in schema.items() if key in KEPT}
    if "properties" in schema:
        found["properties"] = {name: strict(value) for name, value in schema["properties"].items()}
    extra = schema.get("additionalProperties")
    if isinstance(extra, dict):
        found["additionalProperties"] = strict(extra)
    elif "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        found["additionalProperties"] = False
    if "items" in schema:
        found["items"] = strict(schema["items"])
    for key in MANY:
        if key in schema:
            found[key] = [strict(value) for value in schema[key]]
    if schema.get("x-kubernetes-int-or-string"):
        found.pop("type", None)
        found["anyOf"] = [{"type": "integer"}, {"type": "string"}]
    return found


def main() -> None:
    """Write one file per kind beside this script."""
    for path in sorted(Path(sys.argv[1]).glob("*.yaml")):
        crd = YAML(typ="safe").load(path.read_text(encoding="utf-8"))
        names = crd["spec"]["names"]
        for version in crd["spec"]["versions"]:
            source = WANTED.get((crd["spec"]["group"], names["kind"], version["name"]))
            if source is None:
                continue
            schema = strict(version["schema"]["openAPIV3Schema"])
            schema["properties"]["metadata"] = {"type": "object"}
            schema["properties"].pop("status", None)
            group = f"{crd['spec']['group']}/{version['name']}"
            schema |= {
                "$comment": f"{group} {names['kind']}; {source}, {path.name}; Apache-2.0",
                "title": names["kind"],
            }
            target = Path(__file__).with_name(f"{names['kind'].lower()}.schema.json")
            target.write_text(
                json.dumps(schema, separators=(",", ":"), sort_keys=True) + "\n", encoding="utf-8"
            )


if __name__ == "__main__":
    main()
