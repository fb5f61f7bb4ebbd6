"""The names that there are: buckets, objects, and the directories that names of objects make up.

May know: access to the buckets, obstore. One rule: there are no directories: one is there as long as an object is below it, and a bucket
until it is removed.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping
from datetime import datetime
from typing import Any, TypeVar

import obstore
from fsspec.asyn import AsyncFileSystem
from obstore.store import S3Store

from stager.fs.access import ServiceAccess
from stager.fs.failures import NO_NAME, Broken, KeyGone, Unreachable, as_of_files, is_name, refuse_name
from stager.fs.listing import Page

LOG = logging.getLogger(__name__)
PAUSES_S = (0.1, 0.5, 2.0)
# What a URL may be signed for.
METHODS = ("GET", "HEAD", "PUT")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
T = TypeVar("T")


class Looking(AsyncFileSystem):
    """The reading half of the file system."""

    protocol = "stager"
    root_marker = ""
    access: ServiceAccess

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
        known = self.access.known(bucket)
        return known if known is not None else await self._beside(self.access.store, bucket)

    async def _place(self, path: str) -> tuple[S3Store, str]:
        bucket, key = self.split(path)
        if not key:
            raise IsADirectoryError(f"stager://{path} is a bucket; name an object in it, as in stager://{bucket or 'BUCKET'}/KEY")
        return await self._store(bucket), key

    async def _beside(self, what: Callable[..., T], *words: Any) -> T:
        """Does a blocking call beside the loop. All of obstore is called so: its own coroutines are ended by a thread of its runtime, which
        aborts a program that is just about to exit.
        """
        return await asyncio.get_running_loop().run_in_executor(self.access.threads, what, *words)

    async def _did(self, path: str, what: Callable[[], T], again: type[Broken] | None = None) -> T:
        """Raises errors as those of files. After one that found nobody, or that was not known, the next call asks the service anew. After
        one of the kind `again` it is done again: obstore does not where a new connection broke before it was used.
        """
        pauses_s = iter(PAUSES_S)
        while True:
            try:
                with as_of_files(path):
                    return await self._beside(what)
            except (Unreachable, KeyGone):
                self.access.forget()
                raise
            except Broken as problem:
                pause_s = next(pauses_s, None)
                if again is None or not isinstance(problem, again) or pause_s is None:
                    raise
            await asyncio.sleep(pause_s)

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
            return entry(bucket, await self._did(path, lambda: obstore.head(store, key), Broken))
        except FileNotFoundError:
            async for page in self._pages(bucket, key, limit=1):
                if page.objects:
                    return directory(path)
            raise

    async def _pages(self, bucket: str, key: str, **more: Any) -> AsyncIterator[Page]:
        """The pages of a listing below a directory; none of a bucket that is not there."""
        after = ""
        while BUCKET.fullmatch(bucket):
            prefix = f"{key}/" if key else ""
            try:
                page = await self._beside(lambda: self.access.page(bucket, prefix, after=after, **more))  # noqa: B023
            except FileNotFoundError:
                return
            yield page
            after = page.after
            if not after:
                return

    async def _below(self, bucket: str, key: str) -> AsyncIterator[dict[str, Any]]:
        """Every object below a directory that has a name here."""
        async for page in self._pages(bucket, key):
            for found in self._files(bucket, page):
                yield found

    def _files(self, bucket: str, page: Page) -> list[dict[str, Any]]:
        """A name with a slash at its end stands for a directory, which needs none."""
        return [entry(bucket, each) for each in page.objects if self._can_name(bucket, each["path"]) and not each["path"].endswith("/")]

    def _can_name(self, bucket: str, key: str) -> bool:
        """Other clients may put what is no name of a file: said once for each bucket, and no reason to hide the others."""
        if is_name(key.removesuffix("/")):
            return True
        if bucket not in self.access.strange:
            self.access.strange.add(bucket)
            LOG.warning(
                "stager://%s holds %r, which cannot be named here: it is left out, and so is whatever else has such a name; %s. "
                "An S3 client can rename it (docs/operating/s3.md)",
                bucket,
                key,
                NO_NAME.partition("; ")[2],
            )
        return False

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
        found = []
        async for page in self._pages(bucket, key, flat=False):
            found += [directory(f"{bucket}/{each[:-1]}") for each in page.prefixes if self._can_name(bucket, each)]
            found += self._files(bucket, page)
        if found:
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

    def sign(self, path: str, expiration: int = 100, method: str = "GET", **_: Any) -> str:
        """A URL by which anybody reads this one object, or with `method="PUT"` writes it, for so many seconds."""
        bucket, key = self.split(path)
        if not key:
            raise IsADirectoryError(f"stager://{bucket} is no object; a URL is of one object")
        if method not in METHODS:
            raise ValueError(f"method {method!r}: a URL is for one of {', '.join(METHODS)}")
        return self.access.link(bucket, key, method, int(expiration))


def directory(name: str) -> dict[str, Any]:
    return {"name": name, "size": 0, "type": "directory"}


def entry(bucket: str, said: Mapping[str, Any]) -> dict[str, Any]:
    found = {"name": f"{bucket}/{said['path']}", "size": said["size"], "type": "file"}
    return found | {"ETag": said["e_tag"], "LastModified": said["last_modified"]}
