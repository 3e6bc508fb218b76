"""The invite: a run, its key if it is private, and addresses of members, as one code that a friend pastes.

    CODE = base58 of: head (1) · run (16) · key (20, private runs only) · addresses · checksum (4)

Head: version in the upper two bits, then one bit "private", then the form of the addresses.

One peer's addresses with one port, the usual case, are its key (32), the port (2) and one or two IPs (`_SHAPES`). For
any others the form is their number: an address begins with a byte that has the kind in its lower half, and in its upper
half which of the peers so far must answer there. A new peer's key follows, then the place: ip and port, name and port,
a relay's own address, or any other address as text.

Characters of a code:       public run   private run
    two IPv4                     87          115
    IPv6 and IPv4               104          131
    two IPv6                    120          148
    IPv4 of two peers           137          164
A second peer costs 44 characters, because a peer can be dialled only if its whole key is known.

Base58 works on blocks of 8 bytes, so that a wrong character spoils one block and a code that was cut off still says so.
"""

from __future__ import annotations

import contextlib
import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .addresses import Address, parse_address
from .errors import UsageError
from .ids import BASE58, key_of_peer, peer_of_key, sha256
from .run import KEY_BYTES, RunAccess, access_of, run_bytes

VERSION = 1  # 0 was the form of codes before this one
MAX_ADDRESSES_IN_INVITE = 7
MAX_CODE_CHARS = 4000
COMMAND = "python -m p2pnode join"
_RUN_BYTES = 16
_PEER_BYTES = 32
_PORT_BYTES = 2
_CHECK_BYTES = 4
_BLOCK_BYTES = 8
_CHARS = (0, 2, 3, 5, 6, 7, 9, 10, 11)  # characters for a block of 0 to 8 bytes
_VALUES = {char: value for value, char in enumerate(BASE58)}
_PROTOCOLS = ("ip4", "ip6", "dns", "dns4", "dns6")  # the kinds 0 to 4
_RELAYED, _TEXT = 5, 6
_IP_BYTES = {"ip4": 4, "ip6": 16}
_SHAPES = (("ip4",), ("ip6",), ("ip4", "ip4"), ("ip4", "ip6"), ("ip6", "ip4"), ("ip6", "ip6"))
_FIRST_SHAPE = 8  # smaller forms are numbers of addresses
_PRIVATE = 1 << 5
_CIRCUIT = "/p2p-circuit"
_MOST_MISSING = 400  # bytes that a code which was cut off is expected to lack


@dataclass(frozen=True)
class Invite:
    """What somebody needs to join a run."""

    access: RunAccess
    addresses: tuple[Address, ...]

    def __str__(self) -> str:
        return encode_invite(self)


def invite_command(invite: Invite) -> str:
    """The exact command a friend pastes."""
    return f"{COMMAND} {encode_invite(invite)}"


def encode_invite(invite: Invite) -> str:
    """The code of an invite with one to seven addresses."""
    if not 0 < len(invite.addresses) <= MAX_ADDRESSES_IN_INVITE:
        raise ValueError(f"an invite has 1 to {MAX_ADDRESSES_IN_INVITE} addresses")
    form, addresses = _write_usual(invite.addresses) or _write_any(invite.addresses)
    head = VERSION << 6 | _PRIVATE * invite.access.private | form
    content = bytes([head]) + run_bytes(invite.access.run) + invite.access.key + addresses
    return _base58(content + sha256(content)[:_CHECK_BYTES])


def decode_invite(text: str) -> Invite:
    """Read a code, or the whole command with it; UsageError says where it is damaged, as far as that is known."""
    words = text.split()
    code = words[-1] if words else ""
    if not code:
        raise UsageError("the invite is empty; copy the founder's whole line")
    if len(code) > MAX_CODE_CHARS:
        raise UsageError(f"an invite of {len(code):,} characters is too long; copy only the code after `join`")
    raw = _checked(code)
    if raw is None:
        raise UsageError(f"the invite {_shown(code)!r} {_damage(code)}")
    try:
        return _Reader(raw[:-_CHECK_BYTES]).invite()
    except (ValueError, UsageError) as error:
        raise UsageError(f"the invite {_shown(code)!r} cannot be used: {error}; is p2pnode up to date?") from None


def read_code(code: str) -> Invite | None:
    """The same for a code that no human wrote: None for a damaged one, without a search for what is wrong with it."""
    raw = _checked(code[:MAX_CODE_CHARS])
    try:
        return None if raw is None else _Reader(raw[:-_CHECK_BYTES]).invite()
    except (ValueError, UsageError):
        return None


def read_place(text: str) -> tuple[tuple[Address, ...], RunAccess | None]:
    """Where a swarm is, from an invite or the address of one node; the run is None where that says nothing of it."""
    if text.strip().startswith("/"):
        return (parse_address(text),), None
    invite = decode_invite(text)
    return invite.addresses, invite.access


def _shown(code: str) -> str:
    return code if len(code) <= 24 else f"{code[:10]}…{code[-10:]}"


# ---- addresses ----


def _write_usual(addresses: Sequence[Address]) -> tuple[int, bytes] | None:
    """Form and bytes of one peer's IP addresses with one port; None for any others."""
    try:
        short = [_short_form(address.transport) for address in addresses]
        shape = tuple(_PROTOCOLS[kind] for kind, _ in short)
        form, (peer,), (port,) = (
            _FIRST_SHAPE + _SHAPES.index(shape),
            {address.peer for address in addresses},
            {place[-_PORT_BYTES:] for _, place in short},
        )
    except ValueError:
        return None
    raw = key_of_peer(peer) + port + b"".join(place[:-_PORT_BYTES] for _, place in short)
    again = tuple(_read_usual(_Bytes(raw), shape))
    return (form, raw) if again == tuple(address.text for address in addresses) else None


def _read_usual(source: _Bytes, shape: Sequence[str]) -> Iterator[str]:
    peer, port = peer_of_key(source.take(_PEER_BYTES)), source.number(_PORT_BYTES)
    for protocol in shape:
        yield f"/{protocol}/{ipaddress.ip_address(source.take(_IP_BYTES[protocol]))}/tcp/{port}/p2p/{peer}"


def _write_any(addresses: Sequence[Address]) -> tuple[int, bytes]:
    peers: list[bytes] = []
    return len(addresses), b"".join(_write_address(address, peers) for address in addresses)


def _write_address(address: Address, peers: list[bytes], relay: bool = False) -> bytes:
    """The bytes of an address; `peers` are those whose keys were written already."""
    key = key_of_peer(address.peer)
    new = key not in peers
    if new:
        peers.append(key)
    kind, place = _write_place(address.transport, peers, relay)
    return bytes([peers.index(key) << 4 | kind]) + (key if new else b"") + place


def _write_place(transport: str, peers: list[bytes], relay: bool) -> tuple[int, bytes]:
    """The kind and the bytes of what stands before the peer: text where no shorter form gives exactly the same back."""
    if transport.endswith(_CIRCUIT) and not relay:
        with contextlib.suppress(UsageError):  # the relay's peer id may be of another kind
            return _RELAYED, _write_address(parse_address(transport.removesuffix(_CIRCUIT)), peers, relay=True)
    with contextlib.suppress(ValueError):
        kind, short = _short_form(transport)
        if _place(_Bytes(short), kind) == transport:
            return kind, short
    raw = transport.encode()
    return _TEXT, len(raw).to_bytes(2, "big") + raw


def _short_form(transport: str) -> tuple[int, bytes]:
    """Kind and bytes of `/PROTOCOL/HOST/tcp/PORT`; ValueError for anything else."""
    _, protocol, host, _, port = transport.split("/")
    kind = _PROTOCOLS.index(protocol)
    name = host.encode() if protocol not in _IP_BYTES else ipaddress.ip_address(host).packed
    length = b"" if protocol in _IP_BYTES else bytes([len(name)])
    return kind, length + name + (int(port) & 0xFFFF).to_bytes(_PORT_BYTES, "big")


class _Bytes:
    """Reads from the front; ValueError where the bytes end too early."""

    def __init__(self, raw: bytes) -> None:
        self.rest = raw

    def take(self, count: int) -> bytes:
        if count > len(self.rest):
            raise ValueError("it ends too early")
        taken, self.rest = self.rest[:count], self.rest[count:]
        return taken

    def number(self, count: int) -> int:
        return int.from_bytes(self.take(count), "big")


def _place(source: _Bytes, kind: int) -> str:
    if kind == _TEXT:
        return source.take(source.number(2)).decode()
    if kind >= len(_PROTOCOLS):
        raise ValueError(f"it has an address of the unknown kind {kind}")
    protocol = _PROTOCOLS[kind]
    if protocol in _IP_BYTES:
        host = str(ipaddress.ip_address(source.take(_IP_BYTES[protocol])))
    else:
        host = source.take(source.number(1)).decode()
    return f"/{protocol}/{host}/tcp/{source.number(_PORT_BYTES)}"


class _Reader:
    """Reads the content of a code."""

    def __init__(self, raw: bytes) -> None:
        self._bytes = _Bytes(raw)
        self._peers: list[bytes] = []

    @property
    def left(self) -> int:
        """How many bytes are not read yet."""
        return len(self._bytes.rest)

    def invite(self) -> Invite:
        """ValueError or UsageError when these bytes are no invite that this version understands."""
        head = self._bytes.number(1)
        if head >> 6 != VERSION:
            raise ValueError(f"it has the form {head >> 6}, and this version reads {VERSION}")
        run = self._bytes.take(_RUN_BYTES)
        access = access_of(run, self._bytes.take(KEY_BYTES) if head & _PRIVATE else b"")
        addresses = tuple(map(parse_address, self._addresses(head % _PRIVATE)))
        if self.left or not addresses:
            raise ValueError("it has no address" if not addresses else "something follows its end")
        return Invite(access, addresses)

    def _addresses(self, form: int) -> Iterator[str]:
        if form < _FIRST_SHAPE:
            return (self._address() for _ in range(form))
        if form - _FIRST_SHAPE >= len(_SHAPES):
            raise ValueError(f"its addresses have the unknown form {form}")
        return _read_usual(self._bytes, _SHAPES[form - _FIRST_SHAPE])

    def _address(self, relay: bool = False) -> str:
        tag = self._bytes.number(1)
        index, kind = tag >> 4, tag & 15
        if index == len(self._peers):
            self._peers.append(self._bytes.take(_PEER_BYTES))
        if index >= len(self._peers):
            raise ValueError("an address names no peer")
        relayed = kind == _RELAYED and not relay
        place = f"{self._address(relay=True)}{_CIRCUIT}" if relayed else _place(self._bytes, kind)
        return f"{place}/p2p/{peer_of_key(self._peers[index])}"


# ---- base58 and slips in it ----


def _base58(raw: bytes) -> str:
    return "".join(_block(raw[at : at + _BLOCK_BYTES]) for at in range(0, len(raw), _BLOCK_BYTES))


def _block(raw: bytes) -> str:
    number, chars = int.from_bytes(raw, "big"), ""
    for _ in range(_CHARS[len(raw)]):
        number, digit = divmod(number, 58)
        chars = BASE58[digit] + chars
    return chars


def _unblock(chars: str) -> bytes | None:
    """The bytes of a block; None when no bytes are written like this."""
    if len(chars) not in _CHARS:
        return None
    size, number = _CHARS.index(len(chars)), 0
    for char in chars:
        if char not in _VALUES:
            return None
        number = number * 58 + _VALUES[char]
    return number.to_bytes(size, "big") if number < 1 << 8 * size else None


def _blocks(code: str) -> Iterator[str]:
    return (code[at : at + _CHARS[-1]] for at in range(0, len(code), _CHARS[-1]))


def _checked(code: str) -> bytes | None:
    """The bytes of a code whose checksum is right; None otherwise."""
    raw = b""
    for chars in _blocks(code):
        block = _unblock(chars)
        if block is None:
            return None
        raw += block
    content, check = raw[:-_CHECK_BYTES], raw[-_CHECK_BYTES:]
    return raw if content and sha256(content)[:_CHECK_BYTES] == check else None


def _damage(code: str) -> str:
    """What is wrong with a code whose checksum does not fit, and what to do."""
    again = "copy the founder's whole line again"
    foreign = [at for at, char in enumerate(code) if char not in _VALUES]
    if code.startswith("/"):
        return "is an address; give it with --bootstrap"
    if len(code) < 20 or len(foreign) > len(code) // 4:
        return f"is not an invite code; {again}"
    slip = _slip(code, foreign)
    if slip:
        return f"has a slip: {slip}"
    if foreign:
        return f"has a {code[foreign[0]]!r} as character {foreign[0] + 1}, which no invite contains; {again}"
    if len(code) < (length := _length(code)):
        return f"is cut off: it has {length} characters, and {len(code)} are there; {again}"
    return f"is damaged in more than one character; {again}"


def _slip(code: str, foreign: list[int]) -> str:
    """The one slip that explains a wrong checksum, or "". Of a million damaged codes three fit one by chance."""
    if len(code) > 400 or len(foreign) > 1:
        return ""
    for at in foreign or range(len(code)):
        head, char, tail = code[:at], code[at], code[at + 1 :]
        for right in BASE58:
            if right != char and _checked(head + right + tail):
                return f"character {at + 1} is {char!r} and should be {right!r}"
        if _checked(head + tail):
            return f"character {at + 1}, {char!r}, does not belong there"
        if tail and _checked(head + tail[0] + char + tail[1:]):
            return f"characters {at + 1} and {at + 2}, {char + tail[0]!r}, are the wrong way round"
    for at in range(len(code) + 1) if not foreign else ():
        for missing in BASE58:
            if _checked(code[:at] + missing + code[at:]):
                return f"{missing!r} is missing after character {at}"
    return ""


def _length(code: str) -> int:
    """How many characters a code with this beginning has, as far as its whole blocks tell."""
    blocks = [_unblock(chars) for chars in _blocks(code) if len(chars) == _CHARS[-1]]
    raw = b"".join(block or bytes(_BLOCK_BYTES) for block in blocks)
    reader = _Reader(raw + bytes(_MOST_MISSING))
    with contextlib.suppress(ValueError, UsageError):  # something follows its end, at least
        reader.invite()
    return len(_base58(bytes(len(raw) + _MOST_MISSING - reader.left + _CHECK_BYTES)))
