"""The decision against a search over everything, on random small problems."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.property.oracle import optimum
from tests.property.random_problems import random_problem
from tests.property.rules import Review

from trainplan.highs import Session
from trainplan.problem import ProblemSpec
from trainplan.solve import Decision, Outcome, Solver

CASES = int(os.environ.get("TRAINPLAN_ORACLE_CASES", "0"))
"""Another number of random cases than the standard ones, and other cases in every run."""


def standard(count: int) -> settings:
    """The same cases in every run, unless a number of other ones is asked for."""
    return settings(
        max_examples=CASES or count,
        derandomize=not CASES,
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )


seeds = st.integers(0, 2**40)


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session() as opened:
        yield opened


def value_of(spec: ProblemSpec, decision: Decision) -> float:
    """What the question asks for."""
    return {"cheapest": decision.usd, "fastest": decision.finish_days, "most-tokens": decision.scale_frac}[
        spec.question
    ]


def check_rules(spec: ProblemSpec, decision: Decision) -> None:
    """A decision satisfies every rule and costs what it says."""
    review = Review(spec, decision, tolerance_days=1e-6 * spec.windows[-1][1] + 1e-6)
    assert review.violations() == []
    assert any(usd == pytest.approx(decision.usd, rel=1e-6, abs=1e-5) for usd in review.cost_usd())


def check_against_search(spec: ProblemSpec, outcome: Outcome) -> float | None:
    """Feasible or not, value, bound and rules; returns the value found by the search."""
    best = optimum(spec)
    decision = outcome.decision
    note(f"search {best}, solver {outcome}")
    if best is None or (spec.question == "most-tokens" and best < 1e-6):
        assert decision is None or (spec.question == "most-tokens" and decision.scale_frac < 1e-6)
        assert outcome.state in ("infeasible", "optimal")
        return None
    assert outcome.state == "optimal" and decision is not None
    tolerance = (1e-4 + outcome.gap_frac) * abs(best) + 1e-6
    assert value_of(spec, decision) == pytest.approx(best, abs=tolerance)
    worst = max if spec.question == "most-tokens" else min
    assert worst(outcome.bound, best) == pytest.approx(outcome.bound, rel=1e-5, abs=1e-5)
    check_rules(spec, decision)
    return best


def features(spec: ProblemSpec, outcome: Outcome) -> Iterator[str]:
    """What a case and its decision exercise."""
    decision = outcome.decision
    yield spec.question
    yield "feasible" if decision else "infeasible"
    yield f"{len(spec.tasks)} tasks"
    yield f"{len(spec.windows)} windows"
    if decision is None:
        return
    options_used = {use.option for use in decision.uses}
    yield from {f"uses {spec.resources[spec.options[o].resource].mode}" for o in options_used}
    if len(options_used) > len(spec.tasks):
        yield "mixes options"
    if any(not use.begins for use in decision.uses):
        yield "continues"
    if decision.bought:
        yield "buys"
    if decision.tiers:
        yield "tiers"
    regions = {(spec.options[o].task, spec.options[o].region) for o in options_used}
    if len(regions) > len(spec.tasks):
        yield "moves"
    if any(len(group) > 1 for group in spec.parallel_groups):
        yield "parallel"


def test_the_decision_is_the_optimum_of_a_search_over_everything(session: Session) -> None:
    seen: Counter[str] = Counter()

    @standard(500)
    @given(seeds)
    def check(seed: int) -> None:
        spec = random_problem(seed)
        outcome = Solver(spec, session).solve()
        check_against_search(spec, outcome)
        seen.update(features(spec, outcome))

    check()
    print(sorted(seen.items()))
