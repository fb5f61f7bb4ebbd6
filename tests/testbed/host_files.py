"""The files of one host of the bed: a mount namespace in which everything that a program can write is the host's own.

Run as `host_files.py --own PLACE… --keep PLACE…`. Each place behind `--own` is empty at first. Each place behind `--keep` stays what it is
outside, also below one of the host's own. The program says `ready` when the namespace is there, or `refused` with a reason where the
machine gives none. It ends when its standard input does, so that it never outlives whoever started it.

May know: Linux's mount calls. One rule: a host writes to nothing that another one reads. So its own places are memory file systems, which
go with its last process, and all else is read-only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import sys
from collections.abc import Sequence

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV, MS_REC, MS_PRIVATE = 2, 4, 0x4000, 0x40000
# Their numbers are the same on all processors.
OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
OPEN_TREE_CLONE, OPEN_TREE_CLOEXEC = 1, os.O_CLOEXEC
AT_FDCWD, AT_RECURSIVE = -100, 0x8000
MOVE_MOUNT_F_EMPTY_PATH = 4
MOUNT_ATTR_RDONLY = 1

_libc = ctypes.CDLL(None, use_errno=True)


class MountAttributes(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("set", "clear", "propagation", "user_namespace")]


def checked(answer: int, what: str) -> int:
    if answer < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
    return answer


def mount(source: str | None, target: str, kind: str | None, flags: int, options: str | None = None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind)]
    checked(_libc.mount(*words, ctypes.c_ulong(flags), options.encode() if options else None), f"cannot mount {target}")


def change(place: str, attributes: MountAttributes) -> None:
    """With all that is mounted below it."""
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    answer = _libc.syscall(MOUNT_SETATTR, AT_FDCWD, place.encode(), ctypes.c_uint(AT_RECURSIVE), ctypes.byref(attributes), size)
    checked(answer, f"cannot change what may be written below {place}")


def taken(place: str) -> int:
    """The tree at `place`, apart from where it is mounted."""
    flags = ctypes.c_uint(OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_RECURSIVE)
    return checked(_libc.syscall(OPEN_TREE, AT_FDCWD, place.encode(), flags), f"cannot keep {place}")


def put_back(tree: int, place: str) -> None:
    answer = _libc.syscall(MOVE_MOUNT, tree, b"", AT_FDCWD, place.encode(), ctypes.c_uint(MOVE_MOUNT_F_EMPTY_PATH))
    checked(answer, f"cannot put back {place}")
    os.close(tree)


def make(own: Sequence[str], kept: Sequence[str]) -> None:
    checked(_libc.unshare(CLONE_NEWNS), "this machine gives no mount namespaces")
    mount(None, "/", None, MS_REC | MS_PRIVATE)
    change("/", MountAttributes(set=MOUNT_ATTR_RDONLY))
    # Knobs of the kernel for a process itself, no files.
    change("/proc", MountAttributes(clear=MOUNT_ATTR_RDONLY))
    trees = {place: taken(place) for place in kept}
    # What lies below another comes later.
    for place in sorted({*own, *kept}):
        os.makedirs(place, exist_ok=True)
        if place in trees:
            put_back(trees[place], place)
        else:
            mount("host-files", place, "tmpfs", MS_NOSUID | MS_NODEV, "mode=1777" if place.endswith(("tmp", "shm")) else "mode=0755")


def main(words: Sequence[str]) -> None:
    divide = words.index("--keep")
    try:
        make(words[words.index("--own") + 1 : divide], words[divide + 1 :])
    except OSError as error:
        if error.errno not in (errno.EPERM, errno.ENOSYS):
            raise
        print(f"refused: {error.strerror}", flush=True)
        return
    print("ready", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main(sys.argv[1:])
