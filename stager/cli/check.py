"""`stager check FILE`."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import click

from stager.adapters.origin_access import IonodeOriginAccess
from stager.cli.check_isolation import isolation_notes
from stager.cli.exits import Exit
from stager.cli.options import (
    Given,
    Where,
    capacity_option,
    cores_option,
    json_option,
    output_origin_option,
    params_option,
    print_json,
    settings_of,
    spill_option,
    where_option,
)
from stager.cli.pulling import images_for
from stager.cli.workflow_file import options_for
from stager.model.errors import Denied, InvalidInput, Refused, StagerError
from stager.model.files import OnExists
from stager.model.units import counted, format_size
from stager.model.workflow import Job, Origin, Workflow
from stager.planning.make_plan import check_capacity
from stager.planning.plan import Plan
from stager.ports import Probe
from stager.readers.shell_programs import programs_of
from stager.readers.shells import quotes_like_sh, strict_shell
from stager.readers.sniff import read_workflow
from stager.service.destination_space import Probes, disks_of
from stager.service.destinations import There, already_there, refusal
from stager.service.prepare import destination_directories, new_directories, plan_of
from stager.service.profiles import load_profiles
from stager.service.settings import Settings
from stager.service.side_by_side import side_by_side
from stager.service.state_dir import StateDir
from stager.worker.environment import DEFAULT
from stager.worker.installing import NO_RATTLER

EXISTING = {
    OnExists.FAIL: "equal content there is adopted; other content is not overwritten, and the run ends not_durable",
    OnExists.REPLACE: "other content is replaced",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """`good` False stops a run; a `note` does not, and its reader may want to know before it."""

    about: str
    good: bool
    message: str
    note: bool = False


@click.command(
    epilog="""\b
Example:
  stager check workflow.yml
  stager check workflow.yml --json
  stager check workflow.yml --server https://stager.example.org --token-file ~/.stager-token"""
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@params_option
@output_origin_option
@capacity_option
@cores_option
@spill_option
@where_option
@json_option
def command(
    file: Path,
    given: Given,
    output_origin: str | None,
    capacity: int | None,
    cores: int | None,
    spill: str | None,
    where: Where,
    as_json: bool,
) -> int:
    """Look for all that would stop a run of FILE and say it at once: credentials, host keys, missing inputs, destinations that cannot be
    written, have no room or are there already, programs that are not on PATH, too little capacity. Notes stop nothing: destinations that
    may be replaced or that an earlier run left, variables that are not set, jobs that want more than the machine has.

    With --server the service looks: whether it can read FILE, its inputs and its destinations, and has the room. It does not look for
    programs, which have to be on its hosts. What lies beside FILE goes along.
    """
    settings = settings_of(where.state_dir, capacity, cores)
    if where.server:
        if capacity is not None or cores is not None:
            raise click.UsageError("a service has its own capacity and cores: leave out --capacity and --cores, or --server")
        return told(check_there(where, file, given, spill, output_origin, settings.environ), as_json)
    access = IonodeOriginAccess(settings.environ)
    findings: list[Finding] = []
    workflow = read_or_note(file, access, options_for(file, output_origin, given) | images_for(settings, file), findings)
    if workflow is not None:
        probes: dict[tuple[str, str], Probe] = {}
        for origin in workflow.origins.values():
            findings += check_origin(workflow, origin, access, probes)
        there = already_there(workflow, access, StateDir(settings.state_dir).runs)
        findings += check_destinations(there)
        findings += check_programs(workflow, settings.environ)
        findings += check_conda(workflow, settings)
        findings += check_variables(workflow, settings.environ)
        findings += [Finding("isolation", True, note, note=True) for note in isolation_notes(workflow, settings.environ)]
        found, plan = check_plan(workflow, settings, spill)
        findings += [*check_space(workflow, plan, probes, there), *found]
        findings += [Finding("workflow", True, note, note=True) for note in workflow.notes]
    return told(findings, as_json)


def told(findings: list[Finding], as_json: bool) -> Exit:
    report(findings, as_json)
    return Exit.OK if all(finding.good for finding in findings) else Exit.REFUSED


def check_there(
    where: Where, file: Path, given: Given, spill: str | None, output_origin: str | None, environ: Mapping[str, str]
) -> list[Finding]:
    """The word of a service. Raises what keeps it from being asked."""
    from stager import rest
    from stager.cli.remote import planned_at

    try:
        planned, workflow = planned_at(where, file, rest.Options(spill=spill, output_origin=output_origin), given)
    except (InvalidInput, Denied, Refused) as problem:
        return [Finding("service", False, problem.message)]
    found = [Finding("service", True, f"it reads and plans {counted(len(planned.plan['jobs']), 'job')}")]
    if planned.fault is not None:
        found.append(Finding("plan", False, planned.fault.message))
    found += [Finding("workflow", True, note, note=True) for note in [*planned.notes, *planned.plan["notes"]]]
    unset = check_variables(workflow, environ) if workflow is not None else []
    # A service gives jobs no variables of its own, and takes no run whose variables it was not told.
    return [*found, *(replace(finding, good=False, note=False) for finding in unset)]


def read_or_note(file: Path, access: IonodeOriginAccess, options: dict[str, Any], findings: list[Finding]) -> Workflow | None:
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


def check_origin(workflow: Workflow, origin: Origin, access: IonodeOriginAccess, probes: dict[tuple[str, str], Probe]) -> list[Finding]:
    """Reads are probed at the base, writes in the directories of finals. It adds the answers of its probes to `probes`."""
    finals = [file for file in workflow.files.values() if file.destination is not None and file.destination.location.origin == origin.name]
    about = f"origin {origin.name}"
    try:
        new = new_directories(workflow).get(origin.name)
        if new is not None:
            probes[origin.name, ""] = above(new)
            return [Finding(about, True, f"{new} is not there yet: `stager submit` makes it")]
        directories = destination_directories(workflow).get(origin.name, [""])
        told = side_by_side([partial(access.probe, origin, directory, write=bool(finals)) for directory in directories])
        asked = dict(zip(directories, told, strict=True))
    except StagerError as error:
        return [Finding(about, False, error.message)]
    said = dict.fromkeys(fault.message for probe in asked.values() for fault in probe.findings)
    found = [Finding(about, False, message) for message in said]
    free_bytes = min((probe.free_bytes for probe in asked.values() if probe.free_bytes is not None), default=None)
    probes.update({(origin.name, directory): probe for directory, probe in asked.items()})
    if not found:
        room = f", {format_size(free_bytes)} free" if free_bytes is not None else ""
        found.append(Finding(about, True, f"{origin.url} can be {'read and written' if finals else 'read'}{room}"))
    return found


def above(directory: Path) -> Probe:
    """Of a directory that is still to be made: the room where it will be."""
    parent = next(parent for parent in directory.parents if parent.exists())
    disk = os.statvfs(parent)
    return Probe(True, None, disk.f_bavail * disk.f_frsize, (), f"dev:{parent.stat().st_dev}")


def check_space(workflow: Workflow, plan: Plan | None, probes: Probes, there: list[There]) -> list[Finding]:
    """For all finals of a file system together."""
    disks = disks_of(workflow, plan, probes, {(each.origin, each.path) for each in there})
    return [Finding("room", not disk.is_short, disk.message, note=not disk.is_short) for disk in disks if disk.may_be_short]


def check_plan(workflow: Workflow, settings: Settings, spill: str | None) -> tuple[list[Finding], Plan | None]:
    """Capacity, and what the plan notes."""
    try:
        plan = plan_of(workflow, settings, load_profiles(settings), spill)
    except StagerError as error:
        return [Finding("plan", False, error.message)], None
    notes = [Finding("plan", True, note, note=True) for note in plan.notes]
    try:
        check_capacity(plan)
    except StagerError as error:
        return [Finding("capacity", False, error.message), *notes], plan
    room = f"{format_size(plan.capacity_bytes)} of at least {format_size(plan.smallest_capacity_bytes)}"
    return [Finding("capacity", True, room), *notes], plan


def check_destinations(there: list[There]) -> list[Finding]:
    """Those that exist already; an origin that cannot be asked is told of elsewhere."""
    taken = [each.name for each in there if each.stops]
    found = [Finding("destinations", False, refusal(taken))] if taken else []
    for rule in OnExists:
        names = [each.name for each in there if each.rule is rule and not each.stops]
        if names:
            count = f"{len(names)} destinations are there already, the first is" if len(names) > 1 else "there is already"
            whose = "as an earlier run left it; " if rule is OnExists.FAIL else ""
            found.append(
                Finding("destinations", True, f"{count} {names[0]}; {whose}on_exists is {rule.value}: {EXISTING[rule]}", note=True)
            )
    return found


def check_conda(workflow: Workflow, settings: Settings, find: Callable[[str], object] = find_spec) -> list[Finding]:
    """Hosts of a pool have what they need, or not, whatever is here."""
    wanting = next((job.id for job in workflow.jobs.values() if job.conda is not None), None)
    if wanting is None or settings.pool or find("rattler") is not None:
        return []
    return [Finding("conda", False, f"job {wanting!r} cannot have its packages: {NO_RATTLER}")]


def check_variables(workflow: Workflow, environ: Mapping[str, str]) -> list[Finding]:
    wanted: dict[str, str] = {}
    for job in workflow.jobs.values():
        for name in job.env_pass:
            if name not in environ:
                wanted.setdefault(name, job.id)
    return [
        Finding("env_pass", True, f"{name} is not set here; job {job_id!r} passes it and would run without it", note=True)
        for name, job_id in sorted(wanted.items())
    ]


def check_programs(workflow: Workflow, environ: Mapping[str, str]) -> list[Finding]:
    """First words of argv that are neither inputs nor paths, and those of simple commands in shell texts."""
    wanted: dict[tuple[str, str], str] = {}
    read: dict[str, tuple[tuple[str, ...], int]] = {}
    for job in workflow.jobs.values():
        # Its programs are in the image, or come with its packages.
        if job.image is not None or job.venv is not None or job.conda is not None:
            continue
        programs = job.argv[:1]
        if job.shell and quotes_like_sh(job.interpreter):
            # Jobs of one `foreach` share their text.
            programs, _ = read.setdefault(job.shell, read.get(job.shell) or programs_of(job.shell))
        if job.interpreter not in ((), strict_shell()):
            programs = (*job.interpreter[:1], *programs)
        for program in programs:
            wanted.setdefault((program, path_of(job, environ)), job.id)
    found = []
    for (program, path), job_id in wanted.items():
        inside = {entry.path for entry in workflow.jobs[job_id].inputs}
        local = program.removeprefix("./") in inside
        if not local and shutil.which(program, path=path) is None:
            found.append(Finding("programs", False, missing_program(job_id, program, path, environ)))
    left_alone = sum(count for _, count in read.values())
    what = "command of shell texts was" if left_alone == 1 else "commands of shell texts were"
    rest = f"; {left_alone} {what} not looked at: known only when they run" if left_alone else ""
    return [*found, Finding("programs", True, f"{len(wanted) - len(found)} found{rest}")]


def missing_program(job_id: str, program: str, path: str, environ: Mapping[str, str]) -> str:
    """Most often it is there, and only the submitter's PATH knows where."""
    elsewhere = shutil.which(program, path=environ.get("PATH"))
    if elsewhere is None:
        return f"job {job_id!r} calls {program!r}, which is not on its PATH ({path}): install it, or name it by its path"
    what = f"job {job_id!r} calls {program!r}, which is on your PATH ({elsewhere}) and not on the job's ({path})"
    return f"{what}: write env_pass: [PATH] for the job or under defaults:, or name the program by its path"


def path_of(job: Job, environ: Mapping[str, str]) -> str:
    declared = dict(job.env).get("PATH")
    if declared is not None:
        return declared
    return environ.get("PATH", DEFAULT["PATH"]) if "PATH" in job.env_pass else DEFAULT["PATH"]


def word_of(finding: Finding) -> str:
    return "STOP " if not finding.good else "note " if finding.note else "ok   "


def report(findings: list[Finding], as_json: bool) -> None:
    if as_json:
        print_json(
            [{"about": finding.about, "good": finding.good, "message": finding.message, "note": finding.note} for finding in findings]
        )
        return
    for finding in findings:
        click.echo(f"{word_of(finding)} {finding.about}: {finding.message}")
