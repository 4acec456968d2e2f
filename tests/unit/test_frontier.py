"""Frontiers: not beaten, monotone, and what ``plan`` answers."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.cli.frontier import csv_of, document_of
from trainplan.frontier import Frontier, FrontierPoint, _unbeaten, frontier
from trainplan.frontier_chart import html_of, svg_of
from trainplan.planning import plan
from trainplan.report.render_markdown import render
from trainplan_models.base import InfeasibleError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

TEXT = """
name: traced
deadline: 20 days
budget: 80k USD
tasks:
  - name: train
    kind: continue
    model: llama-2-7b
    tokens: 200B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 12}
people: {engineers: 2, rate: 120 USD/hour}
"""


def case(*overrides: str) -> Case:
    return case_from_text(TEXT, overrides=overrides)


@pytest.fixture(scope="module")
def traced() -> Frontier:
    return frontier(case(), builtin(), promise=False)


def test_it_is_monotone(traced: Frontier) -> None:
    assert len(traced.points) >= 4
    times = [point.finish_s for point in traced.points]
    costs = [point.total_usd for point in traced.points]
    assert times == sorted(times)
    assert costs == sorted(costs, reverse=True)
    assert len(set(costs)) == len(costs)


def test_every_point_is_what_plan_answers_with_its_overrides(traced: Frontier) -> None:
    for point in traced.points:
        found = plan(case(*point.overrides), builtin(), compare=False, promise=False)
        assert found.total_usd == point.total_usd
        assert found.finish_s == point.finish_s


def test_its_ends_are_the_quickest_and_the_cheapest_plan(traced: Frontier) -> None:
    quickest = plan(case("question=fastest", "budget="), builtin(), compare=False, promise=False)
    assert traced.points[0].finish_s == pytest.approx(quickest.finish_s, rel=2e-4)
    cheapest = plan(case("deadline=60 days", "budget="), builtin(), compare=False, promise=False)
    assert traced.points[-1].total_usd == pytest.approx(cheapest.total_usd, rel=2e-4)


def test_no_plan_lies_below_it(traced: Frontier) -> None:
    """A deadline between two points costs what the earlier of them costs, or lies between both."""
    for left, right in zip(traced.points, traced.points[1:], strict=False):
        middle_s = (left.finish_s + right.finish_s) / 2.0
        found = plan(case(f"deadline={middle_s!r} s", "budget="), builtin(), compare=False, promise=False)
        assert right.total_usd * (1.0 - 3e-4) <= found.total_usd <= left.total_usd * (1.0 + 3e-4)


def test_points_within_the_budget_are_marked(traced: Frontier) -> None:
    limit = case().budget_usd
    assert limit is not None
    assert [point.within_budget for point in traced.points] == [p.total_usd <= limit for p in traced.points]


def test_more_chance_costs_more() -> None:
    found = frontier(case("deadline=9 days", "budget="), builtin(), against="reliability", most_points=4)
    chances = [point.chance_frac for point in found.points]
    costs = [point.expected_usd for point in found.points]
    assert None not in chances and None not in costs
    assert chances == sorted(chances, reverse=True)  # type: ignore[type-var]
    assert costs == sorted(costs, reverse=True)  # type: ignore[type-var]
    for point in found.points:
        again = plan(case("deadline=9 days", "budget=", *point.overrides), builtin(), compare=False)
        assert (again.total_usd, again.expected_usd) == (point.total_usd, point.expected_usd)
    assert "Expected USD" in render(document_of(found))
    assert "expected USD" in svg_of(found) and "expected USD" in html_of(found)


def test_without_any_plan_there_is_no_frontier() -> None:
    with pytest.raises(InfeasibleError):
        frontier(
            case("tasks.train.model=llama-3-70b", "resources.max_nodes=1 nodes"), builtin(), promise=False
        )


def test_what_was_not_simulated_is_called_planned(traced: Frontier) -> None:
    text = render(document_of(traced))
    assert "Planned USD" in text and "Expected USD" not in text
    assert "planned USD" in svg_of(traced)


def test_what_costs_less_as_planned_and_more_on_average_is_beaten() -> None:
    early = point(1.0, 10.0).model_copy(update={"expected_usd": 11.0})
    late = point(2.0, 9.0).model_copy(update={"expected_usd": 14.0})
    assert _unbeaten([early, late], lambda p: p.finish_s) == [early]
    assert len(_unbeaten([point(1.0, 10.0), point(2.0, 9.0)], lambda p: p.finish_s)) == 2


def point(finish_s: float, usd: float) -> FrontierPoint:
    return FrontierPoint(
        overrides=(f"deadline={finish_s} s",),
        total_usd=usd,
        finish_s=finish_s,
        decision=(),
        within_budget=True,
    )


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(1, 50)), min_size=1))
def test_what_is_kept_is_exactly_what_is_not_beaten(pairs: list[tuple[int, int]]) -> None:
    points = [point(float(finish), float(usd)) for finish, usd in pairs]
    kept = _unbeaten(points, lambda p: p.finish_s)
    for one in kept:
        assert not any(
            other.finish_s <= one.finish_s
            and other.total_usd <= one.total_usd
            and (other.finish_s, other.total_usd) != (one.finish_s, one.total_usd)
            for other in points
        )
    for other in points:
        assert any(one.finish_s <= other.finish_s and one.total_usd <= other.total_usd for one in kept)


def test_the_chart_is_one_picture_without_links(traced: Frontier) -> None:
    root = ElementTree.fromstring(svg_of(traced))
    circles = root.findall("{http://www.w3.org/2000/svg}circle")
    assert len(circles) == len(traced.points)
    xs = [float(circle.attrib["cx"]) for circle in circles]
    ys = [float(circle.attrib["cy"]) for circle in circles]
    assert xs == sorted(xs) and ys == sorted(ys), "dearer is higher, later is further right"
    page = html_of(traced)
    assert page.count("<tr>") == 1 + len(traced.points)
    assert "http" not in page.replace('xmlns="http://www.w3.org/2000/svg"', "")


def test_a_name_cannot_break_the_page(traced: Frontier) -> None:
    page = html_of(traced.model_copy(update={"case": "<script>alert(1)</script>"}))
    assert "<script>" not in page


def test_csv_has_a_line_for_each_point(traced: Frontier) -> None:
    lines = csv_of(traced).splitlines()
    assert len(lines) == 1 + len(traced.points)
    assert lines[0].startswith("overrides,expected_usd,total_usd,finish_days")
