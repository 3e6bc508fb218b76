"""A node with made-up peers, exchanges, shards and lineage, to test and measure the page with."""

from __future__ import annotations

import asyncio
import contextlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from functools import cache

from msgspec.structs import replace

from p2pnode.node.peer_states import MAX_EXCHANGE_ROWS
from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES, HEADER_BYTES, VERSION
from p2pnode.storage.files import Storage
from p2pnode.watch.dashboard.server import PageAddress, served
from p2pnode.watch.show import Watched
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import (
    MAIN_JOB,
    Condition,
    ExchangeRow,
    JobState,
    JobStatus,
    Machine,
    MergeRow,
    NodeEvent,
    NodeStatus,
    PeerState,
    ShardRow,
    Traffic,
    TrainState,
    TrainStatus,
    VisitRow,
)

ME = "12D3KooWD3eckifWpRn9wQpMG9R9hX3sD158z7EqHWmweQAJU5SA"
RUN = "abcdefghijklmnopqrstuvwxyz"
INVITE = f"python -m p2pnode join {'5' * 92}"
PAGE = "http://192.168.1.5:8080/"
REASONS = (
    "most similar not met for 5 rounds",
    "bridge to another circle",
    "at random",
    "has shards of labels 3 and 7",
)
LAYERS = ("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "head.weight", "head.bias")
CIRCLE = 16
BRIDGES = 0.04  # of the exchanges


@cache
def peer_id(number: int) -> str:
    return f"12D3KooW{random.Random(number).getrandbits(160):040x}"


class FakeNode:
    """A swarm of `peers` in `communities`, of circles of at most 16, `past` seconds old; `turn()` adds a second."""

    def __init__(
        self,
        peers: int = 24,
        communities: int = 3,
        shards: int = 120,
        names: tuple[str, ...] = (),
        past: int = 150,
        jobs: tuple[str, ...] = (MAIN_JOB,),
    ) -> None:
        self._rng = random.Random(peers)
        self._start = time.time() - past
        self.seconds = 0
        self.left = False
        self.paused = ""
        self.events = [NodeEvent(self._start, "joined", "joined run 'run of quiet-otter-07'")]
        self.condition: Condition = "connected"
        self.reason = f"connected: {peers} other nodes here"
        self.asked: list[str] = []
        self._given = names
        self.jobs = jobs
        self._groups = max(1, communities)
        self.present = dict.fromkeys(range(1, peers + 1), True)
        self._bytes: dict[tuple[int, int], list[float]] = {}
        self._shards = [self._shard(number) for number in range(shards)]
        for _ in range(past):
            self.turn()

    # ---- what a view needs of a node ----

    def status(self) -> NodeStatus:
        return NodeStatus(
            id=ME, name="quiet-otter-07", run=RUN, role="node", condition=self.condition, reason=self.reason,
            private=False, uptime_seconds=float(self.seconds), clock_offset_seconds=0.0, addresses=(),
            invite=INVITE, daemon_starts=1, run_name="run of quiet-otter-07", page_in_network=PAGE,
            traffic=Traffic(41_000 * self.seconds, 130_000 * self.seconds, 4 * self.seconds, 5 * self.seconds, 2),
            peers=tuple(self._peer(number) for number in self.present), events=tuple(self.events[-40:]),
            jobs={name: self._training(name) for name in self.jobs},
            exchanges=self._exchanges(), shards=tuple(self._shards), paused=self.paused,
            machine=Machine(0.62, 0.48, 412_000_000, 6_100_000_000),
        )  # fmt: skip

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None: ...

    def leave(self) -> None:
        self.left = True

    async def look_around(self) -> None:
        self.turn()

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        self.asked.append(request.do)
        if request.do == "log":
            return ControlAnswer(
                merges=tuple(self._merge(at) for at in range(max(1, self.seconds - 500), self.seconds))
            )
        if request.do == "blame":
            return ControlAnswer(blame=self._blame())
        if request.do in ("pause", "resume"):
            self.paused = "paused by you" if request.do == "pause" else ""
            return ControlAnswer(said=f"{request.do}d")
        if request.do == "fingerprints":
            return ControlAnswer(fingerprints={self._id(number): _fingerprint(number) for number in (0, *self.present)})
        found = [shard for shard in self._shards if shard.id == request.shard]
        if request.do == "shards" and found:
            return ControlAnswer(shards=(replace(found[0], journey=self._journey(request.shard)),))
        raise LocalProblem("a fake node cannot do that")

    def turn(self) -> None:
        """Let a second pass, in which some peers exchange."""
        self.seconds += 1
        there = [0, *(number for number, here in self.present.items() if here)]
        circles: dict[str, list[int]] = {}
        for number in there:
            circles.setdefault(self._circle(number), []).append(number)
        for _ in range(max(3, len(there) // 4)):
            one = self._rng.choice(there)
            near = circles[self._circle(one)]
            self._exchange(one, self._rng.choice(near if self._rng.random() > BRIDGES else there))
        self._exchange(0, self._rng.choice(there))

    # ---- made up ----

    def _exchange(self, one: int, other: int) -> None:
        if one == other:
            return
        kept = self._bytes.setdefault((min(one, other), max(one, other)), [0.0, 0.0, 0.0, 0.0])
        kept[0] = self._start + self.seconds
        kept[1] += 1
        kept[2] += self._rng.expovariate(1 / 20_000)
        kept[3] += self._rng.expovariate(1 / 20_000)

    def _id(self, number: int) -> str:
        return ME if number == 0 else peer_id(number)

    def _community(self, number: int) -> int:
        return number % self._groups

    def _circle(self, number: int) -> str:
        return f"circle {self._community(number) + 1}.{number // self._groups // CIRCLE + 1}"

    def _loss(self, number: int, second: float) -> float:
        spread = 1 + 0.25 * math.sin(7 * number)
        return spread * (0.08 + 2.2 * math.exp(-second / 60)) * (1 + 0.03 * math.sin(second * 1.7 + number))

    def _state(self, number: int, job: str) -> JobState:
        """Later jobs are behind the first."""
        done = self.seconds // (1 + self.jobs.index(job))
        loss = self._loss(number, done)
        train = TrainState(
            round=done, loss=loss, accuracy=max(0.1, 1 - loss / 2.4), update_norm=0.2 * loss, head=done
        )  # fmt: skip
        return JobState(self._circle(number), 200.0 + 40 * (number % 7) if number else 412.0, train=train)

    def _peer(self, number: int) -> PeerState:
        far = abs(self._community(number) - self._community(0))
        name = self._given[number - 1] if number <= len(self._given) else f"{_animal(number)}-{number:02d}"
        return PeerState(
            id=peer_id(number), name=name, role="node", present=self.present[number], reached="directly",
            heard_seconds_ago=float(number % 9), latency_ms=12.0 + number % 70, faults=3 if number % 11 == 5 else 0,
            community=self._id(self._community(number) or self._groups),
            similarity=min(0.99, max(0.2, 0.9 - 0.25 * far + 0.05 * math.sin(number + self.seconds / 20))),
            reason=REASONS[number % 4] if number % 3 == 0 else "",
            jobs={job: self._state(number, job) for job in self.jobs},
        )  # fmt: skip

    def _training(self, job: str) -> JobStatus:
        state = self._state(0, job)
        done = state.training.round or 0
        train = TrainStatus(
            task="fashion-mnist" if job == self.jobs[0] else "digits", parameters=61_706, samples=4_096,
            test_loss=1.08 * (state.training.loss or 0.0), exchanges=3 * done, entries=11 * done,
            merged="11 entries of others", hash_checks=2 * done, test_samples=2_048, test_available=10_000,
        )  # fmt: skip
        return JobStatus(
            "train", state=state, steps=38 * done, community=self._id(self._groups), train=train,
            compute_share=1 / len(self.jobs),
        )  # fmt: skip

    def _exchanges(self) -> tuple[ExchangeRow, ...]:
        latest = sorted(self._bytes.items(), key=lambda item: item[1][0])[-MAX_EXCHANGE_ROWS:]
        return tuple(
            ExchangeRow(self._id(one), self._id(other), last, int(count), int(sent), int(received))
            for (one, other), (last, count, sent, received) in latest
        )

    def _merge(self, at: int) -> MergeRow:
        loss = self._loss(0, at)
        bytes_each = 9_000 + 5_000 * math.sin(at / 9)
        return MergeRow(
            at, self._start + at, (peer_id(1 + at % 7),), int(bytes_each), int(3 * bytes_each), 8 + at % 5, loss,
            0.2 * loss, steps=30 + at * 7 % 19, values=int(1200 * math.exp(-at / 120) + 180),
        )  # fmt: skip

    def _shard(self, number: int) -> ShardRow:
        confidence = None if number % 29 == 3 else self._rng.betavariate(5, 2.2)
        left = {"reserve": 12, "retired": 40, "quarantined": 30, "active": 0}
        state = ("active",) * 6 + ("reserve",) * 2 + ("retired", "quarantined")
        chosen = state[number % 10]
        return ShardRow(
            id=f"{self._rng.getrandbits(64):016x}", samples=64, size_bytes=50_432,
            holder=ME if number % 3 == 0 else peer_id(1 + number % 6), keepers=(peer_id(2),), here=number % 3 != 2,
            received=number % 3 == 1, states={"active": 64 - left[chosen], chosen: left[chosen] or 64},
            confidence=confidence, reason="low confidence here, high where it came from", visits=number % 7,
        )  # fmt: skip

    def _journey(self, shard: str) -> tuple[VisitRow, ...]:
        """The visits of one of the shards."""
        rng = random.Random(shard)
        visits, now = [], 0.25
        for at in range(6):
            after = min(0.97, now + rng.uniform(-0.05, 0.3))
            visits.append(VisitRow(peer_id(1 + rng.randrange(6)), "model", 10 * at, now, after, self._start + 60 * at))
            now = after - rng.uniform(0.0, 0.1)
        return tuple(visits)

    def _blame(self) -> dict[str, dict[str, float]]:
        rng = random.Random(5)
        weights = {self._id(number): [rng.gammavariate(1.2, 1.0) for _ in LAYERS] for number in range(9)}
        sums = [sum(column) for column in zip(*weights.values(), strict=True)]
        return {id: dict(zip(LAYERS, map(_share, row, sums), strict=True)) for id, row in weights.items()}


def _fingerprint(number: int) -> bytes:
    """A random fingerprint; all are of one kind."""
    head = bytes([VERSION]).ljust(HEADER_BYTES, b"\1")
    return head + bytes(1 + byte % 100 for byte in random.Random(number).randbytes(FINGERPRINT_BYTES - HEADER_BYTES))


def _share(part: float, whole: float) -> float:
    return part / whole


def _animal(number: int) -> str:
    return ("fox", "owl", "bat", "elk", "crane", "lynx", "hare", "newt")[number % 8]


@contextlib.contextmanager
def serving(node: Watched, port: int = 0, storage: Storage | None = None) -> Iterator[PageAddress]:
    """Serve the page of a node from a thread with its own event loop."""
    placed: Future[PageAddress] = Future()
    loop = asyncio.new_event_loop()
    ended = asyncio.Event()

    async def serve() -> None:
        async with served(node, "127.0.0.1", port, storage) as place:
            placed.set_result(place)
            await ended.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    try:
        yield placed.result(10)
    finally:
        loop.call_soon_threadsafe(ended.set)
        thread.join()
        loop.close()
