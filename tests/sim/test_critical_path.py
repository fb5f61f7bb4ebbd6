"""Where the time of simulated runs went, beside what the Machine itself knew at each moment.

STAGER_SIM_SEEDS=n looks at n seeds of each kind instead of the few that fit into a short test.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from stager.scheduler.critical_path import critical_path
from stager.scheduler.machine import Machine
from stager.scheduler.run_times import RunTimes
from stager.scheduler.states import JobState
from stager.scheduler.trail import Cause, Span
from stager.sim.simulate import simulate
from tests.sim.cases import KINDS, Case, world_of
from tests.sim.scatter_cases import ScatterWatch

SEEDS = int(os.environ.get("STAGER_SIM_SEEDS", "0")) or 12
# A node says a moment later that it has deleted something.
ANSWERS_S = 0.05
WAITING = {JobState.READY, JobState.BACKOFF, JobState.ADMITTED, JobState.WAITING}
BEFORE_STARTS = {Cause.CORES, Cause.FETCHES, Cause.COPIES, Cause.ROOM, Cause.SCHEDULER}


class Moment(NamedTuple):
    """What the Machine knew from then on."""

    at: float
    jobs: dict[tuple[str, str], JobState]
    cores: dict[str, int]
    short_of_space: frozenset[tuple[str, str]]
    uploading: frozenset[tuple[str, str]]
    hosts_free: dict[str, int] | None


def moment_of(machine: Machine) -> Moment:
    state = machine.state
    return Moment(
        state.now,
        {(run.id, job.id): job.state for run in state.runs.values() for job in run.jobs.values()},
        {node.id: node.cores_used for node in state.nodes.values()},
        frozenset((each.run, each.job) for each in state.attempts.values() if each.needed_bytes is not None),
        frozenset((each.run, state.files[each.file].lfn) for each in state.transfers.values() if not each.is_fetch),
        hosts_free(machine) if state.on_hosts else None,
    )


def hosts_free(machine: Machine) -> dict[str, int]:
    """By node, the most cores that are free on one host."""
    nodes = machine.state.nodes.values()
    return {node.id: max([host.size.cores - host.cores_used for host in node.hosts.values() if host.is_open], default=0) for node in nodes}


def simulated(case: Case) -> tuple[dict[str, tuple[RunTimes, list[Span]]], list[Moment], Machine]:
    world = world_of(case)
    all_times = {run: RunTimes(run) for run in world.runs}
    scatters = ScatterWatch(world, case)
    moments: list[Moment] = []

    def watch(machine: Machine, events: Sequence[Any], commands: Sequence[Any]) -> None:
        scatters(machine, events, commands)
        moments.append(moment_of(machine))
        for times in all_times.values():
            for event in events:
                times.heard(event)
            for command in commands:
                times.gave(command)

    machine = simulate(world, watch)
    return {run: (times, critical_path(times)) for run, times in all_times.items()}, moments, machine


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_each_moment_of_a_run_has_one_cause_and_the_machine_knew_of_it(kind: str) -> None:
    for seed in range(SEEDS):
        try:
            check(KINDS[kind](seed))
        except AssertionError as error:
            raise AssertionError(f"{kind} {seed}: {error}") from error


def check(case: Case) -> None:
    paths, moments, machine = simulated(case)
    begins = [moment.at for moment in moments]
    for run, (times, spans) in paths.items():
        entry = machine.state.runs[run]
        if times.finished_at is None:
            assert not spans
            continue
        assert times.finished_at == entry.finished_at
        assert sum(span.ended_at - span.begun_at for span in spans) == pytest.approx(entry.finished_at - entry.submitted_at)
        if spans:
            assert (spans[0].begun_at, spans[-1].ended_at) == (entry.submitted_at, entry.finished_at)
        assert all(earlier.ended_at == later.begun_at for earlier, later in pairwise(spans))
        assert all(span.begun_at < span.ended_at for span in spans)
        interrupted_s = sum(span.ended_at - span.begun_at for span in spans if span.cause is Cause.INTERRUPTED)
        assert interrupted_s == pytest.approx(entry.interrupted_s, abs=1e-6) or entry.outcome == "cancelled"
        for span in spans:
            check_span(machine, run, span, moments[bisect_right(begins, (span.begun_at + span.ended_at) / 2) - 1])


def memory_is_watched(machine: Machine) -> bool:
    hosts = [host for node in machine.state.nodes.values() for host in node.hosts.values()]
    return any(host.size.memory_bytes is not None for host in hosts)


def check_span(machine: Machine, run: str, span: Span, then: Moment) -> None:
    """What the Machine knew in the middle of it."""
    state = then.jobs.get((run, span.job))
    if span.cause in (Cause.COMPUTING, Cause.STARTS, Cause.COMMITS):
        assert state is JobState.RUNNING, span
    elif span.cause is Cause.ROOM and state is JobState.RUNNING:
        assert (run, span.job) in then.short_of_space, span
    elif span.cause in BEFORE_STARTS and span.job:
        assert state in WAITING, (span, state)
    if span.cause is Cause.CORES:
        widest = max(job.cores for entry in machine.state.runs.values() for job in entry.workflow.jobs.values())
        if then.hosts_free is None:
            assert max(then.cores.values()) + widest > machine.state.limits.cores, span
        else:
            assert min(then.hosts_free.values()) < widest or memory_is_watched(machine), span
    if span.cause is Cause.UPLOADS:
        assert (run, span.lfn) in then.uploading, span


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["plain", "sizes", "runs", "nodes", "pooled", "direct", "hosts"])
def test_where_nothing_fails_and_deciding_takes_no_time_nothing_is_the_schedulers(kind: str) -> None:
    """Of what turns out larger than it was said to be, one may have to give way to others, and run again."""
    none_of = {Cause.SCHEDULER, Cause.DRAINED, Cause.INTERRUPTED} | ({Cause.RETRIES} if kind != "sizes" else set())
    for seed in range(SEEDS):
        paths, _, _ = simulated(KINDS[kind](seed))
        for times, spans in paths.values():
            if times.outcome == "succeeded":
                lost = [span for span in spans if span.cause in none_of]
                assert sum(span.ended_at - span.begun_at for span in lost) < ANSWERS_S, (kind, seed, lost)
