"""How old a row is."""

from __future__ import annotations

import re
from calendar import monthrange
from datetime import date

_DAY = re.compile(r"(?P<year>\d{4})(?:-(?P<month>\d{2}))?(?:-(?P<day>\d{2}))?$")


def last_day(as_of: str) -> date | None:
    """The last day that a date (``2025``, ``2025-11``, ``2025-11-30``, ``2025-11..2026-08``) can mean.

    None for anything else.
    """
    match = _DAY.match(as_of.rsplit("..", 1)[-1].strip())
    if match is None:
        return None
    year, month = int(match["year"]), int(match["month"] or 12)
    try:
        return date(year, month, int(match["day"] or monthrange(year, month)[1]))
    except ValueError:
        return None


def price_age_days(as_of: str, today: date | None = None) -> float | None:
    """Days since the last day ``as_of`` can mean, at least 0: a price is at least this old. None: no date."""
    day = last_day(as_of)
    return None if day is None else max(0.0, float(((today or date.today()) - day).days))
