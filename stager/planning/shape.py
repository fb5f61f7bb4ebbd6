"""The workflow as lists of small integers: what ordering and scheduling a hundred thousand jobs needs to be quick.

May know: the model and planning's sizes. One rule: job i is the i-th in topological order, file i the i-th of the workflow; lists, never
sets, so that order never depends on a hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stager.model.topology import Topology
from stager.model.workflow import Graph, Job, Workflow
from stager.planning.access import access_of
from stager.planning.plan import DEFAULT, DIRECT, Access
from stager.planning.same_place import first_names
from stager.planning.sizes import Sized, SizedFile
from stager.planning.transport import SMALL_BYTES, Transported, choose, way_to

# By job type.
ReadS = Mapping[str, float]
NOTHING: Mapping[int, ReadS] = {}


@dataclass(slots=True)
class Shape:
    """`held`: of the inputs, those that are not read directly; `footprint` is these plus outputs. `fetch_s`, `local_s` and `upload_s` are
    predicted seconds of each job's I/O, with what its files cost beside their bytes, `direct_s` those that it stands still for while it
    reads at origins. `size` is what space is set aside for, `likely` what will probably move. `transport` and `fetch_rate` (bytes per
    second, alone on its way) of external files. `unsure`: nobody knows how long the job computes. `expected`: of each file, what `size`
    and `likely` are of. `fetched_from` and `sent_to`: the origins of its first source and of its destination; None: it has none.
    `lasting`: by job, the bytes that it makes for others to read. `same_as`: of a file that is an earlier one under another name, that one;
    all that read it are readers of that one.
    """

    jobs: list[str]
    files: list[str]
    parents: list[list[int]]
    children: list[list[int]]
    inputs: list[list[int]]
    outputs: list[list[int]]
    size: list[int]
    likely: list[int]
    producer: list[int]
    readers: list[list[int]]
    external: list[bool]
    final: list[bool]
    access: list[Access]
    cores: list[int]
    compute_s: list[float]
    reserve: list[int]
    footprint: list[int]
    fetch_s: list[float]
    local_s: list[float]
    upload_s: list[float]
    transport: list[Transported | None]
    fetch_rate: list[float]
    held: list[list[int]]
    direct_s: list[float]
    unsure: list[bool]
    expected: list[SizedFile]
    fetched_from: list[str | None]
    sent_to: list[str | None]
    lasting: list[int]
    same_as: dict[int, int]


def shape_of(workflow: Workflow, graph: Graph, sized: Sized, topology: Topology, direct_access: Mapping[int, ReadS] = NOTHING) -> Shape:
    """`direct_access`: by file index what is read directly, and for how many seconds a job of each type stands still for it."""
    jobs, files = list(graph.order), list(workflow.files)
    entries, called = list(workflow.files.values()), [workflow.jobs[job] for job in jobs]
    file_index = {lfn: index for index, lfn in enumerate(files)}
    fetched_from = [file.sources[0].location.origin if file.sources else None for file in entries]
    sent_to = [None if file.destination is None else file.destination.location.origin for file in entries]
    expected, timed = [sized.files[lfn] for lfn in files], [sized.jobs[job] for job in jobs]
    size, likely = [each.size_bytes for each in expected], [each.likely_bytes for each in expected]
    access = [access_of(file.kind, size_bytes) for file, size_bytes in zip(entries, size, strict=True)]
    for file in direct_access:
        access[file] = DIRECT
    same_as = {file_index[lfn]: file_index[name] for lfn, name in first_names(workflow).items()}
    read_index = {lfn: same_as.get(index, index) for lfn, index in file_index.items()} if same_as else file_index
    inputs = [each_once([read_index[entry.lfn] for entry in job.inputs]) for job in called]
    outputs = [[file_index[entry.lfn] for entry in job.outputs] for job in called]
    edges = edges_of(called, inputs, outputs, len(files))
    transport = transports_of(fetched_from, size, topology)
    held = [[file for file in reads if file not in direct_access] for reads in inputs] if direct_access else inputs
    shape = Shape(
        jobs=jobs,
        files=files,
        parents=edges.parents,
        children=edges.children,
        inputs=inputs,
        outputs=outputs,
        size=size,
        likely=likely,
        producer=edges.producer,
        readers=edges.readers,
        external=[origin is not None for origin in fetched_from],
        final=[origin is not None for origin in sent_to],
        access=access,
        cores=[job.cores for job in called],
        compute_s=[each.compute_s for each in timed],
        reserve=[],
        footprint=[],
        fetch_s=[],
        local_s=[],
        upload_s=[],
        transport=transport,
        fetch_rate=fetch_rates(fetched_from, topology, transport),
        held=held,
        direct_s=standing_s(called, inputs, direct_access),
        unsure=[each.basis is DEFAULT for each in timed],
        expected=expected,
        fetched_from=fetched_from,
        sent_to=sent_to,
        lasting=[],
        same_as=same_as,
    )
    add_up(shape, workflow, topology)
    return shape


def each_once(numbers: list[int]) -> list[int]:
    return numbers if len(numbers) < 2 else list(dict.fromkeys(numbers))


def add_up(shape: Shape, workflow: Workflow, topology: Topology) -> None:
    """The bytes and seconds that follow from each job's files: in one walk over all of them, since most of the time goes into memory."""
    links = {name: topology.link(name) for name in workflow.origins}
    fetch_file_s = {name: link.fetch_file_s or 0.0 for name, link in links.items()}
    upload_file_s = {name: link.upload_file_s or 0.0 for name, link in links.items()}
    upload_rate = {name: topology.link(name).upload_by(1) for name in dict.fromkeys(shape.sent_to) if name is not None}
    disk = min(node.disk_bytes_per_s for node in topology.nodes)
    made_s = max(node.overhead_file_s for node in topology.nodes)
    size, likely, readers, fetch_rate = shape.size, shape.likely, shape.readers, shape.fetch_rate
    fetched_from, sent_to = shape.fetched_from, shape.sent_to
    for reads, makes, stands_s in zip(shape.held, shape.outputs, shape.direct_s, strict=True):
        reserve = lasting = moved = 0
        fetch_s = upload_s = 0.0
        for file in makes:
            reserve += size[file]
            moved += likely[file]
            if readers[file]:
                lasting += size[file]
            if (origin := sent_to[file]) is not None:
                upload_s += likely[file] / upload_rate[origin] + upload_file_s.get(origin, 0.0)
        footprint = reserve
        for file in reads:
            footprint += size[file]
            moved += likely[file]
            if (origin := fetched_from[file]) is not None:
                fetch_s += likely[file] / fetch_rate[file] + fetch_file_s.get(origin, 0.0)
        shape.reserve.append(reserve)
        shape.lasting.append(lasting)
        shape.footprint.append(footprint)
        shape.fetch_s.append(stands_s + fetch_s)
        shape.local_s.append(moved / disk + made_s * len(makes))
        shape.upload_s.append(upload_s)


class Edges(NamedTuple):
    """The job that makes each file (-1: none), the jobs that read it, and those that each job waits for: first in the order of its
    inputs.
    """

    producer: list[int]
    readers: list[list[int]]
    parents: list[list[int]]
    children: list[list[int]]


def edges_of(jobs: list[Job], inputs: list[list[int]], outputs: list[list[int]], files: int) -> Edges:
    # One list for all that have nobody, which is never written to.
    nobody: list[int] = []
    edges = Edges([-1] * files, [nobody] * files, [], [nobody] * len(jobs))
    producer, readers, _, children = edges
    index = {job.id: index for index, job in enumerate(jobs)}
    for job, makes in enumerate(outputs):
        for file in makes:
            producer[file] = job
    for job, reads in enumerate(inputs):
        for file in reads:
            if others := readers[file]:
                others.append(job)
            else:
                readers[file] = [job]
        parents = [parent for file in reads if (parent := producer[file]) >= 0]
        if after := jobs[job].after:
            parents += [index[name] for name in after]
        parents = each_once(parents) if parents else nobody
        edges.parents.append(parents)
        for parent in parents:
            if others := children[parent]:
                others.append(job)
            else:
                children[parent] = [job]
    return edges


def standing_s(jobs: list[Job], inputs: list[list[int]], direct_access: Mapping[int, ReadS]) -> list[float]:
    """By job, the seconds for which it stands still while it reads directly."""
    if not direct_access:
        return [0.0] * len(jobs)
    return [
        sum([direct_access[file][job.job_type] for file in reads if file in direct_access]) for job, reads in zip(jobs, inputs, strict=True)
    ]


def transports_of(origins: list[str | None], size: list[int], topology: Topology) -> list[Transported | None]:
    """Of each external file, by its first source; None of what a job makes."""
    small = Counter([origin for origin, size_bytes in zip(origins, size, strict=True) if size_bytes <= SMALL_BYTES])
    ways = {origin: way_to(topology, origin) for origin in dict.fromkeys(origins) if origin is not None}
    return [
        None if origin is None else choose(size_bytes, ways[origin], small[origin])
        for origin, size_bytes in zip(origins, size, strict=True)
    ]


def fetch_rates(origins: list[str | None], topology: Topology, transport: list[Transported | None]) -> list[float]:
    """WAN rates each file would be fetched with; its first source counts."""
    rates, links = [1.0] * len(transport), {origin: topology.link(origin) for origin in dict.fromkeys(origins) if origin is not None}
    for index, (origin, chosen) in enumerate(zip(origins, transport, strict=True)):
        if origin is not None and chosen is not None:
            rates[index] = links[origin].fetch_by(chosen.stripes)
    return rates
