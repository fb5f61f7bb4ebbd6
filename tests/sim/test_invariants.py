"""The checker of the Machine's memory: whatever breaks a rule that stands beside a field is found."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest

from stager.scheduler.accounting import move_run
from stager.scheduler.commands import RunOutcome
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.machine import Machine
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import AttemptEntry, FileEntry, JobEntry, RunEntry, State, TransferEntry
from stager.scheduler.states import CopyState, JobState, RunState, TransferState
from stager.sim.simulate import simulate
from tests.sim.test_several_runs import LAB, Stage, external, origin, workflow


class Moment:
    """A job runs, and what the next one reads is being fetched."""

    def __init__(self, state: State) -> None:
        self.state = copy.deepcopy(state)
        self.node: NodeEntry = self.state.nodes["node0"]
        self.run: RunEntry = self.state.runs["r0"]
        [self.transfer] = self.state.transfers.values()
        [(self.attempt_id, self.attempt)] = self.state.attempts.items()
        self.file: FileEntry = self.state.files[self.transfer.file]
        self.running: JobEntry = self.state.job("r0", self.attempt.job)
        assert isinstance(self.transfer, TransferEntry) and isinstance(self.attempt, AttemptEntry)


@pytest.fixture(scope="module")
def state() -> State:
    stage = Stage()
    stage.submit("r0", workflow("b", [origin("lab", LAB)], [external("b.late", "lab")], "lab", [[], ["b.late"]]))
    found: list[State] = []

    def watch(machine: Machine, events: object, commands: object) -> None:
        state = machine.state
        if not found and state.transfers and any(job.state is JobState.RUNNING for job in state.runs["r0"].jobs.values()):
            found.append(copy.deepcopy(state))

    simulate(stage.world, watch)
    return found[0]


def test_nothing_is_found_where_all_is_well(state: State) -> None:
    assert broken_invariants(Moment(state).state) == []


def rename_transfer(moment: Moment) -> None:
    moment.state.transfers["t-other"] = moment.state.transfers.pop(moment.transfer.id)


def drop_attempt(moment: Moment) -> None:
    del moment.state.attempts[moment.attempt_id]


def finish(moment: Moment) -> None:
    move_run(moment.state, moment.run, RunState.FINISHED)


def want_for_nobody(moment: Moment) -> None:
    moment.file.copies["node0"].state = CopyState.WANTED


def hold_without_generation(moment: Moment) -> None:
    moment.file.copies["node0"].state, moment.file.copies["node0"].generation = CopyState.PRESENT, ""


def forget_node(moment: Moment) -> None:
    moment.file.copies["elsewhere"] = moment.file.copies["node0"]


def raise_head(moment: Moment) -> None:
    moment.run.head += 1


def count_failed(moment: Moment) -> None:
    moment.run.failed += 1


def count_unended(moment: Moment) -> None:
    moment.run.unended += 1


def count_uploads(moment: Moment) -> None:
    moment.state.uploads_live += 1


def count_uploads_of_run(moment: Moment) -> None:
    moment.run.uploads_live += 1


def take_cores(moment: Moment) -> None:
    moment.node.cores_used += 1


def take_memory(moment: Moment) -> None:
    moment.node.memory_used_bytes += 1


def take_line(moment: Moment) -> None:
    moment.node.line_bytes += 1


def call_off(moment: Moment) -> None:
    moment.transfer.state = TransferState.CANCELLING


def read_nothing(moment: Moment) -> None:
    moment.transfer.source = "node0"


def let_wait(moment: Moment) -> None:
    moment.attempt.needed_bytes = 5


def lose_attempt(moment: Moment) -> None:
    moment.running.attempt = ""


def end_job(moment: Moment) -> None:
    moment.running.state = JobState.READY


def use_beyond(moment: Moment) -> None:
    moment.file.use_at = 99


def spill_by_nothing(moment: Moment) -> None:
    moment.file.spilling = "t-none"


def prefetch_nothing(moment: Moment) -> None:
    moment.node.prefetching[moment.run.file_ids["b.0"]] = None


def give_outcome(moment: Moment) -> None:
    moment.run.outcome = RunOutcome.SUCCEEDED


def leave_lost(moment: Moment) -> None:
    moment.state.lost.append((moment.file.id, "node0"))


def wait_for_durable(moment: Moment) -> None:
    moment.run.finals_open[moment.file.id] = None
    moment.file.durable = object()  # type: ignore[assignment]


def go_astray(moment: Moment) -> None:
    moment.state.illegal["a run went from finished to draining"] = 1


BROKEN: list[tuple[Callable[[Moment], None], str]] = [
    (rename_transfer, "transfers holds t-other under another key"),
    (drop_attempt, "is not under way"),
    (finish, "active is True"),
    (want_for_nobody, "by nobody"),
    (hold_without_generation, "without a generation"),
    (forget_node, "not all known"),
    (raise_head, "head is"),
    (count_failed, "failed is"),
    (count_unended, "unended is"),
    (count_uploads, "uploads_live is 1, should be 0"),
    (count_uploads_of_run, "run r0: uploads_live is"),
    (take_cores, "cores_used is"),
    (take_memory, "memory_used_bytes is"),
    (take_line, "line_bytes is"),
    (call_off, "and its copy is"),
    (read_nothing, "reads None"),
    (let_wait, "wants 5 bytes"),
    (lose_attempt, "and has none"),
    (end_job, "which is ready"),
    (use_beyond, "the uses from 99 on"),
    (spill_by_nothing, "being spilled by t-none"),
    (prefetch_nothing, "prefetches"),
    (give_outcome, "its outcome is succeeded"),
    (leave_lost, "was to be emptied"),
    (wait_for_durable, "which are durable"),
    (go_astray, "a run went from finished to draining, 1 times"),
]


@pytest.mark.parametrize(("broken", "told"), BROKEN, ids=[broken.__name__ for broken, _ in BROKEN])
def test_what_breaks_a_rule_is_found(state: State, broken: Callable[[Moment], None], told: str) -> None:
    moment = Moment(state)
    broken(moment)
    assert any(told in each for each in broken_invariants(moment.state)), broken_invariants(moment.state)
