"""The entries of one lineage: the chain of every author, in order, each entry checked once.

An entry counts when it follows its author's previous one. An entry that comes early waits, within a bound. An entry
that contradicts a known one proves a fork, and everybody who sees the proof excludes the chain from there on. An entry
that breaks the rules ends its chain. `EntrySet` only keeps entries; `DeltaSet` (set.py) adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

from blake3 import blake3

from .admission import MAX_AUTHORS, decode_admitted, may_admit
from .bounds import NO_LIMITS, Limits, Sizes, limits_from, sizes_of
from .citations import (
    Citation,
    Citations,
    Name,
    check_closed,
    check_sequel,
    cite,
    credit_after,
    decode_citations,
    is_early,
    name_of,
)
from .entry import (
    MARK_BYTES,
    NO_HASH,
    Chain,
    Entry,
    EntryClaim,
    ForkProof,
    SetRules,
    check_entry,
    claim_id,
    claim_of,
    delta_of,
    entry_id,
    prove,
    read_claim,
    read_proof,
)
from .heads import MAX_CHAINS, Heads, Span, covered_by, encode_heads
from .vetoes import MAX_VETOES, Veto, VetoCount, check_veto, cut_of, encode_vetoes, excluded, is_later, needed

MAX_WAITING = 256
MAX_WAITING_BYTES = 16 << 20


class Waiting:
    """Early entries by chain and seq. When full, those furthest ahead are dropped: they can be asked for again."""

    def __init__(self, most: int = MAX_WAITING, most_bytes: int = MAX_WAITING_BYTES) -> None:
        self._entries: dict[Chain, dict[int, Entry]] = {}
        self._most, self._most_bytes = most, most_bytes
        self._count = self._bytes = 0

    def __len__(self) -> int:
        return self._count

    def get(self, chain: Chain, seq: int) -> Entry | None:
        return self._entries.get(chain, {}).get(seq)

    def put(self, entry: Entry) -> None:
        self.take(entry.chain, entry.seq)
        self._entries.setdefault(entry.chain, {})[entry.seq] = entry
        self._count += 1
        self._bytes += len(entry.payload)
        while self._count > self._most or self._bytes > self._most_bytes:
            self.take(*self._furthest())

    def take(self, chain: Chain, seq: int) -> None:
        """Remove an entry, if it is there."""
        of_chain = self._entries.get(chain, {})
        entry = of_chain.pop(seq, None)
        if entry is None:
            return
        self._count -= 1
        self._bytes -= len(entry.payload)
        if not of_chain:
            del self._entries[chain]

    def cut(self, chain: Chain, first: int) -> None:
        """Remove a chain's entries from seq `first` on."""
        for seq in [seq for seq in self._entries.get(chain, {}) if seq >= first]:
            self.take(chain, seq)

    def chains(self) -> list[Chain]:
        """The chains that have waiting entries."""
        return list(self._entries)

    def _furthest(self) -> tuple[Chain, int]:
        """The last entry of the chain with most waiting entries."""
        chain = max(self._entries, key=lambda chain: (len(self._entries[chain]), chain))
        return chain, max(self._entries[chain])


# `uncounted`: it breaks a rule by what it cites; `unjudged`: what it cites is no longer kept here.
EntryVerdict = Literal["added", "known", "gap", "fork", "excluded", "refused", "uncounted", "unjudged", "veto"]


_COUNTS: tuple[EntryVerdict, str] = ("added", "")


@dataclass(frozen=True)
class Change:
    """What happened to an entry or a proof, and which entries count from now on, or no longer."""

    verdict: EntryVerdict
    reason: str = ""
    added: tuple[Entry, ...] = ()
    removed: tuple[Entry, ...] = ()
    proof: ForkProof | None = None


@dataclass
class _Log:
    """One chain: entries 1 to `dropped` are dropped (only the id of the last is known); the later ones are kept."""

    dropped: int = 0
    dropped_id: bytes = NO_HASH
    entries: list[Entry] = field(default_factory=list)
    ids: list[bytes] = field(default_factory=list)
    sizes: dict[int, Sizes] = field(default_factory=dict)  # by seq, of entries that were cited

    @property
    def head(self) -> int:
        return self.dropped + len(self.entries)

    @property
    def tip(self) -> bytes:
        return self.ids[-1] if self.ids else self.dropped_id

    def append(self, entry: Entry, own_id: bytes) -> None:
        self.entries.append(entry)
        self.ids.append(own_id)

    def cut(self, first: int) -> list[Entry]:
        """Remove and return the entries from seq `first` on."""
        keep = max(0, first - 1 - self.dropped)
        gone = self.entries[keep:]
        del self.entries[keep:], self.ids[keep:]
        self.sizes = {seq: sizes for seq, sizes in self.sizes.items() if seq < first}
        return gone

    def drop(self, last: int) -> int:
        """Drop the entries up to seq `last`; returns how many."""
        count = max(0, min(last, self.head) - self.dropped)
        if count:
            self.dropped_id = self.ids[count - 1]
            self.dropped += count
            del self.entries[:count], self.ids[:count]
            self.sizes = {seq: sizes for seq, sizes in self.sizes.items() if seq > self.dropped}
        return count


def digest_of(heads: Heads, tips: Mapping[Chain, bytes], exclusions: Heads, vetoes: bytes) -> bytes:
    """16 bytes that identify the entries of a set. Tips are included, since equal heads may hide a fork."""
    ordered = b"".join(tips[chain] for chain in sorted(tips))
    return blake3(encode_heads(heads) + ordered + encode_heads(exclusions) + vetoes).digest(MARK_BYTES)


class EntrySet:
    """All chains of a lineage. Law: the same entries and proofs give the same set, in any order and however often."""

    def __init__(self, rules: SetRules) -> None:
        self.rules = rules
        self._logs: dict[Chain, _Log] = {}
        self._waiting = Waiting()
        self._exclusions: dict[Chain, int] = {}
        self._proofs: dict[Chain, ForkProof] = {}
        self._vetoes: dict[tuple[str, str], Veto] = {}
        self._vetoed: dict[str, dict[int, int]] = {}  # excluded authors: what does not count, by incarnation
        self._peers: dict[Name, str] = {}  # authors by their short names
        self._admitted: dict[str, set[Span]] = {}  # newcomers, and the entries that admitted them

    # ---- reading ----

    @property
    def heads(self) -> dict[Chain, int]:
        """Each chain's newest entry that counts."""
        return {chain: log.head for chain, log in self._logs.items() if log.head}

    @property
    def tips(self) -> dict[Chain, bytes]:
        """The ids of the heads; through the chain of hashes they stand for everything before."""
        return {chain: log.tip for chain, log in self._logs.items() if log.head}

    @property
    def exclusions(self) -> dict[Chain, int]:
        """From which seq on a chain is left out after a fork."""
        return dict(self._exclusions)

    @property
    def vetoes(self) -> tuple[Veto, ...]:
        """The latest veto of each signer against each author."""
        return tuple(self._vetoes[key] for key in sorted(self._vetoes))

    @property
    def excluded(self) -> set[str]:
        """The authors that vetoes exclude."""
        return set(self._vetoed)

    @property
    def proofs(self) -> dict[Chain, ForkProof]:
        """The proofs behind the exclusions, to be passed on."""
        return dict(self._proofs)

    @property
    def waiting(self) -> int:
        """How many early entries are kept."""
        return len(self._waiting)

    def digest(self) -> bytes:
        """16 bytes that two nodes compare first: equal digests mean the same entries and exclusions, forks and all."""
        return digest_of(self.heads, self.tips, self._exclusions, encode_vetoes(self._vetoes.values()))

    def next_place(self, chain: Chain) -> tuple[int, bytes]:
        """Seq and `previous` of the entry that would continue a chain."""
        log = self._logs.get(chain, _Log())
        return log.head + 1, log.tip

    def can_go_on(self, chain: Chain) -> bool:
        """Whether a chain may be continued: it is not excluded, and the entry that the next one follows is kept."""
        head = self._head(chain)
        return chain not in self._exclusions and (not head or not self.rules.layers or head > self._dropped(chain))

    def dropped(self) -> dict[Chain, int]:
        """Up to which seq each chain's entries are no longer kept."""
        return {chain: log.dropped for chain, log in self._logs.items() if log.dropped}

    def entries(self, span: Span) -> list[Entry]:
        """The entries of a span that are still kept, in order."""
        log = self._logs.get(span.chain)
        if log is None:
            return []
        first = max(0, span.first - 1 - log.dropped)
        return log.entries[first : max(0, span.last - log.dropped)]

    def __iter__(self) -> Iterator[Entry]:
        """Every kept entry, chain by chain, in order."""
        for chain in sorted(self._logs):
            yield from self._logs[chain].entries

    def can_serve(self, heads: Heads) -> bool:
        """Whether the entries kept here can bring a node at `heads` up to date; otherwise it needs a snapshot."""
        return all(heads.get(chain, 0) >= log.dropped for chain, log in self._logs.items())

    def claims(self, chain: Chain) -> list[EntryClaim]:
        """The claims of a chain's kept entries: what two nodes of equal heads compare when their digests differ."""
        return [claim_of(entry) for entry in self._logs.get(chain, _Log()).entries]

    # ---- adding ----

    def add(self, entry: Entry, judged: bool = False) -> Change:
        """Add an entry, which may come from anybody at any time.

        `judged` says that it is one of our own, which counted before a restart.
        """
        chain, seq, own_id = entry.chain, entry.seq, entry_id(entry)
        known = self._known_id(chain, seq)
        if known == own_id or (known is None and seq <= self._dropped(chain)):
            return Change("known")
        if self._is_excluded(chain, seq):
            return Change("excluded", "its author is excluded, or its chain from an earlier entry on, after a fork")
        reason = check_entry(entry, self.rules)
        if reason:
            return Change("refused", reason)
        if chain not in self._logs and len(self._logs) >= MAX_CHAINS:
            return Change("refused", f"more than {MAX_CHAINS} chains")
        rival = self._rival(entry, own_id)
        if rival is not None:
            return self._exclude(chain, seq, prove(*rival))
        if seq > self._head(chain) + 1:
            self._waiting.put(entry)
            return Change("gap", f"{seq - self._head(chain) - 1} entries before it are missing")
        return self._continue(entry, own_id, judged)

    def add_proof(self, proof: ForkProof) -> Change:
        """Add a proof of a fork, from anybody."""
        try:
            chain, seq = read_proof(proof, self.rules)
        except ValueError as error:
            return Change("refused", f"proof: {error}")
        return self._exclude(chain, seq, proof)

    def add_veto(self, veto: Veto) -> Change:
        """Add a veto, from anybody. Those of strangers, neither moderators nor authors, change nothing."""
        reason = check_veto(veto, self.rules)
        if reason:
            return Change("refused", reason)
        known = veto.signer in (*self.rules.moderators, *self._authors())
        key = (veto.signer, veto.author)
        full = key not in self._vetoes and len(self._vetoes) >= MAX_VETOES
        if not known or full or not is_later(veto, self._vetoes.get(key)):
            return Change("known")
        self._vetoes[key] = veto
        return self._apply_vetoes()

    def veto_of(self, signer: str, author: str) -> Veto | None:
        return self._vetoes.get((signer, author))

    def count_vetoes(self, author: str) -> VetoCount:
        """How things stand with the vetoes against an author."""
        active = [veto for veto in self._vetoes.values() if veto.author == author and veto.active]
        reasons = tuple(veto.reason for veto in active if veto.reason)
        return VetoCount(len(active), needed(author, self._authors()) + 1, author in self._vetoed, reasons)

    def _apply_vetoes(self) -> Change:
        """Take out what vetoes exclude. What is let in again comes from its author."""
        self._count_vetoes()
        self._peers |= {name_of(peer): peer for peer in self._vetoed}
        removed: list[Entry] = []
        for chain, log in self._logs.items():
            first = cut_of(chain, self._vetoed)
            if first is not None:
                removed += log.cut(max(first, log.dropped + 1))
                self._waiting.cut(chain, first)
        return Change("veto", removed=tuple(removed))

    def _count_vetoes(self) -> None:
        self._vetoed = excluded(self._vetoes, self.rules.moderators, self._authors())

    def _authors(self) -> set[str]:
        return {chain.peer for chain, log in self._logs.items() if log.head}

    def _is_excluded(self, chain: Chain, seq: int) -> bool:
        vetoed = cut_of(chain, self._vetoed)
        return seq >= self._exclusions.get(chain, seq + 1) or (vetoed is not None and seq >= vetoed)

    def compare_claims(self, claims: list[EntryClaim], chain: Chain) -> Change:
        """Look for the earliest fork between a peer's claims about a chain and ours (see `claims`)."""
        theirs = {read_claim(claim).seq: claim for claim in claims}
        for entry, own_id in zip(self.entries(Span(chain, 1, self._head(chain))), self._ids(chain), strict=True):
            claim = theirs.get(entry.seq)
            if claim is not None and claim_id(claim) != own_id:
                change = self.add_proof(ForkProof(claim_of(entry), claim))
                if change.verdict == "fork":
                    return change
        return Change("known")

    def _rival(self, entry: Entry, own_id: bytes) -> tuple[Entry, Entry] | None:
        """A known entry that this one contradicts, together with this one."""
        same_seq = self._kept(entry.chain, entry.seq) or self._waiting.get(entry.chain, entry.seq)
        if same_seq is not None and entry_id(same_seq) != own_id:
            return same_seq, entry
        before = self._kept(entry.chain, entry.seq - 1)
        if before is not None and entry_id(before) != entry.previous:
            return before, entry
        return None

    def _continue(self, entry: Entry, own_id: bytes, judged: bool) -> Change:
        """Append the next entry, and the waiting ones that follow from it."""
        if entry.previous != self.next_place(entry.chain)[1]:
            return Change("refused", "does not follow the entry before it")
        verdict, reason = _COUNTS if judged else self._judge(entry)
        if verdict == "gap":
            self._waiting.put(entry)
        if verdict != "added":
            return Change(verdict, reason)
        self._append(entry, own_id)
        return self._settle([entry])

    def _append(self, entry: Entry, own_id: bytes) -> None:
        self._logs.setdefault(entry.chain, _Log()).append(entry, own_id)
        if name_of(entry.peer) not in self._peers:
            self._peers[name_of(entry.peer)] = entry.peer
            self._count_vetoes()
        self._note_admitted(entry)

    def _note_admitted(self, entry: Entry) -> None:
        for peer in decode_admitted(entry.admits):
            self._admitted.setdefault(peer, set()).add(Span(entry.chain, entry.seq, entry.seq))

    def _settle(self, added: list[Entry]) -> Change:
        """Append the waiting entries that nothing keeps any longer."""
        count = 0
        while len(added) > count:
            count = len(added)
            for chain in self._waiting.chains():
                found = self._take_waiting(chain, added)
                if found is not None:
                    return Change("fork", found.reason, tuple(added), found.removed, found.proof)
        return Change("added", added=tuple(added))

    def _take_waiting(self, chain: Chain, added: list[Entry]) -> Change | None:
        """Append what waits of a chain, as far as possible; the exclusion, if an entry contradicts the one before."""
        while (follower := self._waiting.get(chain, self._head(chain) + 1)) is not None:
            before = self._kept(chain, follower.seq - 1)
            if before is not None and follower.previous != entry_id(before):
                return self._exclude(chain, follower.seq, prove(before, follower))
            verdict, _ = self._judge(follower)
            if verdict == "gap":
                break
            self._waiting.take(chain, follower.seq)
            if verdict != "added" or follower.previous != self.next_place(chain)[1]:
                break
            self._append(follower, entry_id(follower))
            added.append(follower)
        return None

    # ---- rules about what an entry cites ----

    def _judge(self, entry: Entry) -> tuple[EntryVerdict, str]:
        """Whether the next entry of a chain counts, judged by what it cites and by the entry before it."""
        if not self.rules.layers:
            return _COUNTS
        before = self._kept(entry.chain, entry.seq - 1)
        if before is None and entry.seq > 1:
            return "unjudged", "its author's entry before is no longer kept here"
        try:
            cited = decode_citations(entry.cited)
        except ValueError as error:
            return "uncounted", str(error)
        verdict, reason, found = self._look_up(cited)
        if verdict != "added":
            return verdict, reason
        if before is None and not (self.admits(entry.peer) and self._knows_admission(entry, cited)):
            return "uncounted", "its author is not admitted yet, or cites less than those who admitted it"
        reason = self._check_citations(entry, cited, before, found) or self._check_admitted(entry)
        if not reason:
            limits = limits_from([self._sizes(one) for one in found.values()], len(self.rules.layers))
            reason = "" if limits is NO_LIMITS else limits.broken_by(_sizes_of(entry, self.rules))
        return ("uncounted", reason) if reason else _COUNTS

    def admits(self, peer: str) -> bool:
        """Whether a peer may be an author here."""
        if peer in self._vetoed:
            return False
        return self.is_author(peer) or peer in self._authors()

    def _knows_admission(self, entry: Entry, cited: Citations) -> bool:
        """Whether a first entry cites one that admitted its author, and what that cites; so it cannot cite nothing.

        Admissions of a run's first rounds, or that are no longer kept, require nothing.
        """
        own, excluded, kept = name_of(entry.peer), self._excluded_names(), False
        for span in self._admitted.get(entry.peer, ()):
            for admission in self.entries(span):
                kept, admitter = True, name_of(admission.peer)
                place = {admitter: Citation(admission.incarnation, admission.seq)}
                known = decode_citations(admission.cited)
                if is_early(known) or not check_closed(cited, [known, place], own, excluded):
                    return True
        return not kept

    def may_admit(self, chain: Chain) -> int:
        """How many newcomers the next entry of a chain may admit."""
        if not self.rules.roots or len(self._authors()) >= MAX_AUTHORS:
            return 0
        return may_admit(chain.peer, self._head(chain) + 1, self.rules.roots)

    def is_author(self, peer: str) -> bool:
        """Whether a peer is admitted, or needs no admission."""
        return not self.rules.roots or peer in self.rules.roots or peer in self._admitted

    def _check_admitted(self, entry: Entry) -> str:
        if not entry.admits:
            return ""
        try:
            newcomers = decode_admitted(entry.admits)
        except ValueError as error:
            return str(error)
        most = may_admit(entry.peer, entry.seq, self.rules.roots) if self.rules.roots else 0
        return f"it admits {len(newcomers)} newcomers where {most} may be" if len(newcomers) > most else ""

    def _check_citations(
        self, entry: Entry, cited: Citations, before: Entry | None, found: Mapping[Name, Entry | None]
    ) -> str:
        own, excluded = name_of(entry.peer), self._excluded_names()
        earlier = None if before is None else decode_citations(before.cited)
        others = [decode_citations(one.cited) for one in found.values() if one is not None]
        credit = credit_after(cited, earlier, entry.incarnation if before is None else before.credit)
        return (
            ("it cites its own author" if own in cited else "")
            or ("" if earlier is None else check_sequel(cited, earlier, excluded))
            or check_closed(cited, others, own, excluded)
            or ("its author publishes more than the others" if credit < 0 else "")
            or ("its credit is not what it should be" if credit != entry.credit else "")
        )

    def _look_up(self, cited: Citations) -> tuple[EntryVerdict, str, dict[Name, Entry | None]]:
        """The cited entries; None for one of an excluded chain, which may be gone or never have come here."""
        found: dict[Name, Entry | None] = {}
        for name, one in cited.items():
            chain = Chain(self._peers.get(name, ""), one.incarnation)
            if self._is_excluded(chain, one.seq):
                found[name] = None
            elif one.seq > self._head(chain):
                return "gap", "entries that it cites are missing", {}
            elif one.seq <= self._dropped(chain):
                return "unjudged", "entries that it cites are no longer kept here", {}
            else:
                found[name] = self._kept(chain, one.seq)
        return "added", "", found

    def _sizes(self, entry: Entry | None) -> Sizes | None:
        if entry is None:
            return None
        known = self._logs[entry.chain].sizes
        if entry.seq not in known:
            known[entry.seq] = _sizes_of(entry, self.rules)
        return known[entry.seq]

    def _excluded_names(self) -> set[Name]:
        return {*(name_of(chain.peer) for chain in self._exclusions), *map(name_of, self._vetoed)}

    def cite(self, chain: Chain, heads: Heads) -> tuple[dict[Name, Citation], int, Limits]:
        """For the next entry of a chain: what it cites if its author knew `heads`, the credit after it, its limits.

        The credit is negative when the author has to wait for others. Sizes that are not known here count as nothing,
        so that the limits are never above those that others find.
        """
        if not self.rules.layers:
            return {}, 0, NO_LIMITS
        before = self._kept(chain, self._head(chain))
        earlier = None if before is None else decode_citations(before.cited)
        cited = cite(self._places(heads, chain.peer, earlier), earlier)
        credit = credit_after(cited, earlier, chain.incarnation if before is None else before.credit)
        chains = [Chain(self._peers.get(name, ""), one.incarnation) for name, one in cited.items()]
        sizes: list[Sizes | None] = []
        for one, log in zip(cited.values(), chains, strict=True):
            if one.seq > self._head(log) and not self._is_excluded(log, one.seq):
                return cited, -1, NO_LIMITS  # known before a restart, and not again yet
            kept = self._kept(log, one.seq)
            sizes.append((0,) * (2 + len(self.rules.layers)) if kept is None else self._sizes(kept))
        return cited, credit, limits_from(sizes, len(self.rules.layers))

    def _places(self, heads: Heads, own: str, earlier: Citations | None) -> dict[Name, tuple[int, int]]:
        """The latest entry of each other author in `heads`, or what the own entry before cited if that is later.

        Where that is no longer kept, as after a snapshot, it is the latest entry known here.
        """
        places: dict[Name, tuple[int, int]] = {}
        for chain, seq in heads.items():
            head = self._head(chain)
            if chain.peer != own and head:
                name, cited = name_of(chain.peer), seq if self._dropped(chain) < seq <= head else head
                places[name] = max(places.get(name, (0, 0)), (chain.incarnation, cited))
        for name, one in (earlier or {}).items():
            chain = Chain(self._peers.get(name, ""), one.incarnation)
            if name in places or name not in self._excluded_names():
                seq = max(one.seq, self._head(chain) if one.seq <= self._dropped(chain) else 0)
                places[name] = max(places.get(name, (0, 0)), (one.incarnation, seq))
        return places

    def _exclude(self, chain: Chain, seq: int, proof: ForkProof) -> Change:
        """Exclude a chain from `seq` on, as far back as entries are kept; the earliest exclusion stays."""
        effective = max(seq, self._dropped(chain) + 1)
        before = self._exclusions.get(chain, effective + 1)
        if before <= effective:
            if seq <= before:
                self._proofs.setdefault(chain, proof)
            return Change("known")
        log = self._logs.get(chain)
        removed = log.cut(effective) if log is not None else []
        self._waiting.cut(chain, effective)
        self._exclusions[chain] = effective
        self._peers[name_of(chain.peer)] = chain.peer
        self._proofs[chain] = proof
        return Change("fork", f"excluded from entry {effective} on", removed=tuple(removed), proof=proof)

    # ---- dropping ----

    def drop(self, until: Heads) -> int:
        """Drop the entries up to `until` (see `droppable`), which snapshots cover; returns how many."""
        return sum(log.drop(until.get(chain, 0)) for chain, log in self._logs.items())

    def start_at(
        self,
        heads: Heads,
        tips: Mapping[Chain, bytes],
        exclusions: Mapping[Chain, int],
        vetoes: Iterable[Veto] = (),
    ) -> None:
        """Start an empty set after a snapshot: the snapshot covers its entries, and chains continue after its tips."""
        self._logs = {chain: _Log(seq, tips[chain]) for chain, seq in heads.items()}
        self._exclusions = dict(exclusions)
        self._peers = {name_of(chain.peer): chain.peer for chain in (*heads, *exclusions)}
        self._admitted = {chain.peer: set() for chain in heads}
        for veto in vetoes:
            self.add_veto(veto)

    def keep(self, entries: list[Entry]) -> int:
        """Keep the last entries before a chain's start, so that they can be served or removed; they count already.

        Nothing is trusted: going backwards from the start, each must be the one that the next names, and follow the
        rules. Returns how many are kept.
        """
        log = self._logs.get(entries[-1].chain) if entries else None
        if log is None or log.entries:
            return 0
        kept = 0
        for entry in reversed(entries):
            at_place = entry.chain == entries[-1].chain and entry.seq == log.dropped
            if not at_place or entry_id(entry) != log.dropped_id or check_entry(entry, self.rules):
                break
            log.entries.insert(0, entry)
            log.ids.insert(0, log.dropped_id)
            self._note_admitted(entry)
            log.dropped, log.dropped_id = entry.seq - 1, entry.previous
            kept += 1
        return kept

    # ---- lookup ----

    def _head(self, chain: Chain) -> int:
        log = self._logs.get(chain)
        return log.head if log is not None else 0

    def _dropped(self, chain: Chain) -> int:
        log = self._logs.get(chain)
        return log.dropped if log is not None else 0

    def _kept(self, chain: Chain, seq: int) -> Entry | None:
        found = self.entries(Span(chain, seq, seq)) if seq > self._dropped(chain) else []
        return found[0] if found else None

    def _known_id(self, chain: Chain, seq: int) -> bytes | None:
        kept, ids = seq - 1 - self._dropped(chain), self._ids(chain)
        return ids[kept] if 0 <= kept < len(ids) else None

    def _ids(self, chain: Chain) -> list[bytes]:
        log = self._logs.get(chain)
        return log.ids if log is not None else []


def _sizes_of(entry: Entry, rules: SetRules) -> Sizes:
    compute = _cached_sizes if len(entry.payload) <= _SMALL_BYTES else _compute_sizes
    return compute(entry, rules)


def _compute_sizes(entry: Entry, rules: SetRules) -> Sizes:
    return sizes_of(delta_of(entry, rules), rules.layers)


_SMALL_BYTES = 1 << 14
_cached_sizes = lru_cache(maxsize=256)(_compute_sizes)  # in a simulation all nodes look at the same entries


KEPT = 64  # entries of each chain that are kept although snapshots cover them
COPIES = 2  # partners that must have an author's own entries before it may drop them


def droppable(heads: Heads, snapshot: Heads, own: str, others: Sequence[Heads], kept: int = KEPT) -> dict[Chain, int]:
    """Up to which seq of each chain entries may be dropped at `heads` (for `EntrySet.drop`).

    Only entries that `snapshot` covers are dropped, the last `kept` stay, and of the chains of `own` (our peer id) only
    entries that COPIES of the `others` have.
    """
    until = {}
    for chain, head in heads.items():
        last = min(snapshot.get(chain, 0), head - kept)
        if chain.peer == own:
            last = min(last, covered_by(heads, chain, others, COPIES))
        if last > 0:
            until[chain] = last
    return until
