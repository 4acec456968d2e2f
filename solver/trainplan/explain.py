"""Why a plan is what it is: what else there was, what holds it back, how firmly it stands.

What a limit is worth is found by planning again with one step more and one step less of it. How far a price,
the throughput or the failure rate may move is found by bisection on the decision itself.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Literal

from trainplan.alternatives import DAY_S, Rivals
from trainplan.assembly import Assembly, assemble
from trainplan.candidate_cache import CandidateCache
from trainplan.changes import changed
from trainplan.highs import Session
from trainplan.layout_rivals import layout_alternatives
from trainplan.negotiable import Negotiable, negotiables
from trainplan.planning import plan as plan_case
from trainplan.problem import ProblemSpec
from trainplan.solve import Decision, Solver
from trainplan.thin import thinned
from trainplan_models import costs
from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, Record, VerificationError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Alternative, Plan

KINDS = ("accelerator", "pool", "billing", "nodes")
WAYS = ("less", "more")
FURTHEST_FACTOR = 8.0
"""How far a price, the throughput or the failure rate is moved."""
NEAR_FACTOR = 1.01
"""A turning point is known to this factor."""
NEXT_BEST = 3
BUDGET_STEP_USD = 10_000.0
SAME_FRAC = 1e-4
"""Costs nearer to each other than this are the same: the gap of a plan."""

Kind = frozenset[tuple[str, str, str, str]]
"""(task, cloud or owner, machine, billing mode) of every stretch: what makes plans differ in kind."""
Progress = Callable[[str], None]


class Worth(Record):
    """What one step of a limit is worth."""

    limit: str
    step: str
    """e.g. ``1 day``."""
    binds: bool
    """Whether a step more makes the answer better."""
    more_usd: float | None
    """Cost with a step more, less the plan's; None when that has no plan."""
    more_finish_s: float | None
    less_usd: float | None
    """Cost with a step less, less the plan's; None when that has no plan."""
    less_finish_s: float | None


class Tolerance(Record):
    """How far something may move before the decision changes."""

    what: str
    way: Literal["less", "more"]
    factor: float | None
    """Where the decision changes; None: not within the factors looked at."""
    becomes: str = ""
    """What is decided there; empty when there is no plan."""


class NextBest(Record):
    """A plan that differs in kind."""

    total_usd: float
    finish_s: float
    more_usd: float
    decision: tuple[str, ...]


class Explanation(Record):
    """Why a plan is what it is."""

    case: str
    question: str
    total_usd: float
    finish_s: float
    alternatives: tuple[Alternative, ...]
    worths: tuple[Worth, ...]
    tolerances: tuple[Tolerance, ...]
    next_best: tuple[NextBest, ...]


def explain(
    plan: Plan,
    catalog: Catalog,
    *,
    time_limit_s: float = 60.0,
    workers: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Why a plan is what it is, worked out from the case it carries.

    Args:
        plan: the answer.
        catalog: what it was made from.
        time_limit_s: limit of each solve.
        workers: processes; 0 for one per core.
        progress: called with a line of text at each stage.

    Raises:
        InputError: the case of the plan names something the catalogue has not.
        NoAnswerError: the solver failed.
    """
    tell, case = progress or (lambda _: None), Case.from_canonical(plan.case)
    with Session() as session:
        tell("evaluating configurations")
        assembly = assemble(case, catalog)
        tell("comparing with the alternatives")
        rivals = Rivals(session, assembly, plan, time_limit_s, thorough=True).of(KINDS)
        rivals += layout_alternatives(session, assembly, plan, time_limit_s)
        tell("looking for plans of another kind")
        others = next_best(session, assembly, plan, time_limit_s)
    asked = Asked(plan.case, catalog, time_limit_s, promise=plan.risk is not None)
    tell("moving limits, prices and rates")
    probes = [Probe("worth", item.key) for item in negotiables(case)] + tolerances_of(plan)
    answers = _in_parallel(asked, probes, workers)
    return Explanation(
        case=case.name,
        question=case.question,
        total_usd=plan.total_usd,
        finish_s=plan.finish_s,
        alternatives=tuple(rivals),
        worths=tuple(answer for answer in answers if isinstance(answer, Worth)),
        tolerances=tuple(answer for answer in answers if isinstance(answer, Tolerance)),
        next_best=tuple(others),
    )


# Plans of another kind


def kind_of(assembly: Assembly, decision: Decision) -> Kind:
    """What a decision uses, whichever the node counts and regions."""
    return frozenset(_kind_of_option(assembly, use.option) for use in decision.uses) - {("", "", "", "")}


def _kind_of_option(assembly: Assembly, number: int) -> tuple[str, str, str, str]:
    detail = assembly.details[number]
    if detail is None:
        return ("", "", "", "")
    return (detail.work.task.name, detail.site.place.cloud, detail.site.node.instance_type, detail.mode)


def next_best(
    session: Session, assembly: Assembly, plan: Plan, time_limit_s: float, count: int = NEXT_BEST
) -> list[NextBest]:
    """The next-best plans that do not use all of what the plan, or a better one of them, uses.

    Without all of a set means without the first or the second or ... of it: a best-first search that closes
    one member at a time finds the same plans as rows that forbid the sets.
    """
    order: list[tuple[float, int, frozenset[tuple[str, str, str, str]], Decision]] = []
    tried: set[frozenset[tuple[str, str, str, str]]] = set()
    kinds = [_kind_of_option(assembly, number) for number in range(len(assembly.spec.options))]

    def without(closed: frozenset[tuple[str, str, str, str]]) -> None:
        if closed in tried:
            return
        tried.add(closed)
        allowed = [number for number, kind in enumerate(kinds) if kind not in closed]
        decision = _decide(assembly.spec, session, time_limit_s, allowed)
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
        decision=_words(assembly, decision),
    )


def _words(assembly: Assembly, decision: Decision) -> tuple[str, ...]:
    lines = []
    for use in decision.uses:
        detail = assembly.details[use.option]
        if detail is not None:
            nodes = assembly.spec.options[use.option].nodes
            lines.append(f"{detail.work.task.name}: {nodes} x {detail.site.name} {detail.mode}")
    return tuple(dict.fromkeys(lines))


def _decide(
    spec: ProblemSpec, session: Session, time_limit_s: float, allowed: Sequence[int] | None = None
) -> Decision | None:
    """The decision of a problem; None where a task has no option or there is none."""
    numbers = range(len(spec.options)) if allowed is None else allowed
    if {spec.options[number].task for number in numbers} != set(range(len(spec.tasks))):
        return None
    return Solver(spec, session, time_limit_s, thinned(spec, allowed)[0]).solve(two_goals=False).decision


# What binds, and how firmly the decision stands


@dataclass(frozen=True, slots=True)
class Asked:
    """The case that is probed, as plain data."""

    case: dict[str, object]
    catalog: Catalog
    time_limit_s: float
    promise: bool


@dataclass(frozen=True, slots=True)
class Probe:
    """One thing that is moved."""

    what: Literal["worth", "price", "throughput", "failure rate"]
    name: str = ""
    """Key of the limit, or ``pool mode`` of the price."""
    way: Literal["less", "more"] = "more"


def tolerances_of(plan: Plan) -> list[Probe]:
    """What is moved for a plan: prices it pays, throughput and failure rate."""
    paid = dict.fromkeys(f"{s.pool} {s.mode}" for s in plan.segments if s.mode not in ("owned", "grant"))
    probes = [Probe("price", name, way) for name in paid for way in WAYS]  # type: ignore[arg-type]
    return probes + [Probe(what, "", way) for what in ("throughput", "failure rate") for way in WAYS]  # type: ignore[arg-type]


def _in_parallel(asked: Asked, probes: list[Probe], workers: int) -> list[Worth | Tolerance]:
    count = min(workers or os.cpu_count() or 1, len(probes))
    if count <= 1:
        return answers_to(asked, probes)
    from joblib import Parallel, delayed, parallel_config

    shares = [probes[first::count] for first in range(count)]
    with parallel_config(backend="loky", n_jobs=count):
        parts = Parallel()(delayed(answers_to)(asked, share) for share in shares)
    order = {probe: answer for share, part in zip(shares, parts, strict=True) for probe, answer in zip(share, part, strict=True)}
    return [order[probe] for probe in probes]


def answers_to(asked: Asked, probes: Sequence[Probe]) -> list[Worth | Tolerance]:
    """Answers several probes in this process, with one solver and one store of candidates."""
    with Session() as session:
        prober = _Prober(asked, session)
        return [prober.worth(p.name) if p.what == "worth" else prober.tolerance(p) for p in probes]


class _Prober:
    """Moves one thing at a time and looks what is decided."""

    def __init__(self, asked: Asked, session: Session) -> None:
        self.case, self.catalog = Case.from_canonical(asked.case), asked.catalog
        self.session, self.time_limit_s, self.promise = session, asked.time_limit_s, asked.promise
        self.cache = CandidateCache()
        self._base: tuple[Assembly, Kind] | None = None

    def worth(self, key: str) -> Worth:
        """One step more and one step less of a limit."""
        item = next(item for item in negotiables(self.case) if item.key == key)
        step = step_of(item)
        here = self._plan({})
        more = self._plan({key: item.text(min(item.value + step, max(item.most, item.value)))})
        less = self._plan({key: item.text(item.value - step)}) if item.value > step else None
        return Worth(
            limit=key,
            step=item.text(step),
            binds=here is not None and more is not None and _better(more, here),
            more_usd=_apart(more, here, "total_usd"),
            more_finish_s=_apart(more, here, "finish_s"),
            less_usd=_apart(less, here, "total_usd"),
            less_finish_s=_apart(less, here, "finish_s"),
        )

    def _plan(self, changes: dict[str, str]) -> Plan | None:
        try:
            return plan_case(
                changed(self.case, changes),
                self.catalog,
                time_limit_s=self.time_limit_s,
                compare=False,
                explain=False,
                promise=self.promise,
                session=self.session,
                cache=self.cache,
            )
        except (InfeasibleError, InputError, NoAnswerError, VerificationError):
            return None

    def tolerance(self, probe: Probe) -> Tolerance:
        """The factor at which the decision changes, by bisection between one that is known and one that is not."""
        same, other, becomes = 1.0, FURTHEST_FACTOR if probe.way == "more" else 1.0 / FURTHEST_FACTOR, ""
        what = f"price of {probe.name}" if probe.what == "price" else probe.what
        kind, words = self._kind(probe, other)
        if kind == self.base[1]:
            return Tolerance(what=what, way=probe.way, factor=None)
        becomes = words
        while max(same / other, other / same) > NEAR_FACTOR:
            middle = (same * other) ** 0.5
            kind, words = self._kind(probe, middle)
            if kind == self.base[1]:
                same = middle
            else:
                other, becomes = middle, words
        return Tolerance(what=what, way=probe.way, factor=other, becomes=becomes)

    @property
    def base(self) -> tuple[Assembly, Kind]:
        """The case as it is, and the kind of its decision."""
        if self._base is None:
            assembly = assemble(self.case, self.catalog, self.cache)
            decision = _decide(assembly.spec, self.session, self.time_limit_s)
            self._base = assembly, frozenset() if decision is None else kind_of(assembly, decision)
        return self._base

    def _kind(self, probe: Probe, factor: float) -> tuple[Kind, str]:
        assembly = self.base[0]
        if probe.what == "price":
            spec = with_price(assembly.spec, probe.name, factor)
        else:
            assembly = assemble(*self._moved(probe.what, factor), self.cache)
            spec = assembly.spec
        decision = _decide(spec, self.session, self.time_limit_s)
        if decision is None:
            return frozenset(), ""
        return kind_of(assembly, decision), "; ".join(_words(assembly, decision))

    def _moved(self, what: str, factor: float) -> tuple[Case, Catalog]:
        if what == "throughput":
            value = repr(self.case.assumptions.throughput_factor * factor)
            return changed(self.case, {"assumptions.throughput_factor": value}), self.catalog
        failures = {
            name: profile.model_copy(
                update={
                    "failures_per_1000_node_days": profile.failures_per_1000_node_days * factor,
                    "soft_failures_per_day": profile.soft_failures_per_day * factor,
                }
            )
            for name, profile in self.catalog.failures.items()
        }
        return self.case, replace(self.catalog, failures=failures)


def step_of(item: Negotiable) -> float:
    """One step of a limit, in its unit: a day or an hour, 10k USD, a node."""
    if item.unit in ("days", "hours"):
        return 1.0 if item.value > 2.0 else 0.1
    if item.unit == "USD":
        return min(BUDGET_STEP_USD, 10.0 ** (floor(log10(max(item.value, 1.0))) - 1))
    return 1.0 if item.whole else 10.0 ** (floor(log10(max(item.value, 1.0))) - 1)


def _better(other: Plan, here: Plan) -> bool:
    if here.question == "fastest":
        return other.finish_s < here.finish_s * (1.0 - SAME_FRAC)
    if here.question == "most-tokens":
        return other.tokens > here.tokens * (1.0 + SAME_FRAC)
    return other.total_usd < here.total_usd * (1.0 - SAME_FRAC)


def _apart(other: Plan | None, here: Plan | None, name: str) -> float | None:
    return None if other is None or here is None else float(getattr(other, name) - getattr(here, name))


PRICED = (costs.COMPUTE, costs.EXPERIMENTS, costs.EVALUATION, costs.DATA_PREPARATION)
"""Categories of an option's daily cost that follow the price of its nodes."""


def with_price(spec: ProblemSpec, name: str, factor: float) -> ProblemSpec:
    """The problem with the price of one resource (``pool mode``) multiplied."""
    numbers = {n for n, resource in enumerate(spec.resources) if resource.name == name}
    options = tuple(
        replace(o, daily=tuple((c, usd * factor if c in PRICED else usd) for c, usd in o.daily))
        if o.resource in numbers
        else o
        for o in spec.options
    )
    resources = tuple(
        replace(r, usd_per_node_day=r.usd_per_node_day * factor) if n in numbers else r
        for n, r in enumerate(spec.resources)
    )
    products = tuple(replace(p, usd=p.usd * factor) if p.resource in numbers else p for p in spec.products)
    return replace(spec, options=options, resources=resources, products=products)
