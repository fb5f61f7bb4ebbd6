"""Turns any workflow with sizes and times into one that really runs: same graph, scaled bytes and seconds, content known to the byte.

May know: the model. One rule: a file has one name everywhere, its path in each sandbox and at its origin (below inputs, work or finals),
and its bytes are a function of (seed, that name, size) alone; docs/formats/replay.md defines them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from stager.model.errors import InvalidInput, Refused
from stager.model.files import File, FileKind, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, Workflow
from stager.readers.wfcommons_paths import safe_paths

# Linux gives a quarter of an 8 MiB stack to arguments and environment together.
COMMAND_BYTES_MAX = 1_500_000
SEED_MAX = 2**64 - 1


@dataclass(frozen=True, slots=True)
class ReplayFile:
    """One file whose every byte is known: its path below the origin's base (also its name), and its size."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class ReplayScale:
    """How a record is shrunk. `program` is the I/O node's binary, which holds the replayed job."""

    bytes_scale: Fraction
    time_scale: Fraction
    seed: int
    program: str = "stager-ionode"
    spin: bool = False


def make_replay(
    workflow: Workflow,
    *,
    bytes_scale: float | str | Fraction,
    time_scale: float | str | Fraction,
    seed: int,
    origin: Origin,
    output_origin: Origin,
    program: str = "stager-ionode",
    spin: bool = False,
) -> tuple[Workflow, tuple[ReplayFile, ...]]:
    """The workflow to submit, and the inputs that must first be at `origin`. The same arguments give the same workflow."""
    scale = ReplayScale(fraction_of(bytes_scale, "--bytes-scale"), fraction_of(time_scale, "--time-scale"), seed, program, spin)
    check_scale(scale)
    if origin.name == output_origin.name and origin != output_origin:
        raise InvalidInput(f"two origins are called {origin.name!r}; give them different names")
    if any(file.kind is FileKind.DIRECTORY for file in workflow.files.values()):
        raise Refused("a workflow with directories as outputs cannot be replayed: their members are not known")
    names = replay_names(workflow)
    sizes = {lfn: scaled_bytes(file.size_bytes or 0, scale.bytes_scale) for lfn, file in workflow.files.items()}
    files = {lfn: replay_file(file, names[lfn], sizes[lfn], origin.name, output_origin.name) for lfn, file in workflow.files.items()}
    jobs = {job.id: replay_job(job, names, sizes, scale) for job in workflow.jobs.values()}
    origins = {origin.name: origin, output_origin.name: output_origin}
    notes = (*workflow.notes, f"replay: bytes x {scale.bytes_scale}, times x {scale.time_scale}, seed {seed}")
    made = replace(workflow, files=files, jobs=jobs, origins=origins, spill_origin=None, hints={}, notes=notes)
    inputs = (ReplayFile(names[lfn], sizes[lfn]) for lfn, file in files.items() if file.is_external)
    return made, tuple(sorted(inputs, key=lambda entry: entry.path))


def finals_of(workflow: Workflow) -> tuple[ReplayFile, ...]:
    """The finals that must be at the output origin after a replay, to be checked byte by byte."""
    found = (ReplayFile(file.destination.location.path, file.size_bytes or 0) for file in workflow.files.values() if file.destination)
    return tuple(sorted(found, key=lambda entry: entry.path))


def replay_names(workflow: Workflow) -> dict[str, str]:
    paths = safe_paths(workflow.files)
    return {
        lfn: f"{'inputs' if file.is_external else 'finals' if file.is_final else 'work'}/{paths[lfn]}"
        for lfn, file in workflow.files.items()
    }


def replay_file(file: File, name: str, size_bytes: int, origin: str, output_origin: str) -> File:
    if file.is_external:
        return File(file.lfn, size_bytes=size_bytes, sources=(Source(Location(origin, name), size_bytes),))
    destination = replace(file.destination, location=Location(output_origin, name)) if file.destination else None
    return File(file.lfn, size_bytes=size_bytes, destination=destination)


def replay_job(job: Job, names: dict[str, str], sizes: dict[str, int], scale: ReplayScale) -> Job:
    """One core and no memory: it waits instead of computing, and a record of a large machine must run on a small one."""
    time_s = float(Fraction(job.compute_s or 0) * scale.time_scale)
    inputs = list(dict.fromkeys(entry.lfn for entry in job.inputs))
    argv = [scale.program, "replay-job", "--seed", str(scale.seed), "--time-s", f"{time_s:.6f}", *(["--spin"] if scale.spin else [])]
    argv += [f"i:{sizes[lfn]}:{names[lfn]}" for lfn in inputs]
    argv += [f"o:{sizes[entry.lfn]}:{names[entry.lfn]}" for entry in job.outputs]
    command_bytes = sum(len(word) + 9 for word in argv)
    if command_bytes > COMMAND_BYTES_MAX:
        count = len(inputs) + len(job.outputs)
        raise Refused(
            f"job {job.id!r} has {count} files: its command would take {command_bytes} bytes, and Linux starts programs with less"
        )
    return Job(
        id=job.id,
        job_type=job.job_type,
        argv=tuple(argv),
        inputs=tuple(JobInput(lfn, names[lfn]) for lfn in inputs),
        outputs=tuple(JobOutput(entry.lfn, names[entry.lfn]) for entry in job.outputs),
        after=job.after,
        retries=job.retries,
        deterministic=True,
        compute_s=time_s,
    )


def scaled_bytes(size_bytes: int, scale: Fraction) -> int:
    """Rounded up, so that nothing becomes empty that was not."""
    return -(-size_bytes * scale.numerator // scale.denominator)


def fraction_of(value: float | str | Fraction, option: str) -> Fraction:
    """By its decimal digits: 0.01 is one hundredth, so sizes do not depend on how floats round."""
    try:
        return value if isinstance(value, Fraction) else Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        raise InvalidInput(f"{option} {value!r} is not a number; write one as in 0.01") from None


def check_scale(scale: ReplayScale) -> None:
    if scale.bytes_scale <= 0:
        raise InvalidInput("--bytes-scale must be more than 0; 1 keeps the recorded sizes")
    if scale.time_scale < 0:
        raise InvalidInput("--time-scale must be 0 or more; 1 keeps the recorded times, 0 does not wait")
    if not 0 <= scale.seed <= SEED_MAX:
        raise InvalidInput(f"--seed must be a whole number from 0 to {SEED_MAX}")


def total_bytes(files: Iterable[ReplayFile]) -> int:
    return sum(file.size_bytes for file in files)
