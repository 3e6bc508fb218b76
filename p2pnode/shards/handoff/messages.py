"""What nodes say about a shard, and the checks every such word passes before the state machine sees it."""

from __future__ import annotations

from typing import Annotated

import msgspec

from ...wire.ids import key_of_peer
from ...wire.types import Hash, PeerText, RunText, ShardText, Signature, decoded
from .certificate import MAX_LEAP, Certificate, Term, check_certificate, check_offer, check_release

MAX_BYTES = 4096
Reason = Annotated[str, msgspec.Meta(max_length=200)]


class HandoffMessage(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """Base of all messages about a shard. All may be lost, doubled, late or reordered."""


class Offer(HandoffMessage, frozen=True, tag="offer"):
    """Take this shard: the giver's signature, the receiver's missing."""

    certificate: Certificate


class Refusal(HandoffMessage, frozen=True, tag="refusal"):
    """No, thank you. The giver stays holder."""

    run: RunText
    shard: ShardText
    term: Term
    reason: Reason = ""


class Certified(HandoffMessage, frozen=True, tag="certified"):
    """The highest certificate I know: receipt to a giver, request to a keeper, news to anybody else."""

    certificate: Certificate


class Kept(HandoffMessage, frozen=True, tag="kept"):
    """To the holder: the bytes are on my disk, and stay there until you release me."""

    run: RunText
    shard: ShardText
    certificate_id: Hash


class MayDrop(HandoffMessage, frozen=True, tag="may drop"):
    """To the holder: I have the bytes and am no longer named; may I drop them?"""

    certificate: Certificate


class Release(HandoffMessage, frozen=True, tag="release"):
    """The holder's word that every keeper named has the bytes, so `peer` need not."""

    certificate: Certificate
    peer: PeerText
    signature: Signature


AnyMessage = Offer | Refusal | Certified | Kept | MayDrop | Release

_decoder: msgspec.msgpack.Decoder[AnyMessage] = msgspec.msgpack.Decoder(AnyMessage)
_encoder = msgspec.msgpack.Encoder()


def encode_handoff(message: AnyMessage) -> bytes:
    return _encoder.encode(message)


def decode_handoff(data: bytes) -> AnyMessage:
    """The message in `data`, of the right types and bounds; ValueError otherwise."""
    return decoded(_decoder, data, "message", MAX_BYTES)


def about(message: AnyMessage) -> tuple[str, str]:
    """The run and the shard a message is about."""
    if isinstance(message, Refusal | Kept):
        return message.run, message.shard
    return message.certificate.run, message.certificate.shard


def check_handoff(message: AnyMessage, sender: str, me: str, known: Certificate | None) -> None:
    """ValueError with the reason unless `sender`, whom the connection vouches for, may say this to `me`.

    `known` is the highest certificate of the shard on this node.
    """
    if isinstance(message, Refusal | Kept):
        return
    certificate = message.certificate
    if certificate.term > (known.term if known else 0) + MAX_LEAP:
        raise ValueError(f"term {certificate.term} is too far ahead")
    for keeper in certificate.keepers:
        key_of_peer(keeper)  # or somebody would be called who cannot be
    if isinstance(message, Offer):
        check_offer(certificate, sender, me)
        return
    check_certificate(certificate)
    if isinstance(message, Release):
        if message.peer != me:
            raise ValueError("a release for somebody else")
        check_release(certificate, me, message.signature)
