"""Faults of a simulated swarm as plain values: a list of them can be drawn from a seed, printed and shrunk."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Literal

from ...wire.types import Seconds

FaultKind = Literal[
    "partition", "split", "cut", "slow", "loss", "daemon", "crash",
    "step", "operation", "power", "rollback", "rot", "full", "slow disk", "freeze", "clock",
]  # fmt: skip
NETWORK_FAULTS: tuple[FaultKind, ...] = ("partition", "split", "cut", "slow", "loss", "daemon", "crash")
PROCESS_FAULTS: tuple[FaultKind, ...] = (
    "step", "operation", "power", "rollback", "rot", "full", "slow disk", "freeze", "clock",
)  # fmt: skip
DAMAGING: tuple[FaultKind, ...] = ("rollback", "rot")  # what was durable is gone: no promise holds if all disks do that


@dataclass(frozen=True)
class Fault:
    """Something that fails at `time` and recovers after `seconds` (inf: never).

    Peers are indices in the swarm. Faults of one kind add up.

        partition  nothing passes between `peers` and `others` (empty: all the rest), in either direction
        split      like partition, and their routing tables forget each other
        cut        nothing passes from `peers` to `others` (empty: all the rest); the other direction works
        slow       every message from or to `peers` takes `amount` times as long
        loss       every call message from or to `peers` (empty: everybody) is lost with probability `amount`
        daemon     the daemons of `peers` die and are replaced after `seconds`
        crash      `peers` vanish, and start again after `seconds`

    Of processes, their disks and clocks:

        step       `peers` vanish at their `amount`-th step (between two awaits) from now, and start again
        operation  `peers` vanish before their `amount`-th write, rename or deletion from now; an append is torn
        power      `peers` vanish; renames and deletions that were not synced yet may be undone
        rollback   `peers` vanish; their disks return to what they were `amount` seconds before
        rot        `peers` vanish; one bit in one of their files flips (`amount` between 0 and 1 says which)
        full       the disks of `peers` have no room: writes fail, appends are torn
        slow disk  every write holds its process up for `amount` seconds
        freeze     `peers` do nothing, as after SIGSTOP; the machine and its daemon go on
        clock      the clocks of `peers` are wrong by another `amount` seconds
    """

    time: Seconds
    kind: FaultKind
    peers: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    seconds: Seconds = inf
    amount: float = 0.0

    @property
    def end(self) -> Seconds:
        return self.time + self.seconds


class ActiveFaults:
    """The faults that affect messages now. Used for every message, so without faults it costs one check."""

    def __init__(self) -> None:
        self._active: list[tuple[Fault, frozenset[int], frozenset[int]]] = []

    def begin(self, fault: Fault) -> None:
        self._active.append((fault, frozenset(fault.peers), frozenset(fault.others)))

    def end(self, fault: Fault) -> None:
        self._active = [entry for entry in self._active if entry[0] is not fault]

    def __bool__(self) -> bool:
        return bool(self._active)

    def blocked(self, source: int, target: int) -> bool:
        """Whether messages from `source` to `target` are stopped."""
        for fault, peers, others in self._active:
            if _across(source, target, peers, others) and fault.kind in ("partition", "split", "cut"):
                return True
            if _across(target, source, peers, others) and fault.kind in ("partition", "split"):
                return True
        return False

    def slowness(self, source: int, target: int) -> float:
        factor = 1.0
        for fault, peers, _ in self._active:
            if fault.kind == "slow" and (source in peers or target in peers):
                factor *= fault.amount
        return factor

    def loss(self, source: int, target: int) -> float:
        passes = 1.0
        for fault, peers, _ in self._active:
            if fault.kind == "loss" and (not peers or source in peers or target in peers):
                passes *= 1.0 - fault.amount
        return 1.0 - passes


def _across(source: int, target: int, peers: frozenset[int], others: frozenset[int]) -> bool:
    return source in peers and target not in peers and (not others or target in others)


def churn_faults(
    rng: random.Random, peers: Sequence[int], share: float, start: Seconds, seconds: Seconds
) -> list[Fault]:
    """A share of the peers crashes at random times within `seconds`, and returns 1 to 60 seconds later."""
    victims = rng.sample(list(peers), round(share * len(peers)))
    times = sorted(start + rng.random() * seconds for _ in victims)
    return [
        Fault(time, "crash", (victim,), seconds=rng.uniform(1.0, 60.0))
        for time, victim in zip(times, victims, strict=True)
    ]


def draw_faults(
    rng: random.Random,
    peers: int,
    seconds: Seconds,
    count: int,
    kinds: Sequence[FaultKind] = NETWORK_FAULTS,
    victim: int = 0,
) -> list[Fault]:
    """`count` faults of these kinds at random times; every one of them is over by `seconds`.

    Only the disk of `victim` is damaged: a swarm whose disks all lose what they had written can promise nothing.
    """
    return sorted((_draw(rng, peers, seconds, kinds, victim) for _ in range(count)), key=lambda fault: fault.time)


def _draw(
    rng: random.Random, peers: int, seconds: Seconds, kinds: Sequence[FaultKind] = NETWORK_FAULTS, victim: int = 0
) -> Fault:
    kind = rng.choice(kinds)
    time = rng.random() * seconds * 0.8
    lasts = min(rng.expovariate(1 / 20), seconds - time)
    some = tuple(sorted(rng.sample(range(peers), rng.randint(1, max(1, peers // 2)))))
    amounts = {"slow": rng.uniform(2, 50), "loss": rng.uniform(0.05, 0.5)}
    if kind in PROCESS_FAULTS:
        amounts |= {
            "step": float(rng.randint(1, 400)),
            "operation": float(rng.randint(1, 16)),
            "rollback": rng.uniform(1.0, 90.0),
            "rot": rng.random(),
            "slow disk": rng.uniform(0.01, 1.0),
            "clock": rng.choice((-1, 1)) * 10 ** rng.uniform(0, 7),
        }
        some = (victim,) if kind in DAMAGING else some
    return Fault(time, kind, some, seconds=lasts, amount=amounts.get(kind, 0.0))


def shrink(faults: Sequence[Fault], fails: Callable[[Sequence[Fault]], bool]) -> list[Fault]:
    """A smaller list of faults for which `fails` still holds: halves first, then smaller pieces, then single ones."""
    left = list(faults)
    piece = max(1, len(left) // 2)
    while left:
        start = 0
        while start < len(left):
            without = left[:start] + left[start + piece :]
            if fails(without):
                left = without
            else:
                start += piece
        if piece == 1:
            break
        piece //= 2
    return left
