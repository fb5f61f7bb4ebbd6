"""The direct reads of a job at an origin in the virtual world: over the link that all share, at the pace that one reader gets.

May know: links, origins. One rule: the origin is asked before and after; what it would not give as planned is a fault of the attempt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from stager.model.errors import CANNOT_MOUNT_CODE, ErrorClass, Fault
from stager.planning.plan import Access, FilePlan
from stager.scheduler import commands as cmd
from stager.sim.faults import ORIGIN_FAULTS, Faults
from stager.sim.links import Links
from stager.sim.node import SimNode
from stager.sim.origin import SimOrigin

# By lfn and job type: (bytes over the WAN, seconds alone).
Reads = Mapping[str, Mapping[str, tuple[int, float]]]
OriginOf = Callable[[str, str], SimOrigin]


def reads_of(files: tuple[FilePlan, ...]) -> dict[str, dict[str, tuple[int, float]]]:
    return {
        file.lfn: {read.job_type: (read.size_bytes, read.read_s) for read in file.direct_access.reads}
        for file in files
        if file.direct_access is not None
    }


@dataclass(slots=True)
class Reading:
    """All that an attempt reads at one origin, with nobody else there in so many seconds."""

    name: str
    origin: SimOrigin
    size_bytes: int = 0
    read_s: float = 0.0


def direct_inputs(command: cmd.StartAttempt) -> list[cmd.StagedInput]:
    return [entry for entry in command.inputs if entry.access is Access.DIRECT]


def readings_of(command: cmd.StartAttempt, job_type: str, reads: Reads, origin_of: OriginOf) -> list[Reading]:
    """One for each origin. Of what nobody predicted, all is read, as fast as the link is."""
    found: dict[str, Reading] = {}
    for entry in direct_inputs(command):
        reading = found.setdefault(entry.origin, Reading(entry.origin, origin_of(command.run, entry.origin)))
        size_bytes, read_s = reads.get(entry.lfn, {}).get(job_type, (entry.size_bytes, 0.0))
        reading.size_bytes += size_bytes
        reading.read_s += read_s
    return list(found.values())


def fault_of_direct(command: cmd.StartAttempt, origin_of: OriginOf) -> Fault | None:
    """Before the job and after it: what its inputs' origins say."""
    for entry in direct_inputs(command):
        origin = origin_of(command.run, entry.origin)
        if origin.fault_code:
            fault = ORIGIN_FAULTS[origin.fault_code]
            # A node that could not ask says that the origin is away, whatever became of its question.
            return fault if fault.error_class is ErrorClass.DENIED else ORIGIN_FAULTS["origin_unreachable"]
        stored = origin.files.get(entry.origin_path)
        if stored is None or (entry.token and stored.token != entry.token):
            return Fault(ErrorClass.REFUSED, "source_changed", f"{entry.lfn}: {entry.origin_path} changed at its origin", entry.lfn)
    return None


def mount_fault(command: cmd.StartAttempt, faults: Faults, now: float) -> Fault | None:
    """The origin answers, and its mount cannot be had."""
    direct = direct_inputs(command)
    if not direct or not faults.strikes(now, faults.transfer_share, "mount", command.attempt):
        return None
    return Fault(ErrorClass.REFUSED, CANNOT_MOUNT_CODE, f"{direct[0].origin} cannot be mounted here", direct[0].origin)


class ReaderLinks:
    """One link for each reader at a time: what it gets by itself. Their number is that of readers at once, not of all that ever read."""

    def __init__(self, links: Links) -> None:
        self._links = links
        self._free: dict[str, list[str]] = {}
        self._made: dict[str, int] = {}

    def take(self, now: float, node: SimNode, reading: Reading) -> tuple[str, ...]:
        """The links that its bytes pass."""
        url = reading.origin.url
        way: tuple[str, ...] = (f"fetch:{url}", f"line:fetch:{url}:{node.id}", f"in:{node.id}")
        if reading.read_s <= 0 or not reading.size_bytes:
            return way
        free = self._free.setdefault(url, [])
        if not free:
            self._made[url] = self._made.get(url, 0) + 1
            free.append(f"reader:{self._made[url]}:{url}")
        own = free.pop()
        self._links.set_rate(now, own, reading.size_bytes / reading.read_s)
        return (*way, own)

    def give_back(self, path: tuple[str, ...]) -> None:
        own = path[-1]
        if own.startswith("reader:"):
            self._free[own.split(":", 2)[2]].append(own)
