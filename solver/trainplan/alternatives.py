"""Why this and not that: the same question solved with only some of the options, on one model kept warm.

The options that survive screening within each group (an accelerator, a billing mode, ...) get columns in one
model; each group is then that model with the columns of the others closed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np

from trainplan.assembly import Assembly
from trainplan.highs import Session
from trainplan.highs_worker import Answer, Request
from trainplan.problem import Option, ProblemSpec
from trainplan.sites import Site
from trainplan.solve import Solver
from trainplan.thin import thinned
from trainplan_models.plan import Alternative, Plan
from trainplan_models.units import format_quantity

Array = np.ndarray[Any, np.dtype[Any]]
DAY_S = 86400.0
Kind = Literal["accelerator", "pool", "billing", "nodes"]
IN_EVERY_PLAN: tuple[Kind, ...] = ("accelerator", "billing")
MOST_SLACK = 1e5
PRESOLVED_S = 4.0
"""After this long without any answer a problem is solved without presolve."""
LANES = 2
"""Solver processes at a time."""
LEAST_GROUPS = 4
"""Groups for which another process is worth its start."""
MOST_GROUPS = 13
"""Groups that share a model: enough to build few of them, few enough for each to be solved fast."""
TOGETHER = "meets each limit alone, but not all of them together"
NEAR_FRAC = 2e-3
"""Near enough to say what would be needed."""
TIE_BREAK = 1e-5
"""Weight of the second goal beside the first: it settles the finish at a millionth of the cost."""


@dataclass(frozen=True, slots=True)
class Glance:
    """What a solve found, without its plan."""

    usd: float
    finish_days: float
    scale_frac: float
    used: frozenset[int]
    """Options at work."""


class Warm:
    """One compiled model over the options of many groups.

    Args:
        spec: the problem.
        session: where it is solved.
        time_limit_s: limit of each solve.
        groups: options (by number) of each group; what survives within any of them gets columns.
    """

    def __init__(
        self, spec: ProblemSpec, session: Session, time_limit_s: float, groups: Iterable[Sequence[int]]
    ) -> None:
        kept = {number for group in groups for number in thinned(spec, group)[0]}
        self.spec = spec
        self.solver = Solver(spec, session, time_limit_s, kept)
        self._columns = [
            (option, window, self.solver.compiled.columns[f"v_used[{option},{window}]"])
            for option, window in self.solver.inputs.uses
        ]
        self._owner = np.array([option for option, _, _ in self._columns], dtype=int)
        self._used = np.array([column for _, _, column in self._columns], dtype=int)

    def glance(self, allowed: Collection[int], limits: dict[str, float] | None = None) -> Glance | None | str:
        """The best answer with only these options: what it is, None when there is none, else why it is not known.

        Args:
            allowed: options by number.
            limits: other values of limits, in the problem's units.
        """
        solver, (usd, offset) = self.solver, self.solver.usd_vector
        second = np.zeros(len(usd))
        second[solver.compiled.columns["v_finish"]] = 1.0
        if self.spec.question != "cheapest":
            second = usd
        request = solver.changes(None, limits)
        shut = self._shut(allowed)
        order = np.concatenate(
            [shut, np.array([] if request.columns is None else request.columns, dtype=int)]
        )
        zeros = np.zeros(len(shut))
        low = zeros if request.col_lower is None else np.concatenate([zeros, request.col_lower])
        high = zeros if request.col_upper is None else np.concatenate([zeros, request.col_upper])
        answer = self._ask(
            Request(
                cost=solver.model.cost + TIE_BREAK * second,
                offset=solver.model.offset,
                columns=order,
                col_lower=low,
                col_upper=high,
            )
        )
        if answer.x is None:
            return None if answer.status == "infeasible" else answer.status
        finish = float(answer.x[solver.compiled.columns["v_finish"]]) * solver.inputs.days_per_unit
        return Glance(
            usd=(float(usd @ answer.x) + offset) * solver.inputs.usd_per_unit,
            finish_days=finish,
            scale_frac=solver.compiled.value(answer.x, "v_scale"),
            used=frozenset(int(o) for o in self._owner[answer.x[self._used] > 0.5]),
        )

    def needs(self, allowed: Collection[int]) -> dict[str, tuple[float, str]] | None:
        """To what limits would have to be loosened for these options to be enough, as little as possible.

        Returns:
            (value, unit) by limit, in the problem's units, the sum of the loosenings in parts of each limit
            the smallest; None where loosening is not enough.
        """
        solver = self.solver
        cost, shut = np.zeros(len(solver.model.cost)), self._shut(allowed)
        slacks = [solver.compiled.columns[limit.slack] for limit in solver.ctx.limits]
        for column, limit in zip(slacks, solver.ctx.limits, strict=True):
            cost[column] = 100.0 / max(limit.upper, 1e-9)
        answer = self._ask(
            Request(
                cost=cost,
                columns=np.concatenate([shut, np.array(slacks, dtype=int)]),
                col_lower=np.zeros(len(shut) + len(slacks)),
                col_upper=np.concatenate([np.zeros(len(shut)), np.full(len(slacks), MOST_SLACK)]),
                options={"mip_rel_gap": NEAR_FRAC},
            )
        )
        if answer.x is None:
            return None
        return {
            limit.name: ((limit.upper + float(answer.x[column])) * limit.per_unit, limit.unit)
            for column, limit in zip(slacks, solver.ctx.limits, strict=True)
            if answer.x[column] > 1e-6 * limit.upper
        }

    def _ask(self, request: Request) -> Answer:
        """Presolve is quick where there is an answer and may take for ever where there is none."""
        first = self.solver.ask(request, min(PRESOLVED_S, self.solver.time_limit_s), PRESOLVED_S)
        if first.status != "time-limit" or first.x is not None:
            return first
        return self.solver.ask(replace(request, options=request.options | {"presolve": "off"}))

    def _shut(self, allowed: Collection[int]) -> Array:
        """Columns of all other options."""
        return self._used[~np.isin(self._owner, np.fromiter(allowed, int, len(allowed)))]


Row = tuple[Kind, str, list[int]]
"""What is varied, its name, and the options (by number) of that name."""


class Rivals:
    """The best plans that do something else."""

    def __init__(
        self,
        session: Session,
        assembly: Assembly,
        plan: Plan,
        time_limit_s: float,
        *,
        thorough: bool = False,
    ) -> None:
        self.session, self.assembly, self.plan = session, assembly, plan
        self.time_limit_s, self.thorough = time_limit_s, thorough
        self.free = [n for n, option in enumerate(assembly.spec.options) if not option.groups]

    def of(self, kinds: Sequence[Kind]) -> list[Alternative]:
        """The best plan of every accelerator, pool, billing mode or node count that the plan does not use alone."""
        rows: list[Row] = []
        found: list[Alternative] = []
        for kind in kinds:
            chosen = self._chosen(kind)
            for name, allowed in sorted(self._groups(kind).items()):
                if chosen == {name}:
                    continue
                missing = self._missing(allowed)
                reason = self._cannot(kind, name, missing) if missing else self._too_much(allowed)
                if reason and (missing or not self.thorough):
                    found.append(Alternative(kind=kind, name=name, reason=reason))
                else:
                    rows.append((kind, name, allowed))
        for first in range(0, len(rows), LANES * MOST_GROUPS):
            found += self._solved(rows[first : first + LANES * MOST_GROUPS])
        return sorted(found, key=lambda a: (kinds.index(a.kind), a.usd is None, a.usd or 0.0, a.name))

    def _solved(self, rows: list[Row]) -> list[Alternative]:
        glances = self._glances(rows)
        impossible = [row[2] for row, glance in glances if glance is None]
        later = _Later(self.assembly, self.session, self.time_limit_s, impossible)
        found = []
        for (kind, name, allowed), glance in glances:
            if isinstance(glance, Glance):
                found.append(
                    Alternative(
                        kind=kind,
                        name=name,
                        usd=glance.usd,
                        finish_s=glance.finish_days * DAY_S,
                        reason=difference(self.plan, glance, self.assembly),
                    )
                )
            else:
                reason = "no answer within the time limit"
                if glance is None:
                    reason = later.why(allowed) if self.thorough else TOGETHER
                found.append(Alternative(kind=kind, name=name, reason=reason))
        return found

    def _glances(self, rows: list[Row]) -> list[tuple[Row, Glance | None | str]]:
        """Answers of all groups, in two solver processes at a time; one is at work while the next model is built."""
        size = -(-len(rows) // LANES) if len(rows) >= LANES * LEAST_GROUPS else len(rows)
        lanes = [rows[first : first + size] for first in range(0, len(rows), max(size, 1))]

        def answers(warm: Warm, lane: list[Row]) -> list[tuple[Row, Glance | None | str]]:
            return [(row, warm.glance(row[2])) for row in lane]

        with ExitStack() as stack:
            sessions = [self.session, *(stack.enter_context(Session()) for _ in lanes[1:])]
            pool = stack.enter_context(ThreadPoolExecutor(LANES))
            asked = []
            for session, lane in zip(sessions, lanes, strict=False):
                groups = [allowed for _, _, allowed in lane]
                warm = Warm(self.assembly.spec, session, self.time_limit_s, groups)
                asked.append(pool.submit(answers, warm, lane))
            return [answer for lane in asked for answer in lane.result()]

    def _too_much(self, allowed: Collection[int]) -> str:
        """The deadline or budget that these options exceed whatever is done; empty where that is not clear.

        Bounds: no share of a task is done faster, or for less, than its fastest and its cheapest option do it.
        """
        spec = self.assembly.spec
        ends: dict[int, float] = {}
        usd = sum(amount for _, amount in spec.programme_once)
        of_task: dict[int, list[Option]] = {}
        least_usd: dict[int, list[float]] = {}
        for number in allowed:
            o = spec.options[number]
            of_task.setdefault(o.task, []).append(o)
            least_usd.setdefault(o.task, []).append(o.work_days * spec.cheapest_daily_usd(number))
        while len(ends) < len(spec.tasks):
            for number, task in enumerate(spec.tasks):
                if number not in ends and all(p in ends for p in task.predecessors):
                    start = max([task.release_days, *(ends[p] for p in task.predecessors)])
                    scale = 0.0 if spec.question == "most-tokens" and task.scalable else 1.0
                    ends[number] = start + min(scale * o.work_days + o.setup_days for o in of_task[number])
                    usd += scale * min(least_usd[number])
        days = max(ends.values())
        usd += days * sum(amount for _, amount in spec.programme_daily)
        if days > spec.deadline_days * (1.0 + 1e-6):
            return f"takes {_amount(days, 'days')} at the least; the deadline is {_amount(spec.deadline_days, 'days')}"
        if usd > spec.budget_usd * (1.0 + 1e-6):
            return (
                f"costs {_amount(usd, 'USD')} at the least; the budget is {_amount(spec.budget_usd, 'USD')}"
            )
        return ""

    def _groups(self, kind: Kind) -> dict[str, list[int]]:
        """Options of each name, with those that every plan needs; names that have none too."""
        found: dict[str, list[int]] = {name: [] for name in self._names(kind)}
        for number, option in enumerate(self.assembly.spec.options):
            if option.groups:
                found.setdefault(dict(option.groups)[kind], []).append(number)
        return {name: sorted([*numbers, *self.free]) for name, numbers in found.items()}

    def _names(self, kind: Kind) -> list[str]:
        sites = self.assembly.sites
        if kind == "accelerator":
            return [site.accelerator.name for site in sites]
        if kind == "pool":
            return [site.name for site in sites]
        return [mode for site in sites for mode in site.usd_per_node_h] if kind == "billing" else []

    def _chosen(self, kind: Kind) -> set[str]:
        read = {"accelerator": "accelerator", "billing": "mode", "pool": "pool", "nodes": "nodes"}[kind]
        leading = (segment for segment in self.plan.segments if segment.leads)
        return {_joined([str(getattr(s, read)) for s in (lead, *self.plan.beside(lead))]) for lead in leading}

    def _missing(self, allowed: Collection[int]) -> list[str]:
        """Tasks that none of the options can do."""
        spec = self.assembly.spec
        doable = {spec.options[number].task for number in allowed}
        return [task.name for number, task in enumerate(spec.tasks) if number not in doable]

    def _cannot(self, kind: Kind, name: str, missing: list[str]) -> str:
        """Why tasks cannot run there: the rule that removed most on these machines."""
        rules: Counter[str] = Counter()
        for site in self.assembly.sites:
            if _is_of(site, kind, name):
                for task in missing:
                    rules += self.assembly.removed_at(task, site)
        most = rules.most_common(1)
        return f"cannot run {', '.join(missing)}" + (f": {most[0][0]}" if most else "")


def _is_of(site: Site, kind: Kind, name: str) -> bool:
    return name in {"accelerator": (site.accelerator.name,), "pool": (site.name,)}.get(kind, ())


def alternatives(
    session: Session,
    assembly: Assembly,
    plan: Plan,
    time_limit_s: float,
    kinds: Sequence[Kind] = IN_EVERY_PLAN,
) -> list[Alternative]:
    """The best plan on each accelerator and under each billing mode that the plan does not use alone.

    Args:
        session: where it is solved.
        assembly: what the plan was made from.
        plan: the answer.
        time_limit_s: limit of each solve.
        kinds: what is varied.
    """
    return Rivals(session, assembly, plan, time_limit_s).of(kinds)


def difference(plan: Plan, other: Glance, assembly: Assembly) -> str:
    """What is worse about another answer, in the terms of the question."""
    if plan.question == "fastest":
        more_s = other.finish_days * DAY_S - plan.finish_s
        return f"takes {format_quantity(abs(more_s), 's')} {'longer' if more_s >= 0 else 'less'}"
    if plan.question == "most-tokens":
        tokens = sum(
            task.tokens * (other.scale_frac if task.scalable else 1.0) for task in assembly.spec.tasks
        )
        fewer = plan.tokens - tokens
        return f"trains {format_quantity(abs(fewer), 'tokens')} {'fewer' if fewer >= 0 else 'more'}"
    more_usd = other.usd - plan.total_usd
    share = more_usd / plan.total_usd if plan.total_usd else 0.0
    return (
        f"costs {format_quantity(abs(more_usd), 'usd')} {'more' if more_usd >= 0 else 'less'} ({share:+.1%})"
    )


class _Later:
    """The same options with time past the deadline: how much later it would have to be."""

    def __init__(
        self, assembly: Assembly, session: Session, time_limit_s: float, groups: list[list[int]]
    ) -> None:
        self.assembly, self.session, self.time_limit_s, self.groups = assembly, session, time_limit_s, groups

    @cached_property
    def _warm(self) -> Warm:
        spec = self.assembly.beyond()
        if self.assembly.case.deadline is not None:
            spec = replace(spec, delay_usd_per_day=0.0)
        return Warm(spec, self.session, self.time_limit_s, self.groups)

    def why(self, allowed: Collection[int]) -> str:
        """What would have to give for these options to be enough."""
        needed = self._warm.needs(allowed)
        if not needed:
            return "cannot do all the work within the limits, however far they are loosened"
        told = " and ".join(f"{name} of {_amount(value, unit)}" for name, (value, unit) in needed.items())
        return f"would need a {told}"


def _amount(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}" if abs(value) >= 1000.0 else f"{value:.4g} {unit}"


def _joined(names: list[str]) -> str:
    """The name of a group of options that use these, each once (see ``pair_options``)."""
    return " + ".join(dict.fromkeys(names))
