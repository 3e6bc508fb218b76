"""Two nodes make their delta sets equal: what to send to a partner, and what its answer changes here. Pure."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from typing import Annotated

import msgspec
import numpy as np
import numpy.typing as npt

from ...wire.bounded import put_bounded
from ...wire.ids import PeerId
from ...wire.types import decoded
from ..settling import LATEST
from .checksum import Checksum
from .entry import Chain, EntryClaim, ForkProof, decode_entry, encode_entry, read_claim
from .heads import encode_heads, missing
from .log import Change
from .set import DeltaSet
from .vetoes import MAX_VETOES, Veto

MAX_BODY_BYTES = 700_000
MAX_PROOFS = 16
MAX_CLAIMS = 4096
MAX_UNDERWAY = 64  # partners


class EntryBatch(msgspec.Struct, frozen=True, array_like=True):
    """The sender's position, and entries that the receiver lacks. A question has no entries."""

    digest: Annotated[bytes, msgspec.Meta(max_length=16)]
    heads: Annotated[bytes, msgspec.Meta(max_length=200_000)] = b""
    entries: Annotated[tuple[bytes, ...], msgspec.Meta(max_length=4096)] = ()
    proofs: Annotated[tuple[ForkProof, ...], msgspec.Meta(max_length=MAX_PROOFS)] = ()
    behind: bool = False  # the receiver lacks entries that the sender no longer has, and needs a snapshot
    claims: Annotated[tuple[EntryClaim, ...], msgspec.Meta(max_length=MAX_CLAIMS)] = ()  # find forks at equal heads
    checksum: Annotated[bytes, msgspec.Meta(max_length=8)] = b""  # of A; equal wherever digests are equal
    vetoes: Annotated[tuple[Veto, ...], msgspec.Meta(max_length=MAX_VETOES)] = ()  # all that the sender knows
    doubt: bool = False  # entries of others do not count at the sender: a fork may be the reason, so it asks for claims
    settle: Annotated[int, msgspec.Meta(ge=0, le=LATEST)] = 0  # step at which the last settling phase began; 0: none

    def checksum_of(self, digest: bytes) -> Checksum | None:
        """The checksum, if the sender is at `digest`."""
        return int.from_bytes(self.checksum, "little") if self.checksum and self.digest == digest else None


_decoder = msgspec.msgpack.Decoder(EntryBatch)
_encoder = msgspec.msgpack.Encoder()


def encode_deltas(deltas: EntryBatch) -> bytes:
    return _encoder.encode(deltas)


def decode_deltas(data: bytes) -> EntryBatch:
    """The batch in `data`; ValueError for anything else."""
    return decoded(_decoder, data, "exchange")


def bytes_array(data: bytes) -> npt.NDArray[np.uint8]:
    return np.frombuffer(data, np.uint8)


SNAPSHOT_BYTES = 4  # per coordinate


def question(deltas: DeltaSet, doubt: bool = False) -> EntryBatch:
    """This node's position."""
    return EntryBatch(
        deltas.log.digest(),
        encode_heads(deltas.heads),
        checksum=checksum_bytes(deltas),
        vetoes=deltas.log.vetoes,
        doubt=doubt,
    )


def agreed(deltas: DeltaSet) -> EntryBatch:
    """The reply to a partner at the same position."""
    return EntryBatch(deltas.log.digest(), checksum=checksum_bytes(deltas))


class Underway:
    """Entries that were sent to partners whose heads do not show them yet: these are not sent a second time at once.

    Two nodes often ask each other at the same time, and both would answer with the same entries. A partner that still
    lacks them when it asks again gets them: a message may have been lost.
    """

    def __init__(self) -> None:
        self._sent: dict[PeerId, dict[Chain, int]] = {}

    def take(self, partner: PeerId, heads: Mapping[Chain, int]) -> set[Chain]:
        """Chains whose latest entry is under way to the partner and need not be sent now."""
        sent = self._sent.pop(partner, {})
        return {chain for chain, seq in sent.items() if heads.get(chain) == seq}

    def note(self, partner: PeerId, batch: EntryBatch | None) -> None:
        """This batch is sent to the partner now."""
        if batch is not None and batch.entries:
            entries = [decode_entry(data) for data in batch.entries]
            put_bounded(self._sent, partner, {entry.chain: entry.seq for entry in entries}, MAX_UNDERWAY)


def push(deltas: DeltaSet, theirs: Mapping[Chain, int], underway: Container[Chain] = ()) -> EntryBatch | None:
    """The entries that a partner at `theirs` lacks, except those `underway`; None when there is none."""
    lacks = _all_that_fits(deltas, theirs, underway)
    return msgspec.structs.replace(lacks, heads=b"", behind=False, claims=()) if lacks.entries else None


def reply(deltas: DeltaSet, theirs: Mapping[Chain, int], underway: Container[Chain] = ()) -> EntryBatch:
    """This node's position and the entries they lack, except those `underway`.

    A newcomer gets no entries where a snapshot serves it better.
    """
    batch = _all_that_fits(deltas, theirs, underway)
    if not theirs and (batch.behind or _entry_bytes(deltas) > SNAPSHOT_BYTES * deltas.rules.size):
        return msgspec.structs.replace(batch, entries=(), behind=True)
    return batch


def answer_doubt(deltas: DeltaSet, theirs: Mapping[Chain, int]) -> EntryBatch:
    """The reply to a partner in doubt: what the authors that both know have signed, to find forks. No entries."""
    heads, log = deltas.heads, deltas.log
    claims = [claim for chain in heads if chain in theirs for claim in log.claims(chain)]
    return msgspec.structs.replace(_all_that_fits(deltas, theirs, heads), claims=tuple(claims[-MAX_CLAIMS:]))


def _entry_bytes(deltas: DeltaSet) -> int:
    """Roughly the size of all kept entries on the wire."""
    return sum(len(entry.payload) for entry in deltas.log)


def _all_that_fits(deltas: DeltaSet, theirs: Mapping[Chain, int], underway: Container[Chain]) -> EntryBatch:
    """The entries they lack, up to the size of a message; the rest comes next time."""
    log, heads, size = deltas.log, deltas.heads, 0
    behind = not log.can_serve(theirs)
    entries: list[bytes] = []
    for span in (span for span in missing(theirs, heads) if span.chain not in underway):
        for entry in log.entries(span):
            data = encode_entry(entry)
            size += len(data)
            if size > MAX_BODY_BYTES and entries:
                break
            entries.append(data)
    proofs = tuple(log.proofs.values())[:MAX_PROOFS]
    claims = [claim for chain in heads for claim in log.claims(chain)] if heads == theirs else []
    return EntryBatch(
        log.digest(),
        encode_heads(heads),
        tuple(entries),
        proofs,
        behind,
        tuple(claims[:MAX_CLAIMS]),
        checksum_bytes(deltas),
        log.vetoes,
    )


def checksum_bytes(deltas: DeltaSet) -> bytes:
    return deltas.checksum.to_bytes(8, "little")


def changes(deltas: DeltaSet, received: EntryBatch) -> Iterator[Change]:
    """Add a partner's batch to the set, one change after the other; ValueError for an entry that breaks the rules."""
    for proof in received.proofs:
        yield deltas.add_proof(proof)
    yield from take_vetoes(deltas, received)
    yield from _forks(deltas, received.claims)
    uncounted = []
    for data in received.entries:
        entry = decode_entry(data)
        change = deltas.add(entry)
        if change.verdict == "refused":
            raise ValueError(f"entry refused: {change.reason}")
        uncounted += [entry] if change.verdict == "uncounted" else []
        yield change
    for entry in uncounted:  # a later entry of the batch may have admitted its author
        yield deltas.add(entry)


def take_vetoes(deltas: DeltaSet, received: EntryBatch) -> Iterator[Change]:
    """Add a partner's vetoes to the set; ValueError for one that its signer did not sign."""
    for veto in received.vetoes:
        change = deltas.add_veto(veto)
        if change.verdict == "refused":
            raise ValueError(f"veto refused: {change.reason}")
        yield change


def _forks(deltas: DeltaSet, claims: tuple[EntryClaim, ...]) -> Iterator[Change]:
    """Find the author that sent different entries to us and to our partner: heads are equal, digests are not."""
    chains: dict[Chain, list[EntryClaim]] = {}
    for claim in claims:
        chains.setdefault(read_claim(claim).chain, []).append(claim)
    for chain, theirs in chains.items():
        yield deltas.compare_claims(theirs, chain)
