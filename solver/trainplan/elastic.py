"""A case whose limits may be loosened: assembled once in a much looser world, asked many times.

What only a looser limit allows has to be there, so the case is assembled as if its limits were far away.
Limits on time and money then stand in the problem as rows with slacks; limits on nodes are values that the
problem is cut down to, as the assembly would have done.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from math import inf

import numpy as np

from trainplan.assembly import Assembly, assemble
from trainplan.candidate_cache import CandidateCache
from trainplan.changes import changed
from trainplan.highs import Session
from trainplan.highs_worker import Request
from trainplan.negotiable import Negotiable, negotiables
from trainplan.problem import ProblemSpec, Resource, SoftLimit
from trainplan.solve import Solver
from trainplan.thin import thinned
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog

DAY_S = 86400.0
MOST_SLACK = 1e5
"""In solver units, in which a programme costs about 1,000 and lasts about 100."""
LEAST_EXCESS_FRAC = 1e-6
NEAR = {"mip_rel_gap": 2e-3, "mip_abs_gap": 1e-7}
"""Near enough for a first guess; what is proposed is planned and tightened."""
SIGN_ONLY = {"mip_rel_gap": 0.9, "mip_abs_gap": 1e-7}
"""Enough to know whether anything has to be loosened at all."""


class Elastic:
    """A case whose limits may be loosened one by one or together.

    Args:
        case: what is asked.
        catalog: prices, machines, models.
        session: where it is solved.
        cache: candidates worked out before.
        time_limit_s: limit of each solve.
    """

    def __init__(
        self,
        case: Case,
        catalog: Catalog,
        session: Session,
        cache: CandidateCache,
        time_limit_s: float = 60.0,
    ) -> None:
        self.case, self.session, self.time_limit_s = case, session, time_limit_s
        self.items = {item.key: item for item in negotiables(case) if item.limit}
        self.assembly: Assembly = assemble(_loosened(case, self.items.values()), catalog, cache)
        self._amounts = {
            key: _amounts(self.assembly, case, item) for key, item in self.items.items() if item.whole
        }
        self._at: dict[tuple[float, ...], Solver | None] = {}

    def at(self, whole: Mapping[str, float]) -> Solver | None:
        """The problem under these values of limits on nodes, the case's own where none is given.

        None where a task has nothing left that could do it.
        """
        values = {key: whole.get(key, item.value) for key, item in self.items.items() if item.whole}
        known = tuple(values.values())
        if known not in self._at:
            spec = self._cut(values)
            allowed = [
                number
                for number in range(len(spec.options))
                if all(self._amounts[key].get(number, 0.0) <= value for key, value in values.items())
            ]
            doable = {spec.options[number].task for number in allowed} == set(range(len(spec.tasks)))
            kept = thinned(spec, allowed)[0] if doable else ()
            self._at[known] = Solver(spec, self.session, self.time_limit_s, kept) if doable else None
        return self._at[known]

    def feasible(self, free: Iterable[str], whole: Mapping[str, float] | None = None) -> bool:
        """Whether a plan exists with these limits as loose as can be, the others as they are.

        Args:
            free: keys of limits.
            whole: other values of limits on nodes.
        """
        open_ = set(free)
        values = {key: self.items[key].most for key in open_ if self.items[key].whole} | dict(whole or {})
        solver = self.at(values)
        if solver is None:
            return False
        slacked = self._slacked(solver)
        held = [key for key in slacked if key not in open_]
        weights = {key: 1.0 / max(self.items[key].value, 1e-9) for key in held}
        found = self._least(solver, weights | {key: 0.0 for key in slacked if key in open_}, SIGN_ONLY)
        return found is not None and not any(self._counts(key, found[key]) for key in held)

    def least(self, key: str) -> float | None:
        """The smallest value of one limit with a plan, the others as they are; None when there is none."""
        item = self.items[key]
        if item.whole:
            return self._least_whole(item)
        solver = self.at({})
        if solver is None or key not in self._slacked(solver):
            return None
        found = self._least(solver, {key: 1.0}, NEAR)
        return None if found is None else item.value + found[key]

    def together(self) -> dict[str, float] | None:
        """The loosening of several limits that is smallest in parts of each, as new values by key."""
        spec = _with_soft_limits(self._cut({k: i.most for k, i in self.items.items() if i.whole}), self)
        solver = Solver(spec, self.session, self.time_limit_s, thinned(spec, by_nodes=True)[0])
        names = {limit.name for limit in solver.ctx.limits}
        keys = [key for key, item in self.items.items() if item.limit in names]
        found = self._least(solver, {key: 1.0 / max(self.items[key].value, 1.0) for key in keys}, NEAR)
        if found is None:
            return None
        return {key: self.items[key].value + more for key, more in found.items() if self._counts(key, more)}

    def _counts(self, key: str, excess: float) -> bool:
        return excess > LEAST_EXCESS_FRAC * max(self.items[key].value, 1e-9)

    def _slacked(self, solver: Solver) -> list[str]:
        names = {limit.name for limit in solver.ctx.limits}
        return [key for key, item in self.items.items() if not item.whole and item.limit in names]

    def _least_whole(self, item: Negotiable) -> float | None:
        """By bisection: with more nodes, whatever could be done with fewer still can."""
        if not self.feasible([item.key]):
            return None
        amounts = {amount for amount in self._amounts[item.key].values() if item.value < amount <= item.most}
        if len(self.assembly.spec.tasks) > 1 or ".free[" in item.key:
            # Tasks side by side add up, to any number.
            amounts |= set(np.arange(item.value + 1.0, min(item.most, 4.0 * item.value + 64.0) + 1.0))
        values = sorted(amounts)
        low, high = 0, len(values) - 1
        while low < high:
            middle = (low + high) // 2
            if self.feasible([], {item.key: values[middle]}):
                high = middle
            else:
                low = middle + 1
        return values[low] if values else None

    def _least(
        self, solver: Solver, weights: Mapping[str, float], options: Mapping[str, float]
    ) -> dict[str, float] | None:
        """Excess of each limit in its own unit, the weighted sum as small as can be."""
        slack = {limit.name: limit for limit in solver.ctx.limits}
        cost, units = np.zeros(len(solver.model.cost)), {}
        for key, weight in weights.items():
            limit = slack[self.items[key].limit]
            column = solver.compiled.columns[limit.slack]
            units[key] = (column, limit.per_unit / self.items[key].per_unit)
            cost[column] = weight * units[key][1]
        order = np.array(sorted(column for column, _ in units.values()), dtype=int)
        answer = solver.answer(
            Request(
                cost=cost / max(float(cost.max(initial=0.0)), 1e-300),
                columns=order,
                col_lower=np.zeros(len(order)),
                col_upper=np.full(len(order), MOST_SLACK),
                options=dict(options),
            )
        )
        if answer.x is None:
            return None
        return {key: max(float(answer.x[column]), 0.0) * unit for key, (column, unit) in units.items()}

    def _cut(self, values: Mapping[str, float]) -> ProblemSpec:
        """The loose problem cut down to these values of limits on nodes, with the case's time limits as rows."""
        spec = self.assembly.spec
        deadline = inf if self.case.deadline_s is None else self.case.deadline_s / DAY_S
        held = list(spec.resources)
        most = [product.most for product in spec.products]
        for key, value in values.items():
            for number in _resources_of(self.assembly, self.case, key):
                held[number] = _held_at_most(held[number], value, _windows_of(self.assembly, self.case, key))
                if held[number].committed:
                    for k, product in enumerate(spec.products):
                        most[k] = min(most[k], int(value)) if product.resource == number else most[k]
        return replace(
            spec,
            resources=tuple(held),
            products=tuple(replace(p, most=n) for p, n in zip(spec.products, most, strict=True)),
            max_nodes=values.get("resources.max_nodes", inf),
            deadline_days=deadline,
            # A later deadline moves what counts as late with it.
            delay_after_days=spec.delay_after_days if deadline == inf else inf,
        )


def _loosened(case: Case, items: Iterable[Negotiable]) -> Case:
    """The case as if the limits that decide what is looked at were far away."""
    assembled = [item for item in items if item.limit == "deadline" or item.whole]
    return changed(case, {item.key: item.text(item.most) for item in assembled})


def _held_at_most(resource: Resource, value: float, windows: frozenset[int] | None) -> Resource:
    held = tuple(
        min(nodes, value) if windows is None or w in windows else nodes
        for w, nodes in enumerate(resource.held_nodes)
    )
    return resource if resource.committed else replace(resource, held_nodes=held)


def _index(key: str, place: int = 1) -> int:
    """The first or second index in a key such as ``resources.owned[0].free[1].nodes``."""
    return int(key.split("[")[place].split("]")[0])


def _resources_of(assembly: Assembly, case: Case, key: str) -> list[int]:
    """Resources of the problem that a limit of the case is a limit on; none for the ceilings."""
    resources = assembly.spec.resources
    if key.startswith("resources.quotas"):
        name = key.rsplit(".", 1)[1]
        modes = {n for n, mode in assembly.catalog.modes.items() if mode.quota_key == name}
        pool = case.resources.quotas[_index(key)].pool
        return [n for n, r in enumerate(resources) if r.pool == pool and r.mode in modes]
    for kind, held in (("owned", case.resources.owned), ("grants", case.resources.grants)):
        if key.startswith(f"resources.{kind}["):
            return [n for n, r in enumerate(resources) if r.pool == held[_index(key)].name]
    return []


def _amounts(assembly: Assembly, case: Case, item: Negotiable) -> dict[int, float]:
    """Option -> what it takes of a limit on nodes that holds at all times."""
    if item.key == "resources.max_accelerators":
        return {
            number: float(detail.working_accelerators)
            for number, detail in enumerate(assembly.details)
            if detail is not None
        }
    options = enumerate(assembly.spec.options)
    if item.key == "resources.max_nodes":
        return {number: float(option.all_nodes) for number, option in options}
    if ".free[" in item.key:
        return {}
    held = set(_resources_of(assembly, case, item.key))
    return _nodes_of(assembly.spec, held)


def _nodes_of(spec: ProblemSpec, held: set[int]) -> dict[int, float]:
    """Option -> nodes it takes of some resources, for those that take any."""
    nodes = {n: sum(option.nodes_of(r) for r in held) for n, option in enumerate(spec.options)}
    return {number: float(count) for number, count in nodes.items() if count}


def _windows_of(assembly: Assembly, case: Case, key: str) -> frozenset[int] | None:
    """Windows in which a limit holds; None for all. An entry of ``free`` holds until the next one."""
    if ".free[" not in key:
        return None
    owned, place = case.resources.owned[_index(key)], _index(key, 2)
    moments = [(case.seconds_from_start(free.since) or 0.0) / DAY_S for free in owned.free]
    until = min((moment for moment in moments if moment > moments[place]), default=inf)
    return frozenset(
        w
        for w, (start, _) in enumerate(assembly.spec.windows)
        if moments[place] - 1e-6 <= start < until - 1e-6
    )


def _with_soft_limits(spec: ProblemSpec, elastic: Elastic) -> ProblemSpec:
    """The loose problem with the limits on nodes as rows that can be loosened too."""
    case, soft = elastic.case, []
    most = case.resources.max_nodes
    for key, item in elastic.items.items():
        if not item.whole or key == "resources.max_nodes":
            continue
        held = set(_resources_of(elastic.assembly, case, key))
        amounts = _amounts(elastic.assembly, case, item) or _nodes_of(spec, held)
        at = _windows_of(elastic.assembly, case, key)
        shared = key != "resources.max_accelerators"
        windows = None if at is None else tuple(sorted(at))
        soft.append(SoftLimit(item.limit, item.value, item.unit, amounts, shared, windows))
    return replace(
        spec,
        max_nodes=inf if most is None else float(most),
        soft_limits=tuple(limit for limit in soft if limit.amounts),
    )
