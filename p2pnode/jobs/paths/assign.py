"""Who trains which path, from what nodes announce. Pure: every node computes the same table and acts on its own row.

A path's need is its samples; its power is the speed of those who train it. Newcomers go to the path with the most
samples for its power. A path without anybody comes first: somebody whose path can spare it moves there, and where
nobody can be spared, the node with the most power for its paths trains it too, in turns. Others stay, and move only
after a while and for a clear gain.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from typing import NamedTuple

from blake3 import blake3

STAY_ROUNDS = 50  # before a node moves for a gain
GAIN = 1.5  # times the power that the poorer path has for its samples
_FORMAT = struct.Struct("<BfQQHee")
_VERSION = 1
_MOST_LOSS = 60_000.0


@dataclass(frozen=True)
class Worker:
    """What a node announces: its speed, the paths it trains, those it has samples of, and for how many rounds."""

    speed: float = 1.0
    paths: frozenset[int] = frozenset()
    able: frozenset[int] = frozenset()
    rounds: int = 0
    loss: float | None = None  # of its paths, on test documents that belong to them,
    loss_by_beginning: float | None = None  # and on those whose beginning says so


class PathMove(NamedTuple):
    """Which paths a node should train, and why."""

    peer: str
    paths: frozenset[int]
    reason: str


def write_worker(worker: Worker) -> bytes:
    """The worker as it is announced, in 27 bytes."""
    trained, able = (sum(1 << path for path in paths) for paths in (worker.paths, worker.able))
    losses = (_short(worker.loss), _short(worker.loss_by_beginning))
    return _FORMAT.pack(_VERSION, worker.speed, trained, able, min(worker.rounds, 0xFFFF), *losses)


def _short(loss: float | None) -> float:
    """A loss that fits 16 bits; not a number where there is none."""
    return nan if loss is None or not isfinite(loss) else min(max(loss, -_MOST_LOSS), _MOST_LOSS)


def read_worker(state: bytes, paths: int) -> Worker | None:
    """What a peer announced; None when that is nothing, or makes no sense."""
    if len(state) != _FORMAT.size:
        return None
    version, speed, trained, able, rounds, loss, by_beginning = _FORMAT.unpack(state)
    if version != _VERSION or not 0 <= speed < 1e9 or trained >> paths or able >> paths:
        return None

    def bits(number: int) -> frozenset[int]:
        return frozenset(path for path in range(paths) if number >> path & 1)

    losses = [found if isfinite(found) else None for found in (loss, by_beginning)]
    return Worker(speed or 1.0, bits(trained), bits(able), rounds, *losses)


def assign(workers: Mapping[str, Worker], needs: Sequence[float]) -> dict[str, PathMove]:
    """The nodes that should train other paths than they do, with the reason. `needs` are the samples of each path."""
    table, found = dict(workers), dict[str, PathMove]()
    for _ in range(2 * (len(table) + len(needs))):
        move = _next_move(table, needs)
        if move is None:
            break
        table[move.peer] = replace(table[move.peer], paths=move.paths, rounds=0)
        found[move.peer] = move
    return {peer: move for peer, move in found.items() if move.paths != workers[peer].paths}


def _next_move(table: Mapping[str, Worker], needs: Sequence[float]) -> PathMove | None:
    power = powers(table, len(needs))
    poorest = sorted(range(len(needs)), key=lambda path: (-needs[path] / max(power[path], 1e-9), path))
    for path in poorest:
        if power[path] == 0 and needs[path] > 0:
            move = _rescue(path, table, power, needs)
            if move is not None:
                return move
    for peer in sorted(table):
        worker = table[peer]
        if not worker.paths and worker.able:
            path = next(path for path in poorest if path in worker.able)
            return PathMove(peer, frozenset((path,)), "it has the most samples for those who train it")
    return _relief(table, poorest) or _gain(table, power, needs, poorest)


def powers(table: Mapping[str, Worker], paths: int) -> list[float]:
    """The speed at which each path is trained."""
    found = [0.0] * paths
    for worker in table.values():
        for path in worker.paths:
            found[path] += worker.speed / len(worker.paths)
    return found


def _rescue(path: int, table: Mapping[str, Worker], power: Sequence[float], needs: Sequence[float]) -> PathMove | None:
    """Somebody for a path that nobody trains: a newcomer, one whose path has others too, or one who takes turns."""
    able = [peer for peer, worker in table.items() if path in worker.able]
    idle = [peer for peer in able if not table[peer].paths]
    if idle:
        return PathMove(preferred(path, idle)[0], frozenset((path,)), "nobody trains it")
    spare = [peer for peer in able if _can_be_spared(table, peer)]
    if spare:

        def richness(peer: str) -> float:
            (own,) = table[peer].paths
            return power[own] / max(needs[own], 1e-9)

        chosen = max(preferred(path, spare), key=richness)  # of equals the first, which is preferred
        return PathMove(chosen, frozenset((path,)), "nobody trains it, and others train the path it leaves")
    if not able:
        return None
    chosen = min(preferred(path, able), key=lambda peer: len(table[peer].paths) / table[peer].speed)
    reason = "nobody trains it, and there are fewer nodes than paths"
    return PathMove(chosen, table[chosen].paths | {path}, reason)


def _can_be_spared(table: Mapping[str, Worker], peer: str) -> bool:
    """Whether a node trains one path, which others train too."""
    own = table[peer].paths
    return len(own) == 1 and any(own <= worker.paths for other, worker in table.items() if other != peer)


def _relief(table: Mapping[str, Worker], poorest: Sequence[int]) -> PathMove | None:
    """A node that takes turns gives up a path that somebody trains all the time."""
    for peer in sorted(table):
        worker = table[peer]
        if len(worker.paths) > 1:
            for path in reversed(poorest):
                if path in worker.paths and any(other.paths == {path} for other in table.values()):
                    return PathMove(peer, worker.paths - {path}, "another node trains the path that it gives up")
    for peer in sorted(table):  # a node whose path others train too takes one from a node that has several
        if not _can_be_spared(table, peer):
            continue
        for path in poorest:
            shared = [other for other in table.values() if len(other.paths) > 1 and path in other.paths]
            if shared and path in table[peer].able:
                return PathMove(peer, frozenset((path,)), "a node that takes turns trains it")
    return None


def _gain(
    table: Mapping[str, Worker], power: Sequence[float], needs: Sequence[float], poorest: Sequence[int]
) -> PathMove | None:
    """The move of one node, that stayed long enough, from a rich path to a poor one, if that helps clearly."""
    for path in poorest:
        if not needs[path]:
            continue
        for peer in preferred(path, list(table)):
            worker = table[peer]
            if worker.rounds < STAY_ROUNDS or path not in worker.able or not _can_be_spared(table, peer):
                continue
            (own,) = worker.paths
            left = (power[own] - worker.speed) / max(needs[own], 1e-9)
            if own != path and left > GAIN * power[path] / needs[path]:
                return PathMove(peer, frozenset((path,)), "it has many more samples for those who train it")
    return None


def preferred(path: int, peers: Sequence[str]) -> list[str]:
    """Peers in the order in which they take a path over, or keep a copy of it: the same for everybody."""
    return sorted(peers, key=lambda peer: (blake3(f"p2pnode path {path} {peer}".encode()).digest(8), peer))
