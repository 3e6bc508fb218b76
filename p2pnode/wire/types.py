"""What everything that travels or is kept as bytes shares: small types with bounds, and reading without trust."""

from __future__ import annotations

from typing import Annotated, Protocol, TypeVar

import msgspec

from .ids import SIGNATURE_BYTES

Seconds = float  # of a clock, or a duration

HASH_BYTES = 32
MAX_PLACE_BYTES = 60_000  # of a snapshot that others are asked about: some 800 chains of a delta set

Hash = Annotated[bytes, msgspec.Meta(min_length=HASH_BYTES, max_length=HASH_BYTES)]
HashOrNothing = Annotated[bytes, msgspec.Meta(max_length=HASH_BYTES)]
Signature = Annotated[bytes, msgspec.Meta(max_length=SIGNATURE_BYTES)]
Count = Annotated[int, msgspec.Meta(ge=0, lt=1 << 40)]
PeerText = Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
RunText = Annotated[str, msgspec.Meta(max_length=64)]
ShardText = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")


class Decoder(Protocol[T_co]):
    """One of msgspec's, of msgpack or JSON."""

    def decode(self, data: bytes, /) -> T_co: ...


def decoded(decoder: Decoder[T], data: bytes, what: str, most: int | None = None) -> T:
    """What `data` says; ValueError with the reason when it is longer than `most` bytes, or not `what` it should be.

    Without `most` the caller has bounded `data`.
    """
    if most is not None and len(data) > most:
        raise ValueError(f"{what} of {len(data):,} bytes, {most:,} allowed")
    try:
        return decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed {what}: {str(error)[:120]}") from None
