"""The decision against a search over everything, on random small problems."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from math import inf

import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from tests.property.oracle import optimum
from tests.property.random_problems import (
    QUESTIONS,
    RATE_USD,
    crowded_problem,
    random_problem,
    repeated_problem,
)
from tests.property.rules import Review, nodes_of

from trainplan import problem
from trainplan.aggregate import Aggregate
from trainplan.bounding import Bounder
from trainplan.highs import Session
from trainplan.problem import Charges, Option, ProblemSpec
from trainplan.solve import Decision, Outcome, Solver
from trainplan.thin import thinned

CASES = int(os.environ.get("TRAINPLAN_ORACLE_CASES", "0"))
"""Another number of random cases than the standard ones, and other cases in every run."""
GAP_FRAC = 1e-4
seeds = st.integers(0, 2**40)


def standard(count: int) -> settings:
    """The same cases in every run, unless a number of other ones is asked for."""
    return settings(
        max_examples=CASES or count,
        derandomize=not CASES,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )


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
    review = Review(spec, decision, tolerance_days=1e-6 * spec.windows[-1][1])
    assert review.violations() == []
    assert any(usd == pytest.approx(decision.usd, rel=1e-6, abs=1e-5) for usd in review.cost_usd())


def check_against_search(spec: ProblemSpec, outcome: Outcome) -> None:
    """Feasible or not, value, bound and rules."""
    best, decision = optimum(spec), outcome.decision
    note(f"search {best}, solver {outcome}")
    if best is None or (spec.question == "most-tokens" and best < 1e-6):
        nothing = spec.question == "most-tokens" and decision is not None and decision.scale_frac < 1e-6
        assert outcome.state == ("optimal" if nothing else "infeasible")
        return
    assert outcome.state == "optimal" and decision is not None
    assert value_of(spec, decision) == pytest.approx(best, rel=GAP_FRAC + outcome.gap_frac, abs=1e-6)
    better = outcome.bound - best if spec.question == "most-tokens" else best - outcome.bound
    assert better >= -1e-6 * max(1.0, abs(best)), "the printed bound is none"
    check_rules(spec, decision)


def features(spec: ProblemSpec, outcome: Outcome) -> Iterator[str]:
    """What a case and its decision exercise."""
    decision = outcome.decision
    yield spec.question
    yield f"{len(spec.tasks)} tasks"
    yield f"{len(spec.windows)} windows"
    if decision is None:
        yield "no plan"
        return
    yield "a plan"
    options_used = {use.option for use in decision.uses}
    yield from {spec.resources[r].mode for o in options_used for r in nodes_of(spec, o)}
    regions = {(spec.options[o].task, spec.options[o].region) for o in options_used}
    marks = {
        "mixes options": len(options_used) > len(spec.tasks),
        "on several pools": any(len(nodes_of(spec, o)) > 1 for o in options_used),
        "two parts of one pool": any(
            spec.options[o].beside and len(nodes_of(spec, o)) == 1 for o in options_used
        ),
        "goes on in the next window": any(not use.begins for use in decision.uses),
        "buys": bool(decision.bought),
        "places data": bool(decision.tiers),
        "moves": len(regions) > len(spec.tasks),
        "side by side": any(len(group) > 1 for group in spec.parallel_groups),
        "price changes": any(
            len({*spec.resources[spec.options[o].resource].price_factor}) > 1 for o in options_used
        ),
        "under a budget": spec.budget_usd < inf,
        "under a deadline": spec.deadline_days < inf,
    }
    yield from (mark for mark, there in marks.items() if there)


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
    print(dict(sorted(seen.items())))
    if CASES:
        return
    often = (
        "mixes options",
        "goes on in the next window",
        "buys",
        "places data",
        "side by side",
        "price changes",
        "under a budget",
    )
    assert min(seen["a plan"], seen["no plan"]) > 100
    assert min(seen[mark] for mark in (*RATE_USD, *QUESTIONS, *often)) > 15
    assert seen["on several pools"] > 5
    assert seen["moves"] > 1


@standard(150)
@given(seeds)
def test_one_crowded_task_is_done_as_well_as_can_be(session: Session, seed: int) -> None:
    spec = crowded_problem(seed)
    check_against_search(spec, Solver(spec, session).solve())


def test_several_purchases_are_made_as_well_as_can_be(session: Session) -> None:
    seen: Counter[int] = Counter()

    @standard(40)
    @given(seeds)
    def check(seed: int) -> None:
        spec = repeated_problem(seed)
        outcome = Solver(spec, session).solve()
        check_against_search(spec, outcome)
        seen[0 if outcome.decision is None else len(outcome.decision.bought)] += 1

    check()
    print(dict(sorted(seen.items())))
    assert CASES or (seen[1] > 5 and seen[2] > 5)


@standard(80)
@given(seeds)
def test_among_equals_the_second_goal_decides(session: Session, seed: int) -> None:
    spec = random_problem(seed, questions=("cheapest", "fastest"))
    decision = Solver(spec, session).solve().decision
    if decision is None:
        return
    if spec.question == "fastest":
        other = replace(spec, question="cheapest", deadline_days=decision.finish_days * (1 + 1e-9))
        reached = decision.usd
    else:
        other = replace(spec, question="fastest", budget_usd=decision.usd * (1 + 1e-9))
        reached = decision.finish_days
    best = optimum(other)
    assert best is not None
    assert reached <= best * (1 + 3 * GAP_FRAC) + 1e-6


def in_currency(spec: ProblemSpec, factor: float) -> ProblemSpec:
    """The same problem with every amount of money in another currency."""

    def charges(amounts: Charges) -> Charges:
        return tuple((category, usd * factor) for category, usd in amounts)

    def converted(o: Option) -> Option:
        beside = tuple(replace(part, daily=charges(part.daily)) for part in o.beside)
        return replace(o, daily=charges(o.daily), once=charges(o.once), beside=beside)

    return replace(
        spec,
        options=tuple(map(converted, spec.options)),
        resources=tuple(replace(r, usd_per_node_day=r.usd_per_node_day * factor) for r in spec.resources),
        products=tuple(replace(p, usd_per_node=p.usd_per_node * factor) for p in spec.products),
        datasets=tuple(
            replace(
                c,
                usd_per_day=c.usd_per_day * factor,
                once_usd=c.once_usd * factor,
                read_usd=c.read_usd * factor,
            )
            for c in spec.datasets
        ),
        staging_usd={key: usd * factor for key, usd in spec.staging_usd.items()},
        move_usd={key: usd * factor for key, usd in spec.move_usd.items()},
        handover_usd={key: usd * factor for key, usd in spec.handover_usd.items()},
        programme_daily=charges(spec.programme_daily),
        programme_once=charges(spec.programme_once),
        cloud_once_usd={cloud: usd * factor for cloud, usd in spec.cloud_once_usd.items()},
        delay_usd_per_day=spec.delay_usd_per_day * factor,
        budget_usd=spec.budget_usd * factor,
    )


@standard(60)
@given(seeds, st.sampled_from([1e-6, 1e6]))
def test_the_currency_changes_nothing(session: Session, seed: int, factor: float) -> None:
    spec = random_problem(seed)
    here, there = (Solver(s, session).solve() for s in (spec, in_currency(spec, factor)))
    assert here.state == there.state
    if here.decision is None or there.decision is None:
        return
    assert there.decision.bought == here.decision.bought
    assert there.decision.tiers == here.decision.tiers
    assert there.decision.usd == pytest.approx(here.decision.usd * factor, rel=1e-6)
    for one, other in zip(here.decision.uses, there.decision.uses, strict=True):
        assert (one.option, one.window, one.begins) == (other.option, other.window, other.begins)
        assert other.share_frac == pytest.approx(one.share_frac, abs=1e-6)


@standard(25)
@given(seeds)
def test_the_same_question_gets_the_same_answer_whatever_was_asked_between(
    session: Session, seed: int
) -> None:
    spec = random_problem(seed)
    solver = Solver(spec, session)
    first = solver.solve()
    solver.solve(closed=lambda option: option == 0)
    for limit in solver.ctx.limits:
        solver.solve(limits={limit.name: limit.upper * limit.per_unit * 0.9})
        solver.least_excess(limit.name)
    again = solver.solve()
    assert (again.state, again.decision) == (first.state, first.decision)
    with Session() as other:
        assert Solver(spec, other).solve().decision == first.decision


def under(spec: ProblemSpec, name: str, value: float) -> ProblemSpec:
    """The same problem with another deadline in days, or another budget in USD."""
    return replace(spec, deadline_days=value) if name == "deadline" else replace(spec, budget_usd=value)


@standard(60)
@given(seeds, st.sampled_from(["deadline", "budget"]), st.floats(1.01, 3.0))
def test_a_looser_limit_never_costs_more(session: Session, seed: int, name: str, factor: float) -> None:
    spec = random_problem(seed, questions=("cheapest",))
    limit = spec.deadline_days if name == "deadline" else spec.budget_usd
    if limit == inf:
        spec, limit = under(spec, name, 300.0), 300.0
    solver = Solver(spec, session)
    tight, loose = solver.solve(), solver.solve(limits={name: limit * factor})
    stated = Solver(under(spec, name, limit * factor), session).solve()
    assert stated.state == loose.state
    if loose.decision and stated.decision:
        assert stated.decision.usd == pytest.approx(loose.decision.usd, rel=2 * GAP_FRAC)
    if tight.decision:
        assert loose.decision is not None
        assert loose.decision.usd <= tight.decision.usd * (1 + 2 * GAP_FRAC)


@standard(40)
@given(seeds, st.sampled_from(["deadline", "budget"]), st.floats(0.2, 0.8))
def test_the_least_excess_is_just_enough(session: Session, seed: int, name: str, factor: float) -> None:
    spec = replace(random_problem(seed), question="cheapest", deadline_days=inf, budget_usd=inf)
    free = Solver(spec, session).solve().decision
    if free is None:
        return
    limit = factor * (free.finish_days if name == "deadline" else free.usd)
    excess = Solver(under(spec, name, limit), session).least_excess(name)
    assert excess is not None
    assert optimum(under(spec, name, limit + excess * (1 + 1e-4) + 1e-6)) is not None
    if excess > 1e-6 * limit:
        assert optimum(under(spec, name, limit + excess * (1 - 1e-3))) is None


@standard(60)
@given(seeds, st.integers(0, 8))
def test_a_closed_option_is_as_good_as_none(session: Session, seed: int, closed: int) -> None:
    spec = random_problem(seed)
    closed %= len(spec.options)
    outcome = Solver(spec, session).solve(closed=lambda option: option == closed)
    without = tuple(o for number, o in enumerate(spec.options) if number != closed)
    best = optimum(replace(spec, options=without))
    if outcome.decision is None or best is None or best < 1e-6:
        assert best is None or best < 1e-6
        return
    assert closed not in {use.option for use in outcome.decision.uses}
    assert value_of(spec, outcome.decision) == pytest.approx(best, rel=2 * GAP_FRAC, abs=1e-6)


@standard(50)
@given(seeds)
def test_leaving_out_beaten_options_costs_no_more_than_said(session: Session, seed: int) -> None:
    spec = random_problem(seed, questions=("cheapest",))
    kept, forgiven_usd = thinned(spec)
    outcome = Solver(spec, session, options=kept).solve()
    best = optimum(spec)
    note(f"search {best}, solver {outcome}, kept {kept}, forgiven {forgiven_usd}")
    assert (outcome.decision is None) == (best is None)
    if outcome.decision and best is not None:
        assert outcome.decision.usd <= best * (1 + GAP_FRAC) + forgiven_usd


@standard(60)
@given(seeds)
def test_the_bound_without_a_calendar_is_a_bound(session: Session, seed: int) -> None:
    spec = random_problem(seed)
    best = optimum(spec)
    if best is None:
        return
    aggregate = Aggregate(spec, session, range(len(spec.options)), 10.0)
    note(f"search {best}, bound {aggregate.bound}")
    better = aggregate.bound - best if spec.question == "most-tokens" else best - aggregate.bound
    assert better >= -1e-6 * max(1.0, abs(best))
    decision = Solver(spec, session).solve().decision
    assert decision is not None
    assert decision.finish_days <= aggregate.latest_end_days(decision.usd) * (1 + 1e-6) + 1e-6


@standard(80)
@given(seeds, st.integers(0, 2**9 - 1))
def test_a_bound_over_options_without_whole_numbers_is_a_bound(
    session: Session, seed: int, whole: int
) -> None:
    spec = random_problem(seed)
    best = optimum(spec)
    if best is None:
        return
    every = range(len(spec.options))
    bounder = Bounder(spec, session, [o for o in every if whole >> o & 1], every, GAP_FRAC)
    for answer in (bounder.relaxed(10.0), bounder.searched(bounder.solver, 10.0)):
        proven = bounder.goal(answer)
        note(f"search {best}, bound {proven} ({answer.status})")
        assert proven is not None
        better = proven - best if spec.question == "most-tokens" else best - proven
        assert better >= -1e-6 * max(1.0, abs(best))


@pytest.fixture
def few_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    """More than no set of tasks side by side is too many."""
    monkeypatch.setattr(problem, "MOST_GROUPS", 0)


@pytest.mark.usefixtures("few_groups")
@standard(60)
@given(seeds)
def test_chains_in_place_of_sets_give_plans_that_hold(session: Session, seed: int) -> None:
    spec = random_problem(seed, questions=("cheapest", "fastest"))
    outcome, best = Solver(spec, session).solve(), optimum(spec)
    note(f"search {best}, solver {outcome}")
    if outcome.decision is None:
        assert best is None or spec.wide
        return
    assert best is not None
    assert value_of(spec, outcome.decision) >= best * (1 - 1e-6) - 1e-6
    check_rules(spec, outcome.decision)
    bounder = Bounder(spec, session, (), range(len(spec.options)), GAP_FRAC)
    proven = bounder.goal(bounder.relaxed(10.0))
    assert proven is not None
    assert proven <= best * (1 + 1e-6) + 1e-6
