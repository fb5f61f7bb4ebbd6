"""The way from a workflow to a run that may begin, the same for the command line, the REST API and the plugins: what may be submitted,
where finals go, the plan.

May know: the planner, the profiles of the state directory, the OriginAccess port. One rule: nothing is started here; every error is
raised before anything is.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

from stager.best_plan import best_plan
from stager.model.cluster import Cluster, ComputeNodes, IoNodes, WanLink
from stager.model.errors import Denied, InvalidInput, Refused, error_from, is_permanent
from stager.model.profile import Profiles
from stager.model.scatter import unknown
from stager.model.topology import Topology
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan, Sharing
from stager.planning.policy import Policy
from stager.planning.reuse import as_far_as
from stager.ports import OriginAccess
from stager.readers.lines import Node
from stager.readers.native_origins import parse_url
from stager.readers.sniff import WorkflowFormat
from stager.service.destinations import Answers, at_destinations, made_again, require_free
from stager.service.live_nodes import has_stores, limits_of, topology_here, with_joined
from stager.service.profiles import load_copying, load_deleting, load_links, load_overhead, load_profiles
from stager.service.settings import Settings
from stager.service.side_by_side import side_by_side
from stager.service.state_dir import StateDir, notify_file_of, results_of
from stager.sim.simulate import rare_collections

if TYPE_CHECKING:
    from stager.planning.ways import Within
    from stager.service.budgets import Chosen
    from stager.service.reusing import Remembered

DIRECTORIES_PROBED = 8
# Where disks are mounted by hand.
MOUNTS_BELOW = (Path("/mnt"), Path("/media"), Path("/run/media"))


@dataclass(frozen=True, slots=True)
class SubmitOptions:
    """The options of a submit. `spill`: the origin where intermediates may go when space is short. `copies`: on how many nodes what jobs
    make is to be; None: as the settings say. `reuse`: what earlier runs made is not made again, but for the jobs that `rerun` names; None:
    as the settings say. `until`: only what is needed for these. `begin`: these run, with all that follows, and nothing before them does.
    `verify_inputs`: nothing is believed of inputs because an earlier run read them.
    `within`: what the run may cost, and when it is to have ended. `nodes`: it keeps to the first so many; None: to all.
    """

    spill: str | None = None
    ignore_profiles: bool = False
    no_direct: bool = False
    copies: int | None = None
    reuse: bool | None = None
    rerun: tuple[str, ...] = ()
    until: tuple[str, ...] = ()
    begin: tuple[str, ...] = ()
    verify_inputs: bool = False
    within: Within | None = None
    nodes: int | None = None

    @property
    def reuse_by_name(self) -> bool:
        """Somebody asks for it, and does not only leave it as it is by default."""
        return self.reuse is True or bool(self.rerun or self.begin)


@dataclass(frozen=True, slots=True)
class SubmitContext:
    """Where a submit is prepared, how and for whom. `tenant` None: the owner. `env`: of the submitter; None: that of the settings."""

    settings: Settings
    access: OriginAccess
    options: SubmitOptions
    tenant: str | None = None
    env: Mapping[str, str] | None = None


@dataclass(frozen=True, slots=True)
class Ready:
    """A run that may begin. `found`: what need not run of it; None: all of it runs. `within`: the way to run it that was chosen, where
    somebody said what it may cost or when it is to end. `notes`: what to tell of its finals before it begins.
    """

    plan: Plan
    found: Remembered | None = None
    within: Chosen | None = None
    notes: tuple[str, ...] = ()


def ready_to_run(workflow: Workflow, context: SubmitContext) -> Ready:
    """Raises what would stop it. A tenant's directories are never made for it, and what an engine's run has no space for is one call, not
    the run.
    """
    settings, access, options, tenant = context.settings, context.access, context.options, context.tenant
    require_targets(workflow, settings)
    answers = seen_at_destinations(workflow, access, new_directories(workflow) if tenant is None else ())
    found = found_before(workflow, context, answers)
    notes: tuple[str, ...] = ()
    if not workflow.engine:
        there = require_free(workflow, access, StateDir(settings.state_dir).runs, tenant, answers)
        notes = made_again(workflow, there, reused_in(found))
    profiles, within = load_profiles(settings), None
    if options.within is None:
        plan = plan_with(workflow, settings, profiles, options, found)
    else:
        within = chosen_within(workflow, settings, profiles, options, found)
        plan = within.plan
    require_spill_reached(workflow, plan, settings)
    if not workflow.engine:
        check_capacity(plan)
    return Ready(plan, found, within, notes)


def seen_at_destinations(workflow: Workflow, access: OriginAccess, new: Collection[str]) -> Answers:
    """What is there of its finals; nothing for an engine's run. Raises as `require_destinations`, and looks beside it."""
    if workflow.engine:
        require_destinations(workflow, access, new)
        return {}
    looks: list[Callable[[], Any]] = [partial(require_destinations, workflow, access, new), partial(at_destinations, workflow, access)]
    _, answers = side_by_side(looks)
    found: Answers = answers
    return found


def reused_in(found: Remembered | None) -> Collection[str]:
    return found.reuse.reused if found is not None else ()


def require_targets(workflow: Workflow, settings: Settings) -> None:
    if workflow.notify:
        # Few name anybody.
        from stager.service.run_targets import require_allowed

        require_allowed(workflow, settings.notify_file or notify_file_of(StateDir(settings.state_dir)))


def chosen_within(workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions, found: Remembered | None) -> Chosen:
    # Most submits name no budget and no deadline, and begin sooner without this.
    from stager.service.budgets import chosen

    return chosen(workflow, settings, profiles, options, found)


def as_asked(workflow: Workflow, options: SubmitOptions) -> Workflow:
    """As far as it is asked for, and with its inputs fetched anew where they are to be verified. Raises InvalidInput."""
    found = as_far_as(workflow, options.until)
    return replace(found, anew=secrets.token_hex(8)) if options.verify_inputs else found


def with_members(workflow: Workflow, context: SubmitContext) -> Workflow:
    """With the jobs of members that an earlier run named, where that run stands for the job that would name them. Raises as a submit."""
    if not unknown(workflow.scatters):
        return workflow
    # Few workflows scatter over anything.
    from stager.service.members_before import with_members_before

    return with_members_before(workflow, context)


def asks_for_reuse(settings: Settings, options: SubmitOptions) -> bool:
    return options.reuse if options.reuse is not None else settings.reuse or options.reuse_by_name


def sharing_of(workflow: Workflow, settings: Settings, options: SubmitOptions, ready: Ready, tenant: str = "") -> Sharing | None:
    """None: it takes over nothing. Before the results are closed."""
    if not asks_for_reuse(settings, options):
        return None
    if ready.found is None:
        return Sharing(joins=True)
    from stager.service.guessing import guessed_jobs

    return Sharing(joins=True, forced=tuple(sorted(ready.found.forced)), guessed=guessed_jobs(workflow, ready.found, tenant))


def found_before(workflow: Workflow, context: SubmitContext, answers: Answers) -> Remembered | None:
    """None: all of it runs, and nobody asked why."""
    settings, options = context.settings, context.options
    if not asks_for_reuse(settings, options) or workflow.engine:
        return None
    path = results_of(StateDir(settings.state_dir))
    if not options.reuse_by_name and not path.exists():
        return None
    # The first run of a state directory begins sooner without this.
    from stager.service.reusing import Asker, remembered, require_begin

    asker = Asker(
        context.tenant,
        settings.environ if context.env is None else context.env,
        settings.environ,
        settings.state_dir,
        by_name=options.reuse_by_name,
        verify=options.verify_inputs,
    )
    with rare_collections():
        found = remembered(workflow, path, asker, answers, (options.rerun, options.begin))
    require_begin(workflow, found.reuse, options.begin)
    return found


def plan_with(workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions, found: Remembered | None) -> Plan:
    """The plan of what runs, widened to all jobs. What reused jobs made is read through a node that verifies it. What nodes keep is taken
    over where all files fit at once: then it is in nobody's way from the start, and any order fits.
    """
    if found is None or not found.reuse.reused:
        return plan_as_asked(workflow, settings, profiles, options)
    from stager.planning.residual import residual, widened

    part = residual(workflow, found.reuse)
    made_before = any(part.files[lfn].is_external and not workflow.files[lfn].is_external for lfn in part.files)
    plan = plan_as_asked(part, settings, profiles, replace(options, no_direct=options.no_direct or made_before))
    whole = widened(plan, workflow, found.reuse, topology_of(settings, workflow).nodes[0].id)
    if (found.reuse.kept or found.reuse.lent) and sum(file.size_bytes for file in whole.files) > whole.capacity_bytes:
        found.leave_kept(workflow)
        return plan_with(workflow, settings, profiles, options, found)
    return whole


def require_spill_reached(workflow: Workflow, plan: Plan, settings: Settings) -> None:
    """Raises Refused where jobs run beside nodes of other hosts, and intermediates would be spilled to a directory of this one."""
    spill = workflow.origins.get(plan.spill_origin) if plan.spill_origin is not None else None
    if spill is not None and spill.beside_workflow and settings.pool and has_stores(with_joined(settings)):
        text = f"intermediates cannot be spilled to {spill.name!r}, a directory beside the workflow that nodes of other hosts do not reach"
        raise Refused(f"{text}; name an origin that all of them reach, as sftp or S3", code="origin_elsewhere", subject=spill.name)


def plan_as_asked(workflow: Workflow, settings: Settings, profiles: Profiles, options: SubmitOptions) -> Plan:
    policy = policy_of(options.no_direct, copies_of(settings, options.copies))
    ignored = options.ignore_profiles
    return plan_of(workflow, settings, profiles, options.spill, ignore_profiles=ignored, policy=policy, nodes=options.nodes)


def reader_options(found: WorkflowFormat, output_origin: str | None, here: Path, given: Mapping[str, Node]) -> dict[str, Any]:
    """The options of the reader besides the file. Relative paths in it are below `here`. `given`: values of its parameters."""
    if given and found is not WorkflowFormat.NATIVE:
        text = f"parameters (--param and --params, or params over HTTP) are for native workflows, and this is a {found.value} one"
        raise InvalidInput(text, code="bad_parameter", subject=next(iter(given)))
    options: dict[str, Any] = {"given": given} if given else {}
    if output_origin is None:
        return options
    if found is not WorkflowFormat.PEGASUS:
        text = "an output origin (--output-origin, or output_origin over HTTP) is for Pegasus workflows"
        raise InvalidInput(f"{text}; a native workflow names its destinations itself", subject="options.output_origin")
    return options | {"output_origin": writable(origin_from_url(output_origin, "output", here))}


def require_runnable(found: WorkflowFormat, name: str) -> None:
    if found is WorkflowFormat.WFCOMMONS:
        text = f"{name} is a record of a run, whose programs are not here"
        raise InvalidInput(f"{text}; `stager replay` makes it run with real bytes", subject="workflow")


def require_native(workflow: Workflow) -> None:
    if workflow.engine:
        text = f"the jobs of this workflow are run by {workflow.engine}, and nothing here would start them"
        advice = "its plugin submits it, to /api/v1/engine-runs; `stager plan` and `stager validate` look at it"
        raise InvalidInput(f"{text}; {advice}", code="engines_workflow", subject="engine")


def origin_from_url(url: str, name: str, here: Path | None = None) -> Origin:
    """`/dir`, `file:dir`, `sftp://…`, `s3://…`. All else that an S3 origin needs comes from the usual AWS variables."""
    text = url if ":" in url.split("/")[0] else f"file:{url}"
    try:
        kind, clean = parse_url(text, here or Path.cwd())
    except ValueError as problem:
        raise InvalidInput(f"{url!r} is no origin: {problem}") from None
    return Origin(name, kind, clean)


def writable(origin: Origin) -> Origin:
    if origin.kind is OriginKind.HTTP:
        raise InvalidInput(f"{origin.url} is http, which can only be read; name a directory, sftp://, sshfs:// or s3:// for what is made")
    return origin


def topology_of(settings: Settings, workflow: Workflow) -> Topology:
    """The nodes that are here now, with what earlier runs measured of attempts and of the links to the workflow's origins."""
    links = load_links(settings, workflow)
    here = topology_here(settings, links)
    # Of the line of several nodes nobody knows which disk took how much.
    overhead = load_overhead(settings, links if len(here.nodes) == 1 else ())
    here = here.with_overhead(overhead.seconds, overhead.measured, overhead.file_s, overhead.file_measured)
    here = load_deleting(settings).of(here.with_disks(overhead.disk_bytes_per_s))
    return load_copying(settings).of(here) if len(here.nodes) > 1 else here


def require_spill(workflow: Workflow, spill: str | None) -> None:
    """An origin that can be written, where one is named."""
    if spill is not None and spill not in workflow.origins:
        raise InvalidInput(f"--spill {spill!r} is no origin of this workflow; it has {', '.join(sorted(workflow.origins))}")
    if spill is not None:
        writable(workflow.origins[spill])


def policy_of(no_direct: bool, copies: int = 1) -> Policy:
    return Policy(direct_access=not no_direct, copies=copies)


def copies_of(settings: Settings, asked: int | None) -> int:
    """Raises Refused where there are not as many nodes. One that is away counts: it may come back."""
    copies, nodes = asked or settings.copies, 1 + len(settings.nodes)
    if copies > nodes:
        there = "there is 1 I/O node" if nodes == 1 else f"there are {nodes} I/O nodes"
        text = f"{copies} copies of what jobs make need as many I/O nodes, and {there}"
        raise Refused(f"{text}; name more (STAGER_NODES), or ask for fewer copies", code="too_few_nodes", subject="copies")
    return copies


def plan_of(
    workflow: Workflow,
    settings: Settings,
    profiles: Profiles,
    spill: str | None,
    *,
    ignore_profiles: bool = False,
    policy: Policy | None = None,
    topology: Topology | None = None,
    nodes: int | None = None,
) -> Plan:
    require_spill(workflow, spill)
    limits = limits_of(settings)
    topology = topology or topology_of(settings, workflow)
    if settings.hosts_of or (settings.pool and has_stores(with_joined(settings))):
        # Hosts that share no files with their nodes work on copies.
        policy = replace(policy or Policy(), direct_access=False)
    plan = best_plan(workflow, topology, profiles, policy, limits, spill, ignore_profiles, with_range=True, nodes=nodes)
    return plan if policy is None or policy.copies == plan.copies else replace(plan, copies=policy.copies)


def destination_directories(workflow: Workflow) -> dict[str, list[str]]:
    """By origin that finals go to: their directories, the first DIRECTORIES_PROBED of them, since each costs a call and, over ssh,
    a login.
    """
    found: dict[str, dict[str, None]] = {}
    for file in workflow.files.values():
        if file.destination is not None:
            found.setdefault(file.destination.location.origin, {})[file.destination.location.path.rpartition("/")[0]] = None
    return {origin: list(directories)[:DIRECTORIES_PROBED] for origin, directories in found.items()}


def new_directories(workflow: Workflow) -> dict[str, Path]:
    """Of origins on this machine that finals go to: directories that are not there yet, and that `make_destinations` makes. Raises Denied
    or Refused where that cannot be, or should not.
    """
    found = {}
    for name in sorted(destination_directories(workflow)):
        url = urlsplit(workflow.origins[name].url)
        if url.scheme != "file" or os.path.lexists(unquote(url.path)):
            continue
        found[name] = directory = Path(unquote(url.path))
        above = next(parent for parent in directory.parents if os.path.lexists(parent))
        what = f"finals cannot go to the origin {name!r}: {directory} does not exist"
        if above in MOUNTS_BELOW or any(point == directory or point in directory.parents for point in unmounted()):
            raise Refused(f"{what}, and looks like a disk that is not mounted; mount it, or make the directory", subject=name)
        if not above.is_dir() or not os.access(above, os.W_OK | os.X_OK):
            raise Denied(f"{what} and cannot be made below {above}; make it, or choose another", subject=name)
    return found


def unmounted() -> list[Path]:
    """The mount points in this machine's table of disks on which nothing is mounted."""
    try:
        lines = Path("/etc/fstab").read_text(errors="replace").split("\n")
    except OSError:
        return []
    rows = [line.split() for line in lines if not line.lstrip().startswith("#")]
    points = [Path(row[1].replace("\\040", " ")) for row in rows if len(row) > 2 and row[1].startswith("/")]
    return [point for point in points if not os.path.ismount(point)]


def make_destinations(directories: dict[str, Path]) -> None:
    """As directories below an origin are made by what is uploaded there. Last of all, when nothing else is in the run's way."""
    for directory in directories.values():
        directory.mkdir(parents=True, exist_ok=True)


def require_destinations(workflow: Workflow, access: OriginAccess, new: Collection[str] = ()) -> None:
    """Raises what would keep finals from their origin for ever, before hours are spent on making them. A fault that may pass is left to
    the run's retries. `new`: origins that are yet to be made.
    """
    asked = [(name, at) for name, directories in sorted(destination_directories(workflow).items()) if name not in new for at in directories]
    probes = side_by_side([partial(access.probe, workflow.origins[name], at, write=True) for name, at in asked])
    faults = [
        replace(fault, message=f"finals cannot go to the origin {name!r}: {fault.message}")
        for (name, _), probe in zip(asked, probes, strict=True)
        for fault in probe.findings
        if is_permanent(fault)
    ]
    if faults:
        raise error_from(replace(faults[0], message="\n".join(dict.fromkeys(fault.message for fault in faults))))


def cluster_here(settings: Settings, workflow: Workflow) -> Cluster:
    """Where nobody says: one compute node like this machine, with the I/O node on it as `stager submit` has it, as much room as this
    machine's, links as runs from here measured them.
    """
    links = load_links(settings, workflow)
    overhead = load_overhead(settings, links)
    compute = ComputeNodes(
        1,
        settings.cores,
        settings.memory_bytes,
        overhead_s=overhead.seconds,
        overhead_measured=overhead.measured,
        overhead_file_s=overhead.file_s,
        overhead_file_measured=overhead.file_measured,
    )
    io = IoNodes(capacity_bytes=settings.capacity_bytes, on_compute_nodes=True)
    if overhead.disk_bytes_per_s is not None:
        io = replace(io, disk_bytes_per_s=overhead.disk_bytes_per_s, disk_measured=True)
    if (deleting := load_deleting(settings)).latency_s is not None:
        io = replace(io, delete_latency_s=deleting.latency_s, delete_measured=True)
    return replace(Cluster(), compute=compute, io=io, links={link.origin: WanLink(link) for link in links})
