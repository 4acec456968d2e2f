"""What one step of a limit is worth, and how far prices and rates may move before the decision changes.

A limit is moved by one step and the case planned again. A price, the throughput or the failure rate is moved
until other pools or billing modes are chosen; where that happens is found by bisection on the decision.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import floor, log10
from typing import Literal, TypeVar

from trainplan.assembly import Assembly, assemble
from trainplan.candidate_cache import CandidateCache
from trainplan.changes import changed
from trainplan.highs import Session
from trainplan.negotiable import Negotiable, negotiables
from trainplan.next_best import decide, places_of, words_of
from trainplan.planning import plan as plan_case
from trainplan.problem import Beside, Option, ProblemSpec
from trainplan_models import costs
from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, Record, VerificationError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan

Way = Literal["less", "more"]
What = Literal["worth", "price", "throughput", "failure rate"]
WAYS: tuple[Way, ...] = ("less", "more")
RATES: tuple[What, ...] = ("throughput", "failure rate")
FURTHEST_FACTOR = 8.0
"""How far a price, the throughput or the failure rate is moved."""
NEAR_FACTOR = 1.01
"""A turning point is known to this factor."""
BUDGET_STEP_USD = 10_000.0
SAME_FRAC = 1e-4
"""Costs nearer to each other than this are the same: the gap of a plan."""
Part = TypeVar("Part", Option, Beside)


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
    way: Way
    factor: float | None
    """Where the decision changes; None: not within the factors looked at."""
    becomes: str = ""
    """What is decided there; empty when there is no plan."""


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

    what: What
    name: str = ""
    """Key of the limit, or ``pool mode`` of the price."""
    way: Way = "more"


def tolerances_of(plan: Plan) -> list[Probe]:
    """What is moved for a plan: prices it pays, throughput and failure rate."""
    paid = dict.fromkeys(f"{s.pool} {s.mode}" for s in plan.segments if s.mode not in ("owned", "grant"))
    probes = [Probe("price", name, way) for name in paid for way in WAYS]
    return probes + [Probe(what, "", way) for what in RATES for way in WAYS]


def answers_in_parallel(asked: Asked, probes: list[Probe], workers: int) -> list[Worth | Tolerance]:
    """Answers to probes, in their order, spread over processes."""
    count = min(workers or os.cpu_count() or 1, len(probes))
    if count <= 1:
        return answers_to(asked, probes)
    from joblib import Parallel, delayed, parallel_config

    shares = [probes[first::count] for first in range(count)]
    with parallel_config(backend="loky", n_jobs=count):
        parts = Parallel()(delayed(answers_to)(asked, share) for share in shares)
    order = {
        probe: answer
        for share, part in zip(shares, parts, strict=True)
        for probe, answer in zip(share, part, strict=True)
    }
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
        self._base: tuple[Assembly, frozenset[str]] | None = None

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
        places, words = self._places(probe, other)
        if places == self.base[1]:
            return Tolerance(what=what, way=probe.way, factor=None)
        becomes = words
        while max(same / other, other / same) > NEAR_FACTOR:
            middle = (same * other) ** 0.5
            places, words = self._places(probe, middle)
            if places == self.base[1]:
                same = middle
            else:
                other, becomes = middle, words
        return Tolerance(what=what, way=probe.way, factor=other, becomes=becomes)

    @property
    def base(self) -> tuple[Assembly, frozenset[str]]:
        """The case as it is, and the places of its decision."""
        if self._base is None:
            assembly = assemble(self.case, self.catalog, self.cache)
            decision = decide(assembly.spec, self.session, self.time_limit_s)
            self._base = assembly, frozenset() if decision is None else places_of(assembly, decision)
        return self._base

    def _places(self, probe: Probe, factor: float) -> tuple[frozenset[str], str]:
        assembly = self.base[0]
        if probe.what == "price":
            spec = with_price(assembly.spec, probe.name, factor)
        else:
            assembly = assemble(*self._moved(probe.what, factor), self.cache)
            spec = assembly.spec
        decision = decide(spec, self.session, self.time_limit_s)
        if decision is None:
            return frozenset(), ""
        return places_of(assembly, decision), "; ".join(words_of(assembly, decision))

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
    if item.unit in ("days", "hours", "minutes", "seconds"):
        return 1.0 if item.value >= 2.0 else 0.1
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


def with_price(spec: ProblemSpec, name: str, factor: float) -> ProblemSpec:
    """The problem with the price of one resource (``pool mode``) multiplied."""
    numbers = {n for n, resource in enumerate(spec.resources) if resource.name == name}

    def priced(part: Part) -> Part:
        if part.resource not in numbers:
            return part
        return replace(part, daily=tuple((c, u * factor if c in costs.PRICED else u) for c, u in part.daily))

    options = tuple(replace(priced(o), beside=tuple(map(priced, o.beside))) for o in spec.options)
    resources = tuple(
        replace(r, usd_per_node_day=r.usd_per_node_day * factor) if n in numbers else r
        for n, r in enumerate(spec.resources)
    )
    products = tuple(
        replace(p, usd_per_node=p.usd_per_node * factor) if p.resource in numbers else p
        for p in spec.products
    )
    return replace(spec, options=options, resources=resources, products=products)
