"""Supervision on links made for the purpose, in virtual time: they hang, die and refuse to come back as a test says."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from p2pnode.network.base import Health, MemorySink, StreamLimits
from p2pnode.network.libp2p.frames import FrameReader, FrameWriter
from p2pnode.network.libp2p.supervised import START_TRIES, SupervisedNetwork
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.wire.addresses import Address
from p2pnode.wire.errors import LocalProblem, NetworkDown, PeerTimeout, PeerUnreachable
from p2pnode.wire.ids import Identity, PeerId
from tests.network.swarm_servers import TestServer

US = Identity(bytes(32)).peer_id
OTHER = Identity(bytes([1]) * 32).peer_id
ADDRESS = Address(f"/ip4/10.0.0.1/tcp/1/p2p/{OTHER}", OTHER)
LIMITS = StreamLimits(max_bytes=100)


async def for_ever() -> Any:
    await asyncio.get_running_loop().create_future()


class FakeLink:
    """Peers are reachable once connected; calls with the request b"hang" hang."""

    def __init__(self) -> None:
        self.dead = asyncio.Event()
        self.hung = False
        self.killed = False
        self.closed = False
        self.connected: list[tuple[PeerId, tuple[str, ...]]] = []
        self.met: list[PeerId] = []
        self.hangs_up_with: Exception | None = None

    async def wait_dead(self) -> str:
        await self.dead.wait()
        return "a test ended it"

    async def check(self) -> None:
        if self.hung:
            await for_ever()

    async def connect(self, peer: PeerId, transports: tuple[str, ...]) -> None:
        self.connected.append((peer, transports))

    async def join_routing(self, peer: PeerId) -> None:
        self.met.append(peer)

    async def call(self, peer: PeerId, request: bytes) -> bytes:
        if request == b"hang":
            await for_ever()
        if peer not in [known for known, _ in self.connected]:
            raise PeerUnreachable("not connected")
        return request

    async def open_stream(self, peer: PeerId) -> tuple[FrameReader, FrameWriter]:
        return await for_ever()  # type: ignore[no-any-return]

    async def nearest(self, key: str, count: int) -> list[PeerId]:
        return await for_ever()  # type: ignore[no-any-return]

    async def addresses(self) -> tuple[str, ...]:
        if self.hangs_up_with is not None:
            raise self.hangs_up_with
        return ()

    def kill(self) -> None:
        self.killed = True

    async def close(self) -> None:
        if self.hung:
            await for_ever()
        self.closed = True


class Links:
    """Makes links, and lets some attempts fail."""

    def __init__(self) -> None:
        self.made: list[FakeLink] = []
        self.failures: list[Exception] = []
        self.attempts: list[float] = []

    async def open(self, server: object) -> FakeLink:
        self.attempts.append(asyncio.get_running_loop().time())
        if self.failures:
            raise self.failures.pop(0)
        self.made.append(FakeLink())
        return self.made[-1]


def supervised(body: Any) -> None:
    async def run() -> None:
        links = Links()
        network = SupervisedNetwork(US, links.open)
        await network.start(TestServer())
        try:
            await body(network, links)
        finally:
            await network.close()
        assert all(link.killed for link in links.made)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    run_virtual(run())


def operations(network: SupervisedNetwork) -> list[Coroutine[Any, Any, object]]:
    """One of each kind, all of which hang."""
    return [
        network.call(OTHER, b"hang", 1000),
        network.fetch(OTHER, b"", MemorySink(), StreamLimits(max_bytes=1, first_byte=1000)),
        network.nearest("key", 5),
    ]


def now() -> float:
    return asyncio.get_running_loop().time()


def test_what_is_under_way_ends_the_moment_the_link_dies() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        tasks = [asyncio.create_task(operation) for operation in operations(network)]
        await asyncio.sleep(1)
        begun = now()
        links.made[0].dead.set()
        results = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(result) for result in results} == {NetworkDown}
        assert now() - begun < 0.1

    supervised(body)


def test_a_hung_link_is_noticed_within_ten_seconds() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        await asyncio.sleep(3)
        calling = asyncio.create_task(network.call(OTHER, b"hang", 1000))
        begun = now()
        links.made[0].hung = True
        with pytest.raises(NetworkDown):
            await calling
        assert now() - begun < 10
        await asyncio.sleep(5)
        assert network.health == Health("up", 2)
        assert links.made[0].killed

    supervised(body)


def test_one_late_answer_is_not_a_death() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        links.made[0].hung = True
        await asyncio.sleep(4)  # the first check, begun after 2 s, will fail; the next one will not
        links.made[0].hung = False
        await asyncio.sleep(60)
        assert network.health == Health("up", 1)

    supervised(body)


def test_reopening_backs_off_and_never_gives_up() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        changes: list[Health] = []
        network.on_change(changes.append)
        links.failures = [LocalProblem(f"reason {number}") for number in range(9)] + [ZeroDivisionError()]
        links.made[0].dead.set()
        await asyncio.sleep(2)
        assert network.health.state == "down"
        assert network.health.reason.startswith("reason")
        with pytest.raises(NetworkDown):
            await network.call(OTHER, b"", 5)
        await asyncio.sleep(100)
        assert network.health == Health("up", 2)
        pauses = [
            round(later - earlier, 3) for earlier, later in zip(links.attempts[1:], links.attempts[2:], strict=False)
        ]
        assert pauses == [0.5, 1, 2, 4, 8, 10, 10, 10, 10, 10]
        assert [health.state for health in changes] == ["down"] * 11 + ["up"]

    supervised(body)


def test_a_listener_that_fails_harms_nobody() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        changes: list[str] = []
        network.on_change(lambda health: 1 / 0)  # type: ignore[arg-type, return-value]
        network.on_change(lambda health: changes.append(health.state))
        links.made[0].dead.set()
        await asyncio.sleep(1)
        assert changes == ["down", "up"]

    supervised(body)


def test_known_peers_are_met_again_after_a_replacement() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        await network.contact(ADDRESS, 5)
        links.made[0].dead.set()
        await asyncio.sleep(1)
        assert links.made[1].connected == [(OTHER, (ADDRESS.transport,))]
        assert links.made[1].met == [OTHER]

    supervised(body)


def test_hints_are_dialled_once_and_only_when_needed() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        with pytest.raises(PeerUnreachable):
            await network.call(OTHER, b"hello", 5)
        network.learn(OTHER, (ADDRESS.text,))
        for _ in range(3):
            assert await network.call(OTHER, b"hello", 5) == b"hello"
        assert links.made[0].connected == [(OTHER, (ADDRESS.transport,))]
        links.made[0].connected.clear()  # the connection is lost
        assert await network.call(OTHER, b"hello", 5) == b"hello"

    supervised(body)


def test_every_operation_has_a_limit() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        with pytest.raises(PeerTimeout):
            await network.call(OTHER, b"hang", 3)
        with pytest.raises(PeerTimeout):
            await network.fetch(OTHER, b"", MemorySink(), LIMITS)
        with pytest.raises(PeerTimeout):
            await network.nearest("key", 5)
        assert now() < 30

    supervised(body)


@pytest.mark.parametrize("hung", [False, True])
def test_closing_is_quick_even_while_reopening(hung: bool) -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        links.failures = [LocalProblem("no")] * 100
        links.made[0].hung = hung
        links.made[0].dead.set()
        await asyncio.sleep(1)
        tasks = [asyncio.create_task(operation) for operation in operations(network)]
        begun = now()
        await network.close()
        assert now() - begun < 3
        await asyncio.gather(*tasks, return_exceptions=True)
        assert network.health.state == "closed"

    supervised(body)


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("Connection lost"),
        FileNotFoundError("no socket"),
        asyncio.IncompleteReadError(b"", 1),
        RuntimeError("unable to perform operation on <UnixTransport closed=True>; the handler is closed"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_daemon_that_hangs_up_is_our_own_network_down(error: Exception) -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        links.made[-1].hangs_up_with = error
        with pytest.raises(NetworkDown):
            await network.addresses()

    supervised(body)


def test_a_bug_is_not_taken_for_a_dead_daemon() -> None:
    async def body(network: SupervisedNetwork, links: Links) -> None:
        links.made[-1].hangs_up_with = RuntimeError("a bug")
        with pytest.raises(RuntimeError, match="a bug"):
            await network.addresses()

    supervised(body)


def test_a_daemon_that_is_lost_while_it_starts_is_replaced() -> None:
    async def body() -> None:
        links = Links()
        links.failures = [NetworkDown("p2pd was ended by signal 9 at its start")] * (START_TRIES - 1)
        network = SupervisedNetwork(US, links.open)
        await network.start(TestServer())
        assert network.health == Health("up", 1)
        await network.close()

    run_virtual(body())


@pytest.mark.parametrize(
    ("failure", "tries", "said"),
    [
        (NetworkDown("p2pd came up and was lost again"), START_TRIES, "something here ends it"),
        (LocalProblem("port 1 is in use"), 1, "port 1 is in use"),
    ],
)
def test_what_stays_wrong_at_the_start_gets_one_line(failure: Exception, tries: int, said: str) -> None:
    async def body() -> None:
        links = Links()
        links.failures = [failure] * 100
        network = SupervisedNetwork(US, links.open)
        with pytest.raises(LocalProblem, match=said) as raised:
            await network.start(TestServer())
        assert not isinstance(raised.value, NetworkDown)
        assert len(links.attempts) == tries

    run_virtual(body())
