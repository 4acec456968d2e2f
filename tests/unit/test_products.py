"""What can be bought, how often, and where the calendar is cut for it."""

from __future__ import annotations

from math import inf

import pytest

from trainplan.assembly import Assembly, assemble
from trainplan.products import cut_days, lengths_days
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

MODES = builtin().modes
CASE = """
name: bought
deadline: {days} days
tasks:
  - {{name: a, kind: pretrain, model: llama-3-8b, tokens: 100B tokens, sequence_length: 8192}}
{task}
resources: {{accelerators: [H100-SXM], clouds: [aws], regions: [us-east-1], billing: [{mode}]{more}}}
"""
SECOND = "  - {name: b, kind: sft, tokens: 1B tokens, after: [a], sequence_length: 8192}"


def assembled(days: int, mode: str, task: str = "", more: str = "") -> Assembly:
    return assemble(case_from_text(CASE.format(days=days, mode=mode, task=task, more=more)), builtin())


@pytest.mark.parametrize(
    ("mode", "days"),
    [("capacity-block", 14.0), ("calendar", inf), ("reserved-1y", inf), ("reserved-1m", inf)],
)
def test_the_calendar_is_cut_where_lengths_get_coarser(mode: str, days: float) -> None:
    assert cut_days(MODES[mode]) == days


def test_lengths_go_on_until_one_lasts_to_the_end() -> None:
    assert lengths_days(MODES["capacity-block"], 13.0) == tuple(range(1, 15)), "30 minutes are not usable"
    assert lengths_days(MODES["capacity-block"], 12.9) == tuple(range(1, 14))
    assert lengths_days(MODES["capacity-block"], 300.0)[-2:] == (175.0, 182.0)


def test_a_month_is_renewed_without_a_gap() -> None:
    assert lengths_days(MODES["reserved-1m"], 75.0) == (30.0, 60.0, 90.0)
    taken_back = MODES["reserved-1m"].model_copy(update={"unusable_tail_s": 60.0})
    assert lengths_days(taken_back, 75.0) == (30.0,)


@pytest.mark.parametrize(
    ("days", "mode", "task", "times"),
    [
        (10, "capacity-block", "", 1),
        (20, "capacity-block", "", 2),
        (10, "capacity-block", SECOND, 2),
        (300, "reserved-1y", SECOND, 1),
    ],
    ids=["one stretch", "one task over a cut", "two tasks", "one term lasts to the end"],
)
def test_there_are_as_many_purchases_as_stretches_to_buy_for(
    days: int, mode: str, task: str, times: int
) -> None:
    spec = assembled(days, mode, task).spec
    assert {product.purchase for product in spec.products} == set(range(times))


def test_only_the_first_purchase_of_a_lone_task_has_to_begin_at_once() -> None:
    products = assembled(20, "capacity-block").spec.products
    assert {(p.purchase, p.last_day) for p in products} == {(0, 0.0), (1, inf)}


def test_a_quota_limits_what_is_there_at_the_same_time() -> None:
    quota = ", quotas: [{pool: aws/us-east-1/p5.48xlarge, capacity-block: 3 nodes}]"
    (resource,) = assembled(20, "capacity-block", more=quota).spec.resources
    assert (resource.most_at_once_nodes, resource.latest_start_days) == (3.0, 56.0)
    assert {p.most for p in assembled(20, "capacity-block", more=quota).spec.products} <= {1, 2, 3}
    assert assembled(20, "capacity-block").spec.resources[0].most_at_once_nodes == 256.0
