"""Memory with a bound: of what is told without end, the newest stays."""

from __future__ import annotations

from typing import TypeVar

Key = TypeVar("Key")
Value = TypeVar("Value")


def keep_newest(kept: dict[Key, Value], key: Key, value: Value, most: int) -> None:
    """Keep `value` for `key`, of at most `most` keys: those told of longest ago go. The newest is last."""
    kept.pop(key, None)
    kept[key] = value
    while len(kept) > most:
        del kept[next(iter(kept))]
