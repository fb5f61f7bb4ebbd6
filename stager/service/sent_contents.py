"""The contents that tenants sent to a service, by their SHA-256: what lies beside a workflow file on its author's machine.

May know: paths, rest. Blocking. One rule: what a tenant learns of a digest is only what that tenant sent itself, and no byte counts before
its digest was computed here.

`sent/TENANT/contents/ab/DIGEST` holds a content, and `parts/DIGEST` one that is not whole yet. A directory of a run has hard links to
contents, so the number of links says what is in use.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from stager import rest
from stager.model.errors import InvalidInput, Refused
from stager.model.units import format_size

DIGEST = re.compile(rest.DIGEST_PATTERN)
# Of one tenant, as a multiple of what one directory may have.
TENANT_SHARE = 4
# A submit that asked which contents are missing has so long until it needs those that are there.
ASKED_S = 3600.0
# A broken upload may be taken up again so long.
PART_S = 86_400.0
# An origin tells a file that was written just now as one that may still change.
SETTLED_NS = 3_000_000_000


class SentContents:
    """Of one tenant. `directory_bytes_max`: of what one submit may bring."""

    def __init__(self, root: Path, tenant: str, directory_bytes_max: int) -> None:
        self.root, self.directory_bytes_max = root / tenant, directory_bytes_max
        # How many files there are, and their bytes; None: to be counted.
        self.held: tuple[int, int] | None = None

    def path(self, sha256: str) -> Path:
        return self.root / "contents" / sha256[:2] / sha256

    def part(self, sha256: str) -> Path:
        return self.root / "parts" / sha256

    def missing(self, asked: Iterable[rest.Content]) -> list[rest.ContentReceived]:
        """Those that are there are kept for a while, so that the submit that asked finds them."""
        with self.one_at_a_time():
            absent = [content.sha256 for content in asked if not self.keep(content.sha256, content.size_bytes)]
        return [rest.ContentReceived(sha256=sha256, received_bytes=size_of(self.part(sha256)) or 0) for sha256 in absent]

    def keep(self, sha256: str, size_bytes: int) -> bool:
        """False where it is not there. Of its two times the second is a part of its identity in runs, and stays."""
        path = self.path(sha256)
        try:
            found = path.stat()
            if found.st_size != size_bytes:
                return False
            os.utime(path, ns=(time.time_ns(), found.st_mtime_ns))
        except FileNotFoundError:
            return False
        return True

    def take(self, sha256: str, size_bytes: int, offset: int, body: bytes) -> rest.ContentReceived:
        """A part of it. What was received before is not written again, so that a part may be sent twice."""
        check_digest(sha256)
        self.check_part(size_bytes, offset, len(body))
        with self.one_at_a_time():
            return self.taken(sha256, size_bytes, offset, body)

    def check_part(self, size_bytes: int, offset: int, length: int) -> None:
        if size_bytes > self.directory_bytes_max:
            most = format_size(self.directory_bytes_max)
            text = f"a content of {format_size(size_bytes)} is larger than this service takes ({most})"
            text += "; its administrator changes that (stager serve --directory-max)"
            raise Refused(text, code="directory_too_large", subject="size_bytes")
        if offset + length > size_bytes:
            text = f"{length} bytes from {offset} on lead beyond the size that was told ({size_bytes})"
            raise InvalidInput(f"{text}; send the file as it was when its digest was computed", code="bad_parameter", subject="offset")

    def taken(self, sha256: str, size_bytes: int, offset: int, body: bytes) -> rest.ContentReceived:
        if self.keep(sha256, size_bytes):
            return rest.ContentReceived(sha256=sha256, received_bytes=size_bytes, complete=True)
        part = self.part(sha256)
        received = size_of(part) or 0
        if offset > received:
            text = f"{received} bytes of {sha256} are here, and this begins at {offset}; go on from there"
            raise Refused(text, code="content_offset", subject="offset")
        more = body[received - offset :]
        self.check_room(0 if part.exists() else 1, len(more))
        handle = os.open(part, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        with open(handle, "r+b") as file:
            file.seek(received)
            file.write(more)
            received += len(more)
            if received >= size_bytes:
                file.flush()
                os.fsync(handle)
        if received < size_bytes:
            return rest.ContentReceived(sha256=sha256, received_bytes=received)
        self.verify(part, sha256, size_bytes)
        self.store(part, sha256)
        return rest.ContentReceived(sha256=sha256, received_bytes=size_bytes, complete=True)

    def verify(self, part: Path, sha256: str, size_bytes: int) -> None:
        found, size = digest_of(part), size_of(part)
        if found != sha256 or size != size_bytes:
            part.unlink(missing_ok=True)
            self.held = None
            text = f"what came has {size} bytes and the SHA-256 {found}, not {size_bytes} bytes and {sha256}"
            raise InvalidInput(f"{text}; it was dropped: read the file again and send it anew", code="content_differs", subject=sha256)

    def store(self, part: Path, sha256: str) -> None:
        path = self.path(sha256)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        part.chmod(0o400)
        now = time.time_ns()
        os.utime(part, ns=(now, now - SETTLED_NS))
        part.rename(path)
        sync_directory(path.parent)

    def check_room(self, more_files: int, more_bytes: int) -> None:
        """Counts them as held."""
        if self.held is None:
            sizes = [path.stat().st_size for path in self.files()]
            self.held = len(sizes), sum(sizes)
        files, held_bytes = self.held[0] + more_files, self.held[1] + more_bytes
        most = TENANT_SHARE * self.directory_bytes_max
        if held_bytes > most or files > TENANT_SHARE * rest.SENT_FILES_MAX:
            text = f"{self.held[0]} files of yours with {format_size(self.held[1])} are kept here, and {format_size(most)} may be"
            text += "; files that no run of yours needs go after an hour, those of a run once it is removed"
            raise Refused(text, code="contents_full", subject="contents")
        self.held = files, held_bytes

    def files(self) -> Iterator[Path]:
        """Contents and parts of contents."""
        for place in ("contents", "parts"):
            yield from (path for path in (self.root / place).rglob("*") if path.is_file())

    @contextmanager
    def one_at_a_time(self) -> Iterator[None]:
        (self.root / "parts").mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)

    def sweep(self, now: float) -> int:
        """Removes what nothing needs. The bytes that are free then. A content that a directory is just being linked to is either linked
        before, and counts two links, or gone for the submit too, which then says that it is missing.
        """
        freed = 0
        with self.one_at_a_time():
            for path in list(self.files()):
                found = path.stat()
                is_part = path.parent.name == "parts"
                idle_s = now - (found.st_mtime if is_part else found.st_atime)
                if found.st_nlink == 1 and idle_s > (PART_S if is_part else ASKED_S):
                    path.unlink()
                    freed += found.st_size
            self.held = None
        return freed


class SentStores:
    """Of all tenants; one process writes them. `root` is made when the first content comes."""

    def __init__(self, root: Path, directory_bytes_max: int) -> None:
        self.root, self.directory_bytes_max = root, directory_bytes_max
        self.known: dict[str, SentContents] = {}

    def of(self, tenant: str) -> SentContents:
        return self.known.setdefault(tenant, SentContents(self.root, tenant, self.directory_bytes_max))

    def tenants(self) -> list[str]:
        """Also those that there are no more."""
        return [path.name for path in self.root.iterdir()] if self.root.is_dir() else []

    def sweep(self) -> int:
        return sum(self.of(name).sweep(time.time()) for name in self.tenants())


def check_digest(sha256: str) -> None:
    """Raises InvalidInput: it becomes a part of a path."""
    if not DIGEST.fullmatch(sha256):
        text = f"{sha256[:80]!r} is no SHA-256; write 64 digits of 0-9 and a-f"
        raise InvalidInput(text, code="bad_parameter", subject="sha256")


def size_of(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return None


def digest_of(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def sync_directory(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
