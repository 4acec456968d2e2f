from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from trainplan_models.base import InputError
from trainplan_models.traces import load_folder, load_trace, side_by_side, windows


def written(folder: Path, name: str, text: str) -> Path:
    file = folder / name
    file.write_text(text, encoding="utf-8")
    return file


def test_even_steps_are_read_as_they_are(tmp_path: Path) -> None:
    text = "timestamp_s,available,spot_price\n0,1,0.918\n195,0,0.918\n390,1,1.2\n"
    trace = load_trace(written(tmp_path, "zone.csv", text))
    assert (trace.name, trace.tick_s, trace.length_s) == ("zone", 195.0, 585.0)
    assert trace.nodes.tolist() == [1, 0, 1]
    assert trace.usd_per_node_h is not None
    assert trace.usd_per_node_h.tolist() == [0.918, 0.918, 1.2]


def test_change_points_hold_until_the_next(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, "gang.csv", "timestamp_s,capacity\n60,18\n180,4\n420,20\n480,20\n"))
    assert trace.tick_s == 60.0
    assert trace.nodes.tolist() == [18, 18, 4, 4, 4, 4, 20]
    assert trace.most_nodes == 20
    assert trace.up(16).tolist() == [True, True, False, False, False, False, True]
    assert trace.hit(16).tolist() == [False, False, True, True, True, True, False]


def test_a_drop_hits_a_gang_that_would_still_fit(tmp_path: Path) -> None:
    trace = load_trace(written(tmp_path, "g.csv", "timestamp_s,capacity\n0,20\n60,18\n120,18\n"))
    assert trace.up(4).all()
    assert trace.hit(4).tolist() == [False, True, False]


def test_the_inverse_is_turned_round_only_when_told(tmp_path: Path) -> None:
    named = written(tmp_path, "a.csv", "timestamp_s,preempted\n0,1\n60,0\n120,0\n")
    assert load_trace(named).nodes.tolist() == [0, 1, 1]
    content = {"metadata": {"gap_seconds": 300}, "data": [1, 1, 0]}
    file = written(tmp_path, "b.json", json.dumps(content))
    assert load_trace(file).nodes.tolist() == [1, 1, 0]
    assert load_trace(file, preempted=True).nodes.tolist() == [0, 0, 1]


def test_json_has_counts_and_prices(tmp_path: Path) -> None:
    content = {"metadata": {"gap_seconds": 300}, "data": [16, 3, 0], "prices": [1.0, 1.5, 2.0]}
    trace = load_trace(written(tmp_path, "c.json", json.dumps(content)))
    assert trace.nodes.tolist() == [16, 3, 0]
    assert trace.usd_per_node_h is not None
    assert trace.usd_per_node_h.tolist() == [1.0, 1.5, 2.0]


@pytest.mark.parametrize(
    ("name", "text", "message", "line"),
    [
        ("a.csv", "time,available\n0,1\n1,1\n", "not a recording", 1),
        ("b.csv", "timestamp_s,available\n0,1\n60,yes\n", "not numbers", 3),
        ("c.csv", "timestamp_s,available\n0,1\n60\n", "not numbers", 3),
        ("d.csv", "timestamp_s,available\n0,1\n60,1\n60,0\n", "timestamps must grow", 4),
        ("e.csv", "timestamp_s,available\n0,1\n", "two rows", 0),
        ("f.csv", "timestamp_s,available\n0,-1\n60,1\n", "finite", 0),
        ("g.json", '{"data": [1]}', "not a recording", 0),
        ("h.json", "[1, 2]", "not a recording", 0),
        ("i.json", '{"metadata": {"gap_seconds": 0}, "data": [1]}', "finite", 0),
        ("j.json", '{"metadata": {"gap_seconds": 60}, "data": [1], "prices": [1, 2]}', "one a step", 0),
    ],
)
def test_a_broken_file_is_named_with_its_line(
    tmp_path: Path, name: str, text: str, message: str, line: int
) -> None:
    file = written(tmp_path, name, text)
    with pytest.raises(InputError, match=message) as caught:
        load_trace(file)
    problem = caught.value.problems[0]
    assert (problem.file, problem.line) == (str(file), line)


def test_a_missing_file_is_an_input_error(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load_trace(tmp_path / "nothing.csv")


def test_a_folder_gives_its_recordings_and_passes_over_the_rest(tmp_path: Path) -> None:
    written(tmp_path, "b.csv", "timestamp_s,available\n0,1\n60,0\n")
    written(tmp_path, "a.json", '{"metadata": {"gap_seconds": 60}, "data": [1, 0]}')
    written(tmp_path, "SUMMARY.csv", "trace,nodes\nb,1\n")
    written(tmp_path, "notes.txt", "hello\n")
    assert [trace.name for trace in load_folder(tmp_path)] == ["a", "b"]
    with pytest.raises(InputError, match="no recordings"):
        load_folder(tmp_path / "absent")


def test_windows_are_spread_evenly_and_stop_in_time(tmp_path: Path) -> None:
    rows = "".join(f"{60 * step},{step}\n" for step in range(100))
    trace = load_trace(written(tmp_path, "count.csv", "timestamp_s,available\n" + rows))
    found = windows([trace], gang=50, length_s=600.0, count=10)
    assert found.up.shape == (10, 1, 10)
    assert not found.up[:, 0, 0].any()
    assert found.up[:, 0, -1].all()
    assert found.usd_per_node_h is None
    with pytest.raises(InputError, match="h long"):
        windows([trace], 1, 100_000.0, 10)


def test_zones_need_the_same_steps(tmp_path: Path) -> None:
    one = load_trace(written(tmp_path, "one.csv", "timestamp_s,available\n0,1\n60,1\n120,0\n"))
    two = load_trace(written(tmp_path, "two.csv", "timestamp_s,available\n0,0\n60,1\n120,1\n"))
    slow = load_trace(written(tmp_path, "slow.csv", "timestamp_s,available\n0,1\n90,1\n180,1\n"))
    both = windows([one, two], 1, 120.0, 2)
    assert both.up[:, :, 0].tolist() == [[True, False], [True, True]]
    with pytest.raises(InputError, match="different steps"):
        windows([one, slow], 1, 60.0, 1)


def test_windows_beside_each_other_take_the_given_price_where_none_was_recorded(tmp_path: Path) -> None:
    plain = load_trace(written(tmp_path, "p.csv", "timestamp_s,available\n0,1\n60,1\n"))
    priced = load_trace(written(tmp_path, "q.csv", "timestamp_s,available,spot_price\n0,1,2\n60,1,3\n"))
    both = side_by_side([windows([trace], 1, 120.0, 1) for trace in (plain, priced)], 0.5)
    assert both.runs == 2
    assert both.usd_per_node_h is not None
    assert both.usd_per_node_h[:, 0].tolist() == [[0.5, 2.0], [0.5, 3.0]]
    assert np.array_equal(both.up, np.ones((2, 1, 2), bool))


@pytest.mark.shared
def test_shared_recordings_have_the_availability_that_is_told_of_them() -> None:
    folder = Path(__file__).resolve().parents[3] / "shared" / "data" / "spot_traces"
    if not folder.is_dir():
        pytest.skip("no shared data")
    told = {}
    for line in (folder / "SUMMARY.csv").read_text(encoding="utf-8").splitlines()[1:]:
        cells = line.split(",")
        told[cells[0].replace("/", "__")] = (int(cells[2]), float(cells[7]))
    checked = 0
    for trace in load_folder(folder):
        if trace.name in told:
            nodes, full_frac = told[trace.name]
            assert trace.most_nodes == nodes
            assert trace.up(nodes).mean() == pytest.approx(full_frac, abs=1e-3), trace.name
            checked += 1
    assert checked >= 20
