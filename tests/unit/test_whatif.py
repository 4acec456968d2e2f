"""Sweeps: rows in order, resumed, the same under any number of workers, compared."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from trainplan import whatif
from trainplan.cli.what_if import document_of
from trainplan.comparison import csv_of, differing, records_of, write_xlsx
from trainplan.planning import plan
from trainplan.sweep_points import points_of
from trainplan.whatif import CaseText, How, Row, Store, what_if
from trainplan_models.base import InputError
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

TEXT = """
name: sweep
deadline: 30 days
tasks:
  - name: train
    kind: sft
    model: llama-2-7b
    tokens: 2B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 4}
"""
CASE = CaseText(TEXT)
HERE = How(workers=1, promise=False)
VARIED = ["deadline=3 hours,1 day,2 days", "resources.max_nodes=1 nodes,2 nodes"]


def sweep(varied: Sequence[str] = VARIED, store: Store | None = None, how: How = HERE) -> list[Row]:
    return what_if(CASE, points_of(varied), how=how, store=store)


def test_each_row_is_what_plan_answers() -> None:
    rows = sweep()
    assert len(rows) == 7
    for row in rows:
        if row.status != "ok":
            continue
        case = case_from_text(TEXT, overrides=[f"{key}={value}" for key, value in row.changes.items()])
        found = plan(case, builtin(), compare=False, promise=False)
        assert row.total_usd == found.total_usd
        assert row.finish_s == found.finish_s
        assert sum(row.by_category_usd.values()) == pytest.approx(found.total_usd, abs=0.01)


def test_a_failed_point_is_a_row_with_its_reason() -> None:
    rows = sweep(["deadline=1 minute,soon,2 days", "resources.max_nodes=1 nodes"])
    assert [row.status for row in rows] == ["ok", "infeasible", "bad-input", "ok"]
    assert "conflict" in rows[1].reason
    assert "soon" in rows[2].reason and "--set" in rows[2].reason
    assert rows[1].total_usd is None


def test_an_error_that_nobody_expected_is_a_row_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("out of paper")

    monkeypatch.setattr(whatif, "plan", broken)
    rows = sweep(["deadline=2 days"])
    assert {row.status for row in rows} == {"error"}
    assert "RuntimeError: out of paper" in rows[1].reason


def test_a_wrong_case_is_told_at_once() -> None:
    with pytest.raises(InputError):
        what_if(CaseText("name: nothing\n"), points_of(["deadline=2 days"]), how=HERE)


def test_the_number_of_workers_changes_nothing() -> None:
    alone = sweep()
    together = sweep(how=How(workers=2, promise=False))
    assert [row.model_dump_json() for row in together] == [row.model_dump_json() for row in alone]


def test_finished_points_are_not_planned_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "points.jsonl"
    first = sweep(VARIED[:1], Store(file))
    planned: list[whatif.Job] = []
    solve = whatif.solve_point

    def noted(job: whatif.Job) -> Row:
        planned.append(job)
        return solve(job)

    monkeypatch.setattr(whatif, "solve_point", noted)
    again = sweep(VARIED[:1], Store(file))
    assert planned == []
    assert again == first
    more = sweep([VARIED[0] + ",3 days"], Store(file))
    assert [job.point.changes for job in planned] == [(("deadline", "3 days"),)]
    assert more[: len(first)] == first


def test_an_interrupted_sweep_goes_on_after_a_half_written_line(tmp_path: Path) -> None:
    file = tmp_path / "points.jsonl"
    whole = sweep(VARIED[:1], Store(file))
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:2]) + lines[2][:40])
    assert len(Store(file).rows) == 2
    assert sweep(VARIED[:1], Store(file)) == whole
    assert [json.loads(line)["status"] for line in file.read_text().splitlines()[3:]]
    assert len(Store(file).rows) == len(whole)


def test_what_the_answer_depends_on_is_in_the_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def keys(case: CaseText = CASE, how: How = HERE, directory: Path | None = None) -> set[str]:
        jobs = [whatif._job(case, point, directory, how) for point in points_of(["deadline=2 days"])]
        return {job.key for job in jobs}

    own = tmp_path / "rows"
    own.mkdir()
    (own / "prices.csv").write_text("nothing\n")
    known = keys()
    assert keys() == known
    assert keys(how=How(workers=3, promise=False, time_limit_s=5.0)) == known
    assert not keys(CaseText(TEXT.replace("2B", "3B"))) & known
    assert not keys(how=How(promise=True)) & known
    assert not keys(directory=own) & known
    monkeypatch.setattr(whatif, "__version__", "99")
    assert not keys() & known


def test_answers_that_may_change_are_asked_again() -> None:
    store = Store()
    row = Row(key="k", name="", changes={}, status="no-answer")
    store.add(row)
    assert store.known("k") is None
    store.add(row.model_copy(update={"status": "infeasible"}))
    assert store.known("k") is not None


def test_only_inputs_that_differ_are_shown_with_differences_to_the_first() -> None:
    rows = sweep(["deadline=3 hours,2 days", "resources.max_nodes=2 nodes"])
    assert differing(rows) == ["deadline", "resources.max_nodes"]
    assert differing(rows[1:]) == ["deadline"]
    first, infeasible, last = records_of(rows)
    assert first["more_total_usd"] == 0.0 and first["deadline"] == ""
    assert infeasible["total_usd"] is None and infeasible["more_total_usd"] is None
    assert last["more_total_usd"] == rows[2].total_usd - rows[0].total_usd  # type: ignore[operator]
    assert last["more_total_frac"] == pytest.approx(
        rows[2].total_usd / rows[0].total_usd - 1.0  # type: ignore[operator]
    )
    assert "tokens" not in first, "the same in all rows"


def test_what_is_simulated_is_compared_by_expected_cost() -> None:
    rows = sweep(VARIED[:1], how=How(workers=1))
    case = case_from_text(TEXT, overrides=[f"{key}={value}" for key, value in rows[-1].changes.items()])
    assert rows[-1].expected_usd == plan(case, builtin(), compare=False).expected_usd
    record = records_of(rows)[-1]
    assert record["more_expected_usd"] == rows[-1].expected_usd - rows[0].expected_usd  # type: ignore[operator]
    columns = [column.name for column in document_of(rows).sections[0].tables[0].columns]
    assert [name for name in columns if "USD" in name] == ["Expected USD", "Planned USD"]
    planned = [column.name for column in document_of(sweep(VARIED[:1])).sections[0].tables[0].columns]
    assert [name for name in planned if "USD" in name] == ["Planned USD"]


def test_csv_has_a_line_for_each_row() -> None:
    records = records_of(sweep(VARIED[:1]))
    lines = csv_of(records).splitlines()
    assert len(lines) == 1 + len(records)
    assert lines[0].startswith("point,deadline,status,total_usd")


def test_xlsx_has_numbers_not_text(tmp_path: Path) -> None:
    openpyxl = pytest.importorskip("openpyxl")
    records = records_of(sweep(VARIED[:1]))
    write_xlsx(records, tmp_path / "sweep.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "sweep.xlsx").active
    names = [cell.value for cell in sheet[1]]
    column = names.index("total_usd") + 1
    assert sheet.cell(2, column).value == records[0]["total_usd"]
    assert sheet.max_row == 1 + len(records)
    assert [path.name for path in tmp_path.iterdir()] == ["sweep.xlsx"]


def test_without_openpyxl_it_is_said_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "openpyxl", None)
    with pytest.raises(InputError, match=r"trainplan\[xlsx\]"):
        write_xlsx(records_of(sweep(["deadline=2 days"])), tmp_path / "sweep.xlsx")
