"""The one parser for times, rates, sizes, shares and numbers."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.config.units import (
    RATE,
    SHARE,
    SIZE,
    TIME,
    Quantity,
    in_words,
    read_number,
    read_rate,
    read_share,
    read_size,
    read_speeds,
    read_time,
    read_whole,
)
from p2pnode.wire.errors import UsageError

READERS: list[tuple[Quantity, Callable[[object], float]]] = [
    (TIME, read_time),
    (RATE, read_rate),
    (SIZE, read_size),
    (SHARE, read_share),
]


@pytest.mark.parametrize(("quantity", "read"), READERS)
def test_every_unit_stands_for_its_factor_in_either_case_with_or_without_a_space(
    quantity: Quantity, read: Callable[[object], float]
) -> None:
    for unit, factor in quantity.units.items():
        number = 1 if factor >= 1 else 64
        for text in (f"{number}{unit}", f"{number} {unit.upper()}", f" {number}.0{unit} "):
            assert read(text) == pytest.approx(
                min(number, 1) * factor if quantity is SHARE and unit == "" else number * factor
            )


@given(st.floats(1e-3, 1e6))
def test_a_number_is_read_as_itself_whether_text_or_not(value: float) -> None:
    assert read_time(value) == read_time(repr(value)) == value
    assert read_number(value) == read_number(repr(value)) == value


@given(st.floats(1, 1e9), st.sampled_from([TIME, RATE, SIZE]))
def test_what_is_shown_is_read_again(value: float, quantity: Quantity) -> None:
    read = {TIME.noun: lambda raw: read_time(raw, most=math.inf), RATE.noun: read_rate, SIZE.noun: read_number}
    shown = in_words(value, quantity)
    if quantity is not SIZE:
        assert read[quantity.noun](shown) == pytest.approx(value, rel=1e-4)
    else:
        assert read_size(shown) == pytest.approx(value, rel=1e-4, abs=1)


@pytest.mark.parametrize(
    ("read", "raw", "value"),
    [
        (read_time, "50ms", 0.05),
        (read_time, "2h", 7200.0),
        (read_time, "1.5 min", 90.0),
        (read_time, "1d", 86400.0),
        (read_rate, "20mbit", 2.5e6),
        (read_rate, "2.5MB/s", 2.5e6),
        (read_rate, "500k", 5e5),
        (read_size, "20GB", 20 * 10**9),
        (read_share, "50%", 0.5),
        (read_share, ".5", 0.5),
        (read_number, "1e3", 1000.0),
        (read_whole, "100", 100),
        (read_speeds, "1-4", (1.0, 4.0)),
        (read_speeds, "2", (2.0, 2.0)),
        (read_speeds, (1, 4), (1.0, 4.0)),
    ],
)
def test_examples(read: Callable[[object], object], raw: object, value: object) -> None:
    assert read(raw) == value


@pytest.mark.parametrize("read", [read_time, read_rate, read_size, read_share, read_number, read_whole, read_speeds])
@pytest.mark.parametrize(
    "wrong",
    ["", "soon", "-1", "1 2", "1kk", "5y", "1.2.3", "²",
     "nan", "inf", "0x1", math.nan, math.inf, -1, True, None, [], {}],
)  # fmt: skip
def test_a_slip_is_one_short_line_with_what_was_given_and_an_example(
    read: Callable[[object], object], wrong: object
) -> None:
    with pytest.raises(UsageError, match="for example") as caught:
        read(wrong)
    text = str(caught.value)
    assert "\n" not in text
    assert len(text) < 160
    if isinstance(wrong, str):
        assert repr(wrong) in text


def test_a_long_slip_is_cut_short() -> None:
    with pytest.raises(UsageError) as caught:
        read_time("x" * 10_000)
    assert len(str(caught.value)) < 160


def test_values_out_of_range_are_refused_with_the_limit() -> None:
    with pytest.raises(UsageError, match="at least 32k"):
        read_rate("1k", least=32_000)
    with pytest.raises(UsageError, match="at most 100%"):
        read_share("101%")
    with pytest.raises(UsageError, match="at least 1%"):
        read_share("0", least=0.01)
    with pytest.raises(UsageError, match="whole number from 1 to 5"):
        read_whole(2.5, 1, 5)
