"""Requests for snapshots, answered by streams."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.messages import Message, Name
from ...wire.types import MAX_PLACE_BYTES

SnapshotName = Annotated[bytes, msgspec.Meta(max_length=16)]


class GetSnapshot(Message, frozen=True, tag="snapshot"):
    """The outline of the peer's current snapshot, or of the one it can make `at` the place of another's."""

    at: Annotated[bytes, msgspec.Meta(max_length=MAX_PLACE_BYTES)] = b""
    circle: Name = ""  # whose weights are wanted


class GetChunks(Message, frozen=True, tag="chunks"):
    """Consecutive chunks of the snapshot whose outline has this name."""

    snapshot: SnapshotName
    first: Annotated[int, msgspec.Meta(ge=0)]
    stop: Annotated[int, msgspec.Meta(ge=1)]


class GetKept(Message, frozen=True, tag="kept"):
    """The entries that come along with a snapshot."""

    snapshot: SnapshotName


SnapshotRequest = GetSnapshot | GetChunks | GetKept
