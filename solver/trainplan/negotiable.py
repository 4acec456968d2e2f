"""The limits of a case that somebody might loosen: what each is called, how it is written, how far it may go."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal
from math import floor, log10

from trainplan_models.case import Case

DAY_S = 86400.0
TIME_UNITS = (("days", DAY_S), ("hours", 3600.0), ("minutes", 60.0), ("seconds", 1.0))
SINGULAR = {"nodes": "node", "accelerators": "accelerator"} | {name: name[:-1] for name, _ in TIME_UNITS}
MOST_NODES = 4096
"""More nodes in one pool are not looked at."""
LONGEST_DAYS = 1095.0
EXACTNESS = 3
"""Digits of a loosening that are written out: its last digit is at most a thousandth of it."""


@dataclass(frozen=True, slots=True)
class Negotiable:
    """One limit of a case, as a number with a unit."""

    key: str
    """As ``--set`` takes it."""
    value: float
    """What the case says, in ``unit``."""
    unit: str
    whole: bool = False
    """Whether only whole numbers mean something."""
    limit: str = ""
    """Name of the solver's limit; empty where the solver has none."""
    per_unit: float = 1.0
    """Units of the solver's limit in one ``unit`` of this."""
    most: float = float("inf")
    """The loosest value that means something."""

    @property
    def written(self) -> str:
        """The case's value as a case file has it."""
        return text_of(self.value, self.unit)

    def rounded(self, value: float, *, up: bool = True) -> float:
        """A value with no more digits than its distance from the case's value deserves."""
        if self.whole:
            return float(-floor(-value + 1e-6)) if up else float(floor(value + 1e-6))
        apart = abs(value - self.value)
        if apart == 0.0:
            return value
        places = EXACTNESS - floor(log10(apart))
        step = Decimal(1).scaleb(-places)
        way = ROUND_CEILING if up else ROUND_FLOOR
        return float(Decimal(repr(value)).quantize(step, rounding=way))

    def text(self, value: float) -> str:
        """A value as ``--set`` takes it."""
        return text_of(value, self.unit)


def text_of(value: float, unit: str) -> str:
    """A number with its unit, never in exponent form."""
    plain = format(Decimal(repr(float(value))), "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return f"{plain} {SINGULAR.get(unit, unit) if plain == '1' else unit}"


def negotiables(case: Case) -> list[Negotiable]:
    """Every limit of a case that is a number, in the order in which people think of them."""
    return [*_goals(case), *_ceilings(case), *_quotas(case), *_owned(case), *_grants(case)]


def _time(key: str, seconds: float, limit: str) -> Negotiable:
    """A time limit in the largest unit of which it is two or more."""
    unit, unit_s = next(
        ((name, length_s) for name, length_s in TIME_UNITS if seconds >= 2.0 * length_s), TIME_UNITS[-1]
    )
    return Negotiable(
        key, seconds / unit_s, unit, limit=limit, per_unit=unit_s / DAY_S, most=LONGEST_DAYS * DAY_S / unit_s
    )


def _goals(case: Case) -> Iterator[Negotiable]:
    if case.deadline_s is not None:
        yield _time("deadline", case.deadline_s, "deadline")
    if case.budget_usd is not None:
        yield Negotiable("budget", case.budget_usd, "USD", limit="budget")
    for task in case.tasks:
        due_s = case.seconds_from_start(task.due)
        if due_s is not None:
            key = f"tasks.{task.name}.due"
            yield _time(key, due_s, key)
    if case.max_lost_work_s is not None:
        yield _time("max_lost_work", case.max_lost_work_s, "")


def _ceilings(case: Case) -> Iterator[Negotiable]:
    if case.resources.max_nodes is not None:
        key = "resources.max_nodes"
        yield Negotiable(
            key, float(case.resources.max_nodes), "nodes", whole=True, limit=key, most=float(MOST_NODES)
        )
    if case.resources.max_accelerators is not None:
        key, value = "resources.max_accelerators", float(case.resources.max_accelerators)
        yield Negotiable(key, value, "accelerators", whole=True, limit=key, most=8.0 * MOST_NODES)


def _quotas(case: Case) -> Iterator[Negotiable]:
    for number, quota in enumerate(case.resources.quotas):
        for name, nodes in quota.model_dump(by_alias=True, exclude={"pool"}, exclude_none=True).items():
            key = f"resources.quotas[{number}].{name}"
            yield Negotiable(key, float(nodes), "nodes", whole=True, limit=key, most=float(MOST_NODES))


def _owned(case: Case) -> Iterator[Negotiable]:
    for number, owned in enumerate(case.resources.owned):
        base = f"resources.owned[{number}]"
        if not owned.free:
            key = f"{base}.nodes"
            yield Negotiable(key, float(owned.nodes), "nodes", whole=True, limit=key, most=float(MOST_NODES))
        for place, free in enumerate(owned.free):
            if free.nodes < owned.nodes:
                key = f"{base}.free[{place}].nodes"
                most = float(owned.nodes)
                yield Negotiable(key, float(free.nodes), "nodes", whole=True, limit=key, most=most)


def _grants(case: Case) -> Iterator[Negotiable]:
    for number, grant in enumerate(case.resources.grants):
        base = f"resources.grants[{number}]"
        unit = "GPU-hours" if grant.units_per_accelerator_hour == 1.0 else "units"
        yield Negotiable(f"{base}.hours", grant.hours, unit, limit=f"resources.grants[{grant.name}].hours")
        key = f"{base}.nodes"
        yield Negotiable(key, float(grant.nodes), "nodes", whole=True, limit=key, most=float(MOST_NODES))
