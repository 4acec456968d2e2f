"""Why there is no plan, and what would have to change; why this plan and not another."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from trainplan.assembly import Assembly
from trainplan.highs import Session
from trainplan.solve import Outcome, Solver
from trainplan.thin import thinned
from trainplan_models.plan import Alternative, Plan
from trainplan_models.units import format_quantity

DAY_S = 86400.0
Kind = Literal["accelerator", "billing"]
EXCESS_MARGIN_FRAC = 1e-6


@dataclass(frozen=True, slots=True)
class WayOut:
    """A change of one limit under which a plan exists."""

    key: str
    value: str
    """As it can be given to ``--set``."""
    change: str
    cost_usd: float
    finish_s: float


def no_candidate(assembly: Assembly, task: str) -> str:
    """Why a task cannot run anywhere, in words."""
    lines = [f"No configuration can run task {task!r}."]
    rules: Counter[str] = assembly.removed.get(task, Counter())
    for rule, count in rules.most_common(6):
        lines.append(f"  {count:,} removed: {rule}")
    for rule, count in assembly.removed.get("", Counter()).most_common(6):
        lines.append(f"  {count:,} pools left out: {rule}")
    if task in assembly.nearest:
        site, miss = assembly.nearest[task]
        lines.append(
            f"  Nearest: {miss.nodes} nodes of {site.node.instance_type} ({site.accelerator.name}) need "
            f"{miss.peak_memory_bytes / 2**30:.1f} GiB per accelerator at the least, "
            f"{miss.usable_memory_bytes / 2**30:.1f} GiB are usable; allow more nodes, an 8-bit optimizer, "
            "LoRA or a chip with more memory."
        )
    return "\n".join(lines)


def ways_out(solver: Solver) -> list[WayOut]:
    """For each limit of the case, the smallest change of it alone under which a plan exists, each solved."""
    found = []
    for limit in solver.ctx.limits:
        excess = solver.least_excess(limit.name)
        if excess is None:
            continue
        case_value = limit.upper * limit.per_unit
        value = case_value + excess * (1.0 + EXCESS_MARGIN_FRAC) + case_value * EXCESS_MARGIN_FRAC
        outcome = solver.solve(limits={limit.name: value}, two_goals=False)
        if outcome.decision is None:
            continue
        found.append(
            WayOut(
                key=limit.name,
                value=_written(value, limit.unit),
                change=f"{_written(case_value, limit.unit)} -> {_written(value, limit.unit)}",
                cost_usd=outcome.decision.usd,
                finish_s=outcome.decision.finish_days * DAY_S,
            )
        )
    return found


def _written(value: float, unit: str) -> str:
    return f"{value:.6g} {unit}"


def alternatives(session: Session, assembly: Assembly, plan: Plan, time_limit_s: float) -> list[Alternative]:
    """The best plan on each accelerator and under each billing mode that the plan does not use alone.

    Each is the same question solved with only the options of that kind.
    """
    found = []
    used: dict[Kind, set[str]] = {
        "accelerator": {segment.accelerator for segment in plan.segments},
        "billing": {segment.mode for segment in plan.segments},
    }
    for kind, chosen in used.items():
        names = {dict(option.groups).get(kind, "") for option in assembly.spec.options}
        for name in sorted(names - {""}):
            if chosen != {name}:
                found.append(_alternative(session, assembly, kind, name, plan, time_limit_s))
    return sorted(found, key=lambda a: (a.kind, a.usd is None, a.usd or 0.0, a.name))


def _alternative(
    session: Session, assembly: Assembly, kind: Kind, name: str, plan: Plan, time_limit_s: float
) -> Alternative:
    allowed = [
        number
        for number, option in enumerate(assembly.spec.options)
        if not option.groups or dict(option.groups)[kind] == name
    ]
    without = _without_any(assembly, allowed)
    if without:
        return Alternative(kind=kind, name=name, reason=f"cannot run {without}")
    solver = Solver(assembly.spec, session, time_limit_s, thinned(assembly.spec, allowed)[0])
    outcome = solver.solve(two_goals=False)
    if outcome.decision is None:
        beyond = assembly.beyond()
        later = Solver(beyond, session, time_limit_s, thinned(beyond, allowed)[0])
        return Alternative(kind=kind, name=name, reason=_why_not(later, outcome))
    usd = outcome.decision.usd
    return Alternative(
        kind=kind,
        name=name,
        usd=usd,
        finish_s=outcome.decision.finish_days * DAY_S,
        reason=_difference(usd - plan.total_usd, plan),
    )


def _without_any(assembly: Assembly, allowed: list[int]) -> str:
    """Tasks that none of the options can do."""
    doable = {assembly.spec.options[number].task for number in allowed}
    return ", ".join(task.name for number, task in enumerate(assembly.spec.tasks) if number not in doable)


def _difference(more_usd: float, plan: Plan) -> str:
    if plan.question == "fastest":
        return "not faster"
    share = more_usd / plan.total_usd if plan.total_usd else 0.0
    word = "more" if more_usd >= 0 else "less"
    return f"costs {format_quantity(abs(more_usd), 'usd')} {word} ({share:+.1%})"


def _why_not(solver: Solver, outcome: Outcome) -> str:
    if outcome.state != "infeasible":
        return "no answer within the time limit"
    reasons = []
    for limit in solver.ctx.limits:
        excess = solver.least_excess(limit.name)
        if excess is not None:
            needed = _written(limit.upper * limit.per_unit + excess, limit.unit)
            reasons.append(f"{limit.name} would have to be {needed}")
    return "; or ".join(reasons) or "cannot do all the work within the limits, whichever one is loosened"
