"""`stager shell RUN JOB`."""

from __future__ import annotations

import fcntl
import json
import os
import re
import shlex
import sys
from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from stager import wire
from stager.cli.options import ParamType, RunName, Where, settings_of, where_option
from stager.cli.reach import find_run, reach
from stager.client import RunClient
from stager.model.errors import Refused
from stager.readers.shells import find_bash
from stager.service.settings import state_dir_of
from stager.worker import KeptSandboxes
from stager.worker.spec import SCRATCH

COMMAND_SHOWN = 400
MISSING_SHOWN = 5


class KeptJob(ParamType):
    """A job of that run whose sandbox is kept."""

    name = "job"

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        kept_sandboxes = KeptSandboxes(state_dir_of(ctx.params.get("state_dir")), 0)
        kept_sandboxes.load()
        run = ctx.params.get("run") or ""
        return [CompletionItem(job) for of_run, job in sorted(kept_sandboxes.kept) if of_run.startswith(run) and job.startswith(incomplete)]


@click.command(
    epilog="""\b
Example:
  stager shell montage-3f2a project_07
  stager shell montage-3f2a project_07 -- ls -la
  echo 'wc -l *.tbl' | stager shell montage-3f2a project_07"""
)
@click.argument("run", type=RunName())
@click.argument("job", type=KeptJob())
@click.argument("words", nargs=-1, metavar="[-- CMD...]", type=click.UNPROCESSED)
@where_option
def command(run: str, job: str, words: tuple[str, ...], where: Where) -> int:
    """Open a shell in the sandbox that the last try of JOB left when it failed: its files, its environment, and its inputs, read-only, as
    it had them. With CMD that runs there instead, and its exit code is this one's; without a terminal the shell reads commands from
    stdin. The sandbox is a copy for you: what you change in it is used by nothing.

    It goes when JOB succeeds after all, when a later try fails, and with `stager gc`.
    """
    if where.server:
        text = "a service opens no shell on its machine: its tenants have none there, and its jobs are not isolated from one another"
        raise Refused(f"{text}; `stager logs` shows what the job printed, and its administrator can look there", code="no_shell")
    with reach(where) as client:
        found = find_run(client, run)
        assert isinstance(found, RunClient)
        sandbox = found.client.get(wire.Sandbox, f"{found.path}/sandbox", job=job)
    lock = held(sandbox)
    talks = not words and sys.stdin.isatty()
    if talks:
        tell(sandbox)
    elif sandbox.missing:
        click.echo(missing(sandbox), err=True)
    enter(
        sandbox,
        (*sandbox.before, *(words or shell_for(sandbox, talks))),
        surroundings(sandbox, settings_of(where.state_dir).environ, talks),
        lock,
    )
    raise AssertionError("unreachable: this process has become another")


def held(sandbox: wire.Sandbox) -> int:
    """A descriptor that the shell inherits, and all it starts: as long as one of them has it, the sandbox stays. Raises Refused."""
    try:
        lock = os.open(sandbox.lock, os.O_RDWR | os.O_NOFOLLOW)
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if os.path.samestat(os.fstat(lock), os.stat(sandbox.lock)):
            os.set_inheritable(lock, True)
            return lock
    except (BlockingIOError, FileNotFoundError):
        pass
    raise Refused(f"the sandbox of job {sandbox.job!r} is just being removed", code="no_sandbox", subject=sandbox.job)


def shell_for(sandbox: wire.Sandbox, talks: bool) -> tuple[str, ...]:
    """That of jobs, not the user's own, whose start files would be looked for in the sandbox. Nor what the machine has its shells do first,
    which is for people at home. In a container the one that every image has.
    """
    if sandbox.container is not None:
        return ("/bin/sh",)
    bash = find_bash()
    return (bash, "--norc") if bash and talks else (bash or "/bin/sh",)


def surroundings(sandbox: wire.Sandbox, environ: Mapping[str, str], talks: bool) -> dict[str, str]:
    """The job's; what it takes from its submitter is taken from who asks. For a person also what a terminal needs."""
    env = {name: environ[name] for name in sandbox.env_pass if name in environ} | sandbox.env
    if not talks:
        return env
    # Names may hold what a shell would carry out in a prompt.
    where = " ".join(re.sub(r"[^A-Za-z0-9._:,@+-]", "?", name) for name in (sandbox.run, sandbox.job))
    return {"TERM": environ.get("TERM", "dumb"), "PS1": f"({where}) $ "} | env


def tell(sandbox: wire.Sandbox) -> None:
    click.echo(f"try {sandbox.number} of job {sandbox.job!r} of run {sandbox.run}: {sandbox.ended}", err=True)
    ran = sandbox.command[0] if len(sandbox.command) == 1 else shlex.join(sandbox.command)
    click.echo(f"it ran: {ran if len(ran) <= COMMAND_SHOWN else ran[:COMMAND_SHOWN] + ' …'}", err=True)
    if sandbox.missing:
        click.echo(missing(sandbox), err=True)
    click.echo("nothing uses the files that you change here; `exit` leaves", err=True)


def missing(sandbox: wire.Sandbox) -> str:
    names = ", ".join(sandbox.missing[:MISSING_SHOWN]) + (", …" if len(sandbox.missing) > MISSING_SHOWN else "")
    return f"stager: empty here, since the I/O node does not have it now: {names}; a resume fetches it again for the job"


def enter(sandbox: wire.Sandbox, words: tuple[str, ...], env: Mapping[str, str], lock: int) -> None:
    """This process becomes the command. The orders hold an environment, so they lie in memory and on no disk."""
    orders = {
        "attempt_id": f"shell-{lock}",
        "epoch": 0,
        "argv": list(words),
        "env": dict(env),
        "cwd": sandbox.directory,
        "stdin": None,
        "stdout": "/dev/null",
        "stderr": "/dev/null",
        "mounts": [each.model_dump() for each in sandbox.mounts],
        "timeout_s": None,
        "result_path": "/dev/null",
        "lock_path": sandbox.lock,
    }
    if sandbox.container is not None:
        orders |= {"container": sandbox.container.model_dump(), "scratch_dir": f"{sandbox.directory}/{SCRATCH}"}
    descriptor = os.memfd_create("orders", 0)
    with open(descriptor, "wb", closefd=False) as stream:
        stream.write(json.dumps(orders).encode())
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sandbox.program, [sandbox.program, "run", "--enter", str(descriptor)], {})
