"""The envelope around every request: which run and which job it is about, and the proof that the sender belongs there.

The router checks run and proof once, for all requests, and hands the body to the job.
"""

from __future__ import annotations

import msgspec

from .errors import PeerMisbehaved
from .messages import MAX_CALL_BYTES, M, Message, Name, Proof, decode_message, encode_message
from .types import RunText, decoded


class Envelope(msgspec.Struct, frozen=True, array_like=True):
    """A request on its way. `run` "" is a request that anybody may make; `job` "" is one to the node itself."""

    run: RunText
    job: Name
    proof: Proof
    body: msgspec.Raw


_decoder = msgspec.msgpack.Decoder(Envelope)
_encoder = msgspec.msgpack.Encoder()


def seal(request: Message, run: str = "", job: str = "", proof: bytes = b"") -> bytes:
    """The bytes of a request in its envelope."""
    return _encoder.encode(Envelope(run, job, proof, msgspec.Raw(encode_message(request))))


def open_envelope(data: bytes) -> Envelope:
    """The envelope in `data`, its body not decoded yet; PeerMisbehaved when there is none, or it is too large."""
    try:
        return decoded(_decoder, data, "request", MAX_CALL_BYTES)
    except ValueError as error:
        raise PeerMisbehaved(str(error)) from None


def unseal(data: bytes, *kinds: type[M]) -> M:
    """The request in `data`, of one of these kinds, whatever run and job it is about; PeerMisbehaved otherwise."""
    return decode_message(open_envelope(data).body, *kinds)
