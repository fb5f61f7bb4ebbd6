"""Open objects: read by ranges of one version, written whole or not at all.

May know: obstore, fsspec's buffers. One rule: nobody sees a part of an object: it is there when its writer was closed, and who reads it
reads one version of it.
"""

from __future__ import annotations

import errno
import tempfile
from typing import Any

import obstore
from fsspec.spec import AbstractBufferedFile

from stager.fs.failures import as_of_files

MEMORY_BYTES_MAX = 64 << 20


class Reading(AbstractBufferedFile):
    """Of the version that was there when it was opened."""

    def __init__(self, fs: Any, path: str, *words: Any, **more: Any) -> None:
        super().__init__(fs, path, *words, **more)
        if self.details["type"] == "directory":
            raise IsADirectoryError(errno.EISDIR, "a directory; name an object in it", f"stager://{self.path}")

    def _fetch_range(self, start: int, end: int) -> bytes:
        data: bytes = self.fs.cat_file(self.path, start=start, end=end, if_match=self.details["ETag"])
        return data


class Writing(AbstractBufferedFile):
    """In parts, where it is large. `create`: kept aside until it is closed, since only a whole body can be refused where one is there."""

    closed: bool

    def __init__(self, fs: Any, path: str, mode: str, **more: Any) -> None:
        super().__init__(fs, path, mode, **more)
        self.create = mode == "xb"
        self.writer: Any = None
        self.aside: Any = None

    def _initiate_upload(self) -> None:
        if self.create:
            self.aside = tempfile.SpooledTemporaryFile(max_size=MEMORY_BYTES_MAX)  # noqa: SIM115
        else:
            with as_of_files(self.path):
                store, key = self.fs.place_to_write(self.path)
                self.writer = obstore.open_writer(store, key, buffer_size=self.blocksize)

    def _upload_chunk(self, final: bool = False) -> bool:
        with as_of_files(self.path):
            (self.aside or self.writer).write(self.buffer.getvalue())
        if final and self.autocommit:
            self.commit()
        return True

    def commit(self) -> None:
        with as_of_files(self.path):
            if self.aside is not None:
                self.aside.seek(0)
                store, key = self.fs.place_to_write(self.path)
                obstore.put(store, key, self.aside.read(), mode="create", use_multipart=False)
            elif self.writer is not None:
                self.writer.close()
        self._drop()

    def discard(self) -> None:
        """Parts that were sent are forgotten by the node in time."""
        self._drop()

    def _drop(self) -> None:
        if self.aside is not None:
            self.aside.close()
        self.aside = self.writer = None

    def __exit__(self, kind: Any, *exc: Any) -> None:
        if kind is None:
            self.close()
        elif not self.closed:
            # What was not written to its end never becomes an object.
            self.discard()
            self.closed = True
