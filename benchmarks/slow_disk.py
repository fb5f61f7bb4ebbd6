"""A disk of a known rate: ext4 on a loop device whose reads and writes the kernel holds to so many bytes a second.

May know: losetup, the blkio controller. The one rule: device, mount and limit are gone afterwards, however the work ended.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

THROTTLES = [Path(f"/sys/fs/cgroup/blkio/blkio.throttle.{way}_bps_device") for way in ("read", "write")]


def why_not() -> str | None:
    """Why there can be none here."""
    if os.getuid() != 0:
        return "a loop device and its limit need root"
    return None if all(path.exists() for path in THROTTLES) else "the kernel has no blkio controller (cgroup 1) that limits a disk"


def done(*argv: str | Path) -> str:
    return subprocess.run([str(word) for word in argv], check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL).stdout


@contextlib.contextmanager
def slow_disk(place: Path, size_bytes: int, bytes_per_s: int) -> Iterator[Path]:
    """A directory on it. Its image is made in `place`, which must be on a faster disk."""
    image, mount = place / "disk.img", place / "disk"
    mount.mkdir()
    with image.open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size_bytes)
    with contextlib.ExitStack() as stack:
        # Past the page cache of the file below, which would take writes faster than any disk.
        device = done("losetup", "--find", "--show", "--direct-io=on", image).strip()
        stack.callback(done, "losetup", "--detach", device)
        done("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,nodiscard", device)
        done("mount", device, mount)
        stack.callback(done, "umount", mount)
        number = os.stat(device).st_rdev
        name = f"{os.major(number)}:{os.minor(number)}"
        for throttle in THROTTLES:
            throttle.write_text(f"{name} {bytes_per_s}")
            stack.callback(throttle.write_text, f"{name} 0")
        yield mount
