"""What must be there for a test to make sense."""

from __future__ import annotations

from typing import TypeVar

T = TypeVar("T")


def known(value: T | None) -> T:
    """The value; an assertion where there is none."""
    assert value is not None
    return value
