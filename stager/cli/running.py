"""Handing a workflow to the scheduler and seeing it through: shared by submit, replay and resume."""

from __future__ import annotations

from typing import Any

import click

from stager.cli.options import print_json
from stager.cli.progress import InterruptHandler, follow
from stager.cli.range import range_text
from stager.cli.summary import print_summary
from stager.client import Client, connect_or_start
from stager.client.warm_start import WarmStart
from stager.model.units import counted, format_duration, format_size
from stager.model.workflow import Workflow
from stager.planning.budget import Budget
from stager.planning.plan import Plan, ReusedJob, Sharing
from stager.service.settings import Settings
from stager.wire import Credentials


def run_to_end(
    settings: Settings,
    workflow: Workflow,
    plan: Plan,
    credentials: Credentials,
    *,
    warm: WarmStart | None = None,
    priority: int = 0,
    detach: bool = False,
    quiet: bool = False,
    as_json: bool = False,
    reused: tuple[ReusedJob, ...] = (),
    budget: Budget | None = None,
    sharing: Sharing | None = None,
) -> int:
    """Starts the scheduler of the state directory where none runs, in the process `warm` where there is one. Returns the exit code."""
    words: dict[str, Any] = {"priority": priority, "reused": reused, "budget": budget, "sharing": sharing}
    with connect_or_start(settings.state_dir, settings.scheduler_arguments(), warm) as client:
        if warm is not None:
            warm.close()
        tell_capacity(client, settings)
        if detach:
            name = client.submit(workflow, plan, credentials, **words)
            if as_json:
                print_json({"run": name, "state": client.run(name).wait(timeout_s=0).state})
            else:
                click.echo(name)
            return 0
        interrupts = InterruptHandler()
        # From here on the run may be there already, and Ctrl-C is for it.
        with interrupts.heard():
            run = client.run(client.submit(workflow, plan, credentials, **words))
            click.echo(f"run {run.name}: {workflow.name}, {counted(len(workflow.jobs), 'job')}{predicted(plan)}", err=True)
            follow(run, quiet=quiet or as_json, interrupts=interrupts)
        return int(print_summary(run, as_json=as_json))


def predicted(plan: Plan) -> str:
    said = range_text(plan)
    return f", predicted {format_duration(plan.makespan_s)}{f' ({said})' if said else ''}"


def tell_capacity(client: Client, settings: Settings) -> None:
    """A scheduler that lives has the capacity it was started with, whatever this command was told."""
    for node in client.health().nodes if settings.capacity_given else []:
        if node.embedded and node.capacity_bytes not in (0, settings.capacity_bytes):
            told = f"the scheduler that runs has {format_size(node.capacity_bytes)} of capacity and keeps it"
            advice = f"to give it {format_size(settings.capacity_bytes)}, end it with `stager shutdown` first"
            click.echo(f"note: {told}; {advice}", err=True)
