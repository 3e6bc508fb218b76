"""Whether the data go to the model or the model to the data: by bytes, and with the reason."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Swap:
    """Which way is cheaper. `model_travels`: the weights visit, train there, and their delta comes home."""

    model_travels: bool
    wire_bytes: int
    why: str


def choose_swap(shard_bytes: int, model_bytes: int, delta_bytes: int, private: bool) -> Swap:
    """Send a shard, or let two nodes exchange models for a while: twice the weights there, and a delta back each.

    Private data never travel, whatever the bytes are.
    """
    visit_bytes = 2 * (model_bytes + delta_bytes)
    if private:
        return Swap(True, visit_bytes, f"the data are private: models travel, {_size(visit_bytes)}")
    if visit_bytes < shard_bytes:
        return Swap(True, visit_bytes, f"models travel: {_size(visit_bytes)}, the shard would be {_size(shard_bytes)}")
    return Swap(False, shard_bytes, f"the shard travels: {_size(shard_bytes)}, models would be {_size(visit_bytes)}")


def _size(count: int) -> str:
    return f"{count / 1e6:.2f} MB" if count >= 10_000 else f"{count / 1e3:.2f} kB"
