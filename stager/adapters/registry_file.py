"""The registry of a cluster in the state directory: which I/O nodes have joined, and where they are.

May know: files. One rule: an entry is replaced only by who knew it as it was.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import msgspec

from stager.adapters.whole_file import write_private
from stager.wire.cluster import NAME, JoinedNode
from stager.wire.node import ForgottenNode

POLL_S = 1.0
# No name of an entry: those end with .json.
FORGOTTEN = "forgotten"


class Registered(msgspec.Struct, frozen=True):
    """`key`: the digest of the public key in the node's certificate. `at` None: it has a certificate, and has not said where it is."""

    node_id: str
    key: str
    at: JoinedNode | None = None


class FileRegistry:
    """A file for each node, and one with all that were removed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.changed = asyncio.Event()

    def nodes(self) -> dict[str, Registered]:
        found = {}
        for path in sorted(self.root.glob("*.json")):
            try:
                entry = msgspec.json.decode(path.read_bytes(), type=Registered)
            except (FileNotFoundError, msgspec.DecodeError):
                continue
            found[entry.node_id] = entry
        return found

    def put(self, entry: Registered, was: Registered | None) -> bool:
        """False: it is not as it was any more, and nothing was changed."""
        assert NAME.fullmatch(entry.node_id), entry
        with self._lock():
            if self.nodes().get(entry.node_id) != was:
                return False
            write_private(self.root / f"{entry.node_id}.json", msgspec.json.encode(entry))
        self.changed.set()
        return True

    def remove(self, node_id: str) -> None:
        """Its certificate counts for nothing from then on."""
        assert NAME.fullmatch(node_id), node_id
        with self._lock():
            entry = self.nodes().get(node_id)
            if entry is not None:
                # First: a node that is in the registry still is let in, whatever else is said of it.
                fresh = ForgottenNode(node_id=node_id, key_sha256=entry.key)
                write_private(self.root / FORGOTTEN, msgspec.json.encode([*(each for each in self._removed() if each != fresh), fresh]))
            (self.root / f"{node_id}.json").unlink(missing_ok=True)
        self.changed.set()

    def forgotten(self) -> list[ForgottenNode]:
        """Those that were removed, under the keys of their certificates. One that has joined again with its key is not among them."""
        keys = {(entry.node_id, entry.key) for entry in self.nodes().values()}
        return [each for each in self._removed() if (each.node_id, each.key_sha256) not in keys]

    def _removed(self) -> list[ForgottenNode]:
        try:
            return msgspec.json.decode((self.root / FORGOTTEN).read_bytes(), type=list[ForgottenNode])
        except FileNotFoundError:
            return []

    async def watch(self) -> AsyncIterator[Mapping[str, Registered]]:
        """All of them, at first and each time that something changed, whichever process did that."""
        seen: dict[str, Registered] | None = None
        while True:
            self.changed.clear()
            found = await asyncio.to_thread(self.nodes)
            if found != seen:
                seen = found
                yield found
            try:
                async with asyncio.timeout(POLL_S):
                    await self.changed.wait()
            except TimeoutError:
                continue

    @contextmanager
    def _lock(self) -> Iterator[None]:
        self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        handle = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX)
            yield
        finally:
            os.close(handle)
