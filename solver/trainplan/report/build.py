"""Plan -> Document: the sections of the report in their order."""

from __future__ import annotations

from trainplan.report import basis, cost, headline, reasons, risk, schedule, timeline
from trainplan.report.bill import bill_of
from trainplan.report.document import Document, Section
from trainplan_models.plan import Plan


def document(plan: Plan) -> Document:
    """The whole report on ``plan``.

    Raises:
        VerificationError: the cost lines of the plan do not add up to its total.
    """
    bill = bill_of(plan)
    sections: tuple[Section | None, ...] = (
        headline.headline(plan, bill),
        headline.warnings(plan),
        schedule.schedule(plan),
        timeline.timeline(plan),
        cost.cost(plan, bill),
        risk.risk(plan),
        reasons.alternatives(plan, bill),
        reasons.limits(plan),
        timeline.peaks(plan),
        timeline.budget_line(plan),
        reasons.removed(plan),
        basis.assumptions(plan),
        basis.solve(plan),
    )
    return Document(title=f"Plan: {plan.name}", sections=tuple(s for s in sections if s is not None))
