"""From a case to a verified plan: assemble, solve, decode, account, verify, compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from functools import partial

from trainplan import infeasible, no_candidate
from trainplan.alternatives import alternatives
from trainplan.assembly import Assembly, assemble
from trainplan.candidate_cache import CandidateCache
from trainplan.collecting import fewer_collections
from trainplan.highs import Session
from trainplan.large import is_large, solve_large
from trainplan.plan_making import Maker
from trainplan.problem import ProblemSpec
from trainplan.promise import keep_promise
from trainplan.solve import Outcome, Solver
from trainplan.thin import thinned
from trainplan_models.base import InfeasibleError, NoAnswerError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan

Progress = Callable[[str], None]


@fewer_collections()
def plan(
    case: Case,
    catalog: Catalog,
    *,
    time_limit_s: float = 60.0,
    progress: Progress | None = None,
    compare: bool = True,
    explain: bool = True,
    promise: bool = True,
    session: Session | None = None,
    cache: CandidateCache | None = None,
) -> Plan:
    """The best plan for a case.

    Args:
        case: what is asked.
        catalog: prices, machines, models.
        time_limit_s: limit of each solve.
        progress: called with a line of text at each stage.
        compare: whether to work out the best alternatives.
        explain: whether to work out, where there is no plan, what would have to change.
        promise: whether to simulate the plan and tighten it until the wanted reliability holds.
        session: where it is solved; one of its own when absent.
        cache: candidates worked out before, for many cases in turn.

    Raises:
        InfeasibleError: no plan satisfies the case; says why and what would have to change.
        NoAnswerError: the solver found nothing in time, or failed.
        VerificationError: the plan does not stand up to being recomputed.
        InputError: the case names something the catalogue has not.
    """
    tell = progress or (lambda _: None)
    known = CandidateCache() if cache is None else cache
    with nullcontext(session) if session is not None else Session() as session:
        chain = partial(
            plan,
            catalog=catalog,
            time_limit_s=time_limit_s,
            compare=False,
            explain=False,
            promise=False,
            session=session,
            cache=known,
        )
        tell("evaluating configurations")
        assembly = assemble(case, catalog, known)
        _refuse_empty(assembly, chain, known, explain=explain)
        kept, forgiven_usd = thinned(assembly.spec)
        tell(f"solving over {len(kept):,} of {len(assembly.spec.options):,} options")
        solver, outcome = _solved(assembly.spec, session, kept, time_limit_s, tell)
        if outcome.decision is None:
            tell("looking for what would have to change")
            raise _no_plan(assembly, solver, outcome, chain, known, explain=explain, promise=promise)
        tell("verifying")
        make = Maker(assembly, solver, forgiven_usd)
        found = make.plan(outcome)
        if promise:
            tell("simulating")
            found = keep_promise(make, found)
        if compare and not session.stopped:
            tell("comparing with the alternatives")
            found = found.model_copy(
                update={"alternatives": tuple(alternatives(session, assembly, found, time_limit_s))}
            )
        return found


def _solved(
    spec: ProblemSpec, session: Session, options: tuple[int, ...], time_limit_s: float, tell: Progress
) -> tuple[Solver, Outcome]:
    """The outcome, and the solver for what is asked after it."""
    if is_large(spec, options):
        found = solve_large(spec, session, options, time_limit_s, tell)
        return found.solver, found.outcome
    solver = Solver(spec, session, time_limit_s, options)
    session.watch = lambda best, bound: tell(_so_far(solver, best, bound))
    try:
        return solver, solver.solve()
    finally:
        session.watch = None


def _so_far(solver: Solver, best: float, bound: float) -> str:
    value = solver.goal_in_case_units(best)
    words = {"fastest": f"{value:,.4g} days", "most-tokens": f"{value:,.4g} times the tokens"}
    told = words.get(solver.spec.question, f"{value:,.0f} USD")
    return f"solving: best so far {told}, within {abs(best - bound) / max(abs(best), 1e-9):.2%} of the best possible"


def _refuse_empty(
    assembly: Assembly, chain: infeasible.Planner, cache: CandidateCache, *, explain: bool
) -> None:
    doable = {option.task for option in assembly.spec.options}
    missing = [work.task.name for number, work in enumerate(assembly.works) if number not in doable]
    if missing:
        found = no_candidate.explain(assembly, missing, chain, cache, search_ways=explain)
        raise InfeasibleError("\n".join(found.lines), explanation=found.text(), details=found.details)


def _no_plan(
    assembly: Assembly,
    solver: Solver,
    outcome: Outcome,
    chain: partial[Plan],
    cache: CandidateCache,
    *,
    explain: bool,
    promise: bool,
) -> Exception:
    if solver.session.stopped:
        return NoAnswerError("stopped before a plan was found")
    if outcome.state != "infeasible":
        return NoAnswerError(
            f"no plan was found within {solver.time_limit_s:g} s; give more time with --time-limit"
        )
    if not explain:
        names = ", ".join(dict.fromkeys(limit.name for limit in solver.ctx.limits)) or "the resources"
        return InfeasibleError(f"no plan satisfies the case: its limits ({names}) are in conflict")
    clash = infeasible.explain(
        assembly.case, assembly.catalog, solver.session, cache, chain, solver.time_limit_s
    )
    if promise:
        from trainplan.kept_ways import with_chances

        clash = with_chances(
            clash, assembly.case, assembly.catalog, lambda case, keep: chain(case, promise=keep)
        )
    removed = {task: dict(rules) for task, rules in assembly.removed.items()}
    return InfeasibleError(
        clash.text(), explanation=clash.text(), details=clash.details | {"removed": removed}
    )
