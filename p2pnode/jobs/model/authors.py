"""Finds the author of entries that a user means."""

from __future__ import annotations

from ...wire.errors import UsageError, near
from ...wire.ids import short


def find_author(name: str, authors: set[str], names: dict[str, str]) -> str:
    """The author with this id, end of an id, or name. UsageError when there is none, or several."""
    found = [peer for peer in authors if name and (peer.endswith(name) or names.get(peer) == name)]
    if len(found) == 1:
        return found[0]
    known = ", ".join(sorted(names.get(peer) or short(peer) for peer in authors)) or "nobody yet"
    kind = "several authors are" if found else "no author of entries is"
    raise UsageError(
        f"{kind} called {name[:60]!r}{near(name, names.values())}; entries are known of {known}; give the peer id"
    )
