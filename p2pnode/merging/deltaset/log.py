"""The entries of one lineage: the chain of every author, in order, each entry checked once.

An entry counts when it follows its author's previous one. An entry that comes early waits, within a bound. An entry
that contradicts a known one proves a fork, and everybody who sees the proof excludes the chain from there on. An entry
that breaks the rules (judging.py) ends its chain. `EntrySet` only keeps entries; `DeltaSet` (set.py) adds them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from blake3 import blake3

from .chains import ChainLog, Chains, Waiting
from .citations import name_of
from .entry import (
    MARK_BYTES,
    Chain,
    Entry,
    EntryClaim,
    ForkProof,
    SetRules,
    check_entry,
    claim_id,
    claim_of,
    entry_id,
    prove,
    read_claim,
    read_proof,
)
from .heads import MAX_CHAINS, Heads, Span, encode_heads
from .judging import COUNTS, EntryJudge, EntryVerdict
from .vetoes import MAX_VETOES, Veto, VetoCount, check_veto, cut_of, encode_vetoes, excluded, is_later, needed


@dataclass(frozen=True)
class Change:
    """What happened to an entry or a proof, and which entries count from now on, or no longer."""

    verdict: EntryVerdict
    reason: str = ""
    added: tuple[Entry, ...] = ()
    removed: tuple[Entry, ...] = ()
    proof: ForkProof | None = None


def digest_of(heads: Heads, tips: Mapping[Chain, bytes], exclusions: Heads, vetoes: bytes) -> bytes:
    """16 bytes that identify the entries of a set. Tips are included, since equal heads may hide a fork."""
    ordered = b"".join(tips[chain] for chain in sorted(tips))
    return blake3(encode_heads(heads) + ordered + encode_heads(exclusions) + vetoes).digest(MARK_BYTES)


class EntrySet:
    """All chains of a lineage. Law: the same entries and proofs give the same set, in any order and however often."""

    def __init__(self, rules: SetRules) -> None:
        self.rules = rules
        self._chains = Chains()
        self.judge = EntryJudge(rules, self._chains)
        self._waiting = Waiting()
        self._proofs: dict[Chain, ForkProof] = {}
        self._vetoes: dict[tuple[str, str], Veto] = {}

    # ---- reading ----

    @property
    def heads(self) -> dict[Chain, int]:
        """Each chain's latest entry that counts."""
        return {chain: log.head for chain, log in self._chains.logs.items() if log.head}

    @property
    def tips(self) -> dict[Chain, bytes]:
        """The ids of the heads; through the chain of hashes they stand for everything before."""
        return {chain: log.tip for chain, log in self._chains.logs.items() if log.head}

    @property
    def exclusions(self) -> dict[Chain, int]:
        """The seq from which on a chain is left out after a fork."""
        return dict(self._chains.exclusions)

    @property
    def vetoes(self) -> tuple[Veto, ...]:
        """The latest veto of each signer against each author."""
        return tuple(self._vetoes[key] for key in sorted(self._vetoes))

    @property
    def excluded(self) -> set[str]:
        """The authors that vetoes exclude."""
        return set(self._chains.vetoed)

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
        return digest_of(self.heads, self.tips, self._chains.exclusions, encode_vetoes(self._vetoes.values()))

    def next_place(self, chain: Chain) -> tuple[int, bytes]:
        """Seq and `previous` of the entry that would continue a chain."""
        log = self._chains.logs.get(chain, ChainLog())
        return log.head + 1, log.tip

    def can_go_on(self, chain: Chain) -> bool:
        """Whether a chain may be continued: it is not excluded, and the entry that the next one follows is kept."""
        head = self._chains.head(chain)
        kept = not head or not self.rules.layers or head > self._chains.dropped(chain)
        return kept and chain not in self._chains.exclusions

    def dropped(self) -> dict[Chain, int]:
        """Up to which seq each chain's entries are no longer kept."""
        return {chain: log.dropped for chain, log in self._chains.logs.items() if log.dropped}

    def entries(self, span: Span) -> list[Entry]:
        """The entries of a span that are still kept, in order."""
        return self._chains.entries(span)

    def __iter__(self) -> Iterator[Entry]:
        """Every kept entry, chain by chain, in order."""
        for chain in sorted(self._chains.logs):
            yield from self._chains.logs[chain].entries

    def can_serve(self, heads: Heads) -> bool:
        """Whether the entries kept here can bring a node at `heads` up to date; otherwise it needs a snapshot."""
        return all(heads.get(chain, 0) >= log.dropped for chain, log in self._chains.logs.items())

    def claims(self, chain: Chain) -> list[EntryClaim]:
        """The claims of a chain's kept entries: what two nodes of equal heads compare when their digests differ."""
        return [claim_of(entry) for entry in self._chains.logs.get(chain, ChainLog()).entries]

    # ---- adding ----

    def add(self, entry: Entry, judged: bool = False) -> Change:
        """Add an entry, which may come from anybody at any time.

        `judged` says that it is one of our own, which counted before a restart.
        """
        chain, seq, own_id = entry.chain, entry.seq, entry_id(entry)
        known = self._chains.known_id(chain, seq)
        if known == own_id or (known is None and seq <= self._chains.dropped(chain)):
            return Change("known")
        if self._chains.is_excluded(chain, seq):
            return Change("excluded", "its author is excluded, or its chain from an earlier entry on, after a fork")
        reason = check_entry(entry, self.rules)
        if reason:
            return Change("refused", reason)
        if chain not in self._chains.logs and len(self._chains.logs) >= MAX_CHAINS:
            return Change("refused", f"more than {MAX_CHAINS} chains")
        rival = self._rival(entry, own_id)
        if rival is not None:
            return self._exclude(chain, seq, prove(*rival))
        if seq > self._chains.head(chain) + 1:
            self._waiting.put(entry)
            return Change("gap", f"{seq - self._chains.head(chain) - 1} entries before it are missing")
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
        known = veto.signer in (*self.rules.moderators, *self._chains.authors())
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
        return VetoCount(
            len(active), needed(author, self._chains.authors()) + 1, author in self._chains.vetoed, reasons
        )

    def _apply_vetoes(self) -> Change:
        """Take out what vetoes exclude. What is let in again comes from its author."""
        self._count_vetoes()
        self._chains.peers |= {name_of(peer): peer for peer in self._chains.vetoed}
        removed: list[Entry] = []
        for chain in dict.fromkeys((*self._chains.logs, *self._waiting.chains())):
            first = cut_of(chain, self._chains.vetoed)
            if first is not None:
                removed += self._cut(chain, max(first, self._chains.dropped(chain) + 1))
        return Change("veto", removed=tuple(removed))

    def _count_vetoes(self) -> None:
        self._chains.vetoed = excluded(self._vetoes, self.rules.moderators, self._chains.authors())

    def compare_claims(self, claims: list[EntryClaim], chain: Chain) -> Change:
        """Look for the earliest fork between a peer's claims about a chain and ours (see `claims`)."""
        theirs = {read_claim(claim).seq: claim for claim in claims}
        for entry, own_id in zip(
            self.entries(Span(chain, 1, self._chains.head(chain))), self._chains.ids(chain), strict=True
        ):
            claim = theirs.get(entry.seq)
            if claim is not None and claim_id(claim) != own_id:
                change = self.add_proof(ForkProof(claim_of(entry), claim))
                if change.verdict == "fork":
                    return change
        return Change("known")

    def _rival(self, entry: Entry, own_id: bytes) -> tuple[Entry, Entry] | None:
        """A known entry that this one contradicts, together with this one."""
        same_seq = self._chains.kept(entry.chain, entry.seq) or self._waiting.get(entry.chain, entry.seq)
        if same_seq is not None and entry_id(same_seq) != own_id:
            return same_seq, entry
        before = self._chains.kept(entry.chain, entry.seq - 1)
        if before is not None and entry_id(before) != entry.previous:
            return before, entry
        return None

    def _continue(self, entry: Entry, own_id: bytes, judged: bool) -> Change:
        """Append the next entry, and the waiting ones that follow from it."""
        if entry.previous != self.next_place(entry.chain)[1]:
            return Change("refused", "does not follow the entry before it")
        verdict, reason = COUNTS if judged else self.judge.judge(entry)
        if verdict == "gap":
            self._waiting.put(entry)
        if verdict != "added":
            return Change(verdict, reason)
        self._append(entry, own_id)
        return self._settle([entry])

    def _append(self, entry: Entry, own_id: bytes) -> None:
        self._chains.logs.setdefault(entry.chain, ChainLog()).append(entry, own_id)
        self._chains.peers[name_of(entry.peer)] = entry.peer
        if entry.seq == 1:  # perhaps of a new author: then more vetoes are needed
            self._count_vetoes()
        self._chains.note_admitted(entry)

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
        while (follower := self._waiting.get(chain, self._chains.head(chain) + 1)) is not None:
            before = self._chains.kept(chain, follower.seq - 1)
            if before is not None and follower.previous != entry_id(before):
                return self._exclude(chain, follower.seq, prove(before, follower))
            verdict, _ = self.judge.judge(follower)
            if verdict == "gap":
                break
            self._waiting.take(chain, follower.seq)
            if verdict != "added" or follower.previous != self.next_place(chain)[1]:
                break
            self._append(follower, entry_id(follower))
            added.append(follower)
        return None

    # ---- excluding and dropping ----

    def _cut(self, chain: Chain, first: int) -> list[Entry]:
        """Remove a chain's entries from seq `first` on, early ones too; returns those that counted."""
        self._waiting.cut(chain, first)
        log = self._chains.logs.get(chain)
        return [] if log is None else log.cut(first)

    def _exclude(self, chain: Chain, seq: int, proof: ForkProof) -> Change:
        """Exclude a chain from `seq` on, as far back as entries are kept; the earliest exclusion stays."""
        effective = max(seq, self._chains.dropped(chain) + 1)
        before = self._chains.exclusions.get(chain, effective + 1)
        if before <= effective:
            if seq <= before:
                self._proofs.setdefault(chain, proof)
            return Change("known")
        removed = self._cut(chain, effective)
        self._chains.exclusions[chain] = effective
        self._chains.peers[name_of(chain.peer)] = chain.peer
        self._proofs[chain] = proof
        return Change("fork", f"excluded from entry {effective} on", removed=tuple(removed), proof=proof)

    def drop(self, until: Heads) -> int:
        """Drop the entries up to `until` (see `droppable`), which snapshots cover; returns how many."""
        return sum(log.drop(until.get(chain, 0)) for chain, log in self._chains.logs.items())

    def start_at(
        self,
        heads: Heads,
        tips: Mapping[Chain, bytes],
        exclusions: Mapping[Chain, int],
        vetoes: Iterable[Veto] = (),
    ) -> None:
        """Start an empty set after a snapshot: the snapshot covers its entries, and chains continue after its tips."""
        self._chains.logs = {chain: ChainLog(seq, tips[chain]) for chain, seq in heads.items()}
        self._chains.exclusions = dict(exclusions)
        self._chains.peers = {name_of(chain.peer): chain.peer for chain in (*heads, *exclusions)}
        self._chains.admitted = {chain.peer: set() for chain in heads}
        for veto in vetoes:
            self.add_veto(veto)

    def keep(self, entries: list[Entry]) -> int:
        """Keep the last entries before a chain's start, so that they can be served or removed; they count already.

        Nothing is trusted: going backwards from the start, each must be the one that the next names, and follow the
        rules. Returns how many are kept.
        """
        log = self._chains.logs.get(entries[-1].chain) if entries else None
        if log is None or log.entries:
            return 0
        kept = 0
        for entry in reversed(entries):
            at_place = entry.chain == entries[-1].chain and entry.seq == log.dropped
            if not at_place or entry_id(entry) != log.dropped_id or check_entry(entry, self.rules):
                break
            log.entries.insert(0, entry)
            log.ids.insert(0, log.dropped_id)
            self._chains.note_admitted(entry)
            log.dropped, log.dropped_id = entry.seq - 1, entry.previous
            kept += 1
        return kept
