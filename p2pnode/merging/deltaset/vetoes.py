"""People exclude an author: signed vetoes, and what follows from them. Pure.

Everybody may sign a veto against an author, and withdraw it with a later one. An author is excluded by the veto of one
moderator that the manifest names, or by those of more than half of the other authors. Its entries no longer count from
a number on that the veto names: its last REACH entries are taken out, which every node still keeps. Nothing depends on
when a veto arrives: the latest of each signer against each author counts, and `excluded` is a function of those.
A veto holds in the circle it was signed in.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated

import msgspec

from ...wire.ids import Identity, signed_by
from ...wire.types import MAX_REASON, Count, Hash, PeerText, Signature, decoded
from .entry import Chain, ModelText, SetRules
from .heads import Heads

REACH = 32  # entries that a veto takes out; every node keeps twice as many
MAX_VETOES = 128
_DOMAIN = b"p2pnode veto 1\0"


class LogCut(msgspec.Struct, frozen=True, array_like=True):
    """The entry from which on a log no longer counts. Logs that a veto does not name do not count at all."""

    incarnation: Annotated[int, msgspec.Meta(ge=0, le=1023)]
    first: Annotated[int, msgspec.Meta(ge=2, lt=1 << 31)]


class Veto(msgspec.Struct, frozen=True, array_like=True):
    """What one signer wants of one author; of several by one signer against one author the highest number counts."""

    lineage: Hash
    model: ModelText
    author: PeerText
    signer: PeerText
    number: Count
    active: bool
    cuts: Annotated[tuple[LogCut, ...], msgspec.Meta(max_length=64)] = ()
    reason: Annotated[str, msgspec.Meta(max_length=MAX_REASON)] = ""
    signature: Signature = b""


Vetoes = Mapping[tuple[str, str], Veto]  # by signer and author
_decoder = msgspec.msgpack.Decoder(Annotated[tuple[Veto, ...], msgspec.Meta(max_length=MAX_VETOES)])


@dataclass(frozen=True)
class VetoCount:
    """How things stand with the vetoes against an author."""

    signed: int
    needed: int  # where no moderator signed one
    excluded: bool
    reasons: tuple[str, ...]


def encode_vetoes(vetoes: Iterable[Veto]) -> bytes:
    """Canonical bytes: the same vetoes, the same bytes; nothing for none."""
    ordered = sorted(vetoes, key=lambda veto: (veto.signer, veto.author))
    return msgspec.msgpack.encode(ordered) if ordered else b""


def decode_vetoes(data: bytes) -> tuple[Veto, ...]:
    """The vetoes in `data`; ValueError when it is anything else."""
    return decoded(_decoder, data, "vetoes") if data else ()


def sign_veto(identity: Identity, veto: Veto) -> Veto:
    own = msgspec.structs.replace(veto, signer=identity.peer_id, signature=b"")
    return msgspec.structs.replace(own, signature=identity.sign(_content(own)))


def check_veto(veto: Veto, rules: SetRules) -> str:
    """Why a veto is not valid here, or ""."""
    if veto.lineage != rules.lineage or veto.model != rules.model:
        return "a veto of another circle"
    if veto.signer == veto.author:
        return "a veto against oneself"
    return "" if signed_by(veto.signer, _content(veto), veto.signature) else "a veto that its signer did not sign"


def _content(veto: Veto) -> bytes:
    return _DOMAIN + msgspec.msgpack.encode(msgspec.structs.replace(veto, signature=b""))


def cuts_at(author: str, heads: Heads) -> tuple[LogCut, ...]:
    """The cuts of a veto that is signed now: the last REACH entries of each of an author's logs.

    The first entry of a log always stays: so it is known everywhere who is an author, and may sign vetoes.
    """
    logs = [(chain.incarnation, seq) for chain, seq in sorted(heads.items()) if chain.peer == author]
    return tuple(LogCut(incarnation, max(2, seq - REACH + 1)) for incarnation, seq in logs[-64:])


def is_later(veto: Veto, known: Veto | None) -> bool:
    """Whether a veto replaces a known one of the same signer against the same author."""
    return known is None or (veto.number, veto.signature) > (known.number, known.signature)


def excluded(vetoes: Vetoes, moderators: Collection[str], authors: Collection[str]) -> dict[str, dict[int, int]]:
    """The excluded authors: for each the first entry that does not count, by incarnation."""
    found: dict[str, dict[int, int]] = {}
    for author in {veto.author for veto in vetoes.values() if veto.active}:
        active = [veto for veto in vetoes.values() if veto.author == author and veto.active]
        signers = {veto.signer for veto in active}
        if signers & set(moderators) or len(signers & set(authors)) > needed(author, authors):
            cuts = found.setdefault(author, {})
            for cut in (cut for veto in active for cut in veto.cuts):
                cuts[cut.incarnation] = min(cut.first, cuts.get(cut.incarnation, cut.first))
    return found


def needed(author: str, authors: Collection[str]) -> int:
    """The number of vetoes of authors that does not suffice yet: half of the others."""
    return len(set(authors) - {author}) // 2


def cut_of(chain: Chain, found: Mapping[str, Mapping[int, int]]) -> int | None:
    """The first entry of a chain that does not count; None where all do."""
    return None if chain.peer not in found else found[chain.peer].get(chain.incarnation, 1)
