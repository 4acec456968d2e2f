"""The wanted reliability against fresh scenarios: kept where it can be, said where it cannot."""

from __future__ import annotations

import pytest

from trainplan.candidate_cache import CandidateCache
from trainplan.planning import plan
from trainplan.scenarios import for_plan
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan, Risk
from trainplan_models.simulation import simulate

CASE = """
name: promise
deadline: {deadline}
reliability: {reliability}
tasks:
  - {{name: pretrain, kind: pretrain, model: llama-3-8b, tokens: 100B tokens, sequence_length: 8192,
      global_batch: 4M tokens}}
resources: {{accelerators: [H100-SXM], clouds: [nebius], billing: [on-demand], max_nodes: 24}}
overheads: {{delay: 1k USD/day}}
"""
CACHE = CandidateCache()
FRESH_SEED = 99


def planned(deadline: str, reliability: str) -> tuple[Plan, Risk]:
    case = case_from_text(CASE.format(deadline=deadline, reliability=reliability))
    found = plan(case, builtin(), compare=False, cache=CACHE)
    assert found.risk is not None
    return found, found.risk


@pytest.mark.parametrize("wanted", [0.5, 0.8, 0.95])
@pytest.mark.parametrize("deadline", ["26 hours", "30 hours", "40 hours"])
def test_a_promise_holds_in_scenarios_of_another_seed(deadline: str, wanted: float) -> None:
    found, risk = planned(deadline, f"{wanted:.0%}")
    case = case_from_text(CASE.format(deadline=deadline, reliability=f"{wanted:.0%}"))
    scenarios = for_plan(found, case, builtin(), 10_000, FRESH_SEED)
    fresh = simulate(found, case, builtin(), scenarios, FRESH_SEED)
    assert fresh.p_both == pytest.approx(risk.chance_frac, abs=0.02)
    surest = max(point.chance_frac for point in risk.tried)
    if surest >= wanted:
        assert fresh.p_both >= wanted - 0.02
    else:
        assert risk.chance_frac == pytest.approx(surest, abs=0.02)
    if risk.chance_frac < wanted - 0.02:  # a promise within two points counts as kept
        assert any("cannot be promised" in warning for warning in found.warnings)


def test_more_certainty_never_costs_less() -> None:
    costs = [planned("30 hours", wanted)[0].total_usd for wanted in ("50%", "80%", "90%")]
    assert costs == sorted(costs)


def test_the_same_case_gets_the_same_promise() -> None:
    assert planned("30 hours", "90%")[1] == planned("30 hours", "90%")[1]
