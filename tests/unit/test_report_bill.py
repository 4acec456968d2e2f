from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.report.bill import CATEGORY_ORDER, bill_of, category_rank, to_cents
from trainplan_models.base import VerificationError
from trainplan_models.plan import CostLine, Plan

FULL = Path(__file__).parents[1] / "golden" / "report" / "full.plan.json"


@pytest.fixture(scope="module")
def full() -> Plan:
    return Plan.model_validate_json(FULL.read_text(encoding="utf-8"))


def with_lines(plan: Plan, lines: list[CostLine], total_usd: float) -> Plan:
    return plan.model_copy(update={"cost_lines": tuple(lines), "total_usd": total_usd})


LINES = st.lists(
    st.builds(
        CostLine,
        category=st.sampled_from((*CATEGORY_ORDER, "other")),
        task=st.sampled_from(("", "a", "b")),
        item=st.just("item"),
        quantity=st.just(1.0),
        unit=st.just("unit"),
        unit_usd=st.just(1.0),
        usd=st.floats(min_value=-1e3, max_value=1e7),
        fixed=st.booleans(),
    ),
    max_size=30,
)


@given(lines=LINES)
def test_every_grouping_adds_up_to_the_total_exactly(lines: list[CostLine]) -> None:
    full = Plan.model_validate_json(FULL.read_text(encoding="utf-8"))
    bill = bill_of(with_lines(full, lines, sum(line.usd for line in lines)))
    assert sum((amount for _, amount in bill.lines), Decimal(0)) == bill.total_usd
    for grouped in (
        bill.grouped(lambda line: line.category),
        bill.grouped(lambda line: line.task),
        bill.grouped(lambda line: str(line.fixed)),
    ):
        assert sum((amount for _, amount in grouped), Decimal(0)) == bill.total_usd
    assert len(bill.lines) + bill.zero_lines == len(lines)
    ranks = [category_rank(line.category) for line, _ in bill.lines]
    assert ranks == sorted(ranks)


@pytest.mark.parametrize("error_usd", [1.0, -1.0, 0.25])
def test_lines_that_do_not_add_up_are_refused(full: Plan, error_usd: float) -> None:
    with pytest.raises(VerificationError, match="add up"):
        bill_of(full.model_copy(update={"total_usd": full.total_usd + error_usd}))


def test_half_a_cent_a_line_is_rounding(full: Plan) -> None:
    lines = [full.cost_lines[0].model_copy(update={"usd": 0.004}) for _ in range(10)]
    assert bill_of(with_lines(full, lines, 0.04)).total_usd == 0


@pytest.mark.parametrize(
    ("value_usd", "cents"), [(0.125, "0.12"), (0.135, "0.14"), (2.675, "2.68"), (1e9 + 0.01, "1000000000.01")]
)
def test_rounding_is_of_the_number_as_written(value_usd: float, cents: str) -> None:
    assert to_cents(value_usd) == Decimal(cents)


def test_categories_without_cost_are_named(full: Plan) -> None:
    charged = {line.category for line in full.cost_lines if line.usd}
    assert set(bill_of(full).uncharged) == set(CATEGORY_ORDER) - charged
    assert "delay" in bill_of(full).uncharged
