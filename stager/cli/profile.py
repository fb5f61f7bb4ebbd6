"""`stager profile`: what was measured of job types. A file per command beside this one, where it takes more than a screen."""

from __future__ import annotations

from pathlib import Path

import click

from stager.adapters.profiles_json import profiles_to_json
from stager.cli.options import json_option, print_json, settings_of, state_dir_option
from stager.cli.profile_tables import list_profiles, show_profile
from stager.cli.profile_trace import trace
from stager.model.errors import InvalidInput
from stager.model.profile import Profile, Profiles
from stager.model.units import counted
from stager.readers.lines import nearest
from stager.service.profiles import import_profiles, load_profiles, load_samples, profile_to_dict


@click.group(
    epilog="""\b
Example:
  stager profile list
  stager profile show montage/project
  stager profile export --output profiles.json
  stager profile import profiles.json montage-instance.json
  stager profile trace workflow.yml 'project[3]'"""
)
def command() -> None:
    """Tell the measurements of each job type: time, memory, bytes read and written, files. Plans and estimates use it.

    A job type is called WORKFLOW/ENTRY, as in montage/project, and is that workflow's own. One that a workflow file names itself (type:),
    and those of Pegasus and WfCommons, are called by that name and shared by all workflows that name them.

    Every job that ends well adds to its type. Newer runs weigh more; what was not seen is left empty.
    """


command.add_command(trace)


@command.command(
    "list",
    epilog="""\b
Example:
  stager profile list
  stager profile list --json | jq -r 'keys[]'""",
)
@state_dir_option
@json_option
def list_command(state_dir: Path | None, as_json: bool) -> None:
    """All job types that were measured or imported: the middle of each quantity for one job."""
    profiles = load_profiles(settings_of(state_dir))
    if as_json:
        print_json({job_type: profile_to_dict(profiles[job_type]) for job_type in sorted(profiles)})
        return
    if not profiles:
        click.echo("nothing was measured yet: runs measure their jobs, and `stager profile import` takes in what others measured")
        return
    list_profiles([profiles[job_type] for job_type in sorted(profiles)])


@command.command(
    "show",
    epilog="""\b
Example:
  stager profile show montage/project
  stager profile show project          (where only one workflow has such a type)
  stager profile show mProject --json | jq .wall_s.median""",
)
@click.argument("job_type")
@state_dir_option
@json_option
def show_command(job_type: str, state_dir: Path | None, as_json: bool) -> None:
    """All that is known of JOB_TYPE: middle, spread and the value that 95 of 100 jobs do not exceed, how it follows the size of a job's
    inputs, and the files it reads and makes by the pattern of their names.
    """
    profile = profile_named(load_profiles(settings_of(state_dir)), job_type)
    if as_json:
        print_json(profile_to_dict(profile))
    else:
        show_profile(profile)


@command.command(
    "export",
    epilog="""\b
Example:
  stager profile export --output profiles.json
  stager profile export mProject mAdd > montage.json""",
)
@click.argument("job_types", nargs=-1)
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), help="write there; default: standard output")
@state_dir_option
def export_command(job_types: tuple[str, ...], output: Path | None, state_dir: Path | None) -> None:
    """Write what was measured of JOB_TYPES (default: all) as JSON, for `stager profile import` on another machine. It holds names of job
    types and patterns of file names, and no paths, commands or secrets.
    """
    settings = settings_of(state_dir)
    profiles = load_profiles(settings)
    wanted = {profile_named(profiles, job_type).job_type for job_type in job_types} or set(profiles)
    text = profiles_to_json(sample for sample in load_samples(settings.state_dir) if sample.job_type in wanted)
    if output is None:
        click.echo(text, nl=False)
        return
    output.write_text(text)
    click.echo(f"{len(wanted)} job types written to {output}")


@command.command(
    "import",
    epilog="""\b
Example:
  stager profile import profiles.json
  stager profile import montage-chameleon-2mass-05d-001.json --json""",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@state_dir_option
@json_option
def import_command(files: tuple[Path, ...], state_dir: Path | None, as_json: bool) -> None:
    """Take in profiles that `stager profile export` wrote, or the measures of WfCommons instances. Importing the same again changes
    nothing. A measurement of this machine wins over an imported one.
    """
    taken = import_profiles(settings_of(state_dir).state_dir, files)
    if as_json:
        names = ("source", "samples", "fresh", "job_types", "notes")
        print_json([{name: getattr(entry, name) for name in names} for entry in taken])
        return
    for entry in taken:
        samples = f"{counted(entry.samples, 'sample')} of {counted(entry.job_types, 'job type')}"
        click.echo(f"{entry.source}: {samples}, {entry.fresh} of them new and kept")
        for note in entry.notes:
            click.echo(f"  {note}")


def profile_named(profiles: Profiles, job_type: str) -> Profile:
    """Raises InvalidInput. The workflow of a type may be left out where only one has such a type."""
    found = profiles.get(job_type)
    if found is not None:
        return found
    own = sorted(name for name in profiles if name.endswith(f"/{job_type}"))
    if len(own) == 1:
        return profiles[own[0]]
    if own:
        raise InvalidInput(f"several workflows have a job type {job_type!r}: name one of {', '.join(own)}")
    raise InvalidInput(f"nothing was measured of job type {job_type!r}{nearest(job_type, profiles)}; `stager profile list` lists them")
