"""From a workflow, a topology and what is known of its job types to a plan.

May know: the model and the rest of planning. One rule: the same arguments give the same plan, byte for byte; a plan that cannot run still
is a plan, and `check_capacity` says why not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from stager.model.errors import Refused
from stager.model.profile import NO_PROFILES, Profiles
from stager.model.topology import Topology
from stager.model.units import counted, format_size
from stager.model.workflow import Graph, Workflow, bandwidths_of, graph_of
from stager.planning import order as ordering
from stager.planning.beliefs import makespan_range
from stager.planning.choose_order import Chosen, Orders, choose_order, largest_made, made_orders
from stager.planning.digest import workflow_digest
from stager.planning.direct_access import Choice, choose_direct_access, choose_for_space
from stager.planning.durability import SINGLE, Kept, kept_files
from stager.planning.links import is_read_back, link_plans
from stager.planning.plan import DIRECT, PLAN_VERSION, Basis, DirectAccess, FilePlan, JobPlan, Plan, tidy
from stager.planning.policy import Limits, Policy
from stager.planning.schedule import Schedule, predict
from stager.planning.shape import Shape, shape_of
from stager.planning.sizes import GUESS_BYTES_MAX, Sized, expected, weakest
from stager.planning.space import pooled_bytes
from stager.planning.transport import WHOLE, Transported

# Guesses are lowered to these, in turn, before a workflow is called too large because of them.
GUESSES_BYTES_MAX = (GUESS_BYTES_MAX, 1024 * 1024, 4096)
TIGHTEST_FILES_MAX = 5
IGNORED = "made without the profiles of job types (--ignore-profiles): the plan leaves out the measurements of earlier runs"
NOTHING: Mapping[str, Any] = {}
HOW_TO_GIVE = "end a scheduler that runs with `stager shutdown`, then --capacity or STAGER_CAPACITY"


@dataclass(frozen=True, slots=True)
class Layout:
    """All of a plan that does not depend on which of the orders is taken. Jobs run in the `topology`, which may be some nodes of the
    `whole` one, or a part of their room; `guess`: what an output of unknown size was taken for."""

    workflow: Workflow
    topology: Topology
    whole: Topology
    spill_origin: str | None
    ignore_profiles: bool
    guess: int
    sized: Sized
    shape: Shape
    ranks: list[float]
    orders: Orders
    direct_access: Choice
    digest: str
    graph: Graph
    holds_max_bytes: int = 0


def make_plan(
    workflow: Workflow,
    topology: Topology,
    profiles: Profiles = NO_PROFILES,
    policy: Policy | None = None,
    limits: Limits | None = None,
    spill_origin: str | None = None,
    graph: Graph | None = None,
    ignore_profiles: bool = False,
    with_range: bool = False,
) -> Plan:
    """Raises Refused only for counts above the limits; too little capacity is the caller's `check_capacity`. `ignore_profiles`: what is
    declared still counts, and where nothing is a guess stands. `with_range`: it says how far its makespan may be off, too, which takes
    two more schedules.
    """
    layout = lay_out(workflow, topology, profiles, policy, limits, spill_origin, graph, ignore_profiles)
    return plan_in(layout, layout.orders.chosen, with_range)


def lay_out(
    workflow: Workflow,
    topology: Topology,
    profiles: Profiles = NO_PROFILES,
    policy: Policy | None = None,
    limits: Limits | None = None,
    spill_origin: str | None = None,
    graph: Graph | None = None,
    ignore_profiles: bool = False,
    nodes: int | None = None,
) -> Layout:
    """`nodes`: on the first so many; None: on all."""
    limits, profiles = limits or Limits(), NO_PROFILES if ignore_profiles else profiles
    whole = topology.bounded_by(bandwidths_of(workflow))
    topology = replace(whole, nodes=whole.nodes[:nodes])
    check_counts(workflow, limits)
    spill = spill_origin if spill_origin is not None else workflow.spill_origin
    graph = graph or graph_of(workflow)
    for guess in GUESSES_BYTES_MAX:
        sized = expected(workflow, graph.order, profiles, guess, min(node.disk_bytes_per_s for node in topology.nodes))
        shape, ranks, orders, direct_access = shape_and_orders(
            workflow, graph, sized, topology, profiles, policy or Policy(), spill is not None
        )
        if orders.smallest.least(topology) <= topology.node_bytes or not sized.guessed:
            break
    digest = workflow_digest(workflow)
    return Layout(workflow, topology, whole, spill, ignore_profiles, guess, sized, shape, ranks, orders, direct_access, digest, graph)


def narrowed(layout: Layout, holds_max_bytes: int) -> Layout:
    """As if no node had more room than that."""
    nodes = tuple([replace(node, capacity_bytes=min(node.capacity_bytes, holds_max_bytes)) for node in layout.topology.nodes])
    topology = replace(layout.topology, nodes=nodes)
    orders = choose_order(layout.workflow, layout.shape, topology, layout.orders.made)
    return replace(layout, topology=topology, orders=orders, holds_max_bytes=holds_max_bytes)


def plan_in(layout: Layout, chosen: Chosen, with_range: bool = False) -> Plan:
    """The plan to run in this order."""
    workflow, topology, sized, shape, ranks = layout.workflow, layout.topology, layout.sized, layout.shape, layout.ranks
    whole, names = layout.whole, tuple([node.id for node in topology.nodes])
    kept_to = replace(whole, nodes=whole.nodes[: len(names)])
    smallest, direct_access, spill = layout.orders.smallest, layout.direct_access, layout.spill_origin
    schedule = predict(workflow, shape, chosen.order, topology)
    kept = kept_files(workflow, shape, schedule, ranks, whole, chosen.peak)
    position = ordering.places(chosen.order)
    tightest = smallest.order[smallest.needs.index(smallest.each)] if smallest.needs else -1
    fetch, upload, readback = wan_bytes(workflow, shape, topology)
    ignored = (IGNORED,) if layout.ignore_profiles else ()
    least_s, most_s = range_of(workflow, shape, sized, chosen.order, topology, schedule) if with_range else (None, None)
    return Plan(
        version=PLAN_VERSION,
        workflow=workflow.name,
        workflow_digest=layout.digest,
        capacity_bytes=whole.capacity_bytes,
        smallest_capacity_bytes=smallest.smallest,
        peak_live_bytes=chosen.peak,
        spill_origin=spill,
        makespan_s=tidy(schedule.makespan_s),
        fetch_bytes=fetch,
        upload_bytes=upload,
        readback_bytes=readback,
        jobs=job_plans(shape, sized, chosen.order, ranks, schedule, topology),
        files=file_plans(workflow, shape, position, schedule, kept, topology, direct_access),
        notes=(*ignored, *notes_of(workflow, shape, sized, chosen, kept_to, layout.guess)),
        tightest_job=shape.jobs[tightest] if tightest >= 0 else "",
        tightest_files=tightest_files(shape, smallest, tightest, spill is not None),
        profiles_ignored=layout.ignore_profiles,
        links=link_plans(workflow.origins, topology),
        copying_bytes_per_s=min(min(node.network_bytes_per_s, node.disk_bytes_per_s) for node in topology.nodes),
        direct_read_bytes=sum(direct_access.weighed[file].direct_bytes for file in direct_access.chosen),
        nodes=len(whole.nodes),
        node_bytes=whole.node_bytes,
        smallest_node_bytes=max(0, smallest.least(whole)),
        keeps_to=names if len(names) < len(whole.nodes) else (),
        holds_max_bytes=layout.holds_max_bytes,
        **overhead_of(topology),
        makespan_least_s=least_s,
        makespan_most_s=most_s,
    )


def overhead_of(topology: Topology) -> dict[str, Any]:
    slowest = max(topology.nodes, key=lambda node: (node.overhead_s, node.overhead_file_s))
    disk = min(topology.nodes, key=lambda node: node.disk_bytes_per_s)
    copying = max(topology.nodes, key=lambda node: node.copy_latency_s)
    deleting = max(topology.nodes, key=lambda node: node.delete_latency_s)
    return {
        "delete_latency_s": tidy(deleting.delete_latency_s),
        "delete_latency_basis": Basis.MEASURED if deleting.delete_measured else Basis.DEFAULT,
        "copy_latency_s": tidy(copying.copy_latency_s),
        "copy_latency_basis": Basis.MEASURED if copying.copy_measured else Basis.DEFAULT,
        "disk_bytes_per_s": disk.disk_bytes_per_s,
        "disk_basis": Basis.MEASURED if disk.disk_measured else Basis.DEFAULT,
        "overhead_s": tidy(slowest.overhead_s),
        "overhead_basis": Basis.MEASURED if slowest.overhead_measured else Basis.DEFAULT,
        "overhead_file_s": tidy(slowest.overhead_file_s),
        "overhead_file_basis": Basis.MEASURED if slowest.overhead_file_measured else Basis.DEFAULT,
    }


def range_of(
    workflow: Workflow, shape: Shape, sized: Sized, order: list[int], topology: Topology, schedule: Schedule
) -> tuple[float, float]:
    least_s, most_s = makespan_range(workflow, shape, sized, order, topology, schedule.makespan_s)
    return tidy(least_s), tidy(most_s)


def shape_and_orders(
    workflow: Workflow, graph: Graph, sized: Sized, topology: Topology, profiles: Profiles, policy: Policy, can_spill: bool
) -> tuple[Shape, list[float], Orders, Choice]:
    """(shape, ranks, orders, what is read directly): where it does not fit, more is read directly than pays."""
    kept = shape = shape_of(workflow, graph, sized, topology)
    # What an engine's job reads is in a directory of its own: there is no mount of ours in it.
    direct_access = choose_direct_access(workflow, kept, profiles, topology) if policy.direct_access and not workflow.engine else Choice()
    while True:
        if direct_access.chosen:
            shape = shape_of(workflow, graph, sized, topology, direct_access.read_s())
        ranks = ordering.upward_ranks(shape)
        orders = choose_order(workflow, shape, topology, made_orders(workflow, shape, ranks, topology, can_spill))
        if not choose_for_space(kept, direct_access, over_bytes(kept, shape, orders.smallest, topology) if direct_access.weighed else ()):
            return shape, ranks, orders, direct_access


def over_bytes(kept: Shape, shape: Shape, chosen: Chosen, topology: Topology) -> list[int]:
    """By job, what would have to be read directly, with what is already: of all that is held in its turn what does not fit, and of what it
    needs by itself what no node has room for.
    """
    capacities, over = [node.capacity_bytes for node in topology.nodes], [0] * len(shape.jobs)
    largest = largest_made(shape)
    for job, held, twice in zip(chosen.order, chosen.held, chosen.twice, strict=True):
        beyond = max(held - pooled_bytes(capacities, largest, twice), shape.footprint[job] - max(capacities))
        over[job] = beyond + kept.footprint[job] - shape.footprint[job] if beyond > 0 else 0
    return over


def check_counts(workflow: Workflow, limits: Limits) -> None:
    for what, count, most in (("jobs", len(workflow.jobs), limits.jobs_max), ("files", len(workflow.files), limits.files_max)):
        if count > most:
            raise Refused(
                f"workflow {workflow.name!r} has {count} {what}, the limit is {most}; raise the limit or split the workflow",
                code="too_many",
            )


def tidy_factor(spread: float | None) -> float | None:
    return spread if spread is None or spread == 1.0 else tidy(spread)


def job_plans(
    shape: Shape, sized: Sized, order: list[int], ranks: list[float], schedule: Schedule, topology: Topology
) -> tuple[JobPlan, ...]:
    plans, names = [], [node.id for node in topology.nodes]
    for place, job in enumerate(order):
        expected_of, offer = sized.jobs[shape.jobs[job]], schedule.other[job]
        # By place, as files below.
        plans.append(
            JobPlan(
                shape.jobs[job],
                place,
                tidy(ranks[job]),
                names[schedule.node[job]],
                tidy(schedule.start_s[job]),
                tidy(schedule.finish_s[job]),
                tidy(expected_of.compute_s),
                expected_of.basis,
                shape.reserve[job],
                shape.footprint[job],
                weakest([shape.expected[file].basis for file in shape.outputs[job]]),
                tidy_factor(expected_of.spread),
                "" if offer is None else names[offer.node],
                None if offer is None else tidy(offer.finish_s),
                0 if offer is None else offer.copying.size_bytes,
            )
        )
    return tuple(plans)


def file_plans(
    workflow: Workflow,
    shape: Shape,
    position: list[int],
    schedule: Schedule,
    kept: list[Kept],
    topology: Topology,
    direct_access: Choice,
) -> tuple[FilePlan, ...]:
    plans, names = [], [node.id for node in topology.nodes]
    for file in sorted(range(len(shape.files)), key=shape.files.__getitem__):
        same = shape.same_as.get(file, file)
        lfn, nodes, readers = shape.files[file], schedule.nodes[same], shape.readers[same]
        expected_of = shape.expected[file]
        first, last = uses_of(readers, position) if readers else (-1, -1)
        # By place, and what few files have only for those: there are many files, and names cost most of the time.
        usual = (
            lfn,
            shape.size[file],
            expected_of.basis,
            shape.access[same],
            names[nodes[0] if nodes else 0],
            len(nodes) or 1,
            first,
            last,
            (workflow.files[lfn].sources[0].token or "") if shape.external[file] else "",
            shape.likely[file],
            tidy_factor(expected_of.spread),
        )
        more = rarely(shape.transport[same], kept[same], direct_access.weighed.get(same))
        if len(names) > 1:
            more = {**more, "nodes": tuple([names[node] for node in nodes])}
        plans.append(FilePlan(*usual, **more) if more else FilePlan(*usual))
    return tuple(plans)


def uses_of(readers: list[int], position: list[int]) -> tuple[int, int]:
    """Of these, the places of the first and the last."""
    if len(readers) == 1:
        place = position[readers[0]]
        return place, place
    places = [position[job] for job in readers]
    return min(places), max(places)


def rarely(chosen: Transported | None, kept: Kept, direct_access: DirectAccess | None) -> Mapping[str, Any]:
    """The fields that only few files of a plan have."""
    if (chosen is None or chosen is WHOLE) and kept is SINGLE and direct_access is None:
        return NOTHING
    return {**transport_of(chosen), **copies_of(kept), "direct_access": direct_access}


def transport_of(chosen: Transported | None) -> Mapping[str, Any]:
    if chosen is None or chosen is WHOLE:
        return NOTHING
    return {"transport": chosen.transport, "stripes": chosen.stripes}


def copies_of(kept: Kept) -> Mapping[str, Any]:
    if kept is SINGLE:
        return NOTHING
    return {
        "safe_copies": kept.safe_copies,
        "losing_s": kept.losing_s,
        "copying_s": kept.copying_s,
        "remake_s": kept.remake_s,
        "must_copy": kept.must,
    }


def wan_bytes(workflow: Workflow, shape: Shape, topology: Topology) -> tuple[int, int, int]:
    """(fetched, uploaded, read back to verify): each external that is kept and read once, each final once; fetching again for want of space
    is not in it.

    Runs show which origins are read back. Until then sftp counts as one that gives checksums, unless the workflow says no, and S3 too.
    """
    fetch = upload = readback = 0
    comes_back = {name: is_read_back(origin, topology.link(origin.name)) for name, origin in workflow.origins.items()}
    for file, size in enumerate(shape.likely):
        if shape.external[file] and shape.readers[file] and shape.access[file] is not DIRECT:
            fetch += size
        if (origin := shape.sent_to[file]) is not None:
            upload += size
            readback += size if comes_back.get(origin, False) else 0
    return fetch, upload, readback


def notes_of(workflow: Workflow, shape: Shape, sized: Sized, chosen: Chosen, topology: Topology, guess: int) -> tuple[str, ...]:
    notes = []
    if sized.guessed:
        notes.append(
            f"the sizes of {counted(sized.guessed, 'output')} are guesses of at most {format_size(guess)} each; "
            "declare `size` or let a first run measure them"
        )
    capacity = topology.capacity_bytes
    if chosen.smallest <= capacity < chosen.peak:
        notes.append(
            f"below {format_size(chosen.peak)} of capacity some files are given up and fetched again; there are {format_size(capacity)}"
        )
    cores = max(topology.host_cores)
    wide = [job for job, wanted in zip(shape.jobs, shape.cores, strict=True) if wanted > cores]
    if wide:
        notes.append(
            f"{counted(len(wide), 'job', 'asks', 'ask')} for more than the {counted(cores, 'core')} of a node, {wide[0]!r} the first: "
            "each runs alone on all that there are"
        )
    watched = [node.memory_bytes for node in topology.nodes if node.memory_bytes is not None]
    most = max(watched) if len(watched) == len(topology.nodes) else None
    large = [job for job in shape.jobs if most is not None and (workflow.jobs[job].memory_bytes or 0) > most]
    if large:
        notes.append(
            f"{counted(len(large), 'job', 'asks', 'ask')} for more than the {format_size(most or 0)} of memory of a node, "
            f"{large[0]!r} the first: each runs alone, and may be short of it"
        )
    return tuple(notes)


def tightest_files(shape: Shape, chosen: Chosen, job: int, can_spill: bool) -> tuple[str, ...]:
    """The largest files that must be there while this job runs."""
    if job < 0:
        return ()
    position = ordering.places(chosen.order)
    here = position[job]
    held = set(shape.inputs[job]) | set(shape.outputs[job])
    if not can_spill:
        for file, stays in enumerate(ordering.unspillable(shape)):
            reads = shape.readers[file]
            if stays and reads and position[shape.producer[file]] <= here <= max(position[reader] for reader in reads):
                held.add(file)
    largest = sorted(held, key=lambda file: (-shape.size[file], shape.files[file]))
    return tuple(shape.files[file] for file in largest[:TIGHTEST_FILES_MAX])


def check_capacity(plan: Plan) -> None:
    """Raises Refused if no order of the jobs known to us is sure to fit the capacity, with the number that would do."""
    if plan.node_bytes >= plan.smallest_node_bytes:
        return
    names = ", ".join(repr(lfn) for lfn in plan.tightest_files)
    need, have = (f"{size} bytes ({format_size(size)})" for size in (plan.smallest_node_bytes, plan.node_bytes))
    way_out = "" if plan.spill_origin else " or name a spill_origin, so that intermediates can be kept there"
    needed, why, give = f"{need} of capacity, there are {have}", "", f"give that much capacity ({HOW_TO_GIVE})"
    if plan.nodes > 1:
        needed, give = f"{need} of capacity on each of {plan.nodes} nodes, one has {have}", "give that much to each of them"
        why = "" if plan.spill_origin else ", and files do not fill several nodes exactly"
    raise Refused(
        f"workflow {plan.workflow!r} needs at least {needed}: job {plan.tightest_job!r} holds {names} at once{why}; {give}{way_out}",
        code="capacity_too_small",
        subject=plan.tightest_job,
    )
