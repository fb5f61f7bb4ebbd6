"""`stager submit FILE`. One rule: what reads and plans a workflow is imported after a process for the scheduler was started."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path

import click

from stager.cli.options import (
    Bounds,
    Given,
    Reuse,
    Where,
    bounds_option,
    capacity_option,
    copies_option,
    cores_option,
    ignore_profiles_option,
    json_option,
    no_direct_option,
    output_origin_option,
    params_option,
    priority_option,
    reuse_options,
    settings_of,
    spill_option,
    where_option,
)
from stager.client.warm_start import WarmStart, is_listened_on
from stager.service.settings import Settings
from stager.service.state_dir import StateDir


@click.command(
    epilog="""\b
Example:
  stager submit workflow.yml
  stager submit pegasus/workflow.yml --output-origin sftp://me@lab/results
  stager submit workflow.yml --param night=m31 --param threads=8
  stager submit workflow.yml --params m31.yml
  stager submit workflow.yml --copies 2
  stager submit workflow.yml --plan plan.json --detach
  stager submit workflow.yml --no-reuse
  stager submit workflow.yml --rerun project --rerun 'count[3]'
  stager submit workflow.yml --until mosaic.fits
  stager submit workflow.yml --from project
  stager submit workflow.yml --server https://stager.example.org --token-file ~/.stager-token
  stager submit workflow.yml --budget '20 USD' --finish-by 18:00
  stager submit workflow.yml --finish-by +3h --objective cost
  stager submit workflow.yml --detach --json | jq -r .run"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@params_option
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
@copies_option
@priority_option
@reuse_options
@bounds_option
@where_option
@json_option
def command(
    file: Path,
    given: Given,
    output_origin: str | None,
    plan_file: Path | None,
    detach: bool,
    quiet: bool,
    capacity: int | None,
    cores: int | None,
    spill: str | None,
    ignore_profiles: bool,
    no_direct: bool,
    copies: int | None,
    priority: int,
    asked: Reuse,
    bounds: Bounds,
    where: Where,
    as_json: bool,
) -> int:
    """Run the workflow in FILE: fetch its inputs ahead of the jobs, keep intermediates on the I/O node, write finals back and verify them.
    What an earlier run made of the same is not made again while it is still where it is wanted.

    The run goes on in the scheduler of the state directory, whatever happens to this command. Ctrl-C drains it, twice stops it; `stager
    resume` goes on.

    With --server it goes on there: the service reads FILE by its own rules and plans with its own measurements.
    """
    settings = settings_of(where.state_dir, capacity, cores)
    asked.check()
    require_fit(where, plan_file, bounds, of_results=asked.is_part, sized=bool(capacity or cores))
    if where.server:
        from stager import rest
        from stager.cli.bounds import rest_bounds
        from stager.cli.remote import submit_to

        options = rest.Options(
            spill=spill,
            ignore_profiles=ignore_profiles,
            no_direct=no_direct,
            output_origin=output_origin,
            copies=copies,
            priority=priority,
            **asked.words(),
            **rest_bounds(bounds),
        )
        return submit_to(where, settings, file, options, given, detach=detach, quiet=quiet, as_json=as_json)
    with warm_start(settings) as warm:
        from stager.cli.local_submit import submit_here
        from stager.service.prepare import SubmitOptions

        asked = replace(asked, reuse=False) if plan_file is not None else asked
        options_here = SubmitOptions(spill, ignore_profiles, no_direct, copies, **asked.words())
        shown = {"detach": detach, "quiet": quiet, "as_json": as_json}
        return submit_here(settings, file, output_origin, given, plan_file, options_here, bounds, warm, priority=priority, **shown)


def require_fit(where: Where, plan_file: Path | None, bounds: Bounds, *, of_results: bool, sized: bool) -> None:
    """`of_results`: less than all jobs is asked for; `sized`: of a scheduler that would be started."""
    if where.server and (plan_file is not None or sized):
        raise click.UsageError("a service plans for itself: leave out --plan, --capacity and --cores, or --server")
    if plan_file is not None and of_results:
        raise click.UsageError("--plan runs the plan of all jobs: leave out --reuse, --rerun, --until and --from, or --plan")
    if plan_file is not None and bounds.asked:
        raise click.UsageError("--plan runs that plan, and a budget or a deadline chooses one: leave out one or the other")


def warm_start(settings: Settings) -> WarmStart | AbstractContextManager[None]:
    """Nothing where a scheduler lives, nor where no process can be made: then the scheduler is started when it is needed."""
    if is_listened_on(StateDir(settings.state_dir).socket):
        return nullcontext()
    try:
        return WarmStart(settings.state_dir, settings.scheduler_arguments())
    except OSError:
        return nullcontext()
