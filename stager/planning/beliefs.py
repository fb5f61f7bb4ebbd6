"""How far the numbers of a plan may be off, by what each rests on, and what the run would take at both edges.

May know: the model and the rest of planning. One rule: a belief is a pair of factors that nine of ten real values lie between; where they
come from is said beside them (docs/operating/cost-estimate.md).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum

from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.links import link_plan
from stager.planning.plan import Access, Basis
from stager.planning.schedule import predict
from stager.planning.shape import Shape
from stager.planning.sizes import Sized


class Edge(Enum):
    """The run is as quick, or as slow, as what is believed allows."""

    QUICK = "quick"
    SLOW = "slow"


@dataclass(frozen=True, slots=True)
class Belief:
    """The real value lies between `least` and `most` times the number."""

    least: float
    most: float

    def of_amount(self, edge: Edge) -> float:
        """Of seconds or bytes: more of them is slower."""
        return self.most if edge is Edge.SLOW else self.least

    def of_rate(self, edge: Edge) -> float:
        return self.least if edge is Edge.SLOW else self.most


EXACT = Belief(1.0, 1.0)
# Of all jobs of a type together. A guess says next to nothing: jobs of the made set, scaled to short runs or not, take 0.01 to 100 s.
COMPUTE_S = {Basis.PROFILE: Belief(0.9, 1.15), Basis.DECLARED: Belief(0.8, 1.25), Basis.DEFAULT: Belief(1 / 100, 100.0)}
# Of what jobs make. Inputs were listed.
SIZE_BYTES = {
    Basis.MEASURED: EXACT,
    Basis.PROFILE: Belief(0.9, 1.1),
    Basis.DECLARED: Belief(0.8, 1.25),
    Basis.DEFAULT: Belief(1 / 30, 30.0),
}
# 36 ms are assumed; where the state directory is in memory, 0 to 12 ms were measured (2026-11-27).
OVERHEAD_S = {Basis.MEASURED: Belief(0.8, 1.3), Basis.DEFAULT: Belief(0.1, 4.0)}
# Of what jobs get of a node's disk: 500 MB/s are assumed, and a page cache gives thousands.
JOBS_DISK_RATE = {Basis.MEASURED: Belief(0.7, 1.5), Basis.DEFAULT: Belief(0.2, 10.0)}
# Of lines: nobody has seen one before the first run. 50 MB/s are assumed, and lines of 20 Mbit/s to 1 Gbit/s are usual; 50 ms, and a few
# to some hundreds are.
RATE = {Basis.MEASURED: Belief(0.85, 1.15), Basis.DECLARED: Belief(0.8, 1.25), Basis.DEFAULT: Belief(1 / 25, 2.5)}
LATENCY_S = {Basis.MEASURED: Belief(0.5, 1.5), Basis.DECLARED: Belief(0.5, 1.5), Basis.DEFAULT: Belief(0.02, 5.0)}
FILE_S = {Basis.MEASURED: Belief(0.7, 1.4), Basis.DECLARED: Belief(0.7, 1.4), Basis.DEFAULT: EXACT}
# A directory of this machine is a disk, quick or slow.
DISK_RATE = Belief(1 / 10, 20.0)
# What a file may cost where nothing is assumed of it: seconds of a fetch and of an upload. An account's start files take tenths of one.
FETCH_FILE_S_MAX, UPLOAD_FILE_S_MAX = 0.01, 0.1
# A login waits for start files, too.
LOGIN_S_MAX = 2.0
# Nor is anything assumed of a copy from node to node beside its bytes.
COPY_LATENCY_S_MAX = 0.1
# Of the plan itself, where all its numbers are right: it knows no turns at an origin, and no scheduler that has to decide.
MODEL = Belief(0.9, 1.1)


def makespan_range(
    workflow: Workflow, shape: Shape, sized: Sized, order: list[int], topology: Topology, makespan_s: float
) -> tuple[float, float]:
    """(from, to) in seconds: at least nine of ten runs should end between them. `topology` with declared bandwidths as bounds."""
    at_edges = {edge: predict(workflow, *at_edge(workflow, shape, sized, order, topology, edge)).makespan_s for edge in Edge}
    # The order is of the plan's own numbers; a list schedule can end sooner with slower jobs.
    least_s, most_s = (pick(makespan_s, *at_edges.values()) for pick in (min, max))
    return least_s * MODEL.least, most_s * MODEL.most


def at_edge(
    workflow: Workflow, shape: Shape, sized: Sized, order: list[int], topology: Topology, edge: Edge
) -> tuple[Shape, list[int], Topology]:
    """The question for `predict`, with every number as quick or as slow as it may be."""
    kinds = workflow.origins
    links = tuple(link_at_edge(topology.link(name), origin, edge) for name, origin in kinds.items())
    nodes = tuple(
        replace(
            node,
            overhead_s=node.overhead_s * OVERHEAD_S[measured(node.overhead_measured)].of_amount(edge),
            disk_bytes_per_s=node.disk_bytes_per_s * JOBS_DISK_RATE[measured(node.disk_measured)].of_rate(edge),
            overhead_file_s=node.overhead_file_s * OVERHEAD_S[measured(node.overhead_file_measured)].of_amount(edge),
            copy_latency_s=copy_latency_s_at_edge(node, edge),
        )
        for node in topology.nodes
    )
    there = replace(topology, nodes=nodes, links=links)
    return shape_at_edge(workflow, shape, sized, topology, there, edge), order, there


def copy_latency_s_at_edge(node: Node, edge: Edge) -> float:
    if not node.copy_measured and edge is Edge.SLOW:
        return COPY_LATENCY_S_MAX
    return node.copy_latency_s * LATENCY_S[measured(node.copy_measured)].of_amount(edge)


def measured(is_measured: bool) -> Basis:
    return Basis.MEASURED if is_measured else Basis.DEFAULT


def link_at_edge(link: OriginLink, origin: Origin, edge: Edge) -> OriginLink:
    known = link_plan(link)
    fetch, upload = (rate_belief(basis, origin).of_rate(edge) for basis in (known.fetch_basis, known.upload_basis))
    latency = LATENCY_S[known.latency_basis].of_amount(edge)
    slow = edge is Edge.SLOW and origin.kind is not OriginKind.FILE
    nobody_saw = known.upload_basis is Basis.DEFAULT and known.fetch_basis is Basis.DEFAULT
    return replace(
        link,
        fetch_bytes_per_s=link.fetch_bytes_per_s * fetch,
        upload_bytes_per_s=link.upload_bytes_per_s * upload,
        node_fetch_bytes_per_s=None if link.node_fetch_bytes_per_s is None else link.node_fetch_bytes_per_s * fetch,
        node_upload_bytes_per_s=None if link.node_upload_bytes_per_s is None else link.node_upload_bytes_per_s * upload,
        latency_s=link.latency_s * latency,
        upload_latency_s=None if link.upload_latency_s is None else link.upload_latency_s * latency,
        login_s=LOGIN_S_MAX if slow and link.login_s is None else link.login_s,
        reads_back=link.reads_back or (slow and nobody_saw),
        fetch_file_s=file_s_at_edge(link.fetch_file_s, known.fetch_file_basis, FETCH_FILE_S_MAX if slow else 0.0, edge),
        upload_file_s=file_s_at_edge(link.upload_file_s, known.upload_file_basis, UPLOAD_FILE_S_MAX if slow else 0.0, edge),
    )


def rate_belief(basis: Basis, origin: Origin) -> Belief:
    return DISK_RATE if basis is Basis.DEFAULT and origin.kind is OriginKind.FILE else RATE[basis]


def file_s_at_edge(file_s: float | None, basis: Basis, unseen_s: float, edge: Edge) -> float | None:
    """`unseen_s`: what it may be where nobody measured or said it."""
    return unseen_s if file_s is None else file_s * FILE_S[basis].of_amount(edge)


def shape_at_edge(workflow: Workflow, shape: Shape, sized: Sized, topology: Topology, there: Topology, edge: Edge) -> Shape:
    """`there`: the topology at this edge. Where a file is external it is as large as it was listed."""
    computing = factors(COMPUTE_S, edge)
    sizes = factors(SIZE_BYTES, edge)
    likely = [round(size * sizes[known.basis]) for known, size in zip(shape.expected, shape.likely, strict=True)]
    quicker = {name: there.link(name).fetch_by(1) / topology.link(name).fetch_by(1) for name in workflow.origins}
    disk = min(node.disk_bytes_per_s for node in there.nodes)
    made_s = max(node.overhead_file_s for node in there.nodes)
    direct_access = any(access is Access.DIRECT for access in shape.access)
    slowest = 1 / min(quicker.values(), default=1.0)
    return replace(
        shape,
        likely=likely,
        compute_s=[seconds * computing[sized.jobs[job].basis] for job, seconds in zip(shape.jobs, shape.compute_s, strict=True)],
        local_s=[
            sum(likely[file] for file in (*makes, *reads)) / disk + made_s * len(makes)
            for reads, makes in zip(shape.held, shape.outputs, strict=True)
        ],
        fetch_rate=[
            rate if origin is None else rate * quicker[origin] for rate, origin in zip(shape.fetch_rate, shape.fetched_from, strict=True)
        ],
        direct_s=[seconds * slowest for seconds in shape.direct_s] if direct_access else shape.direct_s,
    )


def factors(beliefs: Mapping[Basis, Belief], edge: Edge) -> dict[Basis, float]:
    return {basis: belief.of_amount(edge) for basis, belief in beliefs.items()}
