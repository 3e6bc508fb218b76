"""The page's server, asked over real sockets: pictures, past, live stream, health, metrics, and what it refuses."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Callable

import aiohttp
import psutil
import pytest

from p2pnode.config.resolve import changed
from p2pnode.watch.dashboard import feed, server
from p2pnode.watch.dashboard.server import MAX_WATCHERS, PageAddress, page_address, served
from p2pnode.wire.control import ControlAnswer, ControlRequest
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.status import NO_LIMITS, NodeEvent, NodeStatus
from tests.watch.test_terminal import TRAINING, row, status

Stream = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class FakeNode:
    def __init__(self, **changes: object) -> None:
        self.shown = status(**{"jobs": {"main": TRAINING}, **changes})
        self.left = False
        self.looked = 0
        self.obeyed: list[ControlRequest] = []

    def status(self) -> NodeStatus:
        return self.shown

    def on_event(self, listener: Callable[[NodeEvent], None]) -> None: ...

    def leave(self) -> None:
        self.left = True

    async def execute(self, request: ControlRequest) -> ControlAnswer:
        changed(NO_LIMITS, request.limits)
        self.obeyed.append(request)
        return ControlAnswer(said=f"{request.do} done")

    async def look_around(self) -> None:
        self.looked += 1


async def get(place: PageAddress, path: str, **headers: str) -> tuple[int, str]:
    async with aiohttp.ClientSession() as session, session.get(place.address + path, headers=headers) as answer:
        return answer.status, await answer.text()


async def post(place: PageAddress, path: str, **headers: str) -> int:
    async with aiohttp.ClientSession() as session, session.post(place.address + path, headers=headers) as answer:
        return answer.status


async def test_the_page_and_its_files_come_with_the_strict_headers() -> None:
    async with served(FakeNode(), "127.0.0.1", 0) as place, aiohttp.ClientSession() as session:
        for path in ("", "page.js", "page.css", "icon.svg"):
            async with session.get(place.address + path) as answer:
                assert answer.status == 200
                assert "default-src 'none'" in answer.headers["Content-Security-Policy"]
        assert (await get(place, "../guard.py"))[0] == 404
        assert (await get(place, "LICENCES.txt"))[0] == 404


async def test_a_picture_the_past_and_the_live_stream_say_the_same() -> None:
    node = FakeNode(peers=(row("<script>alert(1)</script>", {"round": 7}),))
    async with served(node, "127.0.0.1", 0) as place:
        code, text = await get(place, "api/view")
        picture = json.loads(text)
        assert code == 200
        assert [peer.get("me", False) for peer in picture["peers"]] == [True, False]
        assert picture["peers"][1]["jobs"] == {"main": {"train": {"round": 7}}}
        assert picture["jobs"]["main"]["state"]["train"]["accuracy"] == TRAINING.state.training.accuracy
        past = json.loads((await get(place, "api/past"))[1])
        assert [one["peers"] for one in past] == [picture["peers"]] * len(past)
        assert len(past) >= 1
        async with aiohttp.ClientSession() as session, session.get(place.address + "api/live") as stream:
            assert (await stream.content.readuntil(b"\n\n")).startswith(b"retry: ")
            assert (await stream.content.readline()) == b"event: view\n"
            assert json.loads((await stream.content.readline()).removeprefix(b"data: "))["me"] == picture["me"]
            await stream.content.readline()
            node.shown = status(peers=())
            await stream.content.readline()
            later = json.loads((await stream.content.readline()).removeprefix(b"data: "))
            assert len(later["peers"]) == 1
            assert node.looked >= 1


async def test_no_secret_is_in_what_anyone_may_read() -> None:
    node = FakeNode(private=True)
    async with served(node, "127.0.0.1", 0) as place:
        for path in ("", "page.js", "api/view", "api/past", "metrics", "health"):
            text = (await get(place, path))[1]
            assert place.token not in text
            assert node.shown.invite not in text


async def test_a_page_on_the_network_has_a_link_to_read_only() -> None:
    async with served(FakeNode(), "0.0.0.0", 0) as place:
        port = place.address.rstrip("/").rpartition(":")[2]
        assert place.address == f"http://127.0.0.1:{port}/"
        assert (await get(place, "api/view", Host=f"192.168.1.5:{port}"))[0] == 200
        assert (await get(place, "api/view", Host=f"evil.example:{port}"))[0] == 403
        assert place.token not in place.network
    where = page_address("0.0.0.0", 8080, "secret", lambda: "192.168.1.5")
    assert (where.link, where.network) == ("http://127.0.0.1:8080/#token=secret", "http://192.168.1.5:8080/")
    assert page_address("::", 8080, "secret", lambda: "2001:db8::5").network == "http://[2001:db8::5]:8080/"
    assert page_address("0.0.0.0", 8080, "secret", lambda: "").network == ""
    assert page_address("192.168.1.5", 8080, "secret", lambda: "").network == "http://192.168.1.5:8080/"
    assert page_address("127.0.0.1", 8080, "secret", lambda: "192.168.1.5").network == ""


async def test_strangers_are_refused_and_the_token_steers() -> None:
    node = FakeNode()
    async with served(node, "127.0.0.1", 0) as place:
        assert (await get(place, "api/view", Host="evil.example"))[0] == 403
        assert (await get(place, "api/view", Origin="http://evil.example"))[0] == 403
        assert await post(place, "api/leave") == 403
        assert not node.left
        assert await post(place, "api/leave", Authorization=f"Bearer {place.token}") == 200
        assert node.left


@pytest.mark.parametrize(
    ("condition", "code"), [("connected", 200), ("alone", 200), ("searching", 503), ("network down", 503)]
)
async def test_health_is_good_only_when_the_node_is_well(condition: str, code: int) -> None:
    async with served(FakeNode(condition=condition), "127.0.0.1", 0) as place:
        found, text = await get(place, "health")
        assert found == code
        health = json.loads(text)
        assert health["well"] is (code == 200) and bool(health["reasons"]) is not health["well"]


async def test_health_tells_all_that_is_wrong() -> None:
    node = FakeNode(unwell=("no local step for 200 s", "the disk takes no writes: full"))
    async with served(node, "127.0.0.1", 0) as place:
        code, text = await get(place, "health")
        assert code == 503
        assert json.loads(text)["reasons"] == list(node.shown.unwell)


async def test_too_many_watchers_are_turned_away_and_leavers_make_room() -> None:
    async with served(FakeNode(), "127.0.0.1", 0) as place, aiohttp.ClientSession() as session:
        watching = [await session.get(place.address + "api/live") for _ in range(MAX_WATCHERS)]
        assert (await get(place, "api/live"))[0] == 503
        for stream in watching:
            stream.close()
        async with asyncio.timeout(60):
            while True:
                async with session.get(place.address + "api/live") as again:
                    if again.status == 200:
                        break
                await asyncio.sleep(0.1)


async def test_a_taken_port_is_one_clear_line() -> None:
    async with served(FakeNode(), "127.0.0.1", 0) as place:
        port = int(place.address.rstrip("/").rpartition(":")[2])
        with pytest.raises(LocalProblem, match=f"127.0.0.1:{port}"):
            async with served(FakeNode(), "127.0.0.1", port):
                pass


async def steered(place: PageAddress, path: str, body: str = "", token: str = "") -> tuple[int, dict[str, str]]:
    headers = {"Authorization": f"Bearer {token or place.token}"}
    async with (
        aiohttp.ClientSession() as session,
        session.post(place.address + path, headers=headers, data=body) as answer,
    ):
        return answer.status, await answer.json() if answer.status != 403 else {}


async def test_the_token_pauses_resumes_and_limits() -> None:
    node = FakeNode()
    async with served(node, "127.0.0.1", 0) as place:
        for path in ("api/pause", "api/resume", "api/limits"):
            assert (await steered(place, path, "{}", token="wrong"))[0] == 403
        assert node.obeyed == []
        assert await steered(place, "api/pause") == (200, {"said": "pause done"})
        assert await steered(place, "api/resume") == (200, {"said": "resume done"})
        wanted = {"max-upload": "500k", "idle-only": True, "max-cpu": 0.5, "schedule": "off"}
        assert (await steered(place, "api/limits", json.dumps(wanted)))[0] == 200
        assert [request.do for request in node.obeyed] == ["pause", "resume", "limits"]
        assert node.obeyed[-1].limits == wanted


@pytest.mark.parametrize("body", ["", "[]", "{", '{"max-upload": {}}', "\xff", '{"max-upload": "much"}', "[" * 2000])
async def test_limits_that_cannot_be_are_said_back(body: str) -> None:
    async with served(FakeNode(), "127.0.0.1", 0) as place:
        code, answer = await steered(place, "api/limits", body)
        assert code == 400
        assert answer["problem"]


def test_the_past_is_thinned_evenly_and_ends_with_the_latest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "PAST_ROWS", 20)
    looking = feed.Feed(FakeNode())  # two peers
    times = [looking.look().time for _ in range(25)]
    assert [one["time"] for one in json.loads(looking.past())] == times[::-1][::3][::-1]


async def half_open(place: PageAddress, sent: bytes = b"GET / HTTP/1.1\r\nHost: ") -> Stream:
    """A connection on which a request begins and does not end."""
    port = int(place.address.rstrip("/").rpartition(":")[2])
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    return reader, writer


async def until(happened: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while True:
            if happened():
                return
            await asyncio.sleep(0.02)


async def test_many_half_open_connections_neither_stay_nor_keep_anybody_out() -> None:
    async with served(FakeNode(), "127.0.0.1", 0) as place, aiohttp.ClientSession() as session:
        watching = await session.get(place.address + "api/live")
        connections = []
        for _ in range(2 * server.MAX_CONNECTIONS):
            connections.append(await half_open(place))
            await asyncio.sleep(0)
        await until(lambda: sum(reader.at_eof() for reader, _ in connections) >= server.MAX_CONNECTIONS)
        assert not connections[-1][0].at_eof(), "the oldest make room"
        assert (await get(place, "api/view"))[0] == 200
        assert await watching.content.readline(), "who is being answered stays"
        watching.close()
        for _, writer in connections:
            writer.close()


@pytest.mark.parametrize(
    "sent", [b"", b"GET / HTTP/1.1\r\nHost: ", b"GET /metrics HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"]
)
async def test_a_connection_that_asks_for_nothing_is_closed(sent: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "HEAD_SECONDS", 0.3)
    async with served(FakeNode(), "127.0.0.1", 0) as place:
        reader, writer = await half_open(place, sent)
        async with asyncio.timeout(60):
            await reader.read()
        writer.close()


async def test_when_all_are_being_answered_the_next_gets_that_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "MAX_CONNECTIONS", 3)
    async with served(FakeNode(), "127.0.0.1", 0) as place, aiohttp.ClientSession() as session:
        watching = [await session.get(place.address + "api/live") for _ in range(3)]
        assert (await get(place, "health"))[0] == 503
        for stream in watching:
            stream.close()


def held_by_page(port: int) -> int:
    """How many connections the page holds in this process."""
    found = psutil.Process().net_connections("tcp4")
    return sum(one.laddr.port == port and one.status == psutil.CONN_ESTABLISHED for one in found)


async def large_pictures(_: feed.Feed) -> AsyncIterator[bytes]:
    while True:
        yield b" " * 30_000_000


@pytest.mark.parametrize("path", ["past", "live"])
async def test_an_answer_that_nobody_takes_ends(
    path: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(server, "ANSWER_SECONDS", 0.3)
    monkeypatch.setattr(feed.Feed, "past", lambda feed: b" " * 30_000_000)
    monkeypatch.setattr(feed.Feed, "pictures", large_pictures)
    async with served(FakeNode(), "127.0.0.1", 0) as place:
        port = int(place.address.rstrip("/").rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stream:
            stream.sendall(b"GET /api/%s HTTP/1.1\r\nHost: 127.0.0.1:%d\r\n\r\n" % (path.encode(), port))
            await until(lambda: held_by_page(port) > 0)
            await until(lambda: held_by_page(port) == 0)
    assert caplog.text == ""
