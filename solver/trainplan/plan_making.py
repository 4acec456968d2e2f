"""From a decision to a verified plan: decode, account, verify."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from trainplan import decode
from trainplan._version import __version__
from trainplan.assembly import Assembly
from trainplan.assumptions import assumptions_of, price_dates, warnings_of
from trainplan.solve import Decision, Outcome, Solver
from trainplan.verify import verify
from trainplan_models.accounting import account, total_usd
from trainplan_models.base import NoAnswerError
from trainplan_models.peaks import peaks
from trainplan_models.plan import Plan, Status
from trainplan_models.simulation_plan import with_rules
from trainplan_models.trials import with_trials


@dataclass(frozen=True, slots=True)
class Maker:
    """Makes plans of one problem, each verified."""

    assembly: Assembly
    solver: Solver
    forgiven_usd: float
    """What leaving out beaten options may have cost (``thin``)."""

    def plan(
        self, outcome: Outcome, limits: Mapping[str, float] | None = None, *, widen: bool = True
    ) -> Plan:
        """The verified plan of an outcome.

        Args:
            outcome: with a decision.
            limits: the limits it was solved under, where they are not the case's.
            widen: whether its bound is one over the options with columns only, to be made one over all.

        Raises:
            VerificationError: the plan does not stand up to being recomputed.
        """
        if outcome.decision is None:
            raise NoAnswerError("there is no decision to make a plan of")
        proven = self._widened(outcome, outcome.decision, dict(limits or {})) if widen else outcome
        found = _plan_of(self.assembly, proven, outcome.decision)
        verify(found, self.assembly, outcome.decision.usd)
        return found

    def _widened(self, outcome: Outcome, decision: Decision, limits: dict[str, float]) -> Outcome:
        """The outcome with its bound over all options, not only over those that got columns."""
        spec = self.solver.spec
        if spec.question != "cheapest" or decision.usd <= 0.0:
            return outcome
        bound = outcome.bound
        if len(spec.tasks) == 1 and spec.move_usd:
            bound = min(bound, self.solver.bound_with_free_moves(limits))
        bound -= self.forgiven_usd
        return replace(outcome, bound=bound, gap_frac=max(0.0, 1.0 - bound / decision.usd))


def _plan_of(assembly: Assembly, outcome: Outcome, decision: Decision) -> Plan:
    """The plan of a decision, with its bill."""
    case = assembly.case
    status: Status = "optimal" if outcome.state == "optimal" else "feasible"
    segments = decode.segments_of(assembly, decision)
    times = decode.task_times(assembly, decision)
    bare = Plan(
        trainplan_version=__version__,
        name=case.name,
        question=case.question,
        status=status,
        start=case.start,
        total_usd=0.0,
        finish_s=max((time.end_s for time in times), default=0.0),
        tokens=sum(segment.tokens * segment.expected_frac for segment in segments),
        price_dates=price_dates(assembly, segments),
        segments=segments,
        tasks=times,
        purchases=decode.purchases_of(assembly, decision, segments),
        placements=decode.placements_of(assembly, decision, segments),
        removed=decode.removed_of(assembly),
        solver=decode.solver_info(assembly, outcome),
        labels=case.labels,
        case=case.canonical(),
    )
    lines = tuple(account(bare, case, assembly.catalog))
    billed = bare.model_copy(update={"cost_lines": lines, "total_usd": total_usd(lines)})
    ruled = with_rules(with_trials(billed, case, assembly.catalog), case, assembly.catalog)
    return ruled.model_copy(
        update={
            "limits": decode.limits_of(assembly, billed),
            "peaks": peaks(billed, assembly.catalog),
            "assumptions": assumptions_of(assembly, billed),
            "warnings": warnings_of(assembly, billed),
        }
    )
