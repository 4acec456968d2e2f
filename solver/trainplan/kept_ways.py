"""Ways out of an infeasible case, held against the reliability it asks for.

A way out is the smallest change under which there is a plan at all; that plan mostly has no time or money to spare.
Each is therefore simulated, and where its chance is below the wanted one, the change that keeps the promise is
looked for: from the simulated quantile of the end or of the cost for a date or a budget, in steps for nodes. What
is proposed has been planned, simulated and found to hold; where nothing was found, the way says so.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from trainplan.changes import changed
from trainplan.infeasible import CHANCE_NEAR_FRAC, Clash, WayOut
from trainplan.negotiable import Negotiable, negotiables
from trainplan.scenarios import for_plan
from trainplan_models.base import InfeasibleError, InputError, NoAnswerError, VerificationError
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Plan
from trainplan_models.simulation import Simulation, simulate
from trainplan_models.simulation_statistics import between

DAY_S = 86400.0
SEED = 1
SCENARIOS = 10_000
MOST_WAYS = 6
MOST_S = 25.0
"""After this long the ways that are left are not looked at."""
BEYOND = (1.0, 1.1, 1.3)
"""Parts of the change that the simulated quantile asks for, tried in turn."""
MORE = (0.25, 0.5, 1.0, 2.0)
"""Parts by which a number of nodes is raised, in turn."""

Make = Callable[[Case, bool], Plan]
"""Plans a case, with or without keeping its promise."""


def with_chances(clash: Clash, case: Case, catalog: Catalog, make: Make) -> Clash:
    """The same ways out, each with the chance it has and the change under which it has the wanted one.

    Args:
        clash: why there is no plan.
        case: what is asked.
        catalog: prices, machines, models.
        make: plans a changed case.
    """
    search = _Search(case, catalog, make)
    ways = [search.simulated_way(way) for way in clash.ways[:MOST_WAYS]]
    until = time.monotonic() + MOST_S
    # Dates and budgets first: what they have to be is read off the simulation, numbers of nodes are tried.
    for number in sorted(range(len(ways)), key=lambda n: search.is_whole(ways[n])):
        if time.monotonic() < until:
            ways[number] = search.kept(ways[number])
    ways += clash.ways[MOST_WAYS:]
    joint = clash.joint
    if joint is not None:
        found = search.plan({key: value for key, value, _ in joint.changes}, keep=False)
        joint = joint if found is None else replace(joint, chance_frac=search.simulated(found).p_both)
    return replace(clash, ways=tuple(ways), joint=joint, wanted_frac=case.reliability)


class _Search:
    def __init__(self, case: Case, catalog: Catalog, make: Make) -> None:
        self.case, self.catalog, self.make = case, catalog, make
        self.items = {item.key: item for item in negotiables(case)}
        self.found: dict[str, Simulation] = {}

    def plan(self, changes: dict[str, str], *, keep: bool) -> Plan | None:
        """The plan of the changed case; None when there is none."""
        try:
            return self.make(changed(self.case, changes), keep)
        except (InfeasibleError, InputError, NoAnswerError, VerificationError):
            return None

    def simulated(self, plan: Plan) -> Simulation:
        """What becomes of a plan under the limits of its own, changed case."""
        case = Case.from_canonical(plan.case)
        scenarios = for_plan(plan, case, self.catalog, SCENARIOS, SEED)
        return simulate(plan, case, self.catalog, scenarios, SEED)

    def is_whole(self, way: WayOut) -> bool:
        """Whether a way out changes a number of nodes."""
        item = self.items.get(way.key)
        return item is None or item.whole

    def simulated_way(self, way: WayOut) -> WayOut:
        """A way out with its chance."""
        least = self.plan({way.key: way.value}, keep=False)
        if least is None:
            return way
        self.found[way.key] = self.simulated(least)
        return replace(way, chance_frac=self.found[way.key].p_both)

    def kept(self, way: WayOut) -> WayOut:
        """A way out with what keeps the promise, where it does not."""
        found = self.found.get(way.key)
        if found is None or found.p_both >= self.case.reliability - CHANCE_NEAR_FRAC:
            return way
        way = replace(way, kept_sought=True)
        for changes in self._changes(way, found):
            plan = self.plan(changes, keep=True)
            if plan is None or plan.risk is None:
                continue
            if plan.risk.chance_frac >= self.case.reliability - CHANCE_NEAR_FRAC:
                return replace(
                    way,
                    kept=tuple(changes.items()),
                    kept_chance_frac=plan.risk.chance_frac,
                    kept_cost_usd=plan.risk.cost_mean_usd,
                    kept_finish_s=plan.risk.finish_p50_s,
                )
        return way

    def _changes(self, way: WayOut, found: Simulation) -> Iterator[dict[str, str]]:
        """Changes that may keep the promise: of this limit alone, then of the deadline and the budget with it."""
        item = self.items.get(way.key)
        other = found.p_in_time if way.key == "budget" else found.p_in_budget
        if item is not None and other >= self.case.reliability - CHANCE_NEAR_FRAC:
            yield from ({way.key: text} for text in self._values(item, way, found))
        goals = [self.items[key] for key in ("deadline", "budget") if key in self.items]
        for part in BEYOND[1:]:
            changes = {way.key: way.value}
            for goal in goals:
                wanted = self._quantile(goal, found)
                if wanted is not None and wanted > goal.value:
                    value = goal.rounded(goal.value + (wanted - goal.value) * part)
                    changes[goal.key] = goal.text(min(value, goal.most))
            if len(changes) > 1:
                yield changes

    def _values(self, item: Negotiable, way: WayOut, found: Simulation) -> Iterator[str]:
        """Values of a limit that may keep the promise, the nearest first."""
        if item.whole:
            start = float(way.value.split()[0])
            tried = [item.rounded(start * (1.0 + more)) for more in MORE]
            yield from dict.fromkeys(item.text(min(value, item.most)) for value in tried)
            return
        wanted = self._quantile(item, found)
        if wanted is not None and wanted > item.value:
            for part in BEYOND:
                yield item.text(min(item.rounded(item.value + (wanted - item.value) * part), item.most))

    def _quantile(self, item: Negotiable, found: Simulation) -> float | None:
        """The value of a limit that the simulated plan would have kept with the wanted chance."""
        if item.key == "budget":
            return between(found.cost_quantiles_usd, self.case.reliability)
        unit_s = item.per_unit * DAY_S
        if item.key == "deadline":
            return between(found.finish_quantiles_s, self.case.reliability) / unit_s
        ends = {task.task: task.end_quantiles_s for task in found.tasks}
        task = item.key.removeprefix("tasks.").removesuffix(".due")
        return between(ends[task], self.case.reliability) / unit_s if task in ends else None
