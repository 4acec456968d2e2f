"""Why there is no plan, and the smallest changes under which there is one, each of them planned.

Which limits clash is found by loosening one after the other and keeping those without which nothing is
gained. How far one has to be loosened is the optimum of a problem whose objective is that loosening; the
changed case is then planned from the start, and again with a little less, so that what is proposed works
and nothing smaller does.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

from trainplan.candidate_cache import CandidateCache
from trainplan.changes import changed
from trainplan.elastic import Elastic
from trainplan.highs import Session
from trainplan.negotiable import Negotiable, negotiables
from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, VerificationError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan

DAY_S = 86400.0
LESS_FRAC = 0.99
"""This share of a loosening must not be enough, else a smaller one is looked for."""
LOST_WORK = "max_lost_work"
CHANCE_NEAR_FRAC = 0.005
"""A simulated chance this little below the wanted one is that chance."""
GROWTH_FRAC = (0.0, 1e-3, 0.01, 0.05, 0.2, 1.0, 4.0, 20.0)
"""By how much more a limit is loosened, in turn, where the first guess is not enough."""

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
    chance_frac: float | None = None
    """Simulated chance of being done in time and in budget; absent where it was not simulated."""
    kept: tuple[tuple[str, str], ...] = ()
    """Changes (key, value) under which the wanted chance was seen to hold; empty where none was found."""
    kept_sought: bool = False
    """Whether such changes were looked for; what takes too long is not."""
    kept_chance_frac: float | None = None
    kept_cost_usd: float | None = None
    """Mean of the simulated cost there."""
    kept_finish_s: float | None = None
    """Half of the simulated launches end before."""


@dataclass(frozen=True, slots=True)
class JointWay:
    """A change of several limits together under which a plan exists."""

    changes: tuple[tuple[str, str, str], ...]
    """(key, value, change) of each limit."""
    cost_usd: float
    finish_s: float
    chance_frac: float | None = None


@dataclass(frozen=True, slots=True)
class Clash:
    """Why no plan satisfies a case, and what would."""

    conflicts: tuple[tuple[Negotiable, ...], ...]
    """Sets of limits that cannot hold together; leaving out any one of a set, its others can."""
    ways: tuple[WayOut, ...]
    joint: JointWay | None = None
    wanted_frac: float | None = None
    """The chance the case asks for, where ways out were simulated."""

    @property
    def details(self) -> dict[str, Any]:
        """For programs."""
        joint = None
        if self.joint is not None:
            joint = asdict(self.joint) | {
                "changes": [dict(zip(("key", "value", "change"), c, strict=True)) for c in self.joint.changes]
            }
        told = [[{"key": item.key, "value": item.written} for item in items] for items in self.conflicts]
        return {
            "conflict": [one for items in told for one in items],
            "conflicts": told,
            "ways_out": [asdict(way) for way in self.ways],
            "joint": joint,
        }

    def text(self) -> str:
        """For people."""
        return "\n".join([self._conflict_words(), *self._way_words()])

    def _conflict_words(self) -> str:
        if not self.conflicts:
            return (
                "No plan satisfies the case, and no limit of it, however far it is loosened, is to blame: "
                "what is left to choose from cannot do the work."
            )
        told = []
        for items in self.conflicts:
            named = ", ".join(f"{item.key} = {item.written}" for item in items)
            told.append(f"these cannot all be kept: {named}" if len(items) > 1 else f"{named} cannot be kept")
        return f"No plan satisfies the case: {'; and '.join(told)}."

    def _way_words(self) -> list[str]:
        lines = []
        if self.ways:
            lines.append("Any one of these changes, and nothing smaller, makes a plan possible:")
            lines += way_words(self.ways, self.wanted_frac)
        elif self.conflicts:
            lines.append("No single limit, however far it is loosened, makes a plan possible.")
        if self.joint is not None:
            lines.append("The smallest change of several together, each counted in parts of its limit:")
            lines += [f"  {key}: {change}" for key, _, change in self.joint.changes]
            told = _result(self.joint.cost_usd, self.joint.finish_s)
            lines.append(f"  ({told}{_chance_words(self.joint.chance_frac)})")
        return lines


def way_words(ways: Iterable[WayOut], wanted_frac: float | None = None) -> list[str]:
    """A line for each way out, and one for what it takes to have the wanted chance."""
    lines = []
    for way in ways:
        told = f"{_result(way.cost_usd, way.finish_s)}{_chance_words(way.chance_frac)}"
        lines.append(f"  {way.key}: {way.change} ({told})")
        if wanted_frac is None or way.chance_frac is None:
            continue
        if way.kept and way.kept_cost_usd is not None and way.kept_finish_s is not None:
            changes = ", ".join(f"{key} {value}" for key, value in way.kept)
            lines.append(
                f"    for a chance of {wanted_frac:.0%}: {changes} (simulated {way.kept_chance_frac:.1%}, expected "
                f"cost {way.kept_cost_usd:,.0f} USD, done by day {way.kept_finish_s / DAY_S:.1f} half of the time)"
            )
        elif way.chance_frac < wanted_frac - CHANCE_NEAR_FRAC:
            told = (
                "no change like it was found that is enough"
                if way.kept_sought
                else "no time was left to look for what it takes"
            )
            lines.append(f"    {told} for a chance of {wanted_frac:.0%}")
    return lines


def _chance_words(chance_frac: float | None) -> str:
    return "" if chance_frac is None else f", in time and in budget in {chance_frac:.0%} of launches"


def _result(cost_usd: float, finish_s: float) -> str:
    return f"cost {cost_usd:,.0f} USD, done on day {finish_s / DAY_S:.1f}"


def explain(
    case: Case,
    catalog: Catalog,
    session: Session,
    cache: CandidateCache,
    planner: Planner,
    time_limit_s: float,
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
    search = Search(case, planner)
    blamed = search.lost_work()
    item = tuple(item for item in negotiables(case) if item.key == LOST_WORK)
    elastic = Elastic(case, catalog, session, cache, time_limit_s)
    if elastic.feasible(elastic.items):
        conflicts = _conflicts(elastic)
        # Sets that have nothing in common leave no single limit that could be to blame for all.
        alone = [] if len(conflicts) > 1 else conflicts[0] if conflicts else list(elastic.items)
        ways = [way for key in alone if (way := search.single(elastic, key)) is not None]
        told = [tuple(elastic.items[key] for key in conflict) for conflict in conflicts]
        if blamed:
            told[:1] = [(*(told[0] if told else ()), *item)]
        return Clash(
            tuple(told), _cheapest_first([*ways, *blamed]), None if ways or blamed else search.joint(elastic)
        )
    # Even with all of them as loose as can be: only max_lost_work is left, alone or with others.
    if blamed or not item:
        return Clash((item,) if blamed else (), tuple(blamed))
    without = Elastic(changed(case, {LOST_WORK: ""}), catalog, session, cache, time_limit_s)
    if not without.feasible(without.items):
        return Clash((), ())
    others = [tuple(without.items[key] for key in conflict) for conflict in _conflicts(without)]
    return Clash((item, *others), (), search.joint(without, {LOST_WORK: ""}))


def _cheapest_first(ways: list[WayOut]) -> tuple[WayOut, ...]:
    return tuple(sorted(ways, key=lambda way: (way.cost_usd, way.key)))


def _conflicts(elastic: Elastic) -> list[list[str]]:
    """Sets of limits that cannot hold together, one after the other until nothing clashes.

    Of each set none can be spared: limits are loosened in turn, and stay so where the clash remains.
    """
    found: list[list[str]] = []
    spared: list[str] = []
    while not elastic.feasible(spared):
        loose, kept = list(spared), list[str]()
        for key in reversed([key for key in elastic.items if key not in spared]):
            if elastic.feasible([*loose, key]):
                kept.append(key)
            else:
                loose.append(key)
        if not kept:
            break
        found.append(kept[::-1])
        spared += kept
    return found


class Search:
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
        value = elastic.least(key)
        return None if value is None else self.way(key, value)

    def lost_work(self) -> list[WayOut]:
        """The smallest change of the work that a failure may throw away; empty when none is enough."""
        item = self.items.get(LOST_WORK)
        without = None if item is None else self.plan({LOST_WORK: ""})
        if item is None or without is None:
            return []
        used_s = max((segment.checkpoint.lost_work_s for segment in without.segments), default=0.0)
        way = self.way(LOST_WORK, max(item.value, used_s / (item.per_unit * DAY_S)))
        return [] if way is None else [way]

    def way(self, key: str, estimate: float) -> WayOut | None:
        """The smallest change of one limit, from a first guess of its value."""
        item = self.items[key]
        found = self._smallest(item, estimate)
        if found is None:
            return None
        value, plan = found
        text = item.text(value)
        return WayOut(key, text, self._change(key, text), plan.total_usd, plan.finish_s)

    def _smallest(self, item: Negotiable, estimate: float) -> tuple[float, Plan] | None:
        """The smallest value of a limit with a plan, from a first guess."""
        found = self._enough(item, estimate)
        if found is None:
            return None
        return self._tightened(item, *found, {})

    def _tightened(
        self, item: Negotiable, value: float, plan: Plan, beside: dict[str, str]
    ) -> tuple[float, Plan]:
        """The smallest value of a limit with a plan, from one that has a plan, with other changes beside it."""
        low, step = item.value, 1.0 - LESS_FRAC
        # Downwards in growing steps until it is not enough any more, then in between.
        while (lower := _less(item, value, step)) is not None:
            better = self.plan(beside | {item.key: item.text(lower)})
            if better is None:
                low = lower
                break
            value, plan, step = lower, better, min(2.0 * step, 0.9)
        while (middle := _between(item, low, value)) is not None:
            better = self.plan(beside | {item.key: item.text(middle)})
            if better is None:
                low = middle
            else:
                value, plan = middle, better
        return value, plan

    def _enough(self, item: Negotiable, estimate: float) -> tuple[float, Plan] | None:
        """A value near the estimate, not below it, with a plan."""
        apart = max(estimate - item.value, 1.0 if item.whole else 1e-3 * max(item.value, 1e-3))
        tried = -1.0
        for more in GROWTH_FRAC:
            value = min(item.rounded(item.value + apart * (1.0 + more)), item.most)
            if item.whole and tried >= 0.0:
                value = min(max(value, tried + 1.0), item.most)
            if value == tried:
                continue
            tried = value
            plan = self.plan({item.key: item.text(value)})
            if plan is not None:
                return value, plan
        return None

    def joint(self, elastic: Elastic, beside: dict[str, str] | None = None) -> JointWay | None:
        """The smallest change of several limits together, each counted in parts of its limit.

        Args:
            elastic: the case to be loosened.
            beside: what is changed as well, by key.
        """
        values, extra = elastic.together(), beside or {}
        if values is None:
            return None
        for more in GROWTH_FRAC:
            stretched = {key: self._stretched(key, value, more) for key, value in values.items()}
            changes = extra | {key: self.items[key].text(value) for key, value in stretched.items()}
            plan = self.plan(changes)
            if plan is None:
                continue
            for key, value in stretched.items():
                least, plan = self._tightened(self.items[key], value, plan, changes)
                changes[key] = self.items[key].text(least)
            told = [(key, text, self._change(key, text)) for key, text in changes.items()]
            return JointWay(tuple(told), plan.total_usd, plan.finish_s)
        return None

    def _change(self, key: str, text: str) -> str:
        return f"{self.items[key].written} -> {text or 'no limit'}"

    def _stretched(self, key: str, value: float, more: float) -> float:
        item = self.items[key]
        return min(item.rounded(item.value + (value - item.value) * (1.0 + more)), item.most)


def _less(item: Negotiable, value: float, step: float) -> float | None:
    """A value loosened by ``step`` less, or by one less at least; None where it is the case's own."""
    lower = item.value + (value - item.value) * (1.0 - step)
    if item.whole:
        lower = min(item.rounded(lower, up=False), value - 1.0)
    return lower if item.value < lower < value else None


def _between(item: Negotiable, low: float, high: float) -> float | None:
    """A value between one that is not enough and one that is; None when they are near enough."""
    if item.whole:
        return None if high - low <= 1.0 else float(int((low + high) / 2.0))
    if high - low <= (1.0 - LESS_FRAC) * (high - item.value) * (1.0 + 1e-9):
        return None
    middle = item.rounded((low + high) / 2.0)
    return middle if low < middle < high else None
