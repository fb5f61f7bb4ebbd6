"""A pool under TLS: hosts and scheduler meet by certificates of their cluster, and nobody else gets in."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.authority import SCHEDULER, Authority
from stager.adapters.dask_pool import security_of
from tests.e2e.hosts_rig import Hosts
from tests.e2e.nodes_rig import made, one_job

pytestmark = pytest.mark.slow


async def reached(address: str, security: Any) -> str:
    """Empty: it let us in."""
    from distributed import Client

    make: Any = Client
    try:
        async with make(address, asynchronous=True, security=security, timeout=3, set_as_default=False):
            return ""
    except OSError as problem:
        return str(problem)


def test_jobs_run_and_whoever_has_no_certificate_of_the_cluster_is_not_let_in(short_dir: Path) -> None:
    state_dir, tls, foreign = short_dir / "s", short_dir / "pool-tls", short_dir / "foreign-tls"
    state_dir.mkdir(mode=0o700)
    for name, root, role, leaf in (
        ("ours", state_dir / "cluster", SCHEDULER, state_dir / "tls"),
        ("theirs", short_dir / "ca", SCHEDULER, foreign),
    ):
        authority = Authority(root)
        authority.make(name)
        authority.issue(role, leaf)
    Authority(state_dir / "cluster").issue("pool/alice", tls)
    hosts = Hosts(short_dir, {"h1": 1}, tls=tls)
    try:
        rig, client = hosts.rig, hosts.client()
        run = rig.submit(client, one_job(rig, "a"))
        assert rig.finished(client, run) == "succeeded" and made(rig, "a") == b"one\none\n"
        assert asyncio.run(reached(hosts.pool.address, security_of(tls))) == "", "this test would find everybody kept out"
        assert "certificate" in asyncio.run(reached(hosts.pool.address, security_of(foreign)))
        assert asyncio.run(reached(hosts.pool.address.replace("tls:", "tcp:"), None))
    finally:
        hosts.end()
