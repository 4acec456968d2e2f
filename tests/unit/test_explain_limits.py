"""The limits of a case as numbers with units, and cases with values replaced."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan.changes import changed, current
from trainplan.negotiable import Negotiable, negotiables, text_of
from trainplan_models.base import InputError
from trainplan_models.casefile import case_from_text
from trainplan_models.quantity import parse

TEXT = """
name: limits
deadline: 30 days
budget: 400k USD
max_lost_work: 90 minutes
tasks:
  - {name: train, kind: continue, model: llama-2-7b, tokens: 20B tokens, sequence_length: 4096}
  - {name: tune.a, kind: sft, after: [train], tokens: 1B tokens, sequence_length: 4096, due: 40 hours}
resources:
  max_nodes: 8
  max_accelerators: 64
  quotas: [{pool: aws/us-east-1/p5.48xlarge, on-demand: 8 nodes, spot: 1 node}]
  owned:
    - {name: dc1, accelerator: A100-SXM-80GB, nodes: 4}
    - name: dc2
      accelerator: A100-SXM-80GB
      nodes: 8
      free: [{from: day 0, nodes: 2}, {from: day 9, nodes: 8}]
  grants:
    - name: centre
      accelerator: A100-SXM-80GB
      nodes: 8
      hours: 3000 node-hours
      units_per_accelerator_hour: 0.125
  discounts: {aws: 10%}
"""
CASE = case_from_text(TEXT)
ITEMS = {item.key: item for item in negotiables(CASE)}


def test_every_limit_is_there_once_as_it_is_written() -> None:
    assert {key: item.written for key, item in ITEMS.items()} == {
        "deadline": "30 days",
        "budget": "400000 USD",
        "tasks.tune.a.due": "40 hours",
        "max_lost_work": "90 minutes",
        "resources.max_nodes": "8 nodes",
        "resources.max_accelerators": "64 accelerators",
        "resources.quotas[0].on-demand": "8 nodes",
        "resources.quotas[0].spot": "1 node",
        "resources.owned[0].nodes": "4 nodes",
        "resources.owned[1].free[0].nodes": "2 nodes",
        "resources.grants[0].hours": "3000 units",
        "resources.grants[0].nodes": "8 nodes",
    }


@pytest.mark.parametrize("key", ITEMS)
def test_what_a_limit_says_is_what_set_understands(key: str) -> None:
    item = ITEMS[key]
    assert changed(CASE, {key: item.written}) == CASE
    more = item.text(item.value + 1.0)
    overridden = case_from_text(TEXT, overrides=[f"{key}={more}"])
    assert changed(CASE, {key: more}) == overridden
    assert {i.key: i.value for i in negotiables(overridden)}[key] == pytest.approx(item.value + 1.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("deadline", ""),
        ("deadline", "2 weeks"),
        ("question", "fastest"),
        ("resources.billing", "[spot, reserved-1y]"),
        ("resources.clouds", "[]"),
        ("resources.discounts.gcp", "12%"),
        ("tasks[0].lora", "{rank: 8, quantized_base: true}"),
        ("tasks.tune.a.tokens", "2B tokens"),
        ("people.engineers", "2.5"),
        ("checkpoints.copy_to_second_region", "true"),
        ("reliability", "high"),
        ("resources.quotas", "[{pool: gcp/us-central1/a3-highgpu-8g, spot: 3 nodes}]"),
    ],
)
def test_a_changed_case_is_the_case_with_the_override(key: str, value: str) -> None:
    assert changed(CASE, {key: value}) == case_from_text(TEXT, overrides=[f"{key}={value}"])


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dedline", "5 days"),
        ("deadline", "5"),
        ("deadline", "5 USD"),
        ("tasks.none.tokens", "5B tokens"),
        ("tasks[7].tokens", "5B tokens"),
        ("resources.quotas[0].pool.name", "x"),
        ("tasks", "[]"),
    ],
)
def test_what_cannot_be_is_refused(key: str, value: str) -> None:
    with pytest.raises(InputError):
        changed(CASE, {key: value})


def test_what_a_case_has_is_said_in_words() -> None:
    assert current(CASE, "resources.clouds") == "any"
    assert current(CASE, "resources.billing") == "[on-demand, spot]"
    assert current(CASE, "tasks.train.optimizer") == "adamw"
    assert current(CASE, "tasks[0].lora") == "none"


@given(st.floats(1e-3, 1e9), st.floats(1e-9, 1e6))
def test_a_rounded_value_is_enough_and_hardly_more(value: float, apart: float) -> None:
    item = Negotiable("deadline", value, "days")
    exact = value + apart
    rounded = item.rounded(exact)
    assert rounded >= exact
    assert rounded - value <= (exact - value) * 1.0011 + 1e-12 * value
    assert parse(item.text(rounded), "s") == pytest.approx(rounded * 86400.0, rel=1e-12)


@given(st.integers(0, 4000), st.floats(0.0, 1.0))
def test_whole_limits_round_to_whole_numbers(value: int, more: float) -> None:
    item = Negotiable("resources.max_nodes", float(value), "nodes", whole=True)
    rounded = item.rounded(value + more)
    assert rounded == int(rounded)
    assert value <= rounded <= value + 1


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (1.0, "nodes", "1 node"),
        (1.0, "USD", "1 USD"),
        (1e-7, "days", "0.0000001 days"),
        (1.25e21, "USD", "1250000000000000000000 USD"),
        (37.0500, "days", "37.05 days"),
    ],
)
def test_numbers_are_never_in_exponent_form(value: float, unit: str, text: str) -> None:
    assert text_of(value, unit) == text
