"""A long line between two network namespaces: a process with a TAP device in each, which hands every packet on after a while.

Run as `delay_line.py NAMESPACE DEVICE NAMESPACE DEVICE DELAY_S`; says `ready` when both devices are there and ends when its standard input
does, so that it never outlives whoever started it. Both devices go with it.

May know: Linux's tun driver. One rule: it delays and nothing else; it drops, shapes and reorders nothing (rates are tc's, on the devices).
Packets carry the kernel's own header for unfinished checksums and large segments, so that 64 KB of TCP pass in one read and one write:
that is what makes Python fast enough for a gigabit.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import struct
import sys
import time
from collections import deque

TUNSETIFF, TUNSETOFFLOAD = 0x400454CA, 0x400454D0
IFF_TAP, IFF_NO_PI, IFF_VNET_HDR = 0x0002, 0x1000, 0x4000
CHECKSUM_LATER, SEGMENT_LATER = 0x01, 0x02
CLONE_NEWNET = 0x40000000
PACKET_BYTES_MAX = 70_000
BATCH = 64


def enter(namespace: str) -> None:
    """This thread, and none but this, has the network of that namespace from now on."""
    place = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        enter_opened(place)
    finally:
        os.close(place)


def enter_opened(place: int) -> None:
    if ctypes.CDLL(None, use_errno=True).setns(place, CLONE_NEWNET) != 0:
        raise OSError(ctypes.get_errno(), "cannot enter a network namespace")


def tap(namespace: str, name: str) -> int:
    enter(namespace)
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TAP | IFF_NO_PI | IFF_VNET_HDR))
    fcntl.ioctl(device, TUNSETOFFLOAD, CHECKSUM_LATER | SEGMENT_LATER)
    return device


class Way:
    """One direction."""

    def __init__(self, source: int, target: int, delay_s: float) -> None:
        self.source, self.target, self.delay_s = source, target, delay_s
        self.under_way: deque[tuple[float, bytes]] = deque()

    def take(self) -> None:
        due, under_way, source = time.monotonic() + self.delay_s, self.under_way, self.source
        with contextlib.suppress(BlockingIOError):
            for _ in range(BATCH):
                under_way.append((due, os.read(source, PACKET_BYTES_MAX)))

    def give(self, now: float) -> float | None:
        """When it wants to be called again."""
        under_way, target = self.under_way, self.target
        while under_way:
            due, packet = under_way[0]
            if due > now:
                return due
            # EIO: the device is not up (yet), as with a cable that is not plugged in.
            with contextlib.suppress(OSError):
                os.write(target, packet)
            under_way.popleft()
        return None


def carry(one: int, other: int, delay_s: float) -> None:
    ways = {one: Way(one, other, delay_s), other: Way(other, one, delay_s)}
    listened = [one, other, sys.stdin.fileno()]
    while True:
        now = time.monotonic()
        wanted = [due for way in ways.values() if (due := way.give(now)) is not None]
        # select, unlike poll, waits for less than a millisecond.
        readable, _, _ = select.select(listened, [], [], max(0.0, min(wanted) - now) if wanted else None)
        for device in readable:
            if device in ways:
                with contextlib.suppress(OSError):
                    ways[device].take()
            elif not os.read(device, 1):
                return


if __name__ == "__main__":
    ends = [tap(*sys.argv[at : at + 2]) for at in (1, 3)]
    print("ready", flush=True)
    carry(*ends, float(sys.argv[5]))
