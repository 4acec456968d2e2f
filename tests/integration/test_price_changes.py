"""Prices that change at a date, from the case to the plan, its bill, its weeks and its simulation."""

from __future__ import annotations

import numpy as np
import pytest

from trainplan.planning import plan
from trainplan.report.build import document
from trainplan.report.render_markdown import render
from trainplan.scenarios import for_plan
from trainplan_models import over_time
from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.node_prices import NodePrice, node_price
from trainplan_models.plan import Plan
from trainplan_models.simulation import sample

DAY_S = 86400.0
POOL = "aws/us-east-1/p5.48xlarge"
CUT = "price_changes: [{from: day 20, pools: [aws], cut: 40%}]"


def asked(
    *,
    changes: str = "",
    deadline: str = "60 days",
    tokens: str = "150B tokens",
    billing: str = "[on-demand]",
    experiments: str = "10%",
    node_counts: str = "[4 nodes, 8 nodes]",
    more: str = "",
) -> Case:
    return case_from_text(
        f"""
name: wait-or-not
deadline: {deadline}
tasks:
  - {{name: train, kind: pretrain, model: llama-3-8b, tokens: {tokens}, sequence_length: 8192,
     global_batch: 2M tokens}}
resources:
  accelerators: [H100-SXM]
  clouds: [aws]
  regions: [us-east-1]
  billing: {billing}
  max_nodes: 8
  node_counts: {node_counts}
  {changes}
overheads: {{experiments: {experiments}}}
{more}
"""
    )


def planned(case: Case, *, promise: bool = False) -> Plan:
    return plan(case, builtin(), compare=False, promise=promise)


def listed() -> float:
    return builtin().pools()[POOL].usd_per_node_h["on-demand"]


def prices(found: Plan) -> list[float]:
    return sorted({s.usd_per_node_h for s in found.segments})


def test_a_price_cut_makes_a_plan_wait_where_the_deadline_lets_it() -> None:
    without, waits = planned(asked()), planned(asked(changes=CUT))
    assert without.segments[0].start_s == 0.0
    assert min(s.start_s for s in waits.segments) == pytest.approx(20 * DAY_S)
    assert prices(waits) == pytest.approx([0.6 * listed()])
    compute = [sum(x.usd for x in p.cost_lines if x.category == "compute") for p in (without, waits)]
    assert compute[1] == pytest.approx(0.6 * compute[0], rel=1e-3)
    hurried = planned(asked(changes=CUT, deadline="18 days"))
    assert hurried.finish_s <= 18 * DAY_S
    assert prices(hurried) == pytest.approx([listed()])


def test_what_waiting_costs_is_weighed_against_the_cut() -> None:
    late = "\npeople: {engineers: 60, rate: 200 USD/hour}"
    hurries = planned(asked(changes=CUT, more=late))
    assert hurries.segments[0].start_s < 20 * DAY_S


def test_a_stretch_over_the_date_pays_each_price_for_its_part() -> None:
    found = planned(asked(changes=CUT, deadline="22 days", node_counts="[4 nodes]"))
    crossing = [s for s in found.segments if s.prices]
    assert crossing and all(s.start_s < 20 * DAY_S < s.end_s for s in crossing)
    bill = [x for x in found.cost_lines if x.category == "compute"]
    assert sorted({round(x.unit_usd / listed(), 6) for x in bill}) == [0.6, 1.0]
    hours = sum(
        (s.nodes + s.spare_nodes) * max(0.0, s.end_s - max(s.start_s, 20 * DAY_S)) for s in found.segments
    )
    cheap = sum(x.quantity for x in bill if x.unit_usd < 0.9 * listed())
    assert cheap == pytest.approx(hours / 3600.0, rel=1e-6)
    text = render(document(found))
    assert "from day 20" in text
    assert f"price {POOL} on-demand from day 20" in text


@pytest.mark.parametrize("node_counts", ["[4 nodes]", "[4 nodes, 8 nodes]"])
def test_the_weeks_pay_the_price_of_their_days(node_counts: str) -> None:
    found = planned(asked(changes=CUT, deadline="22 days", node_counts=node_counts))
    weeks = over_time.spend_by_week(found)
    assert weeks[-1].cumulative_usd == pytest.approx(found.total_usd, abs=0.005)
    for week in weeks:
        usd = 0.0
        for s in found.segments:
            for a, b, price in ((s.start_s, 20 * DAY_S, 1.0), (20 * DAY_S, s.end_s, 0.6)):
                hours = max(0.0, min(b, week.end_s, s.end_s) - max(a, week.start_s, s.start_s)) / 3600.0
                usd += hours * (s.nodes + s.spare_nodes) * price * listed()
        assert week.by_category_usd.get("compute", 0.0) == pytest.approx(usd, rel=1e-6, abs=0.02)


def test_a_discount_that_ends_is_used_while_it_holds() -> None:
    early = planned(asked(changes="price_changes: [{to: day 12, cut: 30%}]", deadline="40 days"))
    assert early.finish_s <= 12 * DAY_S * (1 + 1e-9)
    assert prices(early) == pytest.approx([0.7 * listed()])


def test_what_is_bought_is_paid_at_the_price_of_its_first_day() -> None:
    block = builtin().pools()[POOL].usd_per_node_h["capacity-block"]
    changes = "price_changes: [{from: day 15, billing: [capacity-block], cut: 50%}]"
    case = asked(changes=changes, billing="[capacity-block]", tokens="60B tokens")
    found = planned(case)
    assert found.purchases and all(buy.start_s >= 15 * DAY_S for buy in found.purchases)
    for buy in found.purchases:
        assert buy.usd == pytest.approx(0.5 * block * buy.bought_node_h)
    hurried = planned(case.model_copy(update={"deadline": 14 * DAY_S}))
    assert all(buy.usd == pytest.approx(block * buy.bought_node_h) for buy in hurried.purchases)


def test_the_simulation_pays_the_price_of_the_time_in_which_nodes_are_used() -> None:
    changes, rise_s = "price_changes: [{from: day 6, rise: 100%}]", 6 * DAY_S
    case, flat = (asked(changes=text, deadline="40 days", experiments="0%") for text in (changes, ""))
    found = planned(case)
    (segment,) = found.segments
    assert segment.end_s <= rise_s * (1 + 1e-9)
    scenarios = for_plan(found, case, builtin(), 500)
    with_rise, without = (sample(found, one, builtin(), scenarios, seed=3) for one in (case, flat))
    assert with_rise.finish_s == pytest.approx(without.finish_s)
    late_h = np.maximum(with_rise.finish_s - rise_s, 0.0) / 3600.0
    nodes = segment.nodes + segment.spare_nodes
    assert np.count_nonzero(late_h) > 50
    assert with_rise.cost_usd - without.cost_usd == pytest.approx(nodes * listed() * late_h, abs=0.01)


def test_a_price_over_time_is_averaged_over_any_span() -> None:
    price = NodePrice((0.0, 10.0, 30.0), (2.0, 5.0, 1.0))
    assert price.pieces(5.0, 35.0) == ((5.0, 10.0, 2.0), (10.0, 30.0, 5.0), (30.0, 35.0, 1.0))
    spans = np.array([[0.0, 10.0], [5.0, 15.0], [5.0, 35.0], [30.0, 90.0], [10.0, 10.0]])
    assert price.mean(spans[:, 0], spans[:, 1]).tolist() == pytest.approx([2.0, 3.5, 115.0 / 30.0, 1.0, 5.0])


def test_changes_follow_each_other_in_the_order_they_are_written_in() -> None:
    case = asked(
        changes="price_changes: [{from: day 10, pools: [aws/us-east-1/p5.48xlarge], price: 40 USD/hour}, "
        "{to: day 20, cut: 50%}, {from: day 15, billing: [spot], rise: 10%}]"
    )
    there = (POOL, ("aws", "us-east-1"))
    days = (0.0, 10.0, 20.0)
    assert node_price(case, *there, "on-demand", 60.0) == NodePrice(
        tuple(day * DAY_S for day in days), (30.0, 20.0, 40.0)
    )
    assert node_price(case, *there, "spot", 60.0).at(16 * DAY_S) == pytest.approx(22.0)
    assert node_price(case, "gcp/a/b", ("gcp", "a"), "on-demand", 60.0).at(12 * DAY_S) == pytest.approx(30.0)
    assert not node_price(case, "dc1", ("dc1", "dc1"), "owned", 10.0).changes


def test_a_region_whose_price_changes_is_not_left_out_for_a_cheaper_one() -> None:
    regions = asked().model_copy(
        update={"resources": asked().resources.model_copy(update={"regions": ("us-east-1", "us-west-2")})}
    )
    changed = asked(changes="price_changes: [{from: day 20, pools: [aws/us-west-2], cut: 40%}]").resources
    wide = regions.model_copy(
        update={"resources": changed.model_copy(update={"regions": ("us-east-1", "us-west-2")})}
    )
    assert {s.region for s in planned(regions).segments} == {"us-east-1"}
    assert {s.region for s in planned(wide).segments} == {"us-west-2"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{from: day 20, pools: [aws]}", "one of `cut`, `rise` and `price`"),
        ("{from: day 20, cut: 20%, rise: 5%}", "one of `cut`, `rise` and `price`"),
        ("{cut: 20%}", "holds all the time"),
        ("{from: day 20, cut: 100%}", "leaves no price"),
        ("{from: day 20, to: day 10, cut: 10%}", "ends before it begins"),
        ("{from: day 20, price: 40 USD/hour}", "one price cannot hold"),
        ("{from: 2026-05-01, cut: 10%}", "does not say which date day 0 is"),
        ("{from: day 20, cut: 20}", "cut"),
    ],
)
def test_a_wrong_price_change_is_told(change: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        asked(changes=f"price_changes: [{change}]")
    assert message in str(caught.value)
    assert "price_changes[0]" in str(caught.value)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("{from: day 20, pools: [awz], cut: 10%}", "unknown pool or cloud 'awz'"),
        ("{from: day 20, billing: [spott], cut: 10%}", "unknown billing mode 'spott'"),
        ("{from: day 20, pools: [aws], price: 40 USD/hour}", "machines of many kinds"),
    ],
)
def test_a_price_change_of_nothing_known_is_told(change: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        planned(asked(changes=f"price_changes: [{change}]"))
    assert message in str(caught.value)
