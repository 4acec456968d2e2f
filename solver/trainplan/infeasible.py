"""Why there is no plan, and the smallest changes under which there is one, each of them planned.

Which limits clash is found by loosening one after the other and keeping those without which nothing is
gained. How far one has to be loosened is the optimum of a problem whose objective is that loosening; the
changed case is then planned from the start, and again with a little less, so that what is proposed works
and nothing smaller does.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from trainplan.candidate_cache import CandidateCache
from trainplan.changes import changed
from trainplan.elastic import Elastic
from trainplan.highs import Session
from trainplan.negotiable import FURTHER, Negotiable, negotiables
from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, VerificationError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan

DAY_S = 86400.0
LESS_FRAC = 0.99
"""This share of a loosening must not be enough, else a smaller one is looked for."""
LOST_WORK = "max_lost_work"
NOT_IN_MODEL = (LOST_WORK,)

Planner = Callable[[Case], Plan]
"""Plans a case through the whole chain; raises ``InfeasibleError`` where there is no plan."""


@dataclass(frozen=True, slots=True)
class WayOut:
    """A change of one limit under which a plan exists."""

    key: str
    value: str
    """As ``--set key=value`` takes it."""
    change: str
    cost_usd: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class JointWay:
    """A change of several limits together under which a plan exists."""

    changes: tuple[tuple[str, str, str], ...]
    """(key, value, change) of each limit."""
    cost_usd: float
    finish_s: float


@dataclass(frozen=True, slots=True)
class Clash:
    """Why no plan satisfies a case, and what would."""

    conflict: tuple[Negotiable, ...]
    """Limits that cannot hold together; leaving out any one of them, the others can."""
    ways: tuple[WayOut, ...]
    joint: JointWay | None = None

    @property
    def details(self) -> dict[str, Any]:
        """For programs."""
        joint = None
        if self.joint is not None:
            joint = asdict(self.joint) | {
                "changes": [dict(zip(("key", "value", "change"), c, strict=True)) for c in self.joint.changes]
            }
        return {
            "conflict": [{"key": item.key, "value": item.written} for item in self.conflict],
            "ways_out": [asdict(way) for way in self.ways],
            "joint": joint,
        }

    def text(self) -> str:
        """For people."""
        return "\n".join([self._conflict_words(), *self._way_words()])

    def _conflict_words(self) -> str:
        named = [f"{item.key} = {item.written}" for item in self.conflict]
        if not named:
            return (
                "No plan satisfies the case, and no limit of it, however far it is loosened, is to blame: "
                "what is left to choose from cannot do the work."
            )
        if len(named) == 1:
            return f"No plan satisfies the case: {named[0]} cannot be kept."
        return f"No plan satisfies the case: these limits cannot all be kept: {', '.join(named)}."

    def _way_words(self) -> list[str]:
        lines = []
        if self.ways:
            lines.append("Any one of these changes, and nothing smaller, makes a plan possible:")
            lines += [
                f"  {way.key}: {way.change} ({_result(way.cost_usd, way.finish_s)})" for way in self.ways
            ]
        elif self.conflict:
            lines.append("No single limit, however far it is loosened, makes a plan possible.")
        if self.joint is not None:
            lines.append("The smallest change of several together, each counted in parts of its limit:")
            lines += [f"  {key}: {change}" for key, _, change in self.joint.changes]
            lines.append(f"  ({_result(self.joint.cost_usd, self.joint.finish_s)})")
        return lines


def _result(cost_usd: float, finish_s: float) -> str:
    return f"cost {cost_usd:,.0f} USD, done on day {finish_s / DAY_S:.1f}"


def explain(
    case: Case, catalog: Catalog, session: Session, cache: CandidateCache, planner: Planner, time_limit_s: float
) -> Clash:
    """Why no plan satisfies a case whose tasks can all be done somehow.

    Args:
        case: what is asked.
        catalog: prices, machines, models.
        session: where problems are solved.
        cache: candidates worked out before.
        planner: plans a changed case.
        time_limit_s: limit of each solve.

    Raises:
        NoAnswerError: the solver failed.
    """
    search = _Search(case, planner)
    fixed = _without_lost_work(case, catalog, session, cache, time_limit_s)
    for stage in range(len(FURTHER)):
        elastic = Elastic(fixed.case, catalog, session, cache, stage, time_limit_s)
        if not elastic.doable or not elastic.feasible(elastic.items):
            continue
        conflict = _conflict(elastic)
        ways = [way for key in conflict if (way := search.single(elastic, key)) is not None]
        if fixed.blamed and (way := search.lost_work()) is not None:
            ways.append(way)
        items = tuple(elastic.items[key] for key in conflict) + fixed.blamed
        if ways or stage + 1 == len(FURTHER):
            # What is looked at further away may still be the better of several.
            return Clash(items, _cheapest_first(ways), None if ways else search.joint(elastic, fixed))
        joint = search.joint(elastic, fixed)
        if joint is not None:
            return Clash(items, (), joint)
    return Clash(fixed.blamed, tuple(way for way in [search.lost_work()] if way is not None))


def _cheapest_first(ways: list[WayOut]) -> tuple[WayOut, ...]:
    return tuple(sorted(ways, key=lambda way: (way.cost_usd, way.key)))


@dataclass(frozen=True, slots=True)
class _Fixed:
    """The case with ``max_lost_work`` left out where the clash does not need it."""

    case: Case
    blamed: tuple[Negotiable, ...]


def _without_lost_work(
    case: Case, catalog: Catalog, session: Session, cache: CandidateCache, time_limit_s: float
) -> _Fixed:
    """Which options there are depends on ``max_lost_work``, so it cannot have a slack; it is left out instead."""
    item = next((item for item in negotiables(case) if item.key == LOST_WORK), None)
    if item is None:
        return _Fixed(case, ())
    loose = changed(case, {LOST_WORK: ""})
    elastic = Elastic(loose, catalog, session, cache, 0, time_limit_s)
    if elastic.doable and elastic.feasible(()):
        return _Fixed(case, (item,))
    return _Fixed(loose, ())


def _conflict(elastic: Elastic) -> list[str]:
    """Limits none of which can be spared: each is loosened, and stays so where the clash remains."""
    loose: list[str] = []
    kept: list[str] = []
    for key in reversed(elastic.items):
        if elastic.feasible([*loose, key]):
            kept.append(key)
        else:
            loose.append(key)
    return kept[::-1]


class _Search:
    """Smallest changes, each planned through the whole chain."""

    def __init__(self, case: Case, planner: Planner) -> None:
        self.case, self.planner = case, planner
        self.items = {item.key: item for item in negotiables(case)}
        self._known: dict[tuple[tuple[str, str], ...], Plan | None] = {}

    def plan(self, changes: dict[str, str]) -> Plan | None:
        """The plan of the changed case; None when there is none."""
        key = tuple(sorted(changes.items()))
        if key not in self._known:
            try:
                self._known[key] = self.planner(changed(self.case, changes))
            except (InfeasibleError, InputError, NoAnswerError, VerificationError):
                self._known[key] = None
        return self._known[key]

    def single(self, elastic: Elastic, key: str) -> WayOut | None:
        """The smallest change of one limit."""
        values = elastic.least({key: 1.0})
        if values is None:
            return None
        return self._way(key, values.get(key, elastic.items[key].value))

    def lost_work(self) -> WayOut | None:
        """The smallest change of the work that a failure may throw away."""
        item = self.items[LOST_WORK]
        without = self.plan({LOST_WORK: ""})
        if without is None:
            return None
        used_s = max((segment.checkpoint.lost_work_s for segment in without.segments), default=0.0)
        return self._way(LOST_WORK, max(item.value, used_s / (item.per_unit * DAY_S)))

    def _way(self, key: str, estimate: float) -> WayOut | None:
        item = self.items[key]
        found = self._smallest(item, estimate)
        if found is None:
            return None
        value, plan = found
        text = item.text(value)
        return WayOut(key, text, f"{item.written} -> {text}", plan.total_usd, plan.finish_s)

    def _smallest(self, item: Negotiable, estimate: float) -> tuple[float, Plan] | None:
        """The smallest value of a limit with a plan, from a first guess."""
        high = self._enough(item, estimate)
        if high is None:
            return None
        value, plan = high
        low, step = item.value, 1.0 - LESS_FRAC
        # Downwards in growing steps until it is not enough any more, then in between.
        while (lower := _less(item, value, step)) is not None and lower > low:
            better = self.plan({item.key: item.text(lower)})
            if better is None:
                low = lower
                break
            value, plan, step = lower, better, min(2.0 * step, 0.9)
        while (middle := _between(item, low, value)) is not None:
            better = self.plan({item.key: item.text(middle)})
            if better is None:
                low = middle
            else:
                value, plan = middle, better
        return value, plan

    def _enough(self, item: Negotiable, estimate: float) -> tuple[float, Plan] | None:
        value = item.rounded(max(estimate, item.value + 1.0 if item.whole else estimate))
        apart = max(value - item.value, 1.0 if item.whole else 1e-3 * max(item.value, 1e-3))
        while True:
            plan = self.plan({item.key: item.text(value)})
            if plan is not None:
                return value, plan
            if value >= item.most or apart > 1e6 * max(item.value, 1.0):
                return None
            apart *= 1.005 if not item.whole and apart < 1.02 * (value - item.value) else 2.0
            value = item.rounded(min(max(item.value + apart, value + (1.0 if item.whole else 0.0)), item.most))

    def joint(self, elastic: Elastic, fixed: _Fixed) -> JointWay | None:
        """The smallest change of several limits together, each counted in parts of its limit."""
        weights = {key: 1.0 / max(item.value, 1e-9) if item.value else 1.0 for key, item in elastic.items.items()}
        values = elastic.least(weights)
        if values is None:
            return None
        extra = {LOST_WORK: ""} if fixed.blamed else {}
        for more in (0.0, 1e-4, 1e-3, 1e-2, 0.05, 0.2, 0.5):
            changes = {
                key: self.items[key].text(self._stretched(key, value, more)) for key, value in values.items()
            }
            plan = self.plan(changes | extra)
            if plan is not None:
                told = [(key, text, f"{self.items[key].written} -> {text}") for key, text in changes.items()]
                told += [(key, "", f"{self.items[key].written} -> no limit") for key in extra]
                return JointWay(tuple(told), plan.total_usd, plan.finish_s)
        return None

    def _stretched(self, key: str, value: float, more: float) -> float:
        item = self.items[key]
        return min(item.rounded(item.value + (value - item.value) * (1.0 + more)), item.most)


def _less(item: Negotiable, value: float, step: float) -> float | None:
    """A value loosened by ``step`` less, or by one less at least; None where it is the case's own."""
    lower = item.value + (value - item.value) * (1.0 - step)
    if item.whole:
        lower = min(item.rounded(lower, up=False), value - 1.0)
    else:
        lower = item.rounded(lower, up=False)
    return lower if item.value < lower < value else None


def _between(item: Negotiable, low: float, high: float) -> float | None:
    """A value between one that is not enough and one that is; None when they are near enough."""
    if item.whole:
        return None if high - low <= 1.0 else float(int((low + high) / 2.0))
    if high - low <= (1.0 - LESS_FRAC) * (high - item.value) * 1.0001:
        return None
    middle = item.rounded((low + high) / 2.0)
    return middle if low < middle < high else None
