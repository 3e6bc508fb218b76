"""Readers of values that are not quantities: each turns what a user wrote into a checked value.

UsageError says what is wrong; the caller adds the name of the flag, variable or key. Quantities are in `units.py`.
"""

from __future__ import annotations

import ipaddress
import math
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..wire.addresses import Address, Reachability, host_and_port, parse_address, parse_listen
from ..wire.errors import UsageError, near
from ..wire.ids import key_of_peer
from ..wire.invite import Invite, decode_invite
from ..wire.messages import MAX_NAME_CHARS
from ..wire.run import MAX_MODERATORS, MAX_PAIRS, Aim, RunAccess
from .options import Device, LogFormat, Quarantine
from .schedule import parse_schedule
from .split import Split, SplitPart, parse_part, parse_split
from .until import Until, parse_until

LOG_FORMATS: tuple[LogFormat, ...] = ("auto", "rich", "plain", "json")
REACHABILITY: tuple[Reachability, ...] = ("auto", "public", "private")
DEVICES: tuple[Device, ...] = ("auto", "cpu", "cuda", "mps")
QUARANTINE: tuple[Quarantine, ...] = ("auto", "on", "off")
AIMS: tuple[Aim, ...] = ("shared", "own")
MAX_LIST = 64
MAX_WORD = 120  # of a task, a policy and the keys and values of their settings

_BETWEEN_PAIRS = re.compile(r"(?<=[^=,\s])[,\s]+(?=[\w-]+\s*=)")
_YES = ("1", "true", "yes", "on")
_NO = ("0", "false", "no", "off")


def read_name(raw: object) -> str:
    """A name that other people see: short, printable, one line."""
    name = _text(raw).strip()
    if not name:
        raise UsageError("a name cannot be empty; give one, or leave it out")
    if len(name) > MAX_NAME_CHARS:
        raise UsageError(f"a name of {len(name)} characters is too long; {MAX_NAME_CHARS} are allowed")
    if any(unicodedata.category(char)[0] == "C" or char in "\u2028\u2029" for char in name):
        raise UsageError(f"{name!a} has characters that cannot be shown; use letters, digits and signs")
    return name


def read_path(raw: object) -> Path:
    text = str(raw) if isinstance(raw, Path) else _text(raw).strip()
    if not text or "\0" in text:
        raise UsageError("a path is needed")
    return Path(text)


def read_run(raw: object) -> RunAccess | None:
    return RunAccess.parse(_text(raw))


def read_invite(raw: object) -> Invite:
    """An invite's code, or the whole command with it."""
    return decode_invite(_text(raw))


def read_bootstrap(raw: object) -> tuple[Address, ...]:
    """Addresses in the order given, each once."""
    return tuple(dict.fromkeys(parse_address(text) for text in _list(raw)))


def read_listen(raw: object) -> tuple[str, ...]:
    return tuple(dict.fromkeys(_checked_port(parse_listen(text)) for text in _list(raw)))


def read_announce(raw: object) -> tuple[str, ...]:
    """Addresses others can dial: no wildcard, no port 0, no peer id."""
    return tuple(dict.fromkeys(_dialable(text) for text in _list(raw)))


def read_dashboard(raw: object) -> tuple[str, int]:
    """Host and port of the page, from `8080` or `0.0.0.0:8080`. The host is loopback unless given; port 0 is any."""
    if isinstance(raw, bool) or not isinstance(raw, str | int):
        raise UsageError(f"a port is needed, not {_kind(raw)}; for example 8080 or 0.0.0.0:8080")
    host, _, port = str(raw).strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]") or "127.0.0.1"
    if not (port.isascii() and port.isdigit() and int(port) < 65536) or any(sign in host for sign in "/@ "):
        raise UsageError(f"{str(raw)[:60]!r} is not a port, or a host and a port; for example 8080 or 0.0.0.0:8080")
    return host, int(port)


def read_switch(raw: object) -> bool:
    if isinstance(raw, bool):
        return raw
    if not isinstance(raw, str):
        raise UsageError(f"true or false is needed, not {_kind(raw)}")
    word = raw.strip().lower()
    if word not in _YES + _NO:
        raise UsageError(f"{raw[:40]!r} is neither true nor false")
    return word in _YES


def read_moderators(raw: object) -> tuple[str, ...] | None:
    """Peer ids with commas between; `none` is nobody, `founder` (None) the node that founds the run."""
    words = tuple(dict.fromkeys(word.strip() for word in _text(raw).split(",") if word.strip()))
    if words == ("founder",):
        return None
    if words == ("none",):
        return ()
    if not words or len(words) > MAX_MODERATORS:
        raise UsageError(f"1 to {MAX_MODERATORS} peer ids are possible, or `founder` or `none`")
    for word in words:
        try:
            key_of_peer(word)
        except ValueError as error:
            raise UsageError(
                f"{error}; `python -m p2pnode peers` lists ids, `none` and `founder` are possible"
            ) from None
    return words


def read_word(raw: object) -> str:
    """A short text, such as the name of a task or a policy."""
    word = _text(raw).strip()
    if not word or len(word) > MAX_WORD or not word.isprintable():
        raise UsageError(f"{word[:40]!r} is not a name; write 1 to {MAX_WORD} printable characters")
    return word


def read_hashes(raw: object) -> tuple[str, ...]:
    """Hashes of files, as `sha256sum` prints them."""
    hashes = tuple(dict.fromkeys(text.strip().lower() for text in _list(raw)))
    for text in hashes:
        if not re.fullmatch("[0-9a-f]{64}", text):
            raise UsageError(f"{text[:40]!r} is not a sha256: it has 64 digits 0-9 and a-f; copy it whole")
    return hashes


def read_pairs(raw: object) -> dict[str, str]:
    """KEY=VALUE pairs, or a TOML table. Dashes in keys count as underscores; of equal keys the last one counts."""
    table = [f"{key}={value}" for key, value in raw.items()] if isinstance(raw, dict) else None
    found: dict[str, str] = {}
    for pair in _list(raw, _pairs) if table is None else table:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key or len(key) > MAX_WORD or len(value) > MAX_WORD:
            raise UsageError(f"{pair[:60]!r} is not KEY=VALUE; for example density=0.01")
        found[key.replace("-", "_")] = value
    if len(found) > MAX_PAIRS:
        raise UsageError(f"{len(found)} settings are too many; a run takes {MAX_PAIRS}")
    return found


def _pairs(text: str) -> list[str]:
    """The pairs in a text. A value may contain commas and spaces: only those before another KEY= separate pairs."""
    pairs = text.strip(", \t\n")
    return _BETWEEN_PAIRS.split(pairs) if pairs else []


def read_settings(raw: object) -> dict[str, float]:
    """KEY=VALUE pairs whose values are finite numbers."""
    return {key: _number(key, value) for key, value in read_pairs(raw).items()}


def _number(key: str, value: str) -> float:
    try:
        number = float(value)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise UsageError(f"{key[:60]} must be a number, not {value[:40]!r}; for example density=0.01")
    return number


def read_split(raw: object) -> Split:
    return raw if isinstance(raw, Split) else parse_split(_text(raw))


def read_part(raw: object) -> SplitPart:
    return parse_part(_text(raw))


def read_until(raw: object) -> Until:
    return parse_until(_text(raw))


def read_schedule(raw: object) -> str:
    """Spans of the day in their usual form, from one text or a list."""
    text = ",".join(_text(item) for item in raw) if isinstance(raw, list | tuple) else _text(raw)
    return str(parse_schedule(text))


def choice(allowed: tuple[Any, ...]) -> Callable[[object], Any]:
    """A reader of one of a few words."""

    def read(raw: object) -> Any:
        word = _text(raw).strip().lower()
        if word not in allowed:
            raise UsageError(f"{word[:40]!r} is not one of {', '.join(allowed)}{near(word, allowed)}")
        return word

    return read


def _text(raw: object) -> str:
    if not isinstance(raw, str):
        raise UsageError(f"text is needed, not {_kind(raw)}")
    return raw


def _words(text: str) -> list[str]:
    return text.replace(",", " ").split()


def _list(raw: object, items_of: Callable[[str], list[str]] = _words) -> list[str]:
    """The items of a list (TOML, repeated flags), or of one text with commas or spaces between them."""
    if isinstance(raw, int) and not isinstance(raw, bool):
        raw = str(raw)  # `listen = 31337`
    words: list[str] = []
    for item in raw if isinstance(raw, list | tuple) else [raw]:
        if not isinstance(item, str):
            raise UsageError(f"a list of text is needed, not {_kind(item)}")
        words.extend(items_of(item))
    if len(words) > MAX_LIST:
        raise UsageError(f"{len(words)} values are too many; {MAX_LIST} are allowed")
    return words


def _checked_port(text: str) -> str:
    place = host_and_port(text)
    if place is not None and place[1] > 65535:
        raise UsageError(f"{text!r} has a port above 65535")
    return text


def _dialable(text: str) -> str:
    if not text.startswith("/"):
        raise UsageError(f"{text[:80]!r} is not an address; one looks like /ip4/203.0.113.7/tcp/31337")
    place = host_and_port(parse_listen(text))
    if place is not None and (place[1] == 0 or ipaddress.ip_address(place[0]).is_unspecified):
        raise UsageError(f"{text!r} cannot be dialled; name the address and port others reach this node at")
    return text


def _kind(raw: object) -> str:
    names = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list", dict: "a table"}
    return names.get(type(raw), type(raw).__name__)
