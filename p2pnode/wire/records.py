"""Signed records in a closed world: what may be kept for others, and for how long.

A record is one peer's expiring word under one key. It is accepted only under a known key prefix, in a bounded size,
with a finite expiry at most ten minutes ahead and the signature of the peer it is filed under; and it is kept only when
that peer itself asks for it, so nobody can overwrite, squat on or replay another's. Times are swarm time.
"""

from __future__ import annotations

import heapq
import math
import re
from collections.abc import Iterable
from typing import Literal

import msgspec

from .ids import SIGNATURE_BYTES, Identity, PeerId, signed_by

MAX_TTL = 600.0  # seconds a record may lie ahead
MAX_VALUE_BYTES = 4096  # an announcement with eight addresses and the announcements of eight jobs
MAX_RECORDS_PER_KEY = 500  # half of the 1,000 above which DHT answers get near their size limit
MAX_KEYS_PER_PEER = 16
MAX_RECORDS = 50_000
TIME_SLACK = 30.0  # seconds by which two honest nodes' idea of swarm time may differ

KEY_PREFIXES = ("peers",)
_KEY = re.compile(rf"(?:{'|'.join(KEY_PREFIXES)})(?:/[A-Za-z0-9_.\-]{{1,64}}){{1,3}}")

WRONG_SIGNATURE = "signature does not fit"

StoreVerdict = Literal["stored", "full", "older", "untimely", "refused"]


class SignedRecord(msgspec.Struct, frozen=True, array_like=True):
    """One peer's value under a key until `expiry`."""

    key: str
    peer: str
    expiry: float
    value: bytes
    signature: bytes


def sign_record(identity: Identity, key: str, value: bytes, expiry: float) -> SignedRecord:
    peer = identity.peer_id
    return SignedRecord(key, peer, expiry, value, identity.sign(_signed_bytes(key, peer, expiry, value)))


def why_refused(record: SignedRecord, now: float) -> str:
    """The first rule a record breaks, or "" when it is good. Cheap rules come before the signature."""
    if _KEY.fullmatch(record.key) is None:
        return "unknown key"
    if len(record.value) > MAX_VALUE_BYTES:
        return f"value over {MAX_VALUE_BYTES} bytes"
    if not math.isfinite(record.expiry):
        return "expiry is not a finite time"
    if untimely(record, now):
        return f"expired, or more than {MAX_TTL:.0f} s ahead"
    if len(record.signature) != SIGNATURE_BYTES or not signed_by(record.peer, _content(record), record.signature):
        return WRONG_SIGNATURE
    return ""


def untimely(record: SignedRecord, now: float) -> bool:
    """Outside the time a record may cover: a liar's doing, or only a wrong clock's."""
    return not now - TIME_SLACK < record.expiry <= now + MAX_TTL + TIME_SLACK


def _content(record: SignedRecord) -> bytes:
    return _signed_bytes(record.key, record.peer, record.expiry, record.value)


def _signed_bytes(key: str, peer: str, expiry: float, value: bytes) -> bytes:
    return msgspec.msgpack.encode(("p2pnode record 1", key, peer, expiry, value))


class RecordStore:
    """The records this node keeps for others, all of them bounded.

    Contract: `put` never shortens a record's life, whatever is offered afterwards.
    """

    def __init__(self, max_records: int = MAX_RECORDS) -> None:
        self._keys: dict[str, dict[str, SignedRecord]] = {}
        self._keys_of_peer: dict[str, set[str]] = {}
        self._by_expiry: list[tuple[float, str, str]] = []
        self._max_records = max_records
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, record: SignedRecord, owner: PeerId, now: float) -> tuple[StoreVerdict, str]:
        """Keep a record that `owner` brought, or say why not."""
        if record.peer != owner:
            return "refused", "only its own peer may store a record"
        problem = why_refused(record, now)
        if problem:
            return ("untimely" if math.isfinite(record.expiry) and untimely(record, now) else "refused"), problem
        self.expire(now)
        known = self._keys.get(record.key, {}).get(record.peer)
        if known is not None:
            return self._replace(known, record)
        if len(self._keys_of_peer.get(record.peer, ())) >= MAX_KEYS_PER_PEER:
            return "refused", f"more than {MAX_KEYS_PER_PEER} keys by one peer"
        if len(self._keys.get(record.key, ())) >= MAX_RECORDS_PER_KEY or self._count >= self._max_records:
            return "full", ""
        self._count += 1
        self._keys_of_peer.setdefault(record.peer, set()).add(record.key)
        self._set(record)
        return "stored", ""

    def _replace(self, known: SignedRecord, record: SignedRecord) -> tuple[StoreVerdict, str]:
        if record == known:
            return "stored", ""
        if record.expiry <= known.expiry:
            return "older", ""
        self._set(record)
        return "stored", ""

    def _set(self, record: SignedRecord) -> None:
        self._keys.setdefault(record.key, {})[record.peer] = record
        heapq.heappush(self._by_expiry, (record.expiry, record.key, record.peer))

    def find(self, key: str, now: float, newer_than: float = 0.0) -> list[SignedRecord]:
        """The live records under `key` that expire after `newer_than`, by peer id."""
        self.expire(now)
        under = self._keys.get(key, {})
        return [under[peer] for peer in sorted(under) if under[peer].expiry > newer_than]

    def largest_key(self) -> int:
        """The most records kept under one key; never more than MAX_RECORDS_PER_KEY."""
        return max((len(under) for under in self._keys.values()), default=0)

    def expire(self, now: float) -> None:
        """Drop what has run out; stale heap entries of replaced records are passed over."""
        while self._by_expiry and self._by_expiry[0][0] <= now:
            expiry, key, peer = heapq.heappop(self._by_expiry)
            under = self._keys.get(key, {})
            if peer in under and under[peer].expiry == expiry:
                self._drop(key, peer)

    def _drop(self, key: str, peer: str) -> None:
        self._count -= 1
        for index, member, entry in ((self._keys, key, peer), (self._keys_of_peer, peer, key)):
            _discard(index, member, entry)


def _discard(index: dict[str, dict[str, SignedRecord]] | dict[str, set[str]], name: str, entry: str) -> None:
    bucket = index[name]
    if isinstance(bucket, set):
        bucket.discard(entry)
    else:
        bucket.pop(entry, None)
    if not bucket:
        del index[name]


class VerifiedRecords:
    """Checks records read from others, remembering which signatures it has already checked."""

    def __init__(self, capacity: int = 20_000) -> None:
        self._known: dict[tuple[str, str], SignedRecord] = {}
        self._capacity = capacity

    def latest(self, key: str, candidates: Iterable[SignedRecord], now: float) -> dict[PeerId, SignedRecord]:
        """Returns each peer's latest record that is good and not expired, out of several storers' answers."""
        best: dict[PeerId, SignedRecord] = {}
        latest_first = sorted(candidates, key=lambda record: -record.expiry if record.expiry == record.expiry else 0.0)
        for record in latest_first:  # of a peer's records, only those later than its latest good one are checked
            if record.peer not in best and record.key == key and record.expiry > now and self.is_good(record, now):
                best[PeerId(record.peer)] = record
        return best

    def is_good(self, record: SignedRecord, now: float) -> bool:
        place = (record.key, record.peer)
        if self._known.get(place) == record:
            return not untimely(record, now)
        if why_refused(record, now):
            return False
        if len(self._known) >= self._capacity:
            self._known.clear()
        self._known[place] = record
        return True
