"""From a file on the command line to a workflow, a plan and credentials: calls the readers and the planner in their order.

One rule: nothing is started here; every error is said before anything is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stager.adapters.origin_access import IonodeOriginAccess
from stager.adapters.origin_config import resolve_all
from stager.model.errors import InvalidInput, Refused
from stager.model.files import OnExists
from stager.model.profile import Profiles
from stager.model.topology import Topology
from stager.model.units import format_size
from stager.model.workflow import Origin, Workflow
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan
from stager.planning.plan_json import diff, from_json
from stager.planning.policy import Policy
from stager.ports import OriginAccess
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from stager.readers.topology import read_topology
from stager.service.prepare import origin_from_url, plan_of, writable
from stager.service.settings import Settings
from stager.wire import Credentials


def reader_options(file: Path, output_origin: str | None) -> dict[str, Origin]:
    if output_origin is None:
        return {}
    if sniff(file) is not WorkflowFormat.PEGASUS:
        raise InvalidInput("--output-origin is for Pegasus workflows; a native workflow names its destinations itself")
    return {"output_origin": writable(origin_from_url(output_origin, "output"))}


def read_only(settings: Settings, file: Path, output_origin: str | None, access: OriginAccess | None = None) -> Workflow:
    """With globs listed and sizes found where the origins can be asked."""
    return read_workflow(file, access=access or IonodeOriginAccess(settings.environ), options=reader_options(file, output_origin))


def cluster_topology(path: Path, workflow: Workflow) -> Topology:
    """With as many I/O nodes as the file says, at least one."""
    cluster = read_topology(path)
    return cluster.topology(workflow, max(1, cluster.io.nodes))


def approved_plan(path: Path, fresh: Plan, plan_at: Callable[[int], Plan] | None) -> Plan:
    """The plan in a file, if nothing it rests on has changed since, and never another one. Raises Refused with what did. `plan_at` plans
    again for a capacity, where nobody asked for the one there is: free disk may have moved it.
    """
    approved = from_json(path.read_bytes(), str(path))
    moved = approved.capacity_bytes != fresh.capacity_bytes
    changes = diff(approved, plan_at(approved.capacity_bytes) if moved and plan_at is not None else fresh)
    same_order = [job.job for job in approved.jobs] == [job.job for job in fresh.jobs]
    if not changes and not same_order and fresh.capacity_bytes < approved.peak_live_bytes:
        # An order that was chosen for more room may not fit in less.
        need = f"the order of its jobs was chosen for {format_size(approved.capacity_bytes)} and may need {approved.peak_live_bytes} bytes"
        changes = [*diff(approved, fresh), f"{need}: make room on the disk, or ask for as much with --capacity"]
    if changes:
        listed = "\n  ".join(changes)
        raise Refused(
            f"{path} is not the plan of what is there now:\n  {listed}\nlook at it and write it again with `stager plan --output {path}`",
            code="plan_changed",
        )
    return approved


def require_runnable(file: Path) -> None:
    if sniff(file) is WorkflowFormat.WFCOMMONS:
        raise InvalidInput(f"{file} is a record of a run, its programs are not here; `stager replay {file}` makes it run with real bytes")


def require_ours(workflow: Workflow) -> None:
    if workflow.engine:
        text = f"the jobs of this workflow are run by {workflow.engine}, and nothing here would start them"
        raise InvalidInput(f"{text}; its plugin submits it, `stager plan` and `stager validate` look at it", subject="engine")


def ready_to_run(
    workflow: Workflow,
    settings: Settings,
    profiles: Profiles,
    spill: str | None,
    plan_file: Path | None,
    *,
    ignore_profiles: bool = False,
    policy: Policy | None = None,
) -> Plan:
    ways: dict[str, Any] = {"ignore_profiles": ignore_profiles, "policy": policy}
    plan = plan_of(workflow, settings, profiles, spill, **ways)
    check_capacity(plan)
    if plan_file is None:
        return plan

    def plan_at(capacity_bytes: int) -> Plan:
        return plan_of(workflow, replace(settings, capacity_bytes=capacity_bytes), profiles, spill, **ways)

    return approved_plan(plan_file, plan, None if settings.capacity_given else plan_at)


def credentials_of(settings: Settings, workflow: Workflow) -> Credentials:
    """Resolved in the submitter's environment: they travel over the 0600 socket and are kept in memory only."""
    return credentials_for(settings, workflow.origins.values(), {name for job in workflow.jobs.values() for name in job.env_pass})


def credentials_for(settings: Settings, origins: Iterable[Origin], env_pass: set[str]) -> Credentials:
    environ = settings.environ
    return Credentials(resolve_all(origins, environ), {name: environ[name] for name in sorted(env_pass) if name in environ})


def replacing(workflow: Workflow) -> Workflow:
    """Finals of a replay replace what an earlier replay left."""
    files = {
        lfn: replace(file, destination=replace(file.destination, on_exists=OnExists.REPLACE)) if file.destination is not None else file
        for lfn, file in workflow.files.items()
    }
    return replace(workflow, files=files)
