"""A submit to the scheduler of this machine's state directory, from the workflow file to the end of the run.

May know: the readers, the planner, the scheduler's client. One rule: every error of the workflow is raised before anything is started that
touches the state directory.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.options import Bounds, Given, bounded
from stager.cli.running import run_to_end
from stager.cli.workflow_file import credentials_of, read_to_run
from stager.client.warm_start import WarmStart
from stager.model.workflow import Workflow
from stager.planning.plan import ReusedJob
from stager.readers.sniff import sniff
from stager.service.prepare import (
    Ready,
    SubmitContext,
    SubmitOptions,
    as_asked,
    make_destinations,
    new_directories,
    ready_to_run,
    require_native,
    require_runnable,
    sharing_of,
    with_members,
)
from stager.service.settings import Settings


def submit_here(
    settings: Settings,
    file: Path,
    output_origin: str | None,
    given: Given,
    plan_file: Path | None,
    asked: SubmitOptions,
    bounds: Bounds,
    warm: WarmStart | None,
    *,
    priority: int,
    detach: bool,
    quiet: bool,
    as_json: bool,
) -> int:
    """The exit code. `warm`: a process that can become the scheduler."""
    require_runnable(sniff(file), str(file))
    access = IonodeOriginAccess(settings.environ)
    workflow = read_to_run(settings, file, output_origin, given, access)
    require_native(workflow)
    workflow = as_asked(workflow, asked)
    if plan_file is None:
        asked = bounded(asked, bounds, settings, workflow)
    elif workflow.bounds.said:
        from stager.cli.bounds import require_unbounded

        require_unbounded(bounds, workflow.bounds)
    context = SubmitContext(settings, access, asked)
    workflow = with_members(workflow, context)
    ready = ready_to_run(workflow, context)
    plan, reused = ready.plan, told_reuse(workflow, ready, by_name=asked.reuse_by_name)
    budget = ready.within.budget if ready.within is not None else None
    for line in (*ready.notes, *(ready.within.lines if ready.within is not None else ())):
        click.echo(line, err=True)
    if plan_file is not None:
        from stager.cli.approved_plan import as_approved
        from stager.service.profiles import load_profiles

        plan = as_approved(plan_file, plan, workflow, settings, load_profiles(settings), asked)
    make_destinations(new_directories(workflow))
    credentials = credentials_of(settings, workflow)
    sharing = sharing_of(workflow, settings, asked, ready)
    words: dict[str, Any] = {"reused": reused, "budget": budget, "sharing": sharing, "detach": detach, "quiet": quiet, "as_json": as_json}
    return run_to_end(settings, workflow, plan, credentials, warm=warm, priority=priority, **words)


def told_reuse(workflow: Workflow, ready: Ready, *, by_name: bool) -> tuple[ReusedJob, ...]:
    """What need not run, and says so before anything starts."""
    if ready.found is None:
        return ()
    from stager.service.reusing import reuse_lines, reused_jobs

    for line in reuse_lines(workflow, ready.found, ready.plan, by_name=by_name):
        click.echo(line, err=True)
    return reused_jobs(workflow, ready.found.reuse)
