"""Plans made with the scenarios in the model: which choices are best over all of them at once.

Of each task a few options that differ in kind are kept (``shortlist``), and of many scenarios a few that stand for
them (``recourse``); over these the whole problem, its calendar unchanged, is solved with a block of times and costs
for every scenario (``formulation.recourse``). What is made small is the expected cost, and at most the share of
scenarios that the case allows may miss. Simulation judges the plan; where it keeps its limits less often than
the model thought, the limits of the model are tightened.
"""

from __future__ import annotations

from dataclasses import replace

from trainplan.highs_worker import Answer, Request
from trainplan.plan_making import Maker
from trainplan.recourse import recourse_of
from trainplan.shortlist import shortlist
from trainplan.solve import Outcome, Solver
from trainplan.thin import thinned
from trainplan_models.base import NoAnswerError, VerificationError
from trainplan_models.plan import Plan

DAY_S = 86400.0
COUNT = 40
"""Scenarios in the model."""
SEED = 3
"""Not that of the simulation."""
GAP_FRAC = 2e-3
TIME_LIMIT_S = 15.0
"""Of each solve: a stage that takes longer is not worth it."""
MISS_FACTOR = 20.0
"""Missing in all scenarios is charged as this many times the cost of the plan, where chance comes first."""


class _Settling(Solver):
    """Keeps the choices of the first goal; the second one settles only what they leave open."""

    def _second(self, changes: Request, best: Answer, time_limit_s: float) -> Answer:
        if best.x is None or best.objective is None:
            return best
        _, second_cost, offset = self._cost
        return self._polish(
            self._tied(changes, best.objective - self.model.offset), best, second_cost, offset
        )


def _used(solver: Solver) -> set[int]:
    """Options at work in the last solution."""
    x, value = solver.x, solver.compiled.value
    return set() if x is None else {o for o, w in solver.inputs.uses if value(x, f"v_used[{o},{w}]") > 0.5}


class ScenarioStage:
    """The problem over a few options and scenarios, solved under limits as tight as needed.

    Args:
        make: makes plans of the problem.
        planned: a plan, whose length says how far prices drift.
        chance_frac: share of scenarios that must not miss.
        surest: whether the chance comes first and cost second.
    """

    def __init__(self, make: Maker, planned: Plan, chance_frac: float, *, surest: bool = False) -> None:
        self.make = make
        kept, _ = thinned(make.assembly.spec)
        self.options = shortlist(make.assembly.spec, kept, _used(make.solver))
        length_s = max(planned.finish_s, DAY_S)
        recourse = recourse_of(make.assembly, self.options, COUNT, SEED, length_s, chance_frac)
        if surest:
            recourse = replace(recourse, miss_usd=MISS_FACTOR * max(planned.total_usd, 1.0))
        else:
            recourse = replace(recourse, miss_frac=1.0 - chance_frac)
        spec = replace(make.solver.spec, recourse=recourse)
        limit_s = min(TIME_LIMIT_S, make.solver.time_limit_s)
        self.solver = _Settling(spec, make.solver.session, limit_s, self.options, gap_frac=GAP_FRAC)

    def at(self, tightened_frac: float) -> Plan | None:
        """The best plan with every date and the budget this much tighter; None where none is found."""
        limits = {
            limit.name: limit.upper * limit.per_unit * (1.0 - tightened_frac)
            for limit in self.solver.ctx.limits
            if limit.unit in ("days", "USD")
        }
        try:
            outcome = self.solver.solve(limits=limits if tightened_frac else None)
            return None if outcome.decision is None else self.make.plan(self._told(outcome), widen=False)
        except (NoAnswerError, VerificationError):
            return None

    @property
    def modelled_frac(self) -> float:
        """Share of the scenarios in the model that the last plan keeps, all limits as tight as they were."""
        x, value = self.solver.x, self.solver.compiled.value
        recourse = self.solver.spec.recourse
        if x is None or recourse is None:
            return 0.0
        return 1.0 - sum(p * value(x, f"v_missed[{s}]") for s, p in enumerate(recourse.weight))

    def _told(self, outcome: Outcome) -> Outcome:
        """The outcome with what its gap is a gap of: the expected cost, beside which the bill is told."""
        usd = 0.0 if outcome.decision is None else outcome.decision.usd
        scope = (
            f"the expected cost over {COUNT} scenarios and {len(self.options):,} options kept for them "
            f"of {len(self.make.assembly.spec.options):,}"
        )
        return replace(outcome, bound=usd * (1.0 - min(outcome.gap_frac, 1.0)), scope=scope)
