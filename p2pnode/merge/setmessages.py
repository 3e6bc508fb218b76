"""What two nodes with a delta set say to each other, as bytes; and arrays as bytes, for snapshots. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from ..deltaset.entry import Claim
from ..deltaset.forks import ForkProof
from .policy import Arrays

MAX_BODY_BYTES = 700_000
MAX_PROOFS = 16
MAX_CLAIMS = 4096


class Deltas(msgspec.Struct, frozen=True, array_like=True):
    """Where I stand, and entries you lack. A question has no entries."""

    digest: Annotated[bytes, msgspec.Meta(max_length=16)]
    heads: Annotated[bytes, msgspec.Meta(max_length=200_000)] = b""
    entries: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=4096)] = ()
    proofs: Annotated[tuple[ForkProof, ...], msgspec.Meta(max_length=MAX_PROOFS)] = ()
    behind: bool = False  # you lack entries I no longer have: take a snapshot
    claims: Annotated[tuple[Claim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()  # where equal heads hide a fork


_decoder = msgspec.msgpack.Decoder(Deltas)
_encoder = msgspec.msgpack.Encoder()


def encode_deltas(deltas: Deltas) -> bytes:
    return _encoder.encode(deltas)


def decode_deltas(data: bytes) -> Deltas:
    """ValueError for anything else."""
    try:
        return _decoder.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"malformed exchange: {str(error)[:120]}") from None


def bytes_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


def pack_arrays(arrays: Mapping[str, npt.NDArray[Any]]) -> bytes:
    return _encoder.encode({name: (array.dtype.str, array.shape, array.tobytes()) for name, array in arrays.items()})


def unpack_arrays(data: bytes) -> Arrays:
    """The arrays a peer packed; ValueError for anything else."""
    try:
        packed = msgspec.msgpack.decode(data, type=dict[str, tuple[str, tuple[int, ...], bytes]])
        return {name: _unpacked(*value) for name, value in packed.items()}
    except (msgspec.DecodeError, TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"not a snapshot: {str(error)[:120]}") from None


def _unpacked(dtype: str, shape: tuple[int, ...], data: bytes) -> npt.NDArray[Any]:
    if dtype not in ("<i4", "<i8", "|u1"):
        raise ValueError(f"an array of {dtype}")
    return np.frombuffer(data, dtype).reshape(shape)
