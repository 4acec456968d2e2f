"""Quantities as text: what a person writes becomes canonical floats, and these what a person reads.

Both directions walk the table in ``dimensions``. ``units`` is the public face of this module.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from decimal import Decimal
from difflib import get_close_matches
from functools import cache

from trainplan_models.base import InputError, Problem
from trainplan_models.dimensions import DIMENSIONS, SCALE, TIME_S, Dimension, DimensionName

_NUMBER = r"(?:\d{1,3}(?:,\d{3})+(?!\d)|\d[\d_]*)?(?:(?<=\d)\.|\.(?=\d))?\d*(?:[eE][+-]?\d+)?"
_QUANTITY = re.compile(
    r"(?P<sign>[+-]?)\s*(?P<money>US\$|\$|USD)?\s*(?P<minus>-?)"
    rf"(?P<number>(?=[.\d]){_NUMBER})\s*(?P<unit>.*)"
)
_COMPOUND = re.compile(r"\s*(?:,|and)?\s*(\d+(?:\.\d+)?)\s*([A-Za-z]+)")
_ISO_DURATION = re.compile(r"P(?:(\d+)W)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?")
_NOT_FINITE = re.compile(r"[+-]?\.?(inf(inity)?|nan)\b", re.IGNORECASE)
_FOREIGN = re.compile(
    r"[€£¥₹₩]|\b(EUR|GBP|CNY|RMB|JPY|INR|KRW|CHF|CAD|AUD|SEK|NOK|DKK|PLN|SGD|BRL"
    r"|euros?|pounds?|yuan|yen|rupees?)\b",
    re.IGNORECASE,
)
_NUMBER_MISTAKES = {
    ",": ("has a comma in the number", "Write a point for decimals: 1.5, not 1,5."),
    ".": ("has two points in the number", "Write thousands as 1,000,000 or 1_000_000."),
    "-": ("is a range", "Write one value."),
    "–": ("is a range", "Write one value."),
} | {
    digit: ("has a space in the number", "Write thousands as 1,000,000 or 1_000_000.")
    for digit in "0123456789"
}
_DATA_UNIT = re.compile(r"(?P<prefix>[kKMGTPEmgtpe]?)(?P<binary>i?)(?P<word>b|B|bits?)(?P<per>/s|ps)?\b")


class UnitError(ValueError):
    """A quantity that cannot be read; ``message`` says what is wrong, ``fix`` how to write it."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}. {fix}")
        self.message = message
        self.fix = fix


# -------------------------------------------------------------------------------------------- reading
def parse(text: str, dimension: DimensionName) -> float:
    """The amount in canonical units of what a person wrote, e.g. ``parse("30 days", "s") == 2592000.0``.

    Raises:
        InputError: no number, no unit, a unit of something else, negative or not finite; with the right
            way to write it.
    """
    try:
        return read_quantity(text, dimension)
    except UnitError as error:
        raise InputError(Problem(error.message, fix=error.fix)) from None


def read_quantity(value: object, name: DimensionName) -> float:
    """As ``parse``, for any value out of a file.

    Raises:
        UnitError: as ``parse`` does.
    """
    dimension = DIMENSIONS[name]
    if isinstance(value, str) and value.strip():
        amount = _read_text(" ".join(value.split()), name, dimension)
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        amount = _read_bare(value, shown(value), dimension)
    else:
        raise UnitError(f"{shown(value)} is not {dimension.noun}", _write(dimension))
    if not math.isfinite(amount):
        raise UnitError(f"{shown(value)} is not a finite number", _write(dimension))
    if dimension.whole and amount != round(amount):
        raise UnitError(f"{shown(value)} is not a whole number", _write(dimension))
    return amount


def _read_bare(number: float, text: str, dimension: Dimension) -> float:
    try:
        amount = float(number)
    except OverflowError:
        amount = math.inf
    if not math.isfinite(amount):
        raise UnitError(f"{text} is not a finite number", _write(dimension))
    if amount < 0:
        raise UnitError(f"{text} is negative", _write(dimension))
    if dimension.bare != "yes":
        scaled = dimension.scales and dimension.per is None
        suggestion = _printed(amount, dimension, 15) if scaled else f"{amount:.15g} {dimension.unit}"
        raise UnitError(f"{text} has no unit", f"If {suggestion} is meant, write that. {_write(dimension)}")
    if dimension.unit == "%" and amount >= 1:
        raise UnitError(f"{text} has no percent sign", f"Write {amount:g}%, or a share below 1 like 0.15.")
    return amount


def _read_text(text: str, name: DimensionName, dimension: Dimension) -> float:
    if _NOT_FINITE.match(text):
        raise UnitError(f"{text} is not a finite number", _write(dimension))
    if "USD" in dimension.units and (foreign := _FOREIGN.search(text)):
        fix = f"Convert it to USD at your own rate. {_write(dimension)}"
        raise UnitError(f"{text!r} is in {foreign.group()}, and money is counted in USD", fix)
    if name == "s" and (seconds := _read_duration(text)) is not None:
        return seconds
    match = _QUANTITY.fullmatch(text)
    if match is None:
        raise UnitError(f"{text!r} is not {dimension.noun}", _write(dimension))
    if "-" in (match["sign"], match["minus"]):
        raise UnitError(f"{text!r} is negative", _write(dimension))
    if problem := _NUMBER_MISTAKES.get(match["unit"][:1]):
        raise UnitError(f"{text!r} {problem[0]}", problem[1])
    try:
        number = Decimal(match["number"].replace(",", ""))
        unit = _with_money(re.sub(r"\s*(?:\bper\s|/)\s*", "/", match["unit"]), match["money"])
        if not unit:
            return _read_bare(float(number), text, dimension)
        if (factor := _factor(unit, dimension)) is None:
            raise _unit_error(match["number"], unit, text, name)
        return float(number * factor)
    except ArithmeticError:
        raise UnitError(f"{text!r} is not a finite number", _write(dimension)) from None


def _read_duration(text: str) -> float | None:
    """Seconds of ``2h30min``, ``1 day 12 hours`` or ISO 8601 ``P1DT12H``; None when it is none of these."""
    if (iso := _ISO_DURATION.fullmatch(text)) and any(iso.groups()):
        weeks, days, hours, minutes, seconds = (int(part or 0) for part in iso.groups())
        return float(((weeks * 7 + days) * 24 + hours) * 3600 + minutes * 60 + seconds)
    parts = _COMPOUND.findall(text)
    if len(parts) < 2 or _COMPOUND.sub("", text) or any(unit.lower() not in TIME_S for _, unit in parts):
        return None
    return float(sum(Decimal(number) * TIME_S[unit.lower()] for number, unit in parts))


def _with_money(unit: str, money: str | None) -> str:
    """The unit with a leading ``$`` moved behind the number: ``$1.2M/day`` has the unit ``M USD/day``."""
    if money is None:
        return unit
    numerator, per, denominator = unit.partition("/")
    return f"{numerator.removesuffix('USD').strip()} USD{per}{denominator}".strip()


def _factor(unit: str, dimension: Dimension) -> Decimal | None:
    """Canonical units in one written unit, scale included; None when it is not a unit of the dimension."""
    if dimension.per is None:
        return _numerator(unit, dimension)
    if dimension.per_canonical == "s" and re.fullmatch(r"\w+[bB]ps", unit):
        unit = f"{unit.removesuffix('ps')}/s"
    numerator, _, denominator = unit.partition("/")
    top = _numerator(numerator, dimension)
    bottom = _look_up(denominator, dimension.per, exact=False)
    return None if top is None or bottom is None else top * dimension.per[dimension.per_canonical] / bottom


def _numerator(unit: str, dimension: Dimension) -> Decimal | None:
    factor = _look_up(unit, dimension.units, dimension.case_sensitive)
    if factor is not None or not dimension.scales:
        return factor
    for word, scale in SCALE.items():
        if unit.startswith(word):
            rest = unit.removeprefix(word).strip()
            factor = _look_up(rest, dimension.units, dimension.case_sensitive)
            if not rest and dimension.bare != "no":
                factor = Decimal(1)
            if factor is not None:
                return scale * factor
    return None


def _look_up(unit: str, table: Mapping[str, Decimal], exact: bool) -> Decimal | None:
    if exact or unit in table:
        return table.get(unit)
    folded: dict[str, Decimal] = {word.lower(): factor for word, factor in table.items()}
    return folded.get(unit.lower())


# -------------------------------------------------------------------------------------------- what to say
def shown(value: object) -> str:
    """A value of a case file as its author would recognise it, cut when long."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (Mapping, list, tuple)):
        return "a mapping" if isinstance(value, Mapping) else "a list"
    if isinstance(value, float):
        return f"{value:.15g}"
    text = "an empty value" if value in (None, "") else repr(value) if isinstance(value, str) else str(value)
    return text if len(text) <= 60 else f"{text[:56]}..."


def _write(dimension: Dimension) -> str:
    *most, last = dimension.examples
    return f"Write it like {', '.join(most)} or {last}." if most else f"Write it like {last}."


def _unit_error(number: str, unit: str, text: str, name: DimensionName) -> UnitError:
    dimension = DIMENSIONS[name]
    if "GB" in dimension.units and (data := _DATA_UNIT.match(unit)):
        return _data_unit_error(number, text, data, dimension)
    if unit in SCALE and "GB" in dimension.units:
        return UnitError(f"{text!r} has no unit", f"Write {number} {unit}B if bytes are meant.")
    if unit in SCALE and dimension.whole and not dimension.scales:
        return UnitError(f"{text!r} is not an exact number", _write(dimension))
    if unit in SCALE and dimension.scales:
        return UnitError(f"{text!r} has no unit", f"If {number}{unit} {dimension.unit} is meant, write that.")
    if name == "s" and unit.lower() == "m":
        return UnitError(f"{text!r} could be minutes or months", f"Write {number} min or {number} months.")
    for other in DIMENSIONS.values():
        if other.noun != dimension.noun and _factor(unit, other) is not None:
            return UnitError(f"{text!r} is {other.noun}, and {dimension.noun} is wanted", _write(dimension))
    meant = get_close_matches(unit, _spellings(name), n=1)
    if meant and number != "1" and f"{meant[0]}s" in dimension.units:
        meant = [f"{meant[0]}s"]
    fix = f"Did you mean {number} {meant[0]}?" if meant else _write(dimension)
    return UnitError(f"{unit!r} in {text!r} is not a unit for {dimension.noun}", fix)


def _data_unit_error(number: str, text: str, data: re.Match[str], dimension: Dimension) -> UnitError:
    """Bits where bytes are meant, or a spelling that could be either."""
    prefix = data["prefix"].upper().replace("K", "k") + ("i" if data["binary"] else "")
    rate = f"/{dimension.per_canonical}" if dimension.per_canonical else ""
    if "Gbit" in dimension.units:
        fix = f"Write {number} {prefix}B{rate} for bytes or {number} {prefix}bit{rate} for bits."
    else:
        eighth = f"{float(number.replace(',', '')) / 8:g}"
        fix = f"Write {number} {prefix}B{rate}, or {eighth} {prefix}B{rate} if bits are meant."
    bits = data["word"] in ("bit", "bits") or (data["word"] == "b" and data["prefix"].isupper())
    if bits and "Gbit" not in dimension.units:
        return UnitError(f"{text!r} is in bits, and bytes are wanted", fix)
    if data["word"].lower() == "b" and not data["per"] and rate:
        return UnitError(f"{text!r} is a size, and {dimension.noun} is wanted", _write(dimension))
    return UnitError(f"{text!r} could be bits or bytes", fix)


@cache
def _spellings(name: DimensionName) -> list[str]:
    dimension = DIMENSIONS[name]
    rate = f"/{dimension.per_canonical}" if dimension.per_canonical else ""
    units = [f"{unit}{rate}" for unit in dimension.units]
    return units + [f"{scale} {unit}" for scale in "kMBT" for unit in units if dimension.scales]


# -------------------------------------------------------------------------------------------- printing
def format_quantity(value: float, dimension: DimensionName, digits: int | None = None) -> str:
    """A quantity for people: ``12.4 days``, ``1.23M USD``, ``9.8 TB``, ``98.32 USD/hour``.

    Args:
        value: amount in canonical units; negative for differences.
        digits: significant digits; None for what suits the dimension.

    ``parse`` reads the text back to the printed digits when ``value`` is not negative.

    Raises:
        ValueError: ``value`` is not finite.
    """
    if not math.isfinite(value):
        raise ValueError(f"{value} cannot be printed as {DIMENSIONS[dimension].noun}")
    sign = "-" if value < 0 else ""
    return sign + _printed(abs(value), DIMENSIONS[dimension], digits or DIMENSIONS[dimension].digits)


def _printed(value: float, dimension: Dimension, digits: int) -> str:
    for factor, unit, least in dimension.show:
        number = _number_text(value / factor, digits, percent=unit == "%")
        if float(number) >= least:
            return number + (re.sub(r"^( .+[a-z]{2})s(?=/|$)", r"\1", unit) if number == "1" else unit)
    raise AssertionError("the last unit of a dimension takes any amount")


def _number_text(number: float, digits: int, percent: bool) -> str:
    if number == 0:
        return "0"
    magnitude = math.floor(math.log10(number))
    decimals = max(digits - 1 - magnitude, 0)
    if percent and 90 < number < 100:  # 99.95% is not 100%
        decimals = max(decimals, 1 - math.floor(math.log10(100 - number)))
    if magnitude < -9:
        return f"{number:.{digits - 1}e}"
    text = f"{number:.{decimals}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text
