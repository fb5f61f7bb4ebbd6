"""`stager wait RUN`."""

from __future__ import annotations

import time
from pathlib import Path

import click

from stager.cli.exits import Exit, exit_of
from stager.cli.options import Duration, state_dir_option
from stager.cli.reach import find_run, reach

POLL_S = 20.0


@click.command(
    epilog="""\b
Example:
  stager wait montage-3f2a && echo all finals are durable
  stager wait montage-3f2a --durable mosaic.fits --timeout '2 h'"""
)
@click.argument("run", required=False)
@click.option("--durable", metavar="LFN", help="return as soon as this final is durable at its origin")
@click.option("--timeout", "timeout_s", type=Duration(), metavar="TIME", help="give up after this time (exit 9); default: never")
@state_dir_option
def command(run: str | None, durable: str | None, timeout_s: float | None, state_dir: Path | None) -> int:
    """Wait until RUN (default: the newest) has finished, or one of its finals is durable; exits as `submit` would."""
    end = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
    with reach(state_dir) as client:
        found = find_run(client, run)
        while True:
            answer = found.wait(timeout_s=max(0.0, min(POLL_S, end - time.monotonic())), lfn=durable)
            if durable is not None and answer.durable:
                click.echo(f"{durable} is durable")
                return Exit.OK
            if answer.finished:
                click.echo(f"run {answer.run}: {answer.state}")
                if answer.fault is not None:
                    click.echo(f"stager: {answer.fault.message}", err=True)
                return exit_of(answer.state, answer.fault) if durable is None else Exit.NOT_DURABLE
            if time.monotonic() >= end:
                click.echo(f"run {answer.run} is still {answer.state}", err=True)
                return Exit.NOT_YET
