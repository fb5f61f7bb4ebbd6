"""Clients of a scheduler: over the Unix socket of a state directory, and over HTTP to `stager serve`, at once or async.

May know: wire, rest.py and the model. One rule: `import stager.client` costs nothing; a client is imported when it is asked for.
Errors are raised as StagerError.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stager.client.engines import EngineRun
    from stager.client.engines_async import AsyncEngineRun
    from stager.client.rest import RestClient, RestRun
    from stager.client.rest_async import AsyncRestClient, AsyncRestRun
    from stager.client.socket import ALREADY_HELD_EXIT, Client, RunClient, UnixConnection, connect, connect_or_start, error_of
    from stager.model.units import format_size

__all__ = [
    "ALREADY_HELD_EXIT",
    "AsyncEngineRun",
    "AsyncRestClient",
    "AsyncRestRun",
    "Client",
    "EngineRun",
    "RestClient",
    "RestRun",
    "RunClient",
    "UnixConnection",
    "connect",
    "connect_or_start",
    "error_of",
    "format_size",
]

LATER = {
    "EngineRun": "stager.client.engines",
    "AsyncEngineRun": "stager.client.engines_async",
    "RestClient": "stager.client.rest",
    "RestRun": "stager.client.rest",
    "AsyncRestClient": "stager.client.rest_async",
    "AsyncRestRun": "stager.client.rest_async",
    "ALREADY_HELD_EXIT": "stager.client.socket",
    "Client": "stager.client.socket",
    "RunClient": "stager.client.socket",
    "UnixConnection": "stager.client.socket",
    "connect": "stager.client.socket",
    "connect_or_start": "stager.client.socket",
    "error_of": "stager.client.socket",
    "format_size": "stager.model.units",
}


def __getattr__(name: str) -> Any:
    if name in LATER:
        return getattr(importlib.import_module(LATER[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
