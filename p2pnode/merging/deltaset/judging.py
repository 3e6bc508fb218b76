"""Whether an entry counts: the rules about what it cites, how large it is, and who may publish.

The answer depends on the entry, its author's entry before, the cited ones and the exclusions, so every node that knows
these gives the same one. The rules apply only where a run has bounds (`SetRules.layers`).
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal

from .admission import MAX_AUTHORS, decode_admitted, may_admit
from .bounds import NO_LIMITS, Limits, Sizes, limits_from, sizes_of
from .chains import Chains
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
from .entry import Chain, Entry, SetRules, delta_of
from .heads import Heads

# `uncounted`: it breaks a rule by what it cites; `unjudged`: what it cites is no longer kept here.
EntryVerdict = Literal["added", "known", "gap", "fork", "excluded", "refused", "uncounted", "unjudged", "veto"]

COUNTS: tuple[EntryVerdict, str] = ("added", "")


class EntryJudge:
    """Judges entries of one lineage by the entries that are kept of it."""

    def __init__(self, rules: SetRules, chains: Chains) -> None:
        self._rules = rules
        self._chains = chains

    def judge(self, entry: Entry) -> tuple[EntryVerdict, str]:
        """Whether the next entry of a chain counts, judged by what it cites and by the entry before it."""
        if not self._rules.layers:
            return COUNTS
        before = self._chains.kept(entry.chain, entry.seq - 1)
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
            limits = limits_from([self._sizes(one) for one in found.values()], len(self._rules.layers))
            reason = "" if limits is NO_LIMITS else limits.broken_by(_sizes_of(entry, self._rules))
        return ("uncounted", reason) if reason else COUNTS

    def admits(self, peer: str) -> bool:
        """Whether a peer may be an author here."""
        if peer in self._chains.vetoed:
            return False
        return self.is_author(peer) or peer in self._chains.authors()

    def is_author(self, peer: str) -> bool:
        """Whether a peer is admitted, or needs no admission."""
        return not self._rules.roots or peer in self._rules.roots or peer in self._chains.admitted

    def may_admit(self, chain: Chain) -> int:
        """How many newcomers the next entry of a chain may admit."""
        if not self._rules.roots or len(self._chains.authors()) >= MAX_AUTHORS:
            return 0
        return may_admit(chain.peer, self._chains.head(chain) + 1, self._rules.roots)

    def cite(self, chain: Chain, heads: Heads) -> tuple[dict[Name, Citation], int, Limits]:
        """For the next entry of a chain: what it cites if its author knew `heads`, the credit after it, its limits.

        The credit is negative when the author has to wait for others. Sizes that are not known here count as nothing,
        so that the limits are never above those that others find.
        """
        if not self._rules.layers:
            return {}, 0, NO_LIMITS
        before = self._chains.kept(chain, self._chains.head(chain))
        earlier = None if before is None else decode_citations(before.cited)
        cited = cite(self._places(heads, chain.peer, earlier), earlier)
        credit = credit_after(cited, earlier, chain.incarnation if before is None else before.credit)
        chains = [Chain(self._chains.peers.get(name, ""), one.incarnation) for name, one in cited.items()]
        sizes: list[Sizes | None] = []
        for one, log in zip(cited.values(), chains, strict=True):
            if one.seq > self._chains.head(log) and not self._chains.is_excluded(log, one.seq):
                return cited, -1, NO_LIMITS  # known before a restart, and not again yet
            kept = self._chains.kept(log, one.seq)
            sizes.append((0,) * (2 + len(self._rules.layers)) if kept is None else self._sizes(kept))
        return cited, credit, limits_from(sizes, len(self._rules.layers))

    def _knows_admission(self, entry: Entry, cited: Citations) -> bool:
        """Whether a first entry cites one that admitted its author, and what that cites; so it cannot cite nothing.

        Admissions of a run's first rounds, or that are no longer kept, require nothing.
        """
        own, excluded, kept = name_of(entry.peer), self._chains.excluded_names(), False
        for span in self._chains.admitted.get(entry.peer, ()):
            for admission in self._chains.entries(span):
                kept, admitter = True, name_of(admission.peer)
                place = {admitter: Citation(admission.incarnation, admission.seq)}
                known = decode_citations(admission.cited)
                if is_early(known) or not check_closed(cited, [known, place], own, excluded):
                    return True
        return not kept

    def _check_admitted(self, entry: Entry) -> str:
        if not entry.admits:
            return ""
        try:
            newcomers = decode_admitted(entry.admits)
        except ValueError as error:
            return str(error)
        most = may_admit(entry.peer, entry.seq, self._rules.roots) if self._rules.roots else 0
        return f"it admits {len(newcomers)} newcomers where {most} may be" if len(newcomers) > most else ""

    def _check_citations(
        self, entry: Entry, cited: Citations, before: Entry | None, found: Mapping[Name, Entry | None]
    ) -> str:
        own, excluded = name_of(entry.peer), self._chains.excluded_names()
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
            chain = Chain(self._chains.peers.get(name, ""), one.incarnation)
            if self._chains.is_excluded(chain, one.seq):
                found[name] = None
            elif one.seq > self._chains.head(chain):
                return "gap", "entries that it cites are missing", {}
            elif one.seq <= self._chains.dropped(chain):
                return "unjudged", "entries that it cites are no longer kept here", {}
            else:
                found[name] = self._chains.kept(chain, one.seq)
        return "added", "", found

    def _sizes(self, entry: Entry | None) -> Sizes | None:
        if entry is None:
            return None
        known = self._chains.logs[entry.chain].sizes
        if entry.seq not in known:
            known[entry.seq] = _sizes_of(entry, self._rules)
        return known[entry.seq]

    def _places(self, heads: Heads, own: str, earlier: Citations | None) -> dict[Name, tuple[int, int]]:
        """The latest entry of each other author in `heads`, or what the own entry before cited if that is later.

        Where that is no longer kept, as after a snapshot, it is the latest entry known here.
        """
        places: dict[Name, tuple[int, int]] = {}
        for chain, seq in heads.items():
            head = self._chains.head(chain)
            if chain.peer != own and head:
                name, cited = name_of(chain.peer), seq if self._chains.dropped(chain) < seq <= head else head
                places[name] = max(places.get(name, (0, 0)), (chain.incarnation, cited))
        for name, one in (earlier or {}).items():
            chain = Chain(self._chains.peers.get(name, ""), one.incarnation)
            if name in places or name not in self._chains.excluded_names():
                seq = max(one.seq, self._chains.head(chain) if one.seq <= self._chains.dropped(chain) else 0)
                places[name] = max(places.get(name, (0, 0)), (one.incarnation, seq))
        return places


def _sizes_of(entry: Entry, rules: SetRules) -> Sizes:
    compute = _cached_sizes if len(entry.payload) <= _SMALL_BYTES else _compute_sizes
    return compute(entry, rules)


def _compute_sizes(entry: Entry, rules: SetRules) -> Sizes:
    return sizes_of(delta_of(entry, rules), rules.layers)


_SMALL_BYTES = 1 << 14
_cached_sizes = lru_cache(maxsize=256)(_compute_sizes)  # in a simulation all nodes look at the same entries
