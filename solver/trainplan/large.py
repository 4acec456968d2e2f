"""Problems with more options and windows than one model can hold.

The relaxation without a calendar (``aggregate``) bounds the cost of every plan and names the options worth
a column. A first plan over these says how late any better plan can end; over the calendar cut off there
the options are chosen again and the problem is solved. The gap that is reported is proven among the options
with columns, and the weaker one that holds over all options is told beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, isnan

from trainplan.aggregate import Aggregate, is_large
from trainplan.bounding import MOST_LOOSE, MOST_LOOSE_WIDE, Bounder
from trainplan.fixing import carried
from trainplan.greedy import Board, by_task, columns_of, filled
from trainplan.highs import Session
from trainplan.highs_worker import Answer
from trainplan.neighbourhoods import improve
from trainplan.problem import ProblemSpec
from trainplan.solve import Outcome, Solver, State
from trainplan_models.base import NoAnswerError

__all__ = ["Found", "cut_off", "is_large", "solve_large"]

GAP_FRAC = 4.5e-3
"""A plan proven this good is not looked beyond."""
FIRST_GAP_FRAC = 0.02
WORTHWHILE_FRAC = 0.98
"""The calendar is cut off where less than this part of it is left."""
FIRST_TRIES = ((2, 1.5), (4, 4.0), (8, inf))
"""Options of a task, and how many times as long as the relaxation the first plan may take."""
WIDE_END_FACTORS = (1.1, 1.2, 1.35, 1.6, 2.0, 4.0, inf)
"""As in ``FIRST_TRIES``, for problems with too many tasks side by side to let them take turns in a window."""
WIDE_WINDOWS = (20, 40, 80)
"""Into how many windows the calendar is cut at least."""
WIDE_KEPT = 6
"""Options kept of a task there."""
FREE_KEPT = 8
"""Options kept of a task there beside them, of those that nothing limits."""
WIDE_GAP_FRAC = 0.15
FIRST_KEPT = 2
"""Options of a task that have whole numbers when all are compared over the calendar."""
MOST_TURNS = 4
"""How often a plan is looked for and bounded."""
PLAN_SHARE = 0.4
"""Of the time left, what looking for a plan may take."""
PLAN_GAP_FRAC = 2e-3
LEAST_S = 1.0
WORTHWHILE_SHARE = 0.05
"""An option that does less of its task in the relaxation is not tried in a plan."""


@dataclass(frozen=True, slots=True)
class Found:
    """The best outcome, and the solver that found it."""

    outcome: Outcome
    solver: Solver
    options: tuple[int, ...]


def solve_large(
    spec: ProblemSpec,
    session: Session,
    options: Sequence[int],
    time_limit_s: float,
    tell: Callable[[str], None] = lambda _: None,
) -> Found:
    """Solves a large problem in rounds.

    Args:
        spec: the problem.
        session: where it is solved.
        options: options to choose from.
        time_limit_s: limit of all solves together.
        tell: called with a line of text at each stage.
    """
    started = time.monotonic()

    def left_s() -> float:
        return 0.0 if session.stopped else time_limit_s - (time.monotonic() - started)

    whole = Aggregate(spec, session, options, time_limit_s)
    if whole.infeasible:
        # What no options satisfy, one option a task does not satisfy either.
        single = tuple({spec.options[o].task: o for o in options}.values())
        solver = Solver(spec, session, time_limit_s, single)
        return Found(solver.solve(), solver, single)
    if spec.wide:
        near, bound, over_all = _wide(whole, tuple(options), session, left_s, tell)
        return replace(near, outcome=_proven(spec, near, bound, started, over_all=over_all))
    best = _first(whole, session, left_s, tell)
    if best.outcome.decision is None:
        return replace(best, outcome=_proven(spec, best, whole.bound, started))
    over = cut_off(spec, whole.latest_end_days(best.outcome.decision.usd))
    search = _Search(spec, over, session, tuple(options), best, whole.bound, left_s, tell)
    if len(options) * len(over.windows) > MOST_LOOSE:
        cut = whole if over is spec else Aggregate(over, session, options, time_limit_s)
        search.bound = _tighter(spec, search.bound, cut.bound)
        search.plan({*cut.options(), *_used(best.outcome)})
    else:
        search.run(whole)
    outcome = _proven(spec, search.best, search.bound, started, over_all=search.over_all)
    return replace(search.best, outcome=outcome)


@dataclass(slots=True)
class _Search:
    """The best plan so far and the bound over all options, brought together in turns."""

    spec: ProblemSpec
    over: ProblemSpec
    """On the calendar that is left."""
    session: Session
    options: tuple[int, ...]
    best: Found
    bound: float
    left_s: Callable[[], float]
    tell: Callable[[str], None]
    over_all: bool = False
    """Whether the bound is the one of the calendar, and worth being told as that of the plan."""

    def run(self, whole: Aggregate) -> None:
        """Chooses options by the relaxation over the calendar, then plans and bounds until both are near."""
        bounder = self._bounder({*whole.few_options(FIRST_KEPT), *_used(self.best.outcome)})
        relaxed = bounder.relaxed(max(self.left_s(), LEAST_S))
        self._prove(bounder, relaxed)
        kept = {*whole.options_by(bounder.added(relaxed)), *_used(self.best.outcome)}
        if relaxed.x is not None:
            kept |= bounder.used(relaxed.x)
        for _ in range(MOST_TURNS):
            self.plan(kept)
            if self._near or self.left_s() <= LEAST_S:
                return
            promoted = self._bounded(kept)
            if self._near or not promoted or self.left_s() <= LEAST_S:
                return
            kept |= promoted

    def plan(self, kept: Iterable[int]) -> None:
        """Looks for a better plan over some options."""
        numbers = tuple(sorted(kept))
        self.tell(f"planning: {len(numbers):,} options, {len(self.over.windows)} windows")
        limit_s = max(self.left_s() * PLAN_SHARE, 1.0)
        solver = Solver(self.over, self.session, limit_s, numbers, gap_frac=PLAN_GAP_FRAC)
        known = self.best.solver
        start = None if known.x is None else carried(known.x, known.compiled, solver.compiled)
        solver.search_ties = False
        outcome = solver.solve(start=start)
        if outcome.decision is not None and not _better(self.spec, self.best.outcome, outcome):
            self.best = Found(outcome, solver, numbers)

    def _bounder(self, kept: Iterable[int]) -> Bounder:
        numbers = tuple(sorted(kept))
        return Bounder(self.over, self.session, numbers, self.options, GAP_FRAC)

    def _bounded(self, kept: set[int]) -> set[int]:
        """Raises the bound over all options; options worth whole numbers."""
        self.tell(f"proving over {len(self.options):,} options")
        bounder = self._bounder(kept)
        relaxed = bounder.relaxed(max(self.left_s(), LEAST_S))
        self._prove(bounder, relaxed)
        if self._near or relaxed.x is None:
            return set()
        promoted = bounder.used(relaxed.x)
        if promoted:
            return promoted
        searched = bounder.searched(self.best.solver, max(self.left_s(), LEAST_S))
        self._prove(bounder, searched)
        return set() if searched.x is None else bounder.used(searched.x)

    def _prove(self, bounder: Bounder, answer: Answer) -> None:
        proven = bounder.goal(answer)
        if proven is not None:
            self.bound = _tighter(self.spec, self.bound, proven)
            self.over_all = True

    @property
    def _near(self) -> bool:
        return _gap_frac(self.spec, self.best.outcome, self.bound) <= GAP_FRAC


def _first(
    whole: Aggregate, session: Session, left_s: Callable[[], float], tell: Callable[[str], None]
) -> Found:
    """Some good plan; over the whole calendar when there is none on a shorter one."""
    found: Found | None = None
    for count, factor in FIRST_TRIES:
        if found is not None and found.outcome.decision is not None:
            break
        kept = whole.few_options(count)
        over = cut_off(whole.spec, whole.finish_days * factor)
        tell(f"looking for a first plan: {len(kept):,} options, {len(over.windows)} windows")
        solver = Solver(over, session, max(left_s() / 3.0, 1.0), kept, gap_frac=FIRST_GAP_FRAC)
        solver.search_ties = False
        found = Found(solver.solve(), solver, kept)
    if found is None:
        raise NoAnswerError("there is no way to look for a first plan")
    return found


def _wide(
    whole: Aggregate,
    options: tuple[int, ...],
    session: Session,
    left_s: Callable[[], float],
    tell: Callable[[str], None],
) -> tuple[Found, float, bool]:
    """A plan made better part by part, a bound, and whether that is the one of the calendar.

    Nothing is searched for the bound: with whole numbers the limits of wide problems are stricter than they are.
    """
    spec, bound = whole.spec, whole.bound
    near = _near(whole, session, left_s, tell)
    if near.outcome.decision is None:
        return near, bound, False
    over = cut_off(spec, whole.latest_end_days(near.outcome.decision.usd))
    if len(options) * len(over.windows) > MOST_LOOSE_WIDE or left_s() <= LEAST_S:
        return near, bound, False
    tell(f"bounding over {len(options):,} options, {len(over.windows)} windows")
    bounder = Bounder(over, session, (), options, GAP_FRAC)
    relaxed = bounder.relaxed(max(left_s(), LEAST_S))
    proven = bounder.goal(relaxed)
    if proven is None or relaxed.x is None:
        return near, bound, False
    bound = _tighter(spec, bound, proven)
    known, left = near.solver, left_s()
    if _gap_frac(spec, near.outcome, bound) <= GAP_FRAC or left <= LEAST_S or known.x is None:
        return near, bound, True
    wanted = tuple(sorted({*bounder.used(relaxed.x, WORTHWHILE_SHARE), *_used(near.outcome)}))
    tell(f"improving the plan: {len(wanted):,} options")
    solver = Solver(known.spec, session, left, wanted)
    answer = improve(
        solver, carried(known.x, known.compiled, solver.compiled), time.monotonic() + max(left_s() - 5.0, 1.0)
    )
    if answer is None:
        return near, bound, True
    found = Found(solver.outcome_of(answer), solver, wanted)
    return (found if _better(spec, found.outcome, near.outcome) else near), bound, True


def _near(
    whole: Aggregate, session: Session, left_s: Callable[[], float], tell: Callable[[str], None]
) -> Found:
    """A plan put together greedily over a fine calendar, made better part by part."""
    kept = tuple(sorted({*whole.few_options(WIDE_KEPT), *whole.free_options(FREE_KEPT)}))
    ranked = by_task(whole.spec, kept)
    boards: list[Board] = []
    for factor in WIDE_END_FACTORS:
        over = cut_off(whole.spec, whole.finish_days * factor)
        for count in WIDE_WINDOWS:
            board = filled(refined(over, over.windows[-1][1] / count), ranked)
            boards += [] if board is None else [board]
    if not boards:
        solver = Solver(whole.spec, session, max(left_s(), 1.0), kept, gap_frac=WIDE_GAP_FRAC)
        return Found(solver.solve(), solver, kept)
    board = min(boards, key=lambda b: b.total_usd)
    used = tuple(sorted({*board.options, *whole.few_options(1)}))
    solver = Solver(board.spec, session, max(left_s(), 1.0), used)
    tell(f"improving a first plan: {len(used):,} options, {len(board.spec.windows)} windows")
    answer = improve(solver, columns_of(board, solver), time.monotonic() + left_s() / 3.0)
    if answer is None:
        return Found(solver.solve(), solver, used)
    return Found(solver.outcome_of(answer), solver, used)


def cut_off(spec: ProblemSpec, end_days: float) -> ProblemSpec:
    """The problem on a calendar that ends earlier; the same where that is hardly shorter."""
    if end_days >= spec.windows[-1][1] * WORTHWHILE_FRAC:
        return spec
    kept = [(start, min(end, end_days)) for start, end in spec.windows if start < end_days - 1e-6]
    resources = tuple(r.over(range(len(kept))) for r in spec.resources)
    return replace(spec, windows=tuple(kept), resources=resources)


def _used(outcome: Outcome) -> set[int]:
    return set() if outcome.decision is None else {use.option for use in outcome.decision.uses}


def _goal(spec: ProblemSpec, outcome: Outcome) -> float:
    """What is made small."""
    decision = outcome.decision
    if decision is None:
        return inf
    if spec.question == "fastest":
        return decision.finish_days
    return -decision.scale_frac if spec.question == "most-tokens" else decision.usd


def _better(spec: ProblemSpec, one: Outcome, other: Outcome) -> bool:
    return _goal(spec, one) < _goal(spec, other)


def _tighter(spec: ProblemSpec, one: float, other: float) -> float:
    return min(one, other) if spec.question == "most-tokens" else max(one, other)


def _gap_frac(spec: ProblemSpec, outcome: Outcome, bound: float) -> float:
    """How much better than an outcome a plan can be at most."""
    value = abs(_goal(spec, outcome))
    if not 0.0 < value < inf or abs(bound) == inf:
        return inf
    return max(bound / value - 1.0 if spec.question == "most-tokens" else 1.0 - bound / value, 0.0)


def _proven(
    spec: ProblemSpec, found: Found, bound: float, started: float, *, over_all: bool = False
) -> Outcome:
    """The outcome with what is proven of it, and over what."""
    outcome = found.outcome
    if outcome.decision is None:
        # That some of the options give no plan says nothing of the others.
        return replace(outcome, state="no-answer")
    seconds = time.monotonic() - started
    gap = _gap_frac(spec, outcome, bound)
    if over_all:
        state: State = "optimal" if gap <= GAP_FRAC else "feasible"
        scope = f"all {len(spec.options):,} options"
        if outcome.gap_frac < gap and not isnan(outcome.bound):
            scope += f"; {outcome.gap_frac:.1%} among {len(found.options):,} screened ones"
        return replace(outcome, state=state, bound=bound, gap_frac=gap, seconds=seconds, scope=scope)
    scope = f"{len(found.options):,} screened options of {len(spec.options):,}"
    if isnan(outcome.bound):
        # A plan that was improved part by part has no bound but that of the relaxation.
        scope = f"all {len(spec.options):,} options, by the relaxation without a calendar"
        outcome = replace(outcome, bound=bound, gap_frac=gap)
    elif gap < inf:
        scope += f"; over all options the relaxation proves {gap:.1%}"
    return replace(outcome, seconds=seconds, scope=scope)


def refined(spec: ProblemSpec, longest_days: float) -> ProblemSpec:
    """The problem with its long windows in equal parts, none longer than ``longest_days``."""
    windows: list[tuple[float, float]] = []
    part_of: list[int] = []
    for number, (start, end) in enumerate(spec.windows):
        parts = max(1, ceil((end - start) / longest_days - 1e-9))
        cuts = [start + (end - start) * k / parts for k in range(parts)] + [end]
        windows += pairwise(cuts)
        part_of += [number] * parts
    resources = tuple(r.over(part_of) for r in spec.resources)
    return replace(spec, windows=tuple(windows), resources=resources)
