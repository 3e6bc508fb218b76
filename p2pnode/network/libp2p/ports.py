"""The TCP ports a node listens on: seen to be free, and kept from others for as long as the node lives.

p2pd binds with SO_REUSEPORT, so a second p2pd on a taken port starts without a word and gets half of the other's
connections. So the port is checked before p2pd is launched, and held by a socket of our own that never listens: p2pd
can bind beside it (same user, SO_REUSEPORT), other nodes see it taken, also while a dead p2pd is being replaced.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Sequence

from ...wire.addresses import host_and_port
from ...wire.errors import LocalProblem


class PortLease:
    """The addresses to listen on with every port 0 made concrete, and the sockets that hold those ports."""

    def __init__(self, listen: Sequence[str]) -> None:
        """LocalProblem with the port's number when one cannot be had."""
        self._held: list[socket.socket] = []
        try:
            self.listen = tuple(self._concrete(text) for text in listen)
        except BaseException:
            self.release()
            raise

    def _concrete(self, text: str) -> str:
        place = host_and_port(text)
        if place is None:
            return text  # not TCP: p2pd finds out by itself
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
    # SO_REUSEADDR looks past connections in TIME_WAIT, but sees listeners and other nodes' leases.
    with _socket(host) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise _problem(host, port, error) from None


def _hold(host: str, port: int) -> socket.socket | None:
    """A bound, never listening socket; None where a stranger's TIME_WAIT forbids it (p2pd can still bind)."""
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
