"""Workflows around a replay at a remote origin: one that puts its inputs there, one that reads its finals back and checks every byte.

May know: replay. One rule: they go the same ways as any workflow, so a replay needs no road of its own to an origin.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from stager.model.files import Destination, File, Location, OnExists, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, Workflow
from stager.readers.replay import ReplayFile

FILES_PER_JOB = 50


def fill_workflow(name: str, files: Sequence[ReplayFile], origin: Origin, *, seed: int, program: str) -> Workflow:
    """Makes these files and writes them to the origin, replacing what is there."""

    def file_of(entry: ReplayFile) -> File:
        return File(entry.path, size_bytes=entry.size_bytes, destination=Destination(Location(origin.name, entry.path), OnExists.REPLACE))

    def job_of(job_id: str, argv: tuple[str, ...], part: Sequence[ReplayFile]) -> Job:
        return Job(job_id, "fill", argv, outputs=tuple(JobOutput(entry.path, entry.path) for entry in part), deterministic=True)

    return rounds(f"{name}-fill", "o", files, origin, seed, program, file_of, job_of)


def check_workflow(name: str, files: Sequence[ReplayFile], origin: Origin, *, seed: int, program: str) -> Workflow:
    """Fetches these files from the origin and compares every byte; a job fails for each group with a wrong one."""

    def file_of(entry: ReplayFile) -> File:
        return File(entry.path, size_bytes=entry.size_bytes, sources=(Source(Location(origin.name, entry.path), entry.size_bytes),))

    def job_of(job_id: str, argv: tuple[str, ...], part: Sequence[ReplayFile]) -> Job:
        return Job(job_id, "check", argv, inputs=tuple(JobInput(entry.path, entry.path) for entry in part), retries=0)

    return rounds(f"{name}-check", "i", files, origin, seed, program, file_of, job_of)


def rounds(
    name: str,
    letter: str,
    files: Sequence[ReplayFile],
    origin: Origin,
    seed: int,
    program: str,
    file_of: Callable[[ReplayFile], File],
    job_of: Callable[[str, tuple[str, ...], Sequence[ReplayFile]], Job],
) -> Workflow:
    jobs = {}
    for start in range(0, len(files), FILES_PER_JOB):
        part = files[start : start + FILES_PER_JOB]
        job_id = f"part{start // FILES_PER_JOB:05d}"
        argv = (
            program,
            "replay-job",
            "--seed",
            str(seed),
            "--time-s",
            "0",
            *(f"{letter}:{entry.size_bytes}:{entry.path}" for entry in part),
        )
        jobs[job_id] = job_of(job_id, argv, part)
    return Workflow(name, {entry.path: file_of(entry) for entry in files}, jobs, {origin.name: origin})
