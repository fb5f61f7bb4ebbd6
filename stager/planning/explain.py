"""Why a plan treats a file as it does, in words: `stager plan --explain LFN`.

May know: the model and the rest of planning. One rule: every number is printed with its basis, and every choice with its reason.
"""

from __future__ import annotations

from difflib import get_close_matches

from stager.model.errors import InvalidInput
from stager.model.files import File
from stager.model.topology import Topology
from stager.model.units import counted, format_duration, format_size
from stager.model.workflow import Graph, Workflow, bandwidths_of
from stager.planning.access import why_access
from stager.planning.iomodel import ENOUGH, client_throughput, replicas_that_pay
from stager.planning.plan import Access, Basis, FilePlan, JobPlan, Plan, Transport
from stager.planning.transport import WORTH, Way, has_space, striped_s, stripes_max, way_to, whole_s

READERS_MAX = 20
NODES_MAX = 8
BASIS_WORDS = {
    Basis.MEASURED: "measured by listing its origin",
    Basis.DECLARED: "declared in the workflow",
    Basis.PROFILE: "as earlier runs of this job type made it",
    Basis.DEFAULT: "a guess, nobody said",
}


def explain_file(workflow: Workflow, graph: Graph, plan: Plan, topology: Topology, lfn: str) -> list[str]:
    """Lines for a person. Raises InvalidInput, with near names, for a file the workflow does not have."""
    if lfn not in workflow.files:
        near = get_close_matches(lfn, workflow.files, 3)
        raise InvalidInput(
            f"workflow {workflow.name!r} has no file {lfn!r}" + (f"; near names: {', '.join(near)}" if near else ""), subject=lfn
        )
    file = workflow.files[lfn]
    planned = next(entry for entry in plan.files if entry.lfn == lfn)
    jobs = {entry.job: entry for entry in plan.jobs}
    lines = [f"{lfn}: {planned.size_bytes} bytes ({format_size(planned.size_bytes)}), {BASIS_WORDS[planned.size_basis]}"]
    lines += likely_lines(planned)
    topology = topology.bounded_by(bandwidths_of(workflow))
    lines += origin_lines(file, planned, topology) if file.is_external else producer_lines(graph, jobs, lfn)
    lines += reader_lines(graph, jobs, lfn)
    if graph.readers.get(lfn):
        lines.append(f"access: {why_access(file.kind, planned.access, planned.size_bytes)}{why_not_direct(graph, planned)}")
        lines += direct_lines(planned)
        lines.append(f"node: {planned.node}, {why_node(placer_of(graph, jobs, lfn))}")
        if len(topology.nodes) > 1:
            lines += replica_lines(planned, len(graph.readers[lfn]), topology)
            lines += durability_lines(planned, topology)
    lines += end_lines(file, graph, plan, planned)
    return lines


def likely_lines(planned: FilePlan) -> list[str]:
    spread = planned.size_spread
    if planned.expected_bytes == planned.size_bytes and spread in (None, 1.0):
        return []
    told = f"that is set aside; it will probably be {format_size(planned.expected_bytes)}"
    if spread is None:
        return [told]
    low, high = planned.expected_bytes / spread, planned.expected_bytes * spread
    return [f"{told}, about between {format_size(low)} and {format_size(high)}"]


def origin_lines(file: File, planned: FilePlan, topology: Topology) -> list[str]:
    lines = []
    for index, source in enumerate(file.sources):
        word = "from" if index == 0 else "else from"
        token = f", token {source.token!r}" if source.token else ""
        lines.append(f"{word} origin {source.location.origin!r}, path {source.location.path!r}{token}")
    link = topology.link(file.sources[0].location.origin)
    took = link.fetch_weighs(planned.size_bytes) / link.fetch_by(1) + link.latency_s
    basis = "the most that its origin's bandwidth allows" if link.bounded else "measured" if link.measured else "assumed"
    lines.append(f"fetching it alone takes about {format_duration(took)} at {format_size(link.fetch_by(1))}/s ({basis})")
    return [*lines, transport_line(planned, way_to(topology, file.sources[0].location.origin))]


def transport_line(planned: FilePlan, way: Way) -> str:
    size_bytes, stripes = planned.size_bytes, planned.stripes
    if planned.transport is Transport.PACK:
        trip = format_duration(way.latency_s)
        return f"transport: pack: small, and one of many from there; they come side by side, each in a round trip of {trip}"
    alone = f"{format_duration(whole_s(size_bytes, way))} over the line of one node ({format_size(way.line)}/s)"
    if planned.transport is Transport.STRIPE:
        took = format_duration(striped_s(size_bytes, stripes, way))
        return (
            f"transport: {stripes} stripes: about {took} over the lines of {stripes} nodes, assembled inside while they come, "
            f"against {alone}; the link gives {format_size(way.link)}/s"
        )
    most = stripes_max(size_bytes, way)
    if most < 2:
        narrow = "too small for stripes" if way.line < way.link else "the line of one node is as wide as the link"
        why = "there is one node" if way.nodes == 1 else narrow
    elif not has_space(size_bytes, most, way):
        why = f"{most} stripes would take more room than nodes of {format_size(way.capacities_bytes[most - 1])} should give"
    else:
        why = f"{most} stripes would take about {format_duration(striped_s(size_bytes, most, way))}: not under {WORTH:.0%} of {alone}"
    return f"transport: whole: {why}"


def producer_lines(graph: Graph, jobs: dict[str, JobPlan], lfn: str) -> list[str]:
    maker = jobs.get(graph.producer.get(lfn, ""))
    if maker is None:
        return ["nobody makes it"]
    basis = BASIS_WORDS[maker.compute_basis] if maker.compute_basis is not Basis.MEASURED else "measured"
    return [
        f"made by job {maker.job!r} (place {maker.order}), predicted at {format_duration(maker.finish_s)}; its computing time is {basis}"
    ]


def reader_lines(graph: Graph, jobs: dict[str, JobPlan], lfn: str) -> list[str]:
    readers = sorted((jobs[job] for job in graph.readers.get(lfn, ())), key=lambda entry: entry.order)
    if not readers:
        return ["no job reads it"]
    lines = [f"read by {counted(len(readers), 'job')}; first use predicted at {format_duration(min(entry.start_s for entry in readers))}"]
    lines += [
        f"  place {entry.order}: job {entry.job!r} on {entry.node}, from {format_duration(entry.start_s)}"
        for entry in readers[:READERS_MAX]
    ]
    if len(readers) > READERS_MAX:
        lines.append(f"  and {len(readers) - READERS_MAX} more")
    return lines


def placer_of(graph: Graph, jobs: dict[str, JobPlan], lfn: str) -> JobPlan:
    """The job whose node is the file's: the one that makes it, else the first that reads it."""
    maker = jobs.get(graph.producer.get(lfn, ""))
    return maker or min((jobs[job] for job in graph.readers[lfn]), key=lambda entry: entry.order)


def why_node(placer: JobPlan) -> str:
    if not placer.other_node or placer.other_finish_s is None:
        return "the only one"
    copied = f"after copying {format_size(placer.other_copies_bytes)} there" if placer.other_copies_bytes else "with nothing to copy"
    ends = f"job {placer.job!r} is predicted to end here at {format_duration(placer.finish_s)}"
    if placer.other_finish_s == placer.finish_s:
        return f"{ends}; on {placer.other_node!r} no sooner, {copied}"
    return f"{ends}, on {placer.other_node!r}, the best other node, at {format_duration(placer.other_finish_s)}, {copied}"


def replica_lines(planned: FilePlan, readers: int, topology: Topology) -> list[str]:
    """Where it will be, and what the contention formula says of getting it there (planning/iomodel.py)."""
    count, rates = len(planned.nodes), [min(node.network_bytes_per_s, node.disk_bytes_per_s) for node in topology.nodes]
    alone = f"a copy alone takes {copy_words(planned, min(rates), 1, 1)}"
    if count < 2:
        reason = "nobody else reads it" if readers == 1 else f"its {readers} readers end sooner here than after a copy elsewhere; {alone}"
        return [f"replicas: 1: {reason}"]
    shown = ", ".join(planned.nodes[:NODES_MAX]) + (f" and {count - NODES_MAX} more" if count > NODES_MAX else "")
    lines = [f"replicas: {count}, on {shown}: so the first of its {readers} readers end soonest; {alone}"]
    if count > 2:
        half = (count + 1) // 2
        lines.append(
            f"contention: {count - 1} nodes that copy it at once from 1 get it in {copy_words(planned, min(rates), count - 1, 1)}, "
            f"{count - half} from {half} in {copy_words(planned, min(rates), count - half, half)}: "
            "each that has it gives it to one at a time"
        )
    pays = replicas_that_pay(readers, len(rates))
    all_of_them = f"on fewer than all {pays} nodes its {readers} readers would share to less than {ENOUGH:.0%} of what they get from all"
    fewer = f"on {pays} of {len(rates)} nodes its {readers} readers would get {ENOUGH:.0%} of what they would from all"
    lines.append(f"shared: {all_of_them if pays == len(rates) else fewer}")
    return lines


def durability_lines(planned: FilePlan, topology: Topology) -> list[str]:
    """Of an intermediate, where a failure rate was given (planning/durability.py)."""
    if not planned.remake_s:
        return []
    rate = max(node.failures_per_hour for node in topology.nodes)
    again = f"a node is lost {rate:g} times an hour, so one copy is expected to cost the run {format_duration(planned.losing_s)}"
    again += f" (making it again takes {format_duration(planned.remake_s)})"
    second = "there is no room for a second copy"
    if planned.copying_s is not None:
        second = f"a second copy costs {format_duration(planned.copying_s)}"
    if planned.must_copy:
        why = "a job that would have to run again is not declared deterministic, or not idempotent"
        again = f"it cannot be left to be made again, {why}; {again}"
    head = f"{planned.safe_copies} copies" if planned.safe_copies > 1 else "1 copy, else made again"
    return [f"durability: {head}: {again}; {second}"]


def copy_words(planned: FilePlan, rate_bytes_per_s: float, clients: int, holders: int) -> str:
    each = client_throughput(rate_bytes_per_s, clients, holders)
    return f"{format_duration(planned.expected_bytes / each)} at {format_size(each)}/s"


def why_not_direct(graph: Graph, planned: FilePlan) -> str:
    """Of an input that more than one job reads."""
    readers = len(graph.readers[planned.lfn])
    if planned.lfn in graph.producer or readers < 2 or planned.direct_access is not None:
        return ""
    return f"; kept, so that it is fetched once and not by each of its {readers} readers"


def direct_lines(planned: FilePlan) -> list[str]:
    """Both ways of a file that could be read directly, in numbers."""
    both = planned.direct_access
    if both is None:
        return []
    kept = f"{format_size(both.kept_bytes)} over the wide area, the run takes {format_duration(both.kept_s)} at least"
    direct_access = f"{format_size(both.direct_bytes)}, {format_duration(both.direct_s)} at least"
    reads = [
        f"  a job of type {read.job_type!r} reads {format_size(read.size_bytes)} of it there in {format_duration(read.read_s)}"
        for read in both.reads
    ]
    chosen = "so directly" if planned.access is Access.DIRECT else "so kept"
    return [f"kept: {kept}; direct access: {direct_access}; {chosen}: {both.why}", *reads]


def end_lines(file: File, graph: Graph, plan: Plan, planned: FilePlan) -> list[str]:
    """When its bytes may go."""
    lines = []
    if file.destination is not None:
        where = file.destination.location
        lines.append(
            f"final: uploaded to origin {where.origin!r}, path {where.path!r}, as soon as it is made; may go once it is durable there"
        )
    last = next((entry.job for entry in plan.jobs if entry.order == planned.last_use), None)
    if planned.access is Access.DIRECT:
        lines.append("never on a node, unless it cannot be had directly: then it is fetched")
    elif file.is_external:
        lines.append(
            "may be given up at any time it is not in use, farthest next use first: it can be fetched again"
            if graph.readers.get(file.lfn)
            else "never fetched"
        )
    elif file.destination is None and last is None:
        lines.append("goes as soon as its job has ended: nobody reads it and it is not final")
    if last is not None:
        lines.append(f"last read by job {last!r} (place {planned.last_use}); after that it is needed no more")
        if not file.is_external and file.destination is None:
            lines.append(
                f"until then it is held on the node, or spilled to {plan.spill_origin!r} if space is short"
                if plan.spill_origin
                else "until then it is held on the node: there is no spill origin"
            )
    return lines
