"""A disk whose power can be cut: ext4 on a loop device of its own. What a process has not synced, and the system has not written, is lost.

The file under the loop device is the disk: a copy of it, made while the processes that write stand still, is what a cut leaves. Its own
cache is not played: what reached the device stays. May know: losetup, /proc. One rule: devices and mounts are gone afterwards, however the
test ended.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.testbed.waiting import wait_until

# Nothing is committed but what is synced: the system's own turn comes later than any test takes.
OPTIONS = "commit=3600,noatime"


def done(*argv: str | Path) -> str:
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@contextlib.contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Every thread of it has ended its call to the system, and none begins another."""
    os.kill(pid, signal.SIGSTOP)
    try:
        states = [task / "stat" for task in Path(f"/proc/{pid}/task").iterdir()]
        wait_until(lambda: all(map(stands, states)), f"process {pid} to stand still")
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def stands(stat: Path) -> bool:
    """Also a thread that has ended since it was seen."""
    try:
        return stat.read_text().rpartition(")")[2].split()[0] == "T"
    except (FileNotFoundError, ProcessLookupError):
        return True


class CutDisk:
    """`mount` is the same directory before and after a cut."""

    def __init__(self, place: Path, size_bytes: int) -> None:
        self.mount, self.image = place / "disk", place / "disk.img"
        self.mount.mkdir(parents=True)
        with self.image.open("wb") as file:
            file.truncate(size_bytes)
        done("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=1,nodiscard", self.image)

    def attach(self) -> None:
        done("mount", "-o", f"loop,{OPTIONS}", self.image, self.mount)

    def detach(self) -> None:
        done("umount", self.mount)

    def cut(self, pid: int, kill: Callable[[], None]) -> None:
        """The power goes while this process writes, and comes back; `kill` ends the process, which has said nothing since."""
        left = self.image.with_suffix(".left")
        # A new name each time: ext4 writes a file that was cut to nothing and filled again when it is closed.
        canary = self.mount / f"canary-{time.monotonic_ns()}"
        with standing_still(pid):
            canary.write_bytes(b"never synced")
            done("cp", "--sparse=always", self.image, left)
            kill()
        self.detach()
        left.replace(self.image)
        self.attach()
        assert not canary.exists() or canary.read_bytes() == b"", "what nobody had synced survived: this was no cut of power"


@contextlib.contextmanager
def cut_disk(place: Path, size_bytes: int = 1 << 30) -> Iterator[CutDisk]:
    if os.getuid() != 0:
        pytest.skip("a loop device and its mount need root")
    disk = CutDisk(place, size_bytes)
    try:
        disk.attach()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this machine does not let us mount a file system of our own: {error.stderr.strip()}")
    try:
        yield disk
    finally:
        disk.detach()
