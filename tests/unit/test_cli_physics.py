from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from trainplan.cli.estimate import estimate
from trainplan.cli.validate import validate
from trainplan_models.base import InputError

CASE = """
name: small
deadline: 30 days
tasks:
  - name: pretrain
    kind: pretrain
    model: llama-3-8b
    tokens: 10B tokens
    sequence_length: 8192
    global_batch: 4M tokens
resources: {accelerators: [H100-SXM], clouds: [aws]}
"""
COLUMNS = (
    "row_id,model_name,params_b,seq_len,accelerator,num_accelerators,precision,global_batch_seqs,micro_batch,tp,pp,"
    "framework,task,tokens_per_s_per_accel"
)
ROWS = f"""{COLUMNS}
a,Llama-3-8B,8.03,8192,H100-80GB-SXM,8,bf16,128,1,2,1,NeMo 24.12,pretrain,9000
b,Unheard-of,,8192,H100-80GB-SXM,8,bf16,128,1,1,1,NeMo 24.12,pretrain,9000
"""
POOL = "aws/us-east-1/p5.48xlarge"
ONE = ["--on", POOL, "--nodes", "8"]

app = typer.Typer()
app.command("estimate")(estimate)
app.command("validate")(validate)


@pytest.fixture
def case(tmp_path: Path) -> str:
    path = tmp_path / "case.yaml"
    path.write_text(CASE, encoding="utf-8")
    return str(path)


@pytest.fixture
def rows(tmp_path: Path) -> str:
    path = tmp_path / "rows.csv"
    path.write_text(ROWS, encoding="utf-8")
    return str(path)


def run(*words: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(words))
    if isinstance(result.exception, InputError):
        raise result.exception
    assert result.exit_code == code, result.output
    return result.stdout


def answer(*words: str, code: int = 0) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(*words, "--json", code=code))
    return found


def test_ranked_table_is_fastest_first_and_fits(case: str) -> None:
    found = answer("estimate", case, *ONE)["estimates"]
    rates = [item["tokens_per_s"]["p50"] for item in found]
    assert len(found) == 10 and rates == sorted(rates, reverse=True)
    assert all(item["fits"] and item["over_gib"] == 0 for item in found)
    best = found[0]
    assert best["tokens_per_s"]["p10"] < best["tokens_per_s"]["p50"] < best["tokens_per_s"]["p90"]
    assert best["days"]["p10"] < best["days"]["p50"] < best["days"]["p90"]
    assert sum(best["time_s"].values()) == pytest.approx(best["step_s"])


def test_one_layout_that_does_not_fit_gets_the_nearest_that_does(case: str) -> None:
    found = answer("estimate", case, *ONE, "--layout", "tp=1,mbs=8", code=3)
    assert found["estimates"][0]["over_gib"] > 100
    assert found["nearest"]["peak_gib"] < 80 and len(found["nearest"]["changed"]) == 1


def test_text_names_every_part_of_the_step(case: str) -> None:
    text = run("estimate", case, *ONE, "--layout", "tp=2,pp=2,recompute=full")
    for words in (
        "Pipeline bubble",
        "Recompute",
        "Tensor-parallel communication",
        "First stage",
        "Error band from",
    ):
        assert words in text


@pytest.mark.parametrize(
    ("layout", "words"),
    [
        ("tp=3", "valid: 1, 2, 4, 8"),
        ("tp=two", "whole number"),
        ("colour=red", "Known: dp, tp"),
        ("recompute=some", "One of none, selective, full"),
        ("dp=4", "the nodes have 64 accelerators"),
    ],
)
def test_bad_layouts_are_refused_with_the_right_way(case: str, layout: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        run("estimate", case, *ONE, "--layout", layout)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--on", POOL], "--nodes"),
        (["--nodes", "2"], "name the pool"),
        (["--on", "aws/us-east-1/p5.48xlrge", "--nodes", "2"], "p5.48xlarge"),
        ([*ONE, "--task", "other"], "Tasks: pretrain"),
    ],
)
def test_incomplete_questions_say_what_to_give(case: str, arguments: list[str], words: str) -> None:
    with pytest.raises(InputError, match=words):
        run("estimate", case, *arguments)


def test_calibration_says_how_much_it_moved(case: str, rows: str) -> None:
    plain = answer("estimate", case, *ONE)["estimates"][0]["tokens_per_s"]["p50"]
    found = answer("estimate", case, *ONE, "--calibrate", rows)
    factor = found["calibration"]["factors"]["hopper"]
    assert factor["rows"] == 1 and factor["median_error_after"] <= factor["median_error_before"]
    assert found["estimates"][0]["tokens_per_s"]["p50"] == pytest.approx(plain * factor["factor"], rel=1e-6)
    assert [item["row_id"] for item in found["calibration"]["unused"]] == ["b"]
    assert "Calibrated hopper" in run("estimate", case, *ONE, "--calibrate", rows)


def test_validate_reads_own_rows_and_drops_none(rows: str, tmp_path: Path) -> None:
    found = answer("validate", "--throughput", rows)
    assert [row["row_id"] for row in found["rows"]] == ["a", "b"]
    assert found["rows"][1]["predicted"] is None and found["rows"][1]["reason"]
    assert found["memory_rows"] == [] and found["run_rows"] == []
    plot = tmp_path / "plots" / "scatter.svg"
    text = run("validate", "--throughput", rows, "--plot", str(plot))
    assert "Median error" in text and "Not judged" in text
    assert plot.read_text(encoding="utf-8").startswith("<svg")


def test_validate_refuses_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        run("validate", "--memory", str(tmp_path / "none.csv"))
