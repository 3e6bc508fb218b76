"""The one parser for times, rates, sizes, shares and numbers, whoever gives them: flag, TOML, environment or code.

Grammar: a number above or equal to zero, then an optional unit, in upper or lower case; a space between them is fine.
A number that is no text (from TOML or Python) is in the base unit. UsageError says what was given, what is wrong with
it and gives an example; the caller adds the name of the flag or variable.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from math import inf

from ..wire.errors import UsageError
from ..wire.types import Seconds

YEAR: Seconds = 365 * 86400.0
TINY = 1e-6  # the least value that errors call "above zero"
SHOWN = 40  # characters of a wrong value that an error repeats

_WRITTEN = re.compile(r"((?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?)\s*([a-z%/]*)", re.ASCII)
_SIZES = {f"{letter}{b}": 1000.0**power for power, letter in enumerate(("", "k", "m", "g", "t")) for b in ("", "b")}
_BITS = {f"{letter}bit": 1000.0**power / 8 for power, letter in enumerate(("", "k", "m", "g"))}
_RATES = _SIZES | _BITS


@dataclass(frozen=True)
class Quantity:
    """A kind of value: what errors call it, its units in terms of the base unit, and examples."""

    noun: str
    units: dict[str, float]
    example: str


TIME = Quantity(
    "a time", {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0},
    "50ms, 30s, 5m, 2h or 1d",
)  # fmt: skip
SIZE = Quantity("a size", _SIZES, "500MB or 20GB")
RATE = Quantity("a rate", _RATES | {f"{unit}/s": factor for unit, factor in _RATES.items()}, "500k, 2MB/s or 20mbit")
SHARE = Quantity("a share", {"": 1.0, "%": 0.01}, "50% or 0.5")
NUMBER = Quantity("a number", {"": 1.0}, "0.5")


def read_time(raw: object, least: Seconds = 0.0, most: Seconds = YEAR) -> Seconds:
    """Seconds, from `50ms`, `30s`, `5m`, `2h`, `1d` or a number of seconds."""
    return _read(raw, TIME, least, most)


def read_positive_time(raw: object) -> Seconds:
    """Seconds, above zero."""
    return _read(raw, TIME, TINY, YEAR)


def read_rate(raw: object, least: float = 1.0, most: float = 1e12) -> float:
    """Bytes a second, from `500k`, `2MB/s`, `20mbit` or a number of bytes."""
    return _read(raw, RATE, least, most)


def read_size(raw: object, least: int = 1, most: int = 10**18) -> int:
    """Bytes, from `500MB`, `20GB` or a number of bytes."""
    return int(_read(raw, SIZE, least, most))


def read_share(raw: object, least: float = 0.0, most: float = 1.0) -> float:
    """A share from 0 to 1, from `50%` or `0.5`."""
    return _read(raw, SHARE, least, most)


def read_number(raw: object, least: float = 0.0, most: float = inf, example: str = NUMBER.example) -> float:
    """A finite number without a unit."""
    return _read(raw, Quantity(NUMBER.noun, NUMBER.units, example), least, most)


def read_whole(raw: object, least: int = 0, most: int = 10**9, example: str = "100") -> int:
    """A whole number without a unit."""
    value = _value(raw, NUMBER)
    if not value.is_integer() or not least <= value <= most:
        raise UsageError(f"{_shown(raw)} is not a whole number from {least} to {most:,}; for example {example}")
    return int(value)


def read_speeds(raw: object) -> tuple[float, float]:
    """The slowest and the fastest of several nodes, from `1-4`, `2` or a pair of numbers."""
    parts = list(raw) if isinstance(raw, tuple | list) else str(raw).split("-")
    low, high = (_value(part, NUMBER) for part in (parts[0], parts[-1])) if parts else (math.nan, math.nan)
    if len(parts) > 2 or not 0.001 <= low <= high <= 1000:
        raise UsageError(f"{_shown(raw)} is not a range of speeds from 0.001 to 1000, slowest first; for example 1-4")
    return low, high


def _read(raw: object, quantity: Quantity, least: float, most: float) -> float:
    value = _value(raw, quantity)
    if math.isnan(value):
        raise UsageError(f"{_shown(raw)} is not {quantity.noun}; for example {quantity.example}")
    if not least <= value <= most or math.isinf(value):
        low = "above zero" if least <= TINY else f"at least {in_words(least, quantity)}"
        limit = low if value < least else f"at most {in_words(most, quantity)}"
        raise UsageError(f"{_shown(raw)} must be {limit}; for example {quantity.example}")
    return value


def _value(raw: object, quantity: Quantity) -> float:
    """The value in the base unit; not a number for anything that cannot be read."""
    if isinstance(raw, int | float) and not isinstance(raw, bool):
        return float(raw)
    match = _WRITTEN.fullmatch(raw.strip().lower()) if isinstance(raw, str) else None
    return float(match[1]) * quantity.units.get(match[2], math.nan) if match is not None else math.nan


def in_words(value: float, quantity: Quantity) -> str:
    """A value with the largest unit that leaves at least 1 before it: `32k`, `1%`, `50ms`."""
    fitting = [(factor, unit) for unit, factor in quantity.units.items() if unit and value >= factor]
    factor, unit = max(fitting, key=lambda one: (one[0], -len(one[1])), default=(1.0, ""))
    return f"{value / factor:g}{unit}"


def _shown(raw: object) -> str:
    kinds = {bool: "true or false", list: "a list", dict: "a table", type(None): "nothing"}
    return kinds.get(type(raw)) or repr(str(raw)[:SHOWN])
