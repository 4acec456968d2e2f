"""Quantities of any size and text of any kind."""

from __future__ import annotations

import math
import string
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainplan_models.dimensions import DIMENSIONS, DimensionName
from trainplan_models.units import (
    UnitError,
    format_quantity,
    parse,
    read_quantity,
    read_reliability,
    read_when,
)

NAMES = get_args(DimensionName)
MEASURED = [name for name in NAMES if not DIMENSIONS[name].whole and name not in ("number", "frac")]
amounts = st.floats(min_value=1e-6, max_value=1e18, allow_nan=False)
shares = st.floats(min_value=1e-6, max_value=0.999999)


@pytest.mark.parametrize("name", MEASURED)
@given(value=amounts, digits=st.integers(min_value=2, max_value=12))
def test_what_is_printed_is_read_back_to_the_printed_digits(
    name: DimensionName, value: float, digits: int
) -> None:
    text = format_quantity(value, name, digits)
    assert parse(text, name) == pytest.approx(value, rel=0.5000001 * 10.0 ** (1 - digits))


@pytest.mark.parametrize("name", NAMES)
@given(value=st.integers(min_value=0, max_value=10**15))
def test_whole_numbers_are_read_back_exactly(name: DimensionName, value: int) -> None:
    amount = value / 100 if name == "frac" else float(value)
    assert parse(format_quantity(amount, name, digits=17), name) == pytest.approx(amount, rel=1e-15)


@given(value=shares)
def test_shares_below_one_are_never_printed_as_one(value: float) -> None:
    text = format_quantity(value, "frac")
    assert 0 < parse(text, "frac") < 1
    assert parse(text, "frac") == pytest.approx(value, rel=0.006)


@pytest.mark.parametrize("name", NAMES)
@given(value=amounts)
def test_printing_what_was_read_prints_the_same(name: DimensionName, value: float) -> None:
    amount = (
        min(value, 0.9999) if name == "frac" else float(round(value)) if DIMENSIONS[name].whole else value
    )
    text = format_quantity(amount, name)
    assert format_quantity(parse(text, name), name) == text


@given(value=st.floats(min_value=0.001, max_value=1e6), unit=st.sampled_from(sorted(DIMENSIONS["s"].units)))
def test_a_unit_scales_its_number(value: float, unit: str) -> None:
    assert parse(f"{value!r} {unit}", "s") == pytest.approx(value * float(DIMENSIONS["s"].units[unit]))
    assert parse(f"{value!r}{unit}", "s") == parse(f"{value!r} {unit.upper()}", "s")


@given(days=st.integers(0, 1000), hours=st.integers(0, 1000), minutes=st.integers(0, 1000))
def test_parts_of_a_time_add_up(days: int, hours: int, minutes: int) -> None:
    assert parse(f"{days}d{hours}h{minutes}min", "s") == days * 86400 + hours * 3600 + minutes * 60


@given(value=st.floats(max_value=-1e-9, allow_nan=False, allow_infinity=False), name=st.sampled_from(NAMES))
def test_no_negative_number_is_ever_read(value: float, name: DimensionName) -> None:
    unit = next(iter(DIMENSIONS[name].units), "")
    per = f"/{DIMENSIONS[name].per_canonical}" if DIMENSIONS[name].per_canonical else ""
    for written in (value, f"{value!r} {unit}{per}", f"{value!r}"):
        with pytest.raises(UnitError):
            read_quantity(written, name)


lookalikes = st.text(alphabet=string.digits + ".,-+eE $€%/_ kMGTPBbpsdhinuUSDaytoken", max_size=24)
anything = st.one_of(
    st.text(max_size=30),
    lookalikes,
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=3), st.integers(), max_size=2),
)


@given(value=anything, name=st.sampled_from(NAMES))
def test_anything_is_read_as_a_finite_amount_or_refused_with_a_fix(
    value: object, name: DimensionName
) -> None:
    try:
        amount = read_quantity(value, name)
    except UnitError as refused:
        assert refused.message
        assert refused.fix.endswith((".", "?"))
    else:
        assert math.isfinite(amount)
        assert amount >= 0


@given(value=anything)
def test_anything_is_a_moment_or_refused(value: object) -> None:
    try:
        moment = read_when(value)
    except UnitError as refused:
        assert refused.fix
    else:
        assert isinstance(moment, str) or math.isfinite(moment)


@given(value=anything)
def test_anything_is_a_chance_or_refused(value: object) -> None:
    try:
        chance = read_reliability(value)
    except UnitError as refused:
        assert refused.fix
    else:
        assert 0 < chance < 1
