"""Exported batch scripts on a real Slurm: every one is checked by the scheduler, and one plan runs to its end."""

from __future__ import annotations

import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from trainplan.export import export
from trainplan_models.plan import Plan
from trainplan_models.sinfo import SINFO_COMMAND, owned_from_sinfo

from .launching import HERE, Unit, read_plan
from .slurm_cluster import Cluster

pytestmark = pytest.mark.launcher

PATIENCE_S = 90.0
KILLED_S = 6.0
"""The old attempt's processes are gone by then; a job that starts among them fails."""


def test_every_script_is_accepted_by_the_scheduler(slurm: Cluster, exported: dict[str, list[Unit]]) -> None:
    assert exported["slurm"]
    for unit in exported["slurm"]:
        script = f"{unit.name}.sbatch"
        slurm.run("sbatch", "--partition=paper", "--test-only", script, cwd=unit.folder)


def test_the_scheduler_reads_every_number_back(slurm: Cluster, exported: dict[str, list[Unit]]) -> None:
    """Every job is queued, held, read and cancelled."""
    for unit in exported["slurm"]:
        s = unit.segment
        words = ("sbatch", "--partition=paper", "--hold", "--parsable", f"{unit.name}.sbatch")
        number = slurm.run(*words, cwd=unit.folder).strip()
        job = slurm.job(number)
        slurm.run("scancel", number)
        gpu = s.accelerator.lower().split("-")[0]
        assert job["JobName"] == unit.name
        assert job["NumNodes"].split("-")[0] == str(s.nodes + s.spare_nodes), unit.id
        assert job["TresPerNode"] == f"gres:gpu:{gpu}:{s.accelerators_per_node}", unit.id
        assert job["Requeue"] == "1"
        assert minutes(job["TimeLimit"]) * 60.0 >= s.end_s - s.start_s
        assert f"trainplan-unit={unit.name}" in job["Comment"]


def test_its_list_of_nodes_is_read_as_owned_pools(slurm: Cluster) -> None:
    """Nodes on paper are powered down, and not in the list."""
    text = slurm.run(*shlex.split(SINFO_COMMAND))
    (pool,) = owned_from_sinfo(text, "dc1", accelerators={"h100": "H100-SXM"}).pools
    owned = pool.owned
    assert (owned.name, owned.accelerator, owned.accelerators_per_node) == ("dc1", "H100-SXM", 8)
    assert (owned.nodes, pool.broken) == (slurm.nodes, 0)
    assert pool.partitions == ("train",)


def minutes(limit: str) -> int:
    """Minutes of a time limit such as ``1-02:30:00``."""
    days, _, rest = limit.rpartition("-")
    hours, found, _ = (int(part) for part in rest.split(":"))
    return (int(days or 0) * 24 + hours) * 60 + found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("--gpus-per-node=h100:8", "--gpus-per-node=h100:9"),
        ("--gpus-per-node=h100:8", "--gpus-per-node=h900:8"),
        ("--nodes=8", "--nodes=500"),
        ("--time=16-12:00:00", "--time=500-00:00:00"),
        ("--requeue", "--requeues"),
    ],
)
def test_the_scheduler_refuses_what_is_wrong(
    slurm: Cluster, exported: dict[str, list[Unit]], tmp_path: Path, old: str, new: str
) -> None:
    unit = next(u for u in exported["slurm"] if u.plan == "dense_spot")
    text = (unit.folder / f"{unit.name}.sbatch").read_text(encoding="utf-8")
    assert old in text
    bad = tmp_path / "bad.sbatch"
    bad.write_text(text.replace(old, new), encoding="utf-8")
    with pytest.raises(subprocess.CalledProcessError):
        slurm.run("sbatch", "--partition=paper", "--test-only", str(bad))


@dataclass(frozen=True, slots=True)
class Run:
    """An exported plan that is submitted to the cluster with a stub for the training program."""

    slurm: Cluster
    folder: Path
    checkpoints: Path
    jobs: dict[str, str]

    def step(self) -> int:
        """The last step that was saved."""
        tracker = self.checkpoints / "latest_checkpointed_iteration.txt"
        return int(tracker.read_text(encoding="utf-8") or 0) if tracker.exists() else 0

    def history(self) -> list[list[str]]:
        """Unit, restart count and first step of every start of the training program."""
        file = self.checkpoints / "history"
        return (
            [line.split() for line in file.read_text(encoding="utf-8").splitlines()] if file.exists() else []
        )

    def wait(self, what: str, number: int) -> None:
        """Wait until a step is saved (``step``) or the training program has started so often (``starts``)."""
        end = time.monotonic() + PATIENCE_S
        while (self.step() if what == "step" else len(self.history())) < number:
            assert time.monotonic() < end, self.logs()
            time.sleep(0.1)

    def wait_for_end(self, unit: str) -> dict[str, str]:
        """Wait until a unit's job has ended and give its fields."""
        end = time.monotonic() + PATIENCE_S
        while (job := self.slurm.job(self.jobs[unit]))["JobState"] in (
            "PENDING",
            "RUNNING",
            "COMPLETING",
            "REQUEUED",
        ):
            assert time.monotonic() < end, f"{job}\n{self.logs()}"
            time.sleep(0.2)
        return job

    def start_now(self, unit: str) -> None:
        """Do without the two minutes that Slurm waits before it starts a requeued job again."""
        end = time.monotonic() + PATIENCE_S
        while (job := self.slurm.job(self.jobs[unit]))["JobState"] != "PENDING" or job[
            "Reason"
        ] != "BeginTime":
            assert time.monotonic() < end, f"{job}\n{self.logs()}"
            time.sleep(0.1)
        time.sleep(KILLED_S)
        self.slurm.run("scontrol", "update", f"jobid={self.jobs[unit]}", "starttime=now")

    def logs(self) -> str:
        """What the jobs printed."""
        return "\n".join(path.read_text(encoding="utf-8") for path in self.folder.glob("*.log"))


def small(plan: Plan, spare_nodes: int, units: int) -> Plan:
    """The first units of a plan on two nodes with 40 steps in all, saved every 5 and without milestones."""
    segments = []
    for segment in plan.segments[:units]:
        layout = segment.layout.model_copy(update={"dp": 8, "tp": 2})
        tokens = segment.global_batch_tokens * 40 / units
        changed = {
            "layout": layout,
            "nodes": 2,
            "spare_nodes": spare_nodes,
            "tokens": tokens,
            "tokens_per_s": segment.global_batch_tokens / 60.0,
            "checkpoint": segment.checkpoint.model_copy(update={"interval_s": 300.0}),
        }
        segments.append(segment.model_copy(update=changed))
    case = plan.case | {"checkpoints": plan.case["checkpoints"] | {"keep_every_s": None}}
    return plan.model_copy(update={"segments": tuple(segments), "case": case, "start": None})


def submit(slurm: Cluster, plan: Plan, folder: Path, *steers: str) -> Run:
    """Export a plan, put the stub before torchrun, and submit all its units."""
    for path, text in export(plan, "slurm").items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    checkpoints, stub = folder / "checkpoints", folder / "stub"
    checkpoints.mkdir()
    stub.mkdir()
    for steer in steers:
        (stub / steer).touch()
    text = slurm.run(
        "bash",
        str(folder / "submit.sh"),
        TRAINPLAN_PARTITION="train",
        CHECKPOINT_DIR=str(checkpoints),
        STUB_DIR=str(stub),
        TOKENIZER="none",
        TRAINPLAN_KEEP_EVERY="0.3",
        PATH=f"{HERE / 'stubs'}:{os.environ['PATH']}",
    )
    jobs = dict(line.split(": job ") for line in text.splitlines() if ": job " in line)
    return Run(slurm, folder, checkpoints, jobs)


def test_a_plan_runs_to_its_end_through_hand_over_and_requeue(slurm: Cluster, tmp_path: Path) -> None:
    run = submit(slurm, small(read_plan("dense_spot"), spare_nodes=0, units=2), tmp_path)
    first, second = run.jobs
    run.wait("step", 10)
    slurm.run("scancel", "--batch", "--signal=USR1", run.jobs[first])
    assert run.wait_for_end(first)["JobState"] == "COMPLETED"

    run.wait("starts", 2)
    run.wait("step", 20)
    slurm.run("scontrol", "requeue", run.jobs[second])
    run.start_now(second)
    job = run.wait_for_end(second)

    starts = run.history()
    assert job["JobState"] == "COMPLETED", f"{job}\n{run.logs()}"
    assert job["Restarts"] == "1"
    assert [(unit, int(restarts)) for unit, restarts, _ in starts] == [(first, 0), (second, 0), (second, 1)]
    assert [int(step) for _, _, step in starts] == sorted(int(step) for _, _, step in starts)
    assert int(starts[1][2]) >= 10
    assert int(starts[2][2]) >= 20
    assert run.step() == 40
    kept = sorted(path.name for path in run.checkpoints.glob("iter_*"))
    assert kept == ["iter_0000030", "iter_0000035", "iter_0000040"]


def drained(slurm: Cluster) -> list[str]:
    """Nodes that take no new work."""
    text = slurm.run("sinfo", "--noheader", "--partition=train", "--Node", "--format=%N %T")
    return [line.split()[0] for line in text.splitlines() if "drain" in line]


def test_a_spare_node_takes_the_place_of_one_that_fails(slurm: Cluster, tmp_path: Path) -> None:
    run = submit(slurm, small(read_plan("dense_spot"), spare_nodes=1, units=1), tmp_path, "fail-once")
    (unit,) = run.jobs
    try:
        job = run.wait_for_end(unit)
        assert job["JobState"] == "COMPLETED", run.logs()
        assert job["NumNodes"].startswith("3")
        assert job["Restarts"] == "0"
        assert run.step() == 40
        assert len(drained(slurm)) == 1
    finally:
        for node in drained(slurm):
            slurm.run("scontrol", "update", f"nodename={node}", "state=resume")
