"""What the three applications read, write and compute, measured by stager's own runs, beside what the founding paper measured of its ones.

Runs montage, povray and supernovae at their default sizes, each in a state directory of its own. Bytes are those that went through the
programs' read and write calls, as each attempt reports them; what the same program reads only to start (Python and its libraries, measured
with --help) is taken off and shown apart. `python benchmarks/bench_profiles.py [--only povray] [--dir DIRECTORY]`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import verdict
from stager.adapters.journal_sqlite import SqliteJournal
from stager.model.workflow import Job, Workflow
from stager.scheduler import events as ev
from tests.testbed.own_place import own_place
from tests.testbed.stager import Stager
from tests.testbed.usage import machine
from tests.testbed.workflows import JOB_PATH, copied_workflow

MB = 1e6
DEADLINE_S = 1800


@dataclass(frozen=True)
class Profile:
    """Of a whole application, as in the paper's table. None: something of it was not seen.

    `again_bytes`: reads beyond the distinct bytes that were read. `buffered_bytes`: reads beyond the first read of each input from outside,
    so those of what the application itself had made are in it: all that a buffer which loses nothing could serve.
    """

    read_bytes: float | None
    written_bytes: float | None
    again_bytes: float | None
    buffered_bytes: float | None
    compute_s: float | None

    @property
    def total_bytes(self) -> float | None:
        return None if self.read_bytes is None or self.written_bytes is None else self.read_bytes + self.written_bytes

    @property
    def bytes_per_compute_s(self) -> float | None:
        return self.total_bytes / self.compute_s if self.total_bytes is not None and self.compute_s else None


@dataclass(frozen=True)
class Staged:
    """What stager moved for it, by sizes of files."""

    jobs: int
    handed_bytes: int
    distinct_bytes: int
    outside_bytes: int
    made_bytes: int
    start_bytes: int


# Table 1 of the prototype's paper. What it calls the locality of reads is what a buffer can serve: Montage's 1558 MB read less 1500 MB of
# locality leave 58 MB, fewer than the intermediate files it must read at least once.
PAPER = {
    "montage": Profile(1558.082295e6, 574.355213e6, None, 1500.107713e6, 18.680705),
    "povray": Profile(681.081228e6, 67.83515e6, None, 678.155227e6, 1150.97979),
    "supernovae": Profile(3283.723596e6, 1919.491286e6, None, 2429.888509e6, 1351.987268),
}
# By the workflow: what makes its data, where to.
DATA = {"montage": ("make_tiles.py", "survey"), "povray": ("make_scenes.py", "studio"), "supernovae": ("make_exposures.py", "field")}


def sum_of(values: Iterable[float | None]) -> float | None:
    """None as soon as one is."""
    seen = list(values)
    return None if None in seen else sum(value for value in seen if value is not None)


def profile_of(workflow: Workflow, ended: Sequence[ev.AttemptEnded], start_bytes: Mapping[str, int]) -> tuple[Profile, Staged]:
    """`ended`: the attempts of one run that ended well. `start_bytes`: what a job's program reads to start, by job."""
    sizes = {lfn: file.size_bytes or 0 for lfn, file in workflow.files.items() if file.is_external}
    sizes |= {made.lfn: made.size_bytes for event in ended for made in event.outputs}
    read_by = {event.job: {entry.lfn for entry in workflow.jobs[event.job].inputs} for event in ended}
    distinct = set().union(*read_by.values())
    distinct_bytes = sum(sizes[lfn] for lfn in distinct)
    outside_bytes = sum(sizes[lfn] for lfn in distinct if workflow.files[lfn].is_external)
    own = [None if event.measures.read_bytes is None else max(0, event.measures.read_bytes - start_bytes[event.job]) for event in ended]
    read = sum_of(own)
    profile = Profile(
        read_bytes=read,
        written_bytes=sum_of(event.measures.written_bytes for event in ended),
        again_bytes=None if read is None else max(0.0, read - distinct_bytes),
        buffered_bytes=None if read is None else max(0.0, read - outside_bytes),
        compute_s=sum_of(event.measures.cpu_s for event in ended),
    )
    staged = Staged(
        jobs=len(read_by),
        handed_bytes=sum(sizes[lfn] for lfns in read_by.values() for lfn in lfns),
        distinct_bytes=distinct_bytes,
        outside_bytes=outside_bytes,
        made_bytes=sum(made.size_bytes for event in ended for made in event.outputs),
        start_bytes=sum(start_bytes[event.job] for event in ended),
    )
    return profile, staged


def recorded(journal: Path) -> tuple[Workflow, list[ev.AttemptEnded]]:
    """Of the only run in the journal of a scheduler that has ended: its workflow, and the attempts that ended well."""
    opened = SqliteJournal(journal, "benchmark")
    try:
        events = [event for batch in opened.batches() for event in batch.events]
    finally:
        opened.close()
    (submitted,) = [event for event in events if type(event) is ev.RunSubmitted]
    return submitted.workflow, [event for event in events if type(event) is ev.AttemptEnded and event.outcome is ev.Outcome.OK]


def program_of(job: Job) -> str:
    """The Python file that a job of these workflows runs."""
    return next(word for word in (job.argv or job.shell.split()) if word.endswith(".py"))


def read_to_start(program: str, directory: Path) -> int:
    """Bytes that went through read calls of `python3 PROGRAM --help`. The kernel tells them of a process until it is waited for."""
    process = subprocess.Popen(
        ["python3", program, "--help"],
        cwd=directory,
        env=os.environ | {"PATH": JOB_PATH},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    told = dict(line.split(": ") for line in Path(f"/proc/{process.pid}/io").read_text().splitlines())
    _, said = process.communicate()
    if process.returncode:
        sys.exit(f"{program} --help ended with {process.returncode}: {said.decode(errors='replace')}")
    return int(told["rchar"])


def measured(name: str, place: Path) -> tuple[Profile, Staged]:
    workflow_file = copied_workflow(name, place)
    program, data = DATA[name]
    command = ["python3", str(workflow_file.parent / program), str(place / "demo-out" / data)]
    made = subprocess.run(command, env=os.environ | {"PATH": JOB_PATH}, capture_output=True, text=True)
    if made.returncode:
        sys.exit(f"{name}: {made.stderr}")
    stager = Stager(place / "s", place / "home", env={"PATH": JOB_PATH})
    try:
        stager.run("submit", workflow_file, "--quiet", deadline_s=DEADLINE_S)
        stager.run("shutdown")
    finally:
        stager.end()
    workflow, ended = recorded(place / "s" / "journal.sqlite")
    programs = {job.id: program_of(job) for job in workflow.jobs.values()}
    # As in a sandbox: the programs find what they import beside themselves.
    together = place / "programs"
    together.mkdir()
    for path in (place / "workflows").glob("*/*.py"):
        (together / path.name).write_bytes(path.read_bytes())
    start = {file: read_to_start(file, together) for file in sorted(set(programs.values()))}
    return profile_of(workflow, ended, {job: start[file] for job, file in programs.items()})


def amount(value: float | None) -> str:
    return "-" if value is None else f"{value:,.3f}"


def in_mb(value: float | None) -> str:
    return amount(None if value is None else value / MB)


def share(part: float | None, whole: float | None) -> str:
    return "-" if part is None or not whole else f"{part / whole:.1%}"


def lines_of(found: Mapping[str, tuple[Profile, Staged]]) -> list[list[str]]:
    """The table: a name, then paper and here for each application."""
    sides = [side for name in found for side in (PAPER[name], found[name][0])]
    return [
        ["total I/O, MB", *(in_mb(side.total_bytes) for side in sides)],
        ["read, MB", *(in_mb(side.read_bytes) for side in sides)],
        ["written, MB", *(in_mb(side.written_bytes) for side in sides)],
        ["read locality, MB", *(in_mb(side.buffered_bytes) for side in sides)],
        ["  of what was read", *(share(side.buffered_bytes, side.read_bytes) for side in sides)],
        ["read again, MB", *(in_mb(side.again_bytes) for side in sides)],
        ["compute time, s", *(amount(side.compute_s) for side in sides)],
        ["I/O per compute, MB/s", *(in_mb(side.bytes_per_compute_s) for side in sides)],
    ]


def staged_lines(found: Mapping[str, tuple[Profile, Staged]]) -> list[list[str]]:
    rows = [
        ("inputs handed to jobs, MB", "handed_bytes"),
        ("  distinct of them, MB", "distinct_bytes"),
        ("  of these from outside, MB", "outside_bytes"),
        ("outputs made, MB", "made_bytes"),
        ("read to start programs, MB", "start_bytes"),
    ]
    lines = [["jobs", *(text for _, staged in found.values() for text in ("", str(staged.jobs)))]]
    return lines + [[label, *(text for _, staged in found.values() for text in ("", in_mb(getattr(staged, key))))] for label, key in rows]


def print_table(found: Mapping[str, tuple[Profile, Staged]]) -> None:
    width = 28
    print(" " * width + "".join(f"{name:>26}" for name in found))
    print(" " * width + "".join(f"{side:>13}" for _ in found for side in ("paper", "here")))
    for line in lines_of(found):
        print(f"{line[0]:<{width}}" + "".join(f"{text:>13}" for text in line[1:]))
    print("what stager moved for it")
    for line in staged_lines(found):
        print(f"{line[0]:<{width}}" + "".join(f"{text:>13}" for text in line[1:]))


def by_io(profiles: Mapping[str, Profile]) -> list[str]:
    """The most I/O for a second of computing first: those gain most."""
    return sorted(profiles, key=lambda name: -(profiles[name].bytes_per_compute_s or 0.0))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(DATA), action="append", help="again for more (default: all three)")
    parser.add_argument("--dir", help="where data and state directories are made")
    given = parser.parse_args()
    print(machine())
    found = {}
    for name in given.only or DATA:
        with own_place(given.dir) as place:
            found[name] = measured(name, place)
    print_table(found)
    if len(found) < len(DATA):
        return 0
    wanted, came = by_io(PAPER), by_io({name: profile for name, (profile, _) in found.items()})
    print(
        f"goal: from I/O-heavy to compute-heavy as in the paper, {' > '.join(wanted)}; here {' > '.join(came)}: {verdict(wanted == came)}"
    )
    return 0 if wanted == came else 1


if __name__ == "__main__":
    sys.exit(main())
