"""What a tighter limit costs: cost against finish time, or against reliability.

Cost is what is expected over simulated launches; where plans are not simulated, what is planned. Finish times are
those planned.

The limit is set to one value after the other (epsilon constraint) and the case is planned anew for each, so
every point is a plan that ``plan --set`` gives again. Between two points of different value the middle is
tried, where the cost jumps or bends most; where nothing changes there is nothing to try.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

from trainplan.candidate_cache import CandidateCache
from trainplan.changes import changed
from trainplan.highs import Session
from trainplan.negotiable import LONGEST_DAYS, text_of
from trainplan.planning import plan
from trainplan_models.base import InfeasibleError, NoAnswerError, Record
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan

DAY_S = 86400.0
Against = Literal["finish", "reliability"]
MOST_POINTS = 24
"""Plans that are made, points that are the same not counted twice."""
NEAR_FRAC = 0.01
"""Deadlines this near to each other, in parts of the whole range, are not told apart."""
ENOUGH_STRAIGHT = 2
"""Between two points whose middle lies on a line with them, and its middle again, nothing is looked for; once
is enough where all three do the same in other shares."""
SAME_USD_FRAC = 2e-4
"""Costs this near to each other are the same: the gap of a plan."""
FURTHER = 3.0
"""How far past the deadline it is looked, in deadlines."""
LEVELS = (0.5, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.98, 0.99)
"""Chances that are asked for, where cost is set against reliability."""

Progress = Callable[[str], None]


class FrontierPoint(Record):
    """One plan of a frontier."""

    overrides: tuple[str, ...]
    """``--set`` arguments under which ``plan`` gives this plan."""
    total_usd: float
    """As planned."""
    expected_usd: float | None = None
    """Mean over simulated launches; None where the plan was not simulated."""
    finish_s: float
    """As planned."""
    chance_frac: float | None = None
    """Simulated chance of being done in time and in budget."""
    decision: tuple[str, ...]
    """A line for each stretch of the plan."""
    within_budget: bool
    """Whether the cost that points are compared by is within the case's own budget."""
    corner: bool = True
    """Whether the line between its neighbours does not already pass through it."""

    @property
    def usd(self) -> float:
        """What points are compared by: the expected cost, or the planned one where that is all there is."""
        return self.total_usd if self.expected_usd is None else self.expected_usd


class Frontier(Record):
    """Plans none of which is both cheaper and better than another."""

    case: str
    against: Against
    budget_usd: float | None = None
    deadline_s: float | None = None
    points: tuple[FrontierPoint, ...]


def frontier(
    case: Case,
    catalog: Catalog,
    *,
    against: Against = "finish",
    most_points: int = MOST_POINTS,
    time_limit_s: float = 60.0,
    promise: bool = True,
    progress: Progress | None = None,
) -> Frontier:
    """The plans that are not beaten in both cost and finish time, or in both cost and chance.

    The budget is left out, so that the frontier shows what more money buys; points within it are marked.

    Args:
        case: what is asked; its question is replaced by ``cheapest``.
        catalog: prices, machines, models.
        against: what cost is set against.
        most_points: how many plans are made at most.
        time_limit_s: limit of each solve.
        promise: whether each plan is simulated and tightened to the wanted reliability, as ``plan`` does.
        progress: called with a line of text for each plan.

    Raises:
        InfeasibleError: no plan satisfies the case, whatever time and money it gets.
        NoAnswerError: the solver found nothing in time, or failed.
    """
    with Session() as session:
        search = _Search(case, catalog, session, time_limit_s, promise or against == "reliability", progress)
        found = search.by_finish(most_points) if against == "finish" else search.by_reliability(most_points)
    value = _finish if against == "finish" else _doubt
    kept = _unbeaten(found, value)
    corners = _corners(kept, value)
    return Frontier(
        case=case.name,
        against=against,
        budget_usd=case.budget_usd,
        deadline_s=case.deadline_s,
        points=tuple(
            point.model_copy(update={"corner": corner}) for point, corner in zip(kept, corners, strict=True)
        ),
    )


def _finish(point: FrontierPoint) -> float:
    return point.finish_s


def _doubt(point: FrontierPoint) -> float:
    """What is kept small where cost is set against reliability."""
    return 1.0 - (point.chance_frac or 0.0)


class _Search:
    """Plans of one case under changed limits."""

    def __init__(
        self,
        case: Case,
        catalog: Catalog,
        session: Session,
        time_limit_s: float,
        promise: bool,
        progress: Progress | None,
    ) -> None:
        self.case, self.catalog, self.session = case, catalog, session
        self.time_limit_s, self.promise = time_limit_s, promise
        self.tell = progress or (lambda _: None)
        self.cache = CandidateCache()
        self.base = {"question": "cheapest", "budget": ""}
        self.made = 0

    def at(self, changes: dict[str, str], goal: str = "cheapest") -> FrontierPoint | None:
        """The plan under changed limits; None when there is none."""
        sets = self.base | changes | {"question": goal}
        self.made += 1
        try:
            found = plan(
                changed(self.case, sets),
                self.catalog,
                time_limit_s=self.time_limit_s,
                compare=False,
                explain=False,
                promise=self.promise,
                session=self.session,
                cache=self.cache,
            )
        except InfeasibleError:
            return None
        point = self._point(sets, found)
        self.tell(f"plan {self.made}: {point.usd:,.0f} USD, day {point.finish_s / DAY_S:.2f}")
        return point

    def _point(self, sets: dict[str, str], found: Plan) -> FrontierPoint:
        original = {"question": self.case.question, "budget": "" if self.case.budget_usd is None else None}
        told = {key: value for key, value in sets.items() if original.get(key) != value}
        runs = [f"{s.task}: {s.nodes + s.spare_nodes} x {s.pool} {s.mode}" for s in found.segments]
        budget = self.case.budget_usd
        usd = found.total_usd if found.expected_usd is None else found.expected_usd
        return FrontierPoint(
            overrides=tuple(f"{key}={value}" for key, value in told.items()),
            total_usd=found.total_usd,
            expected_usd=found.expected_usd,
            finish_s=found.finish_s,
            chance_frac=None if found.risk is None else found.risk.chance_frac,
            decision=tuple(dict.fromkeys(runs)),
            within_budget=budget is None or usd <= budget * (1.0 + 1e-9),
        )

    def by_finish(self, most: int) -> list[FrontierPoint]:
        """From the plan that is done first to the one that costs least, whenever it is done."""
        deadline_s = self.case.deadline_s
        last_days = LONGEST_DAYS if deadline_s is None else FURTHER * deadline_s / DAY_S
        slow = self._by(last_days)
        if slow is None:
            raise InfeasibleError("no plan satisfies the case, whatever time and money it gets")
        quick = self._quickest(last_days, slow)
        found = {last_days: slow} | quick
        first = min(found)
        width = slow.finish_s / DAY_S - first
        gaps = [(first, last_days, 0)]
        while gaps and self.made < most:
            gaps.sort(key=lambda gap: _worth(found[gap[0]], found[gap[1]]))
            low, high, straight = gaps.pop()
            left, right = found[low], found[high]
            top = min(high, right.finish_s / DAY_S)
            if straight >= ENOUGH_STRAIGHT or top - low <= NEAR_FRAC * max(width, 1e-9):
                continue
            if abs(left.usd - right.usd) <= SAME_USD_FRAC * left.usd:
                continue
            middle = _days((low + top) / 2.0)
            point = None if middle in found else self._by(middle)
            if point is None:
                continue
            found[middle] = point
            same = left.decision == point.decision == right.decision
            straight += (2 if same else 1) if _on_line(left, point, right, _finish) else -straight
            gaps += [(low, middle, straight), (middle, high, straight)]
        return list(found.values())

    def _by(self, days: float) -> FrontierPoint | None:
        return self.at({"deadline": text_of(days, "days")})

    def _quickest(self, last_days: float, slow: FrontierPoint) -> dict[float, FrontierPoint]:
        """The cheapest of the plans that are done first: the earliest deadline that can be kept."""
        fastest = self.at({"deadline": text_of(last_days, "days")}, "fastest")
        days = slow.finish_s / DAY_S if fastest is None else fastest.finish_s / DAY_S
        for more in (0.0, 1e-3, 0.01, 0.05, 0.2, 0.5, 1.0):
            deadline = _days(days * (1.0 + more))
            point = self._by(deadline)
            if point is not None:
                return {deadline: point}
        return {}

    def by_reliability(self, most: int) -> list[FrontierPoint]:
        """The plan for each of several chances; what a plan really has is simulated."""
        levels = sorted({*LEVELS, self.case.reliability})[:most]
        budget = {"budget": None if self.case.budget_usd is None else f"{self.case.budget_usd!r} USD"}
        kept = {key: value for key, value in budget.items() if value is not None}
        found = [self.at({"reliability": repr(level)} | kept) for level in levels]
        points = [point for point in found if point is not None]
        if not points:
            raise NoAnswerError("no plan was found for any chance; see what `plan` says of the case")
        return points


def _days(value: float) -> float:
    """Six digits are enough to name a deadline; rounded up, so that what fits still does."""
    from decimal import ROUND_CEILING, Decimal

    exact = Decimal(repr(value))
    return float(exact.quantize(Decimal(1).scaleb(exact.adjusted() - 5), rounding=ROUND_CEILING))


def _worth(left: FrontierPoint, right: FrontierPoint) -> float:
    """How much may hide between two points: the area between them."""
    return abs(left.usd - right.usd) * abs(right.finish_s - left.finish_s)


def _unbeaten(points: list[FrontierPoint], value: Callable[[FrontierPoint], float]) -> list[FrontierPoint]:
    """Points by rising value and falling cost; a point that another is no worse than in both is left out."""
    kept: list[FrontierPoint] = []
    for point in sorted(points, key=lambda p: (value(p), p.usd, p.overrides)):
        if not kept or point.usd < kept[-1].usd * (1.0 - SAME_USD_FRAC):
            kept.append(point)
    return kept


def _corners(points: list[FrontierPoint], value: Callable[[FrontierPoint], float]) -> list[bool]:
    """Whether each point lies off the straight line between its neighbours."""
    found = []
    for number, point in enumerate(points):
        if number in (0, len(points) - 1):
            found.append(True)
            continue
        found.append(not _on_line(points[number - 1], point, points[number + 1], value))
    return found


def _on_line(
    left: FrontierPoint, point: FrontierPoint, right: FrontierPoint, value: Callable[[FrontierPoint], float]
) -> bool:
    """Whether a point lies on the line between two others: plans that mix two ways of doing it do."""
    if not value(left) < value(point) < value(right):
        return False
    share = (value(point) - value(left)) / (value(right) - value(left))
    straight = left.usd + share * (right.usd - left.usd)
    return abs(point.usd - straight) <= 5.0 * SAME_USD_FRAC * point.usd
