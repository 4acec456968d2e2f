from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from trainplan.report import timeline
from trainplan_models import over_time
from trainplan_models.catalog import builtin
from trainplan_models.peaks import READS, STORED, WRITES, Stored, demand_by_week, peaks
from trainplan_models.plan import Peak, Plan

GOLDEN = Path(__file__).parents[1] / "golden"
SHIPPED = sorted(GOLDEN.glob("export/case-*.plan.json"))
DAY_S = 86400.0


def read(path: Path) -> Plan:
    return Plan.model_validate_json(path.read_text(encoding="utf-8"))


@pytest.fixture(params=SHIPPED, ids=lambda path: path.stem)
def plan(request: pytest.FixtureRequest) -> Plan:
    return read(request.param)


@pytest.fixture(scope="module")
def blocks() -> Plan:
    return read(GOLDEN / "export" / "case-capacity-block.plan.json")


def test_the_weeks_add_up_to_the_total_to_the_cent(plan: Plan) -> None:
    weeks = over_time.spend_by_week(plan)
    assert weeks[-1].cumulative_usd == pytest.approx(plan.total_usd, abs=0.005)
    assert sum(week.usd for week in weeks) == pytest.approx(plan.total_usd, abs=0.005)
    assert math.fsum(sum(week.by_category_usd.values()) for week in weeks) == pytest.approx(plan.total_usd)
    assert math.fsum(sum(week.by_task_usd.values()) for week in weeks) == pytest.approx(plan.total_usd)


def test_every_week_follows_the_one_before(plan: Plan) -> None:
    spans = over_time.periods(plan)
    assert spans[0][0] == 0.0
    assert spans[-1][1] == pytest.approx(over_time.end_of(plan))
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))
    assert len(spans) <= over_time.MOST_PERIODS


def test_the_last_stop_line_is_the_budget(plan: Plan) -> None:
    budgeted = plan.model_copy(update={"case": plan.case | {"budget_usd": plan.total_usd + 1000.0}})
    weeks = over_time.spend_by_week(budgeted)
    assert weeks[-1].stop_usd == pytest.approx(plan.total_usd + 1000.0, abs=0.01)
    for week in weeks:
        rest = plan.total_usd - week.cumulative_usd
        assert week.stop_usd + rest == pytest.approx(plan.total_usd + 1000.0, abs=0.01)
        assert week.cumulative_usd <= week.warning_usd <= week.stop_usd


def test_a_block_is_paid_on_its_first_day_and_a_year_by_the_week(blocks: Plan) -> None:
    first = over_time.spend_by_week(blocks)[0]
    assert first.usd > sum(block.usd for block in blocks.purchases)
    for block in blocks.purchases:
        assert over_time.payments(block) == [(block.start_s, block.start_s, block.usd)]
        year = block.model_copy(update={"upfront_usd": 0.0})
        assert over_time.payments(year) == [(block.start_s, block.end_s, block.usd)]


def test_pool_use_counts_node_seconds_once(plan: Plan) -> None:
    counted = sum(use.average_nodes * (use.end_s - use.start_s) for use in over_time.pool_use(plan))
    run = sum((s.nodes + s.spare_nodes) * (s.end_s - s.start_s) for s in plan.segments)
    assert counted == pytest.approx(run)
    for use in over_time.pool_use(plan):
        assert use.average_nodes <= use.offered_nodes * (1 + 1e-9)
        assert use.average_nodes <= use.peak_nodes * (1 + 1e-9)


def test_owned_nodes_come_in_steps() -> None:
    plan = read(GOLDEN / "export" / "case-owned-cluster-grows.plan.json")
    assert over_time.offered_nodes(plan, "dc1", "owned", 0.0) == 4.0
    assert over_time.offered_nodes(plan, "dc1", "owned", 20 * DAY_S) == 12.0
    assert over_time.offered_nodes(plan, "aws/us-east-1/p4de.24xlarge", "on-demand", 0.0) == math.inf


def test_bars_show_what_is_bought_and_not_used(blocks: Plan) -> None:
    block = blocks.purchases[0]
    longer = block.model_copy(update={"end_s": block.end_s + 14 * DAY_S})
    bars = over_time.gantt(blocks.model_copy(update={"purchases": (longer,)}), 28)
    bought = next(bar for bar in bars if bar.purchase)
    text = timeline.bar_text(bought)
    assert len(text) == 28
    assert text[0] == timeline.FULL
    assert text[-1] == timeline.IDLE
    for bar in bars:
        assert np.all(np.array(bar.used_nodes) <= np.array(bar.there_nodes) + 1e-9)


def test_peaks_are_at_least_the_averages_and_the_weeks_reach_them(plan: Plan) -> None:
    weeks = demand_by_week(plan)
    for peak in peaks(plan, builtin()):
        assert peak.peak >= peak.average * (1 - 1e-9)
        if not peak.pool:
            assert max(week.peak[peak.what] for week in weeks) == pytest.approx(peak.peak)
        if peak.offered is not None and peak.what in (WRITES, READS):
            assert peak.peak <= peak.offered * 1.001


def test_milestones_grow_and_recent_checkpoints_do_not() -> None:
    grows = Stored("t", "p", "milestones", "x", 0.0, 100.0, 200.0, 10.0)
    assert [grows.bytes_at(t) for t in (0.0, 50.0, 100.0, 199.0, 200.0)] == [0.0, 5.0, 10.0, 10.0, 0.0]
    assert grows.byte_seconds(0.0, 200.0) == pytest.approx(500.0 + 1000.0)
    assert grows.byte_seconds(50.0, 100.0) == pytest.approx(375.0)
    stays = Stored("t", "p", "checkpoints", "x", 10.0, 10.0, 20.0, 3.0)
    assert stays.byte_seconds(0.0, 100.0) == pytest.approx(30.0)


def test_a_peak_above_what_is_there_is_told() -> None:
    plan = read(GOLDEN / "export" / "case-owned-cluster-grows.plan.json")
    (owned,) = plan.case["resources"]["owned"]
    small = {"owned": [owned | {"storage_free_bytes": 1e9}]}
    case = plan.case | {"resources": plan.case["resources"] | small}
    tight = plan.model_copy(update={"case": case})
    over = [peak for peak in peaks(tight, builtin()) if timeline.exceeds(peak)]
    assert [(peak.what, peak.pool, peak.offered) for peak in over] == [(STORED, "dc1", 1e9)]
    section = timeline.peaks(tight.model_copy(update={"peaks": tuple(over)}))
    assert section is not None
    assert "1 GB offered" in section.paragraphs[0]


def test_what_nothing_limits_is_never_exceeded() -> None:
    free = Peak(what=STORED, pool="p", unit="bytes", peak=1e18, average=1e18, at_s=0.0)
    assert not timeline.exceeds(free)
