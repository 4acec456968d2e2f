"""A plan recomputed in plain Python, from its own segments and the catalogue's prices.

Nothing here reads a solver value: time from tokens and speed, money from node-hours and offers, limits
from the case. Any mismatch is an error, never a warning.
"""

from __future__ import annotations

from collections import defaultdict

from trainplan.assembly import Assembly
from trainplan_models.at_work import SAME_TIME_S, running
from trainplan_models.base import VerificationError
from trainplan_models.plan import Plan, Segment
from trainplan_models.plan_checks import plan_problems

DAY_S = 86400.0
MONEY_TOLERANCE_FRAC = 2e-5
TIME_TOLERANCE_FRAC = 1e-4


def verify(plan: Plan, assembly: Assembly, promised_usd: float) -> None:
    """Checks a plan against itself, its case, its catalogue and what the solver promised.

    Args:
        plan: the plan with its cost lines.
        assembly: what it was made from.
        promised_usd: the solver's cost.

    Raises:
        VerificationError: with every mismatch.
    """
    problems = plan_problems(plan, assembly.case, assembly.catalog)
    cents = 0.01 * max(len(plan.cost_lines), 1)
    if abs(plan.total_usd - promised_usd) > MONEY_TOLERANCE_FRAC * abs(promised_usd) + cents:
        problems.append(
            f"the bill is {plan.total_usd:,.2f} USD and the solver promised {promised_usd:,.2f} USD"
        )
    problems += _work_problems(plan, assembly)
    problems += _order_problems(plan, assembly)
    problems += _role_problems(plan)
    problems += _limit_problems(plan, assembly)
    problems += _node_problems(plan, assembly)
    if problems:
        raise VerificationError(
            "the plan does not stand up to being recomputed:\n" + "\n".join(f"- {p}" for p in problems)
        )


def _by_task(plan: Plan) -> dict[str, list[Segment]]:
    found: dict[str, list[Segment]] = defaultdict(list)
    for segment in plan.segments:
        if segment.leads:
            found[segment.task].append(segment)
    return found


def _role_problems(plan: Plan) -> list[str]:
    """Nodes with a part of a task's roles run beside those with the rest, in the same place and for as long."""
    problems = []
    helpers = [segment for segment in plan.segments if not segment.leads]
    for lead in (segment for segment in plan.segments if segment.leads and segment.roles):
        beside = plan.beside(lead)
        roles = sorted(role for segment in (lead, *beside) for role in segment.roles)
        if roles != ["rollout", "scoring", "update"]:
            problems.append(
                f"{lead.task}: the roles done from {lead.start_s:,.0f} s on are {', '.join(roles)}"
            )
        for other in beside:
            helpers.remove(other)
            if abs(other.end_s - lead.end_s) > SAME_TIME_S or (other.cloud, other.region) != (
                lead.cloud,
                lead.region,
            ):
                problems.append(f"{lead.task}: {other.pool} does not work beside {lead.pool} to its end")
    return problems + [f"{one.task}: {one.pool} works for nothing" for one in helpers]


def _work_problems(plan: Plan, assembly: Assembly) -> list[str]:
    """All the work is done, and each stretch is as long as its share of the work needs."""
    problems = []
    runs = _by_task(plan)
    for work in assembly.works:
        if work.setup is None:
            continue
        done = sum(segment.work_frac for segment in runs[work.task.name])
        if assembly.case.question != "most-tokens" and abs(done - 1.0) > TIME_TOLERANCE_FRAC:
            problems.append(f"{work.task.name}: {done:.4%} of the work is done")
        for segment in runs[work.task.name]:
            least_s = segment.tokens / segment.tokens_per_s / segment.goodput_frac
            if segment.end_s - segment.start_s < least_s * (1.0 - TIME_TOLERANCE_FRAC) - SAME_TIME_S:
                problems.append(
                    f"{segment.task} on {segment.pool} lasts {segment.end_s - segment.start_s:,.0f} s, "
                    f"its tokens need {least_s:,.0f} s"
                )
    return problems


def _order_problems(plan: Plan, assembly: Assembly) -> list[str]:
    """Tasks follow what they are after; stretches of one task do not overlap."""
    problems = []
    times = {time.task: time for time in plan.tasks}
    for task in assembly.case.tasks:
        for name in task.after:
            if times[task.name].start_s < times[name].end_s - SAME_TIME_S:
                problems.append(f"{task.name} starts before {name} ends")
    for name, segments in _by_task(plan).items():
        ordered = sorted(segments, key=lambda s: s.start_s)
        for before, after in zip(ordered, ordered[1:], strict=False):
            if after.start_s < before.end_s - SAME_TIME_S:
                problems.append(f"{name}: a stretch starts before the one before it ends")
    last_s = max((time.end_s for time in plan.tasks), default=0.0)
    if abs(last_s - plan.finish_s) > SAME_TIME_S:
        problems.append(f"the plan says it ends at {plan.finish_s:,.0f} s, its last task at {last_s:,.0f} s")
    return problems


def _limit_problems(plan: Plan, assembly: Assembly) -> list[str]:
    """Deadline, due dates, budget, lost work."""
    case = assembly.case
    problems = []

    def over(name: str, used: float, allowed: float | None, slack: float) -> None:
        if allowed is not None and used > allowed * (1.0 + 1e-6) + slack:
            problems.append(f"{name}: {used:,.2f} is above {allowed:,.2f}")

    over("deadline in s", plan.finish_s, case.deadline_s, SAME_TIME_S)
    over("budget in USD", plan.total_usd, case.budget_usd, 0.01 * max(len(plan.cost_lines), 1))
    times = {time.task: time for time in plan.tasks}
    for task in case.tasks:
        over(
            f"due date of {task.name} in s",
            times[task.name].end_s,
            case.seconds_from_start(task.due),
            SAME_TIME_S,
        )
        release = case.seconds_from_start(task.release) or 0.0
        if times[task.name].start_s < release - SAME_TIME_S:
            problems.append(f"{task.name} starts before its release")
    for segment in plan.segments:
        over(
            f"lost work of {segment.task} in s",
            segment.checkpoint.lost_work_s,
            case.max_lost_work_s,
            SAME_TIME_S,
        )
    return problems


def _node_problems(plan: Plan, assembly: Assembly) -> list[str]:
    """Quotas, owned nodes and the ceiling hold at every moment; grants hold in all."""
    case, problems = assembly.case, []
    moments = sorted({segment.start_s for segment in plan.segments})
    held = {(r.pool, r.mode): r for r in assembly.spec.resources}
    ceiling = case.resources.max_nodes
    for moment in moments:
        at_work = running(plan.segments, moment)
        total = sum(s.nodes + s.spare_nodes for s in at_work)
        if ceiling is not None and total > ceiling:
            problems.append(f"{total} nodes run at {moment:,.0f} s, resources.max_nodes is {ceiling}")
        for pool, mode in sorted({(s.pool, s.mode) for s in at_work}):
            resource = held[pool, mode]
            used = sum(s.nodes + s.spare_nodes for s in at_work if (s.pool, s.mode) == (pool, mode))
            window = max(
                w
                for w, (start, _) in enumerate(assembly.spec.windows)
                if start * DAY_S <= moment + SAME_TIME_S
            )
            if not resource.committed and used > resource.held_nodes[window]:
                problems.append(
                    f"{used} nodes of {pool} {mode} at {moment:,.0f} s, {resource.held_nodes[window]} there"
                )
    for segment in plan.segments:
        frozen = held[segment.pool, segment.mode].frozen
        for start, end in (assembly.spec.windows[w] for w in frozen):
            if segment.start_s < end * DAY_S - SAME_TIME_S and segment.end_s > start * DAY_S + SAME_TIME_S:
                problems.append(
                    f"{segment.task} runs on {segment.pool} between day {start:g} and {end:g}, in a freeze"
                )
    for grant in case.resources.grants:
        drawn = sum(
            (s.nodes + s.spare_nodes) * s.accelerators_per_node * (s.end_s - s.start_s) / 3600.0
            for s in plan.segments
            if s.pool == grant.name
        )
        if drawn * grant.units_per_accelerator_hour > grant.hours * (1.0 + 1e-6):
            problems.append(
                f"grant {grant.name}: {drawn:,.0f} accelerator-hours drawn, {grant.hours:,.0f} held"
            )
    return problems
