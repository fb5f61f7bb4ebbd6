"""A compute host's truth: how large it is, whether the scheduler can reach it, and what waits until it can.

May know: the model, commands and events. One rule: a host that is not heard works on; whatever it would say, or is told, waits.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from stager.model.topology import Host
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev

Word = ev.AttemptWaits | ev.AttemptEnded


@dataclass(slots=True, eq=False)
class SimHost:
    """`heard`: the scheduler can reach it. `gone`: it does not come back; what is told of its attempts then is what their nodes know.
    `unheard`: by the node of its attempt. `starts`, `grants` and `kills` came while it was not heard.
    """

    size: Host
    node: str
    pool: str = ""
    tenant: str = ""
    lives: int = 1
    heard: bool = True
    drains: bool = False
    gone: bool = False
    unheard: list[tuple[str, Word]] = field(default_factory=list)
    starts: dict[str, cmd.StartAttempt] = field(default_factory=dict)
    grants: list[cmd.GrantSpace] = field(default_factory=list)
    kills: list[str] = field(default_factory=list)

    @property
    def id(self) -> str:
        return self.size.id

    def reported(self, at: float) -> ev.HostReported:
        size = self.size
        return ev.HostReported(
            at=at,
            host=size.id,
            node=self.node,
            pool=self.pool,
            cores=size.cores,
            memory_bytes=size.memory_bytes,
            scratch_bytes=size.scratch_bytes,
            incarnation=f"{size.id}-{self.lives}",
            tenant=self.tenant,
        )

    def keeps(self, node: str, event: Word) -> bool:
        """Whether this word of an attempt is not heard now: it is kept until the host can be heard, or nobody is there to say it."""
        if not self.heard:
            self.unheard.append((node, event))
        return not self.heard or (self.gone and type(event) is ev.AttemptWaits)

    def forget(self, node: str) -> None:
        """The node lost its disk: nothing that was committed there is any more."""
        ends = [(where, event) for where, event in self.unheard if type(event) is ev.AttemptEnded]
        self.unheard = [(where, as_lost(event) if where == node else event) for where, event in ends]


def is_to_begin(hosts: Iterable[SimHost], attempt: str) -> bool:
    """On a host that cannot be reached."""
    return any(attempt in host.starts for host in hosts)


def as_lost(event: ev.AttemptEnded) -> ev.AttemptEnded:
    return replace(event, outcome=ev.Outcome.LOST, fault=None, exit_code=None, outputs=(), fitted_bytes=None)
