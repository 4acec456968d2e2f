"""Problems with more options and windows than one model can hold.

The relaxation without a calendar (``aggregate``) bounds the cost of every plan and names the options worth
a column. A first plan over these says how late any better plan can end; over the calendar cut off there
the options are chosen again and the problem is solved. The gap that is reported is proven among the options
with columns, and the weaker one that holds over all options is told beside it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil, inf, isnan

from trainplan.aggregate import Aggregate, is_large
from trainplan.greedy import Board, by_task, columns_of, filled
from trainplan.highs import Session
from trainplan.neighbourhoods import improve
from trainplan.problem import ProblemSpec
from trainplan.solve import Outcome, Solver
from trainplan_models.base import NoAnswerError

__all__ = ["Found", "cut_off", "is_large", "solve_large"]

GAP_FRAC = 4e-3
"""A plan proven this good among the options with columns is not looked beyond."""
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
ROUND_SHARES = (0.2, 0.4, 1.0)
"""Of the time left, what each round may take."""


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

    whole = bound = Aggregate(spec, session, options, time_limit_s)
    if whole.infeasible:
        # What no options satisfy, one option a task does not satisfy either.
        single = tuple({spec.options[o].task: o for o in options}.values())
        solver = Solver(spec, session, time_limit_s, single)
        return Found(solver.solve(), solver, single)
    if spec.wide:
        near = _near(whole, session, left_s, tell)
        return replace(near, outcome=_proven(spec, near, whole.bound, started))
    best = _first(whole, session, left_s, tell)
    proven = whole.bound
    for turn, share in enumerate(ROUND_SHARES):
        if best.outcome.decision is None or left_s() <= 1.0:
            break
        over = cut_off(spec, whole.latest_end_days(best.outcome.decision.usd))
        bound = whole if over is spec else Aggregate(over, session, options, time_limit_s)
        proven = _tighter(spec, proven, bound.bound)
        kept = tuple(sorted({*bound.options(), *_used(best.outcome)}))
        tell(f"round {turn + 1}: {len(kept):,} options, {len(over.windows)} windows")
        solver = Solver(over, session, max(left_s() * share, 1.0), kept, gap_frac=GAP_FRAC)
        outcome = solver.solve()
        if outcome.decision is not None and not _better(spec, best.outcome, outcome):
            best = Found(outcome, solver, kept)
        if outcome.state == "optimal":
            break
    return replace(best, outcome=_proven(spec, best, proven, started))


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
        found = Found(solver.solve(), solver, kept)
    if found is None:
        raise NoAnswerError("there is no way to look for a first plan")
    return found


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
    answer = improve(solver, columns_of(board, solver), time.monotonic() + left_s() / 2.0)
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


def _proven(spec: ProblemSpec, found: Found, bound: float, started: float) -> Outcome:
    """The outcome with what is proven of it, and over what."""
    outcome, value = found.outcome, abs(_goal(spec, found.outcome))
    if outcome.decision is None:
        # That some of the options give no plan says nothing of the others.
        return replace(outcome, state="no-answer")
    scope = f"{len(found.options):,} screened options of {len(spec.options):,}"
    over_all = inf
    if value > 0.0 and abs(bound) < inf:
        over_all = bound / value - 1.0 if spec.question == "most-tokens" else 1.0 - bound / value
        over_all = max(over_all, 0.0)
    if isnan(outcome.bound):
        # A plan that was improved part by part has no bound but that of the relaxation.
        scope = f"all {len(spec.options):,} options, by the relaxation without a calendar"
        outcome = replace(outcome, bound=bound, gap_frac=over_all)
    elif over_all < inf:
        scope += f"; over all options the relaxation proves {over_all:.1%}"
    return replace(outcome, seconds=time.monotonic() - started, scope=scope)


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
