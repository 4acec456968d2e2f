"""From when until when enough of several purchases is there for a stretch of work."""

from __future__ import annotations

import pytest
from tests.unit.test_simulation import CATALOG, DAY_S, POOL, case_of, plan_of, segment

from trainplan_models.plan import Purchase
from trainplan_models.simulation_plan import steps_of
from trainplan_models.simulation_world import world_of

TAIL_DAYS = 1800.0 / DAY_S


def bought(mode: str, nodes: int, start: float, end: float) -> Purchase:
    hours = nodes * (end - start) * 24.0
    return Purchase(
        pool="/".join(POOL),
        mode=mode,
        nodes=nodes,
        start_s=start * DAY_S,
        end_s=end * DAY_S,
        usd=30.0 * hours,
        upfront_usd=0.0,
        used_node_h=0.0,
        bought_node_h=hours,
    )


def until_days(purchases: list[Purchase], *stretches: tuple[int, float, float]) -> list[float]:
    """Days on which the nodes of each stretch (nodes, first and last day) are gone."""
    mode = purchases[0].mode
    runs = [segment("a", mode, start * DAY_S, end * DAY_S, nodes=nodes) for nodes, start, end in stretches]
    plan, case = plan_of(runs, tuple(purchases)), case_of({"name": "a"})
    steps = steps_of(plan, case, CATALOG, world_of(plan, case, CATALOG))
    return [step.window_end_s / DAY_S for step in steps]


def test_nodes_of_one_block_are_gone_though_another_begins_later() -> None:
    blocks = [bought("capacity-block", 8, 0.0, 7.0), bought("capacity-block", 8, 30.0, 37.0)]
    assert until_days(blocks, (8, 0.0, 6.0), (8, 30.0, 35.0)) == pytest.approx(
        [7.0 - TAIL_DAYS, 37.0 - TAIL_DAYS]
    )


def test_a_block_that_follows_another_comes_after_a_gap() -> None:
    blocks = [bought("capacity-block", 8, 0.0, 14.0), bought("capacity-block", 8, 14.0, 16.0)]
    assert until_days(blocks, (8, 0.0, 13.9)) == pytest.approx([14.0 - TAIL_DAYS])


def test_terms_without_a_gap_go_on_into_each_other() -> None:
    terms = [bought("reserved-1m", 8, 0.0, 30.0), bought("reserved-1m", 8, 30.0, 60.0)]
    assert until_days(terms, (8, 0.0, 29.0)) == pytest.approx([60.0])


def test_what_needs_both_of_two_that_overlap_ends_with_the_first_to_end() -> None:
    terms = [bought("reserved-1m", 4, 0.0, 30.0), bought("reserved-1m", 8, 20.0, 50.0)]
    assert until_days(terms, (4, 0.0, 20.0), (12, 20.0, 28.0), (8, 28.0, 40.0)) == pytest.approx(
        [50.0, 30.0, 50.0]
    )
