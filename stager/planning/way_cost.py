"""What a plan takes and costs where it would run: one way to run a workflow, with the prices that it pays.

May know: the model, plans, what is believed of links and times. One rule: each figure has an upper end, by what its parts rest on.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import structs

from stager.model.cluster import Charged, Cluster
from stager.model.prices import ClusterPrices
from stager.model.topology import OriginLink, Topology
from stager.model.workflow import OriginKind, Workflow, graph_of
from stager.planning.beliefs import COMPUTE_S, JOBS_DISK_RATE, MODEL, OVERHEAD_S, SIZE_BYTES, Edge, link_at_edge, measured
from stager.planning.budget import AT_ONCE, Budget, Moved, PaidNodes, fetch_of, money_of, upload_of
from stager.planning.cost import storage_money
from stager.planning.links import comes_behind, is_read_back
from stager.planning.plan import Access, Basis, FilePlan, Plan
from stager.planning.same_place import first_names
from stager.planning.ways import Way


def way_of(workflow: Workflow, topology: Topology, cluster: Cluster, paid: ClusterPrices, plan: Plan, reused: frozenset[str]) -> Way:
    keeps_to = plan.keeps_to or tuple([node.id for node in topology.nodes])
    hosts = [len(its) for node, its in zip(topology.nodes, topology.hosts, strict=True) if node.id in keeps_to]
    # Jobs of nodes that name no hosts run on this machine, whatever node they read from.
    compute_nodes = sum(hosts) if topology.names_hosts else 1
    on_them = cluster.io.on_compute_nodes
    io_nodes = 0 if on_them and not topology.names_hosts else max(0, len(keeps_to) - (compute_nodes if on_them else 0))
    budget = unlimited(workflow, cluster, paid, compute_nodes, io_nodes, sum(node.capacity_bytes for node in topology.nodes))
    expected, most = traffic_of(workflow, plan, budget, reused)
    budget = structs.replace(budget, egress_bytes=expected.egress_bytes, reads=expected.reads, writes=expected.writes)
    budget = structs.replace(budget, **going_home(workflow, topology, plan))
    wall_s, wall_s_most = plan.makespan_s, max(plan.makespan_s, plan.makespan_most_s or 0.0)
    how = f"on {len(keeps_to)} of {plan.nodes} nodes" if plan.nodes > 1 else "on the node here"
    if any(file.access is Access.DIRECT for file in plan.files):
        how += ", reading some inputs directly"
    money, money_most = money_of(budget, expected, wall_s), money_of(budget, most, wall_s_most)
    return Way(how, plan, budget, wall_s, wall_s_most, money, money_most, unpriced=unpriced(workflow, paid, budget, io_nodes))


def unpriced(workflow: Workflow, paid: ClusterPrices, budget: Budget, io_nodes: int) -> tuple[str, ...]:
    """What a run here would have to pay, and the table has no price of. No run keeps objects."""
    wanted = {
        "egress": budget.fetch_charged or budget.upload_charged,
        "requests": any(origin.kind is OriginKind.S3 for origin in workflow.origins.values()),
        "volumes": io_nodes and not paid.io.own_disk,
    }
    return tuple([name for name in paid.missing if wanted.get(name)])


def unlimited(workflow: Workflow, cluster: Cluster, paid: ClusterPrices, compute_nodes: int, io_nodes: int, volume_bytes: int) -> Budget:
    """The prices that a run pays here, without an amount."""
    nodes = [PaidNodes(compute_nodes, paid.compute.per_hour, paid.compute.billed_every_s, paid.compute.billed_at_least_s)]
    nodes += [PaidNodes(io_nodes, paid.io.per_hour, paid.io.billed_every_s, paid.io.billed_at_least_s)] if io_nodes else []
    volumes = storage_money(volume_bytes, 1.0, paid.volumes_per_gb_month) if io_nodes and not paid.io.own_disk else 0.0
    charged = {name: cluster.charged(workflow, name) for name in sorted(workflow.origins)}
    asked = paid.requests
    return Budget(
        currency=paid.currency,
        nodes=tuple(nodes),
        volumes_per_s=volumes,
        egress=tuple([(tier.up_to_bytes, tier.per_gb) for tier in paid.egress]),
        per_read=asked.reads_per_1000 / 1000 if asked is not None else 0.0,
        per_write=asked.writes_per_1000 / 1000 if asked is not None else 0.0,
        fetch_charged=tuple([name for name, how in charged.items() if how in (Charged.FETCH, Charged.BOTH)]),
        upload_charged=tuple([name for name, how in charged.items() if how in (Charged.UPLOAD, Charged.BOTH)]),
        buckets=tuple([name for name in charged if workflow.origins[name].kind is OriginKind.S3 and asked is not None]),
        compute_most={basis.value: belief.most * MODEL.most for basis, belief in COMPUTE_S.items()},
    )


def traffic_of(workflow: Workflow, plan: Plan, budget: Budget, reused: frozenset[str]) -> tuple[Moved, Moved]:
    """(expected, at most) between nodes and origins, of the jobs that run."""
    graph, planned = graph_of(workflow), {entry.lfn: entry for entry in plan.files}
    expected, most = Moved(), Moved()
    same_as = first_names(workflow)
    read_by = {lfn: [job for job in jobs if job not in reused] for lfn, jobs in graph.readers.items()}
    for lfn, name in same_as.items():
        read_by[name] += read_by[lfn]
    for lfn, file in workflow.files.items():
        if lfn in same_as:
            continue
        entry, producer, readers = planned[lfn], graph.producer.get(lfn), read_by[lfn]
        if file.destination is not None and producer not in reused:
            origin, size_bytes = file.destination.location.origin, entry.expected_bytes
            expected.add(upload_of(budget, origin, size_bytes))
            most.add(upload_of(budget, origin, round(size_bytes * SIZE_BYTES[entry.size_basis].most)))
        elif readers and (file.is_external or producer in reused):
            origin = file.sources[0].location.origin if file.is_external else file.destination.location.origin if file.destination else ""
            for moved in (expected, most):
                moved.add(read_of(workflow, budget, entry, origin, readers))
    return expected, most


def read_of(workflow: Workflow, budget: Budget, entry: FilePlan, origin: str, readers: Sequence[str]) -> Moved:
    """Once to a node, or by each of its readers directly."""
    if entry.access is not Access.DIRECT:
        return fetch_of(budget, origin, entry.expected_bytes)
    moved = Moved()
    reads = {read.job_type: read.size_bytes for read in entry.direct_access.reads} if entry.direct_access is not None else {}
    for job in readers:
        moved.add(fetch_of(budget, origin, reads.get(workflow.jobs[job].job_type, entry.expected_bytes)))
    return moved


def going_home(workflow: Workflow, topology: Topology, plan: Plan) -> dict[str, float]:
    """How fast finals go to the slowest of their destinations, as expected and at the slowest; and how slow attempts may be."""
    names = sorted({file.destination.location.origin for file in workflow.files.values() if file.destination is not None})
    expected_s = slowest_s = file_s = 0.0
    for name in names:
        origin, link = workflow.origins[name], topology.link(name)
        slow = link_at_edge(link, origin, Edge.SLOW)
        comes_back = is_read_back(origin, link)
        behind = comes_back and comes_behind(origin, link, usual_bytes(workflow, plan, name))
        expected_s = max(expected_s, byte_s(link, comes_back=comes_back, behind=behind))
        slowest_s = max(slowest_s, byte_s(slow, comes_back=is_read_back(origin, slow)))
        file_s = max(file_s, slow.before_upload_s + (slow.upload_file_s or 0.0) + (slow.login_s or 0.0) + slow.latency_s)
    overhead = OVERHEAD_S.get(plan.overhead_basis, OVERHEAD_S[Basis.DEFAULT]).most
    disk = 1 / JOBS_DISK_RATE[measured(plan.disk_basis is Basis.MEASURED)].least
    return {
        "home_bytes_per_s": 1 / expected_s if expected_s else AT_ONCE,
        "home_bytes_per_s_least": 1 / slowest_s if slowest_s else AT_ONCE,
        "home_file_s_most": file_s,
        "beside_most": max(overhead, disk) * MODEL.most,
    }


def usual_bytes(workflow: Workflow, plan: Plan, origin: str) -> float:
    """The mean size of the finals there."""
    goes = {lfn for lfn, file in workflow.files.items() if file.destination is not None and file.destination.location.origin == origin}
    return sum(entry.expected_bytes for entry in plan.files if entry.lfn in goes) / max(1, len(goes))


def byte_s(link: OriginLink, *, comes_back: bool, behind: bool = False) -> float:
    """Of one node's line, with what is read back to be verified; `behind`: while it is written."""
    out_s, back_s = 1 / link.upload_by(1), 1 / link.fetch_by(1) if comes_back else 0.0
    return max(out_s, back_s) if behind else out_s + back_s
