"""One problem in which every limit of a case has a slack: compiled once, asked many times.

The case is assembled as if its limits were much looser, so that what only a looser limit allows is there;
the limits themselves then stand in the problem as rows with slacks.
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
from trainplan.negotiable import MOST_NODES, Negotiable, negotiables
from trainplan.problem import ProblemSpec, SoftLimit
from trainplan.solve import Solver
from trainplan.thin import thinned
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog

DAY_S = 86400.0
MOST_SLACK = 1e5
"""In solver units, in which a programme costs about 1,000 and lasts about 100."""
LEAST_EXCESS_FRAC = 1e-6
EXACT = {"mip_rel_gap": 1e-5, "mip_abs_gap": 1e-7}


class Elastic:
    """A case whose limits may be loosened one by one or together.

    Args:
        case: what is asked.
        catalog: prices, machines, models.
        session: where it is solved.
        cache: candidates worked out before.
        stage: how much looser the world is that is looked at, see ``negotiable.FURTHER``.
        time_limit_s: limit of each solve.
    """

    def __init__(
        self,
        case: Case,
        catalog: Catalog,
        session: Session,
        cache: CandidateCache,
        stage: int = 0,
        time_limit_s: float = 60.0,
    ) -> None:
        self.case = case
        self.items = {item.key: item for item in negotiables(case) if item.limit}
        self.assembly: Assembly = assemble(_loosened(case, self.items.values(), stage), catalog, cache)
        spec = _with_soft_limits(self.assembly, case, self.items)
        self.doable = {option.task for option in spec.options} == set(range(len(spec.tasks)))
        if self.doable:
            self.solver = Solver(spec, session, time_limit_s, thinned(spec, by_nodes=True)[0])
            self._slack = {limit.name: limit for limit in self.solver.ctx.limits}
            # A limit that no option can exceed has no row: keep it as it is and it holds nothing back.
            self.items = {key: item for key, item in self.items.items() if item.limit in self._slack}

    def feasible(self, free: Iterable[str]) -> bool:
        """Whether a plan exists when these limits (by key) are as loose as can be."""
        return self._least({key: 0.0 for key in free}) is not None

    def least(self, weights: Mapping[str, float]) -> dict[str, float] | None:
        """The smallest weighted loosening of these limits that makes a plan exist.

        Args:
            weights: cost of one unit (of the limit as it is written) by key.

        Returns:
            The new value of each limit that has to change, in its unit; None when no loosening is enough.
        """
        excess = self._least(weights)
        if excess is None:
            return None
        return {
            key: self.items[key].value + more
            for key, more in excess.items()
            if more > LEAST_EXCESS_FRAC * max(self.items[key].value, 1e-9)
        }

    def _least(self, weights: Mapping[str, float]) -> dict[str, float] | None:
        columns, cost, per_unit = [], np.zeros(len(self.solver.model.cost)), {}
        for key, weight in weights.items():
            limit = self._slack[self.items[key].limit]
            column = self.solver.compiled.columns[limit.slack]
            per_unit[key] = (column, limit.per_unit / self.items[key].per_unit)
            columns.append(column)
            cost[column] = weight * per_unit[key][1]
        scale = max(float(cost.max(initial=0.0)), 1e-300)
        order = np.array(sorted(columns), dtype=int)
        answer = self.solver.answer(
            Request(
                cost=cost / scale,
                columns=order,
                col_lower=np.zeros(len(order)),
                col_upper=np.full(len(order), MOST_SLACK),
                options=dict(EXACT),
            )
        )
        if answer.x is None:
            return None
        return {key: float(answer.x[column]) * unit for key, (column, unit) in per_unit.items()}


def _loosened(case: Case, items: Iterable[Negotiable], stage: int) -> Case:
    """The case as if the limits that decide what is looked at were much looser."""
    assembled = [item for item in items if item.limit == "deadline" or item.whole]
    return changed(case, {item.key: item.text(item.loosest(stage)) for item in assembled})


def _with_soft_limits(assembly: Assembly, case: Case, items: Mapping[str, Negotiable]) -> ProblemSpec:
    """The loose problem with the limits of the case put back, as rows."""
    deadline = inf if case.deadline_s is None else case.deadline_s / DAY_S
    most = case.resources.max_nodes
    spec = replace(
        assembly.spec,
        deadline_days=deadline,
        max_nodes=inf if most is None else float(most),
        # A later deadline moves what counts as late with it.
        delay_after_days=assembly.spec.delay_after_days if deadline == inf else inf,
    )
    soft = [_soft(assembly, case, item) for key, item in items.items() if _is_soft(key)]
    return replace(spec, soft_limits=tuple(limit for limit in soft if limit.amounts))


def _is_soft(key: str) -> bool:
    return key.endswith(".nodes") or key.startswith("resources.quotas") or key == "resources.max_accelerators"


def _soft(assembly: Assembly, case: Case, item: Negotiable) -> SoftLimit:
    spec, windows = assembly.spec, None
    if item.key == "resources.max_accelerators":
        amounts = {
            number: float(detail.candidate.nodes * detail.site.node.accelerators)
            for number, detail in enumerate(assembly.details)
            if detail is not None and detail.candidate.nodes <= MOST_NODES
        }
        return SoftLimit(item.limit, item.value, item.unit, amounts, shared=False)
    index = int(item.key.split("[")[1].split("]")[0])
    if item.key.startswith("resources.quotas"):
        quota, name = case.resources.quotas[index], item.key.rsplit(".", 1)[1]
        keys = {mode.name for mode in assembly.catalog.modes.values() if mode.quota_key == name}
        held = {n for n, r in enumerate(spec.resources) if r.pool == quota.pool and r.mode in keys}
    else:
        held_by = case.resources.owned if "owned" in item.key else case.resources.grants
        held = {n for n, r in enumerate(spec.resources) if r.pool == held_by[index].name}
    if ".free[" in item.key:
        windows = _windows_of(assembly, case, item)
    amounts = {n: float(o.nodes) for n, o in enumerate(spec.options) if o.resource in held}
    return SoftLimit(item.limit, item.value, item.unit, amounts, windows=windows)


def _windows_of(assembly: Assembly, case: Case, item: Negotiable) -> tuple[int, ...]:
    """Windows in which an entry of ``free`` is the one that holds."""
    owned = case.resources.owned[int(item.key.split("[")[1].split("]")[0])]
    place = int(item.key.split("[")[2].split("]")[0])
    moments = [(case.seconds_from_start(free.since) or 0.0) / DAY_S for free in owned.free]
    later = [moment for moment in moments if moment > moments[place]]
    until = min(later, default=inf)
    return tuple(
        w
        for w, (start, _) in enumerate(assembly.spec.windows)
        if moments[place] - 1e-6 <= start < until - 1e-6
    )
