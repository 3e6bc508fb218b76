"""What the page asks for only while it is looked at: shards, lineage and rounds."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest

from p2pnode.similarity.fingerprint import FINGERPRINT_BYTES, HEADER_BYTES, VERSION
from p2pnode.storage.files import MemoryStorage
from p2pnode.watch.dashboard import details
from p2pnode.watch.dashboard.server import served
from p2pnode.watch.history import history_file
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import LimitOptions, Machine, MergeRow, ShardRow, VisitRow
from tests.watch.dashboard.test_served_page import FakeNode, get
from tests.watch.test_terminal import TRAINING, training

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
        self.merges = (MergeRow(1, 4.0, ("fox",), 10, 20, 3, 0.5, 0.01, steps=40, values=96),)

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        self.asked.append(request.do)
        if self.problem:
            raise LocalProblem(self.problem)
        if request.do == "fingerprints":
            return ControlAnswer(fingerprints=FINGERPRINTS)
        if request.do == "shards":
            return ControlAnswer(shards=tuple(row for row in self.shown.shards if row.id == request.shard))
        return ControlAnswer(blame=SHARES, merges=self.merges)


async def asked(node: FakeNode, *paths: str) -> list:
    async with served(node, "127.0.0.1", 0) as place:
        return [json.loads((await get(place, path))[1]) for path in paths]


async def test_shards_are_served_apart_from_the_pictures() -> None:
    shard = ShardRow("s1", 64, 4096, "fox", states={"active": 60, "reserve": 4}, confidence=0.7)
    rows, picture = await asked(FakeNode(shards=(shard,)), "api/shards", "api/view")
    assert [(row["id"], row["states"], row["confidence"]) for row in rows] == [("s1", shard.states, 0.7)]
    assert "s1" not in json.dumps(picture), "a picture a second must stay small"


async def test_shards_and_similarities_are_of_the_job_that_is_asked_for() -> None:
    shards = tuple(ShardRow(f"of {job}", 64, 4096, "fox", job=job) for job in ("small", "wide"))
    node = Learner(shards=shards, jobs={"small": TRAINING, "wide": TRAINING})
    async with served(node, "127.0.0.1", 0) as place:
        assert [row["id"] for row in json.loads((await get(place, "api/shards?job=wide"))[1])] == ["of wide"]
        assert len(json.loads((await get(place, "api/shards"))[1])) == 2
        await get(place, "api/similarity?job=wide")
        await get(place, "api/similarity?job=small")
        assert node.asked.count("fingerprints") == 2, "the models of each job are compared among themselves"
        assert (await get(place, "api/similarity?job=none"))[0] == 404


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


async def test_similarity_is_served_for_peers_whose_fingerprints_can_be_compared() -> None:
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


async def eventually(look: Callable[[], Awaitable[bool]]) -> None:
    for _ in range(6000):
        if await look():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it never happened")


async def test_the_past_of_a_run_is_there_again_after_a_restart() -> None:
    disk = MemoryStorage()
    async with served(Learner(jobs=training()), "127.0.0.1", 0, disk) as place:
        first = json.loads((await get(place, "api/view"))[1])["time"]
    late = Learner(jobs=training())
    late.merges = (MergeRow(2, 5.0, (), 1, 1, 0, 0.4, 0.01),)
    async with served(late, "127.0.0.1", 0, disk) as place:

        async def past() -> list[float]:
            return [picture["time"] for picture in json.loads((await get(place, "api/past"))[1])]

        async def is_back() -> bool:
            return first in await past()

        await eventually(is_back)
        times = await past()
        assert times == sorted(times) and times[-1] > first
        assert [row["round"] for row in json.loads((await get(place, "api/rounds"))[1])] == [1, 2]
        late.merges = (MergeRow(3, 6.0, (), 1, 1, 0, 0.3, 0.01),)  # a node remembers only its latest
        assert [row["round"] for row in json.loads((await get(place, "api/rounds"))[1])] == [1, 2, 3]


async def test_a_damaged_past_is_set_aside() -> None:
    disk, node = MemoryStorage(), FakeNode()
    name = history_file(node.status().run)
    disk.write(name, b"damaged")

    async def is_said() -> bool:
        return bool(disk.warnings)

    async with served(node, "127.0.0.1", 0, disk):
        await eventually(is_said)
    assert "the page shows the run from now on" in disk.warnings[0]
    assert disk.read(f"{name}.damaged") == b"damaged"
    assert disk.read(name)


async def test_a_past_that_was_not_read_is_not_overwritten(caplog: pytest.LogCaptureFixture) -> None:
    class Unreadable(MemoryStorage):
        def read(self, name: str) -> bytes | None:
            raise LocalProblem("the disk does not answer")

    disk, node = Unreadable(), FakeNode()
    disk.write(history_file(node.status().run), b"the past")

    async def is_said() -> bool:
        return "the disk does not answer" in caplog.text

    async with served(node, "127.0.0.1", 0, disk) as place:
        await eventually(is_said)
        assert (await get(place, "api/view"))[0] == 200
    assert disk._files == {history_file(node.status().run): b"the past"}


async def test_a_disk_that_cannot_be_written_is_said_and_nothing_else(caplog: pytest.LogCaptureFixture) -> None:
    class Full(MemoryStorage):
        def write(self, name: str, *parts: bytes | memoryview) -> None:
            raise LocalProblem("the disk is full")

    async with served(FakeNode(), "127.0.0.1", 0, Full()) as place:

        async def is_seen() -> bool:
            return bool(json.loads((await get(place, "api/past"))[1]))

        await eventually(is_seen)
    assert "the disk is full" in caplog.text
