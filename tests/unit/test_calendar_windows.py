from __future__ import annotations

import pytest

from trainplan.assembly import assemble
from trainplan.calendar_windows import freezes, windows
from trainplan.precedence import antichains, fewest_chains, first_antichains
from trainplan.problem import MOST_GROUPS
from trainplan.sites import find_sites
from trainplan_models.base import InputError
from trainplan_models.case import Case
from trainplan_models.casefile import case_from_text
from trainplan_models.catalog import builtin

TASK = (
    "{name: pretrain, kind: pretrain, model: llama-3-8b, tokens: 100B tokens, sequence_length: 8192, "
    "global_batch: 4M tokens, release: 5 days}"
)


def case_with(resources: str, deadline: str = "60 days", start: str = "2026-12-01") -> Case:
    return case_from_text(
        f"name: calendar\nstart: {start}\ndeadline: {deadline}\ntasks: [{TASK}]\nresources:\n"
        f"  accelerators: [H100-SXM]\n  clouds: [aws]\n  billing: [on-demand]\n{resources}"
    )


def cuts(case: Case) -> list[float]:
    spans = windows(case, find_sites(case, builtin())[0], builtin().modes)
    assert all(a[1] == b[0] for a, b in zip(spans, spans[1:], strict=False))
    return [start for start, _ in spans]


def test_windows_are_cut_where_freezes_begin_and_end() -> None:
    case = case_with("  freezes: [{from: 2026-12-20, to: 2027-01-03}]\n")
    assert cuts(case) == [0.0, 5.0, 19.0, 33.0]


def test_a_freeze_past_the_deadline_cuts_nothing() -> None:
    case = case_with("  freezes: [{from: day 50, to: day 70}]\n", deadline="40 days")
    assert cuts(case) == [0.0, 5.0]


def test_only_the_pools_named_are_frozen() -> None:
    case = case_with(
        "  owned: [{name: dc1, accelerator: H100-SXM, nodes: 4}]\n"
        "  freezes: [{from: day 10, to: day 20, pools: [dc1]}]\n"
    )
    spec = assemble(case, builtin()).spec
    frozen = {r.pool: r.frozen for r in spec.resources}
    assert frozen.pop("dc1") == (2,)
    assert set(frozen.values()) == {()}


@pytest.mark.parametrize(
    ("freeze", "words"),
    [
        ("{from: day 20, to: day 10}", "ends before it begins"),
        ("{from: 2026-10-01, to: day 10}", "2026-10-01"),
        ("{from: day 1}", "to"),
        ("{from: day 1, to: day 2, pool: dc1}", "freezes[0].pool: unknown key"),
    ],
)
def test_a_freeze_that_makes_no_sense_is_refused(freeze: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        case_with(f"  freezes: [{freeze}]\n")
    assert words in str(caught.value)


def test_freezes_are_in_days_from_the_start() -> None:
    case = case_with("  freezes: [{from: 2026-12-20, to: 2027-01-03, pools: [aws]}]\n")
    assert freezes(case) == ((19.0, 33.0, ("aws",)),)


DIAMOND = [(), (0,), (0,), (1, 2)]
CHAINS = [(), (0,), (), (2,), (3,)]
WIDE: list[tuple[int, ...]] = [() for _ in range(9)]


@pytest.mark.parametrize("predecessors", [DIAMOND, CHAINS, WIDE, [()]])
def test_there_are_as_many_chains_as_tasks_fit_side_by_side(predecessors: list[tuple[int, ...]]) -> None:
    chains = fewest_chains(predecessors)
    assert sorted(task for chain in chains for task in chain) == list(range(len(predecessors)))
    assert len(chains) == max(len(group) for group in antichains(predecessors))
    for group in antichains(predecessors):
        for chain in chains:
            assert len(set(group) & set(chain)) <= 1


def test_many_tasks_side_by_side_are_not_looked_at_set_by_set() -> None:
    assert first_antichains(DIAMOND, 100) == antichains(DIAMOND)
    assert first_antichains(WIDE, MOST_GROUPS + 1) is None
