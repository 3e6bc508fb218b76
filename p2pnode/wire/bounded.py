"""Bounded memory: dictionaries that forget their oldest key."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def put_bounded(kept: dict[Key, Value], key: Key, value: Value, limit: int) -> None:
    """Set `kept[key]` as the latest of at most `limit` keys; the keys set longest ago are dropped."""
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > limit:
        del kept[next(iter(kept))]
