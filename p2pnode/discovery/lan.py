"""What a node says in its local network, so that a friend there joins without any address: the text of one mDNS record.

A run that is not private shows its name, its task, how many members this node sees, and the code of an invite with
this node's addresses in the network. A private run shows only that it exists: a hash tells which nodes belong together,
and says nothing else. `mdns.py` sends and receives these records. Anybody in the network can send any bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from ..wire.addresses import Address, dialled_nearby
from ..wire.ids import sha256
from ..wire.invite import MAX_ADDRESSES_IN_INVITE, Invite, encode_invite, read_code
from ..wire.messages import MAX_NAME_CHARS
from ..wire.run import Manifest, RunAccess

SERVICE = "_p2pnode._tcp.local."
MAX_TEXT_BYTES = 255  # of one key and its value in a TXT record
MAX_ADVERTS = 64  # looked at; a network with more nodes shows each run by one of its nodes all the same
ADDRESSES_IN_ADVERT = 3  # so that the code fits into a text
MAX_MEMBERS = 1_000_000
_KEY_CHARS = 16


@dataclass(frozen=True)
class Advert:
    """What one node says about its run. `invite` is None for a private run, of which the rest is not said either."""

    key: str  # the same from all members of a run
    name: str = ""
    task: str = ""  # of each job; "" where members only meet
    members: int = 0  # that the node sees, itself included
    invite: Invite | None = None


def advert_of(access: RunAccess, manifest: Manifest, members: int, addresses: Iterable[str]) -> Advert | None:
    """What a member of this run says; None while nobody in the network could dial it."""
    near = dialled_nearby(addresses)[:ADDRESSES_IN_ADVERT]
    if not near:
        return None
    if access.private:
        return Advert(_private_key(access))
    tasks = ", ".join(str(job.plan.get("task", job.kind)) for job in manifest.jobs)
    return Advert(access.run, manifest.name, tasks, members, Invite(access, near))


def _private_key(access: RunAccess) -> str:
    """Returns a key derived from the tag, because members could be looked up under the tag itself."""
    return sha256(b"p2pnode private run in a local network " + access.tag.encode()).hex()[:_KEY_CHARS]


def to_text(advert: Advert) -> dict[str, str]:
    """The keys and values of the record, each pair within the length that DNS allows."""
    if advert.invite is None:
        return {"private": advert.key}
    words = {"name": advert.name, "task": advert.task, "members": str(advert.members)}
    return {"code": encode_invite(advert.invite), **{key: _cut(key, value) for key, value in words.items()}}


def _cut(key: str, value: str) -> str:
    return value.encode()[: MAX_TEXT_BYTES - len(key) - 1].decode(errors="ignore")


def from_text(text: Mapping[bytes, bytes | None]) -> Advert | None:
    """Read a record; None where it is not one of ours, or damaged. The bytes may come from anybody."""
    private = _word(text, b"private", _KEY_CHARS)
    if private:
        return Advert(private) if len(private) == _KEY_CHARS and private.isascii() and private.isalnum() else None
    invite = read_code(_word(text, b"code", MAX_TEXT_BYTES))
    if invite is None or invite.access.private:
        return None
    members = _word(text, b"members", len(str(MAX_MEMBERS)))
    count = int(members) if members.isascii() and members.isdigit() else 0
    name, task = _word(text, b"name", MAX_NAME_CHARS), _word(text, b"task", MAX_NAME_CHARS)
    return Advert(invite.access.run, name, task, min(count, MAX_MEMBERS), invite)


def _word(text: Mapping[bytes, bytes | None], key: bytes, most: int) -> str:
    return (text.get(key) or b"")[:MAX_TEXT_BYTES].decode(errors="replace")[:most]


def runs_nearby(adverts: Iterable[Advert]) -> list[Advert]:
    """The runs that adverts are about, each once, by name; private ones last. An invite gets addresses of several."""
    found: dict[tuple[str, bool], Advert] = {}
    for advert in adverts:
        key = (advert.key, advert.invite is None)
        known = found.setdefault(key, advert)
        members = max(known.members, advert.members)
        found[key] = replace(known, members=members, invite=_united(known.invite, advert.invite))
    return sorted(found.values(), key=lambda advert: (advert.invite is None, advert.name, advert.key))


def _united(one: Invite | None, other: Invite | None) -> Invite | None:
    """One invite with the first addresses of two to the same run."""
    if one is None or other is None:
        return None
    addresses: tuple[Address, ...] = tuple(dict.fromkeys((*one.addresses, *other.addresses)))
    return Invite(one.access, addresses[:MAX_ADDRESSES_IN_INVITE])
