from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan import report
from trainplan.report import wording
from trainplan.report.build import document
from trainplan.report.document import Column, Document, Table
from trainplan_models.plan import CostLine, Layout, LimitUse, Method, Plan, Removed, Risk

PLANS = Path(__file__).parents[1] / "golden" / "report"


def read(name: str) -> Plan:
    return Plan.model_validate_json((PLANS / f"{name}.plan.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def full() -> Plan:
    return read("full")


@pytest.fixture(scope="module")
def bare() -> Plan:
    return read("bare")


def cells(doc: Document) -> list[str]:
    """Every piece of text of a document that carries content."""
    found = []
    for section in doc.sections:
        found += [text for fact in section.facts for text in fact]
        found += section.paragraphs
        for table in section.tables:
            found += [table.note, *(column.name for column in table.columns)]
            found += [cell for row in (*table.rows, table.total) for cell in row]
    return [text for text in found if text]


def table_of(doc: Document, title: str) -> Table:
    return next(table for section in doc.sections for table in section.tables if table.title == title)


def facts_of(plan: Plan) -> dict[str, str]:
    return dict(document(plan).sections[0].facts)


@pytest.mark.parametrize("name", ["full", "bare"])
def test_piped_text_has_every_cell_whole(name: str) -> None:
    plan = read(name)
    text = report.terminal(plan)
    for cell in cells(document(plan)):
        assert cell in text


def test_markdown_has_every_cell(full: Plan) -> None:
    text = report.markdown(full).replace("\\", "")
    for cell in cells(document(full)):
        assert cell in text


def test_piped_rows_are_one_line_each(full: Plan) -> None:
    lines = report.terminal(full).splitlines()
    for row in table_of(document(full), "Segments").rows:
        assert any(all(cell in line for cell in row) for line in lines)


@pytest.mark.parametrize("width", [40, 60, 80, 132, 200, 400])
def test_a_terminal_is_never_overrun_and_nothing_is_cut(full: Plan, width: int) -> None:
    text = report.terminal(full, width=width)
    assert max(map(len, text.splitlines())) <= width
    assert "\N{HORIZONTAL ELLIPSIS}" not in text
    squeezed = re.sub(r"\s", "", text)
    for section in document(full).sections:
        for table in section.tables:
            prose = {i for i, column in enumerate(table.columns) if column.wraps}
            for row in table.rows:
                # A cell of prose is interleaved with its neighbours when it wraps; the others stay whole.
                for i, cell in enumerate(row):
                    if i not in prose or width >= 400:
                        assert re.sub(r"\s", "", cell) in squeezed


def test_no_escape_codes_without_colour(full: Plan) -> None:
    assert "\x1b" not in report.terminal(full, width=100)
    assert "\x1b" in report.terminal(full, width=100, colour=True)


def test_colour_changes_nothing_but_colour(full: Plan) -> None:
    coloured = report.terminal(full, width=120, colour=True)
    bare = re.sub(r"\x1b\[[0-9;]*m", "", coloured)
    assert [line.rstrip() for line in bare.splitlines()] == report.terminal(full, width=120).splitlines()


@pytest.mark.parametrize("width", [None, 80, 300])
def test_ascii_only_is_ascii(full: Plan, width: int | None) -> None:
    assert report.terminal(full, width=width, ascii_only=True).isascii()
    assert not report.terminal(full, width=width).isascii()


def test_names_keep_their_letters_in_markdown(full: Plan) -> None:
    plan = full.model_copy(update={"name": "größe | *x* <b>"})
    assert report.markdown(plan).startswith("# Plan: größe \\| \\*x\\* \\<b\\>\n")


def test_markdown_tables_are_rectangular(full: Plan) -> None:
    block: list[int] = []
    for line in [*report.markdown(full).splitlines(), ""]:
        if line.startswith("|"):
            block.append(len(re.findall(r"(?<!\\)\|", line)))
        elif block:
            assert len(block) >= 2
            assert len(set(block)) == 1
            block = []


def test_order_of_the_sections(full: Plan) -> None:
    assert [section.title for section in document(full).sections] == [
        "Headline",
        "Warnings",
        "The plan",
        "Timeline",
        "Cost",
        "Why this and not that",
        "Limits",
        "Peaks",
        "Budget line",
        "Ruled out",
        "Assumptions",
        "Solve",
    ]


def test_what_is_not_known_is_said(bare: Plan) -> None:
    text = report.terminal(bare)
    assert "not simulated" in text
    assert "no budget given" in text
    assert "no deadline given" in text
    assert "not proven optimal" in text
    assert "No alternative was evaluated." in text
    assert "The case sets no limit." in text
    assert facts_of(bare)["Prices of"] == "not known"
    assert "Cost per million" not in facts_of(bare)


def test_headline_of_a_plan_within_its_limits(full: Plan) -> None:
    facts = facts_of(full)
    assert "below the budget" in facts["Total cost"]
    assert facts["Finish"].startswith("2026-03-18 00:00 (day 16.00)")
    assert facts["Finish"].endswith("before the deadline")
    assert facts["Prices of"] == "2026-01-30, 2026-02-11"
    assert facts["Proof"].startswith("proven within 0.25 % of the best possible")
    per_million = float(facts["Cost per million"].split()[0])
    assert per_million == pytest.approx(full.total_usd / (full.tokens / 1e6), rel=1e-3)


def test_headline_of_a_plan_beyond_its_limits(full: Plan) -> None:
    limits = (
        LimitUse(limit="deadline", used=2 * 86_400.0, allowed=86_400.0, unit="s", binding=True),
        LimitUse(limit="budget", used=12.0, allowed=2.0, unit="usd", binding=True),
    )
    facts = facts_of(full.model_copy(update={"limits": limits}))
    assert facts["Total cost"].endswith("10.00 USD above the budget")
    assert facts["Finish"].endswith("after the deadline")


def test_accelerator_hours_are_the_paid_ones_of_working_and_spare_nodes(full: Plan) -> None:
    expected = {"H100-SXM": 0.0, "A100-SXM-80GB": 0.0}
    for s in full.segments:
        hours = (s.end_s - s.start_s) / 3600 * s.paid_frac
        expected[s.accelerator] += (s.nodes + s.spare_nodes) * s.accelerators_per_node * hours
    words = facts_of(full)["Accelerator-hours"]
    for name, hours in expected.items():
        assert f"{hours:,.0f} {name}" in words


def test_every_group_ends_in_the_same_total(full: Plan) -> None:
    section = next(s for s in document(full).sections if s.title == "Cost")
    totals = {next(cell for cell in table.total[1:] if cell) for table in section.tables}
    assert totals == {f"{full.total_usd:,.2f}"}


def test_lines_that_cost_nothing_are_counted_not_listed(full: Plan) -> None:
    table = table_of(document(full), "Line items")
    assert len(table.rows) == len([line for line in full.cost_lines if line.usd])
    assert "2 lines that cost nothing" in table.note


def test_labels_of_a_task_win_over_those_of_the_programme(full: Plan) -> None:
    sft = sum(line.usd for line in full.cost_lines if line.task == "sft")
    rows = {row[0]: row[1] for row in table_of(document(full), "By label: team").rows}
    assert rows == {"base-models": f"{full.total_usd - sft:,.2f}", "post-training": f"{sft:,.2f}"}
    assert [row[0] for row in table_of(document(full), "By label: project").rows] == ["assistant"]


def test_a_label_only_some_tasks_have(full: Plan) -> None:
    case = {"tasks": [{"name": "sft", "labels": {"stage": "post"}}]}
    rows = table_of(document(full.model_copy(update={"case": case})), "By label: stage").rows
    assert {row[0] for row in rows} == {"post", "(none)"}


def test_alternatives_stand_next_to_the_chosen_plan(full: Plan) -> None:
    rows = table_of(document(full), "Alternatives").rows
    assert rows[0][:3] == ("chosen", "this plan", f"{full.total_usd:,.2f}")
    assert len(rows) == 1 + len(full.alternatives)
    dearer = next(row for row in rows if row[1] == "on-demand")
    assert dearer[3].startswith("+98,123.40 (+")
    impossible = next(row for row in rows if row[1] == "B200-SXM")
    assert impossible[2:5] == ("-", "-", "-")


def test_rules_that_removed_nothing_are_left_out_and_pools_have_a_name(full: Plan) -> None:
    removed = (
        Removed(task="", rule="cloud not allowed", count=3),
        Removed(task="sft", rule="nothing", count=0),
        Removed(task="sft", rule="some", count=1234),
    )
    rows = table_of(document(full.model_copy(update={"removed": removed})), "Configurations by rule").rows
    assert rows == (("(pools)", "3", "cloud not allowed"), ("sft", "1,234", "some"))
    nothing = full.model_copy(update={"removed": removed[1:2]})
    assert all(section.title != "Ruled out" for section in document(nothing).sections)


def test_a_table_refuses_rows_of_another_width() -> None:
    with pytest.raises(ValueError, match="2 columns"):
        Table(title="t", columns=(Column("a"), Column("b")), rows=(("1",),))


@given(st.floats(min_value=1e-9, max_value=1e15) | st.floats(min_value=-1e15, max_value=-1e-9))
def test_numbers_are_readable_and_keep_their_value(value: float) -> None:
    text = wording.number(value)
    assert "e" not in text
    assert float(text.replace(",", "")) == pytest.approx(value, rel=1e-7)


def test_layout_words_name_what_matters() -> None:
    layout = Layout(dp=4, pp=2, vp=3, zero_stage=3, shard_group=8, micro_batch=2, recompute="full")
    assert wording.layout_words(layout) == "dp4 pp2 vp3 zero3/8 mb2 recompute=full"
    assert wording.layout_words(Layout(dp=1)) == "dp1 zero1 mb1"


@pytest.mark.parametrize(
    ("unit", "value", "expected"),
    [("usd", 1234.5, "1,234.50 USD"), ("steps", 12.0, "12 steps"), ("", 3.25, "3.25")],
)
def test_limits_in_their_own_units(unit: str, value: float, expected: str) -> None:
    assert wording.limit_amount(value, unit) == expected


def test_a_day_without_a_start_has_no_date(bare: Plan, full: Plan) -> None:
    assert wording.moment(bare, 86_400.0 * 1.5) == "day 1.50"
    assert wording.moment(full, 86_400.0 * 1.5) == "2026-03-03 12:00 (day 1.50)"


def test_a_category_nobody_knows_is_still_shown(full: Plan) -> None:
    extra = CostLine(
        category="insurance", task="", item="x", quantity=1, unit="item", unit_usd=5, usd=5, fixed=True
    )
    plan = full.model_copy(update={"cost_lines": (*full.cost_lines, extra), "total_usd": full.total_usd + 5})
    rows = table_of(document(plan), "By category").rows
    assert rows[-1][:2] == ("insurance", "5.00")


def simulated(plan: Plan) -> Plan:
    risk = Risk(
        wanted_frac=0.9,
        chance_frac=0.92,
        chance_low_frac=0.915,
        in_time_frac=0.92,
        in_budget_frac=1.0,
        scenarios_count=10_000,
        seed=2,
        finish_p50_s=86400.0,
        finish_p90_s=2 * 86400.0,
        cost_mean_usd=plan.total_usd * 1.25,
        cost_p50_usd=plan.total_usd * 1.2,
        cost_p90_usd=plan.total_usd * 1.5,
        effective_time_frac=0.9,
        method="scenarios",
    )
    ways = (
        Method(name="scenarios", plans_count=2, seconds=1.5, chance_frac=0.92, expected_usd=1250.0),
        Method(name="margin", plans_count=1, seconds=4.0, chance_frac=0.91, expected_usd=1300.0),
    )
    return plan.model_copy(update={"risk": risk, "expected_usd": risk.cost_mean_usd, "methods": ways})


def test_the_expected_cost_comes_before_the_cost_as_planned(full: Plan) -> None:
    facts = facts_of(simulated(full))
    order = list(facts)
    assert order.index("Expected cost") < order.index("Total cost")
    assert "25.0 % above the plan" in facts["Expected cost"]
    assert "as planned" in facts["Total cost"]
    assert "Expected cost" not in facts_of(full)


def test_the_method_is_told_with_what_the_others_found_and_took(full: Plan) -> None:
    told = facts_of(simulated(full))["Made by"]
    assert told.startswith("scenarios in the model")
    assert "a margin left free: chance 91.0 % at 1,300.00 USD on average, 1 plan in 4.0 s" in told
