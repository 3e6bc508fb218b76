"""How texts become tokens: as bytes, or by a `tokenizer.json` in the folder of the data.

Such a file is what the package `tokenizers` writes and most models on the Hugging Face hub have. All members of a run
must cut texts alike, so the run's options contain the file's id.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from ..wire.errors import LocalProblem, UsageError
from ..wire.ids import sha256

TOKENIZER_FILE = "tokenizer.json"
BYTES = "bytes"
ID_LENGTH = 16
MAX_FILE_BYTES = 64 << 20
UNKNOWN = "�"  # in place of bytes that are no text


class Tokenizer(Protocol):
    """Cuts texts into tokens, which are numbers below `size`."""

    @property
    def id(self) -> str:
        """The same where texts are cut alike."""
        ...

    @property
    def size(self) -> int: ...

    def encode(self, text: str) -> list[int]: ...

    def decode(self, tokens: Sequence[int]) -> str: ...


class ByteTokenizer:
    """Every byte of a text is a token."""

    id = BYTES
    size = 256

    def encode(self, text: str) -> list[int]:
        return list(text.encode(errors="surrogateescape"))

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(tokens).decode(errors="replace")


class FileTokenizer:
    """What a `tokenizer.json` says. Only cutting and joining texts needs the package `tokenizers`."""

    def __init__(self, content: bytes, name: str = TOKENIZER_FILE) -> None:
        """UsageError when the content is no tokenizer. `name` is for messages."""
        self.content = content
        self.id = sha256(content).hex()[:ID_LENGTH]
        self._name = name
        try:
            self.size = _vocabulary_size(json.loads(content))
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise UsageError(f"{name} is no tokenizer; it must be a file that the package tokenizers wrote") from None
        self._made: Any = None

    def encode(self, text: str) -> list[int]:
        found: list[int] = self.library.encode(text, add_special_tokens=False).ids
        return found

    def encode_all(self, texts: list[str]) -> list[list[int]]:
        """The tokens of several texts, in as many threads as the machine has."""
        return [one.ids for one in self.library.encode_batch_fast(texts, add_special_tokens=False)]

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self.library.decode(list(tokens), skip_special_tokens=False)
        return text

    @property
    def library(self) -> Any:
        """The tokenizer of the package; UsageError when it is not installed or does not know the file."""
        if self._made is None:
            try:
                from tokenizers import Tokenizer as Library
            except ImportError:
                raise UsageError(
                    f"{self._name} needs the package tokenizers; install it: pip install tokenizers"
                ) from None
            try:
                self._made = Library.from_str(self.content.decode())
            except Exception as error:  # the package raises plain Exception
                raise UsageError(f"{self._name} cannot be used by the package tokenizers: {str(error)[:120]}") from None
        return self._made


def _vocabulary_size(parsed: Any) -> int:
    """One more than the largest token."""
    vocabulary = parsed["model"]["vocab"]
    numbers = vocabulary.values() if isinstance(vocabulary, dict) else range(len(vocabulary))
    added = [int(token["id"]) for token in parsed.get("added_tokens", ())]
    return 1 + max(int(number) for number in (*numbers, *added))


def tokenizer_of(source: Path) -> FileTokenizer | None:
    """The tokenizer in a folder of texts, or in the folder of a file; None where there is none."""
    path = (source if source.is_dir() else source.parent) / TOKENIZER_FILE
    try:
        if path == source or not path.is_file():
            return None
        return _read(path, path.stat().st_size, path.stat().st_mtime)
    except OSError as error:
        raise LocalProblem(f"{path} cannot be read ({error.strerror or error})") from None


@cache
def _read(path: Path, size: int, changed: float) -> FileTokenizer:
    if size > MAX_FILE_BYTES:
        raise UsageError(f"{path} has {size:,} bytes; a tokenizer has at most {MAX_FILE_BYTES:,}")
    return FileTokenizer(path.read_bytes(), str(path))
