"""Times, rates and speeds as people write them; numbers pass as they are."""

from __future__ import annotations

import math
import re
from math import inf

from ..wire.errors import UsageError
from ..wire.types import Seconds

_NUMBER = re.compile(r"([0-9]*\.?[0-9]+)\s*([a-z/]*)")
_TIMES = {"": 1.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "m": 60.0, "min": 60.0, "h": 3600.0}
_RATES = {"bit": 1 / 8, "kbit": 1e3 / 8, "mbit": 1e6 / 8, "gbit": 1e9 / 8, "b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9}


def read_seconds(written: str | float, what: str = "latency") -> Seconds:
    """`50ms`, `0.05`, `2s`; UsageError for anything else."""
    return _read(written, _TIMES, f"--{what}", "50ms", least=0.0)


def read_rate(written: str | float | None) -> float:
    """Bytes a second: `20mbit`, `2.5MB`; numbers are bytes a second, None is without limit. UsageError otherwise."""
    if written is None:
        return inf
    return _read(written, _RATES | {"": 1.0}, "--rate", "20mbit", least=1.0)


def read_speeds(written: str | tuple[float, float]) -> tuple[float, float]:
    """`1-4` or `2`: between which speeds nodes are drawn; UsageError for anything else."""
    if isinstance(written, tuple):
        low, high = written
    else:
        first, dash, last = written.partition("-")
        low = _read(first, {"": 1.0, "x": 1.0}, "--speeds", "1-4", least=0.0)
        high = _read(last, {"": 1.0, "x": 1.0}, "--speeds", "1-4", least=0.0) if dash else low
    if not 0.001 <= low <= high <= 1000:
        raise UsageError(f"--speeds {str(written)[:40]!r}: from a slow to a fast one between 0.001 and 1000, as in 1-4")
    return low, high


def _read(written: str | float, units: dict[str, float], flag: str, example: str, least: float) -> float:
    value = math.nan
    if isinstance(written, str):
        match = _NUMBER.fullmatch(written.strip().lower().removesuffix("/s"))
        if match is not None and match[2] in units:
            value = float(match[1]) * units[match[2]]
    else:
        value = float(written)
    if math.isnan(value) or value < least:
        raise UsageError(f"{flag} {str(written)[:40]!r} cannot be read; write it as in {flag} {example}")
    return value
