"""Contexts that live longer than a certificate is good: connections show the one that is on the disk then, and never half of one."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.authority import Authority
from stager.adapters.cluster_tls import CERTIFICATE, side
from stager.adapters.dask_member import security_of
from stager.service import cluster_server
from stager.service.cluster_server import keep_renewed, listening_context


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "cluster")
    made.make("c1")
    return made


def met(client: ssl.SSLContext, server: ssl.SSLContext) -> tuple[str, str]:
    """The serial numbers of what the server and the client have shown."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = client.wrap_bio(to_client, to_server), server.wrap_bio(to_server, to_client, server_side=True)
    for _ in range(2):
        for each in sides:
            try:
                each.do_handshake()
            except ssl.SSLWantReadError:
                continue
    said = [each.getpeercert() for each in sides]
    assert said[0] and said[1], "they did not shake hands"
    return str(said[0]["serialNumber"]), str(said[1]["serialNumber"])


def contexts_of(directory: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """Of one that calls, and of one that is called."""
    security: Any = security_of(directory)
    return security.get_connection_args("worker")["ssl_context"], security.get_listen_args("worker")["ssl_context"]


def test_in_a_pool_a_renewed_certificate_counts_from_the_next_connection_on(authority: Authority, tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    for directory in (ours, theirs):
        authority.issue("pool/p", directory)
    calls, is_called = contexts_of(ours)
    other_calls, other_is_called = contexts_of(theirs)
    before = met(calls, other_is_called)[1], met(other_calls, is_called)[0]
    assert before[0] == before[1]
    authority.issue("pool/p", ours)
    after = met(calls, other_is_called)[1], met(other_calls, is_called)[0]
    assert after[0] == after[1] != before[0]
    # As it is half replaced: what was good stays in force.
    (ours / CERTIFICATE).write_bytes((theirs / CERTIFICATE).read_bytes())
    assert (met(calls, other_is_called)[1], met(other_calls, is_called)[0]) == after
    (ours / CERTIFICATE).write_text("nothing")
    assert (met(calls, other_is_called)[1], met(other_calls, is_called)[0]) == after


def test_the_port_for_hosts_shows_a_renewed_certificate_and_the_one_before_while_it_is_half_there(
    authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_server, "RENEWAL_POLL_S", 0.01)
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    authority.issue("scheduler", ours)
    authority.issue("node/a", theirs)
    context, calls = listening_context(ours), side(theirs, ssl.PROTOCOL_TLS_CLIENT)
    before = met(calls, context)[0]

    async def timeline() -> None:
        renewing = asyncio.create_task(keep_renewed(context, ours))
        good = (ours / CERTIFICATE).read_bytes()
        (ours / CERTIFICATE).write_bytes((theirs / CERTIFICATE).read_bytes())
        await asyncio.wait([renewing], timeout=0.2)
        assert met(calls, context)[0] == before
        (ours / CERTIFICATE).write_bytes(good)
        authority.issue("scheduler", ours)
        async with asyncio.timeout(10):
            while met(calls, context)[0] == before:
                await asyncio.sleep(0.01)
        renewing.cancel()

    asyncio.run(timeline())
