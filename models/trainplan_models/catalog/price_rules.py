"""The rules that a listed price must pass."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

ON_DEMAND, SPOT, FLEX_START = "on-demand", "spot", "flex-start"

PLACEHOLDERS_USD = frozenset({700.0, 999.0, 999.99, 9999.0, 99999.0})
"""Prices that lists print where they have none."""

SAME_PRICE_FRAC = 1e-4
"""Lists round to different digits: prices this close are the same."""

DEFINED_DURATION_CLOUDS = frozenset({"gcp"})
"""Clouds that sell the same machine at about half price for a duration defined up front."""

DEFINED_DURATION_FRAC = 0.65
"""An on-demand price below this share of the highest of its type is that other product: seen are 0.33 to
0.62 for it, and 0.70 to 1 between regions."""

PLAUSIBLE_FRAC = {ON_DEMAND: (0.12, 4.0), FLEX_START: (0.12, 4.0), SPOT: (0.015, 1.5)}
"""Price per accelerator, as a share of the median on-demand price of the same accelerator."""


@dataclass(frozen=True, slots=True)
class PriceRow:
    """One row of a price list: a machine in a zone, with up to two prices of a node-hour.

    A price is None where the list is silent and nan where it has something that is no number.
    """

    cloud: str
    region: str
    instance_type: str
    accelerator: str
    """As the list calls it."""
    accelerators: float
    on_demand_usd_per_h: float | None
    spot_usd_per_h: float | None
    zone: str = ""
    host_usd_per_h: float | None = None
    """The part for the machine without accelerators, where the list has it apart; nan where it should."""
    vcpus: float | None = None
    host_memory_bytes: float | None = None
    device_memory_bytes: float | None = None
    """Memory of one accelerator, where the list says it."""
    source: str = ""
    as_of: str = ""
    note: str = ""


@dataclass(frozen=True, slots=True)
class Quote:
    """One price of one row."""

    row: PriceRow
    mode: str
    usd: float
    accelerator: str
    note: str = ""

    @property
    def machine(self) -> tuple[str, str]:
        """Cloud and instance type."""
        return self.row.cloud, self.row.instance_type

    @property
    def usd_per_accelerator(self) -> float:
        """Price of one accelerator-hour."""
        return self.usd / self.row.accelerators


@dataclass(slots=True)
class Levels:
    """What on-demand prices look like, in the list and in the catalogue together."""

    highest_usd: dict[tuple[str, str], float] = field(default_factory=dict)
    """Highest on-demand price by machine."""
    median_usd: dict[str, float] = field(default_factory=dict)
    """Median on-demand price of an accelerator-hour, each machine counting once."""


Rule = Callable[[Quote, Levels], str]
"""The reason why a price is wrong, empty when it is not."""


def _not_a_number(quote: Quote, _: Levels) -> str:
    return "" if math.isfinite(quote.usd) else "the list has no number here"


def _zero(quote: Quote, _: Levels) -> str:
    return "" if quote.usd > 0 else "nothing is rented for nothing; capacity already paid for is `owned`"


def _placeholder(quote: Quote, _: Levels) -> str:
    return "a number lists print where they have no price" if quote.usd in PLACEHOLDERS_USD else ""


def _host_price(quote: Quote, _: Levels) -> str:
    host = quote.row.host_usd_per_h
    return "" if host is None or host > 0 else "the machine around the accelerators has no price in the list"


def defined_duration(quote: Quote, levels: Levels) -> str:
    """The reason why an on-demand price is that of a defined duration, empty when it is not."""
    if quote.mode != ON_DEMAND or quote.row.cloud not in DEFINED_DURATION_CLOUDS:
        return ""
    highest = levels.highest_usd[quote.machine]
    share = quote.usd / highest
    if share >= DEFINED_DURATION_FRAC:
        return ""
    return f"{share:.0%} of the highest price of the type ({highest:g}): the price for a defined duration"


def _above_on_demand_frac(quote: Quote, levels: Levels) -> float:
    """How far a spot price is above the on-demand price of its row; -1 where that cannot be said."""
    on_demand = quote.row.on_demand_usd_per_h
    if quote.mode != SPOT or on_demand is None or not on_demand > 0:
        return -1.0
    above = quote.usd / on_demand - 1.0
    if above < -SAME_PRICE_FRAC:
        return above
    # A price for a defined duration is no on-demand price to hold spot against.
    listed = Quote(quote.row, ON_DEMAND, on_demand, quote.accelerator)
    return -1.0 if quote.machine in levels.highest_usd and defined_duration(listed, levels) else above


def _equal(quote: Quote, levels: Levels) -> str:
    same = abs(_above_on_demand_frac(quote, levels)) <= SAME_PRICE_FRAC
    return "no discount: the spot price is not known" if same else ""


def _above(quote: Quote, levels: Levels) -> str:
    above = _above_on_demand_frac(quote, levels)
    on_demand = quote.row.on_demand_usd_per_h
    return f"{above:.1%} above on-demand ({on_demand:g})" if above > SAME_PRICE_FRAC else ""


def _implausible(quote: Quote, levels: Levels) -> str:
    typical = levels.median_usd.get(quote.accelerator)
    if typical is None:
        return ""
    low, high = PLAUSIBLE_FRAC[quote.mode]
    share = quote.usd_per_accelerator / typical
    if low <= share <= high:
        return ""
    price = f"{quote.usd_per_accelerator:.4g} USD an hour and {quote.accelerator}"
    return f"{price}, {share:.3g} times the median on-demand price ({typical:.4g})"


OWN_RULES: dict[str, Rule] = {
    "not-a-number": _not_a_number,
    "zero-price": _zero,
    "placeholder": _placeholder,
    "host-price": _host_price,
}
"""Rules that look at one price alone."""

LEVEL_RULES: dict[str, Rule] = {
    "spot-equals-on-demand": _equal,
    "spot-above-on-demand": _above,
    "implausible": _implausible,
}
"""Rules that hold a price against the others."""

DEFINED_DURATION = "defined-duration"
ROW_RULES = ("unknown-accelerator", "accelerator-count", "wrong-accelerator", "no-on-demand-price")
RULES = (*ROW_RULES, *OWN_RULES, DEFINED_DURATION, *LEVEL_RULES)
"""The rules, in the order in which they are applied; the first that holds is reported."""
