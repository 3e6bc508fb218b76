"""Invite codes: they give back what was put in, are short, and say where they are damaged."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from p2pnode.wire.addresses import parse_address
from p2pnode.wire.errors import UsageError
from p2pnode.wire.ids import BASE58, peer_of_key, sha256
from p2pnode.wire.invite import (
    MAX_ADDRESSES_IN_INVITE,
    Invite,
    _base58,
    decode_invite,
    encode_invite,
    invite_command,
)
from p2pnode.wire.run import KEY_BYTES, RunAccess, access_of

PEERS = [peer_of_key(bytes([number]) * 32) for number in range(4)]
QM = "QmYyQSo1c1Ym7orWxLYvCrM2EmxFTANf8wXmmE7DWjhx5N"  # a relay with an RSA key
ports = st.integers(0, 65535)
labels = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,20}[a-z0-9])?", fullmatch=True)
hosts = st.one_of(
    st.ip_addresses(v=4).map(lambda ip: f"/ip4/{ip}"),
    st.ip_addresses(v=6).map(lambda ip: f"/ip6/{ip}"),
    st.tuples(st.sampled_from(["dns", "dns4", "dns6", "dnsaddr"]), labels, labels).map(
        lambda d: f"/{d[0]}/{d[1]}.{d[2]}"
    ),
)
places = st.tuples(hosts, st.sampled_from(["tcp", "udp"]), ports, st.sampled_from(["", "/ws", "/quic-v1"])).map(
    lambda p: f"{p[0]}/{p[1]}/{p[2]}{p[3]}"
)
relayed = st.tuples(places, st.sampled_from([*PEERS, QM])).map(lambda p: f"{p[0]}/p2p/{p[1]}/p2p-circuit")
addresses = st.tuples(places | relayed, st.sampled_from(PEERS)).map(lambda p: parse_address(f"{p[0]}/p2p/{p[1]}"))
accesses = st.tuples(
    st.binary(min_size=16, max_size=16), st.just(b"") | st.binary(min_size=KEY_BYTES, max_size=KEY_BYTES)
)
usual = st.tuples(st.sampled_from(PEERS), ports, st.lists(st.ip_addresses(), min_size=1, max_size=3)).map(
    lambda of: [parse_address(f"/ip{ip.version}/{ip}/tcp/{of[1]}/p2p/{of[0]}") for ip in of[2]]
)
invites = st.builds(
    lambda access, at: Invite(access_of(*access), tuple(at)),
    accesses,
    usual | st.lists(addresses, min_size=1, max_size=MAX_ADDRESSES_IN_INVITE),
)
HOME = parse_address(f"/ip4/192.168.178.29/tcp/45123/p2p/{PEERS[1]}")
PUBLIC = parse_address(f"/ip4/203.0.113.77/tcp/45123/p2p/{PEERS[1]}")
SECRET = RunAccess(access_of(bytes(range(16)), b"").run, bytes(range(KEY_BYTES)))
CODE = encode_invite(Invite(SECRET, (HOME, PUBLIC)))


@given(invites)
def test_a_code_gives_back_the_invite(invite):
    assert decode_invite(encode_invite(invite)) == invite


@given(invites)
def test_the_pasted_command_is_read_too(invite):
    assert decode_invite(f"  {invite_command(invite)}\n") == invite


@pytest.mark.parametrize(
    ("hosts", "public", "private"),
    [
        (("192.168.178.29", "203.0.113.77"), 87, 115),
        (("2001:db8::7:1", "192.168.178.29"), 104, 131),
        (("2001:db8::7:1", "fd00::29"), 120, 148),
    ],
)
def test_how_long_a_code_with_two_addresses_is(hosts: tuple[str, str], public: int, private: int):
    """As its module says: at most 120 characters, but for private runs with IPv6."""
    at = tuple(parse_address(f"/ip{6 if ':' in host else 4}/{host}/tcp/45123/p2p/{PEERS[1]}") for host in hosts)
    codes = [encode_invite(Invite(access, at)) for access in (RunAccess(SECRET.run), SECRET)]
    assert [len(code) for code in codes] == [public, private]
    assert [decode_invite(code).addresses for code in codes] == [at, at]


@given(accesses, st.sampled_from(PEERS), st.lists(st.ip_addresses(v=4), min_size=2, max_size=2), ports, ports)
def test_a_code_with_two_addresses_of_one_peer_has_at_most_120_characters(access, peer, ips, one, other):
    at = tuple(parse_address(f"/ip4/{ip}/tcp/{port}/p2p/{peer}") for ip, port in zip(ips, (one, other), strict=True))
    code = encode_invite(Invite(access_of(*access), at))
    assert len(code) <= 120
    assert set(code) <= set(BASE58)


def test_a_second_peer_makes_a_code_longer():
    at = tuple(parse_address(f"/ip4/203.0.113.{number}/tcp/45123/p2p/{PEERS[number]}") for number in (1, 2))
    assert [len(encode_invite(Invite(access, at))) for access in (RunAccess(SECRET.run), SECRET)] == [137, 164]


def test_a_relay_that_is_also_an_address_is_stored_once():
    meeting = parse_address(f"/ip4/198.51.100.4/tcp/31337/p2p/{PEERS[2]}")
    through = parse_address(f"{meeting}/p2p-circuit/p2p/{PEERS[1]}")
    public = RunAccess(SECRET.run)
    both, one = (encode_invite(Invite(public, at)) for at in ((through, meeting), (through,)))
    assert len(both) - len(one) < 12


@given(st.data())
@settings(max_examples=30, deadline=None)  # a search for the slip takes up to a second
def test_one_wrong_character_is_named(data):
    at = data.draw(st.integers(0, len(CODE) - 1))
    wrong = data.draw(st.sampled_from(BASE58 + "0OIl"))
    assume(wrong != CODE[at])
    with pytest.raises(UsageError) as caught:
        decode_invite(CODE[:at] + wrong + CODE[at + 1 :])
    assert f"character {at + 1} is {wrong!r} and should be {CODE[at]!r}" in str(caught.value)


@pytest.mark.parametrize(
    ("damaged", "says"),
    [
        (CODE[:40] + CODE[41:], f"{CODE[40]!r} is missing after character"),
        (CODE[:40] + "7" + CODE[40:], "does not belong there"),
        (CODE[:50] + CODE[51] + CODE[50] + CODE[52:], "the wrong way round"),
        (CODE[:40], "cut off"),
        (CODE[:100], "cut off: it has 115 characters, and 100 are there"),
        (CODE[:-3], "cut off: it has 115 characters, and 112 are there"),
        (CODE[:30] + "abc" + CODE[33:60] + "abc" + CODE[63:], "damaged in more than one character"),
        (CODE + "!?", "as character 116, which no invite contains"),
        ("hello", "is not an invite code"),
        (f"/ip4/1.2.3.4/tcp/5/p2p/{PEERS[1]}", "is an address; give it with --bootstrap"),
        ("", "is empty"),
        ("2" * 5000, "too long"),
    ],
)
def test_what_is_wrong_with_a_code_is_reported_in_one_line(damaged, says):
    with pytest.raises(UsageError) as caught:
        decode_invite(damaged)
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(SECRET.key) not in str(caught.value)


@given(st.text(max_size=200) | st.text(alphabet=BASE58, max_size=60))
@settings(deadline=None)
@example("4" * 60)
def test_any_other_text_is_a_usage_error(text):
    with pytest.raises(UsageError):
        decode_invite(text)


def test_a_newer_form_asks_for_a_newer_program():
    raw = bytes([2 << 6 | 1]) + bytes(60)
    with pytest.raises(UsageError, match="has the form 2, and this version reads 1; is p2pnode up to date"):
        decode_invite(_base58(raw + sha256(raw)[:4]))
