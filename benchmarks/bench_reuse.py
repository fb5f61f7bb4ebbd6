"""What reuse of results costs: a submit of 10,000 jobs of which nothing changed, and the bookkeeping of each job.

The first part is `stager plan`, the whole command, on a state directory in which all 10,000 jobs are remembered and their finals
are in a directory of this machine, and after one script of 1 % of the jobs was edited. The second is what the driving thread does for each
job that ended, in a simulated run: its key, its record, and the write. Goals: at most 3 s and 0 B over the WAN, at most 1 ms a job. Again:
`python benchmarks/bench_reuse.py [--jobs N]`.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import verdict
from stager.adapters.content_hash import blake3_of_each
from stager.adapters.origin_access import IonodeOriginAccess
from stager.adapters.results_store import ResultsStore
from stager.model.results import MadeOutput, Result, SeenAt, origin_key
from stager.model.topology import embedded
from stager.model.workflow import Workflow, graph_of
from stager.planning.job_key import key_of
from stager.planning.make_plan import make_plan
from stager.readers.sniff import read_workflow
from stager.service.recording import Recording
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.testbed.own_place import own_place
from tests.testbed.stager import Stager

REPLAN_S_MAX, BOOKKEEPING_MS_MAX, EDITED_SHARE = 3.0, 1.0, 100
WORKFLOW = """stager: 1
name: many
on_exists: replace
jobs:
  half:
    foreach: {text: "here:texts/*.txt"}
    run: sh scripts/{text.stem}.sh {text} > {text.stem}.half
    inputs: ["{text}", "here:scripts/{text.stem}.sh"]
    outputs: {"{text.stem}.half": "here:out/"}
  whole:
    foreach: {text: "here:texts/*.txt"}
    run: sort {text.stem}.half > {text.stem}.whole
    inputs: ["{text.stem}.half"]
    outputs: {"{text.stem}.whole": "here:out/"}
"""


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--jobs", type=int, default=10_000)
    jobs = parser.parse_args(argv).jobs
    with own_place() as place:
        stager = Stager(place / "s", place / "home")
        workflow = laid(place, jobs)
        remember(stager, place, workflow)
        unchanged_s, said = planned(stager, place)
        print(f"unchanged: {said}; stager plan took {unchanged_s:.2f} s (goal: {REPLAN_S_MAX:g} s)")
        for number in range(0, jobs // 2, EDITED_SHARE):
            (place / "scripts" / f"t{number}.sh").write_text("sort -r $1\n")
        edited_s, edited = planned(stager, place)
        print(f"one script of {EDITED_SHARE} edited: {edited}; it took {edited_s:.2f} s")
    each_ms = bookkeeping_ms(workflow)
    print(f"bookkeeping: {each_ms:.3f} ms a job (goal: {BOOKKEEPING_MS_MAX:g} ms)")
    nothing = said == f"{jobs} of {jobs} jobs reused, 0 B over the WAN"
    good = unchanged_s <= REPLAN_S_MAX and nothing and each_ms <= BOOKKEEPING_MS_MAX
    print(f"goals: {verdict(good)}")
    return 0 if good else 1


def laid(place: Path, jobs: int) -> Workflow:
    """Each text with a script of its own, written a minute ago."""
    old = time.time() - 60
    for name in ("texts", "scripts", "out"):
        (place / name).mkdir()
    for number in range(jobs // 2):
        for path, text in ((f"texts/t{number}.txt", f"{number}\n"), (f"scripts/t{number}.sh", "sort $1\n")):
            (place / path).write_text(text)
            os.utime(place / path, (old, old))
    (place / "w.yml").write_text(WORKFLOW)
    return read_workflow(place / "w.yml", access=IonodeOriginAccess(os.environ), options={})


def remember(stager: Stager, place: Path, workflow: Workflow) -> None:
    """As a run of all jobs leaves it, whose finals are all small."""
    seen_at, home = time.time() + 3600, origin_key(workflow.origins["here"])
    finals = [lfn for lfn, file in workflow.files.items() if file.is_final]
    for lfn in finals:
        (place / "out" / lfn).write_text(lfn)
    paths = {lfn: place / "out" / lfn for lfn in finals}
    paths |= {lfn: place / file.sources[0].location.path for lfn, file in workflow.files.items() if file.sources}
    hashed = blake3_of_each(paths.values(), os.environ)
    blake3 = {lfn: hashed[path] for lfn, path in paths.items()}
    results = []
    for job_id in graph_of(workflow).order:
        job = workflow.jobs[job_id]
        key = key_of(workflow, job, blake3, {})
        outputs = tuple(MadeOutput(each.path, (place / "out" / each.lfn).stat().st_size, blake3[each.lfn]) for each in job.outputs)
        results.append(Result(key.digest, "many-1", job_id, job.profile, workflow.name, key.parts, outputs, seen_at, 1.0))
    seen = []
    for lfn, file in workflow.files.items():
        found = paths[lfn].stat()
        where = file.sources[0].location if file.sources else file.destination.location  # type: ignore[union-attr]
        verified = "" if file.sources else "readback"
        seen.append(SeenAt(home, where.path, f"m={found.st_mtime_ns};s={found.st_size}", found.st_size, blake3[lfn], seen_at, verified))
    stager.state_dir.mkdir(mode=0o700)
    store = ResultsStore(stager.state_dir / "results.sqlite")
    store.write("", results, seen)
    store.close()


def planned(stager: Stager, place: Path) -> tuple[float, str]:
    """(seconds, what it said of reuse)."""
    began = time.monotonic()
    done = stager.run("plan", "w.yml", "--reuse", cwd=place)
    took_s = time.monotonic() - began
    return took_s, next(line for line in done.stderr.splitlines() if "jobs reused" in line)


def bookkeeping_ms(workflow: Workflow) -> float:
    """Of the driving thread, for each job of a simulated run, the writes included."""
    topology = embedded(1_000_000_000, cores=16)
    world = SimWorld(topology)
    world.submit("many-1", workflow, make_plan(workflow, topology))
    with own_place() as directory:
        recordings: list[Recording] = []
        spent = [0.0]

        def watch(machine: object, events: object, commands: object) -> None:
            if not recordings:
                recordings.append(Recording(directory / "results.sqlite", machine.state))  # type: ignore[attr-defined]
            began = time.perf_counter()
            recordings[0].saw(events, commands)  # type: ignore[arg-type]
            spent[0] += time.perf_counter() - began

        simulate(world, watch)
        recorded = ResultsStore(directory / "results.sqlite").count()
        assert recorded == len(workflow.jobs), f"{recorded} of {len(workflow.jobs)} were recorded"
    return 1000 * spent[0] / len(workflow.jobs)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
