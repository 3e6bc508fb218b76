"""`p2pnode doctor`: each thing a node needs, tried for real, with what to do about what is wrong."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import secrets
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ..config.options import Config
from ..discovery.swarm_offset import FAR_OFF
from ..network.base import Payload
from ..network.libp2p.hivemind import HivemindNetwork, NetworkOptions
from ..node.saved_run import load_saved
from ..storage.files import DiskStorage, write_whole
from ..watch.text import clean, one_line
from ..wire.addresses import Address, host_and_port, parse_address
from ..wire.errors import LocalProblem, PeerError, PeerMisbehaved, PeerRefused, UsageError
from ..wire.ids import Identity, PeerId
from ..wire.messages import Ping, Pong, decode_answer, encode_message
from .checks import Finding, check_disk, check_hivemind, check_port, check_python, check_torch, running_node
from .ending import INTERRUPTED, run_loop
from .reports import print_json

START_LIMIT = 60.0  # the first import of hivemind on a cold disk is slow
CONTACT_LIMIT = 10.0
MARKS = {"ok": "32", "warning": "33", "problem": "31"}


def examine_and_print(config: Config, as_json: bool) -> int:
    """Examine, print, and return the exit code: 1 when there is a problem."""
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is no finding
    logging.captureWarnings(True)
    findings = run_loop(_interruptible(config))
    if findings is None:
        return INTERRUPTED
    healthy = all(finding.verdict != "problem" for finding in findings)
    if as_json:
        print_json({"ok": healthy, "checks": findings})
    else:
        print("\n".join(finding_line(finding) for finding in findings))
    return 0 if healthy else 1


def finding_line(finding: Finding) -> str:
    """One line of a report: the verdict, what was looked at, what was found and what to do."""
    text = clean(one_line(finding.text), 600) + (f"; {one_line(finding.remedy)}" if finding.remedy else "")
    return f"{_coloured(finding.verdict)} {finding.check:<13} {text}"


def _coloured(verdict: str) -> str:
    from rich.console import Console

    padded = f"{verdict:<8}"
    console = Console()
    coloured = sys.stdout.isatty() and console.color_system is not None and not console.no_color
    return f"\x1b[{MARKS[verdict]}m{padded}\x1b[0m" if coloured else padded


async def _interruptible(config: Config) -> list[Finding] | None:
    """The findings, or None after Ctrl-C, which leaves no daemon behind."""
    work = asyncio.create_task(examine(config))
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, work.cancel)
    try:
        return await work
    except asyncio.CancelledError:
        return None


async def examine(config: Config) -> list[Finding]:
    """All findings, in the order people read them."""
    running = await asyncio.to_thread(running_node, config)
    torch, network = await asyncio.gather(check_torch(), check_network(config))
    machine = [check_python(), torch, check_hivemind(), network[0], check_port(config, running)]
    return [*machine, check_disk(config, running), *network[1:]]


async def check_network(config: Config) -> list[Finding]:
    """Daemon, clock, reachability and each bootstrap, with a daemon of a throw-away identity."""
    begun = time.monotonic()
    try:
        async with _throwaway_network(config) as network:
            started = Finding("daemon", "ok", f"p2pd and hivemind come up in {time.monotonic() - begun:.1f} s")
            reachable = _reachability(config, await network.addresses())
            visits = await asyncio.gather(*(_visit(network, address) for address in _bootstrap(config)))
    except TimeoutError:
        return _without_daemon(f"p2pd does not start within {START_LIMIT:.0f} s", "is the machine overloaded?")
    except LocalProblem as problem:
        what, _, remedy = str(problem).partition("; ")
        return _without_daemon(what, remedy or "try again")
    except Exception as error:  # an import that fails can raise anything, and that is what is to be found here
        return _without_daemon(f"p2pd cannot be used ({type(error).__name__}: {error})", "reinstall p2pnode")
    findings = [visit.finding for visit in visits]
    nobody = Finding("bootstrap", "ok", "none given; this node would found a run, or go on with its own")
    return [started, _clock(visits), reachable, *(findings or [nobody])]


def _without_daemon(what: str, remedy: str) -> list[Finding]:
    rest = ("clock", "reachability", "bootstrap")
    later = [Finding(check, "warning", "not checked: it needs the daemon", "mend the daemon first") for check in rest]
    return [Finding("daemon", "problem", what, remedy), *later]


@contextlib.asynccontextmanager
async def _throwaway_network(config: Config) -> AsyncIterator[HivemindNetwork]:
    """A started network that listens where the node would, on any free port. Nothing of it stays."""
    identity = Identity(secrets.token_bytes(32))
    with tempfile.TemporaryDirectory(prefix="p2pnode-doctor-") as scratch:
        key_file = Path(scratch, "identity.key")
        write_whole(key_file, identity.to_key_file())
        options = NetworkOptions(
            data_dir=Path(scratch),
            key_file=key_file,
            listen=tuple(_any_port(text) for text in config.network.listen) or ("/ip4/0.0.0.0/tcp/0",),
            no_listen=config.network.no_listen,
            reachability=config.network.reachability,
        )
        network = HivemindNetwork(identity, options)
        try:
            async with asyncio.timeout(START_LIMIT):
                await network.start(_Nobody())
            yield network
        finally:
            await network.close()


def _any_port(listen: str) -> str:
    parts = listen.split("/")
    return "/".join([*parts[:4], "0", *parts[5:]]) if host_and_port(listen) is not None else listen


class _Nobody:
    """A server that serves nothing: the doctor only asks."""

    async def answer(self, peer: PeerId, request: bytes) -> bytes:
        raise PeerRefused("unknown", "only examining")

    async def payload(self, peer: PeerId, request: bytes) -> Payload:
        raise PeerRefused("unknown", "only examining")

    def misbehaved(self, peer: PeerId, why: str) -> None:
        pass


def _bootstrap(config: Config) -> tuple[Address, ...]:
    """The addresses given, else those the saved run was joined through."""
    if config.run.bootstrap:
        return config.run.bootstrap
    with contextlib.suppress(LocalProblem, UsageError):
        saved = load_saved(DiskStorage(config.data_dir))
        return tuple(parse_address(text) for text in saved.bootstrap) if saved is not None else ()
    return ()


@dataclass(frozen=True)
class _Visit:
    finding: Finding
    clock_offset: float | None = None  # the peer's time minus ours


async def _visit(network: HivemindNetwork, address: Address) -> _Visit:
    """Contact one bootstrap and ask its time."""
    begun = time.monotonic()
    try:
        async with asyncio.timeout(CONTACT_LIMIT * 2):
            await network.contact(address, CONTACT_LIMIT)
            sent = time.monotonic()
            pong = decode_answer(await network.call(address.peer, encode_message(Ping()), CONTACT_LIMIT), Pong)
    except PeerMisbehaved as fault:
        return _Visit(Finding("bootstrap", "problem", f"{address}: {fault}", "ask for the address again"))
    except (PeerError, LocalProblem, TimeoutError) as error:
        remedy = "check that it runs, that the address is right, and that no firewall is in the way"
        return _Visit(Finding("bootstrap", "problem", f"{address}: {error or 'no answer'}", remedy))
    round_trip = time.monotonic() - sent
    words = f"{address} answers (contact {sent - begun:.1f} s, call {round_trip * 1000:.0f} ms)"
    return _Visit(Finding("bootstrap", "ok", words), pong.time + round_trip / 2 - time.time())


def _clock(visits: list[_Visit]) -> Finding:
    offsets = sorted(visit.clock_offset for visit in visits if visit.clock_offset is not None)
    if not offsets:
        return Finding("clock", "ok", "not checked: no bootstrap to compare with")
    offset = offsets[len(offsets) // 2]
    words = f"{abs(offset):.1f} s {'behind' if offset > 0 else 'ahead of'} the swarm's time"
    if abs(offset) < FAR_OFF:
        return Finding("clock", "ok", words)
    return Finding("clock", "warning", f"{words}; the node allows for it", "set the clock: timedatectl set-ntp true")


def _reachability(config: Config, addresses: tuple[str, ...]) -> Finding:
    """What we would announce, and what that means for others."""
    chosen = config.network
    if chosen.announce:
        return Finding("reachability", "ok", f"announces {', '.join(chosen.announce)} as told; not tried from outside")
    if chosen.no_listen:
        return Finding("reachability", "ok", "does not listen; others reach it through relays")
    places = [place for place in map(host_and_port, addresses) if place is not None]
    hosts = [ipaddress.ip_address(place[0]) for place in places]
    shown = ", ".join(dict.fromkeys(str(host) for host in hosts)) or "no address"
    if any(host.is_global for host in hosts):
        return Finding("reachability", "ok", f"has a public address ({shown}); keep its port open in the firewall")
    if all(host.is_loopback for host in hosts):
        remedy = "listen on 0.0.0.0 to be reached from elsewhere"
        return Finding("reachability", "warning", f"only this machine can dial it ({shown})", remedy)
    remedy = "to be dialled directly, forward a port to this machine and name it with --listen PORT --announce ADDR"
    return Finding(
        "reachability", "ok", f"local addresses only ({shown}); from outside through relays or hole punching; {remedy}"
    )
