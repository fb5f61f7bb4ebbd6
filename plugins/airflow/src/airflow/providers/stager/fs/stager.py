"""`ObjectStoragePath("stager://conn@bucket/key")`: the objects of a service, over a connection of Airflow.

May know: the hook, stager's file system. One rule: without a connection in the path it is the default one, as with every operator here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.stager.hooks.stager import StagerHook

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

schemes = ["stager"]


def get_fs(conn_id: str | None, storage_options: dict[str, Any] | None = None) -> AbstractFileSystem:
    try:
        from stager.fs import StagerFileSystem
    except ImportError as problem:
        raise ImportError(f"stager:// needs {problem.name}; install stager[fsspec] in the environment of Airflow") from problem
    address = StagerHook(conn_id or StagerHook.default_conn_name).address()
    return StagerFileSystem(server=address.server, token=address.token, **(storage_options or {}))
