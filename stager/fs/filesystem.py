"""The file system of fsspec over a tenant's buckets: `stager://BUCKET/KEY`.

May know: names (browsing.py), open objects, obstore. One rule: a bucket is made with the first thing that is written to it, and goes
only when somebody removes it.
"""

from __future__ import annotations

import asyncio
import errno
import os
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import obstore
from fsspec.asyn import sync
from fsspec.callbacks import DEFAULT_CALLBACK
from obstore.store import S3Store

from stager.fs.access import ServiceAccess
from stager.fs.browsing import Looking
from stager.fs.failures import BehindTheEnd, Broken, Unsent
from stager.fs.files import Reading, Writing

if TYPE_CHECKING:
    from obstore import GetOptions

PART_BYTES = 16 << 20
# Of one object; what is written by a stream, whose end nobody knows, ends at 160 GB.
PARTS_MAX = 10_000
GET_BYTES = 4 << 20
DELETES_MAX = 1000
# Of two ranges that are nearer to each other what lies between is read, too.
GAP_BYTES, SPAN_BYTES_MAX = 1 << 20, 64 << 20
SERVER, TOKEN, TOKEN_FILE = "STAGER_SERVER", "STAGER_TOKEN", "STAGER_TOKEN_FILE"


class StagerFileSystem(Looking):
    """`server`, and `token` or `token_file`; else STAGER_SERVER, and STAGER_TOKEN or STAGER_TOKEN_FILE."""

    def __init__(self, server: str | None = None, token: str | None = None, token_file: str | None = None, **more: Any) -> None:
        super().__init__(**more)
        self.access = ServiceAccess(*server_and_token(server, token, token_file))

    async def _to_write(self, path: str) -> tuple[S3Store, str]:
        place = await self._place(path)
        bucket = self.split(path)[0]
        if not self.access.is_there(bucket):
            await self._beside(self.access.ensure, bucket)
        return place

    async def _wrote(self, path: str, what: Callable[[], Any]) -> None:
        """Where the bucket was removed since it was last looked at, it is made again."""
        try:
            await self._did(path, what, Unsent)
        except FileNotFoundError:
            await self._beside(self.access.make, self.split(path)[0])
            await self._did(path, what, Unsent)

    def place_to_write(self, path: str) -> tuple[S3Store, str]:
        """For writers, which are called outside the loop."""
        bucket, key = self.split(path)
        self.access.ensure(bucket)
        return self.access.store(bucket), key

    async def _cat_file(self, path: str, start: int | None = None, end: int | None = None, if_match: str = "", **_: Any) -> bytes:
        """Nothing where the range is behind the end. `if_match`: of no other version than that."""
        store, key = await self._place(path)
        if (start or 0) < 0 or (end is not None and end < 0):
            size = (await self._info(path))["size"]
            start, end = (None if each is None else max(0, size + each) if each < 0 else each for each in (start, end))
        options: GetOptions = {"if_match": if_match} if if_match else {}
        if end is not None:
            if end <= (start or 0):
                return b""
            options["range"] = (start or 0, end)
        elif start:
            options["range"] = {"offset": start}

        def get() -> bytes:
            return bytes(obstore.get(store, key, options=options or None).bytes())

        try:
            return await self._did(path, get, Broken)
        except BehindTheEnd:
            return b""

    async def _cat_ranges(
        self, paths: list[str], starts: Any, ends: Any, max_gap: int | None = None, on_error: str = "return", **more: Any
    ) -> list[Any]:
        """Ranges of one object that are near each other are read at once."""
        starts = list(starts) if isinstance(starts, Sequence) else [starts] * len(paths)
        ends = list(ends) if isinstance(ends, Sequence) else [ends] * len(paths)
        if not len(paths) == len(starts) == len(ends):
            raise ValueError("there should be as many starts and ends as paths")
        by_path: defaultdict[str, list[int]] = defaultdict(list)
        for number, path in enumerate(paths):
            by_path[self._strip_protocol(path)].append(number)
        found: list[Any] = [None] * len(paths)

        async def of_one(path: str, numbers: list[int]) -> None:
            read = await self._ranges(path, [(starts[number], ends[number]) for number in numbers])
            for number, data in zip(numbers, read, strict=True):
                found[number] = data

        await asyncio.gather(*(of_one(path, numbers) for path, numbers in by_path.items()))
        failed = next((each for each in found if isinstance(each, Exception)), None)
        if failed is not None and on_error != "return":
            raise failed
        return found

    async def _ranges(self, path: str, ranges: list[tuple[Any, Any]]) -> list[Any]:
        """Bytes, or the error that was met instead."""
        plain = all(start is not None and end is not None and 0 <= start < end for start, end in ranges)
        if plain and len(ranges) > 1:
            try:
                return await self._together(path, ranges)
            except OSError as problem:
                # Of the others each range is told its own.
                if problem.errno == errno.ESTALE:
                    return [problem] * len(ranges)
        return await asyncio.gather(*(self._cat_file(path, *pair) for pair in ranges), return_exceptions=True)

    async def _together(self, path: str, ranges: list[tuple[int, int]]) -> list[Any]:
        """All of one version: an object may be written anew between two calls."""
        store, key = await self._place(path)
        spans = joined(ranges)

        def get(span: tuple[int, int], tag: str) -> tuple[str, bytes]:
            options: GetOptions = {"range": span, "if_match": tag} if tag else {"range": span}
            answer = obstore.get(store, key, options=options)
            return answer.meta["e_tag"] or "", bytes(answer.bytes())

        async def all_of(tag: str) -> list[tuple[str, bytes]]:
            return await asyncio.gather(*(self._did(path, partial(get, span, tag), Broken) for span in spans))

        read = await all_of("")
        if len({tag for tag, _ in read}) > 1:
            read = await all_of((await self._info(path))["ETag"])
        found = {span: memoryview(data) for span, (_, data) in zip(spans, read, strict=True)}
        starts = [span[0] for span in spans]
        cut = []
        for start, end in ranges:
            span = spans[bisect_right(starts, start) - 1]
            cut.append(bytes(found[span][start - span[0] : end - span[0]]))
        return cut

    async def _pipe_file(self, path: str, value: Any, mode: str = "overwrite", **_: Any) -> None:
        store, key = await self._to_write(path)
        how: dict[str, Any] = {"mode": "create", "use_multipart": False} if mode == "create" else {"chunk_size": PART_BYTES}
        await self._wrote(path, lambda: obstore.put(store, key, bytes(value), **how))

    async def _put_file(self, lpath: str, rpath: str, callback: Any = DEFAULT_CALLBACK, mode: str = "overwrite", **_: Any) -> None:
        if os.path.isdir(lpath):
            return
        store, key = await self._to_write(rpath)
        size = os.stat(lpath).st_size
        callback.set_size(size)
        parts = {"chunk_size": max(PART_BYTES, -(-size // PARTS_MAX))}
        how: dict[str, Any] = {"mode": "create", "use_multipart": False} if mode == "create" else parts
        await self._wrote(rpath, lambda: obstore.put(store, key, Path(lpath), **how))
        callback.absolute_update(size)

    async def _get_file(self, rpath: str, lpath: str, callback: Any = DEFAULT_CALLBACK, **_: Any) -> None:
        """Whole or not at all, as it is there."""
        if os.path.isdir(lpath):
            return
        if not self.split(rpath)[1] or (rpath.endswith("/") and await self._isdir(rpath)):
            os.makedirs(lpath, exist_ok=True)
            return
        store, key = await self._place(rpath)
        try:
            answer = await self._did(rpath, lambda: obstore.get(store, key), Broken)
        except FileNotFoundError:
            if not await self._isdir(rpath):
                raise
            os.makedirs(lpath, exist_ok=True)
            return
        callback.set_size(answer.meta["size"])
        beside = f"{lpath}.{os.getpid()}.{id(answer):x}.part"
        try:
            with open(beside, "xb") as stream:
                await self._did(rpath, lambda: pour(answer, stream, callback))
            os.replace(beside, lpath)
        finally:
            Path(beside).unlink(missing_ok=True)

    async def _cp_file(self, path1: str, path2: str, copied: list[tuple[str, str]] | None = None, **_: Any) -> None:
        """Within a bucket no byte leaves the node. Of a bucket or a directory there is nothing to copy but what is in it. `copied`: is told
        of each object.
        """
        if not self.split(path1)[1]:
            return
        (source, key1), (target, key2) = await self._place(path1), await self._to_write(path2)
        try:
            if self.split(path1) == self.split(path2):
                await self._info(path1)
            elif self.split(path1)[0] == self.split(path2)[0]:
                await self._did(path1, lambda: obstore.copy(source, key1, key2))
            else:
                answer = await self._did(path1, lambda: obstore.get(source, key1), Broken)
                await self._did(path2, lambda: pour_over(answer, target, key2))
        except FileNotFoundError:
            if await self._isdir(path1):
                return
            raise
        if copied is not None:
            copied.append((path1, path2))

    async def _rm_file(self, path: str, **_: Any) -> None:
        store, key = await self._place(path)
        await self._did(path, lambda: obstore.delete(store, key))

    async def _rm(self, path: Any, recursive: bool = False, maxdepth: int | None = None, **_: Any) -> None:
        """Raises FileNotFoundError where nothing is. A bucket goes with all that is in it, if that is asked for."""
        objects, buckets = [], []
        for each in await self._expand_path(path, recursive=recursive, maxdepth=maxdepth):
            found = await self._info(each) if not recursive else None
            if found is not None and found["type"] == "directory":
                raise IsADirectoryError(f"stager://{each} is a directory; say recursive=True to remove all that is in it")
            bucket, key = self.split(each)
            if key:
                objects.append(each)
            elif maxdepth is None:
                buckets.append(bucket)
        await self._remove(objects)
        for bucket in buckets:
            await self._beside(self.access.remove, bucket)

    async def _remove(self, paths: Iterable[str]) -> None:
        """Objects, many in a call."""
        keys: defaultdict[str, list[str]] = defaultdict(list)
        for bucket, key in map(self.split, paths):
            keys[bucket].append(key)
        for bucket, some in keys.items():
            store = await self._store(bucket)
            for start in range(0, len(some), DELETES_MAX):
                page = some[start : start + DELETES_MAX]
                await self._did(bucket, partial(obstore.delete, store, page))

    async def _mkdir(self, path: str, create_parents: bool = True, **_: Any) -> None:
        """Makes a bucket; directories in it need no making."""
        bucket, key = self.split(path)
        if bucket and (create_parents or not key):
            made = await self._beside(self.access.make, bucket)
            if not made and not key:
                raise FileExistsError(f"stager://{bucket} is there already")

    async def _makedirs(self, path: str, exist_ok: bool = False) -> None:
        try:
            await self._mkdir(path)
        except FileExistsError:
            if not exist_ok:
                raise

    def rmdir(self, path: str) -> None:
        """An empty bucket; directories in it go with their last object."""
        bucket, key = self.split(path)
        if not key:
            self.access.remove(bucket)

    def mv(self, path1: Any, path2: Any, recursive: bool = False, maxdepth: int | None = None, **more: Any) -> None:
        """Removes what was copied to another name, and nothing else: a directory may go below itself, and what is where it goes stays."""
        copied: list[tuple[str, str]] = []
        self.copy(path1, path2, recursive=recursive, maxdepth=maxdepth, on_error="raise", copied=copied, **more)
        stays = {self._strip_protocol(target) for _, target in copied}
        gone = [source for source, _ in copied if self._strip_protocol(source) not in stays]
        if gone:
            sync(self.loop, self._remove, gone)
        elif not copied:
            self.rm(path1, recursive=recursive)
        if recursive and isinstance(path1, str) and not self.split(path1)[1]:
            with suppress(OSError):
                self.rmdir(path1)

    def _open(self, path: str, mode: str = "rb", block_size: Any = None, autocommit: bool = True, **more: Any) -> Reading | Writing:
        if mode == "rb":
            return Reading(self, path, mode, block_size=block_size, **more)
        if mode not in ("wb", "xb"):
            raise NotImplementedError(f"mode {mode!r}: objects are written whole; read it, and write it anew")
        if mode == "xb" and self.exists(path):
            raise FileExistsError(f"stager://{path} is there already")
        return Writing(self, path, mode, block_size=block_size or PART_BYTES, autocommit=autocommit, **more)


def joined(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """The ranges to read at once, ascending."""
    spans: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        first, last = spans[-1] if spans else (0, -1)
        if start < last or (start <= last + GAP_BYTES and end - first <= SPAN_BYTES_MAX and spans):
            spans[-1] = (first, max(end, last))
        else:
            spans.append((start, end))
    return spans


def pour_over(answer: Any, target: S3Store, key: str) -> None:
    """By a writer, not by `put`, which would ask for the next piece inside of its own wait."""
    writer = obstore.open_writer(target, key, buffer_size=PART_BYTES)
    for data in answer.stream(min_chunk_size=GET_BYTES):
        writer.write(bytes(data))
    writer.close()


def pour(answer: Any, stream: Any, callback: Any) -> None:
    for data in answer.stream(min_chunk_size=GET_BYTES):
        stream.write(data)
        callback.relative_update(len(data))


def server_and_token(server: str | None, token: str | None, token_file: str | None) -> tuple[str, str]:
    """Raises ValueError that says what is missing, and never the token."""
    server = server or os.environ.get(SERVER)
    if not server:
        raise ValueError(f"which service? say server= (storage_options={{'server': 'http://127.0.0.1:7433'}}), or set {SERVER}")
    if not server.startswith(("http://", "https://")):
        raise ValueError(f"{server!r} is no address of a service; it begins with http:// or https://")
    if not token and not token_file:
        token, token_file = os.environ.get(TOKEN), os.environ.get(TOKEN_FILE)
    if token_file and not token:
        token = Path(token_file).read_text().strip()
    if not token:
        raise ValueError(f"the service asks for a token: say token_file= or token=, or set {TOKEN} or {TOKEN_FILE}")
    return server, token
