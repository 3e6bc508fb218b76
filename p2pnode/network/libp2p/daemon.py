"""One p2pd process: started so that it cannot outlive us, watched, and ended without leaving anything behind.

hivemind is not imported here, because that takes seconds; only the path of the binary in its wheel is needed.
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
from ...wire.errors import LocalProblem, NetworkDown
from ...wire.types import Seconds
from .orphans import forget_daemon, record_daemon, socket_directory

START_LIMIT: Seconds = 60.0  # usually 0.3 s; an overloaded laptop may need much longer
STOP_LIMIT: Seconds = 2.0
IDLE_LIMIT = "60s"  # p2pd ends itself when nobody connects to it in this time after its start
# What a relay offers. Each connection it relays takes two buffers; by default p2pd uses 16 MiB for each.
RELAY_LIMITS = {"relayBufferSize": str(256 << 10), "relayMaxReservations": "512", "relayMaxCircuits": "64"}
_READY = "Peer ID:"
HIVEMIND = "hivemind==1.1.12"  # as pyproject.toml has it
_REINSTALL = f"reinstall hivemind: pip install --force-reinstall --no-deps {HIVEMIND}"

# Asks the kernel to end p2pd when we die, detaches from the terminal's Ctrl-C, and becomes p2pd (with the same pid).
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
    """Options of p2pd. `directory` is the node's data directory, where the running daemon is recorded."""

    key_file: Path
    directory: Path
    listen: tuple[str, ...] = ("/ip4/127.0.0.1/tcp/0",)
    announce: tuple[str, ...] = ()
    relays: tuple[str, ...] = ()  # through which others reach this node, one address each; all must be up
    no_listen: bool = False
    reachability: Reachability = "auto"
    relay_service: bool = False
    binary: Path | None = None


def find_p2pd() -> Path:
    """The daemon in hivemind's wheel; LocalProblem when hivemind is not installed."""
    spec = importlib.util.find_spec("hivemind")
    if spec is None or not spec.submodule_search_locations:
        raise LocalProblem(f"hivemind is not installed; pip install {HIVEMIND}")
    return Path(spec.submodule_search_locations[0], "hivemind_cli", "p2pd")


def daemon_flags(options: DaemonOptions, control: Path) -> list[str]:
    """The command line of p2pd. It has no `-b`, because p2pd does not start when its bootstrap peers are down."""
    reachability = forced_reachability(options)
    outward = _is_outward(options)
    flags = {
        "listen": f"/unix{control}",
        "id": str(options.key_file),
        "dhtServer": "1",
        "tls": "1",
        "autonat": "1",  # tells others whether they are reachable, and enables hole punching
        "connManager": "1",
        "relay": "1",
        "relayService": str(int(reachability == "public")),
        "autoRelay": str(int(uses_relays(options))),
        "natPortMap": str(int(outward and reachability == "auto")),
        "idleTimeout": IDLE_LIMIT,
    }
    if reachability == "public":
        flags |= RELAY_LIMITS
    if uses_relays(options) and options.relays:  # p2pd panics if it gets relays without -autoRelay
        # When it looks for relays by itself, it uses the first one only after it found four or waited three minutes.
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
    """The reachability that p2pd assumes; with "auto" it asks its peers (AutoNAT), which takes 15 s.

    A relay has to be public from the start. If p2pd becomes public later, it forgets its reservations, and the nodes
    behind NAT that made them cannot be reached for up to an hour.
    """
    if options.no_listen:
        return "private"
    if options.reachability == "auto" and (options.relay_service or options.announce):
        return "public"
    return options.reachability


def uses_relays(options: DaemonOptions) -> bool:
    """Whether others reach this node through relays, or may have to."""
    return _is_outward(options) and forced_reachability(options) != "public"


def daemon_environment(options: DaemonOptions, inherited: Mapping[str, str]) -> dict[str, str]:
    """The environment of p2pd. A relay gets one processor, so that our limits apply.

    p2pd starts two relays, one with our limits and one with 128 KiB per connection, and the later one counts. On one
    processor ours is nearly always the later one (37 of 39 starts; 7 of 21 on two), and streams are not slower.
    """
    environment = {"GOLOG_LOG_LEVEL": "error", **inherited}
    if forced_reachability(options) == "public":
        environment["GOMAXPROCS"] = "1"
    return environment


def _is_outward(options: DaemonOptions) -> bool:
    """Whether other machines can be involved, judging by the addresses to listen on."""
    places = [host_and_port(text) for text in options.listen]
    on_loopback = all(place is not None and ipaddress.ip_address(place[0]).is_loopback for place in places)
    return options.no_listen or not on_loopback


class Daemon:
    """A running p2pd. Use `await Daemon.start(options)`. `sockets` is a private directory for its sockets and ours."""

    def __init__(self, options: DaemonOptions, process: asyncio.subprocess.Process, sockets: Path) -> None:
        self.sockets = sockets
        self.control = sockets / "d"
        self.pid = process.pid
        self._options = options
        self._process = process
        self._output: deque[str] = deque(maxlen=20)
        self._ready = asyncio.Event()
        self._reading = asyncio.create_task(self._read_output(), name="p2pd output")

    @classmethod
    async def start(cls, options: DaemonOptions) -> Daemon:
        """Start a daemon and wait until it is ready; LocalProblem with the reason when that fails.

        NetworkDown when a signal ended it: another one may do better.

        Call it from the thread of the event loop: the signal at the parent's death is bound to the starting thread.
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
        code = await self._process.wait()
        if code < 0:
            raise NetworkDown(f"p2pd was ended by signal {-code} at its start")
        last = self._output[-1] if self._output else "it said nothing"
        raise LocalProblem(f"p2pd ended at its start ({last}); if this stays, {_REINSTALL}")

    async def _read_output(self) -> None:
        """Read all output, so that the pipe never fills up."""
        output = self._process.stdout
        assert output is not None
        while True:
            try:
                line = await output.readline()
            except ValueError:
                continue  # the line was longer than the reader's limit and is dropped
            if not line:
                return
            text = line.decode(errors="replace").rstrip()
            if text:
                self._output.append(text)
                logger.debug("%s", text)
            if text.startswith(_READY):
                self._ready.set()

    async def wait_dead(self) -> str:
        """Wait until the process has ended; returns how."""
        code = await self._process.wait()
        return f"p2pd was ended by signal {-code}" if code < 0 else f"p2pd ended with code {code}"

    @property
    def ended(self) -> bool:
        """Whether the process is known to have ended."""
        return self._process.returncode is not None

    def kill(self) -> None:
        """Kill the process, even if it is suspended."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def stop(self) -> None:
        """Ask the process to end, kill it after a while, and remove everything it leaves."""
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
            logger.warning("p2pd %d does not end", self.pid)
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
