"""What nodes tell each other about shards: reading and checking messages, and finding out what a peer does not know.

Nothing here does I/O. Messages travel many at a time in `SyncShards` calls. A message that is lost is not sent again;
instead, nodes compare what they know from time to time. Each sends short marks of the certificates it knows (8 bytes
for a shard), and then only what the other does not know or has to answer.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random

from blake3 import blake3

from ..wire.ids import Identity, PeerId
from .handoff.certificate import certificate_id
from .handoff.messages import AnyMessage, Kept, Refusal, about, check_handoff, decode_handoff
from .handoff.state import Meet, ShardState, is_mine, unconfirmed
from .handoff.step import step
from .messages import MAX_MARKS_BYTES, MAX_MESSAGES
from .store import Messages

MAX_WAITING = 4096  # messages to one peer; comparing what both know repeats the others
MARK_BYTES = 4  # of a shard's id, and as many of its certificate's
NO_CERTIFICATE = bytes(MARK_BYTES)

Marks = dict[bytes, bytes]  # by the beginning of a shard's id, the beginning of its certificate's id


class ShardProtocol:
    """Reads and writes messages about the shards of one run, for one node."""

    def __init__(self, identity: Identity, run: str) -> None:
        self._identity = identity
        self._me = identity.peer_id
        self._run = run

    def read(self, peer: PeerId, data: bytes, state_of: Callable[[str], ShardState]) -> tuple[str, AnyMessage]:
        """The shard and the message that a peer sent; ValueError when the peer may not send it."""
        message = decode_handoff(data)
        run, shard = about(message)
        if run != self._run:
            raise ValueError("about a shard of another run")
        check_handoff(message, peer, self._me, state_of(shard).record.highest)
        return shard, message

    def names_me(self, message: AnyMessage) -> bool:
        """Whether a message names this node as a keeper. Other shards that are unknown here do not concern it."""
        return not isinstance(message, Refusal | Kept) and self._me in message.certificate.keepers

    def marks(self, states: Mapping[str, ShardState], rng: Random) -> bytes:
        """Marks of all shards known here, or of a random sample when they are too many for one call."""
        shards, limit = list(states), MAX_MARKS_BYTES // (2 * MARK_BYTES)
        if len(shards) > limit:
            shards = rng.sample(shards, limit)
        return b"".join(_key(shard) + _mark(states[shard]) for shard in shards)

    def news(self, peer: PeerId, states: Mapping[str, ShardState], theirs: Marks) -> list[AnyMessage]:
        """What to tell a peer that knows the certificates of these marks."""
        messages: list[AnyMessage] = []
        for shard, state in states.items():
            if _is_news(state, self._me, peer, theirs.get(_key(shard))):
                messages += [message for _, message in step(self._identity, state, Meet(peer)).messages]
        return messages


class PeerOutbox:
    """Messages that wait to be sent, in order, for each peer. A message that waits already is not added again."""

    def __init__(self) -> None:
        self._waiting: dict[PeerId, list[AnyMessage]] = {}

    def add(self, messages: Messages) -> list[PeerId]:
        """Let messages wait; returns the peers they are for."""
        for peer, message in messages:
            waiting = self._waiting.setdefault(PeerId(peer), [])
            if len(waiting) < MAX_WAITING and message not in waiting[-MAX_MESSAGES:]:
                waiting.append(message)
        return [PeerId(peer) for peer, _ in messages]

    def take(self, peer: PeerId) -> list[AnyMessage]:
        """The next messages for a peer, as many as one call carries."""
        waiting = self._waiting.pop(peer, [])
        if waiting[MAX_MESSAGES:]:
            self._waiting[peer] = waiting[MAX_MESSAGES:]
        return waiting[:MAX_MESSAGES]

    def discard(self, peer: PeerId) -> None:
        """Forget what waits for a peer that does not answer; comparing what both know repeats it later."""
        self._waiting.pop(peer, None)


def _is_news(state: ShardState, me: str, peer: str, mark: bytes | None) -> bool:
    """Whether to send our certificate to a peer that knows the one of this mark (None: it does not know the shard)."""
    highest = state.record.highest
    if highest is None:
        return False
    asks = state.have and state.record.kept and me not in highest.keepers and peer == highest.to
    offers = state.offer is not None and state.offer.to == peer
    awaits = is_mine(state, me) and peer in unconfirmed(state, me)
    differs = mark is not None and mark != _mark(state)
    return asks or offers or awaits or differs or (mark is None and peer in highest.keepers)


def possession(nonce: bytes, content: bytes) -> bytes:
    """The answer to a nonce that only a node with the content can give."""
    return blake3(nonce).update(content).digest()


def read_marks(data: bytes) -> Marks:
    """Marks by shard; ValueError when the last one is incomplete."""
    if len(data) % (2 * MARK_BYTES):
        raise ValueError("marks of shards are cut off")
    places = range(0, len(data), 2 * MARK_BYTES)
    return {data[at : at + MARK_BYTES]: data[at + MARK_BYTES : at + 2 * MARK_BYTES] for at in places}


def _key(shard: str) -> bytes:
    return bytes.fromhex(shard[: 2 * MARK_BYTES])


def _mark(state: ShardState) -> bytes:
    highest = state.record.highest
    return NO_CERTIFICATE if highest is None else certificate_id(highest)[:MARK_BYTES]
