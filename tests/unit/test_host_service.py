"""The hosts that a person lists, drains and forgets; and the file from which plans know them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.model.topology import Host, OriginLink
from stager.planning.policy import Limits, Policy, TenantShare
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service.host_book import BOOK, read_hosts
from stager.service.hosts import HostService, HostWatch
from stager.service.live_nodes import gone_with_pool, machine_limits, topology_here
from stager.service.settings import Settings, pool_of, read_settings
from stager.service.state_dir import StateDir

POOL = "tcp://127.0.0.1:8786"


class Runs:
    """Of a Machine that is stepped at once."""

    def __init__(self) -> None:
        self.machine = Machine(Policy(), Limits(cores=0))

    @property
    def state(self) -> Any:
        return self.machine.state

    def put(self, event: Any, told: Callable[[], None] | None = None) -> None:
        self.machine.step(event)
        if told is not None:
            told()

    async def ask(self, question: Callable[[], Any]) -> Any:
        return question()

    async def taken(self, ask: Callable[[Callable[[], None]], Any]) -> Any:
        durable: Future[None] = Future()
        answer = ask(lambda: durable.set_result(None))
        assert durable.done(), "nobody said that it is in the journal"
        return answer


def with_hosts(*hosts: tuple[str, int]) -> tuple[Runs, HostService]:
    runs = Runs()
    for name, cores in hosts:
        runs.put(ev.HostReported(at=0.0, host=name, node="node0", cores=cores, memory_bytes=10**9, incarnation="i1"))
    return runs, HostService(runs, runs, runs, runs.put)  # type: ignore[arg-type]


def test_hosts_are_listed_with_what_they_have() -> None:
    runs, hosts = with_hosts(("h2", 4), ("h1", 1))
    runs.put(ev.HostLost(at=0.0, host="h2"))
    seen = asyncio.run(hosts.listed())
    assert [(host.host, host.state, host.cores, host.cores_used, host.attempts) for host in seen] == [
        ("h1", "open", 1, 0, 0),
        ("h2", "away", 4, 0, 0),
    ]
    assert seen[0].memory_bytes == 10**9 and seen[0].scratch_bytes is None


def test_one_that_drains_takes_nothing_until_it_is_another_incarnation() -> None:
    runs, hosts = with_hosts(("h1", 2))
    for _ in range(2):
        assert asyncio.run(hosts.drain("h1")).state == "draining"
    assert runs.state.nodes["node0"].cores == 0
    runs.put(ev.HostReported(at=0.0, host="h1", node="node0", cores=2, incarnation="i2"))
    assert asyncio.run(hosts.listed())[0].state == "open" and runs.state.nodes["node0"].cores == 2


def test_one_that_answers_is_forgotten_only_by_force() -> None:
    runs, hosts = with_hosts(("h1", 2), ("h2", 2))
    with pytest.raises(Refused, match="host h1 answers") as refused:
        asyncio.run(hosts.forget("h1", wire.HostForget(), "the owner"))
    assert refused.value.code == "host_answers" and "h1" in runs.state.hosts
    asyncio.run(hosts.forget("h1", wire.HostForget(why="on fire", force=True), "the owner"))
    runs.put(ev.HostLost(at=0.0, host="h2"))
    asyncio.run(hosts.forget("h2", wire.HostForget(), "the owner"))
    assert not runs.state.hosts and runs.state.host_gone[1] == "forgotten (by the owner)"


@pytest.mark.parametrize("hosts, hint", [((), "`stager worker` starts one"), ((("h1", 1),), "there are h1")])
def test_one_that_nobody_heard_of_is_named(hosts: tuple[tuple[str, int], ...], hint: str) -> None:
    _, service = with_hosts(*hosts)
    with pytest.raises(InvalidInput, match=f"no host 'x' has reported here; {hint}"):
        asyncio.run(service.drain("x"))


def test_plans_are_made_for_the_hosts_that_were_there_last(tmp_path: Path) -> None:
    settings, links = Settings(tmp_path, 1000, 8, pool=POOL), (OriginLink("lab"),)
    assert not topology_here(settings, links).nodes[0].hosts, "nobody has heard of any"
    runs, _ = with_hosts(("h1", 1), ("h2", 2))
    runs.put(ev.HostDraining(at=0.0, host="h2"))
    book = StateDir(tmp_path).hosts / BOOK
    book.parent.mkdir()
    HostWatch(runs, book.parent).saw([ev.Woken(at=0.0)], [])  # type: ignore[arg-type]
    assert not book.exists()
    HostWatch(runs, book.parent).saw([ev.HostDraining(at=0.0, host="h2")], [])  # type: ignore[arg-type]
    node = topology_here(settings, links).nodes[0]
    assert (node.id, node.capacity_bytes, node.hosts) == ("node0", 1000, (Host("h1", 1, 10**9),))
    assert topology_here(Settings(tmp_path, 1000, 8), links).nodes[0].cores == 8, "without a pool"
    book.write_text("cut sho")
    assert read_hosts(book) == {}


def test_with_a_pool_nothing_starts_here(tmp_path: Path) -> None:
    assert machine_limits(Settings(tmp_path, 1000, 8, pool=POOL)).cores == 0
    assert machine_limits(Settings(tmp_path, 1000, 8)).cores == 8


def test_a_pool_is_named_by_its_address_and_plain_text_stays_on_this_machine(tmp_path: Path) -> None:
    env = {"HOME": str(tmp_path), "STAGER_CAPACITY": "1 GB"}
    assert read_settings(environ=env).pool == "" == pool_of("")
    settings = read_settings(environ=env | {"STAGER_POOL": POOL})
    assert settings.pool == POOL and settings.scheduler_arguments()[-2:] == ["--pool", POOL]
    assert pool_of("tls://10.0.0.1:8786") == "tls://10.0.0.1:8786"
    with pytest.raises(Refused, match="in plain text"):
        pool_of("tcp://10.0.0.1:8786")
    for wrong in ("127.0.0.1:8786", "http://127.0.0.1:8786", "tcp://127.0.0.1"):
        with pytest.raises(InvalidInput, match="no address of a pool"):
            pool_of(wrong)


def test_a_tenant_with_a_pool_sees_its_hosts_and_plans_with_them_alone(tmp_path: Path) -> None:
    runs, service = with_hosts(("h1", 1))
    runs.put(ev.TenantsSet(at=0.0, shares={"alice": TenantShare(has_pool=True)}))
    for tenant in ("alice", "bob"):
        runs.put(ev.HostReported(at=0.0, host=f"{tenant}:h1", node="node0", cores=3, tenant=tenant))
        HostWatch(runs, tmp_path / "hosts").saw([ev.HostDraining(at=0.0, host=f"{tenant}:h1")], [])  # type: ignore[arg-type]

    def seen(only: str | None) -> list[str]:
        return [host.host for host in asyncio.run(service.listed(only))]

    assert seen("alice") == ["alice:h1"] and seen("carol") == ["h1"] and seen(None) == ["alice:h1", "bob:h1", "h1"]
    settings = Settings(tmp_path, 1000, 8, pool="10.0.0.1:8787", hosts_of="alice")
    assert topology_here(settings, (OriginLink("lab"),)).nodes[0].hosts == (Host("alice:h1", 3),)
    assert [event.host for event in gone_with_pool(["here", "h1", "alice:h1"])] == ["h1"]
