"""The table of units: which words measure what, how much they are, and how a quantity is printed.

A dimension is named as the suffix of the canonical unit that names end in: ``s``, ``bytes``, ``usd_per_h``.
A month is 730 hours and a year 365 days, as on a cloud bill. ``quantity`` reads and prints by this table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

DimensionName = Literal[
    "s",
    "bytes",
    "bytes_per_s",
    "bytes_per_day",
    "usd",
    "usd_per_h",
    "usd_per_day",
    "usd_per_month",
    "usd_per_kwh",
    "tokens",
    "tokens_per_s",
    "nodes",
    "accelerators",
    "accelerator_h",
    "grant_units",
    "frac",
    "count",
    "sequence_tokens",
    "number",
]


def _words(*rows: tuple[str, str]) -> dict[str, Decimal]:
    return {word: Decimal(factor) for factor, words in rows for word in words.split()}


TIME_S = _words(
    ("0.001", "ms millisecond milliseconds"),
    ("1", "s sec secs second seconds"),
    ("60", "min mins minute minutes"),
    ("3600", "h hr hrs hour hours"),
    ("86400", "d day days"),
    ("604800", "w wk wks week weeks"),
    ("2628000", "month months mo"),
    ("31536000", "year years yr yrs y"),
)
_MONEY_USD = _words(("1", "USD $ US$ dollar dollars"), ("0.01", "cent cents ¢"))
_ENERGY_KWH = _words(("0.001", "Wh"), ("1", "kWh"), ("1000", "MWh"))
_PREFIX: Mapping[str, int] = {
    "": 1,
    "k": 10**3,
    "K": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "P": 10**15,
    "E": 10**18,
}
_DATA_BYTES = (
    {f"{p}B": Decimal(f) for p, f in _PREFIX.items()}
    | {f"{p}iB": Decimal(1024**power) for power, p in enumerate("KMGTPE", start=1)}
    | {"kiB": Decimal(1024), "byte": Decimal(1), "bytes": Decimal(1)}
)
_BITS_BYTES = {f"{p}{b}": Decimal(f) / 8 for p, f in _PREFIX.items() for b in ("b", "bit", "bits")}
SCALE: Mapping[str, int] = {
    word: 10**power
    for power, words in (
        (15, "quadrillion P"),
        (12, "trillion tn T t"),
        (9, "billion bn B b G"),
        (6, "million mn M m"),
    )
    for word in words.split()
} | {word: 10**3 for word in ("thousand", "k", "K")}
"""What may stand between a number and its unit."""
_CHIP = ("accelerator", "gpu", "tpu", "chip", "device")
_CHIP_HOURS = {
    f"{chip}{sep}{h}" for chip in _CHIP for sep in ("-", " ", "") for h in ("hours", "hour", "hrs", "h")
}
_GRANT_UNITS = ("node-hours", "node-hour", "core-hours", "core-hour", "unit", "units", "SU", "SUs", "credits")

Show = tuple[tuple[float, str, float], ...]
"""How a dimension is printed: (canonical units per unit, unit, least number of them), the largest first."""


def _scaled(unit: str) -> Show:
    return tuple((10.0**n, f"{s} {unit}", 1.0) for n, s in ((12, "T"), (9, "B"), (6, "M"), (3, "k"))) + (
        (1.0, f" {unit}", 0.0),
    )


def _sized(unit: str) -> Show:
    shown = ((1e15, "PB"), (1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB"))
    return tuple((f, f" {u}{unit}", 1.0) for f, u in shown) + ((1.0, f" B{unit}", 0.0),)


@dataclass(frozen=True, slots=True)
class Dimension:
    """How one kind of quantity is written and printed."""

    noun: str
    """With its article, for messages: ``a time``."""
    units: Mapping[str, Decimal]
    """Numerator as written -> canonical numerators in one."""
    examples: tuple[str, ...]
    show: Show
    per: Mapping[str, Decimal] | None = None
    """Denominator as written -> base denominators in one; None: there is no denominator."""
    per_canonical: str = ""
    unit: str = ""
    """Suggested where a bare number was given."""
    scales: bool = False
    """Whether k, M, B, T may stand before the unit."""
    bare: Literal["no", "scaled", "yes"] = "no"
    """Whether the unit may be left out; ``scaled``: only after k, M, B or T."""
    whole: bool = False
    case_sensitive: bool = False
    digits: int = 3
    """Significant digits printed."""


_MONEY_SHOW = _scaled("USD")


def _price(
    per: Mapping[str, Decimal], unit: str, examples: tuple[str, ...], noun: str = "a price"
) -> Dimension:
    show = tuple((f, f"{u}/{unit}", least) for f, u, least in _MONEY_SHOW)
    return Dimension(
        noun,
        _MONEY_USD,
        examples,
        show,
        per=per,
        per_canonical=unit,
        unit=f"USD/{unit}",
        scales=True,
        digits=4,
    )


def _plain(*words: str) -> dict[str, Decimal]:
    return {word: Decimal(1) for word in words}


DIMENSIONS: Mapping[DimensionName, Dimension] = {
    "s": Dimension(
        "a time",
        TIME_S,
        ("30 days", "36 hours", "2 weeks"),
        ((86400.0, " days", 2.0), (3600.0, " hours", 1.0), (60.0, " min", 1.0), (1.0, " s", 0.0)),
        unit="days",
    ),
    "bytes": Dimension(
        "a size", _DATA_BYTES, ("2.3 TB", "80 GiB", "500 MB"), _sized(""), unit="GB", case_sensitive=True
    ),
    "bytes_per_s": Dimension(
        "a bandwidth",
        _DATA_BYTES | _BITS_BYTES,
        ("400 Gbit/s", "50 GB/s"),
        _sized("/s"),
        per=TIME_S,
        per_canonical="s",
        unit="Gbit/s",
        case_sensitive=True,
    ),
    "bytes_per_day": Dimension(
        "a volume per time",
        _DATA_BYTES,
        ("2 GB/day", "80 MB/hour"),
        _sized("/day"),
        per=TIME_S,
        per_canonical="day",
        unit="GB/day",
        case_sensitive=True,
    ),
    "usd": Dimension(
        "an amount of money",
        _MONEY_USD,
        ("400k USD", "$1.2M", "950 USD"),
        _MONEY_SHOW,
        unit="USD",
        scales=True,
    ),
    "usd_per_h": _price(TIME_S, "hour", ("120 USD/hour", "98.32 USD/hour")),
    "usd_per_day": _price(TIME_S, "day", ("5k USD/day",)),
    "usd_per_month": _price(TIME_S, "month", ("3k USD/month", "36k USD/year")),
    "usd_per_kwh": _price(_ENERGY_KWH, "kWh", ("0.11 USD/kWh",), "a price of electricity"),
    "tokens": Dimension(
        "a number of tokens",
        _plain("tokens", "token", "tok"),
        ("1.4T tokens", "300B tokens", "4M tokens"),
        _scaled("tokens"),
        unit="tokens",
        scales=True,
        bare="scaled",
    ),
    "tokens_per_s": Dimension(
        "a throughput",
        _plain("tokens", "token", "tok"),
        ("1.2M tokens/s",),
        tuple((f, f"{u}/s", least) for f, u, least in _scaled("tokens")),
        per=TIME_S,
        per_canonical="s",
        unit="tokens/s",
        scales=True,
    ),
    "nodes": Dimension(
        "a number of nodes",
        _plain("node", "nodes", "machine", "machines"),
        ("8 nodes", "8"),
        ((1.0, " nodes", 0.0),),
        scales=True,
        bare="yes",
        whole=True,
        digits=15,
    ),
    "accelerators": Dimension(
        "a number of accelerators",
        _plain(*_CHIP, *(f"{chip}s" for chip in _CHIP)),
        ("1024 GPUs", "1024"),
        ((1.0, " accelerators", 0.0),),
        scales=True,
        bare="yes",
        whole=True,
        digits=15,
    ),
    "accelerator_h": Dimension(
        "a number of accelerator-hours",
        _plain(*_CHIP_HOURS),
        ("200k accelerator-hours", "50000 GPU-hours"),
        _scaled("accelerator-hours"),
        unit="accelerator-hours",
        scales=True,
    ),
    "grant_units": Dimension(
        "a number of hours or units",
        _plain(*_CHIP_HOURS, *_GRANT_UNITS),
        ("200k GPU-hours", "40k node-hours", "1.5M units"),
        _scaled("units"),
        unit="GPU-hours",
        scales=True,
    ),
    "frac": Dimension(
        "a share", _words(("0.01", "% percent")), ("15%", "0.15"), ((0.01, "%", 0.0),), unit="%", bare="yes"
    ),
    "count": Dimension(
        "a whole number", {}, ("8", "1000"), ((1.0, "", 0.0),), bare="yes", whole=True, digits=15
    ),
    "sequence_tokens": Dimension(
        "a length in tokens",
        _plain("tokens", "token", "tok"),
        ("8192",),
        ((1.0, " tokens", 0.0),),
        bare="yes",
        whole=True,
        digits=15,
    ),
    "number": Dimension("a number", {}, ("1.5", "8"), ((1.0, "", 0.0),), bare="yes", digits=6),
}

RELIABILITY_LEVELS: Mapping[str, float] = {
    "best-effort": 0.5,
    "standard": 0.8,
    "high": 0.95,
    "critical": 0.99,
}
"""Named chances of being done in time and in budget."""
