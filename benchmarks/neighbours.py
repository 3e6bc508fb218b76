"""How many of the ten most similar peers a node finds, and at what cost, in swarms of any size.

    python -m benchmarks.neighbours [--peers 100,1000,10000] [--kinds churn,keys,mixed,noise] [--rounds 20] [--json]

Every node runs the package's own Neighbours table and exchanges entries with one peer a round, a newcomer with three;
the directory gives it a random sample at the start and every ten rounds. Fingerprints are drawn in three ways:
`planted` (communities of 100 that differ from each other), `mixed` (no communities: each is a mixture of ten
directions, as of ten labels, with some noise), `noise` (all 256 numbers independent: nothing to find). `churn` is
planted, with a hundredth of the nodes replaced every round; a node notices that a peer is gone by asking it. `keys` is
planted, with half of every sample from a key made of the signs of the fingerprint under random projections, as a
directory could keep. Swarms above 10,000 are planted only. Recall is also reported after 5 and 10 rounds.

The samples are an assumption of this benchmark, and so are the lookups it reports; benchmarks/directory_load.py counts
what a node really reads of the directory.

Per node and round: lookups, bytes (sent and received), records received, cpu_ms. cpu_ms is measured on some of the
exchanges, repeated with fresh copies of both tables: among thousands of tables in one process most of the time would be
spent waiting for memory, which a node with one table does not do. It includes checking every record that comes in
(check_ms each). `choose_ms` is the processor time of growing the tree over a node's whole view, cutting it and choosing
partners. `moved_…` is the share of peers that change communities when a twentieth of the view goes.
"""

from __future__ import annotations

import argparse
import copy
import gc
import math
import random
import time
from dataclasses import dataclass, field
from functools import cache

import msgspec
import numpy as np

from benchmarks.common import Figures, progress, read_sizes, run
from benchmarks.neighbours_views import choosing, drawn, moved
from p2pnode.similarity.communities import MAX_VIEW
from p2pnode.similarity.driver import SAMPLE_EVERY
from p2pnode.similarity.fingerprint import DIMENSIONS, FINGERPRINT_BYTES, Rows
from p2pnode.similarity.neighbours import FAR, MARK_BYTES, Neighbour, Neighbours
from p2pnode.wire.ids import Identity, PeerId
from p2pnode.wire.messages import Announcement, JobAnnouncement, decode_announcement, encode_message
from p2pnode.wire.records import SignedRecord, sign_record, why_refused

SIZES = (100, 1_000, 10_000)
SIZES_QUICK = (100, 1_000)
ROUNDS = 20
KINDS = ("churn", "keys", "mixed", "noise")  # besides planted
EARLY = (5, 10)  # rounds after which recall is reported too
LONG = 10_000  # peers from which on a round takes seconds and is reported as progress
WATCHED = 2_000  # exchanges whose processor time is taken
BUCKET = 200  # peers a key made of a fingerprint has at most
JUDGED = 300  # nodes whose true nearest peers are computed
SETTLED = 10  # rounds after which a node counts as settled
NEAREST = 10
LASTING = 1.0
FOR_EVER = 1e9


def announced(number: int = 0) -> SignedRecord:
    """A signed announcement with a fingerprint and two addresses, as nodes send it."""
    identity, fingerprint = Identity(number.to_bytes(32, "big")), b"f" * FINGERPRINT_BYTES
    addresses = tuple(f"/ip4/192.168.100.100/{kind}/31337/p2p/{identity.peer_id}" for kind in ("tcp", "udp"))
    word = Announcement(
        "brave-bat-21", "r" * 26, addresses, started=1e9, jobs=(JobAnnouncement("main", "", fingerprint),)
    )
    return sign_record(identity, "peers/" + "r" * 26 + "/p0101", encode_message(word), 2e9)


@cache  # a signature that was checked once is not checked again
def cpu_of_check(count: int = 200) -> float:
    """Processor milliseconds to check the signature of an announcement and to read it."""
    records = [announced(number) for number in range(count)]
    begun = time.process_time()
    for record in records:
        assert not why_refused(record, record.expiry - 60.0)
        decode_announcement(record.value)
    return (time.process_time() - begun) / count * 1e3


@dataclass
class Swarm:
    """All nodes by number; nodes that left stay in the lists."""

    rows: Rows
    nodes: list[Neighbours]
    neighbours: list[Neighbour]
    here: list[int]
    since: dict[int, int] = field(default_factory=dict)
    recommended: int = 0
    asked: int = 0
    sampled: int = 0
    lookups: int = 0
    watch_every: int = 1  # exchanges
    watched: list[float] = field(default_factory=list)  # seconds of processor time
    keys: Keys | None = None

    def arrive(self, rows: Rows, turn: int, rng: random.Random) -> None:
        first = len(self.nodes)
        self.rows = np.concatenate([self.rows, rows])
        for number, row in enumerate(rows, first):
            peer = PeerId(f"{number:07d}")
            self.neighbours.append(Neighbour(peer, row, FOR_EVER))
            self.nodes.append(Neighbours(peer, row))
            self.here.append(number)
            self.since[number] = turn
        for number in range(first, len(self.nodes)):
            self.look_up(number, FAR, rng)

    def look_up(self, number: int, count: int, rng: random.Random) -> None:
        alike = self.keys.sample(number, count // 2, rng) if self.keys else []
        some = rng.sample(self.here, min(count - len(alike), len(self.here)))
        sample = [self.neighbours[place] for place in {*alike, *some}]
        self.nodes[number].take_sample(sample)
        self.lookups += 1
        self.sampled += len(sample)

    def leave(self, count: int, rng: random.Random) -> None:
        gone = set(rng.sample(self.here, count))
        self.here = [number for number in self.here if number not in gone]
        for number in gone:
            del self.since[number]

    def exchange(self, number: int, rng: random.Random) -> None:
        """Let one node exchange with a peer; it forgets the peer when that does not answer."""
        node = self.nodes[number]
        peer = node.partner_to_ask(rng)
        if peer is None:
            return
        self.asked += 1
        other = int(peer)
        if other not in self.since:
            node.forget([peer])
            return
        me, partner = self.neighbours[number], self.neighbours[other]
        if self.asked % self.watch_every == 0:
            self.watched.append(cpu_of_swap(node, self.nodes[other], me, partner))
        self.recommended += swap(node, self.nodes[other], me, partner)

    def turn(self, number: int, rng: random.Random) -> None:
        for place in self.here:
            for _ in range(self.nodes[place].asks_due()):
                self.exchange(place, rng)
            if (place + number) % SAMPLE_EVERY == 0:
                self.look_up(place, FAR, rng)

    def recall(self, rng: random.Random, settled_at: int) -> tuple[float, float]:
        """The mean share of the ten nearest that nodes know: of all nodes, and of those that were there for a while."""
        there = np.array(self.here)
        matrix = self.rows[there].astype(np.float32)
        matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
        everyone, settled = [], []
        for place in rng.sample(range(len(there)), min(JUDGED, len(there))):
            alike = matrix @ matrix[place]
            alike[place] = -2
            best = there[np.argpartition(-alike, NEAREST)[:NEAREST]]
            known = sum(self.neighbours[number].peer in self.nodes[there[place]] for number in best) / NEAREST
            everyone.append(known)
            if self.since[int(there[place])] <= settled_at:
                settled.append(known)
        return float(np.mean(everyone)), float(np.mean(settled))


def swap(node: Neighbours, there: Neighbours, me: Neighbour, partner: Neighbour) -> int:
    """Exchange between two nodes; returns how many announcements were sent."""
    answer = there.recommend(me.peer, me.row, node.marks(0.0, LASTING), node.floor())
    push = node.recommend(partner.peer, partner.row, there.marks(0.0, LASTING), there.floor())
    there.take_in([*push, me])
    node.take_in(answer)
    return len(answer) + len(push) + 1


def cpu_of_swap(node: Neighbours, there: Neighbours, me: Neighbour, partner: Neighbour) -> float:
    """Processor seconds of an exchange on both sides, including the choice of the peer; changes nothing."""
    one, other, rng = copy.deepcopy(node), copy.deepcopy(there), random.Random(1)
    gc.disable()  # a collection goes through all nodes of the process
    begun = time.process_time()
    one.partner_to_ask(rng)
    swap(one, other, me, partner)
    taken = time.process_time() - begun
    gc.enable()
    return taken


class Keys:
    """A directory by fingerprint: peers whose signs under random projections begin alike share a key."""

    def __init__(self, rows: Rows, seed: int) -> None:
        depth = max(0, math.ceil(math.log2(len(rows) / BUCKET)))
        centred = rows.astype(np.float32) - rows.astype(np.float32).mean(axis=0)  # as by the run's first fingerprint
        signs = centred @ np.random.default_rng(seed).normal(size=(DIMENSIONS, depth)) > 0
        self._key_of = [sign.tobytes() for sign in signs]
        self._peers: dict[bytes, list[int]] = {}
        for number, key in enumerate(self._key_of):
            self._peers.setdefault(key, []).append(number)

    def sample(self, number: int, count: int, rng: random.Random) -> list[int]:
        there = self._peers[self._key_of[number]]
        return rng.sample(there, min(count, len(there)))


def simulated(kind: str, count: int, rounds: int, seed: int = 1) -> tuple[Swarm, Figures]:
    rng, churn = random.Random(seed), kind == "churn"
    source = drawn("planted" if kind in ("churn", "keys") else kind, count, np.random.default_rng(seed))
    swarm = Swarm(np.empty((0, DIMENSIONS), np.int8), [], [], [], watch_every=max(1, 2 * count * rounds // WATCHED))
    rows, early = next(source), {}
    swarm.keys = Keys(rows, seed) if kind == "keys" else None
    swarm.arrive(rows, 0, rng)
    begun = time.process_time()
    for turn in range(1, rounds + 1):
        if churn:
            arriving = next(source)
            swarm.leave(len(arriving), rng)
            swarm.arrive(arriving, turn, rng)
        swarm.turn(turn, rng)
        if count >= LONG:
            progress(f"{count} {kind}: round {turn} of {rounds}")
        if turn in EARLY:
            early[f"recall_at_10_round_{turn}"] = swarm.recall(rng, 0)[0]
    spent = time.process_time() - begun
    each, record, check = count * rounds, len(msgspec.msgpack.encode(announced())), cpu_of_check()
    records = (swarm.recommended + swarm.sampled) / each
    known, settled = swarm.recall(rng, rounds - SETTLED)
    marks = 2 * len(swarm.nodes[swarm.here[0]]) * MARK_BYTES
    figures: Figures = {
        "recall_at_10": known,
        "recall_at_10_settled": settled,
        "lookups": swarm.lookups / each,
        "bytes": 2 * (swarm.recommended * record + swarm.asked * marks) / each + swarm.sampled * record / each,
        "records": records,
        "cpu_ms": float(np.mean(swarm.watched)) * swarm.asked / each * 1e3 + records * check,
        "check_ms": check,
        "known": float(np.mean([len(swarm.nodes[number]) for number in swarm.here])),
        **early,
    }
    progress(f"{count} {kind}: recall {known:.3f}, {figures['cpu_ms']:.3f} ms a round, {spent:.0f} s")
    return swarm, figures


def figures(sizes: tuple[int, ...], rounds: int, kinds: tuple[str, ...] = KINDS) -> Figures:
    """All figures; those of a size end in `@` and the size. Costs are those of the planted kind."""
    found: Figures = {}
    for count in sizes:
        swarm, planted = simulated("planted", count, rounds)
        found.update({f"{name}@{count}": value for name, value in planted.items() if name != "recall_at_10_settled"})
        me = swarm.here[0]
        view = np.stack([swarm.neighbours[me].row, *swarm.nodes[me].rows().values()])
        found[f"choose_ms@{count}"] = choosing(view)
        for kind in kinds if count <= max(SIZES) else ():
            _, other = simulated(kind, count, rounds)
            found[f"recall_at_10_{kind}@{count}"] = other["recall_at_10"]
            if kind == "keys":
                found.update({f"{name}_keys@{count}": value for name, value in other.items() if "_round_" in name})
            if kind == "churn":
                found[f"recall_at_10_churn_settled@{count}"] = other["recall_at_10_settled"]
    least, most = min(sizes), max(sizes)
    for name in ("lookups", "bytes", "cpu_ms"):
        found[f"{name}_growth"] = float(found[f"{name}@{most}"]) / float(found[f"{name}@{least}"])
    found["log_growth"] = math.log(most) / math.log(least)
    found["moved_planted"], found["moved_mixed"] = moved("planted"), moved("mixed")
    found["choose_ms_largest_view"] = choosing(next(drawn("planted", MAX_VIEW, np.random.default_rng(1))))
    return found


def measure(arguments: argparse.Namespace) -> Figures:
    begun = time.perf_counter()
    counts = arguments.peers or (SIZES_QUICK if arguments.quick else SIZES)
    found = figures(counts, arguments.rounds, arguments.kinds)
    return {"rounds": arguments.rounds, **found, "seconds": time.perf_counter() - begun}


def read_kinds(text: str) -> tuple[str, ...]:
    words = tuple(text.split(","))
    if not set(words) <= set(KINDS):
        raise argparse.ArgumentTypeError(f"known are {', '.join(KINDS)}")
    return words


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--peers", type=read_sizes, default=(), help="sizes, with commas between")
    parser.add_argument("--kinds", type=read_kinds, default=KINDS, help="besides planted, with commas between")
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    run("neighbours", measure, parser)


if __name__ == "__main__":
    main()
