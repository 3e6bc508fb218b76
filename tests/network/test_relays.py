"""Which relays p2pd is given, and what it assumes about the node's reachability."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from p2pnode.network.libp2p.daemon import (
    DaemonOptions,
    daemon_environment,
    daemon_flags,
    forced_reachability,
    uses_relays,
)
from p2pnode.network.libp2p.relays import MAX_RELAYS, choose_relays, relay_candidates
from p2pnode.wire.ids import Identity

ANN, BOB, EVE = (Identity(bytes([number]) * 32).peer_id for number in (1, 2, 3))
OUTWARD = ("/ip4/0.0.0.0/tcp/4000",)
RELAY = f"/ip4/44.77.0.1/tcp/1/p2p/{ANN}"


def flags(**options: Any) -> dict[str, str]:
    made = daemon_flags(DaemonOptions(Path("key"), Path("dir"), **options), Path("/d"))
    return dict(flag.removeprefix("-").split("=", 1) for flag in made)


def test_a_peer_with_several_addresses_is_one_relay_and_its_public_address_comes_first() -> None:
    lan, public = f"/ip4/192.168.1.2/tcp/1/p2p/{ANN}", f"/ip4/8.8.8.8/tcp/1/p2p/{ANN}"
    assert relay_candidates((lan, public, lan)) == {ANN: (public, lan)}


def test_a_relayed_address_shows_its_relay() -> None:
    assert relay_candidates((f"{RELAY}/p2p-circuit/p2p/{BOB}",)) == {ANN: (RELAY,)}


async def test_only_those_that_answer_are_chosen() -> None:
    listening = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = listening.sockets[0].getsockname()[1]
    alive = f"/ip4/127.0.0.1/tcp/{port}/p2p/{BOB}"
    dead = f"/ip4/127.0.0.1/tcp/1/p2p/{ANN}"
    also_bob = f"/ip4/127.0.0.1/tcp/1/p2p/{BOB}"
    async with listening:
        assert await choose_relays((dead, also_bob, alive)) == (alive,)
        assert await choose_relays((f"/dns4/localhost/tcp/{port}/p2p/{EVE}",)) != ()
    assert await choose_relays(()) == ()


async def test_when_none_answers_there_is_still_hope() -> None:
    dead = tuple(f"/ip4/127.0.0.1/tcp/1/p2p/{Identity(bytes([number]) * 32).peer_id}" for number in range(1, 9))
    assert await choose_relays(dead) == dead[:MAX_RELAYS]


@pytest.mark.parametrize(
    ("options", "reachability"),
    [
        ({"listen": OUTWARD}, "auto"),
        ({"listen": OUTWARD, "reachability": "private"}, "private"),
        ({"no_listen": True}, "private"),
        ({"no_listen": True, "relay_service": True}, "private"),
        ({"listen": OUTWARD, "announce": ("/ip4/8.8.8.8/tcp/1",)}, "public"),
        ({"listen": OUTWARD, "relay_service": True}, "public"),
        ({"listen": OUTWARD, "relay_service": True, "reachability": "private"}, "private"),
    ],
)
def test_a_relay_is_public_from_its_start_and_nobody_else_is_a_full_relay(options: Any, reachability: str) -> None:
    made = DaemonOptions(Path("key"), Path("dir"), relays=(RELAY,), **options)
    public = reachability == "public"
    given = flags(relays=(RELAY,), **options)
    assert forced_reachability(made) == reachability
    assert uses_relays(made) is not public
    assert given["relayService"] == str(int(public))
    assert given["autoRelay"] == str(int(not public))
    assert given.get("trustedRelays") == (None if public else RELAY)
    assert [name for name in given if name.startswith("forceReachability")] == (
        [] if reachability == "auto" else [f"forceReachability{reachability.capitalize()}"]
    )
    assert ("GOMAXPROCS" in daemon_environment(made, {})) is public


def test_without_a_bootstrap_relays_are_looked_for_and_on_loopback_none_are_used() -> None:
    looking = flags(listen=OUTWARD)
    assert (looking["autoRelay"], looking.get("relayDiscovery", "1")) == ("1", "1")
    assert flags(relays=(RELAY,))["autoRelay"] == "0"
    assert "trustedRelays" not in flags(relays=(RELAY,))
