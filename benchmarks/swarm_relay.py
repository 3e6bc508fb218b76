"""Links between network namespaces, in userspace: a TUN device in each, packets passed on after a delay.

    python -m benchmarks.swarm_relay MBIT DELAY_MS NAMESPACE=ADDRESS …

Kernels without netem cannot delay; this can. Each downlink has a rate and a queue of QUEUE seconds, beyond which
packets are lost, as at a home router; uplinks are shaped by tbf in the namespaces. Says "ready", ends with its input.
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import os
import select
import socket
import struct
import sys
import time
from pathlib import Path

CLONE_NEWNET = 0x40000000
TUNSETIFF = 0x400454CA
TUN_WITHOUT_HEADER = 0x1001
DEVICE = "link"
MAX_PACKET = 65536
QUEUE = 0.4


def open_tun(namespace: str) -> int:
    """The device's file, made in a namespace; it works from anywhere."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/proc/self/ns/net").open() as own, Path("/run/netns", namespace).open() as there:
        try:
            if libc.setns(there.fileno(), CLONE_NEWNET):
                raise OSError(ctypes.get_errno(), f"cannot enter {namespace}")
            tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
            fcntl.ioctl(tun, TUNSETIFF, struct.pack("16sH22x", DEVICE.encode(), TUN_WITHOUT_HEADER))
            return tun
        finally:
            libc.setns(own.fileno(), CLONE_NEWNET)


class Relay:
    """Packets under way, ordered by when they arrive."""

    def __init__(self, tuns: dict[bytes, int], rate: float, delay: float) -> None:
        self._tuns = tuns  # by address
        self._rate = rate  # bytes a second
        self._delay = delay
        self._free = dict.fromkeys(tuns, 0.0)  # when each downlink has sent what it has
        self._due: list[tuple[float, int, int, bytes]] = []
        self._count = 0

    def take(self, tun: int, now: float) -> None:
        """All that waits at a device."""
        while True:
            try:
                packet = os.read(tun, MAX_PACKET)
            except BlockingIOError:
                return
            target = packet[16:20]
            if packet[0] >> 4 != 4 or target not in self._tuns or self._free[target] - now > QUEUE:
                continue
            self._free[target] = max(now, self._free[target]) + len(packet) / self._rate
            self._count += 1
            due = self._free[target] + self._delay
            heapq.heappush(self._due, (due, self._count, self._tuns[target], packet))

    def deliver(self, now: float) -> float:
        """What is due; returns seconds until something is."""
        while self._due and self._due[0][0] <= now:
            _, _, tun, packet = heapq.heappop(self._due)
            try:
                os.write(tun, packet)
            except OSError:
                continue  # its queue is full, or it is gone: lost, as packets may be
        return self._due[0][0] - now if self._due else 1.0


def main(mbit: float, delay_ms: float, places: list[str]) -> None:
    named = dict(place.split("=") for place in places)
    tuns = {socket.inet_aton(address): open_tun(namespace) for namespace, address in named.items()}
    relay = Relay(tuns, mbit * 1e6 / 8, delay_ms / 1000)
    poll = select.poll()
    for file in (0, *tuns.values()):
        poll.register(file, select.POLLIN)
    print("ready", flush=True)
    while True:
        wait = relay.deliver(time.monotonic())
        for file, _ in poll.poll(max(1.0, wait * 1000)):
            if file == 0:
                return
            relay.take(file, time.monotonic())


if __name__ == "__main__":
    main(float(sys.argv[1]), float(sys.argv[2]), sys.argv[3:])
