"""One p2pd process: launched so that it cannot outlive us, watched, and ended without a trace.

hivemind is not imported here (it takes seconds): only the path of the binary in its wheel is looked up.
"""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import ipaddress
import logging
import os
import shutil
import sys
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from ...wire.addresses import Reachability, host_and_port
from ...wire.errors import LocalProblem
from ...wire.types import Seconds
from .orphans import forget_daemon, record_daemon, socket_directory

START_LIMIT: Seconds = 60.0  # usually 0.3 s; an overloaded laptop is given its time
STOP_LIMIT: Seconds = 2.0
IDLE_LIMIT = "60s"  # p2pd ends itself when nobody connects to it in this time after its start
# What a relay gives away. The buffer is taken twice for each connection it relays; p2pd's own size is 16 MiB.
RELAY_LIMITS = {"relayBufferSize": str(256 << 10), "relayMaxReservations": "512", "relayMaxCircuits": "64"}
_READY = "Peer ID:"
HIVEMIND = "hivemind==1.1.12"  # as pyproject.toml has it
_REINSTALL = f"reinstall hivemind: pip install --force-reinstall --no-deps {HIVEMIND}"

# Asks the kernel to end p2pd when we die, leaves the terminal's Ctrl-C to us, and becomes p2pd (so the pid stays).
_LAUNCHER = """
import os, signal, sys
if sys.platform == "linux":
    import ctypes
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
if os.getppid() != int(sys.argv[1]):
    os._exit(1)
os.setsid()
try:
    os.execv(sys.argv[2], sys.argv[2:])
except OSError as error:
    print(f"cannot run p2pd: {error.strerror}", flush=True)
    os._exit(126)
"""

logger = logging.getLogger("p2pnode.p2pd")


@dataclass(frozen=True)
class DaemonOptions:
    """How to run p2pd. `directory` is the node's data directory, where the running daemon is recorded."""

    key_file: Path
    directory: Path
    listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",)
    announce: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()  # to be reached through, one address each; they must all be there
    no_listen: bool = False
    reachability: Reachability = "auto"
    relay_service: bool = False
    binary: Path | None = None


def find_p2pd() -> Path:
    """The daemon that hivemind's wheel carries; LocalProblem when it is not there."""
    spec = importlib.util.find_spec("hivemind")
    if spec is None or not spec.submodule_search_locations:
        raise LocalProblem(f"hivemind is not installed; pip install {HIVEMIND}")
    return Path(spec.submodule_search_locations[0], "hivemind_cli", "p2pd")


def daemon_flags(options: DaemonOptions, control: Path) -> list[str]:
    """p2pd's command line. `-b` is left out: p2pd refuses to start when its bootstrap peers are away."""
    reachability = forced_reachability(options)
    outward = _is_outward(options)
    flags = {
        "listen": f"/unix{control}",
        "id": str(options.key_file),
        "dhtServer": "1",
        "tls": "1",
        "autonat": "1",  # answers others' questions about their reachability, and brings hole punching
        "connManager": "1",
        "relay": "1",
        "relayService": str(int(reachability == "public")),
        "autoRelay": str(int(uses_relays(options))),
        "natPortMap": str(int(outward and reachability == "auto")),
        "idleTimeout": IDLE_LIMIT,
    }
    if reachability == "public":
        flags |= RELAY_LIMITS
    if uses_relays(options) and options.relays:  # p2pd panics on relays it is told not to use
        # Of relays it looks for by itself it wants four before it uses the first, or three minutes to pass.
        flags |= {"trustedRelays": ",".join(options.relays), "relayDiscovery": "0"}
    if options.no_listen:
        flags["noListenAddrs"] = "1"
    else:
        flags["hostAddrs"] = ",".join(options.listen)
    if options.announce:
        flags["announceAddrs"] = ",".join(options.announce)
    if reachability != "auto":
        flags[f"forceReachability{reachability.capitalize()}"] = "1"
    return [f"-{name}={value}" for name, value in flags.items()]


def forced_reachability(options: DaemonOptions) -> Reachability:
    """What p2pd is told about itself; with "auto" it asks its peers (AutoNAT), which takes 15 s.

    A relay has to be public from its start on: when p2pd changes to public later, it forgets who reserved a place, and
    the nodes behind NAT that did cannot be reached for up to an hour.
    """
    if options.no_listen:
        return "private"
    if options.reachability == "auto" and (options.relay_service or options.announce):
        return "public"
    return options.reachability


def uses_relays(options: DaemonOptions) -> bool:
    """Whether the node is, or may turn out to be, one that others reach through relays."""
    return _is_outward(options) and forced_reachability(options) != "public"


def daemon_environment(options: DaemonOptions, inherited: Mapping[str, str]) -> dict[str, str]:
    """p2pd starts two relays and the later one counts: its own with our limits, and one with 128 KiB per connection.

    On one processor ours is nearly always the later one (37 of 39 starts; 7 of 21 on two), and streams are not slower.
    """
    environment = {"GOLOG_LOG_LEVEL": "error", **inherited}
    if forced_reachability(options) == "public":
        environment["GOMAXPROCS"] = "1"
    return environment


def _is_outward(options: DaemonOptions) -> bool:
    """Whether the node has to do with other machines, as far as its addresses tell."""
    places = [host_and_port(text) for text in options.listen]
    on_loopback = all(place is not None and ipaddress.ip_address(place[0]).is_loopback for place in places)
    return options.no_listen or not on_loopback


class Daemon:
    """A running p2pd. Use `await Daemon.start(options)`; `sockets` is a private directory for it and us."""

    def __init__(self, options: DaemonOptions, process: asyncio.subprocess.Process, sockets: Path) -> None:
        self.sockets = sockets
        self.control = sockets / "d"
        self.pid = process.pid
        self._options = options
        self._process = process
        self._said: deque[str] = deque(maxlen=20)
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read_output(), name="p2pd output")

    @classmethod
    async def start(cls, options: DaemonOptions) -> Daemon:
        """A daemon that has come up; LocalProblem with the reason when it does not. Call it from the loop's thread.

        The parent-death signal is bound to the thread that starts the child; this runs where the loop runs.
        """
        binary = _checked(options.binary or find_p2pd())
        sockets = await asyncio.to_thread(socket_directory)
        try:
            daemon = cls(options, await _launch(binary, options, sockets / "d"), sockets)
        except BaseException:
            shutil.rmtree(sockets, ignore_errors=True)
            raise
        try:
            record_daemon(options.directory, daemon.pid, sockets)
            await daemon._come_up()
        except BaseException:
            daemon.kill()
            await daemon._clean_up()
            raise
        return daemon

    async def _come_up(self) -> None:
        ready = asyncio.create_task(self._ready.wait())
        try:
            await asyncio.wait({ready, self._reading}, timeout=START_LIMIT, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ready.cancel()
        if self._ready.is_set():
            return
        if not self._reading.done():
            raise LocalProblem(f"p2pd did not come up within {START_LIMIT:.0f} s; is this machine overloaded?")
        last = self._said[-1] if self._said else "it said nothing"
        raise LocalProblem(f"p2pd ended at its start ({last}); if this stays, {_REINSTALL}")

    async def _read_output(self) -> None:
        """Read for ever, so that the pipe never fills."""
        output = self._process.stdout
        assert output is not None
        while True:
            try:
                line = await output.readline()
            except ValueError:
                continue  # a line beyond the reader's limit is dropped
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                self._said.append(text)
                logger.debug("%s", text)
            if text.startswith(_READY):
                self._ready.set()

    async def wait_dead(self) -> str:
        """Wait until the process is gone; says how it went."""
        code = await self._process.wait()
        return f"p2pd was ended by signal {-code}" if code < 0 else f"p2pd ended with code {code}"

    def kill(self) -> None:
        """End it at once, stopped or not."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self) -> None:
        """End it politely, or by force after a while; nothing of it is left afterwards."""
        try:
            with contextlib.suppress(ProcessLookupError):
                self._process.terminate()
            async with asyncio.timeout(STOP_LIMIT):
                await self._process.wait()
        except TimeoutError:
            pass
        finally:
            self.kill()
            await self._clean_up()

    async def _clean_up(self) -> None:
        try:
            async with asyncio.timeout(STOP_LIMIT):
                await self._process.wait()
                await self._reading
        except TimeoutError:
            logger.warning("p2pd %d does not go away", self.pid)
        finally:
            self._reading.cancel()
            shutil.rmtree(self.sockets, ignore_errors=True)
            forget_daemon(self._options.directory, self.pid)


def _checked(binary: Path) -> Path:
    if not binary.is_file():
        raise LocalProblem(f"p2pd is missing at {binary}; {_REINSTALL}")
    if not os.access(binary, os.X_OK):
        raise LocalProblem(f"{binary} may not be executed; chmod +x it, or move off a noexec disk")
    return binary


async def _launch(binary: Path, options: DaemonOptions, control: Path) -> asyncio.subprocess.Process:
    flags = daemon_flags(options, control)
    launcher = [sys.executable, "-S", "-E", "-c", _LAUNCHER, str(os.getpid()), str(binary), *flags]
    return await asyncio.create_subprocess_exec(
        *launcher,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        env=daemon_environment(options, os.environ),
    )
