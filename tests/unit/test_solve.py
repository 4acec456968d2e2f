"""From a problem to a decision: small cases whose answers can be worked out by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import inf
from types import SimpleNamespace

import pytest

from trainplan.highs import GRACE_S, Session
from trainplan.highs_worker import Answer, Request
from trainplan.problem import (
    Charges,
    DatasetChoice,
    Option,
    ProblemSpec,
    Product,
    Resource,
    TaskSpec,
)
from trainplan.solve import Decision, Solver


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    with Session() as opened:
        yield opened


def usd(amount: float) -> Charges:
    """A daily or one-off charge."""
    return (("compute", amount),)


def one_task(**changes: object) -> ProblemSpec:
    """20 days of work on 8 nodes at 100 USD a day, set up in 0.05 days."""
    spec = ProblemSpec(
        tasks=(TaskSpec("train"),),
        options=(Option(0, 0, 0, nodes=8, work_days=20.0, setup_days=0.05, daily=usd(100.0), key="a"),),
        resources=(Resource("a", "pool", "on-demand", (inf,)),),
        regions=("here",),
        windows=((0.0, 100.0),),
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


def decided(spec: ProblemSpec, session: Session) -> Decision:
    """The decision of a problem that has one."""
    outcome = Solver(spec, session).solve()
    assert outcome.state == "optimal" and outcome.decision is not None
    return outcome.decision


def in_windows(spec: ProblemSpec, *ends: float) -> ProblemSpec:
    """The same problem with its time cut at more places."""
    windows = tuple(zip([0.0, *ends], ends, strict=False))
    resources = tuple(replace(r, held_nodes=r.held_nodes[:1] * len(ends)) for r in spec.resources)
    return replace(spec, windows=windows, resources=resources)


@pytest.mark.parametrize("question", ["cheapest", "fastest"])
def test_only_the_most_tokens_question_stretches_work(session: Session, question: str) -> None:
    decision = decided(one_task(tasks=(TaskSpec("train", scalable=True),), question=question), session)
    assert decision.scale_frac == 1.0
    assert decision.usd == pytest.approx(2005.0)


def test_most_tokens_fills_the_time(session: Session) -> None:
    spec = one_task(tasks=(TaskSpec("train", scalable=True),), question="most-tokens", deadline_days=30.05)
    decision = decided(spec, session)
    assert decision.scale_frac == pytest.approx(1.5)
    assert decision.finish_days == pytest.approx(30.05)


@pytest.mark.parametrize(
    "other",
    [
        TaskSpec("later", release_days=50.0),
        TaskSpec("cannot run", predecessors=(0,)),
    ],
)
def test_a_task_that_nothing_can_do_makes_the_problem_infeasible(session: Session, other: TaskSpec) -> None:
    solver = Solver(one_task(tasks=(TaskSpec("train"), other), deadline_days=90.0), session)
    assert solver.solve().state == "infeasible"
    assert solver.least_excess("deadline") is None


@pytest.mark.parametrize("question", ["cheapest", "fastest"])
def test_what_costs_nothing_is_still_planned(session: Session, question: str) -> None:
    free = Option(0, 0, 0, nodes=8, work_days=20.0, setup_days=0.05, daily=(), key="a")
    slow = replace(free, work_days=40.0, key="b")
    decision = decided(one_task(options=(slow, free), question=question), session)
    assert decision.usd == 0.0
    assert decision.finish_days == pytest.approx(20.05)


@pytest.mark.parametrize("budget_usd", [2005.0, 1e6, 1e12])
def test_a_budget_may_be_exact_or_vast(session: Session, budget_usd: float) -> None:
    assert decided(one_task(budget_usd=budget_usd), session).usd == pytest.approx(2005.0)
    assert Solver(one_task(budget_usd=2004.99), session).solve().state == "infeasible"


@pytest.mark.parametrize("beside", ["staging_usd", "datasets", "programme_once", "cloud_once_usd"])
def test_next_to_free_work_does_not_hide_what_a_dear_cost_beside_it_needs(
    session: Session, beside: str
) -> None:
    cheap = Option(0, 0, 0, nodes=8, work_days=20.0, setup_days=0.05, daily=usd(1e-6), cloud="c", key="a")
    dear = {
        "staging_usd": {(0, 0): 1e5},
        "datasets": (DatasetChoice(0, 0, "hot", usd_per_day=0.0, min_days=0.0, once_usd=1e5),),
        "programme_once": (("security", 1e5),),
        "cloud_once_usd": {"c": 1e5},
    }
    spec = one_task(options=(cheap,), budget_usd=1_000.0, **{beside: dear[beside]})
    assert Solver(spec, session).least_excess("budget") == pytest.approx(99_000.0, rel=1e-4)


def test_a_run_goes_on_through_a_window_too_short_to_set_up_in(session: Session) -> None:
    day = Option(0, 0, 0, nodes=8, work_days=20.0, setup_days=1.0, daily=usd(100.0), key="a")
    decision = decided(in_windows(one_task(options=(day,)), 10.0, 10.5, 30.0), session)
    assert decision.usd == pytest.approx(2100.0)
    assert decision.finish_days == pytest.approx(21.0)


def test_a_tier_may_be_billed_for_longer_than_the_plan_lasts(session: Session) -> None:
    archive = DatasetChoice(0, 0, "archive, x[1]", usd_per_day=1.0, min_days=180.0)
    decision = decided(one_task(windows=((0.0, 30.0),), datasets=(archive,)), session)
    assert decision.tiers == {(0, 0): "archive, x[1]"}
    assert decision.usd == pytest.approx(2185.0)


@pytest.mark.parametrize("tier", ["hot", "7", "s3 standard", "1.5", "a'b", "None"])
def test_tiers_are_read_back_whatever_their_name(session: Session, tier: str) -> None:
    choices = (DatasetChoice(0, 0, "dear", 9.0, 0.0), DatasetChoice(0, 0, tier, 2.0, 0.0))
    decision = decided(one_task(datasets=choices), session)
    assert decision.tiers == {(0, 0): tier}


def test_the_ceiling_on_nodes_holds_for_a_single_task(session: Session) -> None:
    assert Solver(one_task(max_nodes=8.0), session).solve().state == "optimal"
    solver = Solver(one_task(max_nodes=4.0), session)
    assert solver.solve().state == "infeasible"
    assert solver.least_excess("resources.max_nodes") == pytest.approx(4.0)


def test_a_ceiling_is_loosened_in_nodes(session: Session) -> None:
    both = tuple(
        Option(task, 0, 0, nodes=4, work_days=10.0, setup_days=0.0, daily=usd(100.0), key=str(task))
        for task in range(2)
    )
    spec = one_task(tasks=(TaskSpec("a"), TaskSpec("b")), options=both, deadline_days=11.0, max_nodes=4.0)
    solver = Solver(spec, session)
    assert solver.solve().state == "infeasible"
    assert solver.least_excess("resources.max_nodes") == pytest.approx(4.0)
    assert solver.solve(limits={"resources.max_nodes": 7.0}).state == "infeasible"
    assert solver.solve(limits={"resources.max_nodes": 8.0}).state == "optimal"
    # With time enough, one waits for the other.
    assert decided(replace(spec, deadline_days=20.0), session).finish_days == pytest.approx(20.0)


def test_a_limit_that_the_problem_has_not_is_an_error(session: Session) -> None:
    solver = Solver(one_task(deadline_days=30.0), session)
    with pytest.raises(KeyError, match="budget.*deadline"):
        solver.solve(limits={"budget": 1.0})
    with pytest.raises(KeyError, match="nonsense"):
        solver.least_excess("nonsense")


def test_a_grant_of_nothing_can_be_left_alone(session: Session) -> None:
    spec = one_task(
        options=(
            *one_task().options,
            Option(0, 1, 0, 8, 10.0, 0.0, usd(1.0), accelerator_hours_per_day=192.0, key="b"),
        ),
        resources=(*one_task().resources, Resource("g", "grant", "grant", (8.0,), grant_hours=0.0)),
    )
    assert {use.option for use in decided(spec, session).uses} == {0}
    half = replace(spec, resources=(spec.resources[0], replace(spec.resources[1], grant_hours=960.0)))
    shares = {use.option: use.share_frac for use in decided(half, session).uses}
    assert shares == {0: pytest.approx(0.5), 1: pytest.approx(0.5)}


@pytest.mark.parametrize("question", ["cheapest", "fastest"])
@pytest.mark.parametrize("ends", [(30.0,), (10.0, 30.0), (10.0, 20.0, 30.0), (2.0, 4.0, 6.0, 20.0, 30.0)])
def test_where_windows_are_cut_changes_nothing(
    session: Session, question: str, ends: tuple[float, ...]
) -> None:
    option = Option(0, 0, 0, nodes=8, work_days=25.0, setup_days=1.0, daily=usd(100.0), key="a")
    decision = decided(in_windows(one_task(options=(option,), question=question), *ends), session)
    assert decision.usd == pytest.approx(2600.0)
    assert decision.finish_days == pytest.approx(26.0)
    assert [use.begins for use in decision.uses] == [True] + [False] * (len(decision.uses) - 1)


def test_what_is_set_up_in_one_window_may_work_in_the_next_alone(session: Session) -> None:
    options = (
        Option(0, 0, 0, nodes=8, work_days=9.0, setup_days=0.0, daily=usd(100.0), key="a"),
        Option(1, 0, 0, nodes=8, work_days=10.0, setup_days=1.0, daily=usd(100.0), key="b"),
    )
    tasks = (TaskSpec("first"), TaskSpec("second", predecessors=(0,)))
    spec = in_windows(one_task(tasks=tasks, options=options, question="fastest"), 10.0, 20.0)
    decision = decided(spec, session)
    assert decision.finish_days == pytest.approx(20.0)
    second = [use for use in decision.uses if use.option == 1]
    assert [(use.window, use.begins) for use in second] == [(0, True), (1, False)]
    assert [use.share_frac for use in second] == pytest.approx([0.0, 1.0])
    assert decision.usd == pytest.approx(
        sum(100.0 * (use.end_days - use.start_days) for use in decision.uses)
    )


def test_among_equals_time_decides_when_money_does_not(session: Session) -> None:
    slow = Option(0, 0, 0, nodes=4, work_days=40.0, setup_days=0.0, daily=usd(50.0), key="a")
    fast = Option(0, 0, 0, nodes=8, work_days=20.0, setup_days=0.0, daily=usd(100.0), key="b")
    spec = one_task(options=(slow, fast))
    assert decided(spec, session).finish_days == pytest.approx(20.0)
    cheap = replace(fast, work_days=20.0, daily=usd(60.0), key="c")
    spec = one_task(options=(fast, cheap), question="fastest")
    assert decided(spec, session).usd == pytest.approx(1200.0)


def test_nothing_is_bought_or_held_that_does_not_serve_the_first_goal(session: Session) -> None:
    """The fastest plan is not padded with what only the second goal would save."""
    reserved = Resource("r", "pool", "reserved", (0.0,), committed=True)
    spec = one_task(
        resources=(*one_task().resources, reserved),
        options=(
            *one_task().options,
            Option(0, 1, 0, nodes=8, work_days=30.0, setup_days=0.0, daily=(), key="b"),
        ),
        products=(Product(resource=1, days=60.0, usd_per_node=100.0, most=8),),
        question="fastest",
    )
    decision = decided(spec, session)
    assert decision.bought == {}
    assert decision.finish_days == pytest.approx(20.05)
    cheapest = decided(replace(spec, question="cheapest"), session)
    assert (cheapest.bought, cheapest.bought_from_days) == ({0: 8}, {0: 0.0})
    assert cheapest.usd == pytest.approx(800.0)


def test_shares_and_times_are_exact(session: Session) -> None:
    spot = Resource("s", "pool", "spot", (8.0,), grant_hours=inf)
    spec = one_task(
        resources=(*one_task().resources, spot),
        options=(*one_task().options, Option(0, 1, 0, 8, 37.0, 0.07, usd(30.0), key="b")),
        deadline_days=29.0,
    )
    decision = decided(spec, session)
    assert sum(use.share_frac for use in decision.uses) == pytest.approx(1.0, abs=1e-12)
    assert decision.finish_days <= 29.0 + 1e-9


def test_bound_and_gap_are_those_of_the_question(session: Session) -> None:
    for question, value in (("cheapest", 2005.0), ("fastest", 20.05)):
        outcome = Solver(one_task(question=question), session).solve()
        assert outcome.bound == pytest.approx(value, rel=1e-4)
        assert 0.0 <= outcome.gap_frac <= 1e-4
    spec = one_task(tasks=(TaskSpec("train", scalable=True),), question="most-tokens", deadline_days=30.05)
    assert Solver(spec, session).solve().bound == pytest.approx(1.5, rel=1e-4)


def test_two_problems_share_one_session(session: Session) -> None:
    one, other = Solver(one_task(), session), Solver(one_task(deadline_days=10.0), session)
    assert [one.solve().state, other.solve().state, one.solve().state] == ["optimal", "infeasible", "optimal"]
    assert other.least_excess("deadline") == pytest.approx(10.05)


class Told(Session):
    """A session whose first answers are given."""

    def __init__(self, *told: Answer) -> None:
        super().__init__()
        self.told = list(told)
        self.asked: list[Request] = []
        self.limits_s: list[float] = []

    def solve(self, request: Request, time_limit_s: float, grace_s: float = GRACE_S) -> Answer:
        self.asked.append(request)
        self.limits_s.append(time_limit_s)
        return self.told.pop(0) if self.told else super().solve(request, time_limit_s, grace_s)


def answer(status: str, like: Answer | None = None) -> Answer:
    """An answer as the worker gives it, with the point of another one and half its bound."""
    if like is None or like.objective is None:
        return Answer(status, None, None, 0, 0.0, None, (), "0")
    return replace(like, status=status, bound=0.5 * like.objective)


def test_an_answer_at_the_time_limit_is_feasible_and_not_optimal(session: Session) -> None:
    solver = Solver(one_task(), session)
    best = session.solve(Request(), 10.0)
    assert solver.solve().state == "optimal" and best.x is not None
    with Told(answer("time-limit", best)) as told:
        outcome = Solver(one_task(), told).solve()
    assert outcome.state == "feasible"
    assert outcome.gap_frac == pytest.approx(0.5)
    assert outcome.decision is not None and outcome.decision.usd == pytest.approx(2005.0)


@pytest.mark.parametrize(
    ("told", "state"),
    [
        ([answer("time-limit")], "no-answer"),
        ([answer("limit")], "no-answer"),
        ([answer("unbounded")], "no-answer"),
        ([answer("kUnknown")], "no-answer"),
        ([answer("infeasible"), answer("infeasible")], "infeasible"),
        ([answer("infeasible-or-unbounded"), answer("infeasible")], "infeasible"),
        ([answer("infeasible-or-unbounded"), answer("unbounded")], "no-answer"),
        ([answer("infeasible"), answer("time-limit")], "no-answer"),
        ([answer("infeasible")], "optimal"),
    ],
)
def test_infeasible_is_only_said_when_it_stands_without_presolve(told: list[Answer], state: str) -> None:
    with Told(*told) as session:
        outcome = Solver(one_task(), session).solve()
        asked = session.asked
    assert outcome.state == state
    assert (outcome.decision is None) == (state != "optimal")
    if told[0].status.startswith("infeasible"):
        assert asked[1].options["presolve"] == "off"


def test_a_second_goal_cut_short_keeps_the_first() -> None:
    spec = one_task(question="fastest")
    with Told() as told:
        plain = Solver(spec, told).solve()
        assert len(told.asked) == 4
        first = told.solve(Request(), 10.0)
        for cut in ("time-limit", "infeasible"):
            told.told = [first, first, answer(cut), answer(cut)]
            outcome = Solver(spec, told).solve()
            assert (outcome.state, outcome.decision) == (plain.state, plain.decision)


def test_all_steps_of_a_search_share_its_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """With two regions there are three: as if moves were free, as they are, and the second goal."""
    options = tuple(replace(one_task().options[0], region=region, key=str(region)) for region in (0, 1))
    spec = one_task(options=options, regions=("here", "there"), move_usd={(0, 0, 1): 0.1, (0, 1, 0): 0.1})
    with Told() as told:
        solver = Solver(spec, told, time_limit_s=60.0)
        solver.solve()
        free = solver.answer(replace(told.asked[0], options={}))
        assert free.objective is not None
        # As if moves that cost nothing had made it cheaper.
        told.told = [replace(free, objective=0.9 * free.objective)]
        told.asked.clear()
        told.limits_s.clear()
        clock = SimpleNamespace(monotonic=lambda: 10.0 * len(told.asked))
        monkeypatch.setattr("trainplan.solve.time", clock)
        solver.solve()
        searches = [
            s
            for s, asked in zip(told.limits_s, told.asked, strict=True)
            if not asked.options.get("solve_relaxation")
        ]
    assert len(searches) == 3
    assert searches[0] == 60.0 > searches[1] > searches[2]
    assert searches[2] <= 60.0 - 10.0 * (len(searches) - 1)


def test_what_an_early_stop_left_unused_is_not_in_the_decision(session: Session) -> None:
    """A task set up once more after its work is done, as a search that stopped early may leave it."""
    two = in_windows(
        one_task(
            tasks=(TaskSpec("a"), TaskSpec("b", (0,))),
            options=tuple(replace(one_task().options[0], task=t, work_days=5.0, key=str(t)) for t in (0, 1)),
            programme_daily=usd(10.0),
        ),
        20.0,
        40.0,
    )
    solver = Solver(two, session)
    best = solver.solve().decision
    assert best is not None and solver.x is not None
    left = solver.x.copy()
    assert left[solver.compiled.columns["v_used[0,1]"]] == pytest.approx(0.0, abs=1e-9)
    for name in ("v_used[0,1]", "v_active[0,1]"):
        left[solver.compiled.columns[name]] = 1.0
    answer = Answer("time-limit", 1.0, None, 0, 0.0, left, (), "")
    decision = solver.outcome_of(answer).decision
    assert decision is not None
    assert [use.option for use in decision.uses] == [0, 1]
    assert decision.usd == pytest.approx(best.usd)
    assert decision.finish_days == pytest.approx(best.finish_days)


@pytest.mark.parametrize("datasets", [(), tuple(DatasetChoice(0, r, "hot", 1.0, 0.0) for r in (0, 1))])
def test_a_region_in_which_nothing_is_done_is_not_paid_for(
    session: Session, datasets: tuple[DatasetChoice, ...]
) -> None:
    """As a search may leave it where the cost of passing through is below its gap."""
    here = Option(0, 0, 0, nodes=8, work_days=20.0, setup_days=0.05, daily=usd(100.0), key="a")
    there = replace(here, region=1, work_days=21.0, key="b")
    solver = Solver(
        one_task(
            options=(here, there),
            regions=("here", "there"),
            move_usd={(0, 0, 1): 0.1, (0, 1, 0): 0.1},
            datasets=datasets,
        ),
        session,
    )
    best = solver.solve().decision
    assert best is not None and solver.x is not None
    left = solver.x.copy()
    passed = {"v_in[0,1]": 1.0, "v_move[0,0,1]": 1.0, "v_last[0,0]": 0.0, "v_last[0,1]": 1.0}
    passed |= {"v_tier[0,1,hot]": 1.0} if datasets else {}
    for name, amount in passed.items():
        left[solver.compiled.columns[name]] = amount
    decision = solver.outcome_of(Answer("optimal", 1.0, 1.0, 0, 0.0, left, (), "")).decision
    assert decision is not None
    assert decision.usd == pytest.approx(best.usd, rel=1e-9)
    assert set(decision.tiers) == ({(0, 0)} if datasets else set())
