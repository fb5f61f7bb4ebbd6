"""The hosts and nodes that can take a job, by size alone: cores, memory, scratch space and capacity.

May know: the topology, the workflow, its plan. One rule: where one number of cores says it all (`Topology.is_even`), every job fits, as it
always did: one that asks for more runs alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from stager.model.errors import Refused
from stager.model.topology import Host, Topology
from stager.model.units import counted, format_size
from stager.model.workflow import Job, Workflow
from stager.planning.plan import Plan
from stager.planning.shape import Shape

TOO_LARGE_CODE = "too_large"


def check_hosts(workflow: Workflow, topology: Topology, plan: Plan) -> None:
    """Raises Refused for a job that is larger than every host, or than every one beside a node that can hold what the job needs at once,
    with the numbers.
    """
    if topology.is_even or workflow.engine:
        return
    sites = [(node.capacity_bytes, host) for node, hosts in zip(topology.nodes, topology.hosts, strict=True) for host in hosts]
    for entry in plan.jobs:
        job, hosts, where, larger = workflow.jobs[entry.job], [host for _, host in sites], "", "give it a larger host"
        if any(host.takes(job.cores, job.memory_bytes) for host in hosts):
            hosts = [host for capacity_bytes, host in sites if capacity_bytes >= entry.footprint_bytes]
            where, larger = beside_room(entry.footprint_bytes), f"{larger}, or more capacity to its node"
        if not any(host.takes(job.cores, job.memory_bytes) for host in hosts):
            message = f"{too_large(job, hosts, where=where)}; {larger}, or let it ask for less"
            raise Refused(message, code=TOO_LARGE_CODE, subject=job.id)


def beside_room(size_bytes: int) -> str:
    return f" beside a node that can hold {format_size(size_bytes)}"


def too_large(job: Job, hosts: Sequence[Host], scratch_bytes: int = 0, where: str = "") -> str:
    """A sentence with what the job asks for, beside the most of each that a host has. `where`: these hosts are, if there are others."""
    asked, most = [cores_of(job.cores)], [cores_of(max([host.cores for host in hosts], default=0))]
    watched = [host.memory_bytes for host in hosts if host.memory_bytes is not None]
    if job.memory_bytes and len(watched) == len(hosts):
        asked.append(f"{format_size(job.memory_bytes)} of memory")
        most.append(f"{format_size(max(watched, default=0))} of memory")
    scratch = [host.scratch_bytes for host in hosts if host.scratch_bytes is not None]
    if scratch_bytes and len(scratch) == len(hosts):
        asked.append(f"{format_size(scratch_bytes)} of scratch space")
        most.append(f"{format_size(max(scratch, default=0))} of scratch space")
    text = f"job {job.id!r} needs {' and '.join(asked)} on one host"
    if not hosts:
        return f"{text}, and there is no host{where}"
    return f"{text}; of {counted(len(hosts), 'host')}{where} none has that (at most {' and '.join(most)})"


def cores_of(count: int) -> str:
    return counted(count, "core")


class Fitting:
    """The sites of a topology, each one host beside the node of an index, and which of them take a job."""

    __slots__ = ("_capacities_bytes", "_hosts", "_is_even", "_least_bytes", "_memory_bytes", "_shape", "nodes")

    def __init__(self, workflow: Workflow, shape: Shape, topology: Topology) -> None:
        self._shape, self._is_even = shape, topology.is_even
        sites = [(node, host) for node, hosts in enumerate(topology.hosts) for host in hosts]
        self.nodes, self._hosts = [node for node, _ in sites], [host for _, host in sites]
        self._capacities_bytes = [topology.nodes[node].capacity_bytes for node, _ in sites]
        self._least_bytes = min(self._capacities_bytes)
        self._memory_bytes = [] if self._is_even else [workflow.jobs[job].memory_bytes for job in shape.jobs]

    def sites(self, job: int) -> Sequence[int]:
        """Those that take it, and whose nodes have room for all that it needs at once. Where none does, all: a plan that cannot run is a
        plan, too.
        """
        everywhere: Sequence[int] = range(len(self._hosts))
        if not self._is_even:
            shape = self._shape
            asked = (shape.cores[job], self._memory_bytes[job], shape.reserve[job])
            everywhere = [site for site in everywhere if self._hosts[site].takes(*asked)] or everywhere
        least_bytes = self._shape.footprint[job]
        if least_bytes <= self._least_bytes:
            return everywhere
        return [site for site in everywhere if self._capacities_bytes[site] >= least_bytes] or everywhere
