"""What each file and job is expected to be: bytes and seconds, each with the basis of its number.

May know: the model and the plan. One rule: declared for this file or job first, then what profiles saw of the type, then the user's hint
for the type, then a guess; a guess never makes a workflow impossible.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import ceil

from stager.model.files import File
from stager.model.profile import Profile, Profiles, Quantity
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S
from stager.model.workflow import Job, Workflow
from stager.planning.plan import Basis

# A guess for an output nobody knows: as large as its share of the inputs, within these bounds.
GUESS_BYTES_MIN = 64 * 1024
GUESS_BYTES_MAX = 64 * 1024 * 1024
GUESS_COMPUTE_S = 1.0
WEAKEST_LAST = {Basis.MEASURED: 0, Basis.DECLARED: 1, Basis.PROFILE: 2, Basis.DEFAULT: 3}


@dataclass(slots=True)
class Sized:
    """By lfn, and by job id. `size_bytes` is what space is set aside for, `likely_bytes` what moves and what later sizes follow from. Of
    spreads only those that are known: what was listed is as large as that, and what a profile has seen often enough.
    """

    size_bytes: dict[str, int] = field(default_factory=dict)
    likely_bytes: dict[str, int] = field(default_factory=dict)
    size_basis: dict[str, Basis] = field(default_factory=dict)
    size_spread: dict[str, float | None] = field(default_factory=dict)
    compute_s: dict[str, float] = field(default_factory=dict)
    compute_basis: dict[str, Basis] = field(default_factory=dict)
    compute_spread: dict[str, float | None] = field(default_factory=dict)
    guessed: int = 0
    disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S

    def size(self, lfn: str, size_bytes: int, basis: Basis) -> None:
        self.size_bytes[lfn] = self.likely_bytes[lfn] = size_bytes
        self.size_basis[lfn] = basis
        if basis is Basis.MEASURED:
            self.size_spread[lfn] = 1.0

    def size_by(self, lfn: str, quantity: Quantity, input_bytes: int | None) -> None:
        """As large as the profile says of a job with these inputs."""
        likely = ceil(quantity.at(input_bytes))
        self.likely_bytes[lfn], self.size_bytes[lfn] = likely, max(likely, ceil(quantity.high_at(input_bytes)))
        self.size_basis[lfn], self.size_spread[lfn] = Basis.PROFILE, quantity.spread


def expected(
    workflow: Workflow,
    order: tuple[str, ...],
    profiles: Profiles,
    guess_bytes_max: int = GUESS_BYTES_MAX,
    disk_bytes_per_s: float = DEFAULT_DISK_BYTES_PER_S,
) -> Sized:
    """Walks the jobs in topological order, so that what is said of a job can look at the sizes of its inputs."""
    sized = Sized(disk_bytes_per_s=disk_bytes_per_s)
    for lfn, file in workflow.files.items():
        if file.is_external:
            sized.size(lfn, *external_size(file))
    for job_id in order:
        job = workflow.jobs[job_id]
        profile = profiles.get(job.profile)
        input_bytes = bytes_given(job, sized) if profile is not None else None
        size_compute(job, workflow, profile, input_bytes, sized)
        unknown = [output.lfn for output in job.outputs if not size_output(workflow.files[output.lfn], profile, input_bytes, sized)]
        if unknown:
            share_out(unknown, job, workflow, profile, input_bytes, sized, guess_bytes_max)
    for lfn in workflow.files:
        if lfn not in sized.size_bytes:
            sized.size(lfn, min(GUESS_BYTES_MIN, guess_bytes_max), Basis.DEFAULT)
    return sized


def external_size(file: File) -> tuple[int, Basis]:
    if file.size_bytes is not None:
        return file.size_bytes, Basis.MEASURED
    for source in file.sources:
        if source.size_bytes is not None:
            return source.size_bytes, Basis.MEASURED
    return GUESS_BYTES_MIN, Basis.DEFAULT


def bytes_given(job: Job, sized: Sized) -> int | None:
    """Of all inputs together; None where one of them is a guess: nothing can be read off a line by that."""
    basis, likely, total = sized.size_basis, sized.likely_bytes, 0
    for lfn in dict.fromkeys([entry.lfn for entry in job.inputs]):
        if basis.get(lfn, Basis.DEFAULT) is Basis.DEFAULT:
            return None
        total += likely[lfn]
    return total


def size_output(file: File, profile: Profile | None, input_bytes: int | None, sized: Sized) -> bool:
    """By what is known of this one file by itself. False: nothing."""
    if file.size_bytes is not None:
        sized.size(file.lfn, file.size_bytes, Basis.DECLARED)
        return True
    seen = profile.output(file.lfn) if profile is not None else None
    if seen is None or seen.size_bytes is None:
        return False
    sized.size_by(file.lfn, seen.size_bytes, input_bytes)
    return True


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
    if profile is not None and profile.output_bytes is not None:
        total = profile.output_bytes
        known = [output.lfn for output in job.outputs if output.lfn in sized.size_bytes]
        likely = max(0.0, total.at(input_bytes) - sum(sized.likely_bytes[lfn] for lfn in known)) / len(unknown)
        high = max(0.0, total.high_at(input_bytes) - sum(sized.size_bytes[lfn] for lfn in known)) / len(unknown)
        for lfn in unknown:
            sized.size_by(lfn, Quantity(likely, high, total.spread), None)
        return
    if hint is not None and hint.output_bytes is not None:
        rest = hint.output_bytes - sum(sized.size_bytes[output.lfn] for output in job.outputs if output.lfn in sized.size_bytes)
        each, basis = -(-max(0, rest) // len(unknown)), Basis.DECLARED
    else:
        inputs = sum(sized.likely_bytes.get(lfn, 0) for lfn in dict.fromkeys(entry.lfn for entry in job.inputs))
        each, basis = min(max(inputs // len(unknown), GUESS_BYTES_MIN), guess_bytes_max), Basis.DEFAULT
        sized.guessed += len(unknown)
    for lfn in unknown:
        sized.size(lfn, each, basis)


def size_compute(job: Job, workflow: Workflow, profile: Profile | None, input_bytes: int | None, sized: Sized) -> None:
    hint = workflow.hints.get(job.job_type)
    if job.compute_s is not None:
        seconds, basis = job.compute_s, Basis.DECLARED
    elif profile is not None and profile.wall_s is not None:
        wall_s, cpu_s = profile.wall_s.at(input_bytes), None if profile.cpu_s is None else profile.cpu_s.at(input_bytes)
        seconds, basis = without_reading_s(wall_s, cpu_s, job.cores, input_bytes, sized.disk_bytes_per_s), Basis.PROFILE
        sized.compute_spread[job.id] = profile.wall_s.spread
    elif hint is not None and hint.compute_s is not None:
        seconds, basis = hint.compute_s, Basis.DECLARED
    else:
        seconds, basis = GUESS_COMPUTE_S, Basis.DEFAULT
    sized.compute_s[job.id], sized.compute_basis[job.id] = seconds, basis


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
    return max(bases, key=WEAKEST_LAST.__getitem__, default=Basis.MEASURED)
