"""Authors with each selector: everybody learns, the same seed gives the same run, hints reach the partners."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.virtualpeers import Peer, Plan, VirtualPeers
from p2pnode.compression.selectors.granularity import COARSE, HYBRID, LEARNED, RULE
from p2pnode.compression.selectors.scored import Scored
from p2pnode.config.split import parse_split
from p2pnode.merging.deltaset.author import Draft
from p2pnode.merging.deltaset.policy import DeltaSetPolicy
from p2pnode.merging.policy import RoundFacts
from p2pnode.shards.split import split_rows
from p2pnode.tasks.find import load_task
from p2pnode.training.host import ModelHost
from tests.known import known

VARIANTS: list[dict[str, float]] = [
    {"influence": 1.0, "importance": 0.5, "layer_scores": 0.5},
    {"least_influence": 0.3, "granularity": HYBRID},
    {"granularity": COARSE},
    {"granularity": RULE},
    {"granularity": LEARNED},
]


def run(settings: dict[str, float]) -> list[Peer]:
    model_host = ModelHost(load_task("digits"), seed=0)
    parts = split_rows(None, model_host.samples, 3, parse_split("iid"), 1)
    swarm = VirtualPeers(model_host, parts, DeltaSetPolicy, settings, Plan(150, seed=1), model_host.genesis)
    swarm.run()
    return swarm.peers


@pytest.mark.parametrize(
    "settings", VARIANTS, ids=lambda settings: "+".join(settings) + str(settings.get("granularity", ""))
)
def test_the_same_seed_gives_the_same_and_everybody_learns(settings: dict[str, float]) -> None:
    first, again = run(settings), run(settings)
    for one, other in zip(first, again, strict=True):
        assert np.array_equal(one.policy.readout(), other.policy.readout())
        assert one.received == other.received > 0
        assert known(one.trainer.evaluate(one.policy.readout()).accuracy) > 0.5


def selector_of(peer: Peer) -> Scored:
    assert isinstance(peer.policy, DeltaSetPolicy)
    selector = peer.policy.author.selector
    assert isinstance(selector, Scored)
    return selector


def test_partners_hear_each_others_scores_of_layers() -> None:
    for peer in run(VARIANTS[0]):
        selector = selector_of(peer)
        assert selector.layer_scores is not None
        assert selector.layer_scores.heard > 10
        assert len(selector.hint) == 4
        assert selector.gradients is not None
        assert selector.gradients.looks == 1
        assert selector.importance is not None
        assert selector.importance.lessons > 10


def test_entries_carry_a_hint_only_where_the_selector_gives_one() -> None:
    cases: list[tuple[dict[str, float], bool]] = [({}, False), (VARIANTS[0], True)]
    for settings, has_hint in cases:
        (peer, *_) = run(settings)
        assert isinstance(peer.policy, DeltaSetPolicy)
        assert {bool(entry.hint) for entry in peer.policy.set.log} == {has_hint}


def test_the_rule_knows_of_a_short_link() -> None:
    """A byte budget that the round's entry fills makes the link short; one with room does not."""
    (peer, *_) = run({"granularity": RULE})
    begun = peer.policy.start()
    for budget, scarce in ((300, True), (1_000_000, False)):
        peer.policy.record(begun, begun + np.float32(0.001), RoundFacts(1, 0.1, 1, 3, byte_budget=budget))
        assert ("short" in selector_of(peer).granularity.choice.reason) is scarce


@pytest.mark.parametrize("granularity", [COARSE, HYBRID])
def test_blocks_keep_to_a_byte_budget(granularity: int) -> None:
    """Coordinates are cheaper in blocks; a budget still buys bytes, not more of them."""
    (peer, *_) = run({"granularity": granularity, "density": 0.05, "gamma": 1.0})
    policy = peer.policy
    assert isinstance(policy, DeltaSetPolicy)
    rng, sizes = np.random.default_rng(1), []
    for _ in range(16):
        begun = policy.start()
        after = begun + rng.normal(0, 1e-3, len(begun)).astype(np.float32)
        draft = policy.record(begun, after, RoundFacts(1, 1.0, 1, 3, byte_budget=300))
        assert isinstance(draft, Draft)
        sizes.append(len(draft.payload))
        policy.publish(draft)
    assert np.mean(sizes[8:]) < 360
