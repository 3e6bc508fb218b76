"""How exchanges went decides how often a peer is drawn: never not at all, and only what happened counts."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from p2pnode.discovery.reputation import MIN_WORTH, PartnerRecord
from p2pnode.wire.ids import PeerId

GOOD, BAD = [PeerId(f"good {number}") for number in range(10)], [PeerId(f"bad {number}") for number in range(100)]


@given(st.lists(st.booleans()))
def test_worth_stays_in_bounds_and_follows_what_happens(went: list[bool]) -> None:
    partner_record = PartnerRecord()
    for well in went:
        before = partner_record.worth(GOOD[0])
        partner_record.note(GOOD[0], well)
        after = partner_record.worth(GOOD[0])
        assert MIN_WORTH <= after <= 1.0
        assert after >= before if well else after <= before
    assert partner_record.worth(GOOD[1]) == 1.0


@given(st.integers(0, 120), st.randoms(use_true_random=False))
def test_a_draw_is_of_different_peers_and_as_many_as_can_be(count: int, rng: random.Random) -> None:
    peers = GOOD + BAD
    drawn = PartnerRecord().draw(peers, count, rng)
    assert len(drawn) == len(set(drawn)) == min(count, len(peers))
    assert set(drawn) <= set(peers)


def test_many_that_always_refuse_do_not_push_out_the_few_that_do_not() -> None:
    partner_record, rng = PartnerRecord(), random.Random(1)
    for peer in BAD:
        for _ in range(6):
            partner_record.note(peer, succeeded=False)
    draws = [partner_record.draw(sorted(GOOD + BAD), 15, rng) for _ in range(100)]
    assert sum(peer in GOOD for draw in draws for peer in draw) >= 900, "of a thousand"
    assert {peer for draw in draws for peer in draw} >= set(BAD), "but they too get their chance"
