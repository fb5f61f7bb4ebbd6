"""Runs that ended unfinished and go on with another definition: drawn workflows of which some jobs failed are mended, by the rules, and
resumed. What was made stands, nothing of it is made again without need, the accounts stay true, and a snapshot of it all is what lives on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from stager.driver import drive
from stager.model.files import Destination, File, Location
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.amendment import changes_of, conflicts_of, is_made
from stager.scheduler.commands import RunOutcome
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.machine import Machine
from stager.scheduler.state import State
from stager.scheduler.states import JobState
from stager.sim.checkers import all_checkers
from stager.sim.faults import Faults
from stager.sim.world import SimWorld, Violation
from tests.sim.cases import smallest, topology_of
from tests.sim.drawn import sample_shared, sample_workflow
from tests.sim.mending import resume_with
from tests.sim.seeds import SEEDS
from tests.sim.test_snapshots import Pair, written

MENDED_AT_S = 5_000.0
# Also of what was mended some jobs fail, and are mended again; then all goes well.
FAULTS_UNTIL_S = MENDED_AT_S + 500


def mended(random: Random, state: State, run_id: str) -> Workflow:
    """Jobs that were not made are changed, dropped where nothing reads what they would make, and joined by a new one; inputs that only
    such jobs read are other contents.
    """
    run = state.runs[run_id]
    old = run.workflow
    made = {job_id for job_id in old.jobs if is_made(state, run, job_id)}
    read = {entry.lfn for job in old.jobs.values() for entry in job.inputs}
    jobs: dict[str, Job] = {}
    for job_id, job in old.jobs.items():
        leaf = not any(output.lfn in read for output in job.outputs) and not any(job_id in other.after for other in old.jobs.values())
        if job_id not in made and leaf and len(jobs) and random.random() < 0.4:
            continue
        changed = job_id not in made and random.random() < 0.5
        jobs[job_id] = replace(job, argv=("mended",), retries=5, cores=1) if changed else job
    outputs = [output.lfn for job in jobs.values() for output in job.outputs]
    reads = random.sample(outputs, min(2, len(outputs)))
    more = next(name for name in (f"more{number}" for number in range(len(old.jobs) + 1)) if name not in old.jobs)
    jobs[more] = Job(more, "more", ("more",), inputs=tuple(JobInput(lfn, lfn) for lfn in reads), outputs=(JobOutput(more, more),))
    files = {lfn: file for lfn, file in old.files.items() if not file.is_external and lfn in outputs}
    files[more] = File(more, size_bytes=5, destination=Destination(Location("home", f"out/{old.name}.{more}")))
    for lfn in dict.fromkeys(entry.lfn for job in jobs.values() for entry in job.inputs):
        if lfn in files:
            continue
        file = old.files[lfn]
        # What another run reads too is not to change under its feet.
        own = lfn.startswith(old.name)
        if own and not made.intersection(run.graph.readers[lfn]) and random.random() < 0.5:
            file = replace(file, sources=tuple(replace(source, token=f"{source.token} mended") for source in file.sources))
        files[lfn] = file
    return replace(old, files=files, jobs=jobs)


def simulated(seed: int, tight: bool) -> Counter[str]:
    random = Random(f"mended/{seed}")
    shared = sample_shared(random)
    workflows = [sample_workflow(random, f"w{number}", shared) for number in range(2)]
    spill = random.choice((None, "home"))
    capacity = max(smallest(workflow, spill).smallest_capacity_bytes for workflow in workflows) * 2 + 50 if tight else 1_000_000
    topology = topology_of(capacity, random.randint(1, 3))
    faults = Faults(seed, until_s=FAULTS_UNTIL_S, attempt_share=0.6, transfer_share=0.1, busy_share=0.1)
    world = SimWorld(topology, faults=faults, checkers=all_checkers(), keep_journal=True)
    for number, workflow in enumerate(workflows):
        world.submit(f"r{number}", workflow, make_plan(workflow, topology, spill_origin=spill))
    pair = Pair(Random(f"snapshots/{seed}"), *[Machine(world.policy, world.limits) for _ in range(2)])
    met: Counter[str] = Counter()
    done: set[tuple[str, str]] = set()

    def watch(events: Sequence[Any], commands: Sequence[Any]) -> None:
        state = pair.runs.state
        broken = broken_invariants(state)
        if broken:
            raise Violation("; ".join(broken[:5]))
        pair.watch(events, commands, len(world.journal))
        for event in events:
            if isinstance(event, ev.RunResumed) and event.workflow is not None:
                met["mended"] += 1
                assert state.runs[event.run].workflow is event.workflow
        for command in commands:
            if isinstance(command, cmd.RemakeFile):
                # A new reader of what was made and let go.
                done.discard((command.run, command.job))
                met["made again"] += 1
            if isinstance(command, cmd.StartAttempt) and (command.run, command.job) in done:
                raise Violation(f"{command.job} of {command.run} was done, and runs again")
            if isinstance(command, cmd.FinishRun) and command.outcome is RunOutcome.FAILED and command.at < FAULTS_UNTIL_S:
                run = state.runs[command.run]
                # What was to be made again, and failed, is not done.
                done.update((run.id, job_id) for job_id in run.jobs if run.jobs[job_id].state is JobState.DONE)
                new = mended(random, state, run.id)
                assert conflicts_of(state, run, new) == [] and changes_of(state, run, new)
                met["jobs that stand"] += sum(owner == run.id for owner, _ in done)
                met["dropped"] += any(job_id not in new.jobs for job_id in run.jobs)
                resume_with(world, run.id, new, make_plan(new, topology, spill_origin=spill), max(command.at, MENDED_AT_S) + 10)
                met["mended again"] += command.at > MENDED_AT_S

    drive(pair, world, watch)
    for checker in world.checkers:
        checker.at_end(world)
    assert written(pair.runs.state) == written(pair.follows.state)
    if not tight:
        assert {run.outcome for run in world.runs.values()} == {RunOutcome.SUCCEEDED}
    return met


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [12, pytest.param(30, marks=pytest.mark.heavy)])
@pytest.mark.parametrize("tight", [False, True])
def test_mended_runs_keep_what_was_made_and_end_well(tight: bool, seeds: int) -> None:
    met: Counter[str] = Counter()
    for seed in range(SEEDS or seeds):
        try:
            met += simulated(seed, tight)
        except Exception as error:
            raise AssertionError(f"seed {seed}, tight {tight}: {error}") from error
    assert met["mended"] > seeds / 3 and met["jobs that stand"] and met["dropped"] and met["mended again"] > seeds / 6, met
