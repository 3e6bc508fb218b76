"""Decides which requests to the page are served. Pure.

Every website that the user visits can send requests to a page on loopback, and a host name that resolves to 127.0.0.1
(DNS rebinding) makes them look like our own. So the Host must be one this node is known by, a foreign Origin gets
nothing, and changing something needs a secret that only the user has.
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass

LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
EVERYWHERE = ("0.0.0.0", "[::]")
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


@dataclass(frozen=True)
class KnownHosts:
    """The Host headers that mean this page."""

    names: frozenset[str]
    port: int
    any_address: bool = False  # the page listens everywhere, so every address of this machine means it

    def mean(self, host: str) -> bool:
        """Whether a Host header means this page. Any name can be made to resolve to this machine, an address cannot."""
        return host in self or (self.any_address and self._at_port(host) and _is_address(_split(host)[0]))

    def __contains__(self, host: str) -> bool:
        """Whether this is one of the names."""
        return self._at_port(host) and _split(host)[0] in self.names

    def _at_port(self, host: str) -> bool:
        return _split(host)[1] == str(self.port)


def known_hosts(host: str, port: int) -> KnownHosts:
    """Returns the host names a page may be asked by: its own, and those of loopback where it listens on that."""
    bare = url_host(host)
    everywhere = bare in EVERYWHERE
    return KnownHosts(frozenset(LOOPBACK if everywhere or bare in LOOPBACK else (bare,)), port, everywhere)


def url_host(host: str) -> str:
    """The host as a URL has it."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _split(host: str) -> tuple[str, str]:
    name, colon, port = (host, "", "") if host.endswith("]") else host.rpartition(":")
    return (name, port) if colon else (host, "80")


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.removeprefix("[").removesuffix("]"))
    except ValueError:
        return False
    return True


def refusal(method: str, headers: Mapping[str, str], hosts: KnownHosts, token: str) -> str:
    """Why a request is not served; "" when it is."""
    host = headers.get("Host", "").lower()
    if not hosts.mean(host):
        return f"this page is not known as {host[:80]!r}"
    origin = headers.get("Origin", "").lower()
    if origin and (site := origin.partition("://")[2]) != host and site not in hosts:
        return "another site's script may not read or steer this node"
    if headers.get("Sec-Fetch-Site", "").lower() not in SAFE_SITES and headers.get("Sec-Fetch-Mode") != "navigate":
        return "another site may not ask this node"
    if method not in READS and not _has_token(headers, token):
        return "steering needs the token that was printed when the node started"
    return ""


def _has_token(headers: Mapping[str, str], token: str) -> bool:
    scheme, _, given = headers.get("Authorization", "").partition(" ")
    return scheme == "Bearer" and hmac.compare_digest(given.encode(), token.encode())
