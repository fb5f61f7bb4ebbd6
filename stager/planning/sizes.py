"""The expected size of each file and time of each job: bytes and seconds, each with the basis of its number.

May know: the model and the plan. One rule: declared for this file or job first, then what profiles saw of the type, then the user's hint
for the type, then a guess; a guess never makes a workflow impossible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from stager.model.files import File
from stager.model.profile import Profile, Profiles, Quantity
from stager.model.record import Record
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S
from stager.model.workflow import Job, Workflow
from stager.planning.plan import DECLARED, DEFAULT, MEASURED, Basis

# A guess for an output nobody knows: as large as its share of the inputs, within these bounds.
GUESS_BYTES_MIN = 64 * 1024
GUESS_BYTES_MAX = 64 * 1024 * 1024
GUESS_COMPUTE_S = 1.0
WEAKEST_LAST = {Basis.MEASURED: 0, Basis.DECLARED: 1, Basis.PROFILE: 2, Basis.DEFAULT: 3}


class SizedFile(Record):
    """`size_bytes` is what space is set aside for, `likely_bytes` what moves and what later sizes follow from. `spread` None: nobody
    knows. A file that was listed is as large as that.
    """

    size_bytes: int
    likely_bytes: int
    basis: Basis
    spread: float | None = None


class SizedJob(Record):
    compute_s: float
    basis: Basis
    spread: float | None = None


@dataclass(slots=True)
class Sized:
    """By lfn, and by job id."""

    files: dict[str, SizedFile] = field(default_factory=dict)
    jobs: dict[str, SizedJob] = field(default_factory=dict)
    guessed: int = 0


def of_size(size_bytes: int, basis: Basis) -> SizedFile:
    return SizedFile(size_bytes, size_bytes, basis, 1.0 if basis is MEASURED else None)


def by_profile(quantity: Quantity, input_bytes: int | None) -> SizedFile:
    """As large as the profile says of a job with these inputs."""
    likely = ceil(quantity.at(input_bytes))
    return SizedFile(max(likely, ceil(quantity.high_at(input_bytes))), likely, Basis.PROFILE, quantity.spread)


def expected(
    workflow: Workflow,
    order: tuple[str, ...],
    profiles: Profiles,
    guess_bytes_max: int = GUESS_BYTES_MAX,
    disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S,
) -> Sized:
    """Walks the jobs in topological order, so that what is said of a job can look at the sizes of its inputs."""
    sized = Sized()
    for lfn, file in workflow.files.items():
        if file.sources:
            sized.files[lfn] = external_size(file)
    for job_id in order:
        job = workflow.jobs[job_id]
        profile = profiles.get(job.profile)
        input_bytes = bytes_given(job, sized) if profile is not None else None
        sized.jobs[job_id] = sized_job(job, workflow, profile, input_bytes, disk_bytes_per_s)
        unknown = []
        for output in job.outputs:
            found = size_of_output(workflow.files[output.lfn], profile, input_bytes)
            if found is None:
                unknown.append(output.lfn)
            else:
                sized.files[output.lfn] = found
        if unknown:
            share_out(unknown, job, workflow, profile, input_bytes, sized, guess_bytes_max)
    if len(sized.files) < len(workflow.files):
        guess = of_size(min(GUESS_BYTES_MIN, guess_bytes_max), DEFAULT)
        sized.files |= {lfn: guess for lfn in workflow.files if lfn not in sized.files}
    return sized


def external_size(file: File) -> SizedFile:
    if file.size_bytes is not None:
        return of_size(file.size_bytes, MEASURED)
    for source in file.sources:
        if source.size_bytes is not None:
            return of_size(source.size_bytes, MEASURED)
    return of_size(GUESS_BYTES_MIN, DEFAULT)


def bytes_given(job: Job, sized: Sized) -> int | None:
    """Of all inputs together; None where one of them is a guess: nothing can be read off a line by that."""
    total = 0
    for lfn in dict.fromkeys([entry.lfn for entry in job.inputs]):
        known = sized.files.get(lfn)
        if known is None or known.basis is DEFAULT:
            return None
        total += known.likely_bytes
    return total


def size_of_output(file: File, profile: Profile | None, input_bytes: int | None) -> SizedFile | None:
    """By what is known of this one file by itself. None: nothing."""
    if file.size_bytes is not None:
        return of_size(file.size_bytes, DECLARED)
    seen = profile.output(file.lfn) if profile is not None else None
    return None if seen is None or seen.size_bytes is None else by_profile(seen.size_bytes, input_bytes)


def share_out(
    unknown: list[str],
    job: Job,
    workflow: Workflow,
    profile: Profile | None,
    input_bytes: int | None,
    sized: Sized,
    guess_bytes_max: int,
) -> None:
    """Divides what is known of the job's outputs in total among those that nobody sized."""
    hint = workflow.hints.get(job.job_type)
    known = [sized.files[output.lfn] for output in job.outputs if output.lfn in sized.files]
    if profile is not None and profile.output_bytes is not None:
        total = profile.output_bytes
        likely = max(0.0, total.at(input_bytes) - sum([each.likely_bytes for each in known])) / len(unknown)
        high = max(0.0, total.high_at(input_bytes) - sum([each.size_bytes for each in known])) / len(unknown)
        share = by_profile(Quantity(likely, high, total.spread), None)
    elif hint is not None and hint.output_bytes is not None:
        rest = hint.output_bytes - sum([each.size_bytes for each in known])
        share = of_size(-(-max(0, rest) // len(unknown)), DECLARED)
    else:
        inputs = [sized.files[lfn].likely_bytes for lfn in dict.fromkeys([entry.lfn for entry in job.inputs]) if lfn in sized.files]
        share = of_size(min(max(sum(inputs) // len(unknown), GUESS_BYTES_MIN), guess_bytes_max), DEFAULT)
        sized.guessed += len(unknown)
    sized.files |= dict.fromkeys(unknown, share)


def sized_job(job: Job, workflow: Workflow, profile: Profile | None, input_bytes: int | None, disk_bytes_per_s: float) -> SizedJob:
    if job.compute_s is not None:
        return SizedJob(job.compute_s, DECLARED)
    if profile is not None and profile.wall_s is not None:
        wall_s, cpu_s = profile.wall_s.at(input_bytes), None if profile.cpu_s is None else profile.cpu_s.at(input_bytes)
        seconds = without_reading_s(wall_s, cpu_s, job.cores, input_bytes, disk_bytes_per_s)
        return SizedJob(seconds, Basis.PROFILE, profile.wall_s.spread)
    hint = workflow.hints.get(job.job_type)
    if hint is not None and hint.compute_s is not None:
        return SizedJob(hint.compute_s, DECLARED)
    return SizedJob(GUESS_COMPUTE_S, DEFAULT)


def without_reading_s(
    wall_s: float, cpu_s: float | None, cores: int, input_bytes: int | None, disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S
) -> float:
    """A program's wall time contains the reading of its inputs, which schedule and simulation add by the bytes: it is taken off, at the
    rate of a disk that nobody measured, as far as the program did not compute meanwhile. Where CPU time or bytes are not known nothing is.
    """
    if cpu_s is None or input_bytes is None:
        return wall_s
    computing_s = min(wall_s, cpu_s / max(1, cores))
    return max(computing_s, wall_s - input_bytes / disk_bytes_per_s)


def weakest(bases: list[Basis]) -> Basis:
    """A sum is known as well as the least known of its parts; of nothing there is nothing to know."""
    first = bases[0] if bases else MEASURED
    # As a rule all are alike, and nothing need be ordered.
    return first if bases.count(first) == len(bases) else max(bases, key=WEAKEST_LAST.__getitem__)
