"""SkyPilot's own task parser and resource checks on every exported task and pipeline."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from trainplan.export.devices import is_tpu
from trainplan_models.catalog import builtin

from .launching import Unit, probe, python_of, read_plan

pytestmark = pytest.mark.launcher

SKY_NAMES = {"H100-SXM": "H100", "H200-SXM": "H200", "A100-SXM-80GB": "A100-80GB", "B200-SXM": "B200"}


def rows_for(units: list[Unit]) -> list[dict[str, Any]]:
    """A row of SkyPilot's catalogue for every machine the units want, and one for every cluster."""
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for unit in units:
        s = unit.segment
        if s.cloud == s.region:
            found["slurm", s.region, ""] = {"cloud": "slurm", "region": s.region}
            continue
        row: dict[str, Any] = {"cloud": s.cloud, "region": s.region, "zone": f"{s.region}-a", "price": 50.0}
        row |= {"spot_price": 20.0, "vcpus": 192, "memory": 1800, "instance_type": s.instance_type}
        row |= {"accelerator": SKY_NAMES.get(s.accelerator, s.accelerator), "count": s.accelerators_per_node}
        if is_tpu(s.accelerator):
            chips = int(s.instance_type.rsplit("-", 1)[1]) * s.nodes
            row |= {
                "instance_type": "",
                "count": 1,
                "accelerator": f"{s.instance_type.rsplit('-', 1)[0]}-{chips}",
            }
        found[s.cloud, s.region, row["instance_type"] or row["accelerator"]] = row
    for cloud in ("aws", "gcp"):
        row = {
            "cloud": cloud,
            "region": "x-1",
            "zone": "x-1a",
            "price": 5.0,
            "instance_type": "x",
            "vcpus": 8,
        }
        found[cloud, "x-1", "x"] = row | {"memory": 8, "accelerator": "A100-80GB", "count": 8}
    return list(found.values())


@pytest.fixture(scope="module")
def parsed(exported: dict[str, list[Unit]], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    units = exported["skypilot"]
    files = sorted(
        {str(path) for unit in units for path in unit.folder.glob("*.yaml") if path.name[0] in "0123456789p"}
    )
    rows = json.dumps(rows_for(units))
    result: dict[str, Any] = probe(
        "sky", "skypilot_probe.py", str(tmp_path_factory.mktemp("home")), rows, *files
    )
    return result


def test_every_file_is_accepted(parsed: dict[str, Any]) -> None:
    assert parsed
    assert {path: one["error"] for path, one in parsed.items() if "error" in one} == {}


def test_every_number_comes_back(exported: dict[str, list[Unit]], parsed: dict[str, Any]) -> None:
    for unit in exported["skypilot"]:
        (task,) = parsed[str(unit.folder / f"{unit.name}.yaml")]["tasks"]
        first = task["resources"][0]
        s = unit.segment
        assert task["name"] == unit.name
        assert task["num_nodes"] == (1 if is_tpu(s.accelerator) else s.nodes), unit.id
        assert f"trainer/{unit.name}.sh" in task["run"]
        assert first["labels"]["trainplan-unit"] == unit.name
        if s.cloud == s.region:
            assert first["cloud"] == "slurm"
            assert list(first["accelerators"].values()) == [s.accelerators_per_node]
            continue
        assert (first["cloud"], first["region"], first["use_spot"]) == (
            s.cloud,
            s.region,
            s.mode == "spot",
        ), unit.id
        if not is_tpu(s.accelerator):
            assert first["instance_type"] == s.instance_type
            assert list(first["accelerators"].values()) == [s.accelerators_per_node]
        assert bool(first["job_recovery"]) is (s.mode == "spot")
        tiers = {tier.name: tier.kind for tier in builtin().tiers}
        mounted = tiers.get(s.checkpoint.target) == "object" and s.cloud in (
            "aws",
            "gcp",
            "azure",
            "oci",
            "nebius",
        )
        assert ("/checkpoints" in task["stores"]) is mounted, unit.id


def test_pipelines_hold_their_units_in_order(exported: dict[str, list[Unit]], parsed: dict[str, Any]) -> None:
    seen = 0
    for path, one in parsed.items():
        if Path(path).name.startswith("pipeline-"):
            names = [task["name"] for task in one["tasks"]]
            assert names == sorted(names)
            assert len(names) > 1
            seen += 1
    assert seen


def test_spot_falls_back_to_on_demand_in_order(
    parsed: dict[str, Any], exported: dict[str, list[Unit]]
) -> None:
    unit = next(u for u in exported["skypilot"] if u.plan == "dense_spot" and u.segment.mode == "spot")
    (task,) = parsed[str(unit.folder / f"{unit.name}.yaml")]["tasks"]
    assert task["ordered"]
    assert [one["use_spot"] for one in task["resources"]] == [True, False]
    assert read_plan("dense_spot").segments[1].mode == "on-demand"


WRONG = (
    ("num_nodes: 8", "num_node: 8"),
    ("num_nodes: 8", "num_nodes: 0"),
    ("use_spot: true", "use_spots: true"),
    ("infra: aws/us-east-1", "infra: awss/us-east-1"),
    ("infra: aws/us-east-1", "infra: aws/us-nowhere-1"),
    ("instance_type: p5.48xlarge", "instance_type: p5.49xlarge"),
    ("strategy: FAILOVER", "strategy: HOPE"),
)


def test_sky_refuses_what_is_wrong(exported: dict[str, list[Unit]], tmp_path: Path) -> None:
    unit = next(u for u in exported["skypilot"] if u.plan == "dense_spot")
    text = (unit.folder / f"{unit.name}.yaml").read_text(encoding="utf-8")
    files = []
    for number, (old, new) in enumerate(WRONG):
        assert old in text
        bad = tmp_path / f"{number}.yaml"
        bad.write_text(text.replace(old, new), encoding="utf-8")
        files.append(str(bad))
    home = tmp_path / "home"
    home.mkdir()
    found = probe("sky", "skypilot_probe.py", str(home), json.dumps(rows_for([unit])), *files)
    assert [wrong for wrong, file in zip(WRONG, files, strict=True) if "error" not in found[file]] == []


def test_reservation_file_is_a_sky_configuration(exported: dict[str, list[Unit]]) -> None:
    python_of("sky")
    unit = next(u for u in exported["skypilot"] if u.plan == "capacity_block")
    assert "cr-REPLACE_ME" in (unit.folder / "sky-config.yaml").read_text(encoding="utf-8")
