"""What every network keeps, whichever it is."""

from __future__ import annotations

import asyncio

import pytest

from p2pnode.network.base import Health, MemorySink, Network, Payload, StreamLimits
from p2pnode.wire.addresses import Address, parse_address
from p2pnode.wire.errors import NetworkDown, PeerError, PeerMisbehaved, PeerRefused, PeerTimeout, PeerUnreachable
from p2pnode.wire.ids import PeerId
from p2pnode.wire.messages import MAX_CALL_BYTES, Pong, decode_answer
from tests.network.swarm_backends import Backend, identity, on_swarm
from tests.network.swarm_servers import RecordServer, TestServer, dawdle, fail

LIMITS = StreamLimits(max_bytes=20_000_000)
STRANGER = identity(999).peer_id


async def pair(swarm: Backend, server: TestServer | None = None) -> tuple[Network, Network, TestServer]:
    """Two nodes that know each other; the server is the second one's."""
    server = server or TestServer()
    asking = await swarm.node(1, TestServer())
    serving = await swarm.node(2, server)
    await asking.contact(await swarm.address(serving), 30)
    return asking, serving, server


async def fetch(asking: Network, serving: Network, request: bytes, limits: StreamLimits = LIMITS) -> bytes:
    sink = MemorySink()
    await asking.fetch(serving.peer, request, sink, limits)
    return sink.content()


def pattern(size: int) -> bytes:
    return bytes(range(251)) * (size // 251) + bytes(size % 251)


# ---- calls ----


@on_swarm
async def test_a_call_is_answered_and_its_caller_authenticated(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    assert await asking.call(serving.peer, b"hello", 30) == asking.peer.encode() + b" said hello"


@on_swarm
async def test_the_one_contacted_can_call_back(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    assert await serving.call(asking.peer, b"hello", 30) == serving.peer.encode() + b" said hello"


@on_swarm
async def test_many_calls_at_once(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    answers = await asyncio.gather(*(asking.call(serving.peer, b"%d" % number, 30) for number in range(20)))
    assert [answer.rpartition(b" ")[2] for answer in answers] == [b"%d" % number for number in range(20)]


@on_swarm
async def test_calls_near_the_limit_pass(swarm: Backend) -> None:
    async def same(peer: PeerId, request: bytes) -> bytes:
        return request

    asking, serving, _ = await pair(swarm, TestServer(same))
    request = pattern(MAX_CALL_BYTES)
    assert await asking.call(serving.peer, request, 30) == request


@on_swarm
async def test_a_request_over_the_limit_never_leaves(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    with pytest.raises(ValueError, match="bytes"):
        await asking.call(serving.peer, bytes(MAX_CALL_BYTES + 1), 30)


@on_swarm
async def test_an_answer_over_the_limit_is_an_error_of_the_peer(swarm: Backend) -> None:
    async def too_much(peer: PeerId, request: bytes) -> bytes:
        return bytes(MAX_CALL_BYTES + 1)

    asking, serving, server = await pair(swarm, TestServer(too_much))
    with pytest.raises(PeerError):
        decode_answer(await asking.call(serving.peer, b"", 30), Pong)
    server.answering = TestServer().answering
    assert (await asking.call(serving.peer, b"still there", 30)).endswith(b"still there")


@on_swarm
async def test_a_server_that_raises_refuses_without_details_and_lives(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm, TestServer(fail))
    answer = await asking.call(serving.peer, b"", 30)
    assert b"secret" not in answer
    with pytest.raises(PeerRefused) as caught:
        decode_answer(answer, Pong)
    assert caught.value.code == "failed"
    server.answering = TestServer().answering
    assert (await asking.call(serving.peer, b"still there", 30)).endswith(b"still there")


@on_swarm
async def test_a_slow_server_is_a_timeout(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm, TestServer(dawdle))
    with pytest.raises(PeerTimeout):
        await asking.call(serving.peer, b"", 0.5)


@on_swarm
async def test_a_call_to_a_stranger_ends_within_its_limit(swarm: Backend) -> None:
    asking, _, _ = await pair(swarm)
    async with asyncio.timeout(60):
        with pytest.raises((PeerUnreachable, PeerTimeout)):
            await asking.call(STRANGER, b"", 3)


@on_swarm
async def test_a_call_to_a_closed_node_is_an_error_of_the_peer(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    await serving.close()
    async with asyncio.timeout(60):
        with pytest.raises((PeerUnreachable, PeerTimeout)):
            await asking.call(serving.peer, b"", 3)


# ---- finding each other ----


@on_swarm
async def test_contact_of_another_peer_than_the_address_names(swarm: Backend) -> None:
    asking = await swarm.node(1, TestServer())
    serving = await swarm.node(2, TestServer())
    there = (await swarm.address(serving)).transport
    with pytest.raises(PeerMisbehaved):
        await asking.contact(Address(f"{there}/p2p/{STRANGER}", STRANGER), 30)


@on_swarm
async def test_contact_where_nobody_listens(swarm: Backend) -> None:
    asking = await swarm.node(1, TestServer())
    async with asyncio.timeout(60):
        with pytest.raises((PeerUnreachable, PeerTimeout)):
            await asking.contact(parse_address(f"/ip4/127.0.0.1/tcp/9/p2p/{STRANGER}"), 30)


@on_swarm
async def test_a_learnt_address_is_enough_for_a_call_and_a_fetch(swarm: Backend) -> None:
    server = TestServer()
    server.payloads[b"x"] = Payload.of(b"content")
    serving = await swarm.node(2, server)
    address = await swarm.address(serving)
    for seed in (1, 3):
        asking = await swarm.node(seed, TestServer())
        asking.learn(serving.peer, (address.text,))
        if seed == 1:
            assert (await asking.call(serving.peer, b"hi", 30)).endswith(b"said hi")
        else:
            assert await fetch(asking, serving, b"x") == b"content"


@on_swarm
async def test_nonsense_addresses_are_learnt_without_harm(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    asking.learn(STRANGER, ("", "/", "x" * 1000, "/ip4/999.1.1.1/tcp/1", f"/ip4/127.0.0.1/tcp/1/p2p/{asking.peer}"))
    asking.learn(serving.peer, ("/nonsense",))
    assert (await asking.call(serving.peer, b"hi", 30)).endswith(b"said hi")


@on_swarm
async def test_nearest_agrees_between_nodes_and_includes_oneself(swarm: Backend) -> None:
    nodes = [await swarm.node(seed, TestServer()) for seed in range(1, 5)]
    middle = await swarm.address(nodes[0])
    for node in nodes[1:]:
        await node.contact(middle, 30)
    views: list[list[PeerId]] = []
    for _ in range(240):
        views = [await node.nearest("peers/run", 4) for node in nodes]
        if all(set(view) == {node.peer for node in nodes} for view in views):
            break
        await asyncio.sleep(0.25)
    assert all(view == views[0] for view in views), views
    assert set(views[0]) == {node.peer for node in nodes}
    assert await nodes[2].nearest("peers/run", 2) == views[0][:2]
    assert await nodes[0].nearest("peers/other", 4) != [] != views[0]


@on_swarm
async def test_alone_one_is_nearest_oneself(swarm: Backend) -> None:
    alone = await swarm.node(1, TestServer())
    assert await alone.nearest("peers/run", 5) == [alone.peer]


@on_swarm
async def test_addresses_name_the_node(swarm: Backend) -> None:
    node = await swarm.node(1, TestServer())
    addresses = await node.addresses()
    assert addresses
    assert {parse_address(text).peer for text in addresses} == {node.peer}


# ---- streams ----


@pytest.mark.parametrize("size", [0, 1, 100_000, 5_000_000])
def test_a_payload_arrives_whole(swarm: Backend, size: int) -> None:
    async def body() -> None:
        asking, serving, server = await pair(swarm)
        server.payloads[b"x"] = Payload.of(pattern(size))
        sink = MemorySink()
        fetched = await asking.fetch(serving.peer, b"x", sink, LIMITS)
        assert sink.content() == pattern(size)
        assert (fetched.size, fetched.received, fetched.digest) == (size, size, Payload.of(pattern(size)).digest)

    swarm.run(body())


@on_swarm
async def test_a_broken_stream_resumes_where_it_was(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    content = pattern(3_000_000)
    whole = Payload.of(content)
    intact = False

    def read(offset: int, length: int) -> bytes:
        if offset > 1_000_000 and not intact:
            raise ConnectionError("the disk went away")
        return bytes(whole.read(offset, length))

    server.payloads[b"x"] = Payload(whole.size, whole.digest, read)
    sink = MemorySink()
    with pytest.raises(PeerError):
        await asking.fetch(serving.peer, b"x", sink, LIMITS)
    reached = sink.offset
    assert 0 < reached < len(content)
    intact = True
    fetched = await asking.fetch(serving.peer, b"x", sink, LIMITS)
    assert sink.content() == content
    assert fetched.received == len(content) - reached


@on_swarm
async def test_content_that_is_not_what_its_hash_says(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = Payload(5, Payload.of(b"other").digest, lambda offset, length: b"wrong")
    with pytest.raises(PeerMisbehaved, match="hash"):
        await fetch(asking, serving, b"x")


@on_swarm
async def test_other_content_than_expected_is_refused_before_it_comes(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = Payload.of(b"content")
    sink = MemorySink()
    expecting = StreamLimits(max_bytes=100, expected_digest=Payload.of(b"other").digest)
    with pytest.raises(PeerMisbehaved):
        await asking.fetch(serving.peer, b"x", sink, expecting)
    assert sink.offset == 0


@on_swarm
async def test_more_than_allowed_is_refused_before_it_comes(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = Payload.of(bytes(101))
    with pytest.raises(PeerMisbehaved, match="101 bytes"):
        await fetch(asking, serving, b"x", StreamLimits(max_bytes=100))


@on_swarm
async def test_a_refused_stream_says_so(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = PeerRefused("unknown", "not mine to give")
    with pytest.raises(PeerRefused, match="not mine to give"):
        await fetch(asking, serving, b"x")


@on_swarm
async def test_a_server_that_fails_at_a_stream_refuses_without_details_and_lives(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = ValueError("secret detail")
    with pytest.raises(PeerRefused) as caught:
        await fetch(asking, serving, b"x")
    assert "secret" not in str(caught.value)
    server.payloads[b"x"] = Payload.of(b"content")
    assert await fetch(asking, serving, b"x") == b"content"


@on_swarm
async def test_a_stream_below_the_minimum_rate_is_a_timeout(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = Payload.of(pattern(5_000_000))
    with pytest.raises(PeerTimeout):
        await fetch(asking, serving, b"x", StreamLimits(max_bytes=10_000_000, min_rate=1e15, grace=0.0))


@on_swarm
async def test_a_cancelled_fetch_leaves_the_server_alive(swarm: Backend) -> None:
    asking, serving, server = await pair(swarm)
    server.payloads[b"x"] = Payload.of(pattern(15_000_000))
    sink = MemorySink()
    fetching = asyncio.create_task(asking.fetch(serving.peer, b"x", sink, LIMITS))
    for _ in range(1000):
        if sink.offset:
            break
        await asyncio.sleep(0.001)
    fetching.cancel()
    with pytest.raises(asyncio.CancelledError):
        await fetching
    server.payloads[b"y"] = Payload.of(b"content")
    assert await fetch(asking, serving, b"y") == b"content"
    assert server.faults == []


@on_swarm
async def test_a_stream_from_a_stranger_ends_within_its_limit(swarm: Backend) -> None:
    asking, _, _ = await pair(swarm)
    async with asyncio.timeout(60):
        with pytest.raises((PeerUnreachable, PeerTimeout)):
            await asking.fetch(STRANGER, b"x", MemorySink(), StreamLimits(max_bytes=1, first_byte=3))


# ---- records ----


@on_swarm
async def test_records_are_published_and_read_between_three_nodes(swarm: Backend) -> None:
    servers = [RecordServer() for _ in range(3)]
    nodes = [await swarm.node(seed, server) for seed, server in enumerate(servers, start=1)]
    clocks = (1e9, 1e9 + 5, 1e9 - 5)  # swarm times a little apart
    views = [
        server.attach(node, identity(seed), lambda now=now: now)  # type: ignore[misc]
        for seed, (server, node, now) in enumerate(zip(servers, nodes, clocks, strict=True), start=1)
    ]
    middle = await swarm.address(nodes[0])
    for node in nodes[1:]:
        await node.contact(middle, 30)
    for number, view in enumerate(views):
        published = await view.publish("peers/run", b"%d" % number, 60)
        assert published.copies >= 1, published
    for view in views:
        found = await view.read("peers/run")
        assert {peer: record.value for peer, record in found.items()} == {
            node.peer: b"%d" % number for number, node in enumerate(nodes)
        }


# ---- life ----


@on_swarm
async def test_health_is_reported(swarm: Backend) -> None:
    node = await swarm.node(1, TestServer())
    assert node.health == Health("up", 1)
    changes: list[Health] = []
    node.on_change(changes.append)
    await node.close()
    assert [health.state for health in changes] == ["closed"]


@on_swarm
async def test_closing_twice_is_fine_and_ends_everything(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm)
    address = await swarm.address(serving)
    await asking.close()
    await asking.close()
    operations = (
        lambda: asking.call(serving.peer, b"", 30),
        lambda: asking.contact(address, 30),
        lambda: asking.fetch(serving.peer, b"", MemorySink(), LIMITS),
        lambda: asking.nearest("peers/run", 5),
        lambda: asking.addresses(),
    )
    for operation in operations:
        with pytest.raises(NetworkDown):
            await operation()  # type: ignore[no-untyped-call]


@on_swarm
async def test_closing_ends_what_is_under_way(swarm: Backend) -> None:
    asking, serving, _ = await pair(swarm, TestServer(dawdle))
    calling = asyncio.create_task(asking.call(serving.peer, b"", 20))
    await asyncio.sleep(0.3)
    await asking.close()
    async with asyncio.timeout(60):
        with pytest.raises(NetworkDown):
            await calling
