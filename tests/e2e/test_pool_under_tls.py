"""A pool under TLS: hosts and scheduler meet by certificates of their cluster, and nobody else gets in."""

from __future__ import annotations

import asyncio
import socket
import ssl
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.authority import SCHEDULER, Authority
from stager.adapters.cluster_tls import side
from stager.adapters.dask_member import files_of, security_of
from tests.e2e.hosts_rig import Hosts
from tests.e2e.nodes_rig import made, one_job
from tests.testbed.pool import Pool
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.slow


async def reached(address: str, security: Any) -> str:
    """Empty: it let us in."""
    from distributed import Client

    make: Any = Client
    try:
        async with make(address, asynchronous=True, security=security, timeout=3, set_as_default=False):
            return ""
    except OSError as problem:
        return str(problem) or repr(problem)


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


def test_a_pool_lets_in_its_own_members_and_the_scheduler_and_no_other_host_of_the_cluster(short_dir: Path) -> None:
    """Whoever is let in runs programs as the pool's user. A member talks to no other pool either: what that says would be unpickled."""
    authority, dirs = Authority(short_dir / "cluster"), {}
    authority.make("c1")
    for number, role in enumerate(("pool/alice", "pool/bob", "pool/alice2", "node/n1", SCHEDULER)):
        dirs[role] = short_dir / f"tls{number}"
        authority.issue(role, dirs[role])
    pools = {name: Pool(short_dir / name, tls=dirs[f"pool/{name}"]) for name in ("alice", "bob")}
    try:
        for pool in pools.values():
            pool.start()
        wait_until(lambda: asyncio.run(reached(pools["alice"].address, security_of(dirs["pool/alice"]))) == "", "alice's pool")
        assert asyncio.run(reached(pools["alice"].address, security_of(dirs[SCHEDULER]))) == ""
        for role in ("pool/bob", "pool/alice2", "node/n1"):
            # As one who does not care whom it talks to.
            assert asyncio.run(reached(pools["alice"].address, as_any(dirs[role]))), role
        wait_until(lambda: asyncio.run(reached(pools["bob"].address, as_any(dirs["pool/bob"]))) == "", "bob's pool")
        assert asyncio.run(reached(pools["bob"].address, security_of(dirs["pool/alice"]))), "alice's host was made to listen to bob"
        intruder = pools["alice"].intruding("evil", pools["bob"].tls)
        assert wait_until(lambda: "no member of this pool" in pools["alice"].log_text(), "the refusal of bob's worker")
        assert not intruder.server.gone(), "it tries again all the time"
        assert "evil" not in str(asyncio.run(workers_of(pools["alice"].address, security_of(dirs["pool/alice"]))))
    finally:
        for pool in pools.values():
            pool.end()


def as_any(tls: Path) -> Any:
    """A member that compares nothing but authorities, as Dask does by itself."""
    from distributed.security import Security

    make: Any = Security
    return make(require_encryption=True, **files_of(tls))


async def workers_of(address: str, security: Any) -> Any:
    from distributed import Client

    make: Any = Client
    async with make(address, asynchronous=True, security=security, timeout=5, set_as_default=False) as client:
        return (await client.scheduler.identity(n_workers=-1))["workers"]


def test_a_pool_that_lives_shows_the_certificate_that_was_renewed(short_dir: Path) -> None:
    """A certificate is good for 90 days, and a pool may live for longer."""
    authority, tls = Authority(short_dir / "cluster"), short_dir / "tls"
    authority.make("c1")
    authority.issue("pool/alice", tls)
    pool = Pool(short_dir / "alice", tls=tls)
    try:
        pool.start()
        before = wait_until(lambda: shown_at(pool.address, tls), "the pool")
        assert before == shown_at(pool.address, tls)
        authority.issue("pool/alice", tls)
        assert shown_at(pool.address, tls) not in ("", before)
        assert asyncio.run(reached(pool.address, security_of(tls))) == ""
    finally:
        pool.end()


def shown_at(address: str, tls: Path) -> str:
    """The serial number of its certificate; empty: it does not answer."""
    host, _, port = address.partition("://")[2].rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 5) as plain, side(tls, ssl.PROTOCOL_TLS_CLIENT).wrap_socket(plain) as secured:
            return str((secured.getpeercert() or {})["serialNumber"])
    except OSError:
        return ""
