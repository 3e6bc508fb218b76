"""Sends and receives the records of `lan.py` by mDNS, with the package zeroconf, in threads of its own."""

from __future__ import annotations

import contextlib
import ipaddress
import logging
import secrets
import threading
import time
from typing import TYPE_CHECKING

from ..wire.addresses import host_and_port
from ..wire.errors import LocalProblem
from ..wire.types import Seconds
from .lan import MAX_ADVERTS, SERVICE, Advert, from_text, to_text

if TYPE_CHECKING:
    from zeroconf import ServiceInfo, ServiceStateChange, Zeroconf

QUIET: Seconds = 1.2  # a search ends when nobody new has answered for this long,
LONGEST: Seconds = 5.0  # and at the latest after this


def _open() -> Zeroconf:
    """Sockets in all networks of this machine; LocalProblem when there are none, or zeroconf is missing.

    Call it in a thread without an event loop: zeroconf then makes a thread with a loop of its own.
    """
    try:
        from zeroconf import IPVersion, Zeroconf
    except ImportError:
        raise LocalProblem("the package zeroconf is missing; `pip install zeroconf` brings it") from None
    logging.getLogger("zeroconf").setLevel(logging.CRITICAL)  # it warns of what strangers send
    problem = ""
    for version in (IPVersion.All, IPVersion.V4Only, IPVersion.V6Only):  # a machine may have only one of them
        try:
            return Zeroconf(ip_version=version)
        except Exception as error:  # zeroconf raises many kinds, and none of them may end a node
            problem = problem or _reason(error)
    raise LocalProblem(problem)


def _reason(error: Exception) -> str:
    return (error.strerror if isinstance(error, OSError) else str(error)) or type(error).__name__


class Advertiser:
    """Shows one advert in the local network until it is closed. Its methods take up to a second: call them in a thread.

    The service has a random name: for a private run, a node's name would say who is there.
    """

    def __init__(self, advert: Advert) -> None:
        """Begin to show it; LocalProblem when this machine cannot."""
        self._name = f"p2pnode-{secrets.token_hex(4)}"
        self._zeroconf = _open()
        try:
            self._zeroconf.register_service(self._info(advert))
        except Exception as error:
            self._zeroconf.close()
            raise LocalProblem(_reason(error)) from None

    def update(self, advert: Advert) -> None:
        """Show this from now on, at the same addresses as before; LocalProblem when that fails."""
        try:
            self._zeroconf.update_service(self._info(advert))
        except Exception as error:
            raise LocalProblem(_reason(error)) from None

    def close(self) -> None:
        """Say goodbye: others forget the service at once. A goodbye that cannot be said is no reason to fail."""
        with contextlib.suppress(Exception):
            self._zeroconf.close()

    def _info(self, advert: Advert) -> ServiceInfo:
        from zeroconf import ServiceInfo

        places = [host_and_port(address.text) for address in advert.invite.addresses] if advert.invite else []
        known = [place for place in places if place is not None]
        return ServiceInfo(
            SERVICE,
            f"{self._name}.{SERVICE}",
            port=known[0][1] if known else 0,
            addresses=[ipaddress.ip_address(host).packed for host, _ in known],
            properties=to_text(advert),
            server=f"{self._name}.local.",
        )


def look_around(quiet: Seconds = QUIET, longest: Seconds = LONGEST) -> list[Advert]:
    """The adverts of all nodes that answer, at most MAX_ADVERTS. LocalProblem when this machine cannot look."""
    zeroconf = _open()
    try:
        return _Search(zeroconf).run(quiet, longest)
    finally:
        zeroconf.close()


class _Search:
    """Collects names of services as answers come, then reads their texts."""

    def __init__(self, zeroconf: Zeroconf) -> None:
        self._zeroconf = zeroconf
        self._names: list[str] = []
        self._heard = threading.Event()

    def run(self, quiet: Seconds, longest: Seconds) -> list[Advert]:
        from zeroconf import ServiceBrowser

        deadline = time.monotonic() + longest
        browser = ServiceBrowser(self._zeroconf, SERVICE, handlers=[self._hear])
        patience = longest  # until the first answer: a busy machine takes its time
        while self._heard.wait(max(0.0, min(patience, deadline - time.monotonic()))):
            self._heard.clear()
            patience = quiet
        browser.cancel()
        found = [self._read(name, deadline) for name in tuple(self._names)]
        return [advert for advert in found if advert is not None]

    def _read(self, name: str, deadline: float) -> Advert | None:
        """What a service says. Its text came with its name, or is asked for while there is time."""
        from zeroconf import ServiceInfo

        try:
            info = ServiceInfo(SERVICE, name)
            left = deadline - time.monotonic()
            if not info.load_from_cache(self._zeroconf) and not info.text and left > 0:
                info.request(self._zeroconf, left * 1000)
            return from_text(info.properties)
        except Exception:  # names and records of strangers: zeroconf refuses some of them in its own way
            return None

    def _hear(self, zeroconf: Zeroconf, service_type: str, name: str, state_change: ServiceStateChange) -> None:
        """Called by zeroconf in its own thread."""
        if name not in self._names and len(self._names) < MAX_ADVERTS:
            self._names.append(name)
            self._heard.set()
