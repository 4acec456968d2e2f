"""What scenarios do to the options of a problem: how much longer each takes, how much dearer it is.

Factors over what is planned, from the formulas of ``trainplan_models.checkpoint`` and ``spot`` at the rates of
each scenario. They are means over the events of a scenario; the simulation, which draws the events, is not used
here and uses nothing of this.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trainplan.assembly import Assembly
from trainplan.options import Detail
from trainplan.problem import Charges, Draws, Instead, Recourse
from trainplan.scenarios import ON_DEMAND, Place, draw, forward_selection
from trainplan.sites import Site
from trainplan_models import costs
from trainplan_models.checkpoint import efficiency_frac
from trainplan_models.simulation_world import DENSE, MOE, Scenarios, Uncertainties
from trainplan_models.spot import gang_loss_per_s, profile_for

Floats = np.ndarray[Any, np.dtype[np.float64]]
Ints = np.ndarray[Any, np.dtype[np.int64]]

DAY_S = 86400.0
DRAWN = 2_000
"""Scenarios from which few are chosen."""
LEAST_GOODPUT_FRAC = 1e-3
"""A scenario in which hardly any time is left for work counts as one with this share."""
SLOW_FACTOR = 2.0
"""The slow end, over the share of scenarios that may miss."""
PICKS = 2
"""Scenarios kept of each stretch."""
PRICE_WEIGHT = 0.25
"""Weight of a price against as large a change of time, where scenarios are compared."""


@dataclass(frozen=True, slots=True)
class _Turn:
    """What becomes of one option; arrays over scenarios."""

    time_factor: Floats
    usd_factor: Floats
    instead_days: Floats | None = None
    instead_daily_usd: float = 0.0


def recourse_of(
    assembly: Assembly,
    options: Iterable[int],
    count: int,
    seed: int,
    length_s: float | None = None,
    chance_frac: float = 0.5,
) -> Recourse:
    """``count`` scenarios of the options of a problem, which stand for many.

    The many are drawn as for the simulation and put in order of how much longer the work takes in them. Half of
    those kept stand for the slow end, which decides whether a chance is kept, half for all others; from each
    stretch of the order those are taken that are nearest to the rest of it in what they do to the time of each
    kind of option, to waits and to prices (forward selection).

    Args:
        assembly: the problem.
        options: those that may be used.
        count: scenarios wanted.
        seed: the same seed gives the same scenarios.
        length_s: length of the programme, over which spot prices drift; absent, that of the deadline.
        chance_frac: the chance that is to be kept.
    """
    wanted = sorted(set(options))
    many = draw(_places(assembly, wanted), assembly.case, DRAWN, seed, length_s)
    of = _Turns(assembly, many).of
    turns = {o: of(o) for o in wanted}
    waits = _waits(assembly, wanted, many)
    index, weight = _few(_points(assembly, turns, waits), _lateness(assembly, turns), count, chance_frac)

    def kept(values: Floats) -> Draws:
        return tuple(float(value) for value in values[index])

    return Recourse(
        weight=tuple(float(p) for p in weight / weight.sum()),
        time_factor={o: kept(turn.time_factor) for o, turn in turns.items()},
        usd_factor={o: kept(turn.usd_factor) for o, turn in turns.items()},
        wait_days={r: kept(days) for r, days in waits.items()},
        instead={
            o: Instead(kept(turn.instead_days), turn.instead_daily_usd)
            for o, turn in turns.items()
            if turn.instead_days is not None
        },
        overrun_usd=_overruns(assembly, wanted),
    )


@dataclass(frozen=True, slots=True)
class _Part:
    """Nodes of an option that are of one pool and mode."""

    site: Site
    mode: str
    nodes: int
    """Working nodes."""
    paid_frac: float
    resource: int
    daily: Charges
    billing: tuple[str, ...]
    """Modes that they may be under; empty for all."""


def _parts(assembly: Assembly, number: int, detail: Detail) -> list[_Part]:
    """What an option is made of: the nodes that do all or train, and those that generate for them."""
    option, billing, other = assembly.spec.options[number], detail.work.task.billing, detail.rollout
    nodes, paid_frac = detail.candidate.nodes, detail.paid_frac
    found = [_Part(detail.site, detail.mode, nodes, paid_frac, option.resource, option.daily, billing)]
    for beside in option.beside:
        if other is not None:
            rollout = detail.work.task.rollout
            allowed = billing if rollout is None else rollout.billing or billing
            part = (other.site, other.mode, other.nodes, other.paid_frac, beside.resource, beside.daily)
            found.append(_Part(*part, allowed))
    return found


def _place(assembly: Assembly, site: Site, mode: str) -> Place:
    preemptible = assembly.catalog.modes[mode].preemptible
    place = site.place
    return Place(site.name, place.cloud, place.region, site.accelerator.generation, mode, preemptible)


def _places(assembly: Assembly, options: Sequence[int]) -> set[Place]:
    found = set()
    for o in options:
        detail = assembly.details[o]
        for part in [] if detail is None else _parts(assembly, o, detail):
            found.add(_place(assembly, part.site, part.mode))
            if assembly.catalog.modes[part.mode].preemptible:
                found.add(_place(assembly, part.site, ON_DEMAND))
    return found


def _waits(assembly: Assembly, options: Sequence[int], many: Scenarios) -> dict[int, Floats]:
    """By resource, days until its nodes are there."""
    resources = {r for o in options for r, _ in assembly.spec.options[o].taken}
    known = {r: assembly.spec.resources[r] for r in sorted(resources)}
    found = {r: many.capacity_delay_s.get((one.pool, one.mode)) for r, one in known.items()}
    return {r: delay_s / DAY_S for r, delay_s in found.items() if delay_s is not None and delay_s.any()}


def _overruns(assembly: Assembly, options: Sequence[int]) -> dict[int, float]:
    """By committed resource, the price of a node-day past the purchase."""
    found = {}
    for o in options:
        detail = assembly.details[o]
        for part in [] if detail is None else _parts(assembly, o, detail):
            resource = assembly.spec.resources[part.resource]
            if resource.committed:
                usd_per_h = part.site.usd_per_node_h.get(ON_DEMAND)
                found[part.resource] = resource.usd_per_node_day if usd_per_h is None else 24.0 * usd_per_h
    return found


# One option


class _Turns:
    """What becomes of options in many scenarios."""

    def __init__(self, assembly: Assembly, many: Scenarios) -> None:
        self.assembly, self.many, self.ones = assembly, many, np.ones(many.count)
        known = Uncertainties(assembly.case.assumptions.uncertainty)
        self.hang_frac = known.value("hang_frac", assembly.case.assumptions.failure_profile or "standard")

    def of(self, number: int) -> _Turn:
        """The turn of one option."""
        detail, option, many = self.assembly.details[number], self.assembly.spec.options[number], self.many
        if detail is None:
            return _Turn(self.ones, self.ones)
        stretch = (1.0 + many.redone_frac) / self._speed(detail)
        parts, modes = _parts(self.assembly, number, detail), self.assembly.catalog.modes
        lost = next((part for part in parts if modes[part.mode].preemptible), None)
        planned = self._goodput(detail, None, lost)
        here = self._goodput(detail, many, lost)
        useful_days = min(_useful_days(detail), option.work_days)
        fixed_days = option.work_days - useful_days
        time_factor = (fixed_days + useful_days * stretch * planned.useful / here.useful) / option.work_days
        usd_factor = self._dearer(option.daily_usd, detail, parts, lost, here.paid / planned.paid)
        usd = None if lost is None else self._on_demand_usd(number, detail, parts, lost)
        if usd is None or lost is None:
            return _Turn(time_factor, usd_factor)
        firm = self._goodput(detail, many, None)
        delay_s = many.capacity_delay_s.get((lost.site.name, ON_DEMAND), 0.0 * self.ones)
        days = fixed_days + useful_days * stretch * planned.useful / firm.useful + delay_s / DAY_S
        return _Turn(time_factor, usd_factor, days, usd)

    def _speed(self, detail: Detail) -> Floats:
        """Real over predicted throughput."""
        if detail.work.setup is None or detail.work.tokens <= 0.0:
            return self.ones
        kind = MOE if detail.work.setup.shape.experts else DENSE
        return self.many.throughput_factor.get((detail.site.accelerator.generation, kind), self.ones)

    def _goodput(self, detail: Detail, many: Scenarios | None, lost: _Part | None) -> _Goodput:
        """Useful and paid share of time.

        Args:
            detail: what the option stands for.
            many: scenarios; None for what is planned.
            lost: nodes that may be taken away; None where none are.
        """
        assembly, failures, one = self.assembly, self.assembly.world.failures, self.ones
        node = detail.working_nodes * failures.failures_per_1000_node_days / 1000.0 / DAY_S * one
        soft = failures.soft_failures_per_day / DAY_S * one
        replace_s = failures.spare_swap_s if detail.spares else failures.requeue_s
        recover_s, hang_s, loss, paid = (failures.detect_s + replace_s) * one, 0.0 * one, 0.0 * one, one
        if lost is not None:
            at, region = lost.site.node, lost.site.place.region
            name = assembly.world.spot_name
            profile = profile_for(assembly.catalog, at.cloud, region, at.instance_type, name)
            loss, down_s = float(gang_loss_per_s(lost.nodes, profile)) * one, profile.reacquire_s * one
            if many is not None:
                loss = loss * many.spot_hazard_factor.get(lost.site.name, one)
                down_s = down_s * many.spot_wait_factor.get(lost.site.name, one)
            paid = 1.0 / (1.0 + loss * down_s)
        if many is not None:
            node, soft = node * many.failure_factor, soft * many.soft_failure_factor
            recover_s = recover_s * many.recovery_factor
            hang_s = self.hang_frac * many.hang_s * many.recovery_factor
        total = np.maximum(node + soft + loss, 1e-30)
        restart_s = ((node + soft) * recover_s + soft * hang_s) / total + self._resume_s(detail, replace_s)
        efficiency = efficiency_frac(max(detail.interval_s, 1.0), detail.blocking_s, 1.0 / total, restart_s)
        return _Goodput(np.maximum(efficiency * paid, LEAST_GOODPUT_FRAC), paid)

    def _resume_s(self, detail: Detail, replace_s: float) -> float:
        """Loading and warming up: the planned mean restart without detection and replacement."""
        failures = self.assembly.world.failures
        of_nodes = detail.working_nodes * failures.failures_per_1000_node_days / 1000.0
        among = (of_nodes + failures.soft_failures_per_day) / DAY_S * detail.mtbf_s
        return max(detail.restart_s - min(among, 1.0) * (failures.detect_s + replace_s), 0.0)

    def _dearer(
        self, planned_usd: float, detail: Detail, parts: list[_Part], lost: _Part | None, held: Floats
    ) -> Floats:
        """USD a calendar day over those planned."""
        if planned_usd <= 0.0:
            return self.ones
        usd = 0.0 * self.ones
        for part, category, amount in [(one, *line) for one in parts for line in one.daily]:
            factor = self.ones
            if part is lost:
                price = self.many.spot_price_factor.get(part.site.name, self.ones)
                factor = held if _by_node_hour(category, detail) else factor
                factor = factor * price if _by_price(category, detail) else factor
            factor = factor * self.many.experiments_factor if category == costs.EXPERIMENTS else factor
            usd = usd + amount * factor
        return usd / planned_usd

    def _on_demand_usd(self, number: int, detail: Detail, parts: list[_Part], lost: _Part) -> float | None:
        """USD a day with on-demand nodes of the same pool for those lost; None where they are waited for."""
        usd_per_h = lost.site.usd_per_node_h.get(ON_DEMAND)
        option, resources = self.assembly.spec.options[number], self.assembly.spec.resources
        if usd_per_h is None or (lost.billing and ON_DEMAND not in lost.billing):
            return None
        firm = [r for r, one in enumerate(resources) if (one.pool, one.mode) == (lost.site.name, ON_DEMAND)]
        needed = option.nodes_of(lost.resource) + sum(option.nodes_of(r) for r in firm)
        if firm and min(resources[firm[0]].held_nodes) < needed:
            return None
        usd_factor = usd_per_h / max(lost.site.usd_per_node_h[lost.mode], 1e-9)
        held = 1.0 / max(lost.paid_frac, 1e-9)
        return sum(
            usd
            * (held if part is lost and _by_node_hour(category, detail) else 1.0)
            * (usd_factor if part is lost and _by_price(category, detail) else 1.0)
            for part in parts
            for category, usd in part.daily
        )


@dataclass(frozen=True, slots=True)
class _Goodput:
    useful: Floats
    """Share of calendar time that is useful work."""
    paid: Floats
    """Share of calendar time in which nodes are held."""


def _by_price(category: str, detail: Detail) -> bool:
    """Whether an amount follows the price of a node."""
    return category in (costs.EXPERIMENTS, costs.node_category(detail.work.task.kind))


def _by_node_hour(category: str, detail: Detail) -> bool:
    """Whether an amount is paid while nodes are held; the others go by calendar time."""
    return category in (costs.POWER, costs.LOGGING) or _by_price(category, detail)


def _useful_days(detail: Detail) -> float:
    """Calendar days of a task without the setups of its rounds."""
    owned = detail.site.owned
    stretch = 1.0 if owned is None else 24.0 / owned.queue_hours_per_day
    if detail.work.setup is not None and detail.work.tokens > 0.0:
        useful_s = detail.work.tokens / detail.candidate.tokens_per_s
    else:
        devices = max(detail.candidate.nodes * detail.site.node.accelerators, 1)
        useful_s = detail.work.accelerator_hours * 3600.0 / devices
    return useful_s / max(detail.goodput_frac, 1e-9) / DAY_S * stretch


# Few for many


def _columns(assembly: Assembly, turns: dict[int, _Turn]) -> list[Floats]:
    """How much longer each kind of option takes: those of a task in one pool under one mode are alike."""
    columns: dict[tuple[str, str, str], Floats] = {}
    for o, turn in turns.items():
        detail = assembly.details[o]
        if detail is not None:
            columns.setdefault((detail.work.task.name, detail.site.name, detail.mode), turn.time_factor)
    return list(columns.values())


def _points(assembly: Assembly, turns: dict[int, _Turn], waits: dict[int, Floats]) -> Floats:
    """Scenarios as points: time of each kind of option in parts of its plan, waits, and prices."""
    columns = _columns(assembly, turns)
    shared = [column / np.sqrt(len(columns)) for column in columns]
    span_days = assembly.spec.windows[-1][1]
    shared += [days / span_days / np.sqrt(len(waits)) for days in waits.values()]
    prices = {turn.usd_factor.tobytes(): turn.usd_factor for turn in turns.values()}
    shared += [PRICE_WEIGHT * column / np.sqrt(len(prices)) for column in prices.values()]
    varied = [column - column.mean() for column in shared if np.ptp(column) > 0.0]
    return np.stack(varied, axis=1) if varied else np.zeros((len(next(iter(turns.values())).time_factor), 1))


def _lateness(assembly: Assembly, turns: dict[int, _Turn]) -> Floats:
    """By scenario, how much longer work takes over all kinds of options."""
    columns = _columns(assembly, turns)
    return np.mean(columns, axis=0) if columns else np.zeros(len(next(iter(turns.values())).time_factor))


def _few(points: Floats, lateness: Floats, count: int, chance_frac: float) -> tuple[Ints, Floats]:
    """Which of many equally likely scenarios are kept, and the probability each then has."""
    order, many = np.argsort(lateness, kind="stable"), len(lateness)
    slow = int(np.clip(round(many * SLOW_FACTOR * (1.0 - chance_frac)), count, many // 2))
    strata = max(count // (2 * PICKS), 1)
    stretches = [*np.array_split(order[: many - slow], strata), *np.array_split(order[many - slow :], strata)]
    index, weight = [], []
    for stretch in stretches:
        chosen, owner = forward_selection(points[stretch], np.full(len(stretch), 1.0 / many), PICKS)
        index += stretch[chosen].tolist()
        weight += (np.bincount(owner, minlength=len(chosen)) / many).tolist()
    return np.array(index), np.array(weight)
