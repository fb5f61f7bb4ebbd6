"""`stager resume RUN`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

import click

from stager.cli.mended import Again, go_on_with, read_again
from stager.cli.options import RunName, Where, capacity_option, settings_of, where_option
from stager.cli.progress import follow
from stager.cli.reach import find_run, reach, reach_with_capacity
from stager.cli.summary import print_summary
from stager.cli.workflow_file import credentials_for, credentials_of
from stager.client import RunClient
from stager.model.errors import InvalidInput
from stager.model.workflow import Workflow
from stager.service.settings import Settings
from stager.wire import Credentials

if TYPE_CHECKING:
    from stager.client import RestRun


@click.command(
    epilog="""\b
Example:
  stager resume montage-3f2a
  stager resume            (the newest run)
  stager resume montage-3f2a --capacity '20 GB'
  stager resume montage-3f2a --budget '30 USD'"""
)
@click.argument("run", required=False, type=RunName())
@click.option("--as-submitted", is_flag=True, help="do not check whether the workflow file or its inputs changed")
@click.option("--detach", is_flag=True, help="return at once")
@click.option("--env", "names", multiple=True, metavar="NAME", help="give this variable to jobs that name it in env_pass (with --server)")
@click.option("--quiet", "-q", is_flag=True, help="no progress, only the summary")
@click.option("--budget", default="", metavar="MONEY", help="what the run may cost in all, as in '30 USD', with what it has cost")
@capacity_option
@where_option
def command(
    run: str | None,
    names: tuple[str, ...],
    as_submitted: bool,
    detach: bool,
    quiet: bool,
    budget: str,
    capacity: int | None,
    where: Where,
) -> int:
    """Go on with RUN (default: the newest): after an interruption, a crash, or a failure whose cause was mended. Finished jobs do not run
    again; credentials are read anew.

    The workflow file is read again, and inputs are looked at: jobs that are not done take both as they are now, and what differs is
    said. Where the definition of a job that is done has changed, the resume is refused, with the names of such jobs: submit the workflow
    anew then, or add --as-submitted.

    With --capacity the I/O node has that much room from then on: a scheduler with other room that nobody needs is ended first, and one
    with active runs keeps what it has, so that nothing is resumed.

    A run that was paused before its budget was used up goes on with a larger one (--budget).

    At a service (--server) they are those that its administrator registered; --env gives variables that its jobs take from you.
    """
    if where.server and capacity is not None:
        raise click.UsageError("a service has the room that its administrator gave it: leave out --capacity, or --server")
    settings = settings_of(where.state_dir, capacity)
    variables = variables_of(settings, names)
    with reach(where) if capacity is None else reach_with_capacity(where.state_dir, capacity) as client:
        found = find_run(client, run)
        now = found.wait(timeout_s=0)
        if now.finished and now.state == "succeeded":
            click.echo(f"run {found.name} has succeeded: there is nothing to do")
            return 0
        notes = go_on(found, settings, variables, as_submitted=as_submitted or not now.finished, budget=budget)
        for note in notes:
            click.echo(f"run {found.name}: {note}", err=True)
        if detach:
            click.echo(found.name)
            return 0
        click.echo(f"run {found.name}: resumed", err=True)
        follow(found, quiet=quiet)
        return int(print_summary(found))


def variables_of(settings: Settings, names: Iterable[str]) -> dict[str, str]:
    """Raises InvalidInput for one that is not set: a job would begin without it."""
    for name in names:
        if name not in settings.environ:
            raise InvalidInput(f"--env names {name}, and it is not set here; export it, or leave it out", code="env_missing", subject=name)
    return {name: settings.environ[name] for name in names}


def go_on(
    found: RunClient | RestRun, settings: Settings, variables: Mapping[str, str], *, as_submitted: bool, budget: str = ""
) -> list[str]:
    """Over the socket with all that the run needs, as this environment has it; a service has its own word for origins. Returns the notes
    to print.
    """
    if not isinstance(found, RunClient):
        found.resume(variables, budget)
        return []

    def credentials(mended: Workflow | None) -> Credentials:
        if mended is not None:
            return credentials_of(settings, mended)
        needs = found.needs()
        return credentials_for(settings, needs.origin_values(), set(needs.env_pass))

    again = Again() if as_submitted else read_again(settings, found, found.status().info.submitted_at)
    return go_on_with(found, again, credentials, budget)
