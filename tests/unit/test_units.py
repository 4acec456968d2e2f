"""Quantities: what is read, what is refused and with which words, what is printed."""

from __future__ import annotations

import math
from datetime import date, datetime
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from trainplan_models import units
from trainplan_models.base import InputError
from trainplan_models.dimensions import DIMENSIONS, DimensionName
from trainplan_models.units import UnitError, format_quantity, parse, read_quantity, seconds_from_start

DAY_S = 86400.0


@pytest.mark.parametrize(
    ("text", "dimension", "expected"),
    [
        ("30 days", "s", 30 * DAY_S),
        ("30d", "s", 30 * DAY_S),
        ("48h", "s", 2 * DAY_S),
        ("1.5 Days", "s", 1.5 * DAY_S),
        ("2 weeks", "s", 14 * DAY_S),
        ("90 min", "s", 5400.0),
        ("250 ms", "s", 0.25),
        ("1 month", "s", 730 * 3600.0),
        ("1 year", "s", 365 * DAY_S),
        ("2h30min", "s", 9000.0),
        ("1 day and 12 hours", "s", 1.5 * DAY_S),
        ("1 day, 12 hours", "s", 1.5 * DAY_S),
        ("P30D", "s", 30 * DAY_S),
        ("P1DT12H", "s", 1.5 * DAY_S),
        ("PT30M", "s", 1800.0),
        ("  30   days ", "s", 30 * DAY_S),
        ("+30 days", "s", 30 * DAY_S),
        ("400k USD", "usd", 400e3),
        ("$400k", "usd", 400e3),
        ("$400k USD", "usd", 400e3),
        ("USD 400k", "usd", 400e3),
        ("US$ 400k", "usd", 400e3),
        ("$1.2M", "usd", 1.2e6),
        ("1.2m usd", "usd", 1.2e6),
        ("1,200,000 USD", "usd", 1.2e6),
        ("1_200_000 USD", "usd", 1.2e6),
        ("1.2e6 USD", "usd", 1.2e6),
        ("400 thousand dollars", "usd", 400e3),
        ("2 billion USD", "usd", 2e9),
        ("99 cents", "usd", 0.99),
        ("0 USD", "usd", 0.0),
        ("1.4T tokens", "tokens", 1.4e12),
        ("1.4T", "tokens", 1.4e12),
        ("300B tokens", "tokens", 300e9),
        ("300bn tokens", "tokens", 300e9),
        ("300 B", "tokens", 300e9),
        ("2 trillion", "tokens", 2e12),
        ("2e12 tokens", "tokens", 2e12),
        ("4M tokens", "tokens", 4e6),
        ("1 token", "tokens", 1.0),
        ("3200 Gbit/s", "bytes_per_s", 400e9),
        ("400 Gbps", "bytes_per_s", 50e9),
        ("400 Gb/s", "bytes_per_s", 50e9),
        ("3.2 Tbit/s", "bytes_per_s", 400e9),
        ("50 GB/s", "bytes_per_s", 50e9),
        ("50 GBps", "bytes_per_s", 50e9),
        ("1 GiB/s", "bytes_per_s", 2.0**30),
        ("50 GB per second", "bytes_per_s", 50e9),
        ("2.3 TB", "bytes", 2.3e12),
        ("80 GiB", "bytes", 80 * 2.0**30),
        ("80GB", "bytes", 80e9),
        ("512 bytes", "bytes", 512.0),
        ("2 GB/day", "bytes_per_day", 2e9),
        ("1 GB/hour", "bytes_per_day", 24e9),
        ("0.11 USD/kWh", "usd_per_kwh", 0.11),
        ("$0.11 per kWh", "usd_per_kwh", 0.11),
        ("11 cents/kWh", "usd_per_kwh", 0.11),
        ("110 USD/MWh", "usd_per_kwh", 0.11),
        ("120 USD/hour", "usd_per_h", 120.0),
        ("$120/h", "usd_per_h", 120.0),
        ("2880 USD/day", "usd_per_h", 120.0),
        ("5k USD/day", "usd_per_day", 5e3),
        ("3k USD/month", "usd_per_month", 3e3),
        ("36k USD/year", "usd_per_month", 3e3),
        ("1M tokens/s", "tokens_per_s", 1e6),
        ("8 nodes", "nodes", 8.0),
        ("1 node", "nodes", 1.0),
        ("8", "nodes", 8.0),
        ("2k GPUs", "accelerators", 2000.0),
        ("1024 accelerators", "accelerators", 1024.0),
        ("200k GPU-hours", "accelerator_h", 200e3),
        ("200k gpu hours", "accelerator_h", 200e3),
        ("1.5M accelerator-hours", "accelerator_h", 1.5e6),
        ("40k node-hours", "grant_units", 40e3),
        ("15%", "frac", 0.15),
        ("15 %", "frac", 0.15),
        ("150%", "frac", 1.5),
        ("57%", "frac", 0.57),
        ("0.15", "frac", 0.15),
        ("8192 tokens", "sequence_tokens", 8192.0),
        ("1.5", "number", 1.5),
    ],
)
def test_text_is_read_in_canonical_units(text: str, dimension: DimensionName, expected: float) -> None:
    assert parse(text, dimension) == expected


BAD_TEXT: list[tuple[object, DimensionName, str, str]] = [
    # value, dimension, part of the message, part of the fix
    ("30", "s", "30 has no unit", "If 30 days is meant"),
    (30, "s", "30 has no unit", "If 30 days is meant"),
    ("30 dayz", "s", "'dayz' in '30 dayz' is not a unit for a time", "Did you mean 30 days?"),
    ("30m", "s", "could be minutes or months", "30 min or 30 months"),
    ("-3 days", "s", "is negative", "30 days"),
    ("- 3 days", "s", "is negative", "30 days"),
    ("inf days", "s", "not a finite number", "30 days"),
    ("nan", "s", "not a finite number", "30 days"),
    ("infinity", "s", "not a finite number", "30 days"),
    (math.inf, "s", "not a finite number", "30 days"),
    (math.nan, "count", "not a finite number", "8"),
    ("1e400 days", "s", "not a finite number", "30 days"),
    ("1e99999999999999999999 USD", "usd", "not a finite number", "400k USD"),
    (10**400, "nodes", "not a finite number", "8 nodes"),
    ("soon", "s", "'soon' is not a time", "30 days"),
    ("", "s", "an empty value is not a time", "30 days"),
    (None, "s", "an empty value is not a time", "30 days"),
    (True, "s", "true is not a time", "30 days"),
    (True, "nodes", "true is not a number of nodes", "8 nodes"),
    ([30], "s", "a list is not a time", "30 days"),
    ({"days": 30}, "s", "a mapping is not a time", "30 days"),
    ("12:30", "s", "is not a unit for a time", "30 days"),
    ("4-8 days", "s", "is a range", "one value"),
    ("1,5 days", "s", "comma in the number", "1.5, not 1,5"),
    ("1.000.000 USD", "usd", "two points in the number", "1,000,000"),
    ("300 000 tokens", "tokens", "space in the number", "1,000,000"),
    ("30 TB", "s", "'30 TB' is a size, and a time is wanted", "30 days"),
    ("400k", "usd", "'400k' has no unit", "400k USD"),
    (400000, "usd", "400000 has no unit", "If 400k USD is meant"),
    ("400k EUR", "usd", "in EUR, and money is counted in USD", "Convert"),
    ("€400k", "usd", "in €", "Convert"),
    ("400k £", "usd", "in £", "Convert"),
    ("30 euros/hour", "usd_per_h", "in euros", "Convert"),
    ("-$5", "usd", "is negative", "400k USD"),
    ("$-5", "usd", "is negative", "400k USD"),
    ("400k USD/month", "usd", "is a price, and an amount of money is wanted", "400k USD"),
    (3e11, "tokens", "300000000000 has no unit", "If 300B tokens is meant"),
    ("300B tokns", "tokens", "is not a unit for a number of tokens", "300 B tokens"),
    ("80 Gb", "bytes", "'80 Gb' is in bits, and bytes are wanted", "Write 80 GB, or 10 GB if bits are meant"),
    ("80 Gbit", "bytes", "in bits", "10 GB"),
    ("80 gb", "bytes", "could be bits or bytes", "80 GB"),
    ("80 Kib", "bytes", "in bits", "80 kiB"),
    ("80G", "bytes", "has no unit", "80 GB"),
    ("80Gi", "bytes", "is not a unit for a size", "80 GiB"),
    (80, "bytes", "80 has no unit", "80 GB"),
    ("2 Gb/day", "bytes_per_day", "in bits", "0.25 GB/day"),
    ("400 gbps", "bytes_per_s", "could be bits or bytes", "400 GB/s for bytes or 400 Gbit/s for bits"),
    ("400 Gbit", "bytes_per_s", "could be bits or bytes", "400 Gbit/s"),
    ("400 GB", "bytes_per_s", "is a size, and a bandwidth is wanted", "Gbit/s"),
    ("8 GPUs", "nodes", "is a number of accelerators, and a number of nodes is wanted", "8 nodes"),
    ("2.5 nodes", "nodes", "not a whole number", "8 nodes"),
    (2.5, "nodes", "not a whole number", "8 nodes"),
    (-1, "nodes", "-1 is negative", "8 nodes"),
    (15, "frac", "15 has no percent sign", "15%"),
    (1, "frac", "1 has no percent sign", "1%"),
    ("15 pct", "frac", "is not a unit for a share", "percent"),
    ("0.11", "usd_per_kwh", "has no unit", "0.11 USD/kWh"),
    ("0.11 USD/kW", "usd_per_kwh", "is not a unit", "0.11 USD/kWh"),
    ("120 USD", "usd_per_h", "is an amount of money, and a price is wanted", "USD/hour"),
    ("2 USD/GPU-hour", "usd_per_h", "is not a unit for a price", "USD/hour"),
    ("40k node-hours", "accelerator_h", "number of accelerator-hours is wanted", "GPU-hours"),
    ("8k", "sequence_tokens", "not an exact number", "8192"),
    ("10k", "count", "not an exact number", "1000"),
]


@pytest.mark.parametrize(("value", "dimension", "message", "fix"), BAD_TEXT)
def test_what_cannot_be_read_says_why_and_how_to_write_it(
    value: object, dimension: DimensionName, message: str, fix: str
) -> None:
    with pytest.raises(UnitError) as refused:
        read_quantity(value, dimension)
    assert message in refused.value.message
    assert fix in refused.value.fix


def test_parse_raises_the_error_of_the_product() -> None:
    with pytest.raises(InputError) as refused:
        parse("30", "s")
    (problem,) = refused.value.problems
    assert problem.message == "30 has no unit"
    assert "30 days" in problem.fix


@pytest.mark.parametrize(
    ("value", "dimension", "expected"),
    [
        (12.4 * DAY_S, "s", "12.4 days"),
        (DAY_S, "s", "24 hours"),
        (3600.0, "s", "1 hour"),
        (59.99 * 60, "s", "1 hour"),
        (90.0, "s", "1.5 min"),
        (0.25, "s", "0.25 s"),
        (0.0, "s", "0 s"),
        (4000 * DAY_S, "s", "4000 days"),
        (1_234_567.0, "usd", "1.23M USD"),
        (999_999.0, "usd", "1M USD"),
        (950.0, "usd", "950 USD"),
        (-1_234_567.0, "usd", "-1.23M USD"),
        (98.32, "usd_per_h", "98.32 USD/hour"),
        (0.11, "usd_per_kwh", "0.11 USD/kWh"),
        (3000.0, "usd_per_month", "3k USD/month"),
        (9.8e12, "bytes", "9.8 TB"),
        (999.6, "bytes", "1 kB"),
        (50e9, "bytes_per_s", "50 GB/s"),
        (2e9, "bytes_per_day", "2 GB/day"),
        (1.4e12, "tokens", "1.4T tokens"),
        (1.0, "tokens", "1 token"),
        (1.2e6, "tokens_per_s", "1.2M tokens/s"),
        (1.0, "tokens_per_s", "1 token/s"),
        (1e12, "tokens", "1T tokens"),
        (1.0, "accelerator_h", "1 accelerator-hour"),
        (1.0, "bytes_per_s", "1 B/s"),
        (1.0, "nodes", "1 node"),
        (1024.0, "nodes", "1024 nodes"),
        (1024.0, "accelerators", "1024 accelerators"),
        (123_456.0, "accelerator_h", "123k accelerator-hours"),
        (0.15, "frac", "15%"),
        (0.9995, "frac", "99.95%"),
        (0.999996, "frac", "99.9996%"),
        (1.5, "frac", "150%"),
        (8192.0, "sequence_tokens", "8192 tokens"),
        (7.0, "count", "7"),
    ],
)
def test_quantities_are_printed_for_people(value: float, dimension: DimensionName, expected: str) -> None:
    assert format_quantity(value, dimension) == expected


def test_digits_can_be_asked_for() -> None:
    assert format_quantity(1_234_567.0, "usd", digits=6) == "1.23457M USD"


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_is_not_printed(value: float) -> None:
    with pytest.raises(ValueError, match="cannot be printed as a time"):
        format_quantity(value, "s")


@pytest.mark.parametrize("name", get_args(DimensionName))
def test_every_example_of_a_dimension_can_be_read(name: DimensionName) -> None:
    for example in DIMENSIONS[name].examples:
        assert parse(example, name) > 0


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("30 days", 30 * DAY_S),
        ("day 20", 20 * DAY_S),
        ("week 3", 21 * DAY_S),
        ("2026-09-30", "2026-09-30"),
        ("2026-09-30 12:00", "2026-09-30T12:00"),
        ("2026-09-30T12:00:00Z", "2026-09-30T12:00:00Z"),
        (date(2026, 9, 30), "2026-09-30"),
        (datetime(2026, 9, 30, 12), "2026-09-30T12:00:00"),
    ],
)
def test_a_moment_is_a_time_or_a_date(value: object, expected: float | str) -> None:
    assert units.read_when(value) == expected


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("2026-02-30", "2026-02-30 is not a date"),
        ("2026-13-01", "2026-13-01 is not a date"),
        ("30.09.2026", "not a date in ISO form"),
        ("09/30/2026", "not a date in ISO form"),
        ("Sep 30 2026", "not a date in ISO form"),
        ("2026-9-30", "not a date in ISO form"),
        (20260930, "not a date in ISO form"),
        ("tomorrow", "'tomorrow' is not a time"),
        (30, "30 has no unit"),
    ],
)
def test_other_moments_are_refused(value: object, message: str) -> None:
    with pytest.raises(UnitError) as refused:
        units.read_when(value)
    assert message in refused.value.message
    assert "2026-09-30" in refused.value.fix


def test_dates_count_from_the_start() -> None:
    assert seconds_from_start(None, None) is None
    assert seconds_from_start(12.0, None) == 12.0
    assert seconds_from_start("2026-01-31", "2026-01-01") == 30 * DAY_S
    assert seconds_from_start("2026-01-01T12:00", "2026-01-01") == DAY_S / 2
    assert seconds_from_start("2026-01-01T12:00+02:00", "2026-01-01") == 10 * 3600.0


@pytest.mark.parametrize(
    ("start", "message"), [(None, "has no start"), ("2027-01-01", "lies before the start")]
)
def test_dates_need_a_start_before_them(start: str | None, message: str) -> None:
    with pytest.raises(InputError, match=message):
        seconds_from_start("2026-01-31", start)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("best-effort", 0.5),
        ("standard", 0.8),
        ("High", 0.95),
        ("critical", 0.99),
        ("95%", 0.95),
        ("99.9%", 0.999),
        (0.95, 0.95),
        ("0.95", 0.95),
    ],
)
def test_reliability_is_a_level_or_a_chance(value: object, expected: float) -> None:
    assert units.read_reliability(value) == expected


@pytest.mark.parametrize(
    ("value", "part"),
    [
        ("hihg", "Did you mean high?"),
        (95, "95 has no percent sign"),
        (1, "no percent sign"),
        (0, "No plan is certain"),
        ("100%", "No plan is certain"),
        ("-5%", "negative"),
        (True, "true is not a share"),
        (None, "an empty value"),
        ("", "an empty value is not a reliability"),
    ],
)
def test_other_reliabilities_are_refused(value: object, part: str) -> None:
    with pytest.raises(UnitError, match=part) as refused:
        units.read_reliability(value)
    assert "critical (99%)" in refused.value.fix


def test_canonical_data_is_bare_numbers_only() -> None:
    seconds: TypeAdapter[float] = TypeAdapter(units.Seconds)
    assert seconds.validate_python(30.0, context=units.CANONICAL) == 30.0
    for value in ("30 days", -1.0, math.inf, math.nan, True, None):
        with pytest.raises(ValidationError):
            seconds.validate_python(value, context=units.CANONICAL)
    assert seconds.validate_python("30 s") == 30.0
    with pytest.raises(ValidationError, match="has no unit"):
        seconds.validate_python(30.0)


def test_counts_are_integers() -> None:
    nodes: TypeAdapter[int] = TypeAdapter(units.Nodes)
    for value in (8, "8", "8 nodes", 8.0):
        read = nodes.validate_python(value)
        assert read == 8
        assert type(read) is int
    assert type(nodes.validate_python(8.0, context=units.CANONICAL)) is int


def test_a_single_name_is_a_list_of_one() -> None:
    names: TypeAdapter[tuple[str, ...]] = TypeAdapter(units.Names)
    assert names.validate_python("aws") == ("aws",)
    assert names.validate_python(["aws", "gcp"]) == ("aws", "gcp")
    for value in ("aws, gcp", ["aws", "aws"], [1], [""], 3):
        with pytest.raises(ValidationError):
            names.validate_python(value)
