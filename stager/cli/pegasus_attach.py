"""`stager pegasus attach SUBMIT_DIR`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from stager.cli.exits import Exit, exit_of
from stager.cli.options import capacity_option, settings_of, state_dir_option
from stager.cli.running import tell_capacity
from stager.cli.workflow_file import credentials_of
from stager.client import Client, connect, connect_or_start
from stager.client.socket_engines import SocketEngineRun
from stager.model.errors import Transient
from stager.model.units import counted, format_size
from stager.model.workflow import Workflow
from stager.readers.pegasus_attached import attached_workflow
from stager.readers.pegasus_planned import Planned, read_planned
from stager.service.pegasus_attach import Follower, Records, known_run, leave_word, prepared, progress_of, register, word_left
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.wire import RunInfo

# By a person, so that only a person has it go on.
STOPPED = ("cancelled", "interrupted")
POLL_S = 1.0
AGAIN_S = 2.0


@click.command(
    "attach",
    epilog="""\b
Example:
  stager pegasus attach submit/me/pegasus/diamond/run0001
  stager pegasus attach submit/me/pegasus/diamond/run0001 --once""",
)
@click.argument("submit_dir", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--once", is_flag=True, help="register it, print how far it is, and return: for cron, or where nothing shall follow it")
@click.option("--quiet", "-q", is_flag=True, help="say only what is wrong")
@capacity_option
@state_dir_option
def attach(submit_dir: Path, once: bool, quiet: bool, capacity: int | None, state_dir: Path | None) -> int:
    """Stage the data of the planned workflow in SUBMIT_DIR.

    Its inputs are fetched in the order of the DAG before their stage-in jobs begin, its outputs go home by the I/O node, and both are
    verified. stager-transfer, which the catalogs must name, does the rest. Start it before `pegasus-run` or while the workflow runs, as
    often as you like. Ctrl-C, or its death, does not touch the workflow: what is not staged is transferred as without it.
    """
    settings = settings_of(state_dir, capacity)
    planned = read_planned(submit_dir.absolute())
    run, progress = word_left(planned), progress_of(planned)
    if not run and progress.exit_code is not None:
        return over(planned, progress.exit_code)
    workflow = None if run else prepared(attached_workflow(planned, progress.past()), settings)
    with connect_or_start(settings.state_dir, settings.scheduler_arguments()) as client:
        tell_capacity(client, settings)
        info = known_run(client, planned, run)
        if info is None and progress.exit_code is not None:
            return over(planned, progress.exit_code)
        if info is None:
            workflow = workflow or prepared(attached_workflow(planned, progress.past()), settings)
            run = register(client, planned, workflow, settings, credentials_of(settings, workflow))
        else:
            workflow = client.run(run).workflow()
            tell_stopped(info)
        leave_word(client, planned, run)
    if not quiet:
        tell(run, workflow)
    try:
        return follow(settings, planned, workflow, run, once=once, quiet=quiet)
    except KeyboardInterrupt:
        click.echo(f"left; the workflow and run {run} go on. The same command follows them again", err=True)
        return Exit.INTERRUPTED


def over(planned: Planned, exit_code: int) -> int:
    again = "" if exit_code == 0 else ". Attach again when `pegasus-run` has taken it up again"
    click.echo(f"{planned.label} is over: DAGMan ended with {exit_code}; there is nothing to stage{again}", err=True)
    return Exit.OK if exit_code == 0 else Exit.JOB_FAILED


def tell_stopped(info: RunInfo) -> None:
    if info.state in STOPPED:
        text = f"run {info.run} is {info.state}: its files are transferred as without stager, until `stager resume {info.run}`"
        click.echo(text, err=True)


def tell(run: str, workflow: Workflow) -> None:
    inputs = [file for file in workflow.files.values() if file.is_external]
    finals = sum(file.is_final for file in workflow.files.values())
    # Of a workflow that was attached before its origins are not asked again.
    known = all(file.size_bytes is not None for file in inputs)
    size = f" ({format_size(sum(file.size_bytes or 0 for file in inputs))})" if inputs and known else ""
    parts = [
        counted(len(workflow.jobs), "job"),
        f"{counted(len(inputs), 'input')} to fetch{size}",
        f"{counted(finals, 'output')} to send home",
    ]
    click.echo(f"run {run}: {', '.join(parts)}", err=True)
    for note in workflow.notes:
        click.echo(f"  {note}", err=True)


def follow(settings: Settings, planned: Planned, workflow: Workflow, run: str, *, once: bool, quiet: bool) -> int:
    """Until the workflow is over."""
    follower, records = Follower(planned, workflow), Records(planned, settings, run)
    while True:
        try:
            with scheduler_again(settings) as client:
                return followed(client, follower, records, once=once, quiet=quiet)
        except Transient as problem:
            click.echo(f"stager: {problem.message}; again in {AGAIN_S:.0f} s", err=True)
            time.sleep(AGAIN_S)


def scheduler_again(settings: Settings) -> Client:
    """One that ended is started again. A service is not: whoever runs it does that, and would find ours in its place."""
    if not StateDir(settings.state_dir).tenants.exists():
        return connect_or_start(settings.state_dir, settings.scheduler_arguments())
    client = connect(settings.state_dir)
    if client is None:
        raise Transient(f"the service of {settings.state_dir} does not answer", code="connection_lost")
    return client


def followed(client: Client, follower: Follower, records: Records, *, once: bool, quiet: bool) -> int:
    run = records.run
    engine = SocketEngineRun(client, run)
    follower.know(client, run)
    while True:
        step = follower.poll(engine)
        records.take_in(step.succeeded)
        follower.give_back(client, engine)
        for note in step.notes:
            click.echo(f"note: {note}", err=True)
        for job in step.jobs if not quiet else ():
            click.echo(f"{job}: {follower.log.progress.tries[job].state}", err=True)
        if step.exit_code is not None:
            follower.end(engine, step.exit_code)
            answer = client.run(run).wait_finished()
            click.echo(f"run {run}: {answer.state}", err=True)
            return int(exit_of(answer.state, answer.fault))
        if once:
            return Exit.OK
        time.sleep(POLL_S)
