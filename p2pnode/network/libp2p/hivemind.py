"""Puts the real network together: ports, relays, a daemon, and its supervision. The only file that imports hivemind."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import importlib.util
import logging
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from ...wire.addresses import Reachability
from ...wire.errors import LocalProblem
from ...wire.ids import Identity
from ...wire.types import Seconds
from ..base import Server
from .daemon import DaemonOptions, uses_relays
from .link import HivemindLink
from .orphans import sweep_orphan
from .ports import PortLease, with_port
from .relays import choose_relays
from .routing import clean_answer, may_ask
from .supervised import SupervisedNetwork

PORT_WAIT: Seconds = 2.0  # until the port of a daemon that has just ended is free


@dataclass(frozen=True)
class HivemindOptions:
    """Options of the network. `data_dir` has the daemon's record; `key_file` is the identity in p2pd's format.

    Where `listen` says port 0, `last_port` is taken if it is free: peers that lost us look for us there.
    `bootstrap` peers relay for this node if others cannot dial it; with `relay_service` it relays for others.
    """

    data_dir: Path
    key_file: Path
    listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",)
    announce: tuple[str, ...] = ()
    bootstrap: tuple[str, ...] = ()
    last_port: int | None = None
    no_listen: bool = False
    reachability: Reachability = "auto"
    relay_service: bool = False


class HivemindNetwork(SupervisedNetwork):
    """`Network` over libp2p. The port stays reserved until `close`, whatever happens to the daemon."""

    def __init__(self, identity: Identity, options: HivemindOptions) -> None:
        super().__init__(identity.peer_id, self._open)
        self._options = options
        self._lease: PortLease | None = None

    async def _open(self, server: Server) -> HivemindLink:
        options = self._options
        if self._lease is None:
            await asyncio.to_thread(sweep_orphan, options.data_dir)
            self._lease = await _lease(() if options.no_listen else options.listen, options.last_port)
        daemon = DaemonOptions(
            key_file=options.key_file,
            directory=options.data_dir,
            listen=self._lease.listen,
            announce=options.announce,
            no_listen=options.no_listen,
            reachability=options.reachability,
            relay_service=options.relay_service,
        )
        if uses_relays(daemon):
            daemon = replace(daemon, relays=await choose_relays(options.bootstrap))
        return await HivemindLink.open(self.peer, daemon, server, load_hivemind)

    async def start(self, server: Server) -> None:
        try:
            await super().start(server)
        except BaseException:
            self._release()
            raise

    async def close(self) -> None:
        try:
            await super().close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._lease is not None:
            self._lease.release()
            self._lease = None


async def _lease(listen: tuple[str, ...], last_port: int | None) -> PortLease:
    """Reserve ports: instead of 0 that of last time, or any where something else uses it."""
    same_as_before = tuple(with_port(text, last_port) for text in listen) if last_port else listen
    if same_as_before != listen:
        with contextlib.suppress(LocalProblem):
            return await _lease_ports(same_as_before)
    return await _lease_ports(listen)


async def _lease_ports(listen: tuple[str, ...]) -> PortLease:
    """Reserve ports. The daemon of a killed node may need a moment to free its port."""
    deadline = asyncio.get_running_loop().time() + PORT_WAIT
    while True:
        try:
            return PortLease(listen)
        except LocalProblem:
            if asyncio.get_running_loop().time() > deadline:
                raise
        await asyncio.sleep(0.1)


@contextlib.contextmanager
def _parts_of_hivemind_only() -> Iterator[None]:
    """Import from hivemind without running its `__init__`.

    That would import averaging, experts and scipy, which we do not use: a quarter of a node's start time.
    """
    spec = importlib.util.find_spec("hivemind")
    if spec is None or "hivemind" in sys.modules:
        yield
        return
    sys.modules["hivemind"] = importlib.util.module_from_spec(spec)
    try:
        yield
    finally:
        del sys.modules["hivemind"]  # a later import gets all of it


@functools.cache
def load_hivemind() -> SimpleNamespace:
    """Import what we use of hivemind, and silence its log. The first time takes seconds: call it in a thread."""
    from google.protobuf.message import DecodeError
    from google.protobuf.wrappers_pb2 import BytesValue

    with _parts_of_hivemind_only():
        from hivemind.dht.node import DHTNode
        from hivemind.dht.routing import DHTID
        from hivemind.dht.validation import RecordValidatorBase
        from hivemind.p2p import P2P, P2PDaemonError, P2PHandlerError, PeerID
        from hivemind.utils.auth import AuthorizerBase
        from hivemind.utils.logging import use_hivemind_log_handler
        from hivemind.utils.multiaddr import Multiaddr

    use_hivemind_log_handler("nowhere")
    logging.getLogger("hivemind").setLevel(logging.WARNING)

    class NoRecords(RecordValidatorBase):  # type: ignore[misc]
        """Rejects all records: we store none in hivemind's DHT and read none from it, but use our own calls."""

        def validate(self, record: object) -> bool:
            return False

    class RoutingOnly(AuthorizerBase):  # type: ignore[misc]
        """Admits only routing requests, and removes what is invalid from their answers."""

        async def sign_request(self, request: Any, service_public_key: Any) -> None: ...
        async def sign_response(self, response: Any, request: Any) -> None: ...

        async def validate_request(self, request: Any) -> bool:
            return may_ask(request)

        async def validate_response(self, response: Any, request: Any) -> bool:
            return clean_answer(response)

    def p2p_class(sockets: Path) -> type:
        """P2P with its socket in our directory instead of in /tmp."""
        return type("P2P", (P2P,), {"_UNIX_SOCKET_PREFIX": f"/unix{sockets}/"})

    return SimpleNamespace(
        BytesValue=BytesValue,
        DHTID=DHTID,
        DHTNode=DHTNode,
        DecodeError=DecodeError,
        Multiaddr=Multiaddr,
        NoRecords=NoRecords,
        P2PDaemonError=P2PDaemonError,
        P2PHandlerError=P2PHandlerError,
        PeerID=PeerID,
        RoutingOnly=RoutingOnly,
        p2p_class=p2p_class,
    )
