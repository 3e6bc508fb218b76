"""Messages about a shard, and the checks each of them passes before the state machine sees it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.ids import key_of_peer
from ...wire.types import Hash, PeerText, RunText, ShardText, Signature, decoded
from .certificate import MAX_LEAP, Certificate, Term, check_certificate, check_offer, check_release

MAX_BYTES = 4096
Reason = Annotated[str, msgspec.Meta(max_length=200)]


class HandoffMessage(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """Base of all messages about a shard. Each may be lost, duplicated, delayed or reordered."""


class Offer(HandoffMessage, frozen=True, tag="offer"):
    """Asks the receiver to take over this shard. The giver has signed, the receiver has not yet."""

    certificate: Certificate


class Refusal(HandoffMessage, frozen=True, tag="refusal"):
    """Declines an offer. The giver stays the holder."""

    run: RunText
    shard: ShardText
    term: Term
    reason: Reason = ""


class Certified(HandoffMessage, frozen=True, tag="certified"):
    """The highest certificate the sender knows: a receipt to a giver, a request to a keeper, news to anybody else."""

    certificate: Certificate


class Kept(HandoffMessage, frozen=True, tag="kept"):
    """Tells the holder that the bytes are on the sender's disk and stay there until the holder releases it."""

    run: RunText
    shard: ShardText
    certificate_id: Hash


class MayDrop(HandoffMessage, frozen=True, tag="may drop"):
    """Asks the holder whether the sender, who has the bytes and is no longer a keeper, may drop them."""

    certificate: Certificate


class Release(HandoffMessage, frozen=True, tag="release"):
    """The holder's statement that every keeper has the bytes, so that `peer` need not keep them."""

    certificate: Certificate
    peer: PeerText
    signature: Signature


AnyMessage = Offer | Refusal | Certified | Kept | MayDrop | Release

_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_encoder = msgspec.msgpack.Encoder()


def encode_handoff(message: AnyMessage) -> bytes:
    return _encoder.encode(message)


def decode_handoff(data: bytes) -> AnyMessage:
    """The message in `data`; ValueError when its types or bounds are wrong."""
    return decoded(_decoder, data, "message", MAX_BYTES)


def about(message: AnyMessage) -> tuple[str, str]:
    """The run and the shard a message is about."""
    if isinstance(message, Refusal | Kept):
        return message.run, message.shard
    return message.certificate.run, message.certificate.shard


def check_handoff(message: AnyMessage, sender: str, me: str, known: Certificate | None) -> None:
    """ValueError with the reason unless `sender` may send this message to `me`.

    The connection has authenticated `sender`. `known` is the highest certificate of the shard on this node.
    """
    if isinstance(message, Refusal | Kept):
        return
    certificate = message.certificate
    if certificate.term > (known.term if known else 0) + MAX_LEAP:
        raise ValueError(f"term {certificate.term} is too far ahead")
    for keeper in certificate.keepers:
        key_of_peer(keeper)  # ValueError for what is no peer id: such a keeper could never be reached
    if isinstance(message, Offer):
        check_offer(certificate, sender, me)
        return
    check_certificate(certificate)
    if isinstance(message, Release):
        if message.peer != me:
            raise ValueError("a release for somebody else")
        check_release(certificate, me, message.signature)
