"""Whether nodes that nobody has promised are told apart from those that the case names."""

from __future__ import annotations

from trainplan.planning import plan
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan

POOL = "aws/us-east-1/p5.48xlarge"
CASE = """
name: quotas
deadline: 5 days
tasks:
  - {{name: first, kind: sft, model: llama-3-8b, tokens: 20B tokens, sequence_length: 8192}}
  - {{name: second, kind: sft, model: llama-3-8b, tokens: 20B tokens, sequence_length: 8192}}
resources:
  clouds: [aws]
  regions: [us-east-1]
  accelerators: [H100-SXM]
  billing: [on-demand]
  node_counts: [4]
{more}
"""


def planned(more: str = "") -> Plan:
    return plan(case_from_text(CASE.format(pool=POOL, more=more)), builtin(), compare=False, promise=False)


def test_nodes_that_no_quota_names_are_told_with_the_most_at_once() -> None:
    found = planned()
    (row,) = [row for row in found.assumptions if row.key == f"quota {POOL} on-demand"]
    at_once = {
        sum(s.nodes + s.spare_nodes for s in found.segments if s.start_s <= at < s.end_s)
        for at in (segment.start_s for segment in found.segments)
    }
    assert row.value.startswith(f"none: {max(at_once)} nodes at once")
    assert any(f"{max(at_once)} of {POOL} on-demand" in warning for warning in found.warnings)


def test_nodes_within_a_quota_are_not() -> None:
    found = planned(f"  quotas: [{{pool: {POOL}, on-demand: 12 nodes}}]")
    assert all(segment.pool == POOL for segment in found.segments)
    assert not [row for row in found.assumptions if row.key.startswith("quota ")]
    assert not [warning for warning in found.warnings if "can be had" in warning]
