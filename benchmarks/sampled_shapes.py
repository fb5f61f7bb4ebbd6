"""Workflows of common shapes, drawn from a seed, for benchmarks of the order of jobs.

May know: the model. One rule: the same seed gives the same workflow, and seeds of one remainder by the number of shapes have one shape.
"""

from __future__ import annotations

from collections.abc import Callable
from math import exp, log
from random import Random

from stager.model.files import Destination, File, Location, Source
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow

HOME = "home"


class Maker:
    """Files and jobs of one workflow. Each job type has a typical time and a typical size, and each job and file is near it."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.files: dict[str, File] = {}
        self.jobs: dict[str, Job] = {}
        self._typical_s: dict[str, float] = {}
        self._typical_bytes: dict[str, float] = {}

    def _near(self, typical: dict[str, float], name: str, low: float, high: float) -> float:
        value = typical.setdefault(name, exp(self.random.uniform(log(low), log(high))))
        return value * exp(self.random.uniform(-0.3, 0.3))

    def external(self, kind: str) -> str:
        lfn, size = f"in{len(self.files)}", round(self._near(self._typical_bytes, kind, 1e5, 2e7))
        self.files[lfn] = File(lfn, size_bytes=size, sources=(Source(Location(HOME, f"in/{lfn}"), size, "t"),))
        return lfn

    def job(self, kind: str, reads: list[str], finals: int = 0, makes: int = 1) -> list[str]:
        """The lfns that it makes; the first so many are finals."""
        job, outputs = f"{kind}{len(self.jobs)}", []
        for number in range(max(makes, finals)):
            lfn, size = f"{job}.{number}", round(self._near(self._typical_bytes, f"{kind}/{number}", 1e5, 2e7))
            where = Destination(Location(HOME, f"out/{lfn}")) if number < finals else None
            self.files[lfn] = File(lfn, size_bytes=size, destination=where)
            outputs.append(lfn)
        self.jobs[job] = Job(
            job,
            kind,
            ("true",),
            inputs=tuple(JobInput(lfn, lfn) for lfn in dict.fromkeys(reads)),
            outputs=tuple(JobOutput(lfn, lfn) for lfn in outputs),
            compute_s=self._near(self._typical_s, kind, 0.1, 10.0),
        )
        return outputs


def chains(make: Maker) -> None:
    """Of equal length, each with an input and a final of its own."""
    length = make.random.randint(2, 5)
    for _ in range(make.random.randint(8, 40)):
        made = [make.external("input")]
        for stage in range(length):
            made = make.job(f"stage{stage}", made, finals=int(stage == length - 1))


def groups(make: Maker) -> None:
    """Jobs that are merged by groups, and at times all groups by one more job."""
    merged: list[str] = []
    for _ in range(make.random.randint(3, 12)):
        parts = [make.job("part", [make.external("input")])[0] for _ in range(make.random.randint(2, 10))]
        merged += make.job("merge", parts, finals=1)
    if make.random.random() < 0.5:
        make.job("all", merged, finals=1)


def layers(make: Maker) -> None:
    """Each job reads what some of the layer above made; a fifth of all outputs are finals."""
    above = [make.external("input") for _ in range(make.random.randint(4, 16))]
    for layer in range(make.random.randint(3, 6)):
        made = []
        for _ in range(make.random.randint(5, 20)):
            reads = make.random.sample(above, min(len(above), make.random.randint(1, 3)))
            made += make.job(f"layer{layer}", reads, finals=int(make.random.random() < 0.2))
        above = made
    make.job("last", above, finals=1)


def forks(make: Maker) -> None:
    """One job makes inputs for many, whose outputs one more reads, some times over; what the many make beside that goes home."""
    made = [make.external("input")]
    for stage in range(make.random.randint(1, 3)):
        width = make.random.randint(5, 30)
        parts = make.job(f"split{stage}", made, makes=width)
        beside = make.random.randint(0, 1)
        worked = [make.job(f"work{stage}", [part], finals=beside, makes=1 + beside)[-1] for part in parts]
        made = make.job(f"join{stage}", worked, finals=1)


def early(make: Maker) -> None:
    """Finals come from the first jobs of long chains, from some of them large ones."""
    for _ in range(make.random.randint(6, 25)):
        made = make.job("first", [make.external("input")], finals=1, makes=2)[1:]
        for stage in range(make.random.randint(1, 4)):
            made = make.job(f"then{stage}", made)
        make.job("end", made, finals=int(make.random.random() < 0.5))


def unequal(make: Maker) -> None:
    """Chains that have little in common: some compute for long and make little, others the other way round."""
    for chain in range(make.random.randint(5, 25)):
        kind, made = chain % 5, [make.external(f"input{chain % 5}")]
        length = 1 + kind % 3
        for stage in range(length):
            made = make.job(f"kind{kind}.{stage}", made, finals=int(stage == length - 1))


SHAPES: tuple[Callable[[Maker], None], ...] = (chains, groups, layers, forks, early, unequal)


def sampled_workflow(seed: int) -> tuple[Workflow, int]:
    """(the workflow, cores of each node)."""
    random, shape = Random(seed), SHAPES[seed % len(SHAPES)]
    make = Maker(random)
    shape(make)
    workflow = Workflow(f"{shape.__name__}-{seed}", make.files, make.jobs, {HOME: Origin(HOME, OriginKind.S3, "s3://lab")})
    return workflow, random.choice((2, 4, 8))
