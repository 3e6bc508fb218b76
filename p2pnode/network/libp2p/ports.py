"""Reserves the TCP ports a node listens on, for as long as the node lives.

p2pd binds with SO_REUSEPORT, so a second p2pd on a used port starts without an error and gets half of the other's
connections. Therefore the port is checked before p2pd starts, and held by a socket of our own that never listens. p2pd
can still bind (same user, SO_REUSEPORT), but other nodes see that the port is in use, even while p2pd is replaced.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from ...wire.addresses import host_and_port
from ...wire.errors import LocalProblem


def with_port(text: str, port: int) -> str:
    """The address with this port instead of port 0; any other address as it is."""
    place = host_and_port(text)
    if place is None or place[1]:
        return text
    parts = text.split("/")
    parts[4] = str(port)
    return "/".join(parts)


class PortLease:
    """The addresses to listen on, with a free port instead of port 0, and the sockets that hold the ports."""

    def __init__(self, listen: Sequence[str]) -> None:
        """LocalProblem with the number of the port when one is not available."""
        self._held: list[socket.socket] = []
        try:
            self.listen = tuple(self._concrete(text) for text in listen)
        except BaseException:
            self.release()
            raise

    def _concrete(self, text: str) -> str:
        place = host_and_port(text)
        if place is None:
            return text  # not TCP: left to p2pd
        host, port = place
        if port:
            _check_free(host, port)
        held = _hold(host, port)
        if held is not None:
            self._held.append(held)
            port = held.getsockname()[1]
        parts = text.split("/")
        parts[4] = str(port)
        return "/".join(parts)

    def release(self) -> None:
        for held in self._held:
            held.close()
        self._held.clear()


def _check_free(host: str, port: int) -> None:
    # SO_REUSEADDR ignores connections in TIME_WAIT, but not listeners and the leases of other nodes.
    with _socket(host) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise _problem(host, port, error) from None


def _hold(host: str, port: int) -> socket.socket | None:
    """A bound socket that never listens; None where a connection in TIME_WAIT prevents it (p2pd can still bind)."""
    held = _socket(host)
    held.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        held.bind((host, port))
    except OSError as error:
        held.close()
        if port and error.errno == errno.EADDRINUSE:
            return None
        raise _problem(host, port, error) from None
    return held


def _socket(host: str) -> socket.socket:
    made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM)
    if made.family == socket.AF_INET6:
        made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    return made


def _problem(host: str, port: int, error: OSError) -> LocalProblem:
    if error.errno == errno.EADDRINUSE:
        return LocalProblem(f"port {port} is in use; stop what uses it, or give another one (0 = any free port)")
    if error.errno == errno.EACCES:
        return LocalProblem(f"port {port} may not be used by this user; give one above 1023")
    if error.errno == errno.EADDRNOTAVAIL:
        return LocalProblem(f"this machine has no address {host}; listen on 0.0.0.0 or on one it has")
    return LocalProblem(f"cannot listen on {host} port {port}: {error.strerror}")
