"""Plans made with scenarios in the model: judged by simulation, against the plan without and with a margin."""

from __future__ import annotations

import pytest

from trainplan.candidate_cache import CandidateCache
from trainplan.planning import plan
from trainplan.scenarios import for_plan
from trainplan_models.base import InfeasibleError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan
from trainplan_models.simulation import simulate

CASE = """
name: staged
question: {question}
deadline: {deadline}
{budget}
reliability: 90%
tasks:
  - {{name: pretrain, kind: pretrain, model: llama-3-8b, tokens: 100B tokens, sequence_length: 8192,
      global_batch: 4M tokens}}
  - {{name: sft, kind: sft, after: [pretrain], tokens: 2B tokens, sequence_length: 8192}}
resources: {{accelerators: [H100-SXM], clouds: [nebius], billing: {billing}, max_nodes: 24}}
people: {{engineers: 0}}
overheads: {{delay: 500 USD/day}}
"""
CACHE = CandidateCache()
FRESH_SEED = 99


def case_of(
    deadline: str = "45 hours",
    budget: str = "",
    question: str = "cheapest",
    billing: str = "[on-demand, spot]",
) -> Case:
    text = CASE.format(deadline=deadline, budget=budget, question=question, billing=billing)
    return case_from_text(text)


def planned(case: Case) -> Plan:
    return plan(case, builtin(), compare=False, cache=CACHE)


def fresh_chance(found: Plan, case: Case) -> float:
    scenarios = for_plan(found, case, builtin(), 10_000, FRESH_SEED)
    return simulate(found, case, builtin(), scenarios, FRESH_SEED).p_both


@pytest.mark.parametrize("deadline", ["30 hours", "36 hours"])
def test_the_promise_is_kept_at_the_least_expected_cost_of_what_was_tried(deadline: str) -> None:
    case = case_of(deadline)
    found = planned(case)
    risk = found.risk
    assert risk is not None
    assert fresh_chance(found, case) >= 0.88
    assert found.expected_usd == risk.cost_mean_usd
    assert {way.name for way in found.methods} == {"scenarios", "margin"}
    assert {point.method for point in risk.tried} == {"as planned", "scenarios", "margin"}
    first = next(point for point in risk.tried if point.method == "as planned")
    assert first.chance_frac < 0.9
    kept = [point.expected_usd for point in risk.tried if point.chance_frac >= 0.902]
    chosen = next(point for point in risk.tried if abs(point.cost_usd - found.total_usd) < 0.01)
    assert kept
    assert chosen.expected_usd == min(usd for usd in kept if usd is not None)


def test_what_has_time_enough_is_planned_without_scenarios() -> None:
    found = planned(case_of("30 days"))
    assert found.methods == ()
    assert found.risk is not None
    assert found.risk.method == "as planned"


def test_the_safest_plan_is_at_least_as_sure_as_any() -> None:
    cheapest, safest = (planned(case_of("36 hours", question=name)) for name in ("cheapest", "safest"))
    assert cheapest.risk is not None
    assert safest.risk is not None
    assert safest.risk.chance_frac >= max(point.chance_frac for point in cheapest.risk.tried) - 0.01


def test_a_way_out_tells_its_chance_and_what_keeps_the_promise() -> None:
    case = case_of("10 hours", billing="[on-demand]", budget="budget: 40k USD")
    with pytest.raises(InfeasibleError) as caught:
        planned(case)
    ways = {way["key"]: way for way in caught.value.details["ways_out"]}
    way = ways["deadline"]
    assert way["chance_frac"] < 0.9
    assert "for a chance of 90%: deadline" in str(caught.value)
    changed = case_of(dict(way["kept"])["deadline"], billing="[on-demand]", budget="budget: 40k USD")
    found = planned(changed)
    assert fresh_chance(found, changed) >= 0.88
    assert way["kept_chance_frac"] == pytest.approx(fresh_chance(found, changed), abs=0.02)
    for other in ways.values():
        assert other["chance_frac"] is not None
        assert (
            other["chance_frac"] >= 0.89
            or other["kept"]
            or not other["kept_sought"]
            or "no change like it" in str(caught.value)
        )
