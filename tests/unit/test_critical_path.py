"""The critical path of runs that are told by hand: each cause once, and what it is not taken for."""

from __future__ import annotations

from dataclasses import replace

from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.critical_path import critical_path
from stager.scheduler.run_times import RunTimes
from stager.scheduler.trail import Cause, Trail
from tests.unit.told_runs import BAG, FAULT, REPORT, Tale


def test_a_chain_waits_for_its_input_computes_and_waits_for_its_final() -> None:
    tale = Tale()
    tale.fetch(0.0)
    tale.admit(0.0, "a")
    tale.done(10.0, "t1")
    tale.start(10.0, "a", "t1")
    tale.end(13.0, "a")
    tale.begin(13.0, "b", "a-1", "t1", until=17.0)
    tale.upload(17.0)
    tale.done(20.0, "u1")
    assert tale.finish(20.0) == [
        ("fetches", 0, 10, "home"),
        ("computing", 10, 13, "node0"),
        ("computing", 13, 17, "node0"),
        ("uploads", 17, 20, "home"),
    ]


def test_before_and_after_a_program_its_attempt_is_started_and_committed() -> None:
    tale = Tale(BAG)
    tale.admit(0.0, "b")
    tale.start(0.0, "b")
    tale.end(10.0, "b", made_at=8.0, measures=ev.Measures(wall_s=5.0))
    assert tale.finish(10.5) == [
        ("starts", 0, 3, "node0"),
        ("computing", 3, 8, "node0"),
        ("commits", 8, 10, "node0"),
        ("scheduler", 10, 10.5, ""),
    ]


def test_outputs_that_wait_for_space_wait_for_room_and_take_no_core() -> None:
    tale = Tale(BAG)
    tale.admit(0.0, "b")
    tale.start(0.0, "b")
    tale.hear(ev.AttemptWaits, 5.0, attempt="b-1", needed_bytes=99)
    tale.admit(5.0, "a")
    tale.start(5.5, "a")
    tale.end(6.0, "a", made_at=6.0)
    tale.emit(cmd.GrantSpace, 7.0, node="node0", attempt="b-1", reserve_bytes=99)
    tale.end(7.5, "b", made_at=5.0)
    assert tale.finish(7.5) == [("computing", 0, 5, "node0"), ("room", 5, 7, "node0"), ("commits", 7, 7.5, "node0")]


def test_nobody_waits_for_the_core_of_one_whose_outputs_wait_for_space() -> None:
    tale = Tale(BAG)
    tale.admit(0.0, "a")
    tale.start(0.0, "a")
    tale.admit(0.0, "b")
    tale.hear(ev.AttemptWaits, 5.0, attempt="a-1", needed_bytes=99)
    tale.start(6.0, "b")
    tale.emit(cmd.GrantSpace, 6.5, node="node0", attempt="a-1", reserve_bytes=99)
    tale.end(7.0, "a")
    tale.end(8.0, "b")
    assert tale.finish(8.0) == [("cores", 0, 5, "node0"), ("scheduler", 5, 6, "b"), ("computing", 6, 8, "node0")]


def test_a_job_that_is_admitted_with_all_its_inputs_waits_for_a_core() -> None:
    tale = Tale(BAG)
    tale.admit(0.0, "a")
    tale.start(0.0, "a")
    tale.admit(0.0, "b")
    tale.end(5.0, "a")
    tale.start(5.0, "b")
    tale.end(10.0, "b")
    assert tale.finish(10.0) == [("cores", 0, 5, "node0"), ("computing", 5, 10, "node0")]


def test_with_a_core_to_spare_it_is_the_scheduler_that_it_waited_for() -> None:
    tale = Tale(BAG, cores=2)
    tale.admit(0.0, "a")
    tale.start(0.0, "a")
    tale.admit(0.0, "b")
    tale.end(5.0, "a")
    tale.start(5.0, "b")
    tale.end(10.0, "b")
    assert tale.finish(10.0) == [("scheduler", 0, 5, "b"), ("computing", 5, 10, "node0")]


def test_cores_that_jobs_of_other_runs_have_are_waited_for_too() -> None:
    tale = Tale(BAG, run="other")
    tale.admit(0.0, "a")
    tale.start(0.0, "a", run="other")
    tale.run = "r"
    tale.submit("r")
    tale.admit(0.0, "b")
    tale.end(4.0, "a", run="other")
    tale.start(4.0, "b")
    tale.end(6.0, "b")
    assert tale.finish(6.0) == [("cores", 0, 4, "node0"), ("computing", 4, 6, "node0")]


def test_memory_is_waited_for_as_cores_are() -> None:
    tale = Tale(BAG, cores=8)
    jobs = {name: replace(job, memory_bytes=600) for name, job in tale.workflow.jobs.items()}
    tale.workflow = replace(tale.workflow, jobs=jobs)
    tale.submit("r")
    tale.hear(ev.PolicySet, 0.0, policy=Policy(), limits=Limits(cores=8, memory_bytes=1000))
    tale.admit(0.0, "a")
    tale.start(0.0, "a")
    tale.admit(0.0, "b")
    tale.end(5.0, "a")
    tale.start(5.0, "b")
    tale.end(10.0, "b")
    assert tale.finish(10.0)[0] == ("cores", 0, 5, "node0")


def test_who_is_not_admitted_while_a_core_is_free_waits_for_room() -> None:
    tale = Tale(cores=2)
    tale.begin(0.0, "a", until=3.0)
    tale.admit(7.0, "b")
    tale.start(7.0, "b", "a-1")
    tale.end(9.0, "b")
    assert tale.finish(9.0) == [("computing", 0, 3, "node0"), ("room", 3, 7, "node0"), ("computing", 7, 9, "node0")]


def test_behind_as_many_as_may_be_admitted_it_is_their_inputs_that_are_waited_for() -> None:
    tale = Tale(cores=2)
    tale.hear(ev.PolicySet, 0.0, policy=Policy(admitted_waiting_max=1), limits=Limits(cores=2))
    tale.begin(0.0, "a", until=3.0)
    tale.admit(3.0, "x", run="other")
    tale.start(6.0, "x", run="other")
    tale.admit(7.0, "b")
    tale.start(7.0, "b", "a-1")
    tale.end(9.0, "b")
    assert tale.finish(9.0)[1:3] == [("fetches", 3, 6, "b"), ("room", 6, 7, "node0")]


def test_an_input_is_waited_for_from_when_nothing_else_was_missing() -> None:
    """It was fetched since 1.0; until 3.0 it would have been of no use."""
    tale = Tale()
    tale.begin(0.0, "a", until=3.0)
    tale.fetch(1.0)
    tale.admit(3.0, "b")
    tale.done(6.0, "t1")
    tale.start(6.0, "b", "a-1", "t1")
    tale.end(9.0, "b")
    assert tale.finish(9.0) == [("computing", 0, 3, "node0"), ("fetches", 3, 6, "home"), ("computing", 6, 9, "node0")]


def test_while_the_cores_are_full_no_input_is_waited_for() -> None:
    """The input of b comes at 4.0; until 8.0 the core is taken anyway, since 2.0."""
    tale = Tale(BAG)
    tale.fetch(0.0)
    tale.admit(0.0, "b")
    tale.admit(0.0, "a")
    tale.start(2.0, "a")
    tale.done(4.0, "t1")
    tale.end(8.0, "a")
    tale.start(8.0, "b", "t1")
    tale.end(9.0, "b")
    assert tale.finish(9.0) == [("fetches", 0, 2, "home"), ("cores", 2, 8, "node0"), ("computing", 8, 9, "node0")]


def test_a_copy_is_waited_for_and_before_it_the_fetch_to_where_it_comes_from() -> None:
    tale = Tale()
    tale.admit(0.0, "a")
    tale.fetch(0.0, node="node1")
    tale.done(4.0, "t1", node="node1")
    tale.copy(5.0, "c1", "node1", "t1")
    tale.done(6.0, "c1")
    tale.start(6.0, "a", "c1")
    tale.end(7.0, "a")
    assert tale.finish(7.0) == [("fetches", 0, 4, "home"), ("copies", 4, 6, "node1"), ("computing", 6, 7, "node0")]


def test_tries_of_a_fetch_that_failed_and_the_pauses_after_them_are_retries() -> None:
    tale = Tale()
    tale.admit(0.0, "a")
    tale.fetch(0.0, "t1")
    tale.failed(2.0, "t1", 4.0, "in")
    tale.fetch(4.1, "t2")
    tale.done(9.0, "t2")
    tale.start(9.0, "a", "t2")
    tale.end(10.0, "a")
    assert tale.finish(10.0) == [("retries", 0, 4.1, "home"), ("fetches", 4.1, 9, "home"), ("computing", 9, 10, "node0")]


def test_a_try_that_failed_long_before_the_file_was_wanted_is_no_part_of_it() -> None:
    tale = Tale()
    tale.fetch(0.0, "t1")
    tale.failed(1.0, "t1", 2.0, "in")
    tale.begin(0.0, "a", until=20.0)
    tale.admit(20.0, "b")
    tale.fetch(20.0, "t2")
    tale.done(25.0, "t2")
    tale.start(25.0, "b", "a-1", "t2")
    tale.end(26.0, "b")
    assert tale.finish(26.0) == [("computing", 0, 20, "node0"), ("fetches", 20, 25, "home"), ("computing", 25, 26, "node0")]


def test_between_a_try_that_failed_and_one_that_room_held_up_it_waited_for_room() -> None:
    tale = Tale()
    tale.fetch(0.0, "t1")
    tale.failed(1.0, "t1", 2.0, "in")
    tale.admit(20.0, "a")
    tale.fetch(20.0, "t2")
    tale.done(25.0, "t2")
    tale.start(25.0, "a", "t2")
    tale.end(26.0, "a")
    assert tale.finish(26.0) == [("room", 0, 20, "node0"), ("fetches", 20, 25, "home"), ("computing", 25, 26, "node0")]


def test_what_a_node_forgot_and_was_asked_for_again_is_a_retry() -> None:
    tale = Tale()
    tale.admit(0.0, "a")
    tale.fetch(0.0, "t1")
    tale.hear(ev.NodeLost, 2.0, node="node0")
    tale.hear(ev.NodeReported, 4.0, node="node0", **REPORT)
    tale.fetch(4.0, "t2")
    tale.done(9.0, "t2")
    tale.start(9.0, "a", "t2")
    tale.end(10.0, "a")
    assert tale.finish(10.0) == [("retries", 0, 4, "home"), ("fetches", 4, 9, "home"), ("computing", 9, 10, "node0")]


def test_an_admitted_job_waits_for_its_fetch_also_before_that_begins() -> None:
    tale = Tale()
    tale.admit(0.0, "a")
    tale.fetch(2.0)
    tale.done(5.0, "t1")
    tale.start(5.0, "a", "t1")
    tale.end(6.0, "a")
    assert tale.finish(6.0) == [("fetches", 0, 5, "home"), ("computing", 5, 6, "node0")]


def test_tries_of_an_upload_are_retries_too() -> None:
    tale = Tale(BAG)
    tale.begin(0.0, "b", until=5.0)
    tale.upload(5.0, "u1", "y")
    tale.failed(6.0, "u1", 8.0, "y", upload=True)
    tale.upload(8.0, "u2", "y")
    tale.done(9.0, "u2")
    assert tale.finish(9.0) == [("computing", 0, 5, "node0"), ("retries", 5, 8, "home"), ("uploads", 8, 9, "home")]


def test_a_final_behind_as_many_uploads_as_may_go_at_once_waits_for_uploads() -> None:
    tale = Tale(BAG)
    tale.begin(0.0, "b", until=5.0)
    tale.upload(1.0, "u0", "x", "a-1")
    tale.done(7.0, "u0")
    tale.upload(8.0, "u1", "y")
    tale.done(9.0, "u1")
    told = tale.finish(9.0)
    assert told == [("computing", 0, 5, "node0"), ("uploads", 5, 7, "home"), ("scheduler", 7, 8, ""), ("uploads", 8, 9, "home")]


def test_nobody_waits_for_what_is_spilled() -> None:
    tale = Tale(BAG)
    tale.upload(1.0, "s1", "x", "a-1", cmd.Purpose.SPILL)
    tale.begin(0.0, "b", until=5.0)
    tale.done(7.0, "s1")
    assert tale.finish(7.0) == [("computing", 0, 5, "node0"), ("scheduler", 5, 7, "")]


def test_a_try_of_a_job_that_failed_and_the_pause_after_it_are_retries() -> None:
    tale = Tale(BAG)
    tale.admit(0.0, "b")
    tale.start(0.0, "b")
    tale.end(4.0, "b", outcome=ev.Outcome.FAILED)
    tale.emit(cmd.RequeueJob, 4.0, run="r", job="b", not_before=6.0, counts=True, why="exit 1")
    tale.admit(6.0, "b")
    tale.start(6.0, "b", number=2)
    tale.end(8.0, "b", number=2)
    assert tale.finish(8.0) == [("retries", 0, 6, "node0"), ("computing", 6, 8, "node0")]


def test_a_node_that_does_not_answer_is_an_outage() -> None:
    tale = Tale(cores=2)
    tale.begin(0.0, "a", until=3.0)
    tale.hear(ev.NodeLost, 3.0, node="node0")
    tale.hear(ev.NodeReported, 5.0, node="node0", **REPORT)
    tale.admit(5.0, "b")
    tale.start(5.0, "b", "a-1")
    tale.end(6.0, "b")
    assert tale.finish(6.0) == [("computing", 0, 3, "node0"), ("retries", 3, 5, "node0"), ("computing", 5, 6, "node0")]


def test_what_an_engine_has_not_called_waits_for_the_engine() -> None:
    tale = Tale(engine="airflow")
    tale.hear(ev.JobCalled, 2.0, run="r", job="a", call="1")
    tale.begin(2.0, "a", until=3.0)
    tale.hear(ev.JobCalled, 7.0, run="r", job="b", call="2")
    tale.begin(7.0, "b", "a-1", until=8.0)
    tale.hear(ev.EngineRunEnded, 9.0, run="r", outcome=ev.EngineOutcome.SUCCEEDED)
    assert tale.finish(9.0) == [
        ("engine", 0, 2, "a"),
        ("computing", 2, 3, "node0"),
        ("engine", 3, 7, "b"),
        ("computing", 7, 8, "node0"),
        ("engine", 8, 9, ""),
    ]


def test_while_it_was_ended_it_waited_for_nothing_and_while_it_had_ended_for_who_resumes_it() -> None:
    tale = Tale(cores=2)
    tale.begin(0.0, "a", until=3.0)
    tale.hear(ev.RunDrained, 2.0, run="r")
    assert tale.finish(4.0, cmd.RunOutcome.INTERRUPTED) == [("computing", 0, 3, "node0"), ("drained", 3, 4, "")]
    tale.hear(ev.RunResumed, 10.0, run="r")
    tale.begin(11.0, "b", "a-1", until=12.0)
    assert tale.finish(12.0) == [
        ("computing", 0, 3, "node0"),
        ("drained", 3, 4, "node0"),
        ("interrupted", 4, 10, "node0"),
        ("room", 10, 11, "node0"),
        ("computing", 11, 12, "node0"),
    ]


def test_what_was_lost_and_had_to_be_made_again_is_told_as_a_retry() -> None:
    tale = Tale(cores=2)
    tale.begin(0.0, "a", until=3.0)
    tale.emit(cmd.RemakeFile, 5.0, run="r", file="f-mid", job="a")
    tale.admit(5.0, "a")
    tale.start(5.0, "a", number=2)
    tale.end(8.0, "a", number=2)
    tale.begin(8.0, "b", "a-2", until=9.0)
    assert tale.finish(9.0) == [
        ("computing", 0, 3, "node0"),
        ("retries", 3, 5, "a"),
        ("computing", 5, 8, "node0"),
        ("computing", 8, 9, "node0"),
    ]


def test_a_run_that_was_refused_waited_for_room() -> None:
    assert Tale().finish(3.0, cmd.RunOutcome.REFUSED) == [("room", 0, 3, "")]


def test_a_run_that_failed_is_told_until_its_end() -> None:
    tale = Tale()
    tale.begin(0.0, "a", until=3.0)
    tale.admit(3.0, "b")
    tale.start(3.0, "b", "a-1")
    tale.end(5.0, "b", outcome=ev.Outcome.FAILED, fault=FAULT)
    tale.emit(cmd.FailJob, 5.0, run="r", job="b", fault=FAULT)
    assert tale.finish(5.0, cmd.RunOutcome.FAILED) == [("computing", 0, 3, "node0"), ("retries", 3, 5, "node0")]


def test_a_job_that_failed_can_begin_again_once_the_run_is_resumed() -> None:
    tale = Tale(BAG, cores=2)
    tale.begin(0.0, "a", until=3.0)
    tale.admit(0.0, "b")
    tale.start(0.0, "b")
    tale.end(2.0, "b", outcome=ev.Outcome.FAILED, fault=FAULT)
    tale.emit(cmd.FailJob, 2.0, run="r", job="b", fault=FAULT)
    tale.finish(3.0, cmd.RunOutcome.FAILED)
    tale.hear(ev.RunResumed, 10.0, run="r")
    tale.admit(12.0, "b")
    tale.start(12.0, "b", number=2)
    tale.end(15.0, "b", number=2)
    assert tale.finish(15.0) == [
        ("retries", 0, 3, "node0"),
        ("interrupted", 3, 10, "node0"),
        ("room", 10, 12, "node0"),
        ("computing", 12, 15, "node0"),
    ]


def test_who_resumes_what_has_succeeded_or_is_being_stopped_changes_nothing() -> None:
    tale = Tale(BAG)
    tale.begin(0.0, "b", until=5.0)
    told = tale.finish(5.0)
    tale.hear(ev.RunResumed, 9.0, run="r")
    assert tale.told() == told
    tale = Tale(BAG)
    tale.begin(0.0, "b", until=5.0)
    tale.hear(ev.RunStopped, 2.0, run="r")
    tale.hear(ev.RunResumed, 3.0, run="r")
    assert tale.finish(6.0, cmd.RunOutcome.INTERRUPTED) == [("computing", 0, 5, "node0"), ("drained", 5, 6, "")]


def test_what_had_ended_and_is_cancelled_later_was_interrupted_until_then() -> None:
    tale = Tale(BAG)
    tale.begin(0.0, "b", until=5.0)
    tale.finish(5.0, cmd.RunOutcome.INTERRUPTED)
    tale.hear(ev.RunCancelled, 8.0, run="r")
    assert tale.finish(9.0, cmd.RunOutcome.CANCELLED) == [("computing", 0, 5, "node0"), ("interrupted", 5, 8, ""), ("drained", 8, 9, "")]


def test_no_moment_before_the_submit_is_told_and_none_twice() -> None:
    trail = Trail(10.0, 20.0, [], {})
    trail.back(15.0, Cause.ROOM)
    trail.back(17.0, Cause.CORES)
    trail.back(5.0, Cause.CORES)
    assert [(span.begun_at, span.ended_at, span.cause) for span in trail.spans] == [(15, 20, "room"), (10, 15, "cores")]


def test_a_run_whose_input_never_came_is_told_by_its_tries() -> None:
    tale = Tale()
    tale.fetch(1.0, "t1")
    tale.failed(2.0, "t1", 3.0, "in")
    tale.fetch(3.0, "t2")
    tale.hear(ev.TransferFailed, 6.0, node="node0", transfer="t2", fault=FAULT)
    assert tale.finish(6.0, cmd.RunOutcome.FAILED) == [("scheduler", 0, 1, ""), ("retries", 1, 6, "home")]


def test_a_run_that_goes_on_or_is_not_known_has_no_path() -> None:
    assert critical_path(Tale().times) == []
    assert critical_path(RunTimes("nobody")) == []


def test_what_ended_before_the_run_was_submitted_is_forgotten() -> None:
    tale = Tale(BAG, run="other")
    tale.fetch(0.0)
    tale.begin(0.0, "a", until=2.0)
    tale.done(3.0, "t1")
    tale.run = "r"
    tale.submit("r", at=5.0)
    assert not tale.times.attempts and not tale.times.moves


def test_an_input_that_came_for_another_run_is_told_by_our_own_name_of_its_origin() -> None:
    tale = Tale(run="other")
    tale.submit("r")
    tale.fetch(0.0, origin="theirs")
    tale.run = "r"
    tale.admit(0.0, "a")
    tale.done(4.0, "t1")
    tale.start(4.0, "a", "t1")
    tale.end(5.0, "a")
    assert tale.finish(5.0)[0] == ("fetches", 0, 4, "home")


def test_an_attempt_that_was_given_up_as_void_counts_as_a_try() -> None:
    tale = Tale(BAG)
    tale.admit(0.0, "b")
    tale.start(0.0, "b")
    tale.emit(cmd.KillAttempt, 1.0, node="node0", run="r", job="b", attempt="b-1", void=True)
    tale.end(2.0, "b")
    tale.begin(2.0, "a", until=2.5)
    tale.admit(2.0, "b")
    tale.start(2.5, "b", number=2)
    tale.end(4.0, "b", number=2)
    assert tale.finish(4.0) == [("retries", 0, 2, "node0"), ("cores", 2, 2.5, "node0"), ("computing", 2.5, 4, "node0")]
