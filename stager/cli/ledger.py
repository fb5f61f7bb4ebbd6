"""`stager ledger [RUN]`."""

from __future__ import annotations

import click

from stager.cli.options import RunName, Where, json_option, print_json, where_option
from stager.cli.reach import find_run, reach
from stager.cli.tables import print_table
from stager.model.units import format_size


@click.command(
    epilog="""\b
Example:
  stager ledger
  stager ledger montage-3f2a --finals --json"""
)
@click.argument("run", required=False, type=RunName())
@click.option("--finals", is_flag=True, help="only files that have a destination")
@where_option
@json_option
def command(run: str | None, finals: bool, where: Where, as_json: bool) -> None:
    """Each file RUN made: at risk, safe on the node, written or durable at its origin, how that was verified, and what of it the origin
    was told to put on its disk; or released, an intermediate that was made, that its last reader is done with and that nobody keeps; or
    kept, such a one that is still there for later runs.
    """
    with reach(where) as client:
        entries = [entry for entry in find_run(client, run).ledger() if entry.final or not finals]
    if as_json:
        print_json([entry.model_dump(mode="json") for entry in entries])
        return
    columns = [("file", "left"), ("state", "left"), ("size", "right"), ("verified", "left"), ("synced", "left"), ("at", "left")]
    columns.append(("blake3", "left"))
    rows = [
        (
            entry.lfn,
            entry.state,
            format_size(entry.size_bytes) if entry.size_bytes is not None else "",
            entry.verified,
            entry.synced.replace("_", " "),
            f"{entry.origin}:{entry.path}" if entry.path else "",
            entry.blake3[:16],
        )
        for entry in entries
    ]
    print_table(columns, rows)
    if any(entry.state == "released" for entry in entries):
        click.echo("released: no job reads it any more, so its space may go to other files")
    if kept := [entry.size_bytes or 0 for entry in entries if entry.state == "kept"]:
        click.echo(f"kept results: {format_size(sum(kept))}, evictable: no job of this run reads them, and a later run may")
