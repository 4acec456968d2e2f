"""SkyPilot's own parser on task files: prints what it understood as JSON. Runs in SkyPilot's environment.

Usage: python skypilot_probe.py HOME CATALOG FILE...

``HOME`` is an empty directory of its own; ``CATALOG`` a JSON list of rows (cloud, region, zone, instance type,
accelerator, count) that is laid where SkyPilot keeps a catalogue edited by hand, so that nothing is fetched. A row
whose cloud is ``slurm`` only names a cluster, as its region.
"""

from __future__ import annotations

import csv
import json
import os
import sys
from pathlib import Path
from typing import Any

COLUMNS = {
    "InstanceType": "instance_type", "AcceleratorName": "accelerator", "AcceleratorCount": "count", "Region": "region",
    "AvailabilityZone": "zone", "Price": "price", "SpotPrice": "spot_price", "vCPUs": "vcpus", "MemoryGiB": "memory",
    "GpuInfo": "gpu_info",
}  # fmt: skip
CLUSTER = "Host {region}\n  HostName 127.0.0.1\n  User nobody\n"
"""A cluster SkyPilot may send jobs to, in the form of an SSH configuration."""


def lay_catalog(home: Path, rows: list[dict[str, Any]]) -> None:
    """Write the rows as SkyPilot's catalogue files, and its list of clusters, under ``home``."""
    clusters = {row["region"] for row in rows if row["cloud"] == "slurm"}
    rows = [row for row in rows if row["cloud"] != "slurm"]
    for cloud in {row["cloud"] for row in rows}:
        folder = home / ".sky" / "catalogs" / "v8" / cloud
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / "vms.csv").open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(COLUMNS)
            for row in rows:
                if row["cloud"] == cloud:
                    writer.writerow([row.get(key, "") for key in COLUMNS.values()])
    common = home / ".sky" / "catalogs" / "v8" / "common"
    common.mkdir(parents=True, exist_ok=True)
    names = sorted({row["accelerator"] for row in rows})
    names += ["A100", "H100"]
    lines = ["AcceleratorName,Clouds", *(f"{name},AWS" for name in names)]
    (home / ".slurm").mkdir(exist_ok=True)
    (home / ".slurm" / "config").write_text(
        "".join(CLUSTER.format(region=name) for name in sorted(clusters)), encoding="utf-8"
    )
    (common / "accelerators.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")


def understood(path: str) -> list[dict[str, Any]]:
    """The tasks of a file as SkyPilot parsed and validated them."""
    from sky.utils import dag_utils

    found = []
    for task in dag_utils.load_dag_from_yaml(path).tasks:
        resources = list(task.resources)
        for one in resources:
            one.validate()
        found.append(
            {
                "name": task.name,
                "num_nodes": task.num_nodes,
                "ordered": isinstance(task.resources, list),
                "resources": [
                    {
                        "cloud": str(one.cloud).lower(),
                        "region": one.region,
                        "instance_type": one.instance_type,
                        "accelerators": one.accelerators,
                        "use_spot": one.use_spot,
                        "job_recovery": one.job_recovery,
                        "labels": dict(one.labels or {}),
                    }
                    for one in resources
                ],
                "envs": dict(task.envs),
                "stores": {path: storage.name for path, storage in task.storage_mounts.items()},
                "run": task.run,
            }
        )
    return found


def main() -> None:
    """Parse every file named on the command line."""
    home, rows = Path(sys.argv[1]), json.loads(sys.argv[2])
    lay_catalog(home, rows)
    os.environ["HOME"] = str(home)
    result: dict[str, Any] = {}
    for path in sys.argv[3:]:
        try:
            result[path] = {"tasks": understood(path)}
        except Exception as error:
            result[path] = {"error": f"{type(error).__name__}: {error}"}
    sys.stdout.write("\n" + json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
