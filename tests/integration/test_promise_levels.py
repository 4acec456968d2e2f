"""One case at several wanted chances: more is never told at a lower one, and never costs less at a higher one."""

from __future__ import annotations

from itertools import pairwise

from trainplan.candidate_cache import CandidateCache
from trainplan.planning import plan
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Risk

SHORT_OF_MONEY = """
name: short of money
deadline: 6.43 days
budget: 17k USD
tasks:
  - {name: pretrain, kind: pretrain, model: mistral-7b, tokens: 86B tokens, sequence_length: 4096,
     global_batch: 4M tokens}
  - {name: sft, kind: sft, after: [pretrain], rounds: 4, tokens: 2B tokens, sequence_length: 4096,
     global_batch: 1M tokens}
resources: {accelerators: [H100-SXM], clouds: [aws], regions: [us-east-1], billing: [on-demand, capacity-block],
  max_nodes: 4 nodes}
assumptions: {failure_profile: small-team}
"""
DEAR_FALLBACK = """
name: dear fallback
deadline: 1.74 days
tasks:
  - {name: pretrain, kind: pretrain, model: llama-2-13b, tokens: 277B tokens, sequence_length: 4096,
     global_batch: 4M tokens}
resources: {accelerators: [H100-SXM], clouds: [aws], billing: [on-demand, spot], max_nodes: 64 nodes}
assumptions: {failure_profile: llama3}
"""
NOISE_FRAC = 0.005
"""Plans are chosen on one sample of scenarios and told on another."""


def told(text: str, *wanted: str) -> list[Risk]:
    cache = CandidateCache()
    risks = []
    for level in wanted:
        found = plan(
            case_from_text(text, overrides=[f"reliability={level}"]), builtin(), compare=False, cache=cache
        )
        assert found.risk is not None
        risks.append(found.risk)
    return risks


def test_where_a_chance_cannot_be_reached_the_surest_plan_is_told() -> None:
    risks = told(SHORT_OF_MONEY, "70%", "80%", "95%")
    assert risks[-1].chance_frac < 0.9  # else nothing is tested
    for lower, higher in pairwise(risks):
        kept = higher.chance_frac >= higher.wanted_frac
        assert kept or higher.chance_frac >= lower.chance_frac - NOISE_FRAC


def test_a_lower_chance_is_not_told_a_dearer_plan_where_being_late_is_dear() -> None:
    lower, higher = told(DEAR_FALLBACK, "50%", "95%")
    assert higher.chance_frac >= 0.95  # else nothing is tested
    assert lower.cost_mean_usd <= higher.cost_mean_usd * (1.0 + NOISE_FRAC)
