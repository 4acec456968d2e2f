"""The next-best plans that differ in kind, not in a digit."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from trainplan.assembly import Assembly
from trainplan.highs import Session
from trainplan.problem import ProblemSpec
from trainplan.solve import Decision, Solver
from trainplan.thin import thinned
from trainplan_models.base import Record
from trainplan_models.plan import Plan

DAY_S = 86400.0
NEXT_BEST = 3

Member = tuple[str, str, str, str]
"""(task, cloud or owner, machine, billing mode) of a stretch, whichever the region and the node count."""
Kind = frozenset[Member]
"""What makes plans differ in kind."""
NO_MACHINE: Member = ("", "", "", "")


class NextBest(Record):
    """A plan that differs in kind."""

    total_usd: float
    finish_s: float
    more_usd: float
    decision: tuple[str, ...]


def kind_of(assembly: Assembly, decision: Decision) -> Kind:
    """What a decision uses, whichever the node counts and regions."""
    return frozenset(_kind_of_option(assembly, use.option) for use in decision.uses) - {NO_MACHINE}


def _kind_of_option(assembly: Assembly, number: int) -> Member:
    detail = assembly.details[number]
    if detail is None:
        return NO_MACHINE
    return (detail.work.task.name, detail.site.place.cloud, detail.site.node.instance_type, detail.mode)


def next_best(
    session: Session, assembly: Assembly, plan: Plan, time_limit_s: float, count: int = NEXT_BEST
) -> list[NextBest]:
    """The next-best plans that do not use all of what the plan, or a better one of them, uses.

    Without all of a set means without the first or the second or ... of it: a best-first search that closes
    one member at a time finds the same plans as rows that forbid the sets.
    """
    order: list[tuple[float, int, Kind, Decision]] = []
    tried: set[Kind] = set()
    kinds = [_kind_of_option(assembly, number) for number in range(len(assembly.spec.options))]

    def without(closed: Kind) -> None:
        if closed in tried:
            return
        tried.add(closed)
        allowed = [number for number, kind in enumerate(kinds) if kind not in closed]
        decision = decide(assembly.spec, session, time_limit_s, allowed)
        if decision is not None:
            goal = decision.finish_days if plan.question == "fastest" else decision.usd
            goal = -decision.scale_frac if plan.question == "most-tokens" else goal
            heapq.heappush(order, (goal, len(tried), closed, decision))

    without(frozenset())
    found: list[NextBest] = []
    seen: list[Kind] = []
    while order and len(found) <= count:
        _, _, closed, decision = heapq.heappop(order)
        kind = kind_of(assembly, decision)
        # What uses all that another one uses, and more, is no other kind.
        if not any(known <= kind for known in seen):
            seen.append(kind)
            found.append(_next(assembly, decision, plan))
        for member in sorted(kind):
            without(closed | {member})
    return found[1:]


def _next(assembly: Assembly, decision: Decision, plan: Plan) -> NextBest:
    return NextBest(
        total_usd=decision.usd,
        finish_s=decision.finish_days * DAY_S,
        more_usd=decision.usd - plan.total_usd,
        decision=words_of(assembly, decision),
    )


def places_of(assembly: Assembly, decision: Decision) -> frozenset[str]:
    """Which pools a decision uses for which task under which billing mode."""
    found = ((assembly.details[use.option]) for use in decision.uses)
    return frozenset(f"{d.work.task.name}: {d.site.name} {d.mode}" for d in found if d is not None)


def words_of(assembly: Assembly, decision: Decision) -> tuple[str, ...]:
    lines = []
    for use in decision.uses:
        detail = assembly.details[use.option]
        if detail is not None:
            nodes = assembly.spec.options[use.option].nodes
            lines.append(f"{detail.work.task.name}: {nodes} x {detail.site.name} {detail.mode}")
    return tuple(dict.fromkeys(lines))


def decide(
    spec: ProblemSpec, session: Session, time_limit_s: float, allowed: Sequence[int] | None = None
) -> Decision | None:
    """The decision of a problem; None where a task has no option or there is none."""
    numbers = range(len(spec.options)) if allowed is None else allowed
    if {spec.options[number].task for number in numbers} != set(range(len(spec.tasks))):
        return None
    return Solver(spec, session, time_limit_s, thinned(spec, allowed)[0]).solve(two_goals=False).decision
