"""What there is: buckets, objects, and the directories that their names make up.

May know: access to the buckets, obstore. One rule: there are no directories: one is there as long as an object is below it, and a bucket
until it is removed.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import obstore
from fsspec.asyn import AsyncFileSystem
from obstore.store import S3Store

from stager.fs.access import Access
from stager.fs.failures import KeyGone, Unreachable, as_of_files, refuse_name

PAGE = 1000
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
T = TypeVar("T")


class Looking(AsyncFileSystem):
    """The reading half of the file system."""

    protocol = "stager"
    root_marker = ""
    access: Access

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(each) for each in path]
        return os.fspath(path).removeprefix("stager://").strip("/") if path else ""

    def split(self, path: str) -> tuple[str, str]:
        """(bucket, key)"""
        bucket, _, key = self._strip_protocol(path).partition("/")
        if key:
            refuse_name(f"{bucket}/{key}", key)
        return bucket, key

    async def _store(self, bucket: str) -> S3Store:
        return self.access.known(bucket) or await self._beside(self.access.store, bucket)

    async def _place(self, path: str) -> tuple[S3Store, str]:
        bucket, key = self.split(path)
        if not key:
            raise IsADirectoryError(f"stager://{path} is a bucket; name an object in it, as in stager://{bucket or 'BUCKET'}/KEY")
        return await self._store(bucket), key

    async def _beside(self, what: Callable[..., T], *words: Any) -> T:
        """What waits does it beside the loop. All of obstore is called so: its own coroutines are ended by a thread of its runtime, which
        aborts a program that is just about to exit.
        """
        return await asyncio.get_running_loop().run_in_executor(self.access.threads, what, *words)

    async def _did(self, path: str, what: Callable[[], T]) -> T:
        """Raises errors as those of files. After one that found nobody, or that was not known, the next call asks the service anew."""
        try:
            with as_of_files(path):
                return await self._beside(what)
        except (Unreachable, KeyGone):
            self.access.forget()
            raise

    async def _info(self, path: str, **_: Any) -> dict[str, Any]:
        path = self._strip_protocol(path)
        bucket, key = self.split(path)
        if not key:
            if bucket and not await self._beside(self.access.has, bucket):
                raise FileNotFoundError(f"stager://{bucket}: there is no such bucket")
            return directory(bucket)
        # The node's answer to a question about one object of it has no body that would say so.
        if not BUCKET.fullmatch(bucket):
            raise FileNotFoundError(errno.ENOENT, "there is no such bucket", f"stager://{path}")
        store, _key = await self._place(path)
        try:
            return entry(bucket, await self._did(path, lambda: obstore.head(store, key)))
        except FileNotFoundError:
            async for _object in self._below(bucket, key, chunk=1):
                return directory(path)
            raise

    async def _below(self, bucket: str, key: str, chunk: int = PAGE) -> AsyncIterator[dict[str, Any]]:
        """Every object below a directory, a page at a time; nothing of a bucket that is not there."""
        store = await self._store(bucket)
        pages = iter(obstore.list(store, prefix=key or None, chunk_size=chunk))
        while True:
            try:
                page = await self._did(f"{bucket}/{key}", lambda: next(pages, None))
            except FileNotFoundError:
                return
            if page is None:
                return
            for found in page:
                yield entry(bucket, found)

    async def _ls(self, path: str, detail: bool = True, **_: Any) -> list[Any]:
        path = self._strip_protocol(path)
        bucket, key = self.split(path)
        if not bucket:
            made = await self._beside(self.access.buckets)
            found = [directory(name) | {"LastModified": when} for name, when in made]
        else:
            found = await self._entries(path, bucket, key)
        return sorted(found, key=lambda each: each["name"]) if detail else sorted(each["name"] for each in found)

    async def _entries(self, path: str, bucket: str, key: str) -> list[dict[str, Any]]:
        store = await self._store(bucket)
        listed = await self._did(path, lambda: obstore.list_with_delimiter(store, prefix=key or None))
        found = [directory(f"{bucket}/{prefix.rstrip('/')}") for prefix in listed["common_prefixes"]]
        found += [entry(bucket, each) for each in listed["objects"]]
        if found or not key:
            return found
        itself = await self._info(path)
        return [itself] if itself["type"] == "file" else []

    async def _find(self, path: str, maxdepth: int | None = None, withdirs: bool = False, **more: Any) -> Any:
        """One list, whatever the depth."""
        path = self._strip_protocol(path)
        bucket, key = self.split(path)
        if not bucket or maxdepth is not None:
            return await super()._find(path, maxdepth=maxdepth, withdirs=withdirs, **more)
        found = {each["name"]: each async for each in self._below(bucket, key)}
        if withdirs:
            for name in list(found):
                parts = name.split("/")
                above = ("/".join(parts[:count]) for count in range(path.count("/") + 1, len(parts)))
                found |= {each: directory(each) for each in above if each not in found}
            if not key and await self._isdir(path):
                found[path] = directory(path)
        if not found and await self._isfile(path):
            found[path] = await self._info(path)
        found = dict(sorted(found.items()))
        return found if more.get("detail") else list(found)

    def created(self, path: str) -> datetime:
        """Objects are written once: when this one was."""
        return self.modified(path)

    def modified(self, path: str) -> datetime:
        found = self.info(path)
        if found["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "a directory has no time; ask of an object in it", f"stager://{path}")
        when: datetime = found["LastModified"]
        return when


def directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def entry(bucket: str, said: Mapping[str, Any]) -> dict[str, Any]:
    found = {"name": f"{bucket}/{said['path']}", "size": said["size"], "type": "file"}
    return found | {"ETag": said["e_tag"], "LastModified": said["last_modified"]}
