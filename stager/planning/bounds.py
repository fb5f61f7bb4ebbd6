"""How fast a run could be at best, and what keeps it from being faster.

May know: the model, plans. One rule: every term is a true lower bound: no run that succeeds is faster, whatever is decided. Heads and tails
(what must come before and after the work of one resource) are those of Carlier, "The one-machine sequencing problem", 1982.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from math import inf

from stager.model.topology import Topology
from stager.model.units import counted
from stager.model.workflow import Graph, Origin, Workflow, bandwidths_of, graph_of
from stager.planning.links import is_read_back
from stager.planning.plan import Access, Plan
from stager.planning.same_place import first_names

# (not before, for how long, and as long after): seconds of one resource.
Part = tuple[float, float, float]

# Of the critical path and a resource that are as long as each other, more of the resource would not help.
AS_LONG = 0.99


class Limit(StrEnum):
    """The resource that a run waits for most. LAN is all inside: disks of I/O nodes and the network between them."""

    PATH = "critical path"
    WAN = "WAN"
    LAN = "LAN"
    CPU = "CPU"
    CACHE = "cache"


@dataclass(frozen=True, slots=True)
class Term:
    """`busy_s`: what the resource needs for its work alone; `least_s`: with what comes before and after, no run is faster."""

    limit: Limit
    about: str
    busy_s: float
    least_s: float


@dataclass(frozen=True, slots=True)
class Bound:
    terms: tuple[Term, ...]

    @property
    def least_s(self) -> float:
        return max(term.least_s for term in self.terms)

    @property
    def tightest(self) -> Term:
        """The first of the largest."""
        return max(self.terms, key=lambda term: term.least_s)

    def busy_s(self, limit: Limit) -> float:
        return max((term.busy_s for term in self.terms if term.limit is limit), default=0.0)


@dataclass(frozen=True, slots=True)
class Seen:
    """The use that a run made of its limits: seconds that the busiest link or disk of each kind, or all cores together, were used;
    `again_s` the part of the WAN's that refetched and spilled bytes took. `short`: less room than the plan would use.
    """

    wall_s: float
    busy_s: Mapping[Limit, float]
    again_s: float = 0.0
    short: bool = False


def bottleneck(bound: Bound, seen: Seen) -> tuple[Limit, str]:
    """(what, why in words). The cache where most of the WAN's work is bytes that had been here, or where nothing else explains half of the
    time and space is short; else what is used longest.
    """
    used = {limit: max(seen.busy_s.get(limit, 0.0), bound.busy_s(limit)) for limit in (Limit.WAN, Limit.LAN, Limit.CPU)}
    path_s = bound.busy_s(Limit.PATH)
    top = max(used, key=lambda limit: used[limit])
    if path_s >= AS_LONG * used[top]:
        top = Limit.PATH
    top_s = path_s if top is Limit.PATH else used[top]
    if top is Limit.WAN and 2 * seen.again_s > top_s:
        return Limit.CACHE, f"{share(seen.again_s, top_s)} of what the WAN carried had been here before, or was put away for want of room"
    if seen.short and 2 * top_s < seen.wall_s:
        return Limit.CACHE, f"jobs wait for room: nothing else is used for more than {share(top_s, seen.wall_s)} of the time"
    what = "it takes" if top is Limit.PATH else "used for"
    return top, f"{what} {share(top_s, seen.wall_s)} of the time"


def share(part_s: float, whole_s: float) -> str:
    return f"{min(1.0, part_s / whole_s) if whole_s > 0 else 1.0:.0%}"


def lower_bound(
    workflow: Workflow, topology: Topology, plan: Plan, graph: Graph | None = None, streams_per_origin: int | None = None
) -> Bound:
    """Of a run on empty nodes whose sizes and computing times are those of the plan. `streams_per_origin`: transfers that all nodes
    together have under way at one origin; None: any number.
    """
    topology = topology.bounded_by(bandwidths_of(workflow))
    needs = Needs(workflow, topology, plan, graph or graph_of(workflow))
    slots, narrowest = sum(topology.host_cores), min(topology.host_cores)
    disks = sum(node.disk_bytes_per_s for node in topology.nodes)
    computing = [
        (needs.begin_s[job], min(workflow.jobs[job].cores, narrowest) * needs.length_s[job] / slots, needs.after_s[job])
        for job in needs.graph.order
    ]
    longest = max((needs.begin_s[job] + needs.length_s[job] + needs.after_s[job] for job in needs.graph.order), default=0.0)
    terms = [
        Term(Limit.PATH, "the longest chain of fetch, jobs and upload", longest, longest),
        term_of(Limit.CPU, counted(slots, "core"), computing),
        term_of(Limit.LAN, "the disks of the I/O nodes", needs.disk_parts(disks)),
        *needs.network_terms(),
        *needs.wan_terms(),
    ]
    if streams_per_origin is not None:
        terms += needs.stream_terms(streams_per_origin)
    return Bound(tuple(terms))


def term_of(limit: Limit, about: str, parts: Iterable[Part]) -> Term:
    parts = list(parts)
    return Term(limit, about, sum(length for _, length, _ in parts), window_s(parts))


def window_s(parts: list[Part]) -> float:
    """Of any set of parts: none begins before the first may, they follow each other, and after the last of them as long as after any. Tried
    for the sets of all that may not begin before a time, and of all after which at least a time is needed.
    """
    best = 0.0
    for side in (0, 2):
        length_s, first, last = 0.0, inf, inf
        for part in sorted(parts, key=lambda part: -part[side]):
            length_s += part[1]
            first, last = min(first, part[0]), min(last, part[2])
            best = max(best, first + length_s + last)
    return best


@dataclass(frozen=True, slots=True)
class Way:
    """To one place, under whatever names it goes: the better of what is known of them. Files may come in over the lines of all nodes; a
    file goes out over the line of one (`file_bytes_per_s`). The `file` seconds are what each file takes of a line beside its bytes, the
    `file` bytes what the line would carry meanwhile.
    """

    fetch_bytes_per_s: float
    upload_bytes_per_s: float
    file_bytes_per_s: float
    latency_s: float
    before_upload_s: float
    fetch_file_s: float = 0.0
    upload_file_s: float = 0.0
    fetch_file_bytes: float = 0.0
    upload_file_bytes: float = 0.0

    def or_better(self, other: Way) -> Way:
        return Way(
            max(self.fetch_bytes_per_s, other.fetch_bytes_per_s),
            max(self.upload_bytes_per_s, other.upload_bytes_per_s),
            max(self.file_bytes_per_s, other.file_bytes_per_s),
            min(self.latency_s, other.latency_s),
            min(self.before_upload_s, other.before_upload_s),
            min(self.fetch_file_s, other.fetch_file_s),
            min(self.upload_file_s, other.upload_file_s),
            min(self.fetch_file_bytes, other.fetch_file_bytes),
            min(self.upload_file_bytes, other.upload_file_bytes),
        )


class Needs:
    """The time that any run must take: by job, seconds before it can begin, of itself, and from its end to the end of the run."""

    def __init__(self, workflow: Workflow, topology: Topology, plan: Plan, graph: Graph) -> None:
        self.workflow, self.graph = workflow, graph
        self.size_bytes = {file.lfn: file.expected_bytes for file in plan.files}
        self.same_as = first_names(workflow)
        self.readers: dict[str, list[str]] = {}
        for lfn, readers in graph.readers.items():
            self.readers.setdefault(self.same_as.get(lfn, lfn), []).extend(readers)
        # What is read directly may be read in part, and passes no disk of ours.
        self.staged = {file.lfn for file in plan.files if file.access is not Access.DIRECT}
        self.disk_bytes_per_s = max(node.disk_bytes_per_s for node in topology.nodes)
        self.nodes_bytes_per_s = [min(node.disk_bytes_per_s, node.network_bytes_per_s) for node in topology.nodes]
        self.network_bytes_per_s = max(node.network_bytes_per_s for node in topology.nodes)
        self.ways = ways_of(workflow, topology)
        self.places = places_of(workflow)
        # Every job takes one attempt at least.
        overhead_s = min(node.overhead_s for node in topology.nodes)
        made_s = min(node.overhead_file_s for node in topology.nodes)
        self.compute_s = {job.job: job.compute_s + overhead_s + made_s * len(workflow.jobs[job.job].outputs) for job in plan.jobs}
        self.staged_bytes = {job: self.bytes_of(job) for job in graph.order}
        stands_s = direct_s(workflow, plan)
        self.length_s = {job: self.compute_s[job] + self.staged_bytes[job] / self.disk_bytes_per_s + stands_s[job] for job in graph.order}
        # External files, each of which is fetched once at least, and finals.
        self.fetched = [lfn for lfn, readers in self.readers.items() if readers and lfn in self.staged and lfn in self.places]
        self.finals = [lfn for lfn in graph.producer if self.goes_to(lfn)]
        self.read_back = read_back_of(workflow, self.finals, topology)
        self.read_behind = {lfn for lfn, origin in self.read_back.items() if origin.reads_behind(self.size_bytes[lfn])}
        self.begin_s = self.beginnings()
        self.after_s = self.endings()

    def bytes_of(self, job_id: str) -> int:
        job = self.workflow.jobs[job_id]
        reads = dict.fromkeys(self.same_as.get(entry.lfn, entry.lfn) for entry in job.inputs if entry.lfn in self.staged)
        return sum(self.size_bytes[lfn] for lfn in (*reads, *(entry.lfn for entry in job.outputs)))

    def beginnings(self) -> dict[str, float]:
        begin_s: dict[str, float] = {}
        for job in self.graph.order:
            above = [begin_s[parent] + self.length_s[parent] for parent in self.graph.parents[job]]
            begin_s[job] = max([*above, *(self.arrival_s(entry.lfn) for entry in self.workflow.jobs[job].inputs)], default=0.0)
        return begin_s

    def endings(self) -> dict[str, float]:
        after_s: dict[str, float] = {}
        for job in reversed(self.graph.order):
            below = [self.length_s[child] + after_s[child] for child in self.graph.children[job]]
            after_s[job] = max([*below, *(self.upload_s(entry.lfn) for entry in self.workflow.jobs[job].outputs)], default=0.0)
        return after_s

    def arrival_s(self, lfn: str) -> float:
        """Of an external file, by the best of its sources; 0 for what a job makes."""
        if lfn not in self.staged:
            return 0.0
        return min((self.transfer_s(lfn, url, fetch=True) for url in self.places.get(lfn, ())), default=0.0)

    def upload_s(self, lfn: str) -> float:
        """Until it is verified there."""
        if not self.goes_to(lfn):
            return 0.0
        there_s, back_s = self.transfer_s(lfn, self.goes_to(lfn), fetch=False), self.readback_s(lfn)
        return max(there_s, self.before_back_s(lfn) + back_s)

    def before_back_s(self, lfn: str) -> float:
        """From when the job has made a final until it may come back: a large one comes behind its writes."""
        way = self.ways[self.goes_to(lfn)]
        return way.before_upload_s if lfn in self.read_behind else self.transfer_s(lfn, self.goes_to(lfn), fetch=False)

    def readback_s(self, lfn: str) -> float:
        """Of a final: it comes back over the link and the network, and passes no disk."""
        rate = min(self.ways[self.goes_to(lfn)].fetch_bytes_per_s, self.network_bytes_per_s)
        return self.size_bytes[lfn] / rate if lfn in self.read_back else 0.0

    def transfer_s(self, lfn: str, url: str, fetch: bool) -> float:
        way = self.ways[url]
        rate = min(way.fetch_bytes_per_s if fetch else way.file_bytes_per_s, max(self.nodes_bytes_per_s))
        before_s = way.latency_s + way.fetch_file_s if fetch else way.before_upload_s + way.upload_file_s
        return before_s + self.size_bytes[lfn] / rate

    def goes_to(self, lfn: str) -> str:
        destination = self.workflow.files[lfn].destination
        return self.workflow.origins[destination.location.origin].url if destination is not None and lfn in self.graph.producer else ""

    def after_fetch_s(self, lfn: str) -> float:
        return max(self.length_s[job] + self.after_s[job] for job in self.readers[lfn])

    def made_s(self, lfn: str) -> float:
        job = self.graph.producer[lfn]
        return self.begin_s[job] + self.length_s[job]

    def disk_parts(self, disks_bytes_per_s: float) -> list[Part]:
        """Each fetch, stage-in, stage-out and upload passes a disk; a job's before it computes."""
        size = self.size_bytes
        fetches = [(0.0, size[lfn] / disks_bytes_per_s, self.after_fetch_s(lfn)) for lfn in self.fetched]
        uploads = [(self.made_s(lfn), size[lfn] / disks_bytes_per_s, 0.0) for lfn in self.finals]
        staging = [
            (self.begin_s[job], self.staged_bytes[job] / disks_bytes_per_s, self.compute_s[job] + self.after_s[job])
            for job in self.graph.order
        ]
        return [*fetches, *staging, *uploads]

    def network_terms(self) -> list[Term]:
        """Fetches come in over the nodes' networks, uploads go out."""
        rate = sum(self.nodes_bytes_per_s)
        fetches = [(0.0, self.size_bytes[lfn] / rate, self.after_fetch_s(lfn)) for lfn in self.fetched]
        uploads = [(self.made_s(lfn), self.size_bytes[lfn] / rate, 0.0) for lfn in self.finals]
        return [
            term_of(Limit.LAN, "the networks into the I/O nodes", fetches),
            term_of(Limit.LAN, "the networks out of the I/O nodes", uploads),
        ]

    def wan_terms(self) -> list[Term]:
        """By places that some file can only be had from: all such files, over all their links together, with what is read back there; and
        each link for uploads.
        """
        only: dict[tuple[str, ...], None] = dict.fromkeys(self.places[lfn] for lfn in self.fetched)
        only |= dict.fromkeys((self.goes_to(lfn),) for lfn in self.finals if lfn in self.read_back)
        terms = []
        for places in only:
            rate = sum(self.ways[url].fetch_bytes_per_s for url in places)
            first_s = min(self.ways[url].latency_s for url in places)
            inside = [lfn for lfn in self.fetched if set(self.places[lfn]) <= set(places)]
            beside = min(self.ways[url].fetch_file_bytes for url in places)
            parts = [(first_s, (self.size_bytes[lfn] + beside) / rate, self.after_fetch_s(lfn)) for lfn in inside]
            back = [lfn for lfn in self.finals if lfn in self.read_back and self.goes_to(lfn) in places]
            parts += [(self.made_s(lfn) + self.before_back_s(lfn), self.size_bytes[lfn] / rate, 0.0) for lfn in back]
            terms.append(term_of(Limit.WAN, f"bytes fetched from {' and '.join(places)}", parts))
        finals: dict[str, list[Part]] = {}
        for lfn in self.finals:
            way = self.ways[self.goes_to(lfn)]
            length_s = (self.size_bytes[lfn] + way.upload_file_bytes) / way.upload_bytes_per_s
            part = (self.made_s(lfn) + way.before_upload_s, length_s, 0.0 if lfn in self.read_behind else self.readback_s(lfn))
            finals.setdefault(self.goes_to(lfn), []).append(part)
        return [*terms, *(term_of(Limit.WAN, f"bytes uploaded to {url}", parts) for url, parts in finals.items())]

    def stream_terms(self, streams: int) -> list[Term]:
        """Each transfer takes one of so many turns at its origin, for its latency at least: what limits where files are small."""
        parts: dict[str, list[Part]] = {}
        for lfn in self.fetched:
            if len(self.places[lfn]) == 1:
                url = self.places[lfn][0]
                part = (0.0, self.transfer_s(lfn, url, fetch=True) / streams, self.after_fetch_s(lfn))
                parts.setdefault(url, []).append(part)
        for lfn in self.finals:
            url = self.goes_to(lfn)
            parts.setdefault(url, []).append((self.made_s(lfn), self.upload_s(lfn) / streams, 0.0))
        words = {url: f"{counted(len(each), 'transfer')} in {counted(streams, 'turn')} at {url}" for url, each in parts.items()}
        return [term_of(Limit.WAN, words[url], each) for url, each in parts.items()]


def direct_s(workflow: Workflow, plan: Plan) -> dict[str, float]:
    """By job: how long it stands still while it reads at origins, with nobody else there."""
    direct = {file.lfn: file.direct_access.reads for file in plan.files if file.access is Access.DIRECT and file.direct_access is not None}
    found = dict.fromkeys(workflow.jobs, 0.0)
    for job in workflow.jobs.values() if direct else ():
        for lfn in dict.fromkeys(entry.lfn for entry in job.inputs):
            found[job.id] += sum(read.read_s for read in direct.get(lfn, ()) if read.job_type == job.job_type)
    return found


def places_of(workflow: Workflow) -> dict[str, tuple[str, ...]]:
    """Where each external file can be had."""
    url = {name: origin.url for name, origin in workflow.origins.items()}
    return {
        lfn: tuple(sorted({url[source.location.origin] for source in file.sources})) for lfn, file in workflow.files.items() if file.sources
    }


def read_back_of(workflow: Workflow, finals: Iterable[str], topology: Topology) -> dict[str, Origin]:
    """Those that cross the WAN once more to be verified, and where they lie."""
    goes = {lfn: destination.location.origin for lfn in finals if (destination := workflow.files[lfn].destination) is not None}
    return {lfn: workflow.origins[name] for lfn, name in goes.items() if is_read_back(workflow.origins[name], topology.link(name))}


def ways_of(workflow: Workflow, topology: Topology) -> dict[str, Way]:
    ways: dict[str, Way] = {}
    nodes = len(topology.nodes)
    for name, origin in workflow.origins.items():
        link, known = topology.link(name), ways.get(origin.url)
        way = Way(
            link.fetch_by(nodes),
            link.upload_by(nodes),
            link.upload_by(1),
            link.latency_s,
            link.before_upload_s,
            link.fetch_file_s or 0.0,
            link.upload_file_s or 0.0,
            link.fetch_weighs(0),
            link.upload_weighs(0),
        )
        ways[origin.url] = way if known is None else way.or_better(known)
    return ways
