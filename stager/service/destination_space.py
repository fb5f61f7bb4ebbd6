"""Whether the finals of a run fit where they go, by what its plan knows of their sizes.

May know: the plan, what probes of origins said. One rule: destinations that share a file system share its room, whatever their origins are
called.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

from stager.model.units import format_size
from stager.model.workflow import Origin, Workflow
from stager.planning.plan import Basis, FilePlan, Plan
from stager.ports import Probe

# (origin, directory) -> what a probe of it said; (origin, path).
Probes = Mapping[tuple[str, str], Probe]
Paths = Collection[tuple[str, str]]


@dataclass(slots=True)
class Disk:
    """`known_bytes` are declared or measured, `guessed_bytes` are not."""

    free_bytes: int
    urls: dict[str, None] = field(default_factory=dict)
    known_bytes: int = 0
    guessed_bytes: int = 0

    @property
    def is_short(self) -> bool:
        return self.known_bytes > self.free_bytes

    @property
    def may_be_short(self) -> bool:
        return self.known_bytes + self.guessed_bytes > self.free_bytes

    @property
    def message(self) -> str:
        have = f"{' and '.join(self.urls)} {'share' if len(self.urls) > 1 else 'has'} {format_size(self.free_bytes)} free"
        if self.is_short:
            return f"{have}, the finals need {format_size(self.known_bytes)}: make room or choose another destination"
        total = format_size(self.known_bytes + self.guessed_bytes)
        return f"{have}, the finals may need {total}, of which {format_size(self.guessed_bytes)} are a guess: say their `size:`"


def disks_of(workflow: Workflow, plan: Plan | None, probes: Probes, there: Paths) -> list[Disk]:
    """Those that finals go to and whose room is known. A file that is `there` already takes no more of it. Without a plan only declared
    sizes are known.
    """
    planned = {file.lfn: file for file in plan.files} if plan is not None else {}
    first = {origin: probe for (origin, _), probe in reversed(list(probes.items()))}
    disks: dict[tuple[str, str], Disk] = {}
    for lfn, file in workflow.files.items():
        if file.destination is None:
            continue
        location = file.destination.location
        probe = probes.get((location.origin, location.path.rpartition("/")[0]), first.get(location.origin))
        if probe is None or probe.free_bytes is None:
            continue
        origin = workflow.origins[location.origin]
        disk = disks.setdefault((host_of(origin), probe.file_system or origin.name), Disk(probe.free_bytes))
        disk.free_bytes = min(disk.free_bytes, probe.free_bytes)
        disk.urls[origin.url] = None
        if (location.origin, location.path) not in there:
            size_bytes, is_guess = expected(planned.get(lfn), file.size_bytes)
            disk.known_bytes += 0 if is_guess else size_bytes
            disk.guessed_bytes += size_bytes if is_guess else 0
    return list(disks.values())


def expected(planned: FilePlan | None, declared_bytes: int | None) -> tuple[int, bool]:
    """(its size, whether that is a guess)."""
    if planned is None:
        return declared_bytes or 0, False
    likely_bytes = planned.size_bytes if planned.likely_bytes is None else planned.likely_bytes
    return likely_bytes, planned.size_basis is Basis.DEFAULT


def host_of(origin: Origin) -> str:
    """Empty: this one."""
    url = urlsplit(origin.url)
    return "" if url.scheme == "file" else f"{url.hostname}:{url.port or ''}"
