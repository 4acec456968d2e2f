"""The only code that knows units: text with a unit in, canonical floats out, and back.

``parse`` reads what a person writes (``30 days``, ``$1.2M``, ``3200 Gbit/s``) and ``format_quantity`` prints
what a person reads; both walk the table in ``dimensions``, where a dimension is named as the suffix of its
canonical unit: ``s``, ``bytes``, ``usd_per_h``, ...

The annotated types at the end (``Seconds``, ``Usd``, ...) are for records read from a file: they take text
with a unit and refuse bare numbers, ``inf``, ``nan`` and negative amounts. What ``model_dump`` wrote (bare
canonical numbers) is read back with the validation context ``CANONICAL``: there a bare number is wanted, and
text with a unit is refused.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from difflib import get_close_matches
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BeforeValidator,
    GetCoreSchemaHandler,
    GetJsonSchemaHandler,
    ValidationError,
    ValidationInfo,
)
from pydantic_core import InitErrorDetails, PydanticCustomError, core_schema

from trainplan_models.base import InputError, Problem
from trainplan_models.dimensions import DIMENSIONS, RELIABILITY_LEVELS, TIME_S, DimensionName
from trainplan_models.places import Path
from trainplan_models.quantity import UnitError as UnitError
from trainplan_models.quantity import format_quantity as format_quantity
from trainplan_models.quantity import parse as parse
from trainplan_models.quantity import read_quantity as read_quantity
from trainplan_models.quantity import shown as shown

CANONICAL: Mapping[str, bool] = {"canonical": True}
"""Validation context in which quantities are bare numbers in canonical units."""

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:Z|[+-]\d{2}:?\d{2})?)?")
_DATE_LIKE = re.compile(
    r"\d{1,4}[./-]\d{1,2}[./-]\d{1,4}|20\d{6}$|.*\b(jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)",
    re.IGNORECASE,
)
_DAY_N = re.compile(r"(hour|day|week|month)\s+(\d+(?:\.\d+)?)", re.IGNORECASE)


# -------------------------------------------------------------------------------------------- dates
def is_date(value: object) -> bool:
    """Whether a value is an ISO date (or date and time) as a case file may have it, valid or not."""
    return isinstance(value, date) or (isinstance(value, str) and _DATE.fullmatch(value.strip()) is not None)


def read_date(value: object) -> str:
    """An ISO date, or date and time, as text.

    Raises:
        UnitError: it is not one, or there is no such day.
    """
    text = value.isoformat() if isinstance(value, date) else str(value).strip().replace(" ", "T")
    if not is_date(text):
        raise UnitError(f"{shown(value)} is not a date", "Write it year-month-day, like 2026-09-30.")
    try:
        datetime.fromisoformat(text)
    except ValueError as error:
        raise UnitError(
            f"{text} is not a date: {error}", "Write it year-month-day, like 2026-09-30."
        ) from None
    return text


def read_when(value: object) -> float | str:
    """Seconds from day 0 (``30 days``, ``day 20``), or an ISO date as text.

    Raises:
        UnitError: it is neither.
    """
    if is_date(value):
        return read_date(value)
    if isinstance(value, str) and (match := _DAY_N.fullmatch(value.strip())):
        seconds = float(Decimal(match[2]) * TIME_S[match[1].lower()])
        if not math.isfinite(seconds):
            raise UnitError(f"{shown(value)} is not a finite time", "Write a smaller number.")
        return seconds
    if not isinstance(value, bool) and _DATE_LIKE.match(str(value).strip()):
        raise UnitError(
            f"{shown(value)} is not a date in ISO form", "Write it year-month-day, like 2026-09-30."
        )
    try:
        return read_quantity(value, "s")
    except UnitError as error:
        raise UnitError(error.message, f"{error.fix} A date is written 2026-09-30.") from None


def seconds_from_start(when: float | str | None, start: str | None) -> float | None:
    """Seconds from day 0 of a duration or an ISO date; None stays None.

    A date without a time is the first moment of that day. Times without a zone are taken as UTC.

    Raises:
        InputError: ``when`` is a date and there is no ``start``, or it lies before it.
    """
    if not isinstance(when, str):
        return when
    if start is None:
        raise InputError(
            Problem(f"{when} is a date, and the case has no start", fix="Add `start: 2026-01-01`.")
        )
    moment, zero = (datetime.fromisoformat(read_date(text)) for text in (when, start))
    utc = [time if time.tzinfo else time.replace(tzinfo=UTC) for time in (moment, zero)]
    seconds = (utc[0] - utc[1]).total_seconds()
    if seconds < 0:
        raise InputError(
            Problem(f"{when} lies before the start {start}", fix="Write a later date or an earlier start.")
        )
    return seconds


def read_reliability(value: object) -> float:
    """A chance between 0 and 1 from a level name (``high``), a percentage or a share.

    Raises:
        UnitError: it is none of these, or 0% or 100%.
    """
    levels = ", ".join(f"{name} ({share:.0%})" for name, share in RELIABILITY_LEVELS.items())
    fix = f"Write one of {levels}, or a chance like 95% or 0.95."
    if isinstance(value, str) and value.strip().lower() in RELIABILITY_LEVELS:
        return RELIABILITY_LEVELS[value.strip().lower()]
    if isinstance(value, str) and not any(letter.isdigit() for letter in value):
        meant = get_close_matches(value.lower(), RELIABILITY_LEVELS, n=1)
        raise UnitError(
            f"{shown(value)} is not a reliability", f"Did you mean {meant[0]}? {fix}" if meant else fix
        )
    try:
        chance = read_quantity(value, "frac")
    except UnitError as error:
        raise UnitError(error.message, fix) from None
    if not 0 < chance < 1:
        raise UnitError(f"{shown(value)} is not a chance between 0% and 100%", f"No plan is certain. {fix}")
    return chance


def reads_as(text: str, dimension: DimensionName) -> bool:
    """Whether ``parse`` would read the text."""
    try:
        return math.isfinite(read_quantity(text, dimension))
    except UnitError:
        return False


# -------------------------------------------------------------------------------------------- pydantic types
@dataclass(frozen=True, slots=True)
class Quantity:
    """Marks a pydantic field as one that is read by ``read``; ``examples`` go into the JSON schema."""

    read: Callable[[object], float | str]
    examples: tuple[str, ...]
    bare: bool = False
    whole: bool = False

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> core_schema.CoreSchema:
        """Text with a unit, or with the context ``CANONICAL`` a bare canonical number."""
        return core_schema.with_info_plain_validator_function(self._validate)

    def __get_pydantic_json_schema__(
        self, schema: core_schema.CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """What a case file may hold."""
        kind: str | list[str] = ["string", "number"] if self.bare else "string"
        return {"type": kind, "examples": list(self.examples)}

    def _validate(self, value: object, info: ValidationInfo) -> float | str:
        try:
            if info.context and info.context.get("canonical"):
                return self._canonical(value)
            return self.read(value)
        except UnitError as error:
            raise mistake(error.message, error.fix) from None

    def _canonical(self, value: object) -> float | str:
        if self.read in (read_date, read_when) and isinstance(value, str):
            return read_date(value)
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
            raise UnitError(
                f"{shown(value)} is not a canonical amount", "Canonical data has finite numbers of 0 or more."
            )
        return int(value) if self.whole else float(value)


def mistake(message: str, fix: str) -> PydanticCustomError:
    """The error to raise inside a pydantic validator: it carries its ``fix``."""
    return PydanticCustomError("mistake", "{message}. {fix}", {"message": message, "fix": fix})


def refuse_all(title: str, mistakes: Iterable[tuple[Path, str, str]]) -> None:
    """Refuse several values of a record at once inside its validator: (path in it, message, fix) each."""
    details = [
        InitErrorDetails(type=mistake(message, fix), loc=path, input=None) for path, message, fix in mistakes
    ]
    if details:
        raise ValidationError.from_exception_data(title, details)


def _of(name: DimensionName) -> Quantity:
    dimension = DIMENSIONS[name]

    def read(value: object) -> float:
        amount = read_quantity(value, name)
        return int(amount) if dimension.whole else amount

    return Quantity(read, dimension.examples, dimension.bare == "yes", dimension.whole)


def _more_than_zero(value: float) -> float:
    if value <= 0:
        raise mistake(f"{value:g} is not more than 0", "Leave the key out, or write an amount above 0.")
    return value


def _names(value: object) -> object:
    """A single name is a list of one; names are given once."""
    names = (value,) if isinstance(value, str) else value
    if not isinstance(names, (list, tuple)):
        raise mistake(f"{shown(value)} is not a list of names", "Write a list, like [first, second].")
    for index, name in enumerate(names):
        if not isinstance(name, str) or not name.strip() or "," in name:
            raise mistake(f"{shown(name)} is not a name", "Write a list, like [first, second].")
        if name in names[:index]:
            raise mistake(f"{name} is listed twice", "List every name once.")
    return tuple(names)


Positive = AfterValidator(_more_than_zero)
"""Added to a quantity that cannot be 0: ``Annotated[Tokens, Positive]``."""

Seconds = Annotated[float, _of("s")]
Bytes = Annotated[float, _of("bytes")]
BytesPerS = Annotated[float, _of("bytes_per_s")]
BytesPerDay = Annotated[float, _of("bytes_per_day")]
Usd = Annotated[float, _of("usd")]
UsdPerHour = Annotated[float, _of("usd_per_h")]
UsdPerDay = Annotated[float, _of("usd_per_day")]
UsdPerMonth = Annotated[float, _of("usd_per_month")]
UsdPerKwh = Annotated[float, _of("usd_per_kwh")]
Tokens = Annotated[float, _of("tokens")]
AcceleratorHours = Annotated[float, _of("accelerator_h")]
GrantUnits = Annotated[float, _of("grant_units")]
Fraction = Annotated[float, _of("frac")]
Number = Annotated[float, _of("number")]
Nodes = Annotated[int, _of("nodes")]
Accelerators = Annotated[int, _of("accelerators")]
Count = Annotated[int, _of("count")]
PositiveCount = Annotated[Count, Positive]
SequenceTokens = Annotated[int, _of("sequence_tokens")]
Reliability = Annotated[float, Quantity(read_reliability, ("high", "95%", "0.95"), bare=True)]
IsoDate = Annotated[str, Quantity(read_date, ("2026-09-30",))]
DateOrDuration = Annotated[float | str, Quantity(read_when, ("30 days", "day 20", "2026-09-30"))]
Names = Annotated[tuple[str, ...], BeforeValidator(_names)]
