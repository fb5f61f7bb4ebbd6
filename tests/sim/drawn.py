"""Workflows drawn from a seed: chains, diamonds, fan-in, fan-out and loose ends, with files at two origins.

One rule: the same random gives the same workflow.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from stager.model.files import Destination, File, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, OnFailure, Origin, OriginKind, Workflow

HOME, ARCHIVE = (
    Origin("home", OriginKind.SFTP, "sftp://lab/data", options=(("shell_checksum", "false"),)),
    Origin("archive", OriginKind.S3, "s3://archive"),
)


def sample_workflow(random: Random, name: str, shared: list[File], jobs_max: int = 14) -> Workflow:
    """Chains, diamonds, fan-in, fan-out and loose ends, by mixing how far back a job looks for its inputs."""
    files: dict[str, File] = {}
    jobs: dict[str, Job] = {}
    shape = random.choice(("chain", "wide", "mixed", "fan"))
    made: list[str] = []
    for index in range(random.randint(1, jobs_max)):
        reads: dict[str, None] = {}
        if not made or random.random() < 0.5:
            for file in sample_externals(random, name, index, shared):
                files.setdefault(file.lfn, file)
                reads[file.lfn] = None
        if made:
            back = {"chain": 1, "wide": len(made), "mixed": 6, "fan": 12}[shape]
            count = {"chain": 1, "wide": random.randint(0, 1), "mixed": random.randint(0, 3), "fan": random.choice((0, 0, 1, 10))}[shape]
            pool = made[-back:]
            reads |= dict.fromkeys(random.sample(pool, min(count, len(pool))))
        outputs = [f"{name}.f{index}.{number}" for number in range(random.choice((0, 1, 1, 1, 2, 3)))]
        for lfn in outputs:
            final = random.random() < 0.3
            where = Destination(Location(random.choice(("home", "archive")), f"out/{lfn}")) if final else None
            files[lfn] = File(lfn, size_bytes=sample_size(random), destination=where)
        made += outputs
        jobs[f"j{index}"] = sample_job(random, index, reads, outputs)
    return Workflow(name, files, jobs, {"home": HOME, "archive": ARCHIVE}, random.choice((OnFailure.CONTINUE, OnFailure.STOP)))


def sample_tangled(random: Random, name: str) -> Workflow:
    """Intermediates only, of sizes that do not fill a node well, read by small jobs at any time after: much more is held than one job
    needs.
    """
    files: dict[str, File] = {}
    jobs: dict[str, Job] = {}
    least = random.choice((100, 60, 1))
    for index in range(random.randint(4, 25)):
        reads = random.sample(list(files), min(len(files), random.choice((0, 0, 1, 1, 2, 2, 3))))
        outputs = [f"{name}.f{index}.{number}" for number in range(random.choice((1, 1, 2)))]
        files |= {lfn: File(lfn, size_bytes=random.randint(least, 100)) for lfn in outputs}
        jobs[f"j{index}"] = sample_job(random, index, dict.fromkeys(reads), outputs)
    return Workflow(name, files, jobs, {"home": HOME, "archive": ARCHIVE})


def renamed(workflow: Workflow) -> Workflow:
    """The same files at the same places, and each of the two origins called as the other is elsewhere."""
    other = {"home": "archive", "archive": "home"}

    def moved(file: File) -> File:
        sources = tuple(replace(source, location=replace(source.location, origin=other[source.location.origin])) for source in file.sources)
        where = file.destination and replace(file.destination.location, origin=other[file.destination.location.origin])
        return replace(file, sources=sources, destination=Destination(where) if where else None)

    origins = {other[name]: replace(origin, name=other[name]) for name, origin in workflow.origins.items()}
    return replace(workflow, origins=origins, files={lfn: moved(file) for lfn, file in workflow.files.items()})


def sample_job(random: Random, index: int, reads: dict[str, None], outputs: list[str]) -> Job:
    after = (f"j{random.randrange(index)}",) if index and random.random() < 0.1 else ()
    return Job(
        f"j{index}",
        "work",
        ("work",),
        inputs=tuple(JobInput(lfn, lfn) for lfn in reads),
        outputs=tuple(JobOutput(lfn, lfn) for lfn in outputs),
        after=after,
        cores=random.choice((1, 1, 1, 2, 9)),
        compute_s=random.choice((0.0, 0.1, 1.0, 5.0)) * random.random(),
    )


def sample_externals(random: Random, name: str, index: int, shared: list[File]) -> list[File]:
    found = random.sample(shared, min(len(shared), random.choice((0, 0, 1, 2))))
    if random.random() < 0.7:
        lfn = f"{name}.in{index}"
        size, token = sample_size(random), f"t{index}"
        sources = [Source(Location("home", f"in/{lfn}"), size, token)]
        if random.random() < 0.3:
            sources.append(Source(Location("archive", f"copy/{lfn}"), size, token, priority=1))
        found.append(File(lfn, size_bytes=size, sources=tuple(sources)))
    return found


def sample_size(random: Random) -> int:
    return random.choice((0, 1, 10, 100, 100, 300, 1000)) + random.randint(0, 50)


def sample_shared(random: Random) -> list[File]:
    return [
        File(f"shared{number}", size_bytes=size, sources=(Source(Location("home", f"shared/{number}"), size, f"s{number}"),))
        for number, size in enumerate(sample_size(random) for _ in range(random.randint(0, 3)))
    ]
