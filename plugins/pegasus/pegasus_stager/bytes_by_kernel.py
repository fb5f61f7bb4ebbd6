"""Copies the bytes of one open file into another without bringing them into this process.

May know: Linux calls. One rule: the copy is whole, or there is an error; holes stay holes.
"""

from __future__ import annotations

import errno
import os

FICLONE = 0x40049409
PIECE_BYTES = 16 << 20
READ_BYTES = 1 << 20
# What a kernel or a file system says that cannot copy in this way; the next way is then tried.
CANNOT = frozenset((errno.EXDEV, errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.EPERM, errno.ETXTBSY, errno.EBADF))


def copy_bytes(source: int, target: int) -> int:
    """From the start of `source` into the empty `target`. Returns how many bytes there are now."""
    size_bytes = os.fstat(source).st_size
    if size_bytes == 0:
        # A file made by the kernel itself says 0 and has content.
        return through_here(source, target, 0)
    if shares_blocks(source, target):
        return os.fstat(target).st_size
    end = 0
    for start, stop in extents(source, size_bytes):
        end = copy_extent(source, target, start, stop)
        if end < stop:
            return end
    os.ftruncate(target, size_bytes)
    return size_bytes


def shares_blocks(source: int, target: int) -> bool:
    """Btrfs and XFS give both files the same blocks until one is written to."""
    import fcntl

    try:
        fcntl.ioctl(target, FICLONE, source)
    except OSError:
        return False
    return True


def extents(source: int, size_bytes: int) -> list[tuple[int, int]]:
    """Where there is data. All of it where there are no holes, or the file system cannot tell."""
    if os.fstat(source).st_blocks * 512 >= size_bytes:
        return [(0, size_bytes)]
    found = []
    start = 0
    while start < size_bytes:
        try:
            start = os.lseek(source, start, os.SEEK_DATA)
            stop = min(os.lseek(source, start, os.SEEK_HOLE), size_bytes)
        except OSError as problem:
            if problem.errno == errno.ENXIO:
                break
            return [(0, size_bytes)]
        found.append((start, stop))
        start = stop
    return found


def copy_extent(source: int, target: int, start: int, stop: int) -> int:
    """Returns where the copy ended: before `stop` if the source is shorter by now. Each way begins anew."""
    for way in (by_copy_range, by_sendfile):
        try:
            return way(source, target, start, stop)
        except OSError as problem:
            if problem.errno not in CANNOT:
                raise
    return through_here(source, target, start, stop)


def by_copy_range(source: int, target: int, start: int, stop: int) -> int:
    os.lseek(target, start, os.SEEK_SET)
    while start < stop:
        moved = os.copy_file_range(source, target, min(PIECE_BYTES, stop - start), start)
        if moved == 0:
            break
        start += moved
    return start


def by_sendfile(source: int, target: int, start: int, stop: int) -> int:
    os.lseek(target, start, os.SEEK_SET)
    while start < stop:
        moved = os.sendfile(target, source, start, min(PIECE_BYTES, stop - start))
        if moved == 0:
            break
        start += moved
    return start


def through_here(source: int, target: int, start: int, stop: int | None = None) -> int:
    """Where neither is possible: pieces of a megabyte through this process."""
    os.lseek(source, start, os.SEEK_SET)
    os.lseek(target, start, os.SEEK_SET)
    while stop is None or start < stop:
        piece = os.read(source, READ_BYTES if stop is None else min(READ_BYTES, stop - start))
        if not piece:
            break
        view = memoryview(piece)
        while view:
            view = view[os.write(target, view) :]
        start += len(piece)
    return start
