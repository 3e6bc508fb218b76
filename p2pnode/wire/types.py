"""Bounded types shared by everything that travels or is stored as bytes, and a decoder that trusts nothing."""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

import msgspec

from .ids import SIGNATURE_BYTES

Seconds = float  # of a clock, or a duration

MAX_REASON = 200  # characters of a reason that members read
HASH_BYTES = 32
MAX_PLACE_BYTES = 60_000  # position of a snapshot that peers are asked about: about 800 chains of a delta set

Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
HashOrNothing = Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
PeerText = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
JOB_NAME = r"^(?!manifest\Z)[a-z0-9][a-z0-9_-]{0,31}\Z"  # also the name of a folder next to the run's manifest
JobName = Annotated[str, msgspec.Meta(pattern=JOB_NAME)]
RunText = Annotated[str, msgspec.Meta(max_length=64)]
Sketch = Annotated[tuple[float, ...], msgspec.Meta(max_length=34)]  # similarity/sketch.py; empty: nothing to compare
ShardText = Annotated[str, msgspec.Meta(pattern=r"^[0-9a-f]{32}\Z")]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class BytesDecoder(Protocol[T_co]):
    """A msgspec decoder, for msgpack or JSON."""

    def decode(self, data: bytes, /) -> T_co: ...


def decoded(decoder: BytesDecoder[T], data: bytes, what: str, limit: int | None = None) -> T:
    """Decode `data`. Raises ValueError with the reason when it is over `limit` bytes or malformed.

    `what` names the thing in the error. Pass no `limit` only if the caller has bounded `data`.
    """
    if limit is not None and len(data) > limit:
        raise ValueError(f"{what} of {len(data):,} bytes, {limit:,} allowed")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed {what}: {str(error)[:120]}") from None
