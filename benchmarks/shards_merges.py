"""How the peers of benchmarks.shards merge: the package's own policies and messages, all peers in step.

A round ends for all at once. A delta set goes on from what it knows by then and exchanges while the next round trains;
`gossip` and `average` wait for their one partner. Bytes are those of the messages, at the receiver.
"""

from __future__ import annotations

from random import Random

import numpy as np
from blake3 import blake3
from numpy.typing import NDArray

from p2pnode.compression.weights import Floats, to_units
from p2pnode.merging.policy import Policy, PolicySetup, RoundFacts
from p2pnode.merging.registry import policy_named
from p2pnode.wire.ids import Identity

PARTNERS = 3  # of a delta set, in an exchange
Rows = NDArray[np.float32]  # one row of weights per peer


class Merging:
    """All peers' policies: gossip, deltaset or dense (averaging in fp32). `density` 0 leaves it to the policy."""

    def __init__(
        self, kind: str, genesis: Floats, layers: tuple[int, ...], peers: int, seed: int, density: float
    ) -> None:
        self._kind, self._rng = kind, Random(seed)
        settings = {"density": density} if density else {}
        self._names = [Identity(blake3(f"peer {number} of {seed}".encode()).digest()) for number in range(peers)]
        make = policy_named("average" if kind == "dense" else kind)
        self.policies: list[Policy] = [
            make(PolicySetup(to_units(genesis), name, "00" * 32, "main", "00" * 32, settings, seed, layers))
            for name in self._names
        ]
        self.bytes = 0

    def starts(self) -> Rows:
        return np.stack([policy.start() for policy in self.policies])

    def readouts(self) -> Rows:
        return np.stack([policy.readout() for policy in self.policies])

    def end_round(self, begun: Rows, after: Rows, steps: int, samples: int) -> Rows:
        """Publish, exchange, merge; where each peer's next round begins."""
        for policy, start, end in zip(self.policies, begun, after, strict=True):
            facts = RoundFacts(steps, 1.0, samples, len(self.policies))
            policy.publish(policy.record(start, end, facts))
        if self._kind == "deltaset":
            starts = self._merged()
            self._exchange_sets()
            return starts
        self._exchange_pairs()
        return self._merged()

    def _merged(self) -> Rows:
        for policy in self.policies:
            policy.merge()
        return self.starts()

    def _exchange_sets(self) -> None:
        for one in self._rng.sample(range(len(self.policies)), len(self.policies)):
            others = [other for other in range(len(self.policies)) if other != one]
            for other in self._rng.sample(others, min(PARTNERS, len(others))):
                self._exchange(one, other)

    def _exchange_pairs(self) -> None:
        order = self._rng.sample(range(len(self.policies)), len(self.policies))
        for one, other in zip(order[::2], order[1::2], strict=False):
            self._exchange(one, other)

    def _exchange(self, one: int, other: int) -> None:
        mine, theirs = self._names[one].peer_id, self._names[other].peer_id
        question = self.policies[one].ask(theirs)
        answer = self.policies[other].answer(mine, question)
        push = self.policies[one].take(theirs, answer)
        if push:
            self.policies[other].take(mine, push)
        self.bytes += len(question) + len(answer) + len(push)
