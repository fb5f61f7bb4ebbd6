"""What an edit costs that touches 1 % of the jobs of a workflow, beside the whole run, with results that nodes keep and without.

For Montage (workflows/montage) and recorded workflows: the last 1 % of the jobs, taken from the end of the workflow with all that follows
them, are edited. Told are the jobs that run, their computing, and the simulated makespan, each beside those of a run of all jobs. With
`--run`, Montage is really run, edited and run again, by `stager submit` on this machine. Goal: at most 2 % of the computing of the full
run. Again: `python benchmarks/bench_edits.py [--run] [RECORD...]`.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.measuring import verdict
from stager.adapters.origin_access import IonodeOriginAccess
from stager.model.ids import produced_file_id
from stager.model.results import KeptOutput, MadeOutput, Result, SeenAt
from stager.model.topology import Topology, embedded
from stager.model.workflow import Workflow, graph_of
from stager.planning.job_key import key_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Policy
from stager.planning.residual import residual, widened
from stager.planning.reuse import Known, Reuse, decide
from stager.readers import wfcommons
from stager.readers.sniff import read_workflow
from stager.scheduler import events as ev
from stager.service.reusing import reused_jobs
from stager.sim.origin import expected_contents
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.testbed.own_place import own_place
from tests.testbed.places import PROJECT, recorded
from tests.testbed.stager import Stager

RECORDS = ("epigenomics", "1000genome", "seismology")
TOUCHED, COST_MAX = 0.01, 0.02
PLENTY = 1 << 42


@dataclass
class Cost:
    jobs: int
    compute_s: float
    makespan_s: float


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--run", action="store_true", help="really run Montage, too")
    parser.add_argument("records", nargs="*", default=RECORDS, help="names of recorded workflows, as setup makes them")
    given = parser.parse_args(argv)
    good = True
    with own_place() as place:
        laid = montage(place)
        cases = [("montage", read_workflow(laid, access=IonodeOriginAccess(os.environ), options={}))]
        cases += [(name, wfcommons.read(recorded(name))) for name in given.records]
        print(
            f"{'workflow':<14}{'jobs':>7}{'edited':>8}{'kept:':>8}{'jobs':>6}{'compute':>10}{'time':>8}{'else:':>8}{'jobs':>6}{'compute':>10}{'time':>8}"
        )
        for name, workflow in cases:
            good = told(name, workflow) and good
        if given.run:
            good = really(place, laid) and good
    print(f"goal, at most {COST_MAX:.0%} of the computing of all jobs: {verdict(good)}")
    return 0 if good else 1


def told(name: str, workflow: Workflow) -> bool:
    topology = embedded(PLENTY, cores=16)
    plan = make_plan(workflow, topology)
    compute_s = {entry.job: entry.compute_s for entry in plan.jobs}
    whole = Cost(len(workflow.jobs), sum(compute_s.values()), lasts_s(workflow, plan, topology))
    last = last_jobs(workflow)
    costs = [edit_cost(workflow, plan, topology, last, compute_s, kept=kept) for kept in (True, False)]
    line = f"{name:<14}{whole.jobs:>7}{len(last):>8}"
    for cost in costs:
        line += f"{'':>8}{cost.jobs:>6}{cost.compute_s / whole.compute_s:>10.2%}{cost.makespan_s / whole.makespan_s:>8.1%}"
    print(line, flush=True)
    return costs[0].compute_s <= COST_MAX * whole.compute_s


def last_jobs(workflow: Workflow) -> set[str]:
    """One of a hundred, each with all that follows it: those that compute least first where there is a choice."""
    graph, count = graph_of(workflow), max(1, int(TOUCHED * len(workflow.jobs)))
    found: set[str] = set()
    for job_id in reversed(graph.order):
        if len(found) < count and all(child in found for child in graph.children[job_id]):
            found.add(job_id)
    return found


def edit_cost(workflow: Workflow, plan: Plan, topology: Topology, last: set[str], compute_s: dict[str, float], *, kept: bool) -> Cost:
    sizes = {entry.lfn: entry.expected_bytes for entry in plan.files}
    found, held = decided(workflow, last, sizes, kept=kept)
    part = make_plan(residual(workflow, found), topology)
    whole = widened(part, workflow, found, topology.nodes[0].id)
    lasts = lasts_s(workflow, whole, topology, found, held)
    return Cost(len(found.runs), sum(compute_s[job_id] for job_id in found.runs), lasts)


def decided(workflow: Workflow, last: set[str], sizes: dict[str, int], *, kept: bool) -> tuple[Reuse, list[KeptOutput]]:
    """As after a run of all jobs, of which these are edited. And what the node keeps of that run."""
    contents = expected_contents(workflow, graph_of(workflow))
    results: dict[str, Result] = {}
    held: dict[tuple[str, str], KeptOutput] = {}
    for job in workflow.jobs.values():
        key = key_of(workflow, job, contents, dict.fromkeys(job.env_pass, ""))
        made = tuple(MadeOutput(output.path, sizes[output.lfn], contents[output.lfn]) for output in job.outputs)
        results[key.digest] = Result(key.digest, "before", job.id, job.profile, workflow.name, key.parts, made, 0.0, 1.0)
        for output in job.outputs if kept else ():
            if not workflow.files[output.lfn].is_final:
                file = produced_file_id("before", output.lfn)
                held[key.digest, output.path] = KeptOutput(file, sizes[output.lfn], contents[output.lfn], remake_s=1.0)
    finals = {
        lfn: SeenAt("", file.destination.location.path, f"earlier {lfn}", sizes[lfn], contents[lfn], 0.0, "readback")
        for lfn, file in workflow.files.items()
        if file.destination is not None
    }
    passed = {name: "" for job in workflow.jobs.values() for name in job.env_pass}
    external = {lfn: contents[lfn] for lfn, file in workflow.files.items() if file.is_external}
    return decide(workflow, Known(external, finals, results.get, passed, kept=held), last), list(held.values())


def lasts_s(workflow: Workflow, plan: Plan, topology: Topology, found: Reuse | None = None, held: Sequence[KeptOutput] = ()) -> float:
    """The simulated makespan."""
    world = SimWorld(topology, Policy(keep_results_bytes=PLENTY))
    node = world.nodes[topology.nodes[0].id]
    for each in held:
        node.commit(each.file, "before", each.blake3, each.size_bytes)
    files = tuple(ev.KeptFile(each.file, "", each.size_bytes, each.blake3, each.executable, each.remake_s) for each in held)
    # Before the node says what it holds.
    world.out.insert(0, ev.ResultsKept(at=0.0, files=files))
    world.submit("run", workflow, plan, reused=reused_jobs(workflow, found) if found is not None else ())
    machine = simulate(world)
    run = machine.state.runs["run"]
    assert run.outcome == "succeeded", run.fault
    assert found is None or sum(job.attempts > 0 for job in run.jobs.values()) == len(found.runs), "others ran"
    return run.finished_at - run.submitted_at


def montage(place: Path) -> Path:
    """The workflow beside 20 tiles, as the demo lays it out."""
    shutil.copytree(PROJECT / "workflows" / "montage", place / "workflows" / "montage")
    tiles = [sys.executable, place / "workflows" / "montage" / "make_tiles.py", place / "demo-out" / "survey"]
    subprocess.run(tiles, check=True, stdout=subprocess.DEVNULL)
    return place / "workflows" / "montage" / "workflow.yml"


def really(place: Path, workflow: Path) -> bool:
    """Montage on this machine: all of it, unchanged, and with another command for one job of the 76."""
    env = {"STAGER_REUSE": "on", "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "STAGER_CORES": str(os.cpu_count())}
    stager = Stager(place / "s", place / "home", env=env)
    try:
        whole, _ = submitted(stager, workflow)
        again, said = submitted(stager, workflow)
        print(f"unchanged: {said[0]}; {again.makespan_s:.1f} s of {whole.makespan_s:.1f} s")
        text = workflow.read_text()
        workflow.write_text(text.replace("view raw.fits raw.png", "view raw.fits raw.png && true"))
        edit, said = submitted(stager, workflow)
        print("\n".join(said))
        share = edit.compute_s / whole.compute_s
        parts = f"{edit.compute_s:.2f} of {whole.compute_s:.2f} s of computing ({share:.2%})"
        print(f"really run: {edit.jobs} of {whole.jobs} jobs, {parts}")
        print(f"            by the clock {edit.makespan_s:.1f} s of {whole.makespan_s:.1f} s, with the start of command and scheduler")
        return edit.jobs == 1 and share <= COST_MAX
    finally:
        stager.end()


def submitted(stager: Stager, workflow: Path) -> tuple[Cost, list[str]]:
    began = time.monotonic()
    done = stager.run("submit", workflow, "--quiet", deadline_s=1200)
    took_s = time.monotonic() - began
    jobs = [job for job in json.loads(stager.run("jobs", "--json").stdout) if job["attempts"]]
    said = [line for line in done.stderr.splitlines() if "reused" in line or "kept" in line]
    return Cost(len(jobs), sum(job["duration_s"] or 0.0 for job in jobs), took_s), said


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
