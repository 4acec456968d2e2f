"""``trainplan export`` and ``trainplan init`` from the shell's side."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from trainplan.cli.export import export
from trainplan.cli.group import Commands
from trainplan.cli.init import init
from trainplan.sites import find_sites
from trainplan_models.casefile import load_case
from trainplan_models.catalog import builtin

PLANS = Path(__file__).parents[1] / "golden" / "export"

app = typer.Typer(cls=Commands, add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False)
app.command()(export)
app.command()(init)


def run(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.stdout, done.stderr


def test_export_writes_the_folder_with_executable_scripts(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    code, out, _ = run("export", PLANS / "dense_spot.plan.json", "--to", "slurm", "-o", folder)
    assert code == 0
    listed = {Path(line).relative_to(folder).as_posix() for line in out.splitlines()}
    assert listed == {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert (folder / "submit.sh").stat().st_mode & 0o111
    assert (folder / "trainer" / "01-pretrain-spot.sh").exists()


def test_export_does_not_touch_a_folder_with_something_in_it(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine\n", encoding="utf-8")
    code, _, err = run("export", PLANS / "dense_spot.plan.json", "--to", "slurm", "-o", tmp_path)
    assert code == 2
    assert "is not empty" in err
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_force_replaces_an_older_export_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine\n", encoding="utf-8")
    assert run("export", PLANS / "dense_spot.plan.json", "--to", "slurm", "-o", tmp_path, "--force")[0] == 0
    assert (tmp_path / "01-pretrain-spot.sbatch").exists()
    assert run("export", PLANS / "programme.plan.json", "--to", "slurm", "-o", tmp_path, "--force")[0] == 0
    assert not (tmp_path / "01-pretrain-spot.sbatch").exists()
    assert (tmp_path / "01-base-on-demand.sbatch").exists()
    assert (tmp_path / "mine.txt").read_text(encoding="utf-8") == "mine\n"


def test_force_stays_inside_the_folder(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    (tmp_path / "outside.txt").write_text("mine\n", encoding="utf-8")
    (folder / "order.json").write_text(json.dumps({"files": ["../outside.txt", 3]}), encoding="utf-8")
    assert run("export", PLANS / "dense_spot.plan.json", "--to", "json", "-o", folder, "--force")[0] == 0
    assert (tmp_path / "outside.txt").exists()


def test_export_refuses_and_writes_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "out"
    code, _, err = run("export", PLANS / "dense_spot.plan.json", "--to", "torchtitan", "-o", folder)
    assert code == 2
    assert "ZeRO stage 1 cannot run" in err
    assert not folder.exists()
    assert run("export", tmp_path / "none.json", "--to", "slurm")[0] == 2


def test_export_prints_json() -> None:
    code, out, _ = run("export", PLANS / "dense_spot.plan.json", "--to", "skypilot", "--json")
    assert code == 0
    assert "01-pretrain-spot.yaml" in json.loads(out)


def test_init_writes_a_case_that_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    code, out, err = run("init", "llama-3-8b", "-o", file, "--deadline", "20 days", "--budget", "300k USD")
    assert (code, out) == (0, f"{file}\n")
    assert "8,030,261,248 parameters" in err
    case = load_case(file)
    assert case.deadline_s == 20 * 86400.0
    assert case.budget_usd == 300_000.0
    assert case.tasks[0].model == "llama-3-8b"
    assert case.tasks[0].tokens == pytest.approx(20 * 8.03e9, rel=0.01)


def test_init_reads_a_hugging_face_configuration(tmp_path: Path) -> None:
    folder = tmp_path / "tiny"
    folder.mkdir()
    config = {"model_type": "llama", "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    config |= {"intermediate_size": 128, "vocab_size": 1000, "num_key_value_heads": 2}
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    code, _, err = run("init", folder / "config.json", "-o", tmp_path / "case.yaml", "--tokens", "1M tokens")
    assert code == 0
    per_layer = 64 * 64 * 2 + 2 * 64 * 32 + 3 * 64 * 128 + 2 * 64
    assert f"{2 * 1000 * 64 + 2 * per_layer + 64:,} parameters" in err
    assert load_case(tmp_path / "case.yaml").name == "tiny"


def test_init_brings_clusters_quotas_and_reservations(tmp_path: Path) -> None:
    (tmp_path / "dc1.txt").write_text(
        "n[1-4]|train*|idle|96|1000000|gpu:h100:8|(null)|none\n", encoding="utf-8"
    )
    (tmp_path / "q.csv").write_text("pool,on-demand\naws/us-east-1/p5.48xlarge,8\n", encoding="utf-8")
    reserved = "name,pool,nodes,start,end\ncb,aws/us-east-1/p5.48xlarge,4,2027-03-10,2027-03-20\n"
    (tmp_path / "r.csv").write_text(reserved, encoding="utf-8")
    words = [
        "--sinfo",
        tmp_path / "dc1.txt",
        "--accelerator",
        "h100=H100-SXM",
        "--quotas",
        tmp_path / "q.csv",
    ]
    words += ["--reservations", tmp_path / "r.csv", "--start", "2027-03-01"]
    code, _, err = run("init", "llama-3-8b", "-o", tmp_path / "case.yaml", *words)
    assert code == 0, err
    case = load_case(tmp_path / "case.yaml")
    dc1, block = case.resources.owned
    assert (dc1.name, dc1.accelerator, dc1.nodes, dc1.accelerators_per_node) == ("dc1", "H100-SXM", 4, 8)
    assert [(case.seconds_from_start(f.since), f.nodes) for f in block.free] == [
        (9 * 86400.0, 4),
        (19 * 86400.0, 0),
    ]
    assert case.resources.quotas[0].on_demand == 8
    sites, _ = find_sites(case, builtin())
    assert {"dc1", "cb"} <= {site.name for site in sites}, "the planner takes what init wrote"
    text = (tmp_path / "case.yaml").read_text(encoding="utf-8")
    assert all(f"# from {file}" in text for file in ("dc1.txt", "q.csv", "r.csv"))


def test_init_leaves_out_what_is_no_use_and_says_why(tmp_path: Path) -> None:
    rows = (
        "old,aws/us-east-1/p5.48xlarge,4,2026-03-10,2026-03-20\nb,aws/us-east-1/p5.48xlarge,2,,2027-05-01\n"
    )
    (tmp_path / "r.csv").write_text(f"name,pool,nodes,start,end\n{rows}", encoding="utf-8")
    words = ("--reservations", tmp_path / "r.csv", "--start", "2027-03-01", "-o", tmp_path / "case.yaml")
    code, _, err = run("init", "llama-3-8b", *words)
    assert code == 0, err
    assert "left out: 1 line" in err and "old ended on 2026-03-20" in err
    assert [one.name for one in load_case(tmp_path / "case.yaml").resources.owned] == ["b"]


def test_init_never_writes_over_a_file(tmp_path: Path) -> None:
    file = tmp_path / "case.yaml"
    file.write_text("mine\n", encoding="utf-8")
    code, _, err = run("init", "llama-3-8b", "-o", file)
    assert code == 2
    assert "yours is never changed" in err
    assert file.read_text(encoding="utf-8") == "mine\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("llama-9",), "Did you mean"),
        (("none/config.json",), "cannot be read"),
        (("llama-3-8b", "--tokens", "300"), "tokens"),
        (("llama-3-8b", "--start", "tomorrow"), "is no date"),
        (("llama-3-8b", "--accelerator", "h100"), "is not TYPE=NAME"),
        (("llama-3-8b", "--sinfo", "none.txt"), "cannot be read"),
    ],
)
def test_init_says_what_is_wrong_and_writes_nothing(
    words: tuple[str, ...], says: str, tmp_path: Path
) -> None:
    code, _, err = run("init", *words, "-o", tmp_path / "case.yaml")
    assert code == 2
    assert says in err
    assert not (tmp_path / "case.yaml").exists()
