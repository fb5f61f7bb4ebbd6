"""The HTTP clients that wait are those that await, written once: scripts/sync_clients.py makes one of the other."""

from __future__ import annotations

import os

import pytest

from scripts import sync_clients


@pytest.mark.parametrize(("source", "name"), sync_clients.SOURCES.items())
def test_clients_that_wait_are_written_from_those_that_await(source: str, name: str) -> None:
    """STAGER_REWRITE=1 writes them anew."""
    path = sync_clients.CLIENTS / name
    if os.environ.get("STAGER_REWRITE") == "1":
        path.write_text(sync_clients.written(source))
    assert path.read_text() == sync_clients.written(source)


def test_what_awaits_becomes_what_waits() -> None:
    text = "        return (await self.send(call(a, b()))).run\n        return await x(await y())\n        return f((await z()))\n"
    waits = "        return self.send(call(a, b())).run\n        return x(y())\n        return f((z()))\n"
    assert sync_clients.without_await(text) == waits
