"""Decides which requests to the page are served. Pure.

Every website that the user visits can send requests to a page on loopback, and a host name that resolves to 127.0.0.1
(DNS rebinding) makes them look like our own. So the Host must be one this node is known by, a foreign Origin gets
nothing, and changing something needs a secret that only the user has.
"""

from __future__ import annotations

import hmac
from collections.abc import Collection, Mapping

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
READS = ("GET", "HEAD")
SAFE_SITES = ("", "same-origin", "none")

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; "
    "img-src 'self' data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def known_hosts(host: str, port: int) -> frozenset[str]:
    """The Host headers that mean this page: its own name, and the names of loopback where it listens there."""
    bare = f"[{host}]" if ":" in host and not host.startswith("[") else host
    everywhere = bare in ("0.0.0.0", "[::]")
    names = LOOPBACK if bare in LOOPBACK else (*LOOPBACK, bare) if everywhere else (bare,)
    return frozenset(f"{name}:{port}" for name in names) | (frozenset(names) if port == 80 else frozenset())


def refusal(method: str, headers: Mapping[str, str], hosts: Collection[str], token: str) -> str:
    """Why a request is not served; "" when it is."""
    host = headers.get("Host", "").lower()
    if host not in hosts:
        return f"this page is not known as {host[:80]!r}"
    origin = headers.get("Origin", "").lower()
    if origin and origin.partition("://")[2] not in hosts:
        return "another site's script may not read or steer this node"
    if headers.get("Sec-Fetch-Site", "").lower() not in SAFE_SITES and headers.get("Sec-Fetch-Mode") != "navigate":
        return "another site may not ask this node"
    if method not in READS and not _has_token(headers, token):
        return "steering needs the token that was printed when the node started"
    return ""


def _has_token(headers: Mapping[str, str], token: str) -> bool:
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    return scheme == "Bearer" and hmac.compare_digest(given.encode(), token.encode())
