"""Compute hosts of a scheduler, listed, drained and forgotten by a person's word.

May know: the Machine's state (read only), the inbox. One rule: an answer that something was taken comes after the journal holds it, and
what is refused is refused by the same look at the state that would have let it in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from stager import wire
from stager.model.errors import InvalidInput, Refused
from stager.model.tenants import tenant_of_host
from stager.ports import Put
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.node_entry import HostEntry
from stager.scheduler.slots import host_of
from stager.scheduler.state import State
from stager.service.commands import Commits, Told
from stager.service.host_book import book_of, write_hosts
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns

HOST_EVENTS = (ev.HostReported, ev.HostLost, ev.HostDraining, ev.HostGone)


class HostService:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, commits: Commits, runs: KnownRuns, put: Put) -> None:
        self.inquiry, self.commits, self.runs, self.put = inquiry, commits, runs, put

    async def listed(self, only: str | None = None) -> list[wire.HostView]:
        """`only`: those that jobs of this tenant may run on."""
        return await self.inquiry.ask(lambda: views_of(self.runs.state, only))

    async def drain(self, host: str) -> wire.HostView:
        """Says the same again where nothing changes. Raises InvalidInput where there is no such host."""
        await self.commits.taken(lambda told: self._drain(host, told))
        return await self.inquiry.ask(lambda: view_of(self.runs.state, self._known(host)))

    async def forget(self, host: str, request: wire.HostForget, by: str) -> wire.HostView:
        """How it was. Its attempts are lost once nothing of them can be committed any more. Raises InvalidInput where there is no such
        host, Refused where it answers.
        """
        why = f"{request.why or 'forgotten'} (by {by})"
        return await self.commits.taken(lambda told: self._forget(host, why, told, force=request.force))

    def _drain(self, name: str, told: Told) -> None:
        if self._known(name).drains:
            told()
        else:
            self.put(ev.HostDraining(at=0.0, cause="request", host=name), told)

    def _forget(self, name: str, why: str, told: Told, *, force: bool) -> wire.HostView:
        host = self._known(name)
        if host.answers and not force:
            text = f"host {name} answers, and its jobs would be given up; end its `stager worker` first, or say --force"
            raise Refused(text, code="host_answers", subject=name)
        self.put(ev.HostGone(at=0.0, cause="request", host=name, why=why), told)
        return view_of(self.runs.state, host)

    def _known(self, name: str) -> HostEntry:
        host = host_of(self.runs.state, name)
        if host is None:
            names = ", ".join(sorted(self.runs.state.hosts))
            text = f"no host {name!r} has reported here" + (f"; there are {names}" if names else "; `stager worker` starts one")
            raise InvalidInput(text, code="not_found", subject=name)
        return host


def views_of(state: State, only: str | None = None) -> list[wire.HostView]:
    hosts = [host for node in state.nodes.values() for host in node.hosts.values()]
    if only is not None:
        tenant = state.tenants.get(only)
        pool = only if tenant is not None and tenant.share.has_pool else ""
        hosts = [host for host in hosts if host.tenant == pool]
    return [view_of(state, host) for host in sorted(hosts, key=lambda host: host.id)]


def view_of(state: State, host: HostEntry) -> wire.HostView:
    attempts = Counter(attempt.host for attempt in state.attempts.values())
    return wire.HostView(
        host=host.id,
        node=host.node,
        pool=host.pool,
        state="away" if not host.answers else "draining" if host.drains else "open",
        cores=host.size.cores,
        cores_used=host.cores_used,
        memory_bytes=host.size.memory_bytes,
        memory_used_bytes=host.memory_used_bytes,
        scratch_bytes=host.size.scratch_bytes,
        scratch_used_bytes=host.scratch_used_bytes,
        attempts=attempts[host.id],
    )


class HostWatch:
    """On the driving thread. `directory`: where plans find the hosts that there are."""

    def __init__(self, runs: KnownRuns, directory: Path) -> None:
        self.runs, self.directory = runs, directory

    def saw(self, events: Sequence[ev.Event], commands: Sequence[cmd.Command]) -> None:
        """Of each batch, live only."""
        for tenant in sorted({tenant_of_host(event.host) for event in events if isinstance(event, HOST_EVENTS)}):
            nodes = self.runs.state.nodes.values()
            hosts = {node.id: [host.size for host in node.hosts.values() if host.tenant == tenant and not host.drains] for node in nodes}
            self.directory.mkdir(mode=0o700, exist_ok=True)
            write_hosts(book_of(self.directory, tenant), hosts)
