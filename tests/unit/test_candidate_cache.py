"""Candidates that were worked out before are the ones that would be worked out now."""

from __future__ import annotations

from dataclasses import replace

import pytest

from trainplan.assembly import assemble
from trainplan.candidate_cache import CandidateCache
from trainplan.candidates import screen
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

TEXT = """
name: cached
deadline: 30 days
tasks:
  - name: train
    kind: sft
    model: llama-2-7b
    tokens: 2B tokens
    sequence_length: 4096
    global_batch: 1M tokens
resources: {accelerators: [A100-SXM-80GB], clouds: [aws], billing: [on-demand], max_nodes: 4}
"""


def case(*overrides: str) -> Case:
    return case_from_text(TEXT, overrides=overrides)


@pytest.mark.parametrize(
    ("override", "shared"),
    [
        ("deadline=20 days", True),
        ("budget=5k USD", True),
        ("tasks.train.tokens=3B tokens", True),
        ("overheads.experiments=15%", True),
        ("assumptions.throughput_factor=0.7", True),
        ("tasks.train.sequence_length=8192", False),
        ("tasks.train.optimizer=adamw-8bit", False),
        ("tasks.train.lora={rank: 8}", False),
        ("tasks.train.model=llama-3-8b", False),
        ("resources.max_nodes=3 nodes", False),
        ("resources.accelerators=[H100-SXM]", False),
    ],
)
def test_only_what_candidates_do_not_depend_on_shares_them(override: str, shared: bool) -> None:
    cache = CandidateCache()
    assemble(case(), builtin(), cache)
    misses = cache.misses
    found = assemble(case(override), builtin(), cache)
    assert (cache.misses == misses) is shared
    fresh = assemble(case(override), builtin())
    assert found.spec == fresh.spec
    assert found.removed == fresh.removed
    assert found.evaluated == fresh.evaluated


def test_a_throughput_factor_is_applied_to_what_is_kept() -> None:
    assembly = assemble(case(), builtin())
    site, setup = assembly.sites[0], assembly.works[0].setup
    assert setup is not None
    setup = replace(setup, framework="megatron")
    cache = CandidateCache()
    cache.screen(setup, site.accelerator, site.node, [1, 2])
    kept = cache.screen(setup, site.accelerator, site.node, [1, 2], 0.6)
    assert kept == screen(setup, site.accelerator, site.node, [1, 2], 0.6)
    assert (cache.hits, cache.misses) == (1, 1)


def test_the_caller_may_add_to_the_counter_it_gets() -> None:
    assembly = assemble(case(), builtin())
    site, setup = assembly.sites[0], assembly.works[0].setup
    assert setup is not None
    setup, cache = replace(setup, framework="megatron"), CandidateCache()
    first = cache.screen(setup, site.accelerator, site.node, [1])
    first.removed["mine"] += 5
    assert cache.screen(setup, site.accelerator, site.node, [1]).removed["mine"] == 0


def test_the_oldest_entries_are_dropped() -> None:
    assembly = assemble(case(), builtin())
    site, setup = assembly.sites[0], assembly.works[0].setup
    assert setup is not None
    setup, cache = replace(setup, framework="megatron"), CandidateCache(most_entries=2)
    for count in (1, 2, 3, 1):
        cache.screen(setup, site.accelerator, site.node, [count])
    assert (cache.hits, cache.misses) == (0, 4)
