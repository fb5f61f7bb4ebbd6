"""What each file and job is expected to be: bytes and seconds, each with the basis of its number.

May know: the model and the plan. One rule: declared for this file or job first, then what profiles saw of the type, then the user's hint
for the type, then a guess; a guess never makes a workflow impossible.
"""

from __future__ import annotations

from dataclasses import dataclass

from stager.model.files import File
from stager.model.profile import Profiles
from stager.model.workflow import Job, Workflow
from stager.planning.plan import Basis

# A guess for an output nobody knows: as large as its share of the inputs, within these bounds.
GUESS_BYTES_MIN = 64 * 1024
GUESS_BYTES_MAX = 64 * 1024 * 1024
GUESS_COMPUTE_S = 1.0


@dataclass(frozen=True, slots=True)
class Sized:
    """By lfn, and by job id."""

    size_bytes: dict[str, int]
    size_basis: dict[str, Basis]
    compute_s: dict[str, float]
    compute_basis: dict[str, Basis]
    guessed: int


def expected(workflow: Workflow, order: tuple[str, ...], profiles: Profiles, guess_bytes_max: int = GUESS_BYTES_MAX) -> Sized:
    """Walks the jobs in topological order, so that the guess for an output can look at the sizes of the inputs."""
    size: dict[str, int] = {}
    basis: dict[str, Basis] = {}
    for lfn, file in workflow.files.items():
        if file.is_external:
            size[lfn], basis[lfn] = external_size(file)
    compute: dict[str, float] = {}
    compute_basis: dict[str, Basis] = {}
    guessed = 0
    for job_id in order:
        job = workflow.jobs[job_id]
        compute[job_id], compute_basis[job_id] = compute_time(job, workflow, profiles)
        unknown = []
        for output in job.outputs:
            found = output_size(workflow.files[output.lfn], job, profiles)
            if found is None:
                unknown.append(output.lfn)
            else:
                size[output.lfn], basis[output.lfn] = found
        if unknown:
            guessed += share_out(unknown, job, workflow, profiles, size, basis, guess_bytes_max)
    for lfn in workflow.files:
        if lfn not in size:
            size[lfn], basis[lfn] = min(GUESS_BYTES_MIN, guess_bytes_max), Basis.DEFAULT
    return Sized(size, basis, compute, compute_basis, guessed)


def external_size(file: File) -> tuple[int, Basis]:
    if file.size_bytes is not None:
        return file.size_bytes, Basis.MEASURED
    for source in file.sources:
        if source.size_bytes is not None:
            return source.size_bytes, Basis.MEASURED
    return GUESS_BYTES_MIN, Basis.DEFAULT


def output_size(file: File, job: Job, profiles: Profiles) -> tuple[int, Basis] | None:
    """What is known of this one file by itself."""
    if file.size_bytes is not None:
        return file.size_bytes, Basis.DECLARED
    profile = profiles.get(job.job_type)
    if profile is not None:
        seen = profile.bytes_of(file.lfn)
        if seen is not None:
            return seen, Basis.PROFILE
    return None


def share_out(
    unknown: list[str],
    job: Job,
    workflow: Workflow,
    profiles: Profiles,
    size: dict[str, int],
    basis: dict[str, Basis],
    guess_bytes_max: int,
) -> int:
    """Divides what is known of the job's outputs in total among those that nobody sized. Returns how many are mere guesses."""
    profile, hint = profiles.get(job.job_type), workflow.hints.get(job.job_type)
    total, kind = None, Basis.DEFAULT
    if profile is not None and profile.output_bytes is not None:
        total, kind = profile.output_bytes, Basis.PROFILE
    elif hint is not None and hint.output_bytes is not None:
        total, kind = hint.output_bytes, Basis.DECLARED
    if total is not None:
        known = sum(size[output.lfn] for output in job.outputs if output.lfn in size)
        each = -(-max(0, total - known) // len(unknown))
    else:
        inputs = sum(size.get(lfn, 0) for lfn in dict.fromkeys(entry.lfn for entry in job.inputs))
        each = min(max(inputs // len(unknown), GUESS_BYTES_MIN), guess_bytes_max)
    for lfn in unknown:
        size[lfn], basis[lfn] = each, kind
    return len(unknown) if kind is Basis.DEFAULT else 0


def compute_time(job: Job, workflow: Workflow, profiles: Profiles) -> tuple[float, Basis]:
    if job.compute_s is not None:
        return job.compute_s, Basis.DECLARED
    profile, hint = profiles.get(job.job_type), workflow.hints.get(job.job_type)
    if profile is not None and profile.compute_s is not None:
        return profile.compute_s, Basis.PROFILE
    if hint is not None and hint.compute_s is not None:
        return hint.compute_s, Basis.DECLARED
    return GUESS_COMPUTE_S, Basis.DEFAULT
