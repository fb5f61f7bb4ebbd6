"""An I/O node's truth: what it holds, for whom, and that it never holds more than it can.

May know: the model. One rule: used + reserved <= capacity at every instant; what does not fit is refused, and whoever asked for it is
wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stager.model.record import StateEntry
from stager.model.topology import DEFAULT_DELETE_LATENCY_S


class Full(Exception):
    """A reservation that does not fit: the Machine promised more than there is."""


class SandboxFull(Exception):
    """Outputs outgrew what was reserved for them, and the space that all sandboxes share is taken. `fitted_bytes` of them were written."""

    def __init__(self, fitted_bytes: int) -> None:
        super().__init__(fitted_bytes)
        self.fitted_bytes = fitted_bytes


class Replica(StateEntry):
    content: str
    size_bytes: int
    quarantined: bool = False
    leases: int = 0
    is_part: bool = False


@dataclass(slots=True)
class SimNode:
    """`up`: the process lives. `heard`: the scheduler can reach it. `absent`: it has not joined yet, or has left for good. `wiped`: how
    often it lost its disk. `apart`: as in `NodeReported`.

    Reservations are by the id of the transfer or attempt. `sandbox_bytes`: what attempts may write `beyond` their reservations, all
    together; None: nobody watches.
    """

    id: str
    capacity_bytes: int
    can_link: bool = True
    overhead_s: float = 0.0
    sandbox_bytes: int | None = None
    overhead_file_s: float = 0.0
    starts: int = 1
    up: bool = True
    heard: bool = True
    absent: bool = False
    apart: bool = False
    copy_latency_s: float = 0.0
    delete_latency_s: float = DEFAULT_DELETE_LATENCY_S
    wiped: int = 0
    used_bytes: int = 0
    reserved_bytes: int = 0
    replicas: dict[tuple[str, str], Replica] = field(default_factory=dict)
    reservations: dict[str, int] = field(default_factory=dict)
    beyond: dict[str, int] = field(default_factory=dict)

    @property
    def incarnation(self) -> str:
        return f"{self.id}-{self.starts}"

    @property
    def answers(self) -> bool:
        return self.up and self.heard

    def reserve(self, owner: str, size_bytes: int) -> None:
        """Sets this owner's reservation, growing or shrinking it."""
        grown = size_bytes - self.reservations.get(owner, 0)
        if grown > 0 and self.used_bytes + self.reserved_bytes + grown > self.capacity_bytes:
            held = f"{self.used_bytes} used + {self.reserved_bytes} reserved of {self.capacity_bytes}"
            raise Full(f"node {self.id}: {owner} wants {grown} bytes more, {held}")
        self.reservations[owner] = size_bytes
        self.reserved_bytes += grown

    def write(self, owner: str, size_bytes: int) -> None:
        """This owner's outputs stand in its sandbox: in what is reserved for them, and beyond it in what all sandboxes share."""
        if self.sandbox_bytes is None:
            return
        reserved, others = self.reservations.get(owner, 0), sum(self.beyond.values()) - self.beyond.get(owner, 0)
        if size_bytes - reserved > self.sandbox_bytes - others:
            raise SandboxFull(reserved + self.sandbox_bytes - others)
        self.beyond[owner] = max(0, size_bytes - reserved)

    def free(self, owner: str) -> None:
        self.reserved_bytes -= self.reservations.pop(owner, 0)
        self.beyond.pop(owner, None)

    def commit(self, file: str, generation: str, content: str, size_bytes: int, is_part: bool = False) -> None:
        """The owner's reservation must have been freed or shrunk before: bytes are counted once."""
        if (file, generation) in self.replicas:
            return
        self.replicas[file, generation] = Replica(content, size_bytes, is_part=is_part)
        self.used_bytes += size_bytes

    def drop(self, file: str, generation: str) -> bool:
        replica = self.replicas.pop((file, generation), None)
        if replica is None:
            return False
        self.used_bytes -= replica.size_bytes
        return True

    def wipe(self) -> None:
        """Its disk is gone."""
        self.replicas.clear()
        self.used_bytes = 0
        self.wiped += 1

    def sound(self, file: str, generation: str) -> Replica | None:
        """A replica that may be read."""
        replica = self.replicas.get((file, generation))
        return None if replica is None or replica.quarantined else replica


def known_nodes(nodes: Mapping[str, SimNode]) -> list[SimNode]:
    """Those that have joined and have not left."""
    return [node for node in nodes.values() if not node.absent]
