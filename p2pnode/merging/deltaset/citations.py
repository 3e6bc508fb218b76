"""What an entry cites: the latest entry of each other author that its author knew, a round before. Pure.

Rules on an entry that depend on other entries (bounds.py, the rate below) look only at what it cites and at its
author's entry before it. So they give the same answer everywhere, whatever arrived when: an entry waits until
everything it cites is known. An author cannot choose what to cite:

    monotone   an author cites no less than in its entry before
    closed     what a cited entry cites is cited too, or something later of the same log
    rate       an entry costs one credit; each other author that published since the entry before gives 2/n of one, n
               being the others that have published during the author's last IDLE entries. At most CREDIT are saved up.
               New logs of an author begin without credit, about one for each entry of the others

Whoever wants to overlook one honest author therefore has to overlook all of them, and cannot publish for long then.
Authors are named by five bytes of a hash; `idle` counts the own entries since an author was last seen to publish.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import lru_cache
from typing import NamedTuple

from blake3 import blake3

from ...compression.sections import SectionReader, varint
from .bounds import FEWEST
from .entry import MAX_INCARNATION

NAME_BYTES = 5
MAX_CITED = 64
IDLE = 7  # own entries after which an author that published nothing no longer counts in the rate
COST, GAIN, CREDIT, FIRST_CREDIT = 16, 32, 96, 48  # credit in sixteenths of an entry
LOGS = 8  # of an author, before the others have published anything
EARLY = 8  # entries of an author that has just begun
_MAX_SEQ = (1 << 31) - 1

Name = bytes  # of an author


class Citation(NamedTuple):
    """The latest known entry of one author."""

    incarnation: int
    seq: int
    idle: int = 0
    opinion: int = 0  # of the citing author about the cited one

    @property
    def place(self) -> tuple[int, int]:
        return self.incarnation, self.seq


Citations = Mapping[Name, Citation]


@lru_cache(maxsize=4096)
def name_of(peer: str) -> Name:
    """The short name of an author."""
    return blake3(b"p2pnode author 1\0" + peer.encode()).digest(NAME_BYTES)


def encode_citations(cited: Citations) -> bytes:
    """By name: name, a byte of opinion, idle and whether it is a later incarnation, that, and the number."""
    parts = []
    for name, one in sorted(cited.items()):
        later = one.incarnation > 0
        parts += [name, bytes([one.opinion << 4 | one.idle << 1 | later])]
        parts += [varint(one.incarnation)] * later + [varint(one.seq)]
    return b"".join(parts)


@lru_cache(maxsize=1024)
def decode_citations(data: bytes) -> Citations:
    """The citations in `data`; ValueError when it is anything else."""
    reader = SectionReader(data)
    cited: dict[Name, Citation] = {}
    last = b""
    while reader.left:
        name, (flags,) = reader.take(NAME_BYTES), reader.take(1)
        incarnation = reader.varint() if flags & 1 else 0
        seq, idle, opinion = reader.varint(), flags >> 1 & 7, flags >> 4
        ordered = name > last and bool(incarnation) == bool(flags & 1)
        if not ordered or incarnation > MAX_INCARNATION or not 1 <= seq <= _MAX_SEQ or opinion > 3:
            raise ValueError("citations out of order or out of range")
        if len(cited) == MAX_CITED:
            raise ValueError(f"more than {MAX_CITED} citations")
        cited[name], last = Citation(incarnation, seq, idle, opinion), name
    return cited


def cite(places: Mapping[Name, tuple[int, int]], before: Citations | None) -> dict[Name, Citation]:
    """Citations of the entries at `places`, and of what the own entry `before` cited that is not there now."""
    before = before or {}
    cited = {}
    for name, (incarnation, seq) in places.items():
        earlier = before.get(name)
        if earlier is not None and earlier.place >= (incarnation, seq):
            cited[name] = earlier._replace(idle=min(IDLE, earlier.idle + 1))
        else:
            cited[name] = Citation(incarnation, seq)
    return cited


def credit_after(cited: Citations, before: Citations | None, credit: int) -> int:
    """The credit that is left after an entry; negative when there is none for it. First entries have no `before`.

    For first entries `credit` is the number of the log: the author's first one begins with some credit, later ones
    with none, and their number is limited by how much the others have published.
    """
    if before is None:
        seqs = sorted(one.seq for one in cited.values())
        allowed = len(seqs) < FEWEST or credit <= LOGS + seqs[len(seqs) // 2]
        return (0 if credit else FIRST_CREDIT) if allowed else -COST
    active = [name for name, one in cited.items() if one.idle < IDLE]
    if len(cited) < FEWEST:
        return credit
    published = sum(cited[name].idle == 0 for name in active)
    return min(CREDIT, credit + GAIN * published // max(1, len(active))) - COST


def check_sequel(cited: Citations, before: Citations, excluded: Collection[Name]) -> str:
    """What is wrong with citations after those of the author's entry before, or ""."""
    for name, earlier in before.items():
        if name in excluded:
            continue
        now = cited.get(name)
        if now is None or now.place < earlier.place:
            return "it cites less than its author's entry before"
        if now.idle != (min(IDLE, earlier.idle + 1) if now.place == earlier.place else 0):
            return "it counts wrongly for how long an author was silent"
    if any(one.idle for name, one in cited.items() if name not in before):
        return "it counts wrongly for how long an author was silent"
    return ""


def check_closed(cited: Citations, others: Collection[Citations], own: Name, excluded: Collection[Name]) -> str:
    """Whether something that the cited entries cite is missing, or ""."""
    for other in others:
        for name, one in other.items():
            mine = cited.get(name)
            if name != own and name not in excluded and (mine is None or mine.place < one.place):
                return "it overlooks entries that those it cites knew"
    return ""


def is_early(cited: Citations) -> bool:
    """Whether most of the cited authors had just begun."""
    seqs = sorted(one.seq for one in cited.values())
    return len(seqs) < FEWEST or seqs[len(seqs) // 2] < EARLY
