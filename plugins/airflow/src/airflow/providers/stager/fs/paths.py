"""`stager://bucket/key` without a connection in front, in all that a path can do.

May know: universal-pathlib, on which ObjectStoragePath stands. One rule: what a path says itself goes before Airflow's default connection,
and that before the environment.

ObjectStoragePath opens such a path by get_fs(), but leaves exists(), iterdir(), read_text() and others to the path that it wraps, which
knows nothing of Airflow.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowNotFoundException
from fsspec import get_filesystem_class
from upath.implementations.cloud import CloudPath

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem


# A file system that is known by then lends its own rules for paths; else the library makes some up, and warns of them.
with contextlib.suppress(ImportError):
    get_filesystem_class("stager")


class StagerPath(CloudPath):
    __slots__ = ()

    @classmethod
    def _fs_factory(cls, urlpath: str, protocol: str, storage_options: Mapping[str, Any]) -> AbstractFileSystem:
        from airflow.sdk.io.store import attach

        if not storage_options:
            try:
                return attach(protocol).fs
            except AirflowNotFoundException:
                pass
        return super()._fs_factory(urlpath, protocol, storage_options)
