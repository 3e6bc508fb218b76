"""Entries: published deltas, chained by hash and signed by their author; and the rules that decide whether one counts.

Whether and how strongly an entry counts depends only on the entry, the run's rules and published exclusions, never on
who receives it or when: otherwise sets with equal heads would differ. What an author signs is a *claim*: the entry
with its payload replaced by the payload's hash. Claims are small, and two of them can prove fraud (`ForkProof`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Annotated, NamedTuple

import msgspec
from blake3 import blake3

from ...compression.codec import decode_delta
from ...compression.delta import SparseDelta
from ...compression.selector import MAX_HINT_BYTES
from ...compression.signs import decode_signs, is_signs
from ...compression.weights import Units, norm_squared
from ...wire.ids import Identity, signed_by
from ...wire.types import HASH_BYTES, Count, Hash, HashOrNothing, PeerText, Signature, decoded

NO_HASH = bytes(HASH_BYTES)
MARK_BYTES = 16
UPDATE, BRIDGE, UNION = 0, 1, 2  # kinds: local progress; a step towards another circle; a circle that joins
MAX_INCARNATION = 1023
MAX_CITED_BYTES = 64 * 13
MAX_DENSITY = 0.1  # share of the coordinates that an entry may carry, unless the run says more
_DOMAIN = b"p2pnode entry 1\0"

ModelText = Annotated[str, msgspec.Meta(max_length=40)]


class Chain(NamedTuple):
    """One author's log in a lineage; a new incarnation is a new chain."""

    peer: str
    incarnation: int


class EntryFacts(msgspec.Struct, frozen=True, array_like=True):
    """What the author reports about the round behind an entry. It is shown, never trusted."""

    loss: float = 0.0
    samples: Count = 0
    update_norm: float = 0.0  # of the round's progress, relative to the weights
    round: Count = 0


class Mark(msgspec.Struct, frozen=True, array_like=True):
    """Heads in short: a digest that identifies them, and how many entries they cover."""

    digest: Annotated[bytes, msgspec.Meta(max_length=MARK_BYTES)] = b""
    entries: Count = 0


class Entry(msgspec.Struct, frozen=True, array_like=True):
    """One published delta. `seq` counts from 1; `previous` is the id of the author's entry before, zeros for the first.

    The values in `payload` are final: γ, 1/G and the author's own discount for staleness are already in them. Staleness
    is `published.entries - trained.entries`: how many entries came in while the author trained.
    """

    lineage: Hash
    model: ModelText
    peer: PeerText
    incarnation: Annotated[int, msgspec.Meta(ge=0, le=MAX_INCARNATION)]
    seq: Annotated[int, msgspec.Meta(ge=1, lt=1 << 31)]
    previous: Hash
    kind: Annotated[int, msgspec.Meta(ge=UPDATE, le=UNION)] = UPDATE
    other: HashOrNothing = b""  # the lineage a bridge or a union is with
    trained: Mark = Mark()
    published: Mark = Mark()
    steps: Count = 0  # K, local steps
    group: Count = 1  # G, active authors in the author's view
    gamma: float = 1.0
    discount: float = 1.0  # for staleness
    facts: EntryFacts = EntryFacts()
    payload: bytes = b""
    signature: Signature = b""
    cited: Annotated[bytes, msgspec.Meta(max_length=MAX_CITED_BYTES)] = b""  # of the others (citations.py)
    credit: Annotated[int, msgspec.Meta(ge=0, le=255)] = 0  # left after this entry
    admits: Annotated[bytes, msgspec.Meta(max_length=256)] = b""  # newcomers (admission.py)
    hint: Annotated[bytes, msgspec.Meta(max_length=MAX_HINT_BYTES)] = b""  # of the author's selector, for others'

    @property
    def chain(self) -> Chain:
        return Chain(self.peer, self.incarnation)


class EntryClaim(msgspec.Struct, frozen=True, array_like=True):
    """What an author signed: an entry with its payload replaced by the payload's hash, as bytes."""

    content: Annotated[bytes, msgspec.Meta(max_length=2048)]
    signature: Signature


@dataclass(frozen=True)
class SetRules:
    """The bounds on entries that follow from the manifest; the same for every member."""

    model: str
    lineage: bytes
    size: int
    layout_hash: str
    max_norm_units: int  # of one update or bridge
    max_union_norm_units: int
    max_entries: int  # coordinates in one update or bridge
    max_entry_bytes: int
    gamma_min: float = 0.0
    gamma_max: float = 4.0
    max_steps: int = 10_000
    max_group: int = 64
    layers: tuple[int, ...] = ()  # sizes of the model's layers; none: entries are bounded by the manifest only
    moderators: tuple[str, ...] = ()  # whose veto excludes an author alone (vetoes.py)
    roots: tuple[str, ...] = ()  # authors that need no admission (admission.py); none: nobody needs it


def rules_for(
    model: str,
    lineage: bytes,
    layout_hash: str,
    genesis: Units,
    norm_ratio: float = 0.5,
    max_density: float = MAX_DENSITY,
    gamma_max: float = 4.0,
    layers: tuple[int, ...] = (),
    roots: tuple[str, ...] = (),
) -> SetRules:
    """Rules for a lineage that began at `genesis`: one update is bounded by `norm_ratio` of the genesis norm.

    A union may move as far as twice the genesis norm. An entry's bytes are bounded by 6 per coordinate it may have.
    """
    norm, size = math.isqrt(norm_squared(genesis)), len(genesis)
    max_entries = max(1, math.ceil(size * max_density))
    return SetRules(
        model=model,
        lineage=lineage,
        size=size,
        layout_hash=layout_hash,
        max_norm_units=max(1, int(norm * norm_ratio)),
        max_union_norm_units=max(1, 2 * norm),
        max_entries=max_entries,
        max_entry_bytes=6 * max_entries + 4096,
        gamma_max=gamma_max,
        layers=layers,
        roots=roots,
    )


_decoder = msgspec.msgpack.Decoder(Entry)
_encoder = msgspec.msgpack.Encoder()


def encode_entry(entry: Entry) -> bytes:
    """An entry as bytes; the hint, which few selectors give, takes none where it is empty."""
    return _encoder.encode(entry if entry.hint else msgspec.structs.astuple(entry)[:-1])


def decode_entry(data: bytes) -> Entry:
    """The entry in `data`, of the right types and bounds; ValueError otherwise. The caller has bounded `data`."""
    return decoded(_decoder, data, "entry")


def claim_of(entry: Entry) -> EntryClaim:
    """The small, signed part of an entry."""
    return EntryClaim(_content(entry), entry.signature)


def read_claim(claim: EntryClaim) -> Entry:
    """The entry a claim is about, with the payload's hash for its payload; ValueError when it is malformed."""
    if not claim.content.startswith(_DOMAIN):
        raise ValueError("not a claim")
    return decoded(_decoder, claim.content[len(_DOMAIN) :], "entry")


def claim_id(claim: EntryClaim) -> bytes:
    return blake3(claim.content).digest()


def entry_id(entry: Entry) -> bytes:
    """What the author's next entry names as `previous`: blake3 of the claim's content."""
    return blake3(_content(entry)).digest()


def sign_entry(identity: Identity, entry: Entry) -> Entry:
    """The entry signed by its author: `peer` and `signature` are filled in."""
    own = msgspec.structs.replace(entry, peer=identity.peer_id, signature=b"")
    return msgspec.structs.replace(own, signature=identity.sign(_content(own)))


def check_entry(entry: Entry, rules: SetRules) -> str:
    """The first rule an entry breaks, or "" when it may count. Cheap rules come before signature and payload."""
    reason = _check_fields(entry, rules)
    if reason:
        return reason
    if not signed_by(entry.peer, _content(entry), entry.signature):
        return "signature is not valid"
    try:
        delta = delta_of(entry, rules)
    except ValueError as error:
        return f"payload: {error}"
    bound = rules.max_union_norm_units if entry.kind == UNION else rules.max_norm_units
    if norm_squared(delta.values) > bound * bound:
        return f"its norm is beyond {bound} units"
    return ""


def _check_fields(entry: Entry, rules: SetRules) -> str:
    facts = entry.facts
    numbers = (facts.loss, facts.update_norm)
    max_bytes = max_payload_bytes(entry, rules)
    broken = (
        (entry.lineage != rules.lineage or entry.model != rules.model, "another lineage or model"),
        (len(entry.payload) > max_bytes, f"payload over {max_bytes} bytes"),
        (not rules.gamma_min <= entry.gamma <= rules.gamma_max, f"gamma {entry.gamma} is out of range"),
        (not 0.0 < entry.discount <= 1.0, f"discount {entry.discount} is out of range"),
        (not 1 <= entry.group <= rules.max_group, f"a circle of {entry.group}"),
        (entry.steps > rules.max_steps, f"{entry.steps} steps in one round"),
        (not all(map(math.isfinite, numbers)), "facts are not finite numbers"),
        (entry.kind != UPDATE and len(entry.other) != HASH_BYTES, "does not name the lineage it is with"),
        ((entry.seq == 1) != (entry.previous == NO_HASH), "only the first entry has no previous one"),
    )
    return next((reason for wrong, reason in broken if wrong), "")


def max_payload_bytes(entry: Entry, rules: SetRules) -> int:
    """The largest payload. A union has all coordinates at four bits: with levels and headers under a byte each."""
    return rules.size + 4096 if entry.kind == UNION else rules.max_entry_bytes


def delta_of(entry: Entry, rules: SetRules) -> SparseDelta:
    """What an entry adds to the weights; ValueError when the payload is not a delta of this model."""
    if is_signs(entry.payload):
        return _decode_signs(entry.payload, rules.size)
    max_entries = rules.size if entry.kind == UNION else rules.max_entries
    decode = _decode_small if max_entries <= _SMALL else _decode_large
    return decode(entry.payload, rules.size, max_entries)


# An entry is checked and then applied, and in a simulation all nodes read the same ones: the results are cached.
_SMALL = 1 << 19
_decode_small = lru_cache(maxsize=32)(decode_delta)
_decode_large = lru_cache(maxsize=2)(decode_delta)
_decode_signs = lru_cache(maxsize=2)(decode_signs)


def _content(entry: Entry) -> bytes:
    hashed = blake3(entry.payload).digest()
    return _DOMAIN + encode_entry(msgspec.structs.replace(entry, payload=hashed, signature=b""))


class ForkProof(msgspec.Struct, frozen=True, array_like=True):
    """Two claims by one author in one chain that cannot both be honest.

    Either they have the same seq and differ, or the second comes right after the first and names another entry as the
    previous one. Anybody can check the proof, and everybody draws the same conclusion.
    """

    first: EntryClaim
    second: EntryClaim


def prove(first: Entry, second: Entry) -> ForkProof:
    """The proof that two entries contradict each other."""
    return ForkProof(claim_of(first), claim_of(second))


def read_proof(proof: ForkProof, rules: SetRules) -> tuple[Chain, int]:
    """The chain a proof is about and the seq from which it is excluded; ValueError when it proves nothing."""
    first, second = read_claim(proof.first), read_claim(proof.second)
    if first.chain != second.chain:
        raise ValueError("claims of different chains")
    for entry in (first, second):
        if entry.lineage != rules.lineage or entry.model != rules.model:
            raise ValueError("claims of another lineage or model")
    for claim in (proof.first, proof.second):
        if not signed_by(first.peer, claim.content, claim.signature):
            raise ValueError("a claim's signature is not valid")
    if first.seq == second.seq and claim_id(proof.first) != claim_id(proof.second):
        return first.chain, first.seq
    if second.seq == first.seq + 1 and second.previous != claim_id(proof.first):
        return first.chain, second.seq
    raise ValueError("the claims do not contradict each other")
