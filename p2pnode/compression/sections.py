"""Length-prefixed parts of a payload, compressed with zstandard where that helps; their reader trusts no length."""

from __future__ import annotations

import zstandard

LEVEL = 3
_SMALL = 32  # bytes; not worth compressing
_MAX_VARINT_BYTES = 5


def varint(number: int) -> bytes:
    """An unsigned number in seven bits per byte, lowest bits first."""
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def section(raw: bytes) -> bytes:
    """A part whose length the reader does not know: raw length, stored length, bytes. Equal lengths: not compressed."""
    stored = zstandard.ZstdCompressor(level=LEVEL, write_checksum=False).compress(raw) if len(raw) > _SMALL else raw
    if len(stored) >= len(raw):
        stored = raw
    return varint(len(raw)) + varint(len(stored)) + stored


def part(raw: bytes) -> bytes:
    """A part whose length the reader knows: stored length, or 0 where it is not compressed, and the bytes."""
    stored = squeezed(raw)
    return varint(len(stored)) + stored if len(stored) < len(raw) else b"\0" + raw


def squeezed(raw: bytes) -> bytes:
    """Compresses quickly. For numbers, a longer search gains nothing."""
    return zstandard.ZstdCompressor(level=1, write_checksum=False).compress(raw) if len(raw) > _SMALL else raw


def entropy_coded(raw: bytes) -> bytes:
    """Compresses with zstandard's Huffman coder and hardly any search: in random symbols, matches cost more than
    they save."""
    hardly = zstandard.ZstdCompressionParameters.from_level(
        1, strategy=zstandard.STRATEGY_FAST, min_match=7, hash_log=6, chain_log=6, window_log=17, write_checksum=False
    )
    return zstandard.ZstdCompressor(compression_params=hardly).compress(raw)


def inflate(stored: bytes, raw_bytes: int) -> bytes:
    """Decompresses to exactly `raw_bytes`, which the caller has bounded; otherwise ValueError before it allocates."""
    try:
        if zstandard.frame_content_size(stored) != raw_bytes:
            raise ValueError("a compressed part does not declare the length it should have")
        return zstandard.ZstdDecompressor().decompress(stored, max_output_size=raw_bytes, allow_extra_data=False)
    except zstandard.ZstdError as error:
        raise ValueError(f"a compressed part is damaged: {str(error)[:80]}") from None


class SectionReader:
    """Reads numbers and parts from a payload; ValueError whenever the payload does not have them."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """How many bytes are left."""
        return len(self._data) - self._at

    def varint(self) -> int:
        """The next number."""
        number = 0
        for place in range(_MAX_VARINT_BYTES):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << (7 * place)
            if byte < 0x80:
                return number
        raise ValueError("a number is too long")

    def take(self, count: int) -> bytes:
        """The next `count` bytes."""
        if count > len(self._data) - self._at:
            raise ValueError("truncated")
        self._at += count
        return self._data[self._at - count : self._at]

    def section(self, maximum: int) -> bytes:
        """The next section, of at most `maximum` bytes uncompressed."""
        raw, stored = self.varint(), self.varint()
        if raw > maximum or stored > raw:
            raise ValueError(f"a part of {raw} bytes where at most {maximum} are allowed")
        data = self.take(stored)
        return data if stored == raw else inflate(data, raw)

    def part(self, count: int) -> bytes:
        """The `count` bytes that `part` wrote. The caller has bounded `count`."""
        stored = self.varint()
        return self.take(count) if stored == 0 else inflate(self.take(stored), count)

    def compressed(self, count: int) -> bytes:
        """A stored length, and bytes that decompress to `count`. The caller has bounded `count`."""
        return inflate(self.take(self.varint()), count)

    def end(self) -> None:
        """ValueError when bytes are left over."""
        if self._at != len(self._data):
            raise ValueError(f"{len(self._data) - self._at} bytes too many")
