"""Who a node is: an Ed25519 key, and the libp2p peer id that contains its public half."""

from __future__ import annotations

import hashlib
from functools import lru_cache
from typing import NewType, Protocol

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

PeerId = NewType("PeerId", str)
RunId = NewType("RunId", str)

SIGNATURE_BYTES = 64
KEY_FILE_BYTES = 68

# libp2p's PrivateKey protobuf: field 1 (type) = Ed25519, field 2 (data) = 64 bytes seed and public key.
_KEY_FILE_HEADER = bytes([0x08, 0x01, 0x12, 0x40])
# A peer id of an Ed25519 key is the identity multihash of its PublicKey protobuf.
_PEER_ID_HEADER = bytes([0x00, 0x24, 0x08, 0x01, 0x12, 0x20])
BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_BASE58_VALUE = {char: value for value, char in enumerate(BASE58)}
_MAX_PEER_ID_CHARS = 64
_MAX_KNOWN_BYTES = 2048  # of a message whose check is remembered


class Signer(Protocol):
    """Whoever signs: an Identity, or a substitute in tests of the rules."""

    @property
    def peer_id(self) -> str: ...

    def sign(self, message: bytes) -> bytes: ...


class Identity:
    """A node's signing key. `peer_id` is what others know it by."""

    def __init__(self, seed: bytes) -> None:
        self._key = Ed25519PrivateKey.from_private_bytes(seed)
        self._seed = seed
        public = self._key.public_key().public_bytes_raw()
        self.peer_id = PeerId(base58_encode(_PEER_ID_HEADER + public))

    @classmethod
    def from_key_file(cls, data: bytes) -> Identity:
        """Read libp2p's key format; ValueError when it is anything else or does not fit together."""
        if len(data) != KEY_FILE_BYTES or not data.startswith(_KEY_FILE_HEADER):
            raise ValueError("not an Ed25519 key in libp2p's format")
        identity = cls(data[4:36])
        if identity.to_key_file() != data:
            raise ValueError("the key's two halves do not belong together")
        return identity

    def to_key_file(self) -> bytes:
        """The bytes p2pd reads as `-id`."""
        return _KEY_FILE_HEADER + self._seed + self._key.public_key().public_bytes_raw()

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)


@lru_cache(maxsize=4096)
def public_key(peer: str) -> Ed25519PublicKey:
    """The key inside a peer id; ValueError for peer ids of another kind."""
    return Ed25519PublicKey.from_public_bytes(key_of_peer(peer))


@lru_cache(maxsize=4096)
def key_of_peer(peer: str) -> bytes:
    """The 32 bytes a peer id of an Ed25519 key is made of; ValueError for peer ids of another kind."""
    raw = base58_decode(peer)
    if len(raw) != 38 or not raw.startswith(_PEER_ID_HEADER):
        raise ValueError(f"{peer[:70]!r} is not the peer id of an Ed25519 key")
    return raw[6:]


@lru_cache(maxsize=4096)
def peer_of_key(key: bytes) -> PeerId:
    """The peer id a 32-byte public key has."""
    return PeerId(base58_encode(_PEER_ID_HEADER + key))


def signed_by(peer: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` over `message` was made by the key inside `peer`."""
    check = known_signed_by if len(message) <= _MAX_KNOWN_BYTES else _signed_by
    return check(peer, message, signature)


def _signed_by(peer: str, message: bytes, signature: bytes) -> bool:
    try:
        public_key(peer).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


known_signed_by = lru_cache(maxsize=4096)(_signed_by)  # records arrive from many peers, and a check costs 0.1 ms


def base58_encode(raw: bytes) -> str:
    number = int.from_bytes(raw, "big")
    digits = ""
    while number:
        number, digit = divmod(number, 58)
        digits = BASE58[digit] + digits
    leading_zeros = len(raw) - len(raw.lstrip(b"\0"))
    return "1" * leading_zeros + digits


def base58_decode(text: str) -> bytes:
    if not text or len(text) > _MAX_PEER_ID_CHARS:
        raise ValueError("not a peer id")
    number = 0
    for char in text:
        if char not in _BASE58_VALUE:
            raise ValueError(f"{char!r} does not occur in a peer id")
        number = number * 58 + _BASE58_VALUE[char]
    leading_zeros = len(text) - len(text.lstrip("1"))
    return b"\0" * leading_zeros + number.to_bytes((number.bit_length() + 7) // 8, "big")


def short(peer: str) -> str:
    """The part of a peer id people can tell apart at a glance."""
    return peer[-8:]


def sha256(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()
