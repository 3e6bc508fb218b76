"""Records in the local network: members are understood, a private run says nothing, strangers' bytes do no harm."""

from __future__ import annotations

import random

import pytest
import zeroconf
from hypothesis import given
from hypothesis import strategies as st

from p2pnode.discovery import mdns
from p2pnode.discovery.lan import (
    MAX_MEMBERS,
    MAX_TEXT_BYTES,
    Advert,
    advert_of,
    from_text,
    runs_nearby,
    to_text,
)
from p2pnode.discovery.mdns import Advertiser
from p2pnode.node.joining import found_run
from p2pnode.wire.addresses import parse_address
from p2pnode.wire.errors import LocalProblem
from p2pnode.wire.ids import Identity
from p2pnode.wire.invite import MAX_ADDRESSES_IN_INVITE, Invite, encode_invite
from p2pnode.wire.messages import MAX_NAME_CHARS
from p2pnode.wire.run import JobEntry, Manifest, RunAccess, read_manifest

ANN, BOB = Identity(b"\1" * 32), Identity(b"\2" * 32)
JOBS = (JobEntry("main", "train", {"task": "digits"}),)
HOME = "/ip4/192.168.1.5/tcp/31337"


def founded(private: bool = False, name: str = "run of otter") -> tuple[RunAccess, Manifest]:
    run = found_run(ANN, name, private, 1.0, random.Random(name), JOBS)
    return run.access, read_manifest(run.signed_manifest)


def said(advert: Advert) -> dict[bytes, bytes | None]:
    """As it arrives."""
    return {key.encode(): value.encode() for key, value in to_text(advert).items()}


def public(name: str = "run of otter", members: int = 3, who: Identity = ANN, place: str = HOME) -> Advert:
    access, manifest = founded(name=name)
    advert = advert_of(access, manifest, members, [f"{place}/p2p/{who.peer_id}"])
    assert advert is not None
    return advert


def test_what_a_member_says_is_understood() -> None:
    advert = public()
    assert from_text(said(advert)) == advert
    assert (advert.name, advert.task, advert.members) == ("run of otter", "digits", 3)
    assert advert.invite is not None
    assert [address.text for address in advert.invite.addresses] == [f"{HOME}/p2p/{ANN.peer_id}"]


@given(st.text(max_size=MAX_NAME_CHARS), st.integers(1, MAX_MEMBERS), st.integers(1, 12))
def test_every_text_fits_into_a_record(name: str, members: int, count: int) -> None:
    access, manifest = founded(name=name)
    places = [f"/ip4/192.168.1.{host}/tcp/{60000 + host}/p2p/{ANN.peer_id}" for host in range(count)]
    advert = advert_of(access, manifest, members, places)
    assert advert is not None
    for key, value in said(advert).items():
        assert len(key) + 1 + len(value or b"") <= MAX_TEXT_BYTES
    found = from_text(said(advert))
    assert found is not None
    assert (found.invite, found.members) == (advert.invite, members)


@pytest.mark.parametrize("address", ["/ip4/127.0.0.1/tcp/1", f"/ip4/1.2.3.4/tcp/1/p2p/{BOB.peer_id}/p2p-circuit"])
def test_who_cannot_be_dialled_in_the_network_says_nothing(address: str) -> None:
    for private in (False, True):
        assert advert_of(*founded(private), 1, [f"{address}/p2p/{ANN.peer_id}"]) is None
        assert advert_of(*founded(private), 1, []) is None


def test_of_a_private_run_nothing_is_said_but_that_it_exists() -> None:
    access, manifest = founded(private=True)
    advert = advert_of(access, manifest, 7, [f"{HOME}/p2p/{ANN.peer_id}"])
    assert advert is not None
    text = to_text(advert)
    assert list(text) == ["private"]
    secrets = [access.run, access.tag, str(access), ANN.peer_id, "192.168", "31337", manifest.name, "digits"]
    assert not [secret for secret in secrets if secret in str(text)]
    assert from_text(said(advert)) == Advert(advert.key)
    other = advert_of(*founded(private=True, name="another"), 7, [f"{HOME}/p2p/{ANN.peer_id}"])
    assert other is not None
    assert len(runs_nearby([advert, advert, other])) == 2


def test_the_code_of_a_private_run_is_not_taken_from_the_network() -> None:
    access, _ = founded(private=True)
    advert = public()
    assert advert.invite is not None
    code = encode_invite(type(advert.invite)(access, advert.invite.addresses))
    assert from_text({b"code": code.encode()}) is None


VALUES = st.one_of(st.none(), st.binary(max_size=300), st.just(to_text(public())["code"].encode()))


@given(st.dictionaries(st.sampled_from([b"private", b"code", b"name", b"task", b"members", b"x"]), VALUES))
def test_any_bytes_are_an_advert_within_bounds_or_nothing(text: dict[bytes, bytes | None]) -> None:
    advert = from_text(text)
    if advert is not None:
        assert max(len(advert.name), len(advert.task), len(advert.key)) <= MAX_NAME_CHARS
        assert 0 <= advert.members <= MAX_MEMBERS
        assert runs_nearby([advert]) == [advert]


@pytest.mark.parametrize("members", [b"", b"-1", b"9" * 200, "٣".encode(), b"1e9", b"0x10"])
def test_a_count_that_is_none_is_bounded(members: bytes) -> None:
    advert = from_text({**said(public()), b"members": members})
    assert advert is not None
    assert 0 <= advert.members <= MAX_MEMBERS


@given(st.integers(0, 200), st.integers(0, 255))
def test_a_damaged_code_is_nothing(at: int, byte: int) -> None:
    code = bytearray(to_text(public())["code"].encode())
    changed = at < len(code) and code[at] != byte
    if changed:
        code[at] = byte
    assert (from_text({b"code": bytes(code)}) is None) == changed


def test_members_of_one_run_are_one_row_with_the_addresses_of_several() -> None:
    places = [f"/ip4/192.168.1.{host}/tcp/4001" for host in range(2, 14)]
    rows = runs_nearby(public(members=count, who=BOB, place=place) for count, place in enumerate(places))
    assert len(rows) == 1
    assert rows[0].members == len(places) - 1
    assert rows[0].invite is not None
    assert len(rows[0].invite.addresses) == MAX_ADDRESSES_IN_INVITE


def test_runs_come_by_name_and_private_ones_last() -> None:
    hidden = Advert("0123456789abcdef")
    assert [run.name for run in runs_nearby([hidden, public("b"), public("a"), public("b")])] == ["a", "b", ""]


def test_addresses_of_both_kinds_are_shown() -> None:
    here = tuple(parse_address(f"/ip{kind}/tcp/4001/p2p/{ANN.peer_id}") for kind in ("4/192.168.1.5", "6/fd00::5"))
    advertiser = object.__new__(Advertiser)  # without a network
    advertiser._name = "p2pnode-test"
    info = advertiser._info(Advert("key", invite=Invite(RunAccess.parse("abcdefghijklmnopqrstuvwxyz"), here)))
    assert info.parsed_addresses() == ["192.168.1.5", "fd00::5"]


@pytest.mark.parametrize("works", ["All", "V4Only", "V6Only", ""])
def test_a_machine_with_one_kind_of_address_is_enough(works: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(ip_version: zeroconf.IPVersion) -> str:
        if ip_version.name != works:
            raise OSError(97, "Address family not supported by protocol")
        return works

    monkeypatch.setattr(zeroconf, "Zeroconf", opened)
    if works:
        assert mdns._open() == works  # type: ignore[comparison-overlap]
    else:
        with pytest.raises(LocalProblem, match="Address family not supported"):
            mdns._open()
