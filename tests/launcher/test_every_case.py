"""Every shipped case on every target: its launcher takes all of it, or the export is refused with the reason."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ruamel.yaml import YAML

from trainplan.export import EXPORTERS

from .accepting import CHECKS, Environment, Errors
from .accepting import slurm as slurm_check
from .conftest import Exports
from .launching import HERE, Unit, plan_names
from .slurm_cluster import Cluster
from .starting import numbers, start

pytestmark = pytest.mark.launcher

CASES = sorted(path.stem for path in (HERE.parents[1] / "cases").glob("*.yaml"))
NO_PLAN = {"too-soon"}
"""Cases that no plan can satisfy: what they show is the explanation."""
ONE_GROUP_ONLY = {"rl-two-pools": {"json"}, "rl-split-cluster": {"json", "verl"}}
"""Cases whose plans generate on other nodes than they train on, with the targets that can start both groups."""
TRAINERS = ("torchtitan", "megatron", "deepspeed", "accelerate", "trl", "verl", "maxtext")


def test_every_case_has_a_plan_to_export() -> None:
    assert {case for case in CASES if f"case-{case}" not in plan_names()} == NO_PLAN


@pytest.fixture(scope="module")
def errors(
    exports: Exports,
    shell_environment: Environment,
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
) -> dict[str, Errors | None]:
    """By target: what its launcher says to every unit; None where the launcher is not installed here."""
    found: dict[str, Errors | None] = {}
    for target in EXPORTERS:
        try:
            check = CHECKS[target] if target in CHECKS else slurm_check(_cluster(request))
            folder = tmp_path_factory.mktemp(target)
            found[target] = check(exports.units[target], shell_environment, folder)
        except pytest.skip.Exception:
            found[target] = None
    return found


def _cluster(request: pytest.FixtureRequest) -> Cluster:
    cluster = request.getfixturevalue("slurm")
    assert isinstance(cluster, Cluster)
    return cluster


def cell(exports: Exports, errors: dict[str, Errors | None], plan: str, target: str) -> str:
    """What became of a plan on a target, in a few words."""
    if (plan, target) in exports.refused:
        return "no task for it" if "has no task for" in str(exports.refused[plan, target]) else "refused"
    said = errors[target]
    if said is None:
        return "exported"
    of_plan = [unit for unit in exports.units[target] if unit.plan == plan]
    wrong = [unit for unit in of_plan if said[unit.id]]
    return f"{len(of_plan)} WRONG" if wrong else f"{len(of_plan)} accepted"


def test_every_case_is_taken_or_refused_by_every_target(
    exports: Exports, errors: dict[str, Errors | None], capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        [case, *(cell(exports, errors, f"case-{case}", target) for target in EXPORTERS)]
        for case in CASES
        if case not in NO_PLAN
    ]
    table = [["case", *EXPORTERS], *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    with capsys.disabled():
        for row in ([""], *table):
            print("  ".join(word.ljust(width) for word, width in zip(row, widths, strict=False)).rstrip())
        for target in [target for target, said in errors.items() if said is None]:
            print(f"{target}: exported only, its launcher is not installed here")
    wrong = {
        f"{target}: {unit}": error
        for target, said in errors.items()
        for unit, error in (said or {}).items()
        if error
    }
    assert wrong == {}


def test_every_refusal_has_its_reason_and_a_way_out(exports: Exports) -> None:
    assert exports.refused
    for (plan, target), error in exports.refused.items():
        first, *reasons = error.problems
        assert reasons, (plan, target)
        assert all(problem.message and problem.key[:2].isdigit() for problem in reasons), (plan, target)
        assert first.fix.startswith("Targets that"), (plan, target)


@pytest.mark.parametrize("case", [case for case in CASES if case not in NO_PLAN])
def test_every_case_has_a_launcher_and_a_training_program(exports: Exports, case: str) -> None:
    able = {target for target in EXPORTERS if (f"case-{case}", target) in exports.folders}
    if case in ONE_GROUP_ONLY:
        assert able == ONE_GROUP_ONLY[case]
        return
    assert {"skypilot", "kubernetes", "json"} <= able
    assert able & set(TRAINERS)


def start_script(target: str, unit: Unit, folder: Path) -> Path:
    """A unit's start script; Kubernetes has it in a ConfigMap, whose files go to ``folder``."""
    if target != "kubernetes":
        beside = unit.folder / "trainer"
        return (beside if beside.is_dir() else unit.folder) / f"{unit.name}.sh"
    objects = YAML(typ="safe").load_all((unit.folder / f"{unit.name}.yaml").read_text(encoding="utf-8"))
    (mounted,) = [one["data"] for one in objects if one["kind"] == "ConfigMap"]
    folder.mkdir(parents=True)
    for name, text in mounted.items():
        (folder / name).write_text(text, encoding="utf-8")
    return folder / f"{unit.name}.sh"


@pytest.mark.parametrize("target", [target for target in EXPORTERS if target != "json"])
def test_start_scripts_lose_no_number(exports: Exports, tmp_path: Path, target: str) -> None:
    """Nodes, degrees, batch, steps, interval and keep-k, as the training program finds them in its environment."""
    for unit in exports.units[target]:
        script = start_script(target, unit, tmp_path / unit.id / "mounted")
        started = start(unit, script, tmp_path / unit.id / "node")
        expected = numbers(unit)
        assert {key: started.environment[key] for key in expected} == expected, f"{target} {unit.id}"


def test_order_files_lose_no_number(exports: Exports) -> None:
    """Nodes, spares, layout, batch, steps, interval, keep-k, place and window of every target's units."""
    for target, units in exports.units.items():
        for unit in units:
            order = json.loads((unit.folder / "order.json").read_text(encoding="utf-8"))
            (record,) = [one for one in order["units"] if one["name"] == unit.name]
            s = unit.segment
            expected = {
                "nodes": s.nodes,
                "spare_nodes": s.spare_nodes,
                "layout": s.layout.model_dump(mode="json"),
                "global_batch_sequences": unit.sequences,
                "total_steps": unit.total_steps,
                "pool": s.pool,
                "mode": s.mode,
                "start_s": s.start_s,
                "end_s": s.end_s,
            }
            assert {key: record[key] for key in expected} == expected, f"{target} {unit.id}"
            checkpoint = record["checkpoint"]
            assert (checkpoint["interval_steps"], checkpoint["keep_last"], checkpoint["target"]) == (
                unit.interval_steps,
                unit.keep_last,
                s.checkpoint.target,
            )
