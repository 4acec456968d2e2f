"""A number whose unit is not in its name is a mistake waiting to happen."""

from __future__ import annotations

import builtins
import dataclasses
import importlib
import pkgutil
import re
import typing
from collections.abc import Iterator
from types import ModuleType
from typing import Any

import numpy as np
from pydantic import BaseModel

import trainplan
import trainplan_models

TIMES = {"s", "seconds", "h", "hour", "hours", "day", "days", "week", "month", "months", "year"}
SIZES = {"bytes", "gb", "gib", "tib", "flops", "w", "kw", "kwh", "usd", "tokens"}
COUNTS = {
    "nodes",
    "node",
    "accelerators",
    "accelerator",
    "params",
    "elements",
    "kernels",
    "losses",
    "requests",
}
COUNTS |= {"engineers", "vcpus", "count"}
DIMENSIONLESS = {
    "frac",
    "factor",
    "ratio",
    "share",
    "weight",
    "overlap",
    "slowdown",
    "exponent",
    "correlation",
}
DIMENSIONLESS |= {"scale", "pue", "reliability"}

LAST_WORDS = TIMES | SIZES | COUNTS | DIMENSIONLESS
"""Last words of a name that say what its number counts or measures, or that it has no unit."""

ALL_IN_ONE_UNIT = re.compile(r"(Seconds|Bytes|Parameters|Degrees|Tokens|USD)\b")
"""How the docstring of a class begins whose numbers are all in one unit."""

WITH_A_UNIT_BESIDE = frozenset({"used", "allowed", "quantity", "value", "upper", "amounts", "per_unit"})
"""Amounts of records that carry their unit in a field of its own, named ``unit``."""

COMPARED = frozenset({"measured", "predicted", "p10", "p50", "p90"})
"""What is held against each other, in the unit of whatever it is of."""

WRITTEN_BY_USERS = "a key of the case file, whose values carry their unit"
SOLVER = "in solver units, which only inputs.py knows"
GOAL = "in the unit of the goal: USD, days or stretch"
CHARGES = "pairs of a cost category and USD"
CHANCE = "a probability"

BY_KIND = "the record says its unit beside it"
EXCEPTIONS: dict[str, str] = {
    "Owned.network": WRITTEN_BY_USERS,
    "Grant.network": WRITTEN_BY_USERS,
    "Overheads.experiments": WRITTEN_BY_USERS,
    "Resources.discounts": WRITTEN_BY_USERS,
    "MatrixModel.offset": SOLVER,
    "Request.offset": SOLVER,
    "Answer.objective": SOLVER,
    "Answer.bound": SOLVER,
    "Inputs.uses": SOLVER,
    "Outcome.bound": GOAL,
    "Beside.daily": CHARGES,
    "Option.daily": CHARGES,
    "Variant.daily": CHARGES,
    "Negotiable.most": BY_KIND,
    "Peak.peak": BY_KIND,
    "Peak.average": BY_KIND,
    "Peak.offered": BY_KIND,
    "Demand.peak": BY_KIND,
    "Demand.average": BY_KIND,
    "Option.once": CHARGES,
    "ProblemSpec.programme_daily": CHARGES,
    "ProblemSpec.programme_once": CHARGES,
    "ProblemSpec.windows": "pairs of days",
    "TrainSetup.ramp": "pairs of a share and a number of sequences",
    "LaunchUnit.batch_schedule": "pairs of tokens and a number of sequences",
    "Dimension.show": "the table of units itself",
    "Software.selective_recompute": "a share",
    "Factor.median_error_before": "a fraction",
    "Factor.median_error_after": "a fraction",
    "Factor.spread": "a fraction",
    "Fitted.free": "on the logistic scale between the bounds",
    "Fitted.jacobian": "log ratios by shifts on the logistic scale",
    "Generation.batch": "sequences",
    "Simulation.p_in_time": CHANCE,
    "Simulation.p_in_budget": CHANCE,
    "Simulation.p_both": CHANCE,
    "Simulation.p_both_low": CHANCE,
}
"""``Class.field``: why its name may stay as it is."""


def modules() -> Iterator[ModuleType]:
    for package in (trainplan_models, trainplan):
        for found in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
            if not found.name.endswith("__main__"):
                yield importlib.import_module(found.name)


def records() -> Iterator[type]:
    """Every pydantic record and dataclass that the product defines for more than one module."""
    for module in modules():
        for value in vars(module).values():
            if not isinstance(value, type) or value.__module__ != module.__name__ or value.__name__[0] == "_":
                continue
            if issubclass(value, BaseModel) or "__dataclass_fields__" in vars(value):
                yield value


def is_number(annotation: Any) -> bool:
    """Whether an annotation is a float, may be one, or holds nothing but floats."""
    if annotation is float or annotation is np.float64:
        return True
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Annotated:
        return is_number(arguments[0])
    if origin is dict:
        return is_number(arguments[1])
    if origin in (np.ndarray, np.dtype, tuple, list) or arguments and type(None) in arguments:
        return any(is_number(argument) for argument in arguments)
    return False


class Names(dict[str, Any]):
    """The names a module knows; what it imports for type checkers only stands for anything."""

    def __missing__(self, name: str) -> Any:
        return getattr(builtins, name, Any)


def hints_of(record: type) -> dict[str, Any]:
    names = Names(vars(importlib.import_module(record.__module__)))
    return typing.get_type_hints(record, localns=names, include_extras=True)


def numbers_of(record: type) -> list[str]:
    hints = hints_of(record)
    own = (
        record.model_fields
        if issubclass(record, BaseModel)
        else [field.name for field in dataclasses.fields(record)]  # type: ignore[arg-type]
    )
    return [name for name in own if is_number(hints[name]) and name[0] != "_"]


def says_its_unit(record: type, name: str) -> bool:
    words = name.strip("_").split("_")
    if words[-1] in LAST_WORDS or "per" in words[1:-1] or name in COMPARED:
        return True
    if ALL_IN_ONE_UNIT.match(record.__doc__ or ""):
        return True
    return name in WITH_A_UNIT_BESIDE and "unit" in hints_of(record)


def test_every_number_says_its_unit() -> None:
    names = {f"{record.__name__}.{name}" for record in records() for name in silent_numbers(record)}
    assert names - EXCEPTIONS.keys() == set()
    assert EXCEPTIONS.keys() - names == set(), "exceptions that are none any more"


def silent_numbers(record: type) -> list[str]:
    """Numbers of a record whose names say nothing of their unit."""
    return [name for name in numbers_of(record) if not says_its_unit(record, name)]


@dataclasses.dataclass
class Example:
    """What the rule must catch and what it must let through."""

    length_s: float
    length: float
    price_usd_per_h: float | None
    price: float | None
    shares_frac: np.ndarray[typing.Any, np.dtype[np.float64]]
    shares: np.ndarray[typing.Any, np.dtype[np.float64]]
    times_s: dict[str, float]
    times: dict[str, float]
    pairs: tuple[float, ...]
    layers: int
    name: str


def test_the_rule_catches_what_it_should() -> None:
    assert silent_numbers(Example) == ["length", "price", "shares", "times", "pairs"]
