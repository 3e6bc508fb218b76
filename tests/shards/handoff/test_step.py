"""The handoff step by step, between nodes with real keys and disks that keep what was written."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from p2pnode.shards.handoff.certificate import certificate_id
from p2pnode.shards.handoff.messages import (
    AnyMessage,
    Certified,
    Kept,
    Offer,
    Refusal,
    Release,
    check_handoff,
    decode_handoff,
    encode_handoff,
)
from p2pnode.shards.handoff.state import (
    BytesArrived,
    ClaimShard,
    DeleteBytes,
    Drop,
    Give,
    HandoffEvent,
    HandoffStep,
    Lost,
    Meet,
    NotFetched,
    PutBytes,
    PutRecord,
    Received,
    Renew,
    ShardState,
    TakeOver,
    is_mine,
    is_sole_keeper,
    restarted,
    sources,
    unconfirmed,
)
from p2pnode.shards.handoff.step import step
from p2pnode.wire.ids import Identity, PeerId

SHARD = "ab" * 16


class Swarm:
    """Nodes that do what `step` says and hear each other at once, unless a link is cut."""

    def __init__(self, names: str) -> None:
        self.keys = {name: Identity(name.encode() * 32) for name in names}
        self.names = {key.peer_id: name for name, key in self.keys.items()}
        self.states = dict.fromkeys(names, ShardState())
        self.deaf: set[str] = set()
        self.heard: list[tuple[str, str, AnyMessage]] = []

    def ids(self, names: Iterable[str]) -> tuple[str, ...]:
        return tuple(self.keys[name].peer_id for name in names)

    def do(self, name: str, event: HandoffEvent) -> HandoffStep:
        done = step(self.keys[name], self.states[name], event)
        self.states[name] = done.state
        for peer, message in done.messages:
            self.hear(self.names[PeerId(peer)], name, message)
        return done

    def hear(self, name: str, sender: str, message: AnyMessage) -> None:
        if name in self.deaf:
            return
        self.heard.append((name, sender, message))
        arrived, peer = decode_handoff(encode_handoff(message)), self.keys[sender].peer_id
        check_handoff(arrived, peer, self.keys[name].peer_id, self.states[name].record.highest)
        self.do(name, Received(peer, arrived))

    def found(self, name: str, keepers: str) -> None:
        self.do(name, BytesArrived())
        self.do(name, ClaimShard("run", SHARD, self.ids(keepers)))

    def meet(self, name: str, other: str) -> None:
        self.do(name, Meet(self.keys[other].peer_id))

    def give(self, name: str, to: str, keepers: str) -> HandoffStep:
        return self.do(name, Give(self.keys[to].peer_id, self.ids(keepers)))

    def holders(self) -> str:
        return "".join(name for name, state in self.states.items() if is_mine(state, self.keys[name].peer_id))

    def keeping(self) -> str:
        return "".join(name for name, state in self.states.items() if state.have and state.record.kept)

    def having(self) -> str:
        return "".join(name for name, state in self.states.items() if state.have)

    def sole(self, name: str) -> bool:
        return is_sole_keeper(self.states[name], self.keys[name].peer_id)


@pytest.fixture
def swarm() -> Swarm:
    """a holds a shard of which there is one copy."""
    made = Swarm("abcd")
    made.found("a", "a")
    return made


def test_a_shard_changes_hands_and_the_copy_stays_as_cache(swarm):
    swarm.give("a", "b", "b")
    assert (swarm.holders(), swarm.keeping()) == ("a", "a"), "the giver stays holder until the receipt"
    swarm.do("b", BytesArrived())
    assert (swarm.holders(), swarm.keeping(), swarm.having()) == ("b", "b", "ab")


def test_writes_come_in_the_order_that_loses_nothing(swarm):
    giving = swarm.give("a", "b", "b")
    assert [type(write) for write in giving.writes] == [PutRecord]
    assert giving.writes[0].record.next_term == 2 and giving.state.record.kept
    taking = swarm.do("b", BytesArrived())
    assert [type(write) for write in taking.writes] == [PutBytes, PutRecord]


def test_cache_goes_when_room_is_needed_and_kept_bytes_do_not(swarm):
    assert swarm.do("a", Drop()).writes == ()
    swarm.give("a", "b", "b")
    swarm.do("b", BytesArrived())
    assert swarm.do("a", Drop()).writes == (DeleteBytes(),)
    assert swarm.do("b", Drop()).writes == ()
    assert swarm.having() == "b"


def test_no_room_is_a_refusal_and_the_giver_keeps(swarm):
    swarm.give("a", "b", "b")
    swarm.do("b", NotFetched("disk full"))
    assert swarm.heard[-1] == ("a", "b", Refusal("run", SHARD, 1, "disk full"))
    assert swarm.states["a"].offer is None and swarm.holders() == "a" and sources(swarm.states["b"], "") == ()


def test_an_offer_taken_back_is_void_when_it_comes_late(swarm):
    swarm.deaf.add("b")
    late = swarm.give("a", "b", "b").messages[0][1]
    swarm.do("a", Renew(swarm.ids("a")))
    swarm.deaf.clear()
    swarm.meet("a", "b")
    swarm.hear("b", "a", late)
    assert swarm.holders() == "a" and sources(swarm.states["b"], "") == ()


def test_a_commit_nobody_heard_of_loses_to_the_renewal(swarm):
    swarm.give("a", "b", "b")
    swarm.deaf.add("a")
    swarm.do("b", BytesArrived())
    swarm.do("a", Renew(swarm.ids("a")))
    assert swarm.holders() == "ab"
    swarm.deaf.clear()
    swarm.meet("b", "a")
    assert (swarm.holders(), swarm.keeping()) == ("a", "a")


def test_everything_twice_changes_nothing(swarm):
    swarm.give("a", "b", "bc")
    for name in "bc":
        swarm.do(name, BytesArrived())
    swarm.meet("a", "b")
    before = dict(swarm.states)
    for name, sender, message in list(swarm.heard):
        swarm.hear(name, sender, message)
    assert swarm.states == before


def test_the_giver_is_released_once_all_keepers_have_the_bytes(swarm):
    swarm.give("a", "b", "bc")
    swarm.do("b", BytesArrived())
    assert swarm.keeping() == "ab", "c has not got them yet"
    swarm.do("c", BytesArrived())
    swarm.meet("a", "b")
    assert swarm.keeping() == "bc"
    assert isinstance(swarm.heard[-1][2], Release)


def test_a_keeper_that_is_no_longer_named_waits_for_its_release(swarm):
    swarm.do("a", Renew(swarm.ids("ab")))
    swarm.do("b", BytesArrived())
    swarm.do("a", Renew(swarm.ids("ac")))
    swarm.meet("a", "b")
    assert swarm.keeping() == "ab"
    swarm.do("c", BytesArrived())
    swarm.meet("b", "a")
    assert swarm.keeping() == "ac"


def test_a_takeover_makes_a_holder_and_frees_nobody(swarm):
    swarm.do("a", Renew(swarm.ids("ab")))
    swarm.do("b", BytesArrived())
    swarm.do("b", TakeOver(swarm.ids("bc")))
    swarm.do("c", BytesArrived())
    for name in "bc":
        swarm.meet("a", name)
    assert (swarm.holders(), swarm.keeping()) == ("b", "abc")
    swarm.do("b", Renew(swarm.ids("bc")))
    swarm.meet("b", "c")
    swarm.meet("b", "a")
    assert swarm.keeping() == "bc"


def test_only_a_keeper_takes_over(swarm):
    swarm.meet("a", "b")
    assert swarm.do("b", TakeOver(swarm.ids("b"))).writes == ()
    assert swarm.do("a", TakeOver(swarm.ids("a"))).writes == ()


def test_of_two_claims_one_is_left(swarm):
    swarm.found("b", "b")
    assert swarm.holders() == "ab"
    swarm.meet("a", "b")
    assert len(swarm.holders()) == 1 and swarm.keeping() == swarm.holders()


def test_who_returns_with_old_certificates_does_no_harm(swarm):
    old = swarm.states["a"]
    swarm.give("a", "b", "b")
    swarm.do("b", BytesArrived())
    swarm.give("b", "c", "c")
    swarm.do("c", BytesArrived())
    swarm.states["a"] = restarted(swarm.keys["a"].peer_id, old.record, old.have)
    swarm.meet("a", "c")
    assert (swarm.holders(), swarm.keeping()) == ("c", "c")


def test_a_lost_file_is_fetched_again_from_a_keeper(swarm):
    swarm.do("a", Renew(swarm.ids("ab")))
    swarm.do("b", BytesArrived())
    swarm.do("a", Lost())
    assert sources(swarm.states["a"], swarm.keys["a"].peer_id) == swarm.ids("b")
    assert swarm.give("a", "c", "ca").messages == (), "what is not there cannot be given"
    swarm.do("a", BytesArrived())
    assert swarm.keeping() == "ab" and swarm.holders() == "a"


def test_a_node_that_leaves_hands_over_first(swarm):
    assert swarm.sole("a")
    swarm.give("a", "b", "b")
    assert swarm.sole("a")
    swarm.do("b", BytesArrived())
    assert not swarm.sole("a") and swarm.sole("b")


def test_confirmations_count_for_the_certificate_they_are_about(swarm):
    swarm.do("a", Renew(swarm.ids("ab")))
    first = swarm.states["a"].record.highest
    swarm.do("a", Renew(swarm.ids("ab")))
    swarm.hear("a", "b", Kept("run", SHARD, certificate_id(first)))
    swarm.hear("a", "c", Kept("run", SHARD, certificate_id(swarm.states["a"].record.highest)))
    assert unconfirmed(swarm.states["a"], swarm.keys["a"].peer_id) == swarm.ids("b")


def test_a_crash_forgets_only_what_can_be_asked_again(swarm):
    swarm.give("a", "b", "b")
    for name in "ab":
        state = swarm.states[name]
        swarm.states[name] = restarted(swarm.keys[name].peer_id, state.record, state.have)
    assert swarm.states["a"].record.next_term == 2
    assert swarm.give("a", "b", "b").messages[0][1].certificate.term == 2
    swarm.do("b", BytesArrived())
    assert swarm.holders() == "b"


def test_meeting_again_repeats_what_was_not_heard(swarm):
    swarm.deaf.add("b")
    swarm.give("a", "b", "b")
    swarm.deaf.clear()
    swarm.meet("a", "b")
    said = [type(message) for name, _, message in swarm.heard if name == "b"]
    assert said == [Certified, Offer]
