"""From a case to a verified plan: assemble, solve, decode, account, verify, compare."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import replace
from functools import partial

from trainplan import __version__, decode
from trainplan.assembly import Assembly, assemble
from trainplan.assumptions import assumptions_of, price_dates, warnings_of
from trainplan import infeasible, no_candidate
from trainplan.alternatives import alternatives
from trainplan.candidate_cache import CandidateCache
from trainplan.highs import Session
from trainplan.solve import Decision, Outcome, Solver
from trainplan.thin import thinned
from trainplan.verify import verify
from trainplan_models.accounting import account, total_usd
from trainplan_models.base import InfeasibleError, NoAnswerError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.peaks import peaks
from trainplan_models.plan import Plan, Status

DAY_S = 86400.0

Progress = Callable[[str], None]


def plan(
    case: Case,
    catalog: Catalog,
    *,
    time_limit_s: float = 60.0,
    progress: Progress | None = None,
    compare: bool = True,
    explain: bool = True,
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
            plan, catalog=catalog, time_limit_s=time_limit_s, compare=False, explain=False, session=session, cache=known
        )
        tell("evaluating configurations")
        assembly = assemble(case, catalog, known)
        _refuse_empty(assembly, chain, known, explain=explain)
        kept, forgiven_usd = thinned(assembly.spec)
        tell(f"solving over {len(kept):,} of {len(assembly.spec.options):,} options")
        solver = Solver(assembly.spec, session, time_limit_s, kept)
        outcome = solver.solve()
        if outcome.decision is None:
            tell("looking for what would have to change")
            raise _no_plan(assembly, solver, outcome, chain, known, explain=explain)
        decision = outcome.decision
        outcome = widened(outcome, solver, forgiven_usd)
        tell("verifying")
        found = plan_of(assembly, outcome, decision)
        verify(found, assembly, decision.usd)
        if compare:
            tell("comparing with the alternatives")
            found = found.model_copy(
                update={"alternatives": tuple(alternatives(session, assembly, found, time_limit_s))}
            )
        return found


def _refuse_empty(
    assembly: Assembly, chain: infeasible.Planner, cache: CandidateCache, *, explain: bool
) -> None:
    doable = {option.task for option in assembly.spec.options}
    missing = [work.task.name for number, work in enumerate(assembly.works) if number not in doable]
    if missing:
        found = no_candidate.explain(assembly, missing, chain, cache, search_ways=explain)
        raise InfeasibleError("\n".join(found.lines), explanation=found.text(), details=found.details)


def widened(outcome: Outcome, solver: Solver, forgiven_usd: float) -> Outcome:
    """The outcome with its bound over all options, not only over those that got columns."""
    if solver.spec.question != "cheapest" or outcome.decision is None or outcome.decision.usd <= 0.0:
        return outcome
    bound = outcome.bound
    if len(solver.spec.tasks) == 1 and solver.spec.move_usd:
        bound = min(bound, solver.bound_with_free_moves())
    bound -= forgiven_usd
    return replace(outcome, bound=bound, gap_frac=max(0.0, 1.0 - bound / outcome.decision.usd))


def _no_plan(
    assembly: Assembly,
    solver: Solver,
    outcome: Outcome,
    chain: infeasible.Planner,
    cache: CandidateCache,
    *,
    explain: bool,
) -> Exception:
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
    removed = {task: dict(rules) for task, rules in assembly.removed.items()}
    return InfeasibleError(clash.text(), explanation=clash.text(), details=clash.details | {"removed": removed})


def plan_of(assembly: Assembly, outcome: Outcome, decision: Decision) -> Plan:
    """The plan of a decision, with its bill."""
    case = assembly.case
    status: Status = "optimal" if outcome.state == "optimal" else "feasible"
    segments = decode.segments_of(assembly, decision)
    times = decode.task_times(assembly, decision)
    bare = Plan(
        trainplan_version=__version__,
        name=case.name,
        question=case.question,
        status=status,
        start=case.start,
        total_usd=0.0,
        finish_s=max((time.end_s for time in times), default=0.0),
        tokens=sum(segment.tokens for segment in segments),
        price_dates=price_dates(assembly, segments),
        segments=segments,
        tasks=times,
        purchases=decode.purchases_of(assembly, decision, segments),
        placements=decode.placements_of(assembly, decision, segments),
        removed=decode.removed_of(assembly),
        solver=decode.solver_info(assembly, outcome),
        labels=case.labels,
        case=case.canonical(),
    )
    lines = tuple(account(bare, case, assembly.catalog))
    billed = bare.model_copy(update={"cost_lines": lines, "total_usd": total_usd(lines)})
    return billed.model_copy(
        update={
            "limits": decode.limits_of(assembly, billed),
            "peaks": peaks(billed, assembly.catalog),
            "assumptions": assumptions_of(assembly, billed),
            "warnings": warnings_of(assembly, billed),
        }
    )
