"""Ranges, lists and scenarios of a sweep."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.sweep_points import BASE, points_of, values_of
from trainplan_models.base import InputError
from trainplan_models.units import parse


@pytest.mark.parametrize(
    ("text", "key", "values"),
    [
        ("deadline=20d..30d/5d", "deadline", ["20 d", "25 d", "30 d"]),
        ("deadline=20..30 days/5", "deadline", ["20 days", "25 days", "30 days"]),
        ("deadline=1 week..3 weeks/7 days", "deadline", ["1 weeks", "2 weeks", "3 weeks"]),
        ("budget=0.1M USD..0.3M USD/100k USD", "budget", ["0.1 M USD", "0.2 M USD", "0.3 M USD"]),
        ("resources.max_nodes=4..10/4", "resources.max_nodes", ["4", "8"]),
        ("budget=400k USD,500k USD", "budget", ["400k USD", "500k USD"]),
        (
            "resources.billing=[spot],[on-demand, spot]",
            "resources.billing",
            ["[spot]", "[on-demand, spot]"],
        ),
        (
            "tasks.a.lora={rank: 8, quantized_base: true},",
            "tasks.a.lora",
            ["{rank: 8, quantized_base: true}"],
        ),
        ("question=fastest", "question", ["fastest"]),
    ],
)
def test_values(text: str, key: str, values: list[str]) -> None:
    assert values_of(text) == (key, values)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("deadline", "not of the form"),
        ("=5", "not of the form"),
        ("deadline=20d..10d/5d", "no range"),
        ("deadline=10d..20d/0d", "no range"),
        ("deadline=10d..20d/5k USD", "do not measure the same"),
        ("deadline=soon..later/5d", "not a number"),
        ("budget=0..1000000000 USD/1", "too many"),
    ],
)
def test_what_is_no_range_is_refused(text: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        values_of(text)


@given(st.integers(1, 400), st.integers(0, 60), st.integers(1, 50))
def test_a_range_has_its_ends_and_even_steps(first: int, steps: int, step: int) -> None:
    last = first + steps * step
    _, values = values_of(f"deadline={first} days..{last} days/{step} days")
    days = [parse(value, "s") / 86400.0 for value in values]
    assert days == pytest.approx([first + step * n for n in range(steps + 1)])


def test_the_unchanged_case_comes_first_and_all_combinations_follow() -> None:
    points = points_of(["deadline=10d,20d", "resources.max_nodes=1,2,3"])
    assert points[0].name == BASE and points[0].changes == ()
    assert len(points) == 1 + 2 * 3
    assert len({point.changes for point in points}) == 7
    assert points[1].changes == (("deadline", "10d"), ("resources.max_nodes", "1"))


def test_scenarios_are_combined_with_what_is_varied(tmp_path: Path) -> None:
    file = tmp_path / "scenarios.yaml"
    file.write_text(
        "tight: {deadline: 10 days, resources.billing: [spot]}\n"
        "adapters:\n  tasks:\n    pretrain.lora: {rank: 16}\n  budget: 5k USD\n",
        encoding="utf-8",
    )
    points = points_of(["question=cheapest,fastest"], file)
    assert [point.name for point in points][1:] == [
        "tight, question=cheapest",
        "tight, question=fastest",
        "adapters, question=cheapest",
        "adapters, question=fastest",
    ]
    assert dict(points[1].changes) == {
        "deadline": "10 days",
        "resources.billing": "[spot]",
        "question": "cheapest",
    }
    assert dict(points[3].changes)["tasks.pretrain.lora"] == "{rank: 16}"


@pytest.mark.parametrize("text", ["- a\n- b\n", "tight: 5\n", "tight: {deadline: 10 days\n"])
def test_other_files_are_refused(tmp_path: Path, text: str) -> None:
    file = tmp_path / "scenarios.yaml"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(InputError):
        points_of([], file)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        points_of([], tmp_path / "none.yaml")
