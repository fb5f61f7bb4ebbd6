"""`stager check FILE`."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.exits import Exit
from stager.cli.options import capacity_option, cores_option, json_option, output_origin_option, print_json, settings_of, spill_option, state_dir_option
from stager.cli.prepare import destination_directories, plan_of, reader_options
from stager.model.errors import StagerError
from stager.model.files import FileKind
from stager.model.units import format_size
from stager.model.workflow import Job, Origin, Workflow
from stager.planning.make_plan import check_capacity
from stager.readers.sniff import read_workflow
from stager.service.profiles import load_profiles
from stager.worker.environment import DEFAULT


@dataclass(frozen=True, slots=True)
class Finding:
    """`good` False stops a run."""

    about: str
    good: bool
    message: str


@click.command(
    epilog="""\b
Example:
  stager check workflow.yml
  stager check workflow.yml --json"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@output_origin_option
@capacity_option
@cores_option
@spill_option
@state_dir_option
@json_option
def command(file: Path, output_origin: str | None, capacity: int | None, cores: int | None, spill: str | None, state_dir: Path | None, as_json: bool) -> int:
    """Look for all that would stop a run of FILE and say it at once: credentials, host keys, missing inputs, destinations that cannot be written or have no room, programs that are not on PATH, too little capacity."""
    settings = settings_of(state_dir, capacity, cores)
    access = IonodeOriginAccess(settings.environ)
    findings: list[Finding] = []
    options = reader_options(file, output_origin)
    workflow = read_or_note(file, access, options, findings)
    if workflow is not None:
        for origin in workflow.origins.values():
            findings += check_origin(workflow, origin, access)
        findings += check_programs(workflow, settings.environ)
        try:
            plan = plan_of(workflow, settings, load_profiles(settings), spill)
            check_capacity(plan)
            findings.append(Finding("capacity", True, f"{format_size(plan.capacity_bytes)} of at least {format_size(plan.smallest_capacity_bytes)}"))
        except StagerError as error:
            findings.append(Finding("capacity", False, error.message))
    report(findings, as_json)
    return Exit.OK if all(finding.good for finding in findings) else Exit.REFUSED


def read_or_note(file: Path, access: IonodeOriginAccess, options: dict[str, Origin], findings: list[Finding]) -> Workflow | None:
    """With its inputs if they can be had, else without, so that the other checks still run."""
    try:
        workflow = read_workflow(file, access=access, options=options)
        findings.append(Finding("inputs", True, f"all {sum(each.is_external for each in workflow.files.values())} are there"))
        return workflow
    except StagerError as error:
        findings.append(Finding("inputs", False, error.message))
    try:
        return read_workflow(file, access=None, options=options)
    except StagerError:
        return None


def check_origin(workflow: Workflow, origin: Origin, access: IonodeOriginAccess) -> list[Finding]:
    """Reads are probed at the base, writes in the directories of finals, with room for all of them."""
    finals = [file for file in workflow.files.values() if file.destination is not None and file.destination.location.origin == origin.name]
    about = f"origin {origin.name}"
    try:
        probes = [access.probe(origin, directory, write=bool(finals)) for directory in destination_directories(workflow).get(origin.name, [""])]
    except StagerError as error:
        return [Finding(about, False, error.message)]
    found = [Finding(about, False, message) for message in dict.fromkeys(fault.message for probe in probes for fault in probe.findings)]
    need = sum(file.size_bytes or 0 for file in finals if file.kind is FileKind.FILE)
    free_bytes = min((probe.free_bytes for probe in probes if probe.free_bytes is not None), default=None)
    if free_bytes is not None and need > free_bytes:
        found.append(Finding(about, False, f"{origin.url} has {format_size(free_bytes)} free, the finals need {format_size(need)}: make room or choose another destination"))
    if not found:
        room = f", {format_size(free_bytes)} free" if free_bytes is not None else ""
        found.append(Finding(about, True, f"{origin.url} can be {'read and written' if finals else 'read'}{room}"))
    return found


def check_programs(workflow: Workflow, environ: Mapping[str, str]) -> list[Finding]:
    """First words of argv that are neither inputs nor paths; what a shell command calls cannot be known before it runs."""
    wanted: dict[tuple[str, str], str] = {}
    for job in workflow.jobs.values():
        if job.argv:
            wanted.setdefault((job.argv[0], path_of(job, environ)), job.id)
    found = []
    for (program, path), job_id in wanted.items():
        inside = {entry.path for entry in workflow.jobs[job_id].inputs}
        local = program.removeprefix("./") in inside
        if not local and shutil.which(program, path=path) is None:
            found.append(Finding("programs", False, f"job {job_id!r} calls {program!r}, which is not on its PATH ({path}): install it, or name it by its path"))
    return found or [Finding("programs", True, f"{len(wanted)} found")]


def path_of(job: Job, environ: Mapping[str, str]) -> str:
    declared = dict(job.env).get("PATH")
    if declared is not None:
        return declared
    return environ.get("PATH", DEFAULT["PATH"]) if "PATH" in job.env_pass else DEFAULT["PATH"]


def report(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        print_json([{"about": finding.about, "good": finding.good, "message": finding.message} for finding in findings])
        return
    for finding in findings:
        click.echo(f"{'ok   ' if finding.good else 'STOP '} {finding.about}: {finding.message}")
