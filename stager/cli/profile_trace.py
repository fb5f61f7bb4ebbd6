"""`stager profile trace FILE JOB`."""

from __future__ import annotations

import fcntl
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, replace
from pathlib import Path

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.adapters.profiles_store import read_samples
from stager.adapters.strace import Trace, command_prefix
from stager.cli.exits import Exit, exit_of
from stager.cli.options import (
    Given,
    ParamType,
    capacity_option,
    cores_option,
    json_option,
    params_option,
    print_json,
    settings_of,
    state_dir_option,
)
from stager.cli.profile_tables import how_read
from stager.cli.progress import follow
from stager.cli.tables import print_table
from stager.cli.workflow_file import credentials_of, options_for
from stager.client import RunClient, connect_or_start
from stager.model.errors import InvalidInput
from stager.model.profile import Profiles
from stager.model.units import counted, format_size
from stager.model.workflow import Job, Origin, OriginKind, Workflow
from stager.planning.make_plan import check_capacity
from stager.readers.resolve import resolve
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from stager.service.prepare import plan_of, require_runnable
from stager.service.profiles import OpenProfiles, load_profiles
from stager.service.settings import Settings
from stager.service.state_dir import StateDir
from stager.service.tracing import TracedFile, find_strace, job_named, trace_sample, traced_files, traced_type, traced_workflow

LOG_SHOWN_BYTES = 4096


class GivenFile(ParamType):
    """`LFN=FILE`; an lfn may hold no `=` here."""

    name = "lfn=file"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, Path]:
        lfn, found, path = value.partition("=")
        if not found or not lfn or not path:
            self.fail(f"{value!r} is not LFN=FILE", param, ctx)
        return lfn, Path(path)


@click.command(
    epilog="""\b
Example:
  stager profile trace workflow.yml 'project[3]'
  stager profile trace workflow.yml mosaic --input background.fits=/data/kept/background.fits
  stager profile trace workflow.yml mosaic --json | jq '.files[] | {lfn, touched_bytes, why_unknown}'"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("job")
@click.option(
    "--input", "inputs", multiple=True, type=GivenFile(), help="take this local file for an input, instead of running what makes it"
)
@params_option
@capacity_option
@cores_option
@state_dir_option
@json_option
def trace(
    file: Path,
    job: str,
    given: Given,
    inputs: tuple[tuple[str, Path], ...],
    capacity: int | None,
    cores: int | None,
    state_dir: Path | None,
    as_json: bool,
) -> int:
    """Run JOB of the workflow in FILE once under strace, and say of each of its inputs which share was touched, how often it was read,
    and whether from front to back or here and there. A file that a job maps into memory cannot be seen that way and stays unknown.

    The jobs that make its inputs are run first (not those whose product is given with --input), all in a scratch state directory that goes
    away; nothing is written to any origin. The job takes longer than usual; its time is not kept, its pattern of reading is.
    """
    settings = settings_of(state_dir, capacity, cores)
    strace = find_strace(settings.environ)
    require_runnable(sniff(file), str(file))
    StateDir(settings.state_dir).make()
    with scratch_below(settings.state_dir) as scratch:
        access = IonodeOriginAccess(settings.environ)
        options = options_for(file, None, given)
        if sniff(file) is WorkflowFormat.PEGASUS:
            options["output_origin"] = Origin("output", OriginKind.FILE, f"file://{scratch}")
        workflow = read_workflow(file, access=access, options=options)
        named = job_named(workflow, job)
        lines = scratch / "trace"
        made = resolve(traced_workflow(workflow, job, command_prefix(strace, str(lines)), dict(inputs)), access)
        own = replace(settings, state_dir=scratch, idle_exit_s=1.0)
        code, sizes = run_traced(own, made, job, aliased(load_profiles(settings), named), quiet=as_json)
        if code != Exit.OK:
            return code
        seen = Trace()
        with lines.open(errors="surrogateescape") as stream:
            seen.feed(stream)
        files = traced_files(seen, named, scratch, sizes)
        keep(settings, scratch, named, files)
    if as_json:
        print_json({"job": job, "job_type": named.profile, "files": [asdict(entry) for entry in files]})
    else:
        show_trace(job, named.profile, files)
    return Exit.OK


@contextmanager
def scratch_below(state_dir: Path) -> Iterator[Path]:
    """On the file system that jobs run on anyway. Gone at the end, after the scheduler that lived there."""
    scratch = Path(tempfile.mkdtemp(prefix="trace-", dir=state_dir))
    try:
        yield scratch
    finally:
        wait_for_end(scratch)
        shutil.rmtree(scratch, ignore_errors=True)


def wait_for_end(state_dir: Path) -> None:
    """The lock ends with the scheduler."""
    lock = StateDir(state_dir).lock
    if lock.exists():
        with lock.open() as stream:
            fcntl.flock(stream, fcntl.LOCK_SH)


def aliased(profiles: Profiles, job: Job) -> Profiles:
    """The traced job is planned with what is known of its type."""
    known = profiles.get(job.profile)
    return profiles if known is None else {**profiles, traced_type(job.job_type): known}


def run_traced(
    settings: Settings, workflow: Workflow, job: str, profiles: Profiles, *, quiet: bool
) -> tuple[int, Mapping[str, int | None]]:
    """(exit code, sizes of the job's inputs by lfn). Says what the job said where it failed."""
    plan = plan_of(workflow, settings, profiles, None)
    check_capacity(plan)
    with connect_or_start(settings.state_dir, settings.scheduler_arguments()) as client:
        try:
            run = client.run(client.submit(workflow, plan, credentials_of(settings, workflow)))
            click.echo(f"tracing {job}: {counted(len(workflow.jobs), 'job')} to run", err=True)
            follow(run, quiet=quiet)
            summary = run.summary()
            code = exit_of(summary.outcome, summary.fault)
            if code != Exit.OK:
                tell_failure(run, job)
            return code, sizes_of(run, workflow, job)
        finally:
            client.shutdown(now=True)


def sizes_of(run: RunClient, workflow: Workflow, job: str) -> dict[str, int | None]:
    made = {entry.lfn: entry.size_bytes for entry in run.ledger()}
    inputs = [workflow.files[entry.lfn] for entry in workflow.jobs[job].inputs]
    return {file.lfn: file.size_bytes if file.is_external else made.get(file.lfn) for file in inputs}


def tell_failure(run: RunClient, job: str) -> None:
    """The logs go with the scratch directory."""
    failed = [entry.job for entry in run.jobs(state="failed")] or [job]
    for name in failed[:1]:
        click.echo(f"job {name} failed, so nothing was traced; its output:", err=True)
        for log in run.logs(name, tail_bytes=LOG_SHOWN_BYTES).logs:
            click.echo(log.text, err=True, nl=not log.text.endswith("\n"))


def keep(settings: Settings, scratch: Path, job: Job, files: Sequence[TracedFile]) -> None:
    measured = [sample for sample in read_samples(StateDir(scratch).profiles)[0] if sample.job_type == traced_type(job.job_type)]
    if len(measured) != 1:
        raise InvalidInput(f"the traced job was measured {counted(len(measured), 'time')}; trace it again", subject=job.id)
    with OpenProfiles(settings.state_dir) as store:
        # The run has one name in all scratch directories, as have its attempts.
        named = replace(measured[0], run=scratch.name, attempt=f"{scratch.name}-{measured[0].attempt}")
        store.take_in([trace_sample(named, store.id, job.profile, files)])


def show_trace(job: str, job_type: str, files: Sequence[TracedFile]) -> None:
    columns = [("input", "left"), ("size", "right"), ("touched", "right"), ("read", "right"), ("again", "right"), ("how", "left")]
    print_table(columns, [row_of(entry) for entry in files])
    unknown = sum(bool(entry.why_unknown) for entry in files)
    click.echo(f"job {job}, kept for job type {job_type}" + (f"; {unknown} of {counted(len(files), 'input')} unknown" if unknown else ""))


def row_of(entry: TracedFile) -> tuple[str, ...]:
    size = "" if entry.size_bytes is None else format_size(entry.size_bytes)
    if entry.why_unknown or entry.touched_bytes is None or entry.read_bytes is None:
        return entry.lfn, size, "unknown", "", "", entry.why_unknown
    if not entry.opened or entry.read_bytes == 0:
        return entry.lfn, size, "0%", "", "", "not read" if entry.opened else "not opened"
    share = f"{entry.touched_bytes / entry.size_bytes:.0%}" if entry.size_bytes else format_size(entry.touched_bytes)
    again = entry.read_bytes - entry.touched_bytes
    how = how_read((entry.sequential_bytes or 0) / entry.read_bytes)
    return entry.lfn, size, share, format_size(entry.read_bytes), format_size(again) if again else "", how
