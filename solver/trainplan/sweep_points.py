"""Which cases a sweep asks: ranges, lists and named scenarios become points, each a set of overrides."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

from trainplan_models.base import InputError, Problem
from trainplan_models.case_yaml import read_yaml
from trainplan_models.dimensions import DIMENSIONS
from trainplan_models.units import parse, reads_as

MOST_POINTS = 100_000
VARY, SCENARIOS = "--vary", "--scenarios"
BASE = "as it is"
"""Name of the point without any override, to which the others are compared."""

_RANGE = re.compile(r"(.+?)\s*\.\.\s*(.+?)\s*/\s*(.+)")
_AMOUNT = re.compile(r"([+-]?[\d_,]*\.?\d+(?:[eE][+-]?\d+)?)\s*(.*)")


@dataclass(frozen=True, slots=True)
class Point:
    """One case of a sweep."""

    name: str
    changes: tuple[tuple[str, str], ...]
    """(key, value) pairs as ``--set`` takes them."""


def points_of(varied: Sequence[str], scenarios: Path | None = None) -> list[Point]:
    """All points: every scenario with every combination of the varied values, the unchanged case first.

    Args:
        varied: ``key=a..b/step`` or ``key=value,value,...`` each.
        scenarios: a YAML file of named scenarios, each a mapping of keys to values.

    Raises:
        InputError: one of them is not of that form, or there are too many points.
    """
    axes = [values_of(text) for text in varied]
    named = [Point("", ())] if scenarios is None else read_scenarios(scenarios)
    count = len(named)
    for _, values in axes:
        count *= len(values)
    if count > MOST_POINTS:
        raise InputError(
            Problem(f"{count:,} points are too many", key=VARY, fix=f"Ask for at most {MOST_POINTS:,}.")
        )
    found = [Point(BASE, ())]
    for scenario in named:
        for combination in itertools.product(*([(key, value) for value in values] for key, values in axes)):
            changes = dict(scenario.changes) | dict(combination)
            words = [scenario.name, *(f"{key}={value}" for key, value in combination)]
            found.append(Point(", ".join(word for word in words if word), tuple(changes.items())))
    return [point for point in found if point.changes or point.name == BASE]


def values_of(text: str) -> tuple[str, list[str]]:
    """The key and the values of ``key=a..b/step`` or ``key=value,value,...``.

    Commas within brackets belong to a value: ``resources.billing=[spot],[spot, on-demand]``.

    Raises:
        InputError: it is neither.
    """
    key, equals, given = (part.strip() for part in text.partition("="))
    if not equals or not key or not given:
        raise InputError(
            Problem(
                f"{text!r} is not of the form key=values",
                key=VARY,
                fix="Write it like deadline=20d..60d/5d or budget=400k USD,500k USD.",
            )
        )
    match = _RANGE.fullmatch(given)
    return key, _range(key, *match.groups()) if match else _listed(given)


def _listed(text: str) -> list[str]:
    """Values between commas that stand outside of all brackets."""
    values, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter in "[{(") - (letter in "]})")
        if letter == "," and depth == 0:
            values.append(text[start:place].strip())
            start = place + 1
    values.append(text[start:].strip())
    return [value for value in values if value]


def _range(key: str, first: str, last: str, step: str) -> list[str]:
    """``a, a + step, ..., b``; a unit may be said once."""
    amounts = [_amount(key, part) for part in (first, last, step)]
    unit = next((unit for _, unit in reversed(amounts[:2]) if unit), amounts[2][1])
    low, high, by = (_in_unit(key, number, own or unit, unit) for number, own in amounts)
    if by <= 0 or high < low:
        raise InputError(
            Problem(
                f"{key}: {first}..{last}/{step} is no range", key=VARY, fix="Write from..to/step, rising."
            )
        )
    count = int((high - low) / by + Decimal("1e-9")) + 1
    if count > MOST_POINTS:
        raise InputError(
            Problem(f"{key}: {count:,} values are too many", key=VARY, fix="Write a larger step.")
        )
    return [_written(low + by * number, unit) for number in range(count)]


def _amount(key: str, text: str) -> tuple[Decimal, str]:
    match = _AMOUNT.fullmatch(text.strip().lstrip("$"))
    if match is None:
        raise InputError(
            Problem(
                f"{key}: {text!r} is not a number with a unit", key=VARY, fix="Write it like 20d..60d/5d."
            )
        )
    return Decimal(match[1].replace("_", "").replace(",", "")), match[2].strip()


def _in_unit(key: str, number: Decimal, own: str, unit: str) -> Decimal:
    """A number in one unit as a number in another of the same dimension."""
    if own == unit:
        return number
    for name in DIMENSIONS:
        if reads_as(f"1 {own}", name) and reads_as(f"1 {unit}", name):
            return number * Decimal(repr(parse(f"1 {own}", name))) / Decimal(repr(parse(f"1 {unit}", name)))
    raise InputError(
        Problem(f"{key}: {own!r} and {unit!r} do not measure the same", key=VARY, fix="Use one unit.")
    )


def _written(number: Decimal, unit: str) -> str:
    plain = format(number, "f")
    plain = plain.rstrip("0").rstrip(".") if "." in plain else plain
    return f"{plain} {unit}".strip()


def read_scenarios(path: Path) -> list[Point]:
    """Named scenarios: a mapping of names to mappings of keys to values, in the order of the file.

    Raises:
        InputError: the file cannot be read, or has another form.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(Problem(f"cannot be read: {error}", key=SCENARIOS, file=str(path))) from None
    data = read_yaml(text, str(path)).data
    if isinstance(data, dict) and set(data) == {"scenarios"}:
        data = data["scenarios"]
    if not isinstance(data, dict) or not all(isinstance(one, dict) for one in data.values()):
        fix = "Write a name, and under it keys with values: `tight: {deadline: 20 days}`."
        raise InputError(
            Problem("is no mapping of names to overrides", key=SCENARIOS, file=str(path), fix=fix)
        )
    return [
        Point(str(name), tuple((str(key), _as_text(value)) for key, value in _flat(changes)))
        for name, changes in data.items()
    ]


def _flat(changes: dict[str, object], before: str = "") -> Iterable[tuple[str, object]]:
    """Nested keys as dotted ones; a list is one value."""
    for key, value in changes.items():
        if isinstance(value, dict) and value and not before and not _is_record(key):
            yield from _flat(value, f"{before}{key}.")
        else:
            yield f"{before}{key}", value


def _is_record(key: str) -> bool:
    """Whether what stands under a key is one value: the last key of ``tasks.adapt.lora``."""
    return "." in key


def _as_text(value: object) -> str:
    """A value of YAML as YAML text in one line."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {_as_text(one)}" for key, one in value.items()) + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_as_text(one) for one in value) + "]"
    return "true" if value is True else "false" if value is False else str(value)
