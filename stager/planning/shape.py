"""The workflow as lists of small integers: what ordering and scheduling a hundred thousand jobs needs to be quick.

May know: the model and planning's sizes. One rule: job i is the i-th in topological order, file i the i-th of the workflow; lists, never
sets, so that order never depends on a hash.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from stager.model.files import File
from stager.model.topology import Topology
from stager.model.workflow import Graph, Job, Workflow
from stager.planning.access import access_of
from stager.planning.plan import Access, Basis
from stager.planning.sizes import Sized
from stager.planning.transport import SMALL_BYTES, Transported, choose, way_to

# By job type.
ReadS = Mapping[str, float]
NOTHING: Mapping[int, ReadS] = {}


@dataclass(slots=True)
class Shape:
    """`held`: of the inputs, those that are not read directly; `footprint` is these plus outputs. `fetch_s`, `local_s` and `upload_s` are
    predicted seconds of each job's I/O, with what its files cost beside their bytes, `direct_s` those that it stands still for while it
    reads at origins. `size` is what space is set aside for, `likely` what will probably move. `transport` and `fetch_rate` (bytes per
    second, alone on its way) of external files. `unsure`: nobody knows how long the job computes.
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


def shape_of(workflow: Workflow, graph: Graph, sized: Sized, topology: Topology, direct_access: Mapping[int, ReadS] = NOTHING) -> Shape:
    """`direct_access`: by file index what is read directly, and for how many seconds a job of each type stands still for it."""
    jobs, files = list(graph.order), list(workflow.files)
    entries, called = list(workflow.files.values()), [workflow.jobs[job] for job in jobs]
    file_index = {lfn: index for index, lfn in enumerate(files)}
    external, final = [bool(file.sources) for file in entries], [file.destination is not None for file in entries]
    expected = [sized.files[lfn] for lfn in files]
    size, likely = [each.size_bytes for each in expected], [each.likely_bytes for each in expected]
    access = [Access.DIRECT if index in direct_access else access_of(file.kind, size[index]) for index, file in enumerate(entries)]
    inputs = [list(dict.fromkeys([file_index[entry.lfn] for entry in job.inputs])) for job in called]
    outputs = [[file_index[entry.lfn] for entry in job.outputs] for job in called]
    edges = edges_of(called, inputs, outputs, len(files))
    transport = transports_of(entries, size, topology)
    fetch_rate, upload_rate = file_rates(entries, topology, transport)
    fetch_file_s, upload_file_s = file_costs(workflow, topology)
    disk = min(node.disk_bytes_per_s for node in topology.nodes)
    made_s = max(node.overhead_file_s for node in topology.nodes)
    reserve = [sum([size[file] for file in makes]) for makes in outputs]
    held = [[file for file in reads if file not in direct_access] for reads in inputs] if direct_access else inputs
    stands_s = standing_s(called, inputs, direct_access)
    return Shape(
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
        external=external,
        final=final,
        access=access,
        cores=[job.cores for job in called],
        compute_s=[sized.jobs[job].compute_s for job in jobs],
        reserve=reserve,
        footprint=[out + sum([size[file] for file in reads]) for out, reads in zip(reserve, held, strict=True)],
        fetch_s=[
            stands + sum([likely[file] / fetch_rate[file] + fetch_file_s[file] for file in reads if external[file]])
            for stands, reads in zip(stands_s, held, strict=True)
        ],
        local_s=[
            sum([likely[file] for file in (*makes, *reads)]) / disk + made_s * len(makes)
            for reads, makes in zip(held, outputs, strict=True)
        ],
        upload_s=[sum([likely[file] / upload_rate[file] + upload_file_s[file] for file in makes if final[file]]) for makes in outputs],
        transport=transport,
        fetch_rate=fetch_rate,
        held=held,
        direct_s=stands_s,
        unsure=[sized.jobs[job].basis is Basis.DEFAULT for job in jobs],
    )


class Edges(NamedTuple):
    """The job that makes each file (-1: none), the jobs that read it, and those that each job waits for: first in the order of its
    inputs.
    """

    producer: list[int]
    readers: list[list[int]]
    parents: list[list[int]]
    children: list[list[int]]


def edges_of(jobs: list[Job], inputs: list[list[int]], outputs: list[list[int]], files: int) -> Edges:
    edges = Edges([-1] * files, [[] for _ in range(files)], [], [[] for _ in jobs])
    producer, readers, _, children = edges
    index = {job.id: index for index, job in enumerate(jobs)}
    for job, makes in enumerate(outputs):
        for file in makes:
            producer[file] = job
    for job, reads in enumerate(inputs):
        for file in reads:
            readers[file].append(job)
        parents = [producer[file] for file in reads if producer[file] >= 0]
        parents += [index[name] for name in jobs[job].after]
        if len(parents) > 1:
            parents = list(dict.fromkeys(parents))
        edges.parents.append(parents)
        for parent in parents:
            children[parent].append(job)
    return edges


def standing_s(jobs: list[Job], inputs: list[list[int]], direct_access: Mapping[int, ReadS]) -> list[float]:
    """By job, the seconds for which it stands still while it reads directly."""
    if not direct_access:
        return [0.0] * len(jobs)
    return [
        sum([direct_access[file][job.job_type] for file in reads if file in direct_access]) for job, reads in zip(jobs, inputs, strict=True)
    ]


def transports_of(files: list[File], size: list[int], topology: Topology) -> list[Transported | None]:
    """Of each external file, by its first source; None of what a job makes."""
    origins = [file.sources[0].location.origin if file.sources else "" for file in files]
    small = Counter([origin for origin, size_bytes in zip(origins, size, strict=True) if size_bytes <= SMALL_BYTES])
    ways = {origin: way_to(topology, origin) for origin in dict.fromkeys(origins) if origin}
    return [choose(size_bytes, ways[origin], small[origin]) if origin else None for origin, size_bytes in zip(origins, size, strict=True)]


def file_rates(files: list[File], topology: Topology, transport: list[Transported | None]) -> tuple[list[float], list[float]]:
    """WAN rates each file would be fetched and uploaded with; its first source counts."""
    fetch, upload = [1.0] * len(transport), [1.0] * len(transport)
    fetched: dict[tuple[str, int], float] = {}
    uploaded: dict[str, float] = {}
    for index, (file, chosen) in enumerate(zip(files, transport, strict=True)):
        if file.sources:
            way = (file.sources[0].location.origin, chosen.stripes if chosen is not None else 1)
            if way not in fetched:
                fetched[way] = topology.link(way[0]).fetch_by(way[1])
            fetch[index] = fetched[way]
        if file.destination is not None:
            name = file.destination.location.origin
            if name not in uploaded:
                uploaded[name] = topology.link(name).upload_by(1)
            upload[index] = uploaded[name]
    return fetch, upload


def file_costs(workflow: Workflow, topology: Topology) -> tuple[list[float], list[float]]:
    """Seconds that each file takes of a line beside its bytes, fetched from its first source and uploaded."""
    links = {name: topology.link(name) for name in workflow.origins}
    fetch_s = {name: link.fetch_file_s or 0.0 for name, link in links.items()}
    upload_s = {name: link.upload_file_s or 0.0 for name, link in links.items()}
    files = workflow.files.values()
    fetch = [fetch_s.get(file.sources[0].location.origin, 0.0) if file.sources else 0.0 for file in files]
    upload = [upload_s.get(file.destination.location.origin, 0.0) if file.destination is not None else 0.0 for file in files]
    return fetch, upload
