"""`stager submit FILE`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.approved_plan import as_approved
from stager.cli.mended import digest_of_file
from stager.cli.options import (
    Where,
    capacity_option,
    cores_option,
    ignore_profiles_option,
    json_option,
    no_direct_option,
    output_origin_option,
    settings_of,
    spill_option,
    where_option,
)
from stager.cli.running import run_to_end
from stager.cli.workflow_file import credentials_of, read_only
from stager.readers.sniff import sniff
from stager.service.prepare import (
    SubmitOptions,
    make_destinations,
    new_directories,
    ready_to_run,
    require_native,
    require_runnable,
)
from stager.service.profiles import load_profiles


@click.command(
    epilog="""\b
Example:
  stager submit workflow.yml
  stager submit pegasus/workflow.yml --output-origin sftp://me@lab/results
  stager submit workflow.yml --plan plan.json --detach
  stager submit workflow.yml --server https://stager.example.org --token-file ~/.stager-token
  stager submit workflow.yml --detach --json | jq -r .run"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_origin_option
@click.option(
    "--plan",
    "plan_file",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="run this plan; refused, with the differences, if it no longer fits",
)
@click.option("--detach", is_flag=True, help="print the run's id and return; `stager status` and `stager wait` follow it")
@click.option("--quiet", "-q", is_flag=True, help="no progress, only the summary")
@capacity_option
@cores_option
@spill_option
@ignore_profiles_option
@no_direct_option
@where_option
@json_option
def command(
    file: Path,
    output_origin: str | None,
    plan_file: Path | None,
    detach: bool,
    quiet: bool,
    capacity: int | None,
    cores: int | None,
    spill: str | None,
    ignore_profiles: bool,
    no_direct: bool,
    where: Where,
    as_json: bool,
) -> int:
    """Run the workflow in FILE: fetch its inputs ahead of the jobs, keep intermediates on the I/O node, write finals back and verify them.

    The run goes on in the scheduler of the state directory, whatever happens to this command. Ctrl-C drains it, twice stops it; `stager
    resume` goes on.

    With --server it goes on there: the service reads FILE by its own rules and plans with its own measurements.
    """
    settings = settings_of(where.state_dir, capacity, cores)
    if where.server:
        if plan_file is not None or capacity is not None or cores is not None:
            raise click.UsageError("a service plans for itself: leave out --plan, --capacity and --cores, or --server")
        from stager import rest
        from stager.cli.remote import submit_to

        options = rest.Options(spill=spill, ignore_profiles=ignore_profiles, no_direct=no_direct, output_origin=output_origin)
        return submit_to(where, settings, file, options, detach=detach, quiet=quiet, as_json=as_json)
    require_runnable(sniff(file), str(file))
    access = IonodeOriginAccess(settings.environ)
    digest = digest_of_file(file)
    workflow = replace(read_only(settings, file, output_origin, access), source_path=str(file.absolute()), source_digest=digest)
    require_native(workflow)
    asked = SubmitOptions(spill, ignore_profiles, no_direct)
    plan = ready_to_run(workflow, settings, access, asked)
    if plan_file is not None:
        plan = as_approved(plan_file, plan, workflow, settings, load_profiles(settings), asked)
    make_destinations(new_directories(workflow))
    return run_to_end(settings, workflow, plan, credentials_of(settings, workflow), detach=detach, quiet=quiet, as_json=as_json)
