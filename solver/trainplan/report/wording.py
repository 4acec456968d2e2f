"""Numbers as people write them. Everything a report prints goes through here."""

from __future__ import annotations

import math
from datetime import datetime, timedelta
from decimal import Decimal
from typing import cast, get_args

from trainplan_models.dimensions import DimensionName
from trainplan_models.plan import Layout, Plan, Segment
from trainplan_models.units import format_quantity

DAY_S = 86_400.0
NOT_KNOWN = "not known"
DIMENSIONS = frozenset(get_args(DimensionName))


def duration(value_s: float) -> str:
    """A length of time, e.g. ``12.4 days``."""
    return format_quantity(value_s, "s")


def size(value_bytes: float) -> str:
    """A volume of data, e.g. ``9.8 TB``."""
    return format_quantity(value_bytes, "bytes")


def tokens(value: float) -> str:
    """A number of tokens, e.g. ``300B tokens``."""
    return format_quantity(value, "tokens")


def usd(amount: Decimal | float) -> str:
    """An amount to the cent, e.g. ``1,234.50``."""
    return f"{amount:,.2f}"


def percent(value_frac: float, digits: int = 1) -> str:
    """A share, e.g. ``43.1 %``."""
    return f"{value_frac * 100:.{digits}f} %"


def number(value: float, significant: int = 8) -> str:
    """A plain number with thousands separators and no needless zeros, never in exponent form."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    text = f"{value:,.{max(0, significant - 1 - magnitude)}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def moment(plan: Plan, at_s: float) -> str:
    """A point in calendar time: the day counted from 0, and the date where the case has a start."""
    day = f"day {at_s / DAY_S:.2f}"
    if plan.start is None:
        return day
    when = datetime.fromisoformat(plan.start) + timedelta(seconds=at_s)
    return f"{when:%Y-%m-%d %H:%M} ({day})"


def task_words(segment: Segment) -> str:
    """The task of a segment, with what its nodes do of it where others do the rest."""
    return f"{segment.task} ({' and '.join(segment.roles)})" if segment.roles else segment.task


def layout_words(layout: Layout) -> str:
    """Degrees that are not 1, ZeRO stage, micro-batch and recompute, e.g. ``dp8 tp4 zero1 mb2``."""
    degrees = {
        "dp": layout.dp,
        "tp": layout.tp,
        "pp": layout.pp,
        "vp": layout.vp,
        "cp": layout.cp,
        "ep": layout.ep,
    }
    words = [f"{name}{degree}" for name, degree in degrees.items() if degree != 1 or name == "dp"]
    words.append(f"zero{layout.zero_stage}" + (f"/{layout.shard_group}" if layout.shard_group else ""))
    words.append(f"mb{layout.micro_batch}")
    if layout.sequence_parallel:
        words.append("sp")
    if layout.recompute != "none":
        words.append(f"recompute={layout.recompute}")
    return " ".join(words)


LAYOUT_LEGEND = (
    "dp, tp, pp, vp, cp, ep: data, tensor, pipeline, virtual-pipeline, context, expert parallel degree; "
    "zero: ZeRO stage (3 = FSDP), after a slash the devices it shards over; mb: sequences per micro-batch; "
    "sp: sequence parallel."
)


def limit_amount(value: float, unit: str) -> str:
    """An amount of a limit in words, by the unit the plan states for it; money to the cent."""
    if unit == "usd":
        return f"{usd(value)} USD"
    if unit in DIMENSIONS:
        return format_quantity(value, cast(DimensionName, unit))
    return f"{number(value, significant=6)} {unit}".rstrip()
