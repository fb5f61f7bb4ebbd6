"""Handing a workflow to the scheduler and seeing it through: shared by submit, replay and resume."""

from __future__ import annotations

import click

from stager.cli.progress import follow
from stager.cli.summary import print_summary
from stager.client import connect_or_start
from stager.model.workflow import Workflow
from stager.planning.plan import Plan
from stager.service.settings import Settings
from stager.wire import Credentials


def run_to_end(settings: Settings, workflow: Workflow, plan: Plan, credentials: Credentials, *, detach: bool = False, quiet: bool = False) -> int:
    """Starts the scheduler of the state directory where none runs. Returns the exit code."""
    with connect_or_start(settings.state_dir, settings.scheduler_arguments()) as client:
        name = client.submit(workflow, plan, credentials)
        if detach:
            click.echo(name)
            return 0
        click.echo(f"run {name}: {workflow.name}, {len(workflow.jobs)} jobs", err=True)
        run = client.run(name)
        follow(run, quiet=quiet)
        return int(print_summary(run))
