"""What compute hosts keep for later jobs, images and environments of packages, collected when somebody asks for room.

May know: the Machine's state (read only), the pools. One rule: a host that does not answer is named, and nothing is said of what it keeps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import msgspec

from stager import wire
from stager.adapters.executor_engine import Executors
from stager.adapters.host_words import Asked
from stager.model.errors import StagerError
from stager.model.tenants import tenant_of_host
from stager.model.topology import HERE
from stager.scheduler.slots import host_of
from stager.scheduler.state import State
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.service.needed_inputs import needed_of
from stager.worker.collecting import Collected, Needed

# A scheduler that has just begun does not know yet which hosts are there.
WAITED_S, AGAIN_AFTER_S = 10.0, 0.5


class MadeOnHosts:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, executors: Executors) -> None:
        self.inquiry, self.runs, self.executors = inquiry, runs, executors

    async def collect(self, *, cache: bool, dry_run: bool) -> list[wire.GcOnHost]:
        """On all that the scheduler knows. `cache` False: only what is damaged."""
        needed = await self.inquiry.ask(lambda: needed_on_hosts(self.runs.state))
        asked = (self._on(host, its, cache=cache, dry_run=dry_run) for host, its in needed.items())
        return list(await asyncio.gather(*asked))

    async def _on(self, host: str, needed: Needed, *, cache: bool, dry_run: bool) -> wire.GcOnHost:
        said = await self._asked(host, [sorted(needed.images), sorted(needed.environments), int(cache), int(dry_run)])
        return wire.GcOnHost(host=host, **msgspec.to_builtins(said))

    async def _asked(self, host: str, args: Sequence[object]) -> Collected:
        """Again until it is there, or is away for good as far as anybody can tell."""
        loop = asyncio.get_running_loop()
        until = loop.time() + WAITED_S
        while True:
            executor = self.executors.beside(host)
            if executor is None:
                return Collected(problem="it is of no pool that this scheduler has")
            problem = "it is away"
            if await self.inquiry.ask(lambda: answers(self.runs.state, host)):
                try:
                    return msgspec.convert(await executor.worker.pool.ask(host, Asked.COLLECT, *args), Collected)
                except (StagerError, ValueError) as told:
                    problem = str(told)
            if loop.time() > until:
                return Collected(problem=problem)
            await asyncio.sleep(AGAIN_AFTER_S)


def answers(state: State, host: str) -> bool:
    entry = host_of(state, host)
    return entry is not None and entry.answers


def needed_on_hosts(state: State) -> Mapping[str, Needed]:
    """Of each host but this machine. What runs of another pool need is no business of its user."""
    hosts = sorted(host for host in state.hosts if host != HERE)
    by_tenant = {tenant: needed_of(state, tenant) for tenant in {tenant_of_host(host) for host in hosts}}
    return {host: by_tenant[tenant_of_host(host)] for host in hosts}
