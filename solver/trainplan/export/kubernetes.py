"""Kubernetes: a JobSet and a Kubeflow TrainJob per unit, with Kueue queues sized to the plan."""

from __future__ import annotations

import csv
import math
from functools import lru_cache
from importlib.resources import files
from typing import Any

from trainplan.export import launcher
from trainplan.export.choice import trainer_for
from trainplan.export.devices import device, is_tpu
from trainplan.export.launch import Launch, LaunchUnit, slug
from trainplan.export.target import Command, Exporter, dump_yaml, header_of, render
from trainplan.export.trainer import unit_files

QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
IMAGE = "REPLACE_ME/training:latest"
REPLICATED_JOB = "node"
RESTART_FACTOR = 3
"""Restarts allowed for each one expected, so that a bad week does not end the run."""


@lru_cache(maxsize=1)
def _mode_labels() -> dict[tuple[str, str], tuple[str, str]]:
    text = files("trainplan.export").joinpath("node_labels.csv").read_text(encoding="utf-8")
    return {
        (row["cloud"], row["mode"]): (row["label"], row["value"]) for row in csv.DictReader(text.splitlines())
    }


def node_selector(unit: LaunchUnit) -> dict[str, str]:
    """Labels of the nodes a unit may use: region, instance type, billing mode."""
    segment = unit.segment
    if unit.owned:
        return {}
    found = {"topology.kubernetes.io/region": segment.region}
    if is_tpu(segment.accelerator):
        found["cloud.google.com/gke-tpu-accelerator"] = "REPLACE_ME"
        found["cloud.google.com/gke-tpu-topology"] = "REPLACE_ME"
    else:
        found["node.kubernetes.io/instance-type"] = segment.instance_type
    mode = _mode_labels().get((segment.cloud, segment.mode))
    return found | ({mode[0]: mode[1]} if mode is not None else {})


def flavor(unit: LaunchUnit) -> str:
    """Name of the Kueue flavor and queue of a unit's pool and billing mode."""
    return slug(f"{unit.segment.pool.replace('/', '-')}-{unit.segment.mode}", 60)


def labels(unit: LaunchUnit) -> dict[str, str]:
    """The unit's labels in the form Kubernetes accepts."""
    return {slug(key, 60): slug(value, 60) for key, value in unit.labels}


def max_restarts(unit: LaunchUnit) -> int:
    """Restarts before the job set gives up: three times the interruptions the plan expects, and three."""
    mtbf_s = unit.segment.checkpoint.mtbf_s
    expected = unit.window_s / mtbf_s if mtbf_s > 0 else 0.0
    return 3 + math.ceil(RESTART_FACTOR * expected)


def job_set(launch: Launch, unit: LaunchUnit) -> dict[str, Any]:
    """The JobSet of a unit."""
    nodes = unit.segment.nodes
    job: dict[str, Any] = {
        "parallelism": nodes,
        "completions": nodes,
        "completionMode": "Indexed",
        "backoffLimit": 0,
        "template": {"metadata": {"labels": labels(unit)}, "spec": _pod(launch, unit)},
    }
    policy: dict[str, Any] = {"maxRestarts": max_restarts(unit), "restartStrategy": "Recreate"}
    if unit.preemptible:
        rule = {"action": "FailJob", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
        job["podFailurePolicy"] = {"rules": [rule]}
        policy["rules"] = [
            {
                "name": "Preempted",
                "action": "RestartJobSetAndIgnoreMaxRestarts",
                "onJobFailureReasons": ["PodFailurePolicy"],
            }
        ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": _metadata(unit),
        "spec": {
            "suspend": True,
            "network": {"enableDNSHostnames": True},
            "failurePolicy": policy,
            "replicatedJobs": [{"name": REPLICATED_JOB, "replicas": 1, "template": {"spec": job}}],
        },
    }


def _metadata(unit: LaunchUnit) -> dict[str, Any]:
    return {
        "name": unit_name(unit),
        "labels": labels(unit) | {QUEUE_LABEL: flavor(unit)},
        "annotations": {
            "trainplan/checkpoint-target": unit.segment.checkpoint.target,
            "trainplan/checkpoint-steps": str(unit.interval_steps),
            "trainplan/keep-last": str(unit.keep_last),
        },
    }


def unit_name(unit: LaunchUnit) -> str:
    """The unit's name as an object name: DNS labels of services start with a letter."""
    return f"u{unit.name}"


def _pod(launch: Launch, unit: LaunchUnit) -> dict[str, Any]:
    name = unit_name(unit)
    address = f"{name}-{REPLICATED_JOB}-0-0.{name}"
    command = (
        f"export TRAINPLAN_NODE_RANK=$JOB_COMPLETION_INDEX TRAINPLAN_MASTER_ADDR={address}\n"
        f"cp -rL /trainplan /tmp/trainplan && exec bash /tmp/trainplan/{unit.name}.sh\n"
    )
    found: dict[str, Any] = {
        "restartPolicy": "Never",
        "nodeSelector": node_selector(unit),
        "tolerations": [{"key": device(unit.segment.accelerator).kubernetes_resource, "operator": "Exists"}],
        "containers": [
            {
                "name": "train",
                "image": IMAGE,
                "command": ["bash", "-c", command],
                "env": _environment(launch, unit),
                "resources": {"limits": _limits(unit), "requests": _limits(unit)},
                "volumeMounts": [
                    {"name": "files", "mountPath": "/trainplan"},
                    {"name": "checkpoints", "mountPath": "/checkpoints"},
                    {"name": "data", "mountPath": "/data"},
                    {"name": "shm", "mountPath": "/dev/shm"},
                ],
            }
        ],
        "volumes": [
            {"name": "files", "configMap": {"name": f"{name}-files"}},
            {"name": "checkpoints", "persistentVolumeClaim": {"claimName": "checkpoints"}},
            {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
            {"name": "shm", "emptyDir": {"medium": "Memory"}},
        ],
    }
    return {key: value for key, value in found.items() if value}


def _environment(launch: Launch, unit: LaunchUnit) -> list[dict[str, str]]:
    values = {"CHECKPOINT_DIR": f"/checkpoints/{unit.task.name}", "DATA": "/data"}
    if launch.day0 is not None:
        values["TRAINPLAN_DAY0"] = str(launch.day0)
    return [{"name": key, "value": value} for key, value in values.items()]


def _limits(unit: LaunchUnit) -> dict[str, str]:
    return {device(unit.segment.accelerator).kubernetes_resource: str(unit.segment.accelerators_per_node)}


def train_job(launch: Launch, unit: LaunchUnit) -> dict[str, Any]:
    """The Kubeflow TrainJob of a unit, on the runtime ``torch-distributed``."""
    command = (
        "export TRAINPLAN_NODE_RANK=$PET_NODE_RANK TRAINPLAN_MASTER_ADDR=$PET_MASTER_ADDR "
        "TRAINPLAN_MASTER_PORT=$PET_MASTER_PORT\n"
        f"cp -rL /trainplan /tmp/trainplan && exec bash /tmp/trainplan/{unit.name}.sh\n"
    )
    pod = _pod(launch, unit)
    mounts = pod["containers"][0]["volumeMounts"]
    patch: dict[str, Any] = {
        key: pod[key] for key in ("nodeSelector", "tolerations", "volumes") if key in pod
    }
    patch["containers"] = [{"name": "node", "volumeMounts": mounts}]
    job = {"name": "node", "template": {"spec": {"template": {"spec": patch}}}}
    spec: dict[str, Any] = {
        "suspend": True,
        "runtimeRef": {"name": "torch-distributed"},
        "trainer": {
            "image": IMAGE,
            "numNodes": unit.segment.nodes,
            "numProcPerNode": unit.processes_per_node,
            "command": ["bash", "-c", command],
            "env": _environment(launch, unit),
            "resourcesPerNode": {"limits": _limits(unit), "requests": _limits(unit)},
        },
        "runtimePatches": [
            {
                "manager": "trainplan/export",
                "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [job]}}},
            }
        ],
    }
    return {
        "apiVersion": "trainer.kubeflow.org/v1alpha1",
        "kind": "TrainJob",
        "metadata": _metadata(unit),
        "spec": spec,
    }


def queues(launch: Launch) -> list[dict[str, Any]]:
    """Kueue flavors, one cluster queue per flavor with room for the widest unit and its spares, local queues."""
    found: list[dict[str, Any]] = []
    by_flavor: dict[str, list[LaunchUnit]] = {}
    for unit in launch.units:
        by_flavor.setdefault(flavor(unit), []).append(unit)
    for name, units in by_flavor.items():
        nodes = max(unit.segment.nodes + unit.segment.spare_nodes for unit in units)
        resource = device(units[0].segment.accelerator).kubernetes_resource
        quota = {"name": resource, "nominalQuota": nodes * units[0].segment.accelerators_per_node}
        selector = node_selector(units[0])
        found += [
            _object("ResourceFlavor", name, {"nodeLabels": selector} if selector else {}),
            _object(
                "ClusterQueue",
                name,
                {
                    "namespaceSelector": {},
                    "resourceGroups": [
                        {"coveredResources": [resource], "flavors": [{"name": name, "resources": [quota]}]}
                    ],
                },
            ),
            _object("LocalQueue", name, {"clusterQueue": name}),
        ]
    return found


def _object(kind: str, name: str, spec: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": kind, "metadata": {"name": name}}
    return found | ({"spec": spec} if spec else {})


def config_map(unit: LaunchUnit) -> dict[str, Any]:
    """Start script and trainer files of a unit."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": f"{unit_name(unit)}-files", "labels": labels(unit)},
        "data": unit_files(unit, trainer_for(unit)),
    }


def _files(launch: Launch) -> dict[str, str]:
    found = {"kueue.yaml": dump_yaml(*queues(launch), header=f"plan {launch.plan_id}: queues")}
    for unit in launch.units:
        found[f"{unit.name}.yaml"] = dump_yaml(
            config_map(unit), job_set(launch, unit), header=header_of(unit)
        )
        if not is_tpu(unit.segment.accelerator):
            found[f"trainjob/{unit.name}.yaml"] = dump_yaml(
                config_map(unit), train_job(launch, unit), header=header_of(unit)
            )
    found["launch.sh"] = render(
        "kubernetes_launch.sh.j2", launch=launch, names={u.name: unit_name(u) for u in launch.units}
    )
    commands = {
        spot.name: f"kubectl delete jobset {unit_name(spot)} --wait=true\nkubectl apply -f {safe.name}.yaml"
        for spot, safe in launch.fallbacks()
    }
    return found | launcher.fallback_files(launch, commands)


def _commands(launch: Launch) -> list[Command]:
    found = [
        Command("make the queues", "kubectl apply -f kueue.yaml"),
        Command("start units as their turn comes, until all are done", "./launch.sh --watch"),
    ]
    for spot, safe in launch.fallbacks():
        found.append(
            Command(
                f"whether to leave {spot.name} for {safe.name} now (exit code 10: yes)",
                f"./fallback.sh {spot.name}",
            )
        )
    return found


def _cannot_express(launch: Launch) -> list[str]:
    found = [
        "`trainjob/` has the same units for the Kubeflow Trainer; apply one form or the other, not both.",
        "Order and windows: a JobSet does not wait for another one; `launch.sh` does, and deletes a unit whose window "
        "is over before the next one starts.",
    ]
    for unit in launch.units:
        if unit.segment.spare_nodes:
            found.append(
                f"{unit.name}: {unit.segment.spare_nodes} spare nodes are quota in `kueue.yaml`; keep them warm with "
                "the node pool's minimum size."
            )
        if (
            not unit.owned
            and (unit.segment.cloud, unit.segment.mode) not in _mode_labels()
            and unit.segment.mode != "on-demand"
        ):
            found.append(
                f"{unit.name}: no node label is known for {unit.segment.mode} on {unit.segment.cloud}; add it."
            )
    return found + launcher.trainer_notes(launch)


def _placeholders(launch: Launch) -> list[str]:
    found = [
        f"`{IMAGE}`: the image with the training software.",
        "Persistent volume claims `checkpoints` and `data` in the namespace (ReadWriteMany).",
    ]
    if any("REPLACE_ME" in node_selector(unit).values() for unit in launch.units):
        found.append("`REPLACE_ME` in node selectors: reservation name, TPU type and topology.")
    return found + launcher.placeholders(launch)


EXPORTER = Exporter(
    name="kubernetes",
    title="Kubernetes (JobSet with Kueue, TrainJob)",
    checked="jobset v1alpha2, kueue v1beta2, kubeflow trainer v1alpha1 (2026-08)",
    files=_files,
    commands=_commands,
    cannot_express=_cannot_express,
    placeholders=_placeholders,
)
