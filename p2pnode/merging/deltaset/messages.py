"""What two nodes with a delta set say to each other, as bytes. Pure."""

from __future__ import annotations

from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from ...wire.types import decoded
from .checksum import Checksum
from .entry import EntryClaim
from .forks import ForkProof

MAX_BODY_BYTES = 700_000
MAX_PROOFS = 16
MAX_CLAIMS = 4096


class EntryBatch(msgspec.Struct, frozen=True, array_like=True):
    """Where I stand, and entries you lack. A question has no entries."""

    digest: Annotated[bytes, msgspec.Meta(max_length=16)]
    heads: Annotated[bytes, msgspec.Meta(max_length=200_000)] = b""
    entries: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=4096)] = ()
    proofs: Annotated[tuple[ForkProof, ...], msgspec.Meta(max_length=MAX_PROOFS)] = ()
    behind: bool = False  # you lack entries I no longer have: take a snapshot
    claims: Annotated[tuple[EntryClaim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()  # where equal heads hide a fork
    checksum: Annotated[bytes, msgspec.Meta(max_length=8)] = b""  # of A; equal wherever digests are

    def checksum_of(self, digest: bytes) -> Checksum | None:
        """The checksum at `digest`, if that is where the speaker stands."""
        return int.from_bytes(self.checksum, "little") if self.checksum and self.digest == digest else None


_decoder = msgspec.msgpack.Decoder(EntryBatch)
_encoder = msgspec.msgpack.Encoder()


def encode_deltas(deltas: EntryBatch) -> bytes:
    return _encoder.encode(deltas)


def decode_deltas(data: bytes) -> EntryBatch:
    """ValueError for anything else."""
    return decoded(_decoder, data, "exchange")


def bytes_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)
