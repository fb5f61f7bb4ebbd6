"""The `stager` program: finds the command, runs it, turns errors into one clear message and an exit code.

One rule: a command's module is imported only when it is called, so that help and completion are quick.
"""

from __future__ import annotations

import importlib
import signal
import sys

import click

from stager import __version__
from stager.model.errors import StagerError

# Long enough for the end of an object to be over.
AGAIN_AFTER_S = 0.01
COMMANDS = {
    "submit": "run a workflow",
    "plan": "print what a run would do, and what it needs",
    "cost-estimate": "time and money of a run, for several numbers of I/O nodes",
    "simulate": "simulate a run with other nodes, sizes, rates, policies and failures",
    "validate": "read a workflow and say all that is wrong with it",
    "check": "look for all that would stop a run: credentials, keys, room, programs",
    "prices": "prices of nodes, egress, requests and storage",
    "replay": "run a recorded WfCommons instance with real bytes",
    "runs": "list the runs of this state directory",
    "status": "how far a run is, and which bytes are durable",
    "wait": "wait for a run, or for one final to be durable",
    "jobs": "the jobs of a run: ids, states, tries",
    "logs": "print the output of a job",
    "shell": "look around in the sandbox that a failed job left",
    "explain": "the timeline of a file or a job in a run",
    "ledger": "each produced file: at risk, safe, written or durable",
    "report": "estimate against actual of a run that is over, with a page to keep",
    "bring-home": "bring the finals of a run at a service that belong beside its workflow file",
    "results": "what jobs made, remembered over runs: list, show, forget",
    "resume": "go on with a run that was interrupted or failed",
    "cancel": "end a run for good",
    "serve": "the scheduler as a service: a REST API for many users and programs",
    "token": "tokens for the REST API: create, list, revoke",
    "node": "the I/O nodes: list, drain, forget",
    "ionode": "an I/O node on another host, by ssh: up, down",
    "pool": "the meeting place of the hosts that run your jobs",
    "worker": "run jobs of a pool on this host, or on another one by ssh",
    "host": "join a cluster with this host; the compute hosts of a pool: list, drain, forget",
    "cluster": "certificates and invites by which hosts of a cluster know each other",
    "pegasus": "have Pegasus workflows staged: the entries of their catalogs",
    "profile": "measurements of job types: list, show, export, import, trace",
    "notify": "who is told when a run ends or an origin is away: list, test",
    "gc": "remove what finished runs left behind",
    "shutdown": "end the scheduler of this state directory and its I/O node",
    "completion": "print the shell completion script",
}


class LazyGroup(click.Group):
    """Imports `stager.cli.NAME` when the command is asked for."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        found: click.Command = importlib.import_module(f"stager.cli.{cmd_name.replace('-', '_')}").command
        return found

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            from difflib import get_close_matches

            near = get_close_matches(args[0], COMMANDS, 1)
            raise click.UsageError(error.message + (f" Did you mean {near[0]!r}?" if near else ""), error.ctx) from None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "--version", prog_name="stager")
def stager() -> None:
    """Stage data for workflows: read the DAG first, prefetch, pin, write back, say which byte is durable.

    \b
    Start with:   stager submit workflow.yml
    Look before:  stager plan workflow.yml
    From another terminal:  stager status
    """


def main() -> None:
    """Exit codes: docs/operating/exit-codes.md."""
    with CtrlC() as ctrl_c:
        try:
            code = stager.main(standalone_mode=False)
            code = code if isinstance(code, int) else 0
        except (Exception, KeyboardInterrupt) as error:
            ctrl_c.ignore()
            code = told(error, ctrl_c.pressed)
    sys.exit(code)


class CtrlC:
    """Whether Ctrl-C broke into the program: whatever went wrong then, did so because of it. A part of a program that is broken into may
    say something else (a module that cannot be imported, a child that died of the same Ctrl-C).
    """

    def __enter__(self) -> CtrlC:
        self.pressed, self.heard_before = False, signal.getsignal(signal.SIGINT)
        self.unraisable = sys.unraisablehook
        if callable(self.heard_before):
            signal.signal(signal.SIGINT, self.hear)
            self.alarm_before = signal.signal(signal.SIGALRM, self.hear)
            sys.unraisablehook = self.swallowed
        return self

    def __exit__(self, *_: object) -> None:
        if callable(self.heard_before):
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, self.alarm_before)
            signal.signal(signal.SIGINT, self.heard_before)
            # What was being made when it came may end last of all, and complain that it is half made.
            sys.unraisablehook = silent if self.pressed else self.unraisable

    def hear(self, *_: object) -> None:
        self.pressed = True
        raise KeyboardInterrupt

    def ignore(self) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGALRM, signal.SIG_IGN)

    def swallowed(self, what: sys.UnraisableHookArgs) -> None:
        """It came where Python can let no exception out (the end of an object): it is to come again. By a timer, since nothing comes out of
        this function either.
        """
        if isinstance(what.exc_value, KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, AGAIN_AFTER_S)
        elif not self.pressed:
            self.unraisable(what)


def silent(what: sys.UnraisableHookArgs) -> None:
    """Said of the end of an object in a program that Ctrl-C has ended: nothing."""


def told(error: BaseException, is_interrupted: bool) -> int:
    """Says what went wrong; the exit code. A defect is raised, since its traceback is wanted."""
    from stager.cli.exits import BY_CLASS, Exit

    if is_interrupted or isinstance(error, click.exceptions.Abort | KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return Exit.INTERRUPTED
    if isinstance(error, click.ClickException):
        error.show()
        return Exit.INVALID_INPUT
    if isinstance(error, StagerError):
        click.echo(f"stager: {error.message}", err=True)
        return BY_CLASS[error.error_class]
    if isinstance(error, BrokenPipeError):
        sys.stderr.close()
        return Exit.OK
    # Of a file that the caller named and that cannot be used; one without a name is a defect.
    if isinstance(error, OSError) and error.filename is not None:
        click.echo(f"stager: {error.filename}: {error.strerror}", err=True)
        return Exit.INVALID_INPUT
    raise error
