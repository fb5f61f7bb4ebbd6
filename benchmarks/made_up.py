"""Workflows made up from a seed, for benchmarks: jobs that read an input of their own and what recent jobs made."""

from __future__ import annotations

from random import Random

from stager.model.files import Destination, File, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow


def made_up_workflow(jobs_count: int, seed: int = 1, recent: int = 200) -> Workflow:
    """Three files a job: one external, two produced, one in ten of those a final."""
    random = Random(seed)
    files: dict[str, File] = {}
    jobs: dict[str, Job] = {}
    made: list[str] = []
    for index in range(jobs_count):
        own = f"in{index}"
        size = random.randrange(1_000_000)
        files[own] = File(own, size_bytes=size, sources=(Source(Location("home", f"in/{own}"), size, f"t{index}"),))
        reads = dict.fromkeys([own, *(random.choice(made[-recent:]) for _ in range(random.randrange(3)) if made)])
        outputs = [f"out{index}.{number}" for number in range(2)]
        for lfn in outputs:
            where = Destination(Location("home", f"out/{lfn}")) if random.random() < 0.1 else None
            files[lfn] = File(lfn, size_bytes=random.randrange(1_000_000), destination=where)
        jobs[f"job{index}"] = Job(
            f"job{index}",
            f"type{index % 7}",
            ("true",),
            inputs=tuple(JobInput(lfn, lfn) for lfn in reads),
            outputs=tuple(JobOutput(lfn, lfn) for lfn in outputs),
            compute_s=random.random(),
        )
        made += outputs
    return Workflow("made-up", files, jobs, {"home": Origin("home", OriginKind.SFTP, "sftp://lab/data")})
