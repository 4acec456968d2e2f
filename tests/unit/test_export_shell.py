"""Exported shell scripts, run for real with stand-ins for what they start."""

from __future__ import annotations

import os
import shutil
import stat
import subprocess
from pathlib import Path

import pytest

from trainplan.export import EXPORTERS, export
from trainplan_models.base import InputError
from trainplan_models.plan import Plan

PLANS = Path(__file__).parents[1] / "golden" / "export"
DAY_S = 86400

pytestmark = pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")


def read_plan(name: str) -> Plan:
    return Plan.model_validate_json((PLANS / f"{name}.plan.json").read_text(encoding="utf-8"))


def write(name: str, target: str, folder: Path) -> Path:
    for path, text in export(read_plan(name), target).items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_text(text, encoding="utf-8")
    return folder


def stand_in(folder: Path, name: str, script: str) -> str:
    """A program of that name before all others; gives the PATH that finds it."""
    folder.mkdir(exist_ok=True)
    file = folder / name
    file.write_text(f"#!/bin/bash\n{script}\n", encoding="utf-8")
    file.chmod(file.stat().st_mode | stat.S_IXUSR)
    return f"{folder}:{os.environ['PATH']}"


def run(script: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    keep = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/")}
    return subprocess.run(
        ["bash", str(script), *words],
        env=keep | environment,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )


@pytest.mark.parametrize("target", EXPORTERS)
def test_every_script_parses(target: str, tmp_path: Path) -> None:
    for path in PLANS.glob("*.plan.json"):
        name = path.name.removesuffix(".plan.json")
        try:
            folder = write(name, target, tmp_path / name)
        except InputError:
            continue
        for script in [*folder.rglob("*.sh"), *folder.rglob("*.sbatch")]:
            done = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True, check=False)
            assert (done.returncode, done.stderr) == (0, ""), script


ECHO = 'printf "%s\\n" "$@"'


def test_megatron_starts_with_the_numbers_of_the_plan(tmp_path: Path) -> None:
    folder = write("dense_spot", "megatron", tmp_path / "out")
    path = stand_in(tmp_path / "bin", "torchrun", ECHO)
    done = run(
        folder / "02-pretrain-on-demand.sh",
        "--extra",
        PATH=path,
        TOKENIZER="t",
        CHECKPOINT_DIR=str(tmp_path / "c"),
        TRAINPLAN_NODE_RANK="3",
        TRAINPLAN_MASTER_ADDR="host0",
    )
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:3] == ["--nnodes=8", "--nproc-per-node=8", "--node-rank=3"]
    assert "--rdzv-endpoint=host0:29500" in words
    assert words[words.index("--global-batch-size") + 1] == "512"
    assert words[words.index("--save") + 1] == str(tmp_path / "c")
    assert words[-1] == "--extra"


def test_a_missing_tokenizer_is_said(tmp_path: Path) -> None:
    done = run(write("dense_spot", "megatron", tmp_path) / "02-pretrain-on-demand.sh")
    assert done.returncode != 0
    assert "set TOKENIZER" in done.stderr


def test_a_unit_stops_at_the_end_of_its_window(tmp_path: Path) -> None:
    folder = write("dense_spot", "megatron", tmp_path / "out")
    path = stand_in(tmp_path / "bin", "torchrun", "sleep 30")
    common = {"PATH": path, "TOKENIZER": "t", "CHECKPOINT_DIR": str(tmp_path / "c")}
    now = int(subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout)
    over = run(folder / "01-pretrain-spot.sh", **common, TRAINPLAN_DAY0=str(now - 17 * DAY_S))
    assert (over.returncode, "is over" in over.stdout) == (0, True)
    ends = run(folder / "01-pretrain-spot.sh", **common, TRAINPLAN_DAY0=str(now - int(16.5 * DAY_S) + 2))
    assert (ends.returncode, "is over" in ends.stdout) == (0, True)


def test_a_failure_of_the_training_program_is_passed_on(tmp_path: Path) -> None:
    folder = write("dense_spot", "megatron", tmp_path / "out")
    path = stand_in(tmp_path / "bin", "torchrun", "exit 7")
    for unit in ("01-pretrain-spot", "02-pretrain-on-demand"):
        done = run(folder / f"{unit}.sh", PATH=path, TOKENIZER="t", CHECKPOINT_DIR=str(tmp_path / "c"))
        assert done.returncode == 7


def test_old_checkpoints_are_thinned_out_and_milestones_kept(tmp_path: Path) -> None:
    folder = write("dense_spot", "megatron", tmp_path / "out")
    checkpoints = tmp_path / "c"
    for step in (2784, 2832, 2880, 2928, 2976, 3024):
        (checkpoints / f"iter_{step:07d}").mkdir(parents=True)
    (checkpoints / "latest_checkpointed_iteration.txt").write_text("2976", encoding="utf-8")
    path = stand_in(tmp_path / "bin", "torchrun", "true")
    done = run(folder / "01-pretrain-spot.sh", PATH=path, TOKENIZER="t", CHECKPOINT_DIR=str(checkpoints))
    assert done.returncode == 0, done.stderr
    left = sorted(int(path.name[5:]) for path in checkpoints.glob("iter_*"))
    assert left == [2784, 2880, 2928, 2976, 3024]  # a milestone, the last three, and one being written


def test_trl_resumes_from_the_newest_checkpoint(tmp_path: Path) -> None:
    folder = write("lora_one_node", "trl", tmp_path / "out")
    checkpoints = tmp_path / "c"
    for step in (90, 135, 1000):
        (checkpoints / f"checkpoint-{step}").mkdir(parents=True)
    path = stand_in(tmp_path / "bin", "accelerate", ECHO)
    done = run(folder / "01-tune-on-demand.sh", PATH=path, MODEL="m", CHECKPOINT_DIR=str(checkpoints))
    assert done.returncode == 0, done.stderr
    words = done.stdout.splitlines()
    assert words[:3] == ["launch", "--config_file", "01-tune-on-demand.accelerate.yaml"]
    assert words[words.index("--resume_from_checkpoint") + 1] == str(checkpoints / "checkpoint-1000")


def test_post_training_needs_weights_or_follows_a_task(tmp_path: Path) -> None:
    alone = run(
        write("lora_one_node", "trl", tmp_path / "a") / "01-tune-on-demand.sh", CHECKPOINT_DIR=str(tmp_path)
    )
    assert "set MODEL" in alone.stderr
    path = stand_in(tmp_path / "bin", "torchrun", 'echo "$MODEL"')
    after = write("programme", "verl", tmp_path / "b") / "02-sft-on-demand.sh"
    assert run(after, PATH=path, CHECKPOINT_DIR=str(tmp_path / "c")).stdout.strip() == "/checkpoints/base"


@pytest.mark.parametrize(
    ("step", "day", "code"),
    [
        (0, 0.0, 0),
        (40000, 16.0, 0),
        (42915, 16.6, 10),  # the window is over
        (2000, 7.5, 10),  # on-demand would need more days than are left
        (20000, 7.5, 0),
        (71526, 20.0, 0),  # done
    ],
)
def test_the_fallback_rule(tmp_path: Path, step: int, day: float, code: int) -> None:
    script = write("dense_spot", "skypilot", tmp_path) / "fallback.sh"
    now = 1_803_859_200 + int(day * DAY_S)
    done = run(script, "01-pretrain-spot", TRAINPLAN_STEP=str(step), TRAINPLAN_NOW=str(now))
    assert done.returncode == code, done.stdout + done.stderr
    assert f"step {step} of 71526" in done.stdout


def test_the_fallback_reads_progress_from_checkpoints_and_moves(tmp_path: Path) -> None:
    script = write("dense_spot", "skypilot", tmp_path / "out") / "fallback.sh"
    checkpoints = tmp_path / "c"
    for step in (4800, 9600):
        (checkpoints / f"iter_{step:07d}").mkdir(parents=True)
    path = stand_in(tmp_path / "bin", "sky", 'echo "sky $*"')
    late = str(1_803_859_200 + 17 * DAY_S)
    common = {"PATH": path, "CHECKPOINT_DIR": str(checkpoints), "TRAINPLAN_NOW": late}
    asked = run(script, "01-pretrain-spot", **common)
    assert asked.returncode == 10
    assert "step 9600 of 71526" in asked.stdout
    assert "sky jobs" not in asked.stdout
    moved = run(script, "01-pretrain-spot", "--run", **common)
    assert (
        "sky jobs cancel --yes --name 01-pretrain-spot\nsky jobs launch --yes 02-pretrain-on-demand.yaml"
        in moved.stdout
    )


def test_the_fallback_says_how_it_is_used(tmp_path: Path) -> None:
    script = write("dense_spot", "slurm", tmp_path) / "fallback.sh"
    done = run(script)
    assert done.returncode == 2
    assert "usage: fallback.sh 01-pretrain-spot" in done.stderr


KUBECTL = """
state="$KUBE/$3"
case "$1 $2" in
  "get jobset") [ -e "$state" ] && cat "$state" ;;
  "apply -f") name="u${3%.yaml}"; echo "$name" >"$KUBE/$name"; echo "applied $name" ;;
  "delete jobset") rm -f "$state"; echo "deleted $3" ;;
esac
true
"""


def test_kubernetes_units_start_when_their_turn_comes(tmp_path: Path) -> None:
    script = write("dense_spot", "kubernetes", tmp_path / "out") / "launch.sh"
    cluster = tmp_path / "cluster"
    cluster.mkdir()
    path = stand_in(tmp_path / "bin", "kubectl", KUBECTL)
    now = int(subprocess.run(["date", "+%s"], capture_output=True, text=True, check=True).stdout)

    def one_pass(day: float) -> str:
        done = run(script, PATH=path, KUBE=str(cluster), TRAINPLAN_DAY0=str(now - int(day * DAY_S)))
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert one_pass(0.5) == "applied u01-pretrain-spot\n"
    assert one_pass(1.0) == ""
    assert one_pass(17.0) == "deleted u01-pretrain-spot\napplied u02-pretrain-on-demand\n"
    (cluster / "u02-pretrain-on-demand").write_text("u02-pretrain-on-demand Completed\n", encoding="utf-8")
    assert one_pass(18.0) == ""
    assert (script.parent / ".done-u02-pretrain-on-demand").exists()


def test_slurm_units_are_chained(tmp_path: Path) -> None:
    folder = write("programme", "slurm", tmp_path / "out")
    path = stand_in(tmp_path / "bin", "sbatch", 'echo "$*" >>"$CALLS"; wc -l <"$CALLS"')
    done = run(folder / "submit.sh", PATH=path, CALLS=str(tmp_path / "calls"))
    assert done.returncode == 0, done.stderr
    calls = (tmp_path / "calls").read_text(encoding="utf-8").splitlines()
    assert [call.split()[-1] for call in calls] == [
        "01-base-on-demand.sbatch",
        "02-sft-on-demand.sbatch",
        "03-dpo-on-demand.sbatch",
        "04-rl-on-demand.sbatch",
    ]
    assert [call.count("--dependency=afterok:") for call in calls] == [0, 1, 1, 1]
    grow = write("owned_growing", "slurm", tmp_path / "grow")
    run(grow / "submit.sh", PATH=path, CALLS=str(tmp_path / "more"))
    assert "--dependency=afterany:1" in (tmp_path / "more").read_text(encoding="utf-8")
