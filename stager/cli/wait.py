"""`stager wait RUN`."""

from __future__ import annotations

import time

import click

from stager import wire
from stager.cli.exits import Exit, exit_of
from stager.cli.options import Duration, RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach

POLL_S = 20.0


@click.command(
    epilog="""\b
Example:
  stager wait montage-3f2a && echo all finals are durable
  stager wait montage-3f2a --durable mosaic.fits --timeout '2 h'
  stager wait montage-3f2a --json | jq -r .state"""
)
@click.argument("run", required=False, type=RunName())
@click.option("--durable", metavar="LFN", help="return as soon as this final is durable at its origin")
@click.option("--timeout", "timeout_s", type=Duration(), metavar="TIME", help="give up after this time (exit 9); default: never")
@where_option
@json_option
def command(run: str | None, durable: str | None, timeout_s: float | None, where: Where, as_json: bool) -> int:
    """Wait until RUN (default: the newest) has finished, or one of its finals is durable; exits as `submit` would."""
    end = time.monotonic() + timeout_s if timeout_s is not None else float("inf")
    with reach(where) as client:
        found = find_run(client, run)
        while True:
            answer = found.wait(timeout_s=max(0.0, min(POLL_S, end - time.monotonic())), lfn=durable)
            if answer.finished or answer.durable or answer.superseded or time.monotonic() >= end:
                break
    if as_json:
        print_json(answer.model_dump(mode="json", by_alias=True))
    else:
        tell(answer, durable)
    if answer.durable:
        return Exit.OK
    if answer.superseded:
        return Exit.NOT_DURABLE
    if not answer.finished:
        return Exit.NOT_YET
    return exit_of(answer.state, answer.fault) if durable is None else Exit.NOT_DURABLE


def tell(answer: wire.WaitResponse, durable: str | None) -> None:
    if answer.durable:
        click.echo(f"{durable} is durable")
    elif answer.superseded:
        click.echo(f"stager: {answer.superseded}", err=True)
    elif not answer.finished:
        click.echo(f"run {answer.run} is still {answer.state}", err=True)
    else:
        click.echo(f"run {answer.run}: {answer.state}")
        if answer.fault is not None:
            click.echo(f"stager: {answer.fault.message}", err=True)
