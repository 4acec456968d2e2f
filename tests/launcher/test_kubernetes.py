"""Every exported object against Kubernetes' schemas, the schemas of the custom resources and their CEL rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from ruamel.yaml import YAML

from .launching import HERE, Unit, probe

pytestmark = pytest.mark.launcher

SCHEMAS = HERE / "schemas"


@pytest.fixture(scope="module")
def checked(exported: dict[str, list[Unit]]) -> dict[str, Any]:
    files = sorted({str(path) for unit in exported["kubernetes"] for path in unit.folder.rglob("*.yaml")})
    result: dict[str, Any] = probe("k8s", "kubernetes_probe.py", str(SCHEMAS), *files)
    return result


def test_every_object_is_accepted(checked: dict[str, Any]) -> None:
    assert len(checked["errors"]) > 20
    assert {path: errors for path, errors in checked["errors"].items() if errors} == {}
    assert checked["rules"]["run"] > 0


WRONG = (
    ("{name}.yaml", "parallelism: 8", "parallelisms: 8"),
    ("{name}.yaml", "parallelism: 8", "parallelism: eight"),
    ("{name}.yaml", "maxRestarts:", "maxRestart:"),
    ("{name}.yaml", "restartStrategy: Recreate", "restartStrategy: Again"),
    ("{name}.yaml", "RestartJobSetAndIgnoreMaxRestarts", "IgnoreIt"),
    ("{name}.yaml", "mountPath: /checkpoints", "mount: /checkpoints"),
    ("trainjob/{name}.yaml", "numNodes:", "nodes:"),
    ("trainjob/{name}.yaml", "numProcPerNode: 8", 'numProcPerNode: "8"'),
    ("trainjob/{name}.yaml", "numProcPerNode: 8", "numProcPerNode: 0"),
)


def test_wrong_objects_are_refused(exported: dict[str, list[Unit]], tmp_path: Path) -> None:
    unit = next(u for u in exported["kubernetes"] if u.plan == "dense_spot" and u.segment.mode == "spot")
    files = []
    for number, (path, old, new) in enumerate(WRONG):
        text = (unit.folder / path.format(name=unit.name)).read_text(encoding="utf-8")
        assert old in text
        bad = tmp_path / f"{number}.yaml"
        bad.write_text(text.replace(old, new), encoding="utf-8")
        files.append(str(bad))
    errors = probe("k8s", "kubernetes_probe.py", str(SCHEMAS), *files)["errors"]
    assert [wrong for wrong, file in zip(WRONG, files, strict=True) if not errors[file]] == []


def test_every_number_comes_back(exported: dict[str, list[Unit]]) -> None:
    """From the objects as the API server stores them: nodes, accelerators, interval and keep-k."""
    for unit in exported["kubernetes"]:
        s = unit.segment
        objects = {one["kind"]: one for one in documents(unit.folder / f"{unit.name}.yaml")}
        job_set = objects["JobSet"]
        (job,) = job_set["spec"]["replicatedJobs"]
        spec = job["template"]["spec"]
        assert (job["replicas"], spec["parallelism"], spec["completions"]) == (1, s.nodes, s.nodes), unit.id
        (container,) = spec["template"]["spec"]["containers"]
        assert [int(count) for count in container["resources"]["limits"].values()] == [
            s.accelerators_per_node
        ]
        notes = job_set["metadata"]["annotations"]
        assert notes["trainplan/checkpoint-steps"] == str(unit.interval_steps), unit.id
        assert notes["trainplan/keep-last"] == str(unit.keep_last)
        assert f"{unit.name}.sh" in objects["ConfigMap"]["data"]
        file = unit.folder / "trainjob" / f"{unit.name}.yaml"
        assert file.exists() is not s.accelerator.startswith("TPU")
        if file.exists():
            (trainer,) = [one["spec"]["trainer"] for one in documents(file) if one["kind"] == "TrainJob"]
            assert (trainer["numNodes"], trainer["numNodes"] * trainer["numProcPerNode"]) == (
                s.nodes,
                unit.world,
            )


def documents(path: Path) -> list[Any]:
    return list(YAML(typ="safe").load_all(path.read_text(encoding="utf-8")))


def test_queues_have_room_for_nodes_and_spares(exported: dict[str, list[Unit]]) -> None:
    for unit in exported["kubernetes"]:
        text = (unit.folder / "kueue.yaml").read_text(encoding="utf-8")
        queues = {
            one["metadata"]["name"]: one
            for one in YAML(typ="safe").load_all(text)
            if one["kind"] == "ClusterQueue"
        }
        documents = list(
            YAML(typ="safe").load_all((unit.folder / f"{unit.name}.yaml").read_text(encoding="utf-8"))
        )
        job_set = next(one for one in documents if one["kind"] == "JobSet")
        queue = queues[job_set["metadata"]["labels"]["kueue.x-k8s.io/queue-name"]]
        room = queue["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["nominalQuota"]
        s = unit.segment
        assert room >= (s.nodes + s.spare_nodes) * s.accelerators_per_node
