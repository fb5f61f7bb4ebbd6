"""The workflow as lists of small integers: what ordering and scheduling a hundred thousand jobs needs to be quick.

May know: the model and planning's sizes. One rule: job i is the i-th in topological order, file i the i-th of the workflow; lists, never
sets, so that order never depends on a hash.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from stager.model.topology import Topology
from stager.model.workflow import Graph, Workflow
from stager.planning.access import access_of
from stager.planning.plan import Access
from stager.planning.sizes import Sized
from stager.planning.transport import SMALL_BYTES, Transported, choose, way_to

# By job type.
ReadS = Mapping[str, float]
NOTHING: Mapping[int, ReadS] = {}


@dataclass(slots=True)
class Shape:
    """`held`: of the inputs, those that are not read in place; `footprint` is these plus outputs. `fetch_s`, `local_s` and `upload_s` are
    predicted seconds of each job's I/O, with what its files cost beside their bytes, `in_place_s` those that it stands still for while it
    reads at origins. `size` is what space is set aside for, `likely` what will probably move. `transport` and `fetch_rate` (bytes per
    second, alone on its way) of external files.
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
    in_place_s: list[float]


def shape_of(workflow: Workflow, graph: Graph, sized: Sized, topology: Topology, in_place: Mapping[int, ReadS] = NOTHING) -> Shape:
    """`in_place`: by file index what is read in place, and for how many seconds a job of each type stands still for it."""
    jobs = list(graph.order)
    files = list(workflow.files)
    job_index = {job: index for index, job in enumerate(jobs)}
    file_index = {lfn: index for index, lfn in enumerate(files)}
    entries = list(workflow.files.values())
    external, final = [entry.is_external for entry in entries], [entry.is_final for entry in entries]
    size = [sized.size_bytes[lfn] for lfn in files]
    likely = [sized.likely_bytes[lfn] for lfn in files]
    access = [Access.DIRECT if index in in_place else access_of(entry.kind, size[index]) for index, entry in enumerate(entries)]
    inputs = [[file_index[lfn] for lfn in dict.fromkeys([item.lfn for item in workflow.jobs[job].inputs])] for job in jobs]
    outputs = [[file_index[item.lfn] for item in workflow.jobs[job].outputs] for job in jobs]
    producer = [-1] * len(files)
    readers: list[list[int]] = [[] for _ in files]
    for index, (reads, makes) in enumerate(zip(inputs, outputs, strict=True)):
        for file in reads:
            readers[file].append(index)
        for file in makes:
            producer[file] = index
    transport = transports_of(workflow, size, topology)
    fetch_rate, upload_rate = file_rates(workflow, topology, transport)
    fetch_file_s, costs_s = file_costs(workflow, topology)
    disk = min(node.disk_bytes_per_s for node in topology.nodes)
    made_s = max(node.overhead_file_s for node in topology.nodes)
    reserve = [sum([size[file] for file in makes]) for makes in outputs]
    held = [[file for file in reads if file not in in_place] for reads in inputs] if in_place else inputs
    stands_s = standing_s(workflow, jobs, inputs, in_place)
    return Shape(
        jobs=jobs,
        files=files,
        parents=[[job_index[above] for above in graph.parents[job]] for job in jobs],
        children=[[job_index[below] for below in graph.children[job]] for job in jobs],
        inputs=inputs,
        outputs=outputs,
        size=size,
        likely=likely,
        producer=producer,
        readers=readers,
        external=external,
        final=final,
        access=access,
        cores=[workflow.jobs[job].cores for job in jobs],
        compute_s=[sized.compute_s[job] for job in jobs],
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
        upload_s=[sum(likely[file] / upload_rate[file] + costs_s[file] for file in makes if final[file]) for makes in outputs],
        transport=transport,
        fetch_rate=fetch_rate,
        held=held,
        in_place_s=stands_s,
    )


def standing_s(workflow: Workflow, jobs: list[str], inputs: list[list[int]], in_place: Mapping[int, ReadS]) -> list[float]:
    """By job, the seconds for which it stands still while it reads in place."""
    if not in_place:
        return [0.0] * len(jobs)
    types = [workflow.jobs[job].job_type for job in jobs]
    return [sum([in_place[file][kind] for file in reads if file in in_place]) for kind, reads in zip(types, inputs, strict=True)]


def transports_of(workflow: Workflow, size: list[int], topology: Topology) -> list[Transported | None]:
    """Of each external file, by its first source; None of what a job makes."""
    origins = [file.sources[0].location.origin if file.sources else "" for file in workflow.files.values()]
    small: dict[str, int] = {}
    for origin, size_bytes in zip(origins, size, strict=True):
        small[origin] = small.get(origin, 0) + (size_bytes <= SMALL_BYTES)
    ways = {origin: way_to(topology, origin) for origin in dict.fromkeys(origins) if origin}
    return [choose(size_bytes, ways[origin], small[origin]) if origin else None for origin, size_bytes in zip(origins, size, strict=True)]


def file_rates(workflow: Workflow, topology: Topology, transport: list[Transported | None]) -> tuple[list[float], list[float]]:
    """WAN rates each file would be fetched and uploaded with; its first source counts."""
    fetch, upload = [1.0] * len(transport), [1.0] * len(transport)
    fetched: dict[tuple[str, int], float] = {}
    uploaded: dict[str, float] = {}
    for index, (file, chosen) in enumerate(zip(workflow.files.values(), transport, strict=True)):
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
