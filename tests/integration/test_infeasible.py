"""Cases without a plan: what clashes is named, and what is proposed works while a little less does not."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from trainplan.planning import plan
from trainplan_models.base import InfeasibleError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin
from trainplan_models.plan import Plan
from trainplan_models.quantity import parse

ONE_TASK = """
name: infeasible
tasks:
  - name: train
    kind: continue
    model: llama-2-7b
    tokens: 200B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 16}
"""
TWO_TASKS = """
name: infeasible
deadline: 30 days
tasks:
  - name: train
    kind: continue
    model: llama-2-7b
    tokens: 200B tokens
    sequence_length: 4096
    global_batch: 1M tokens
  - name: tune
    kind: sft
    after: [train]
    tokens: 10B tokens
    sequence_length: 4096
    global_batch: 1M tokens
    due: 5 days
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 8}
"""
SIDE_BY_SIDE = """
name: infeasible
deadline: 4 days
tasks:
  - name: one
    kind: continue
    model: llama-2-7b
    tokens: 100B tokens
    sequence_length: 4096
    global_batch: 1M tokens
  - name: two
    kind: continue
    model: llama-2-7b
    tokens: 100B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 8}
"""
OWNED = """
name: infeasible
deadline: 10 days
tasks:
  - name: train
    kind: continue
    model: llama-2-7b
    tokens: 200B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources:
  clouds: [aws]
  accelerators: [A100-SXM-80GB]
  billing: [capacity-block]
  owned: [{name: dc1, accelerator: A100-SXM-80GB, nodes: NODES, electricity: 0.11 USD/kWh}]
"""
GRANT = """
name: infeasible
tasks:
  - name: train
    kind: continue
    model: llama-2-7b
    tokens: 200B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources:
  clouds: [aws]
  accelerators: [A100-SXM-80GB]
  billing: [capacity-block]
  grants: [{name: centre, accelerator: A100-SXM-80GB, nodes: 8, hours: 3000 GPU-hours}]
"""
LARGE = """
name: infeasible
tasks:
  - name: train
    kind: sft
    model: llama-3-70b
    tokens: 100M tokens
    sequence_length: 4096
    global_batch: 500k tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 1}
"""
NOWHERE = """
name: infeasible
tasks:
  - name: train
    kind: sft
    model: llama-2-7b
    tokens: 100M tokens
    sequence_length: 4096
    global_batch: 500k tokens
resources: {accelerators: [TPU-v5p], clouds: [aws], billing: [on-demand], max_nodes: 4}
"""
P4DE = "resources.quotas=[{pool: aws/us-east-1/p4de.24xlarge, on-demand: 1 nodes}]"


@dataclass(frozen=True, slots=True)
class Clash:
    """A case, and what must be found about it."""

    text: str
    overrides: tuple[str, ...]
    conflict: frozenset[str]
    ways: frozenset[str]
    """Keys that must be among the ways out."""


def clash(text: str, overrides: tuple[str, ...], conflict: set[str], ways: set[str]) -> Clash:
    return Clash(text, overrides, frozenset(conflict), frozenset(ways))


MAX = "resources.max_nodes"
CASES = {
    "deadline": clash(ONE_TASK, ("deadline=3 days",), {"deadline", MAX}, {"deadline", MAX}),
    "budget": clash(ONE_TASK, ("budget=20k USD",), {"budget"}, {"budget"}),
    "deadline and budget": clash(
        ONE_TASK, ("deadline=5 days", "budget=39k USD"), {"deadline", "budget"}, {"deadline", "budget"}
    ),
    "due date": clash(TWO_TASKS, (), {"tasks.tune.due", MAX}, {"tasks.tune.due", MAX}),
    "nodes side by side": clash(SIDE_BY_SIDE, (), {"deadline", MAX}, {"deadline", MAX}),
    "quota": clash(
        ONE_TASK,
        (P4DE, "resources.regions=[us-east-1]", "deadline=12 days"),
        {"deadline", "resources.quotas[0].on-demand"},
        {"deadline", "resources.quotas[0].on-demand"},
    ),
    "accelerators": clash(
        ONE_TASK,
        ("resources.max_accelerators=16 accelerators", "deadline=12 days"),
        {"deadline", "resources.max_accelerators"},
        {"deadline", "resources.max_accelerators"},
    ),
    "lost work": clash(ONE_TASK, ("max_lost_work=5 seconds",), set(), {"max_lost_work"}),
    "owned nodes": clash(
        OWNED.replace("NODES", "2"),
        (),
        {"deadline", "resources.owned[0].nodes"},
        {"deadline", "resources.owned[0].nodes"},
    ),
    "owned nodes that come later": clash(
        OWNED.replace("NODES", "8, free: [{from: day 0, nodes: 1}, {from: day 9, nodes: 8}]"),
        (),
        {"deadline", "resources.owned[0].free[0].nodes"},
        {"deadline", "resources.owned[0].free[0].nodes"},
    ),
    "grant": clash(GRANT, (), {"resources.grants[0].hours"}, {"resources.grants[0].hours"}),
    "memory": clash(LARGE, (), set(), {MAX, "tasks.train.lora"}),
    "nowhere": clash(NOWHERE, (), set(), {"resources.clouds", "resources.accelerators"}),
}


def planned(text: str, *overrides: str) -> Plan:
    return plan(case(text, *overrides), builtin(), compare=False, explain=False, promise=False)


def case(text: str, *overrides: str) -> Case:
    return case_from_text(text, overrides=overrides)


def explained(one: Clash) -> InfeasibleError:
    with pytest.raises(InfeasibleError) as caught:
        plan(case(one.text, *one.overrides), builtin(), compare=False)
    return caught.value


def amounts(change: str) -> tuple[float, float, str]:
    """Before, after and unit of a change such as ``3 days -> 6.5 days``."""
    before, after = change.split(" -> ")
    number, unit = after.split(" ", 1)
    return float(before.split(" ", 1)[0]), float(number), unit


@pytest.mark.parametrize("name", CASES)
def test_ways_out_work_and_nothing_smaller_does(name: str) -> None:
    one = CASES[name]
    error = explained(one)
    details = error.details
    assert {item["key"] for item in details["conflict"]} >= one.conflict
    ways = details["ways_out"]
    assert {way["key"] for way in ways} >= one.ways
    for way in ways:
        found = planned(one.text, *one.overrides, f"{way['key']}={way['value']}")
        assert found.total_usd == pytest.approx(way["cost_usd"], rel=1e-4)
        assert found.finish_s == pytest.approx(way["finish_s"], rel=1e-4, abs=60.0)
        assert way["key"] in error.explanation
        check_minimal(one, way)


def check_minimal(one: Clash, way: dict[str, Any]) -> None:
    """One node less, or 1 % less of the loosening, has no plan."""
    if not way["change"][0].isdigit():
        return  # a word for another, of which there is no less
    before, after, unit = amounts(way["change"])
    whole = unit in ("nodes", "accelerators")
    less = f"{after - 1:.0f}" if whole else repr(before + 0.99 * (after - before))
    with pytest.raises(InfeasibleError):
        planned(one.text, *one.overrides, f"{way['key']}={less} {unit}")


def test_several_limits_together_where_no_single_one_is_enough() -> None:
    overrides = ("deadline=1 days", "budget=20k USD")
    error = explained(clash(ONE_TASK, overrides, set(), set()))
    assert error.details["ways_out"] == []
    assert len(error.details["conflicts"]) == 2
    joint = error.details["joint"]
    changes = [f"{change['key']}={change['value']}" for change in joint["changes"]]
    assert len(changes) > 1
    found = planned(ONE_TASK, *overrides, *changes)
    assert found.total_usd == pytest.approx(joint["cost_usd"], rel=1e-4)
    # Each of the changes is needed, and so is all but 1 % of it.
    for number, change in enumerate(joint["changes"]):
        others = [text for n, text in enumerate(changes) if n != number]
        check_minimal(Clash(ONE_TASK, (*overrides, *others), frozenset(), frozenset()), change)


def test_what_removed_configurations_is_told() -> None:
    error = explained(CASES["memory"])
    assert "does not fit in memory" in error.explanation
    assert "Nearest:" in error.explanation and "p4de.24xlarge" in error.explanation
    (near,) = error.details["nearest"]
    assert near["needed_bytes_per_accelerator"] > near["usable_bytes_per_accelerator"]
    assert error.details["removed"]["train"]["does not fit in memory"] > 0


def test_quantities_of_ways_out_have_units() -> None:
    (way,) = explained(CASES["budget"]).details["ways_out"]
    assert parse(way["value"], "usd") > 20_000.0
