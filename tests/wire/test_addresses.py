"""Addresses: checked, with an example in every complaint."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.wire.addresses import (
    EXAMPLE,
    Address,
    host_and_port,
    invite_addresses,
    parse_address,
    parse_listen,
    useful,
)
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import Identity

PEER = Identity(b"a" * 32).peer_id


def test_a_good_address_is_taken_apart() -> None:
    address = parse_address(f" /ip4/127.0.0.1/tcp/31337/p2p/{PEER}\n")
    assert address.peer == PEER
    assert address.transport == "/ip4/127.0.0.1/tcp/31337"
    assert host_and_port(address.transport) == ("127.0.0.1", 31337)


def test_the_example_is_one() -> None:
    assert parse_address(EXAMPLE).text == EXAMPLE


def test_a_relayed_address_names_the_peer_behind_the_relay() -> None:
    relay = Identity(b"r" * 32).peer_id
    address = parse_address(f"/ip4/1.2.3.4/tcp/5/p2p/{relay}/p2p-circuit/p2p/{PEER}")
    assert address.peer == PEER


@pytest.mark.parametrize(
    "text",
    [
        "",
        "example.org:80",
        "/ip4/1.2.3.4/tcp/99999/p2p/" + PEER,
        "/ip4/1.2.3.4/tcp/5",
        "/ip4/300.2.3.4/tcp/5/p2p/" + PEER,
        f"/p2p/{PEER}",
        "/ip4/1.2.3.4/tcp/5/p2p/" + PEER[:-1] + "!",
        "/ip4/1.2.3.4/tcp/5/p2p/" + PEER[:-2],
        "/ip4/1.2.3.4/tcp/5/p2p/QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N",
        "/" * 1000,
    ],
)
def test_a_wrong_address_gets_one_line(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_address(text)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=120))
def test_any_text_is_an_address_or_a_usage_error(text: str) -> None:
    for parse in (parse_address, parse_listen):
        try:
            parse(text)
        except UsageError:
            continue


def test_listening_takes_a_port_or_an_address() -> None:
    assert parse_listen("31337") == "/ip4/0.0.0.0/tcp/31337"
    assert parse_listen("/ip4/127.0.0.1/tcp/0") == "/ip4/127.0.0.1/tcp/0"
    with pytest.raises(UsageError):
        parse_listen(EXAMPLE)


def test_others_get_the_best_addresses_first() -> None:
    loopback, lan, public = "/ip4/127.0.0.1/tcp/1", "/ip4/192.168.1.2/tcp/1", "/ip4/8.8.4.4/tcp/1"
    relayed = f"/ip4/8.8.8.8/tcp/1/p2p/{PEER}/p2p-circuit"
    assert useful([loopback, relayed, lan, public, lan], 4) == (public, lan, relayed)
    assert useful([loopback, relayed, lan, public], 2) == (public, lan)
    assert useful([loopback], 3) == (loopback,)


ME = EXAMPLE.rpartition("/")[2]


def own(*places: str) -> list[Address]:
    return [parse_address(f"{place}/tcp/5/p2p/{ME}") for place in places]


def test_an_invite_carries_few_addresses_that_others_can_dial() -> None:
    home, docker, office, loopback, public, named = own(
        "/ip4/192.168.1.5", "/ip4/172.17.0.1", "/ip4/10.2.3.4", "/ip4/127.0.0.1", "/ip4/8.8.8.8", "/dns4/node.example"
    )
    (meeting,), (near,) = own("/ip4/9.9.9.9"), own("/ip4/192.168.1.9")
    relayed = parse_address(f"{meeting}/p2p-circuit/p2p/{ME}")
    assert invite_addresses([loopback, docker, home, public, relayed], [meeting]) == (public, home)
    assert invite_addresses([named, home]) == (named, home)
    assert invite_addresses([docker, office, home, loopback]) == (home, office)
    assert invite_addresses([home, relayed], [near, meeting]) == (home, relayed, meeting)
    assert invite_addresses([loopback]) == (loopback,)
    assert invite_addresses([], [near]) == (near,)
    assert invite_addresses([]) == ()
