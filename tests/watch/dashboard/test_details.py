"""What the page asks for only while it is looked at: shards, lineage and rounds."""

from __future__ import annotations

import json

import pytest

from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES, HEADER_BYTES, VERSION
from p2pnode.watch.dashboard import details
from p2pnode.watch.dashboard.server import served
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import LimitOptions, Machine, MergeRow, ShardRow, VisitRow
from tests.watch.dashboard.test_served_page import FakeNode, get

SHARES = {"fox": {"0.weight": 0.75}, "owl": {"0.weight": 0.25}}


HEAD = bytes([VERSION]).ljust(HEADER_BYTES, b"\1")
FINGERPRINTS = {
    "fox": HEAD + bytes([5] * (FINGERPRINT_BYTES - HEADER_BYTES)),
    "owl": HEAD + bytes([5] * (FINGERPRINT_BYTES - HEADER_BYTES)),
    "liar": b"no fingerprint",
}


class Learner(FakeNode):
    """Counts what is asked of it."""

    def __init__(self, problem: str = "", **changes: object) -> None:
        super().__init__(**changes)
        self.problem = problem
        self.asked: list[str] = []

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        self.asked.append(request.do)
        if self.problem:
            raise LocalProblem(self.problem)
        if request.do == "fingerprints":
            return ControlAnswer(fingerprints=FINGERPRINTS)
        if request.do == "shards":
            return ControlAnswer(shards=tuple(row for row in self.shown.shards if row.id == request.shard))
        merges = (MergeRow(1, 4.0, ("fox",), 10, 20, 3, 0.5, 0.01, steps=40, values=96),)
        return ControlAnswer(blame=SHARES, merges=merges)


async def asked(node: FakeNode, *paths: str) -> list:
    async with served(node, "127.0.0.1", 0) as place:
        return [json.loads((await get(place, path))[1]) for path in paths]


async def test_shards_are_told_apart_from_the_pictures() -> None:
    shard = ShardRow("s1", 64, 4096, "fox", states={"active": 60, "reserve": 4}, confidence=0.7)
    rows, picture = await asked(FakeNode(shards=(shard,)), "api/shards", "api/view")
    assert [(row["id"], row["states"], row["confidence"]) for row in rows] == [("s1", shard.states, 0.7)]
    assert "s1" not in json.dumps(picture), "a picture a second must stay small"


async def test_one_shard_tells_its_journey_and_an_unknown_one_is_not_found() -> None:
    shard = ShardRow("s1", 64, 4096, "fox", journey=(VisitRow("fox", "model", 3, 0.2, 0.6, 9.0),))
    async with served(Learner(shards=(shard,)), "127.0.0.1", 0) as place:
        code, text = await get(place, "api/journey?shard=s1")
        assert (code, json.loads(text)["journey"][0]["after"]) == (200, 0.6)
        assert (await get(place, "api/journey?shard=s2"))[0] == 404
    async with served(Learner("this node learns nothing"), "127.0.0.1", 0) as place:
        assert await get(place, "api/journey?shard=s1") == (404, "this node learns nothing")


async def test_the_lineage_is_worked_out_seldom_however_often_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    node = Learner()
    first, second = await asked(node, "api/lineage", "api/lineage")
    assert first == second
    assert first["shares"] == SHARES
    assert node.asked == ["blame"]
    monkeypatch.setattr(details, "EVERY", 0.0)
    monkeypatch.setattr(details, "SHARE", 1e9)
    node = Learner()
    await asked(node, "api/lineage", "api/lineage")
    assert node.asked == ["blame", "blame"]


async def test_similarity_is_told_of_those_whose_fingerprints_can_be_compared() -> None:
    (found,) = await asked(Learner(), "api/similarity")
    assert found == {"peers": ["fox", "owl"], "table": [[100, 100], [100, 100]]}
    assert await asked(Learner("this node only looks"), "api/similarity") == [{"peers": [], "table": []}]


async def test_rounds_tell_steps_and_values() -> None:
    (rounds,) = await asked(Learner(), "api/rounds")
    assert [(row["steps"], row["values"], row["entries"]) for row in rounds] == [(40, 96, 3)]


async def test_a_node_that_cannot_say_says_why() -> None:
    lineage, rounds = await asked(Learner("this node learns nothing"), "api/lineage", "api/rounds")
    assert lineage["problem"] == "this node learns nothing"
    assert rounds == []


async def test_a_picture_tells_the_load_and_the_limits() -> None:
    node = FakeNode(paused="by you", limits=LimitOptions(max_upload=5e5), machine=Machine(0.5, 0.25, 10**8, 10**9))
    (picture,) = await asked(node, "api/view")
    assert picture["paused"] == "by you"
    assert picture["machine"]["own_cpu"] == 0.25
