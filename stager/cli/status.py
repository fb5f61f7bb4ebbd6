"""`stager status [RUN]`."""

from __future__ import annotations

from pathlib import Path

import click

from stager import wire
from stager.cli.money import budget_line
from stager.cli.options import RunName, Where, json_option, params_text, print_json, where_option
from stager.cli.progress import one_line
from stager.cli.reach import find_run, reach
from stager.model.units import counted, format_size
from stager.service.settings import state_dir_of
from stager.service.state_dir import StateDir, notices_of


@click.command(
    epilog="""\b
Example:
  stager status
  stager status montage-3f2a --json"""
)
@click.argument("run", required=False, type=RunName())
@where_option
@json_option
def command(run: str | None, where: Where, as_json: bool) -> None:
    """How far RUN (default: the newest) is: jobs, transfers, and every produced byte that is not durable yet."""
    with reach(where) as client:
        status = find_run(client, run).status()
    if as_json:
        print_json(status.model_dump(mode="json", by_alias=True))
        return
    click.echo(f"run {status.info.run} ({status.info.workflow})")
    if status.params:
        click.echo(f"parameters: {params_text(status.params)}")
    click.echo(one_line(status))
    reused = f" ({status.info.jobs_reused} of them reused)" if status.info.jobs_reused else ""
    click.echo("jobs: " + ", ".join(f"{count} {state}" for state, count in status.jobs.items() if count) + reused)
    if status.jobs_assumed and status.info.finished_at is None:
        click.echo(f"assumed: {counted(status.jobs_assumed, 'job')}; how many there are is known when their lists are made")
    ledger = status.ledger
    click.echo(
        f"produced bytes: {amount(ledger.at_risk)} at risk, {amount(ledger.safe)} safe on the node, "
        f"{amount(ledger.written)} written (size checked), {amount(ledger.durable)} durable"
    )
    for node in status.nodes:
        state = node_state(node)
        click.echo(
            f"node {node.node}: {format_size(node.used_bytes)} used, "
            f"{format_size(node.reserved_bytes)} reserved of {format_size(node.capacity_bytes)}{state}"
        )
        if node.kept_bytes:
            click.echo(f"  kept results: {format_size(node.kept_bytes)}, evictable")
    for transfer in status.transfers:
        click.echo(
            f"{transfer.direction} {transfer.lfn}: {format_size(transfer.bytes_done)} of {format_size(transfer.bytes_total)}, "
            f"{transfer.state} {transfer.purpose}"
        )
    if status.budget is not None:
        click.echo(budget_line(status.budget, goes_on=status.info.finished_at is None))
    for waiting in status.waiting:
        click.echo(waiting.message)
    for problem in status.problems:
        click.echo(f"! {problem.message}")
    if not where.server:
        tell_owed(where.state_dir)


def tell_owed(state_dir: Path | None) -> None:
    place = notices_of(StateDir(state_dir_of(state_dir)))
    if place.exists():
        # Few tell anybody.
        from stager.cli.notify import owed_lines

        for line in owed_lines(place):
            click.echo(line)


def node_state(node: wire.NodeView) -> str:
    """In words that follow its figures; empty where all is well."""
    if node.state == "gone":
        return f" (gone: {node.why})"
    if node.excluded:
        return f" (refuses this scheduler: {node.problem})"
    parts = ["drains"] if node.state == "draining" else []
    if not node.connected:
        parts.append(node.problem or "does not answer")
    return f" ({', '.join(parts)})" if parts else ""


def amount(counts: wire.FileCounts) -> str:
    return f"{format_size(counts.size_bytes)} ({counts.files})"
