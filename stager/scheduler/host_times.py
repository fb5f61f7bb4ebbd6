"""Which compute hosts stood beside which node in time, and how large they were, as far as attempts could be started on them.

May know: events. One rule: it only retells what is recorded.
"""

from __future__ import annotations

from stager.model.topology import Host
from stager.scheduler import events as ev
from stager.scheduler.steps import Steps


class HostTimes:
    """`by_host`: (node, size) while it is open, None while it is not."""

    def __init__(self) -> None:
        self.by_host: dict[str, Steps] = {}
        self._incarnations: dict[str, str] = {}
        # By host that drains, its incarnation: another one is open again.
        self._drains: dict[str, str] = {}

    def heard(self, event: ev.HostReported | ev.HostLost | ev.HostDraining | ev.HostGone) -> None:
        if type(event) is not ev.HostReported:
            if type(event) is ev.HostDraining:
                self._drains[event.host] = self._incarnations.get(event.host, "")
            elif type(event) is ev.HostGone:
                self._drains.pop(event.host, None)
            self._set(event.host, event.at, None)
            return
        self._incarnations[event.host] = event.incarnation
        if self._drains.get(event.host) == event.incarnation:
            return
        self._drains.pop(event.host, None)
        self._set(event.host, event.at, (event.node, Host(event.host, event.cores, event.memory_bytes, event.scratch_bytes)))

    def _set(self, host: str, at: float, open_at: tuple[str, Host] | None) -> None:
        self.by_host.setdefault(host, Steps()).set(at, open_at)
