"""What messages are made of: their bounds and small types."""

from __future__ import annotations

from typing import Annotated

import msgspec

PROTOCOL = 2  # nodes of the same number talk; see docs/design.md on versions
MAX_CALL_BYTES = 1 << 20  # a request or an answer; hivemind breaks above 4 MiB
MAX_NAME_CHARS = 40
MAX_ADDRESSES = 8
MAX_PEERS_PER_ANSWER = 64
MAX_SIGHTS = 16  # announcements told for the sake of their fingerprints, at a time
MAX_FINGERPRINT_BYTES = 512
MAX_MARKS_BYTES = 2048
MAX_SHARD_WORDS = 100  # about shards, in one call
MAX_SHARD_WORD_BYTES = 4096
MAX_SHARD_MARKS_BYTES = 1 << 16

Name = Annotated[str, msgspec.Meta(max_length=MAX_NAME_CHARS)]
Text = Annotated[str, msgspec.Meta(max_length=200)]
AddressText = Annotated[str, msgspec.Meta(max_length=300)]
Addresses = Annotated[tuple[AddressText, ...], msgspec.Meta(max_length=MAX_ADDRESSES)]
Proof = Annotated[bytes, msgspec.Meta(max_length=32)]
Fingerprint = Annotated[bytes, msgspec.Meta(max_length=MAX_FINGERPRINT_BYTES)]
Marks = Annotated[bytes, msgspec.Meta(max_length=MAX_MARKS_BYTES)]
SnapshotName = Annotated[bytes, msgspec.Meta(max_length=16)]


class Message(msgspec.Struct, frozen=True, tag=True, tag_field="is"):
    """Base of all messages; the tag is the class name."""
