"""`stager replay INSTANCE`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from stager.adapters.binary import find_ionode
from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.exits import Exit
from stager.cli.options import capacity_option, cores_option, settings_of, state_dir_option
from stager.cli.running import run_to_end
from stager.cli.workflow_file import credentials_of
from stager.model.errors import InvalidInput
from stager.model.files import OnExists
from stager.model.units import counted, format_size
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.make_plan import check_capacity
from stager.readers import wfcommons
from stager.readers.replay import ReplayFile, finals_of, make_replay, total_bytes
from stager.readers.replay_files import check_files, make_inputs, not_at_origin, require_right
from stager.readers.replay_rounds import check_workflow, fill_workflow
from stager.readers.resolve import resolve
from stager.readers.sniff import WorkflowFormat, sniff
from stager.service.prepare import origin_from_url, plan_of, require_destinations, writable
from stager.service.profiles import load_profiles
from stager.service.settings import Settings


@click.command(
    epilog="""\b
Example:
  stager replay montage-2mass-01d.json --bytes-scale 0.01 --time-scale 0.01
  stager replay srasearch.json --origin sftp://me@lab/tmp/replay --capacity '1 GB'"""
)
@click.argument("instance", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--bytes-scale", default="0.01", show_default=True, help="size of every file, as a share of the recorded one")
@click.option("--time-scale", default="0.01", show_default=True, help="time of every job, as a share of the recorded one")
@click.option("--seed", default=1, show_default=True, help="the number that the content is made from")
@click.option("--spin", is_flag=True, help="jobs compute instead of sleeping")
@click.option(
    "--origin", "origin_url", metavar="URL", help="where inputs are made and finals go; default: a directory in the state directory"
)
@click.option("--spill", "with_spill", is_flag=True, help="let intermediates go to the origin when space is short")
@click.option("--quiet", "-q", is_flag=True, help="no progress, only the summary")
@capacity_option
@cores_option
@state_dir_option
def command(
    instance: Path,
    bytes_scale: str,
    time_scale: str,
    seed: int,
    spin: bool,
    origin_url: str | None,
    with_spill: bool,
    quiet: bool,
    capacity: int | None,
    cores: int | None,
    state_dir: Path | None,
) -> int:
    """Make the recorded WfCommons run in INSTANCE really happen: inputs of the recorded sizes at an origin, each job reads its inputs,
    works for its time, writes its outputs.

    Content is a function of the seed, so jobs check every byte they read, and every final is checked at the end.
    """
    if sniff(instance) is not WorkflowFormat.WFCOMMONS:
        raise InvalidInput(f"{instance} is no WfCommons instance; `stager submit {instance}` runs a workflow")
    settings = settings_of(state_dir, capacity, cores)
    recorded = wfcommons.read(instance)
    origin = origin_of(settings, instance, origin_url)
    program = find_ionode(settings.environ)
    workflow, inputs = make_replay(
        recorded, bytes_scale=bytes_scale, time_scale=time_scale, seed=seed, origin=origin, output_origin=origin, program=program, spin=spin
    )
    access = IonodeOriginAccess(settings.environ)
    fill(settings, access, workflow.name, inputs, origin, seed, program, quiet)
    ready = replacing(resolve(workflow, access))
    code = run_one(settings, ready, quiet=quiet, spill=origin.name if with_spill else None)
    if code != Exit.OK:
        return code
    return check(settings, access, workflow, origin, seed, program, quiet)


def origin_of(settings: Settings, instance: Path, url: str | None) -> Origin:
    if url is not None:
        return writable(origin_from_url(url, "replay"))
    directory = settings.state_dir / "replay" / instance.stem
    directory.mkdir(parents=True, exist_ok=True)
    return Origin("replay", OriginKind.FILE, f"file://{directory}")


def base_of(origin: Origin, access: IonodeOriginAccess) -> Path | None:
    """The directory of a file origin, else None."""
    return Path(access.config(origin)["base_path"]) if origin.kind is OriginKind.FILE else None


def fill(
    settings: Settings,
    access: IonodeOriginAccess,
    name: str,
    inputs: tuple[ReplayFile, ...],
    origin: Origin,
    seed: int,
    program: str,
    quiet: bool,
) -> None:
    """Inputs are made once: what is there already stays."""
    click.echo(f"{counted(len(inputs), 'input')}, {format_size(total_bytes(inputs))}, at {origin.url}", err=True)
    base = base_of(origin, access)
    if base is not None:
        base.mkdir(parents=True, exist_ok=True)
        make_inputs(program, base, seed, inputs)
        return
    missing = not_at_origin(access, origin, inputs)
    if not missing:
        return
    workflow = fill_workflow(name, missing, origin, seed=seed, program=program)
    require_destinations(workflow, access)
    if run_one(settings, workflow, quiet=quiet) != Exit.OK:
        raise InvalidInput(f"the replay's inputs could not be put at {origin.url}")


def check(settings: Settings, access: IonodeOriginAccess, workflow: Workflow, origin: Origin, seed: int, program: str, quiet: bool) -> int:
    """Every byte of every final, as it is at the origin."""
    finals = finals_of(workflow)
    base = base_of(origin, access)
    if base is not None:
        require_right(check_files(program, base, seed, finals))
    else:
        workflow = resolve(check_workflow(workflow.name, finals, origin, seed=seed, program=program), access)
        code = run_one(settings, workflow, quiet=quiet)
        if code != Exit.OK:
            return code
    click.echo(f"checked {counted(len(finals), 'final')}, {format_size(total_bytes(finals))}: every byte is right")
    return Exit.OK


def run_one(settings: Settings, workflow: Workflow, *, quiet: bool, spill: str | None = None) -> int:
    plan = plan_of(workflow, settings, load_profiles(settings), spill)
    check_capacity(plan)
    return run_to_end(settings, workflow, plan, credentials_of(settings, workflow), quiet=quiet)


def replacing(workflow: Workflow) -> Workflow:
    """Finals of a replay replace what an earlier replay left."""
    files = {
        lfn: replace(file, destination=replace(file.destination, on_exists=OnExists.REPLACE)) if file.destination is not None else file
        for lfn, file in workflow.files.items()
    }
    return replace(workflow, files=files)
