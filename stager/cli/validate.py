"""`stager validate FILE`."""

from __future__ import annotations

from pathlib import Path

import click

from stager.cli.options import Given, output_origin_option, params_option, params_text, print_json, settings_of
from stager.cli.workflow_file import read_only
from stager.model.units import counted
from stager.model.workflow import values_of
from stager.readers.sniff import sniff


@click.command(
    epilog="""\b
Example:
  stager validate workflow.yml
  stager validate workflow.yml --params m31.yml
  stager validate montage.json --json"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@params_option
@output_origin_option
@click.option("--json", "as_json", is_flag=True, help="print the counts as JSON")
def command(file: Path, given: Given, output_origin: str | None, as_json: bool) -> None:
    """Read FILE (native, Pegasus 5 or WfCommons, told apart by content) and say all that is wrong with it. Globs are listed at their
    origins; nothing is started.
    """
    workflow = read_only(settings_of(None), file, output_origin, given)
    finals = sum(each.is_final for each in workflow.files.values())
    external = sum(each.is_external for each in workflow.files.values())
    counts = {
        "format": sniff(file).value,
        "name": workflow.name,
        "jobs": len(workflow.jobs),
        "files": len(workflow.files),
        "external": external,
        "finals": finals,
    }
    if as_json:
        print_json(counts | {"params": values_of(workflow), "notes": list(workflow.notes)})
        return
    click.echo(
        f"{file}: {counts['format']} workflow {workflow.name!r} is valid: "
        f"{counted(len(workflow.jobs), 'job')}, {counted(len(workflow.files), 'file')} "
        f"({counted(external, 'input')}, {counted(finals, 'final')})"
    )
    if workflow.params:
        click.echo(f"parameters: {params_text(values_of(workflow))}")
    for note in workflow.notes:
        click.echo(f"note: {note}")
