"""The simulated network: what the seam promises, and that every fault does what it says."""

from __future__ import annotations

import asyncio
import random

import pytest

from p2pnode.network.base import CHUNK_BYTES, Health, MemorySink, Payload, StreamLimits
from p2pnode.network.sim import Fault, Links, SimSwarm
from p2pnode.network.sim.traffic import BUFFER_BYTES
from p2pnode.network.sim.virtual_time import run_virtual
from p2pnode.simulate import identity_of
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.errors import NetworkDown, PeerMisbehaved, PeerRefused, PeerTimeout, PeerUnreachable
from p2pnode.wire.messages import MAX_CALL_BYTES, Pong, decode_answer
from tests.network.sim_world import STEADY, Echo, World, in_world

MIB = 1 << 20
ROUND_TRIP = 2 * STEADY.latency


def now() -> float:
    return asyncio.get_running_loop().time()


# ---- calls ----


def test_a_call_takes_a_round_trip_and_the_server_knows_who_asks() -> None:
    async def test(world: World) -> None:
        begun = now()
        assert await world.ask(1, 2) == b"echo hi"
        assert now() - begun == pytest.approx(ROUND_TRIP)
        assert world.servers[2].asked == [(world.peer(1), b"hi")]

    in_world(3, test)


def test_what_the_server_raises_reaches_the_caller_as_a_refusal() -> None:
    async def test(world: World) -> None:
        with pytest.raises(PeerRefused, match="failed"):
            decode_answer(await world.ask(0, 1, b"raise"), Pong)

    in_world(2, test)


def test_requests_and_answers_are_bounded() -> None:
    async def test(world: World) -> None:
        with pytest.raises(ValueError, match="bytes"):
            await world.ask(0, 1, bytes(MAX_CALL_BYTES + 1))
        with pytest.raises(PeerRefused, match="too large"):  # the echo is longer than the request
            decode_answer(await world.ask(0, 1, bytes(MAX_CALL_BYTES)), Pong)

    in_world(2, test)


def test_a_slow_answer_is_a_timeout_at_the_callers_limit() -> None:
    async def test(world: World) -> None:
        world.servers[1].pause = 60.0
        begun = now()
        with pytest.raises(PeerTimeout):
            await world.ask(0, 1, timeout=3.0)
        assert now() - begun == pytest.approx(3.0)

    in_world(2, test)


def test_a_peer_that_nobody_named_is_unreachable_until_its_address_is_learnt() -> None:
    async def main() -> None:
        world = World(SimSwarm(1, STEADY), 2)
        for network, server in zip(world.networks, world.servers, strict=True):
            await network.start(server)
        with pytest.raises(PeerUnreachable):
            await world.ask(0, 1)
        world.networks[0].learn(world.peer(1), (world.address(1).text,))
        assert await world.ask(0, 1) == b"echo hi"
        assert await world.ask(1, 0) == b"echo hi"  # the call made them known to each other

    run_virtual(main())


def test_strangers_and_oneself_cannot_be_called() -> None:
    async def test(world: World) -> None:
        with pytest.raises(PeerUnreachable):
            await world.networks[0].call(identity_of(0, 99).peer_id, b"hi", 5.0)
        with pytest.raises(PeerUnreachable):
            await world.ask(0, 0)

    in_world(2, test)


# ---- links ----


def test_bytes_cost_time_on_a_link_with_a_rate() -> None:
    async def test(world: World) -> None:
        begun = now()
        await world.ask(0, 1, bytes(10_000))
        assert now() - begun == pytest.approx(ROUND_TRIP + 2 * 10_000 / 1e5, rel=0.01)
        begun = now()
        await asyncio.gather(*(world.ask(0, 1, bytes(10_000)) for _ in range(5)))
        assert now() - begun > 5 * 10_000 / 1e5  # they share the link

    in_world(2, test, Links(latency=0.1, jitter=0.0, rate=1e5))


def test_lost_messages_show_as_timeouts() -> None:
    async def test(world: World) -> None:
        answers = []
        for _ in range(400):
            try:
                answers.append(await world.ask(0, 1, timeout=1.0))
            except PeerTimeout:
                answers.append(b"lost")
        lost = answers.count(b"lost")
        assert lost + answers.count(b"echo hi") == 400
        assert 400 * 0.19 * 0.6 < lost < 400 * 0.19 * 1.4  # 1 - 0.9²: request or answer

    in_world(2, test, Links(latency=0.1, jitter=0.0, loss=0.1))


def test_a_doubled_request_reaches_the_server_twice_and_is_answered_once() -> None:
    async def test(world: World) -> None:
        for number in range(100):
            assert await world.ask(0, 1, b"%d" % number) == b"echo %d" % number
        await asyncio.sleep(5)
        assert 110 <= len(world.servers[1].asked) <= 160
        assert len(set(world.servers[1].asked)) == 100

    in_world(2, test, Links(latency=0.1, jitter=0.0, duplicate=0.3))


def test_messages_overtake_each_other() -> None:
    async def test(world: World) -> list[int]:
        calls = []
        for number in range(30):
            calls.append(asyncio.ensure_future(world.ask(0, 1, b"%d" % number)))
            await asyncio.sleep(0.05)
        await asyncio.gather(*calls)
        return [int(request) for _, request in world.servers[1].asked]

    assert in_world(2, test) == list(range(30))
    jumbled = in_world(2, test, Links(latency=0.1, jitter=0.0, reorder=0.3))
    assert jumbled != list(range(30))
    assert sorted(jumbled) == list(range(30))


# ---- faults ----


def test_a_partition_stops_both_ways_and_ends() -> None:
    async def test(world: World) -> None:
        world.swarm.begin(Fault(now(), "partition", (0, 1), seconds=10.0))
        assert await world.ask(0, 1) == b"echo hi"
        assert await world.ask(2, 3) == b"echo hi"
        for source, target in ((0, 2), (2, 0)):
            with pytest.raises(PeerTimeout):
                await world.ask(source, target, timeout=2.0)
            assert not world.servers[target].asked or world.servers[target].asked[-1][0] != world.peer(source)
        with pytest.raises(PeerTimeout):
            await world.networks[0].contact(world.address(2), 2.0)
        await asyncio.sleep(10)
        assert await world.ask(0, 2) == b"echo hi"

    in_world(4, test)


def test_a_partition_also_stops_what_is_on_its_way() -> None:
    async def test(world: World) -> None:
        call = asyncio.ensure_future(world.ask(0, 1, timeout=2.0))
        await asyncio.sleep(0.05)
        world.swarm.begin(Fault(now(), "partition", (0,), (1,), seconds=1.0))
        with pytest.raises(PeerTimeout):
            await call
        assert not world.servers[1].asked

    in_world(2, test)


def test_lookups_find_only_peers_within_the_partition_and_a_split_is_remembered() -> None:
    async def test(world: World) -> None:
        async def found(index: int) -> set[int]:
            peers = await world.networks[index].nearest("key", 10)
            return {index for index in range(4) if world.peer(index) in peers}

        world.swarm.begin(Fault(now(), "partition", (0, 1), seconds=10.0))
        assert (await found(0), await found(2)) == ({0, 1}, {2, 3})
        await asyncio.sleep(10)
        assert await found(0) == {0, 1, 2, 3}
        world.swarm.begin(Fault(now(), "split", (0, 1), seconds=10.0))
        await asyncio.sleep(11)
        assert (await found(0), await found(2)) == ({0, 1}, {2, 3})
        await world.networks[3].contact(world.address(0), 5.0)
        assert await found(1) == {0, 1, 2, 3}

    in_world(4, test)


def test_a_one_way_cut_loses_answers_but_not_requests() -> None:
    async def test(world: World) -> None:
        world.swarm.begin(Fault(now(), "cut", (1,), (0,), seconds=5.0))
        with pytest.raises(PeerTimeout):
            await world.ask(0, 1, timeout=1.0)
        assert world.servers[1].asked == [(world.peer(0), b"hi")]
        with pytest.raises(PeerTimeout):
            await world.ask(1, 0, timeout=1.0)
        assert world.servers[0].asked == []
        assert await world.ask(1, 2) == b"echo hi"

    in_world(3, test)


def test_a_slow_peer_is_slow_for_a_while() -> None:
    async def test(world: World) -> None:
        world.swarm.begin(Fault(now(), "slow", (1,), seconds=20.0, amount=10.0))
        begun = now()
        await world.ask(0, 1)
        assert now() - begun == pytest.approx(10 * ROUND_TRIP)
        begun = now()
        await world.ask(0, 2)
        assert now() - begun == pytest.approx(ROUND_TRIP)
        await asyncio.sleep(20)
        begun = now()
        await world.ask(0, 1)
        assert now() - begun == pytest.approx(ROUND_TRIP)

    in_world(3, test)


def test_a_storm_of_loss_passes() -> None:
    async def test(world: World) -> None:
        world.swarm.begin(Fault(now(), "loss", (0,), seconds=3.0, amount=1.0))
        with pytest.raises(PeerTimeout):
            await world.ask(0, 1, timeout=2.0)
        assert await world.ask(1, 2) == b"echo hi"
        await asyncio.sleep(2)
        assert await world.ask(0, 1) == b"echo hi"

    in_world(3, test)


def test_a_crash_resets_callers_at_once_and_the_dead_are_unreachable() -> None:
    async def test(world: World) -> None:
        world.servers[1].pause = 30.0
        call = asyncio.ensure_future(world.ask(0, 1, timeout=60.0))
        await asyncio.sleep(1)
        begun = now()
        world.swarm.begin(Fault(now(), "crash", (1,)))
        with pytest.raises(PeerUnreachable):
            await call
        assert now() - begun < 1.0
        for _ in range(2):
            with pytest.raises(PeerUnreachable):
                await world.ask(0, 1)
        with pytest.raises(PeerUnreachable):
            await world.networks[0].contact(world.address(1), 5.0)
        with pytest.raises(NetworkDown):
            await world.ask(1, 0)
        assert world.networks[1].health.state == "closed"
        assert world.peer(1) not in await world.networks[0].nearest("key", 10)

    in_world(3, test)


def test_a_restarted_node_begins_without_acquaintances() -> None:
    async def test(world: World) -> None:
        world.swarm.crash(1)
        again = world.swarm.network(world.peer(1))
        await again.start(Echo())
        world.networks.append(again)
        assert await again.nearest("key", 10) == [again.peer]
        await again.contact(world.address(2), 5.0)
        assert len(await again.nearest("key", 10)) == 3

    in_world(3, test)


class RestartLog:
    """A runner that notes crashes and restarts."""

    def __init__(self) -> None:
        self.calls: list[tuple[float, str, int]] = []

    def crash(self, index: int) -> None:
        self.calls.append((now(), "crash", index))

    def restart(self, index: int) -> None:
        self.calls.append((now(), "restart", index))

    def begin(self, fault: Fault) -> None:
        self.calls.append((now(), f"begin {fault.kind}", fault.peers[0]))

    def end(self, fault: Fault) -> None:
        self.calls.append((now(), f"end {fault.kind}", fault.peers[0]))


def test_the_runner_of_the_nodes_learns_of_crash_and_restart() -> None:
    log = RestartLog()

    async def test(world: World) -> None:
        start = now()
        world.swarm.schedule([Fault(start + 5.0, "crash", (0, 2), seconds=7.0)])
        await asyncio.sleep(20)
        expected = [(5, "crash"), (12, "restart")]
        assert log.calls == [(start + delay, what, index) for delay, what in expected for index in (0, 2)]

    in_world(3, test, runner=log)


def test_daemon_death_fails_what_is_under_way_and_passes() -> None:
    async def test(world: World) -> None:
        seen: list[Health] = []
        network = world.networks[0]
        network.on_change(seen.append)
        world.servers[1].pause = 30.0
        under_way = [
            asyncio.ensure_future(world.ask(0, 1, timeout=60.0)),
            asyncio.ensure_future(network.nearest("key", 3)),
            asyncio.ensure_future(network.fetch(world.peer(2), b"x", MemorySink(), StreamLimits(MIB))),
            asyncio.ensure_future(network.contact(world.address(2), 5.0)),
        ]
        world.servers[0].pause = 30.0
        inbound = asyncio.ensure_future(world.ask(2, 0, timeout=60.0))
        await asyncio.sleep(0.15)
        world.swarm.begin(Fault(now(), "daemon", (0,), seconds=3.0))
        for outcome in await asyncio.gather(*under_way, return_exceptions=True):
            assert isinstance(outcome, NetworkDown)
        with pytest.raises(PeerUnreachable):
            await inbound
        with pytest.raises(NetworkDown):
            await network.addresses()
        await asyncio.sleep(3)
        assert [(health.state, health.generation) for health in seen] == [("down", 1), ("up", 2)]
        assert await network.nearest("key", 3) == [network.peer]  # a new daemon knows nobody
        world.servers[1].pause = 0.0
        await network.contact(world.address(1), 5.0)
        assert await world.ask(0, 1, b"again") == b"echo again"

    in_world(3, test)


# ---- contact and lookup ----


def test_addresses_are_well_formed_and_dialable() -> None:
    async def test(world: World) -> None:
        (text,) = await world.networks[1].addresses()
        assert parse_address(text) == world.address(1)
        await world.networks[2].contact(parse_address(text), 5.0)

    in_world(3, test)


def test_contact_notices_another_peer_at_the_address_and_nobody_there() -> None:
    async def test(world: World) -> None:
        swapped = Address(f"{world.address(1).transport}/p2p/{world.peer(2)}", world.peer(2))
        with pytest.raises(PeerMisbehaved):
            await world.networks[0].contact(swapped, 5.0)
        nowhere = Address(f"/ip4/10.9.9.9/tcp/4001/p2p/{world.peer(2)}", world.peer(2))
        with pytest.raises(PeerUnreachable):
            await world.networks[0].contact(nowhere, 5.0)

    in_world(3, test)


def test_loss_delays_contact_but_does_not_break_it() -> None:
    async def test(world: World) -> None:
        begun = now()
        for _ in range(20):
            await world.networks[1].contact(world.address(2), 30.0)
        assert now() - begun > 20 * ROUND_TRIP + 1.0

    in_world(3, test, Links(latency=0.1, jitter=0.0, loss=0.2))


def test_lookups_take_time_that_grows_with_the_swarm() -> None:
    async def duration(world: World) -> float:
        begun = now()
        await world.networks[0].nearest("key", 3)
        return now() - begun

    assert in_world(1, duration) == 0.0
    assert in_world(2, duration) == pytest.approx(ROUND_TRIP)
    assert in_world(40, duration) == pytest.approx(2 * ROUND_TRIP)


# ---- streams ----


def test_a_stream_arrives_whole_in_the_time_the_link_takes() -> None:
    async def test(world: World) -> None:
        content = random.Random(0).randbytes(3 * MIB)
        world.servers[1].offers = Payload.of(content)
        sink, begun = MemorySink(), now()
        fetched = await world.networks[0].fetch(world.peer(1), b"x", sink, StreamLimits(4 * MIB))
        assert sink.content() == content
        assert (fetched.size, fetched.received) == (3 * MIB, 3 * MIB)
        assert 3.0 < now() - begun < 4.0

    in_world(2, test, Links(latency=0.1, jitter=0.0, rate=MIB))


def test_a_stream_can_be_refused() -> None:
    async def test(world: World) -> None:
        with pytest.raises(PeerRefused, match="not here"):
            await world.networks[0].fetch(world.peer(1), b"no", MemorySink(), StreamLimits(MIB))

    in_world(2, test)


@pytest.mark.parametrize("kind", ["crash", "partition", "cut", "daemon"])
def test_a_cut_stream_breaks_and_is_resumed(kind: str) -> None:
    async def test(world: World) -> None:
        content = random.Random(0).randbytes(3 * MIB)
        world.servers[1].offers = Payload.of(content)
        sink = MemorySink()
        world.swarm.schedule([Fault(now() + 1.5, kind, (1,), seconds=1.0)])  # type: ignore[arg-type]
        with pytest.raises(PeerUnreachable):
            await world.networks[0].fetch(world.peer(1), b"x", sink, StreamLimits(4 * MIB))
        assert 0 < sink.offset < len(content)
        await asyncio.sleep(2)
        if kind == "crash":
            again = world.swarm.network(world.peer(1))
            await again.start(world.servers[1])
            world.networks.append(again)
        await world.networks[0].contact(world.address(1), 5.0)
        had = sink.offset
        fetched = await world.networks[0].fetch(world.peer(1), b"x", sink, StreamLimits(4 * MIB))
        assert fetched.received == 3 * MIB - had
        assert sink.content() == content

    in_world(2, test, Links(latency=0.1, jitter=0.0, rate=MIB))


def test_a_slow_link_holds_the_sender_back() -> None:
    """The sender reads its payload only as fast as the receiver takes it in, plus a bounded buffer."""
    read_up_to = 0

    async def test(world: World) -> None:
        whole = Payload.of(bytes(8 * MIB))

        def read(offset: int, length: int) -> bytes:
            nonlocal read_up_to
            read_up_to = offset + length
            return bytes(whole.read(offset, length))

        world.servers[1].offers = Payload(whole.size, whole.digest, read)
        sink = MemorySink()
        limits = StreamLimits(8 * MIB)
        fetch = asyncio.ensure_future(world.networks[0].fetch(world.peer(1), b"x", sink, limits))
        await asyncio.sleep(2.0)
        assert 0 < sink.offset < read_up_to <= sink.offset + BUFFER_BYTES + 2 * CHUNK_BYTES
        await fetch

    in_world(2, test, Links(latency=0.1, jitter=0.0, rate=MIB))


def test_the_trace_is_kept_on_request_and_bounded() -> None:
    async def test(world: World) -> None:
        for _ in range(100):
            await world.ask(0, 1)
        trace = world.swarm.trace
        assert trace.counts["call"] == 100
        assert len(trace.latest) == 10
        assert [event.kind for event in trace.latest] == ["call", "answer"] * 5
        assert (trace.latest[-1].source, trace.latest[-1].target) == (1, 0)

    in_world(2, test, keep_trace=10)
