"""The choice of inputs that are read directly at their origin, because keeping them would not pay or they do not fit beside each other.

May know: the model, planning's shape and formulas. One rule: the choice is per file, over all its readers: what is fetched for one of them
is there for all. Nothing is read directly that needs another source, a checksum or a program's rights.

Both ways are compared by the least time of the run: the largest of what the link to the origin carries, what the cores do, the longest
chain through a reader of the file, and all its readers one after the other on all cores once the first can begin (the terms of bounds.py).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from stager.model.files import FileKind
from stager.model.profile import Profiles
from stager.model.topology import OriginLink, Topology
from stager.model.workflow import Job, OriginKind, Workflow
from stager.planning.access import COPY_BYTES_MAX
from stager.planning.iomodel import direct_bytes, direct_s
from stager.planning.plan import DirectAccess, DirectRead
from stager.planning.shape import Shape

# What a node can mount (docs/formats/ionode-api.md, Mounts).
MOUNTABLE = frozenset({OriginKind.SSHFS})
PAYS = "fewer bytes cross the WAN, and the run takes no longer"
MORE_BYTES = "its readers together would have as much or more of it cross the WAN"
LONGER = "fetched beside computing it costs the run less time than jobs that stand still while they read there"
ROOM = "the inputs of job {job!r} do not fit beside each other otherwise"


@dataclass(slots=True)
class Choice:
    """By file index. `chosen`: what is read directly; `weighed`: the two ways of each file that could be."""

    chosen: set[int] = field(default_factory=set)
    weighed: dict[int, DirectAccess] = field(default_factory=dict)

    def read_s(self) -> dict[int, dict[str, float]]:
        """Of what is chosen, by job type: for how long one job stands still."""
        return {file: {read.job_type: read.read_s for read in self.weighed[file].reads} for file in sorted(self.chosen)}


def choose_direct_access(workflow: Workflow, shape: Shape, profiles: Profiles, topology: Topology) -> Choice:
    """Those whose reading directly saves most bytes are weighed first, each beside what was chosen before it. `shape`: of a plan that
    keeps all.
    """
    choice = Choice()
    candidates = candidates_of(workflow, shape, topology)
    if not candidates:
        return choice
    scales = Scales(workflow, shape, topology)
    reads = {file: reads_of(workflow, shape, profiles, file, scales.link[file]) for file in candidates}
    for file in sorted(candidates, key=lambda file: (scales.direct_read_bytes(file, reads[file]) - shape.likely[file], file)):
        weighed = choice.weighed[file] = scales.weigh(file, reads[file])
        if weighed.why == PAYS:
            choice.chosen.add(file)
            scales.take(file, reads[file])
    return choice


def choose_for_space(shape: Shape, choice: Choice, over_bytes: Sequence[int]) -> bool:
    """More of what each job reads, its largest first, until so many of its bytes are read directly. True if anything was added. `shape`: of
    a plan that keeps all.
    """
    before = len(choice.chosen)
    for job, over in enumerate(over_bytes):
        over -= sum(shape.size[file] for file in shape.inputs[job] if file in choice.chosen) if over > 0 else 0
        mine = [file for file in shape.inputs[job] if file in choice.weighed and file not in choice.chosen] if over > 0 else []
        for file in sorted(mine, key=lambda file: (-shape.size[file], file)):
            if over > 0:
                over -= shape.size[file]
                choice.chosen.add(file)
                choice.weighed[file] = replace(choice.weighed[file], why=ROOM.format(job=shape.jobs[job]))
    return len(choice.chosen) > before


def candidates_of(workflow: Workflow, shape: Shape, topology: Topology) -> list[int]:
    """External files with readers that can be had directly and in no way lose by it but in speed: one source, listed with a token when it
    had settled, no checksum declared for it, no program.
    """
    mountable = {name for name, origin in workflow.origins.items() if origin.kind in MOUNTABLE}
    if not mountable or not all(node.can_link for node in topology.nodes):
        return []
    found = []
    whole = {lfn for job in workflow.jobs.values() for lfn in (job.image, job.venv, job.conda)}
    renamed = set(shape.same_as.values())
    for index, lfn in enumerate(shape.files):
        file = workflow.files[lfn]
        # An image is unpacked, all of it, and an environment is made of all of its lock file. Under another name it may be one of these.
        if lfn in whole or index in renamed:
            continue
        if len(file.sources) != 1 or not shape.readers[index] or shape.size[index] <= COPY_BYTES_MAX:
            continue
        source = file.sources[0]
        plain = file.kind is FileKind.FILE and not file.executable and not file.sha256
        if plain and source.location.origin in mountable and source.token and source.settled:
            found.append(index)
    return found


def reads_of(workflow: Workflow, shape: Shape, profiles: Profiles, file: int, link: OriginLink) -> dict[str, DirectRead]:
    """By job type of its readers."""
    return {
        job.job_type: read_by(workflow, profiles, shape.files[file], shape.likely[file], job, link)
        for job in {job.job_type: job for job in (workflow.jobs[shape.jobs[reader]] for reader in shape.readers[file])}.values()
    }


def read_by(workflow: Workflow, profiles: Profiles, lfn: str, size_bytes: int, job: Job, link: OriginLink) -> DirectRead:
    """By what a trace saw of the type and files of this kind, else by what is declared of the type, else all of it, once, in order."""
    profile, hint = profiles.get(job.profile), workflow.hints.get(job.job_type)
    seen = profile.input(lfn) if profile is not None else None
    touched = again = ordered = None
    if seen is not None and seen.touched_fraction is not None:
        touched = seen.touched_fraction.median
        again = None if seen.reads_per_byte is None else seen.reads_per_byte.median
        ordered = 0.0 if seen.sequential_fraction is None else seen.sequential_fraction.median
    elif hint is not None and hint.read_fraction is not None:
        touched, ordered = hint.read_fraction, 0.0
    moved = direct_bytes(size_bytes, 1.0 if touched is None else touched, 1.0 if again is None else again)
    read_s = direct_s(moved, 1.0 if ordered is None else ordered, link.one_reader_bytes_per_s, link.latency_s)
    return DirectRead(job.job_type, moved, read_s)


class Scales:
    """The terms of the least time of a run, of what has been chosen so far."""

    def __init__(self, workflow: Workflow, shape: Shape, topology: Topology) -> None:
        self.workflow, self.shape = workflow, shape
        self.nodes = len(topology.nodes)
        self.slots = sum(topology.host_cores)
        self.disk_bytes_per_s = min(node.disk_bytes_per_s for node in topology.nodes)
        overhead_s = max(node.overhead_s for node in topology.nodes)
        self.length_s = [compute + local + overhead_s for compute, local in zip(shape.compute_s, shape.local_s, strict=True)]
        self.head_s = [0.0] * len(shape.jobs)
        for job, parents in enumerate(shape.parents):
            self.head_s[job] = max((self.head_s[parent] + self.length_s[parent] for parent in parents), default=0.0)
        self.tail_s = list(shape.upload_s)
        for job in range(len(shape.jobs) - 1, -1, -1):
            below = [self.length_s[child] + self.tail_s[child] for child in shape.children[job]]
            self.tail_s[job] = max([self.tail_s[job], *below])
        sources = [workflow.files[lfn].sources for lfn in shape.files]
        links = {name: topology.link(name) for name in workflow.origins}
        self.link = {file: links[each[0].location.origin] for file, each in enumerate(sources) if each}
        self.busy_s = dict.fromkeys(links, 0.0)
        for file, link in self.link.items():
            if shape.readers[file]:
                self.busy_s[link.origin] += link.fetch_weighs(shape.likely[file]) / link.fetch_by(self.nodes)
        self.cores_s = sum(self.shared_s(job, length) for job, length in enumerate(self.length_s))

    def shared_s(self, job: int, seconds: float) -> float:
        """The share of all cores together that so many seconds of this job take."""
        return seconds * min(self.shape.cores[job], self.slots) / self.slots

    def read(self, job: int, reads: dict[str, DirectRead]) -> DirectRead:
        return reads[self.workflow.jobs[self.shape.jobs[job]].job_type]

    def longer_s(self, file: int, job: int, reads: dict[str, DirectRead]) -> float:
        """The seconds that the job takes longer than if it read the file on its node."""
        return self.read(job, reads).read_s - self.shape.likely[file] / self.disk_bytes_per_s

    def direct_read_bytes(self, file: int, reads: dict[str, DirectRead]) -> int:
        return sum(self.read(job, reads).size_bytes for job in self.shape.readers[file])

    def weigh(self, file: int, reads: dict[str, DirectRead]) -> DirectAccess:
        kept_s, direct_s = self.kept_s(file), self.direct_s(file, reads)
        kept_bytes, moved_bytes = self.shape.likely[file], self.direct_read_bytes(file, reads)
        why = MORE_BYTES if moved_bytes >= kept_bytes else PAYS if direct_s <= kept_s else LONGER
        return DirectAccess(round(kept_s, 6), kept_bytes, round(direct_s, 6), moved_bytes, tuple(reads.values()), why)

    def kept_s(self, file: int) -> float:
        """Fetched once, at the link's rate; its readers wait for it."""
        link, readers = self.link[file], self.shape.readers[file]
        arrival_s = link.latency_s + self.shape.likely[file] / self.shape.fetch_rate[file] + (link.fetch_file_s or 0.0)
        chain_s = max(max(self.head_s[job], arrival_s) + self.length_s[job] + self.tail_s[job] for job in readers)
        together_s = arrival_s + sum(self.shared_s(job, self.length_s[job]) for job in readers)
        return max(self.busy_s[link.origin], self.cores_s, chain_s, together_s)

    def direct_s(self, file: int, reads: dict[str, DirectRead]) -> float:
        """Its readers begin without it, and stand still while they read."""
        link, readers = self.link[file], self.shape.readers[file]
        stands_s = {job: self.longer_s(file, job, reads) for job in readers}
        saved_bytes = link.fetch_weighs(self.shape.likely[file]) - self.direct_read_bytes(file, reads)
        link_s = self.busy_s[link.origin] - saved_bytes / link.fetch_by(self.nodes)
        cores_s = self.cores_s + sum(self.shared_s(job, seconds) for job, seconds in stands_s.items())
        chain_s = max(self.head_s[job] + stands_s[job] + self.length_s[job] + self.tail_s[job] for job in readers)
        together_s = min(self.head_s[job] for job in readers)
        together_s += sum(self.shared_s(job, self.length_s[job] + stands_s[job]) for job in readers)
        return max(link_s, cores_s, chain_s, together_s)

    def take(self, file: int, reads: dict[str, DirectRead]) -> None:
        """It is read directly: what is weighed later is weighed beside that."""
        link = self.link[file]
        saved_bytes = link.fetch_weighs(self.shape.likely[file]) - self.direct_read_bytes(file, reads)
        self.busy_s[link.origin] -= saved_bytes / link.fetch_by(self.nodes)
        for job in self.shape.readers[file]:
            seconds = self.longer_s(file, job, reads)
            self.cores_s += self.shared_s(job, seconds)
            self.length_s[job] += seconds
