"""Why a plan is what it is: what else there was, what holds it back, how firmly it stands."""

from __future__ import annotations

from collections.abc import Callable

from trainplan.alternatives import Kind, Rivals
from trainplan.assembly import assemble
from trainplan.highs import Session
from trainplan.layout_rivals import layout_alternatives
from trainplan.negotiable import negotiables
from trainplan.next_best import NextBest, next_best
from trainplan.probing import Asked, Probe, Tolerance, Worth, answers_in_parallel, tolerances_of
from trainplan_models.base import Record
from trainplan_models.case import Case
from trainplan_models.catalog import Catalog
from trainplan_models.plan import Alternative, Plan

KINDS: tuple[Kind, ...] = ("accelerator", "pool", "billing", "nodes")

Progress = Callable[[str], None]


class Explanation(Record):
    """Why a plan is what it is."""

    case: str
    question: str
    total_usd: float
    finish_s: float
    alternatives: tuple[Alternative, ...]
    worths: tuple[Worth, ...]
    tolerances: tuple[Tolerance, ...]
    next_best: tuple[NextBest, ...]


def explain(
    plan: Plan,
    catalog: Catalog,
    *,
    time_limit_s: float = 60.0,
    workers: int = 0,
    progress: Progress | None = None,
) -> Explanation:
    """Why a plan is what it is, worked out from the case it carries.

    Args:
        plan: the answer.
        catalog: what it was made from.
        time_limit_s: limit of each solve.
        workers: processes; 0 for one per core.
        progress: called with a line of text at each stage.

    Raises:
        InputError: the case of the plan names something the catalogue has not.
        NoAnswerError: the solver failed.
    """
    tell, case = progress or (lambda _: None), Case.from_canonical(plan.case)
    with Session() as session:
        tell("evaluating configurations")
        assembly = assemble(case, catalog)
        tell("comparing with the alternatives")
        rivals = Rivals(session, assembly, plan, time_limit_s, thorough=True).of(KINDS)
        rivals += layout_alternatives(session, assembly, plan, time_limit_s)
        tell("looking for plans of another kind")
        others = next_best(session, assembly, plan, time_limit_s)
    asked = Asked(plan.case, catalog, time_limit_s, promise=plan.risk is not None)
    tell("moving limits, prices and rates")
    probes = [Probe("worth", item.key) for item in negotiables(case)] + tolerances_of(plan)
    answers = answers_in_parallel(asked, probes, workers)
    return Explanation(
        case=case.name,
        question=case.question,
        total_usd=plan.total_usd,
        finish_s=plan.finish_s,
        alternatives=tuple(rivals),
        worths=tuple(answer for answer in answers if isinstance(answer, Worth)),
        tolerances=tuple(answer for answer in answers if isinstance(answer, Tolerance)),
        next_best=tuple(others),
    )
