"""The Machine's memory of one I/O node, and of a compute host.

May know: the model's values. One rule: the same as for all of the state: only accounting and the apply modules change it.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from stager.model.record import StateEntry
from stager.model.topology import Host
from stager.scheduler.lanes import Lanes


class HostEntry(StateEntry):
    """`size` is all that it has; `used` is what attempts have of it. `tenant` as in `HostReported`. `is_away`: it has not
    answered since `lost_at`, for so long that its jobs go elsewhere.
    """

    id: str
    node: str
    size: Host
    pool: str = ""
    incarnation: str = ""
    answers: bool = True
    drains: bool = False
    is_away: bool = False
    lost_at: float = 0.0
    cores_used: int = 0  # of attempts that do not wait for space
    memory_used_bytes: int = 0  # of the same attempts
    scratch_used_bytes: int = 0  # reserved by all of its attempts
    tenant: str = ""

    @property
    def is_open(self) -> bool:
        """Whether attempts may be started there."""
        return self.answers and not self.drains


@dataclass(slots=True)
class NodeEntry:
    """One I/O node with its compute hosts. `garbage` are replicas nobody wants that it still holds. present + fetching + promised <=
    capacity, always; `deleting` and `cancelling` are the parts of present and fetching about to be free. `sending`: copies under way
    from it; `idle` are those that may go when there is need of room. `line_bytes`: of what it fetches from origins itself, parts
    included, as much as is not there yet; `line_busy_s`, `line_done_bytes` and `line_since` are its pace (line.py). `calls_startable`: as
    `startable`, of engines' jobs, which take no cores.

    `dirty`: something happened to it since it was found idle (`admission.is_idle`), so it has to be worked. A change of a node by which
    it might go on sets this; only working it takes it back.

    `back_at`: when it, or the scheduler, had last come back. `gone`: why it will not come back. `draining`: it is to leave, and takes
    nothing more; `leaving` are the files that it may have to give away before. `left`: what was under way there when it went.
    `since`: when it came, was lost, began to drain or was given up, whichever was last.

    `apart`: it is on another host than the scheduler, and reaches no directory beside a workflow there.

    `cores`: of its hosts that are open, and what attempts have of those; where nobody has ever reported a host, those of the limits.
    """

    id: str
    capacity_bytes: int = 0
    incarnation: str = ""
    reachable: bool = False
    can_link: bool = True
    present_bytes: int = 0  # copies PRESENT or DELETING, garbage, parts that are here
    fetching_bytes: int = 0  # copies WANTED, FETCHING or CANCELLING, parts that come
    promised_bytes: int = 0  # reserved by its admitted jobs and its attempts
    deleting_bytes: int = 0  # copies DELETING, and garbage
    cancelling_bytes: int = 0  # copies CANCELLING, and parts called off
    spilling_bytes: int = 0  # of transfers that spill from it
    idle_bytes: int = 0  # copies that are idle
    kept_bytes: int = 0  # of these, copies that are there for later runs only
    sending: int = 0  # transfers whose source it is
    hosts: dict[str, HostEntry] = field(default_factory=dict)
    cores: int = 0
    cores_used: int = 0  # of its attempts that do not wait for space; of those on its open hosts, where there are hosts
    memory_used_bytes: int = 0  # of the same attempts, where there are no hosts
    admitted_waiting: int = 0  # its ADMITTED jobs
    waiting_of: dict[str, int] = field(default_factory=dict)  # the same, by tenant; none of them 0
    ready: Lanes = field(default_factory=Lanes)
    startable: Lanes = field(default_factory=Lanes)
    calls_startable: list[tuple[int, str, str]] = field(default_factory=list)
    evictable: list[tuple[int, str, str]] = field(default_factory=list)
    spillable: list[tuple[int, str, str]] = field(default_factory=list)
    movable: list[tuple[int, str, str]] = field(default_factory=list)
    candidates: list[tuple[int, str]] = field(default_factory=list)
    prefetching: dict[str, None] = field(default_factory=dict)  # files whose copy here is FETCHING without a pin
    waiting_attempts: dict[str, None] = field(default_factory=dict)  # exactly those that need bytes
    garbage: dict[tuple[str, str], int] = field(default_factory=dict)
    can_assemble: bool = False
    line_bytes: int = 0  # of transfers on its line, and of parts that come
    line_count: int = 0  # of both
    line_busy_s: float = 0.0  # until `line_since`
    line_done_bytes: int = 0
    line_since: float = 0.0  # when it began to be busy, or something came over it since
    dirty: bool = True  # True wherever it is not idle
    back_at: float = 0.0
    store_id: str = ""
    apart: bool = False
    gone: str = ""  # then it has nothing, and nothing of it is under way
    draining: bool = False
    leaving: list[tuple[int, str]] = field(default_factory=list)
    left: list[str] = field(default_factory=list)
    since: float = 0.0

    def count_waiting(self, tenant: str, more: int) -> None:
        """A job of this tenant was admitted, or is not waiting any more."""
        self.admitted_waiting += more
        left = self.waiting_of.get(tenant, 0) + more
        if left:
            self.waiting_of[tenant] = left
        else:
            del self.waiting_of[tenant]
        self.dirty = True

    @property
    def is_open(self) -> bool:
        """Whether it may be given anything, as soon as it can be reached."""
        return self.incarnation != "" and not self.gone and not self.draining

    @property
    def has_spare(self) -> bool:
        """Whether it could do with more: one job for each core may come while others run, and one more, so that its line is not idle
        between two.
        """
        return self.reachable and self.admitted_waiting <= self.cores and not self.ready.by_lane and self.is_open

    @property
    def why_closed(self) -> str:
        """In words that follow its name."""
        if self.gone:
            return f"is gone ({self.gone})"
        return "drains" if self.draining else "was never heard of"

    @property
    def spare_bytes(self) -> int:
        """What is free, or is held for nobody but later runs."""
        return self.free_bytes + self.kept_bytes

    @property
    def free_bytes(self) -> int:
        return self.capacity_bytes - self.present_bytes - self.fetching_bytes - self.promised_bytes
