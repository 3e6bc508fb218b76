"""Similarities, dendrogram and communities of a picture follow from the fingerprints in it, whatever those are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from p2pnode.jobs.train.plan import TrainPlan
from p2pnode.similarity.communities import MAX_VIEW
from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES, HEADER_BYTES, VERSION
from p2pnode.watch.figures.trees import TOO_FEW, plot_dendrogram, plot_similarity
from p2pnode.watch.graph import PeerGraph
from p2pnode.watch.similarity import annealed, communities_of, similarity_of, with_similarity
from p2pnode.wire.run import Manifest
from p2pnode.wire.status import ExchangeRow, PeerState
from tests.jobs.train.setups import train_entry
from tests.known import known

PLAN = TrainPlan("digits", "1", {}, 10, "0" * 64, "0" * 64, "0" * 64, 1, round_seconds=2.0)


def fingerprint(seed: int, kin: int = 0, mark: bytes = b"ab") -> bytes:
    """Those of one kin are much alike."""
    common, own = (
        np.random.default_rng(number).normal(size=FINGERPRINT_BYTES - HEADER_BYTES) for number in (kin, seed)
    )
    return bytes([VERSION, 1]) + mark + np.rint(25 * common + 5 * own).clip(-127, 127).astype(np.int8).tobytes()


def swarm(*fingerprints: bytes, progress: float = 0.0) -> PeerGraph:
    peers = tuple(PeerState(f"p{number:03}", f"n{number}", "node", True) for number in range(len(fingerprints)))
    picture = PeerGraph(1.0, "", "run", "connected", "", peers, (ExchangeRow("p000", "p001", 1.0, 1, 1, 1),))
    known = {peer.id: given for peer, given in zip(peers, fingerprints, strict=True) if given}
    return with_similarity(picture, known, progress)


@given(st.lists(st.binary(max_size=300) | st.integers(0, 9).map(fingerprint), min_size=2, max_size=8), st.floats(0, 1))
@settings(max_examples=60, deadline=None)
def test_whatever_peers_announce_gives_a_picture(announced: list[bytes], progress: float) -> None:
    picture = swarm(*announced, progress=progress)
    alike = similarity_of(picture)
    assert alike.table.shape == (len(alike.peers),) * 2
    assert ((alike.table >= 0) & (alike.table <= 1)).all()
    assert set(communities_of(picture).of) == set(alike.peers)
    assert {peer.id for peer in picture.peers if peer.community} == set(alike.peers)


def test_kin_are_one_community_until_all_are() -> None:
    models = [fingerprint(10 + number, kin=number // 3) for number in range(9)]
    early, late = swarm(*models, progress=0.5), swarm(*models, progress=1.0)
    assert [peer.community for peer in early.peers] == ["p000"] * 3 + ["p003"] * 3 + ["p006"] * 3
    assert {peer.community for peer in late.peers} == {"p000"}
    assert early.exchanges[0].similarity == pytest.approx(similarity_of(early).table[0, 1])
    assert known(early.exchanges[0].similarity) > 0.8


def test_only_what_comes_from_one_projection_is_compared() -> None:
    picture = swarm(fingerprint(1), fingerprint(2), fingerprint(3, mark=b"xy"))
    assert similarity_of(picture).peers == ("p000", "p001")
    assert picture.peers[2].community == ""


def test_a_large_swarm_is_compared_in_part() -> None:
    picture = swarm(*(fingerprint(number, kin=number) for number in range(MAX_VIEW + 5)))
    assert len(similarity_of(picture).peers) == MAX_VIEW


def test_a_run_anneals_by_its_age_and_its_aim() -> None:
    run = Manifest("run", "fox", 1000.0, b"", jobs=(train_entry("main", PLAN),))
    assert annealed(run, 1000.0) == 0.0
    assert annealed(run, 1300.0) == 0.5
    assert annealed(run, 9000.0) == 1.0
    assert annealed(None, 9000.0) is None


def test_figures_frame_communities_and_colour_their_branches() -> None:
    models = [fingerprint(10 + number, kin=number // 3) for number in range(9)]
    heat, tree = plot_similarity(swarm(*models, progress=0.5)), plot_dendrogram(swarm(*models, progress=0.5))
    assert len(heat.axes[0].patches) == 3
    branches: Any = tree.axes[0].collections[0]
    colours = branches.get_colors()
    assert len(colours) == 8
    assert len({tuple(colour) for colour in colours}) == 4, "three communities, and what lies above the cut"
    assert [label.get_text() for label in tree.axes[0].get_xticklabels()] != []
    for empty in (plot_similarity(swarm(b"", b"")), plot_dendrogram(swarm(b"", b""))):
        assert [text.get_text() for text in empty.axes[0].texts] == [TOO_FEW]
