"""The handoff of one shard as a pure state machine: a state and an event give the new state, writes and effects.

These rules make sure that no shard is lost:
- A term is on disk as used before the offer that uses it is sent.
- A receiver has the bytes on disk before it writes the countersigned certificate. That write is the commit point.
- Every node believes the highest certificate it has seen.
- Kept bytes become cache only by a release for the highest known certificate (`_on_release`). Its holder signs the
  release after all keepers named in the certificate confirmed that they have the bytes.
- Only cache is ever deleted (`_drop`).
- Nothing depends on a clock, and every message may come twice, late or never.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import msgspec

from ...wire.ids import Signer
from .certificate import (
    MAX_TERM,
    Certificate,
    certificate_id,
    claim,
    countersign,
    following,
    is_offer,
    offer,
    rank,
    sign_release,
)
from .messages import AnyMessage, Certified, Kept, MayDrop, Offer, Refusal, Release
from .state import (
    BytesArrived,
    ClaimShard,
    DeleteBytes,
    Drop,
    Give,
    HandoffEvent,
    HandoffStep,
    Lost,
    Meet,
    NotFetched,
    PutBytes,
    PutRecord,
    Received,
    Record,
    Renew,
    ShardState,
    TakeOver,
    restarted,
    unconfirmed,
)


def step(me: Signer, state: ShardState, event: HandoffEvent) -> HandoffStep:
    """What `event` leads to. An event that does not fit the state leads to nothing."""
    if isinstance(event, Received):
        made = _ON_MESSAGE[type(event.message)](me, state, event.sender, event.message)
    else:
        made = _ON_EVENT[type(event)](me, state, event)
    # A keeper goes on wanting what it could not fetch, but maintenance says when to try again.
    fetch = made.state.wanted is not None and not made.state.have and not isinstance(event, NotFetched)
    return made._replace(fetch=fetch)


# ---- local events ----


def _claim(me: Signer, state: ShardState, event: ClaimShard) -> HandoffStep:
    if not state.have or state.record.highest is not None or me.peer_id not in event.keepers:
        return HandoffStep(state)
    certificate = claim(me, event.run, event.shard, event.keepers)
    return _tell_keepers(me, _certify(state, certificate))


def _give(me: Signer, state: ShardState, event: Give) -> HandoffStep:
    before = _own(me, state)
    if before is None or event.to == me.peer_id or event.to not in event.keepers:
        return HandoffStep(state)
    offered = offer(me, following(before, state.record.next_term, event.to, event.keepers))
    record = msgspec.structs.replace(state.record, next_term=state.record.next_term + 1)
    after = replace(state, record=record, offer=offered)
    return HandoffStep(after, (PutRecord(record),), ((event.to, Offer(offered)),))


def _renew(me: Signer, state: ShardState, event: Renew) -> HandoffStep:
    before = _own(me, state)
    if before is None or me.peer_id not in event.keepers:
        return HandoffStep(state)
    renewed = offer(me, following(before, state.record.next_term, me.peer_id, event.keepers))
    return _tell_keepers(me, _certify(state, countersign(me, renewed)))


def _take_over(me: Signer, state: ShardState, event: TakeOver) -> HandoffStep:
    before = state.record.highest
    able = state.have and state.record.kept and state.record.next_term < MAX_TERM
    if not able or before is None or before.to == me.peer_id or me.peer_id not in event.keepers:
        return HandoffStep(state)
    taken = offer(me, following(before, state.record.next_term, me.peer_id, event.keepers, takeover=True))
    return _tell_keepers(me, _certify(state, taken))


def _bytes_arrived(me: Signer, state: ShardState, event: BytesArrived) -> HandoffStep:
    if state.have:
        return HandoffStep(state)
    return _after_bytes(me, replace(state, have=True), (PutBytes(),))


def _not_fetched(me: Signer, state: ShardState, event: NotFetched) -> HandoffStep:
    """Decline an offer; a keeper goes on wanting what it must keep."""
    wanted = state.wanted
    if wanted is None or not is_offer(wanted):
        return HandoffStep(state)
    refusal = Refusal(wanted.run, wanted.shard, wanted.term, event.reason)
    return HandoffStep(restarted(me.peer_id, state.record, state.have), (), ((wanted.giver, refusal),))


def _lost(me: Signer, state: ShardState, event: Lost) -> HandoffStep:
    return HandoffStep(restarted(me.peer_id, state.record, have=False))


def _drop(me: Signer, state: ShardState, event: Drop) -> HandoffStep:
    """The one place where bytes are deleted: only those that are not kept."""
    if not state.have or state.record.kept:
        return HandoffStep(state)
    return HandoffStep(replace(state, have=False), (DeleteBytes(),))


def _meet(me: Signer, state: ShardState, event: Meet) -> HandoffStep:
    highest, messages = state.record.highest, []
    if highest is not None:
        messages.append((event.peer, _news(me, state, highest, event.peer)))
    if state.offer is not None and state.offer.to == event.peer:
        messages.append((event.peer, Offer(state.offer)))
    return HandoffStep(state, (), tuple(messages))


def _news(me: Signer, state: ShardState, highest: Certificate, peer: str) -> AnyMessage:
    """Our highest certificate, or the question to its holder whether we may drop the bytes."""
    free = state.have and state.record.kept and me.peer_id not in highest.keepers
    return MayDrop(highest) if free and peer == highest.to else Certified(highest)


# ---- messages ----


def _on_offer(me: Signer, state: ShardState, sender: str, message: Offer) -> HandoffStep:
    offered = message.certificate
    if rank(offered) <= rank(state.record.highest):
        return _answer_news(state, sender)
    if state.have:
        return _commit(me, state, offered, ())
    if rank(state.wanted) > rank(offered):
        return HandoffStep(state)
    return HandoffStep(replace(state, wanted=offered))


def _on_refusal(me: Signer, state: ShardState, sender: str, message: Refusal) -> HandoffStep:
    refused = state.offer is not None and (state.offer.to, state.offer.term) == (sender, message.term)
    return HandoffStep(replace(state, offer=None) if refused else state)


def _on_certified(me: Signer, state: ShardState, sender: str, message: Certified) -> HandoffStep:
    return _hear(me, state, sender, message.certificate)


def _hear(me: Signer, state: ShardState, sender: str, certificate: Certificate) -> HandoffStep:
    """Believe a higher certificate and do what it asks of us; answer a lower one with the one we know."""
    if rank(certificate) < rank(state.record.highest):
        return _answer_news(state, sender)
    if me.peer_id in certificate.keepers:
        return _keep(me, state, certificate, ())
    if rank(certificate) == rank(state.record.highest):
        return HandoffStep(state)
    after = _believe(state, certificate)
    question = ((certificate.to, MayDrop(certificate)),) if state.have and state.record.kept else ()
    return HandoffStep(after, (PutRecord(after.record),), question)


def _on_kept(me: Signer, state: ShardState, sender: str, message: Kept) -> HandoffStep:
    highest = _own(me, state)
    if highest is None or message.certificate_id != certificate_id(highest) or sender not in highest.keepers:
        return HandoffStep(state)
    return HandoffStep(replace(state, confirmed=state.confirmed | {sender}))


def _on_may_drop(me: Signer, state: ShardState, sender: str, message: MayDrop) -> HandoffStep:
    heard = _hear(me, state, sender, message.certificate)
    highest = _own(me, heard.state)
    if highest is None or rank(highest) != rank(message.certificate) or sender in highest.keepers:
        return heard
    missing = unconfirmed(heard.state, me.peer_id)
    if missing or not highest.licenses_dropping:
        return HandoffStep(heard.state, heard.writes, tuple((peer, Certified(highest)) for peer in missing))
    release = Release(highest, sender, sign_release(me, highest, sender))
    return HandoffStep(heard.state, heard.writes, ((sender, release),))


def _on_release(me: Signer, state: ShardState, sender: str, message: Release) -> HandoffStep:
    """The one place where kept bytes become cache."""
    certificate = message.certificate
    if rank(certificate) < rank(state.record.highest):
        return _answer_news(state, sender)
    if me.peer_id in certificate.keepers or not certificate.licenses_dropping or not state.record.kept:
        return _hear(me, state, sender, certificate)
    after = _believe(state, certificate, kept=False)
    return HandoffStep(after, (PutRecord(after.record),))


# ---- shared by several events ----


def _own(me: Signer, state: ShardState) -> Certificate | None:
    """The certificate that makes this node the holder, if it can act: it has the bytes, and terms are left."""
    highest = state.record.highest
    mine = highest is not None and highest.to == me.peer_id
    return highest if mine and state.have and state.record.next_term < MAX_TERM else None


def _believe(state: ShardState, certificate: Certificate, kept: bool | None = None) -> ShardState:
    """The state under a certificate at least as high as the known one. A higher one voids offers and confirmations."""
    if rank(certificate) > rank(state.record.highest):
        wanted = state.wanted if rank(state.wanted) > rank(certificate) else None
        record = Record(certificate, max(state.record.next_term, certificate.term + 1), state.record.kept)
        state = ShardState(record, state.have, wanted=wanted)
    if kept is None or kept == state.record.kept:
        return state
    return replace(state, record=msgspec.structs.replace(state.record, kept=kept))


def _certify(state: ShardState, certificate: Certificate) -> HandoffStep:
    """Become the holder by a certificate this node signed; the bytes are here."""
    after = replace(_believe(state, certificate, kept=True), wanted=None)
    return HandoffStep(after, (PutRecord(after.record),))


def _tell_keepers(me: Signer, made: HandoffStep) -> HandoffStep:
    certificate = made.state.record.highest
    if certificate is None:
        return made
    keepers = [peer for peer in certificate.keepers if peer != me.peer_id]
    return made._replace(messages=tuple((peer, Certified(certificate)) for peer in keepers))


def _after_bytes(me: Signer, state: ShardState, writes: tuple[PutBytes, ...]) -> HandoffStep:
    """The bytes have arrived: do what they were wanted for."""
    wanted = state.wanted
    if wanted is None or rank(wanted) < rank(state.record.highest):
        return HandoffStep(replace(state, wanted=None), writes)
    if is_offer(wanted):
        return _commit(me, state, wanted, writes)
    return _keep(me, replace(state, wanted=None), wanted, writes)


def _commit(me: Signer, state: ShardState, offered: Certificate, writes: tuple[PutBytes, ...]) -> HandoffStep:
    """Countersign an offer, because the bytes are on disk; then tell the giver and the keepers."""
    certificate = countersign(me, offered)
    made = _certify(state, certificate)
    others = dict.fromkeys(peer for peer in (offered.giver, *certificate.keepers) if peer != me.peer_id)
    messages = tuple((peer, Certified(certificate)) for peer in others)
    return HandoffStep(made.state, (*writes, *made.writes), messages)


def _keep(me: Signer, state: ShardState, certificate: Certificate, writes: tuple[PutBytes, ...]) -> HandoffStep:
    """The certificate names us keeper: want the bytes, or write that we keep them and confirm it to the holder."""
    after = _believe(state, certificate, kept=True if state.have else None)
    changed = () if after.record == state.record else (PutRecord(after.record),)
    if not state.have:
        return HandoffStep(replace(after, wanted=after.wanted or certificate), changed)
    if certificate.to == me.peer_id:
        return HandoffStep(after, (*writes, *changed))
    kept = Kept(certificate.run, certificate.shard, certificate_id(certificate))
    return HandoffStep(after, (*writes, *changed), ((certificate.to, kept),))


def _answer_news(state: ShardState, sender: str) -> HandoffStep:
    """Tell the sender our highest certificate."""
    highest = state.record.highest
    return HandoffStep(state, (), ((sender, Certified(highest)),) if highest is not None else ())


_ON_EVENT: dict[type, Callable[[Signer, ShardState, Any], HandoffStep]] = {
    ClaimShard: _claim,
    Give: _give,
    Renew: _renew,
    TakeOver: _take_over,
    BytesArrived: _bytes_arrived,
    NotFetched: _not_fetched,
    Lost: _lost,
    Drop: _drop,
    Meet: _meet,
}
_ON_MESSAGE: dict[type, Callable[[Signer, ShardState, str, Any], HandoffStep]] = {
    Offer: _on_offer,
    Refusal: _on_refusal,
    Certified: _on_certified,
    Kept: _on_kept,
    MayDrop: _on_may_drop,
    Release: _on_release,
}
