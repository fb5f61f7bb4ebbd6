"""Origins that cannot be reached for long: a run waits for them, everybody else goes on, and an end says what it was."""

from __future__ import annotations

import copy
from dataclasses import replace

import msgspec
import pytest

from stager.model.errors import AWAY_CODE, ErrorClass, Fault
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.apply_events import note_failure
from stager.scheduler.decision import Decision
from stager.scheduler.machine import Machine
from stager.scheduler.state import FileEntry, Retries, State, TransferEntry
from stager.service.waiting import waiting_of
from stager.sim.faults import NO_FAULTS, ORIGIN_FAULTS, TRANSFER_FAULTS
from stager.sim.simulate import simulate
from stager.sim.transfers import Moving, TransferTable
from tests.sim.test_several_runs import CLOUD, LAB, Stage, external, origin, workflow

HOUR_S = 3600.0


def away(stage: Stage, url: str, at: float, until: float, code: str = "origin_unreachable") -> None:
    for time, said in ((at, code), (until, "")):
        stage.world.clock.at(time, lambda said=said: setattr(stage.world.origins[url], "fault_code", said))


def chain(name: str, *sources: str, final_at: str = "here") -> object:
    places = [origin("lab", LAB), origin("here", CLOUD)]
    return workflow(name, places, [external(f"{name}.in", *(sources or ("lab",)))], final_at, [[f"{name}.in"], []])


def test_an_input_is_waited_for_as_long_as_its_origin_is_away() -> None:
    stage = Stage()
    stage.submit("r0", chain("a"))
    away(stage, LAB, 0.5, 3 * HOUR_S)
    machine = stage.play()
    assert stage.outcome("r0") == "succeeded"
    assert stage.world.clock.now < 3 * HOUR_S + 60 + 10
    pauses = [later[2] - earlier[2] for earlier, later in zip(stage.fetches("r0"), stage.fetches("r0")[1:], strict=False)]
    assert max(pauses) <= 61 and sum(pause > 25 for pause in pauses) > 100, "pauses do not grow to the longest, or beyond it"
    assert not machine.state.retrying


def test_a_final_is_waited_for_as_long_as_its_origin_is_away() -> None:
    stage = Stage()
    stage.submit("r0", chain("a", final_at="lab"))
    away(stage, LAB, 1.2, 3 * HOUR_S)
    stage.play()
    assert stage.outcome("r0") == "succeeded"


@pytest.mark.parametrize("code", ["origin_unreachable", "timeout", "connection_lost"])
def test_waiting_ends_and_says_for_which_origin_and_what_to_do(code: str) -> None:
    stage = Stage(Policy(outage_s_max=HOUR_S))
    stage.submit("r0", chain("a"))
    away(stage, LAB, 0.5, 9 * HOUR_S, code)
    stage.play()
    run = stage.world.runs["r0"]
    assert stage.outcome("r0") == "failed" and run.fault.code == AWAY_CODE
    assert "'lab'" in run.fault.message and "1 h" in run.fault.message and "stager resume r0" in run.fault.message
    assert HOUR_S <= run.finished_at <= HOUR_S + 61 + 1


def test_the_time_is_counted_anew_once_the_origin_has_answered() -> None:
    stage = Stage(Policy(outage_s_max=HOUR_S))
    stage.submit("r0", chain("a", final_at="lab"))
    away(stage, LAB, 0.5, 0.8 * HOUR_S)
    away(stage, LAB, 0.8 * HOUR_S + 70, 1.6 * HOUR_S)
    stage.play()
    assert stage.outcome("r0") == "succeeded"


def test_a_source_that_is_away_is_left_for_the_next_and_only_the_last_is_waited_for() -> None:
    stage = Stage()
    stage.submit("r0", chain("a", "lab", "here"))
    away(stage, LAB, 0.0, 9 * HOUR_S)
    stage.play()
    assert stage.outcome("r0") == "succeeded" and stage.world.clock.now < 40
    assert [name for _, name, _ in stage.fetches("r0")] == ["lab"] * Policy().transfer_attempts_max + ["here"]


@pytest.mark.parametrize("back", [LAB, CLOUD])
def test_if_all_sources_are_away_they_are_asked_in_turn(back: str) -> None:
    stage = Stage()
    stage.submit("r0", chain("a", "lab", "here", final_at="lab" if back == LAB else "here"))
    away(stage, LAB, 0.0, HOUR_S if back == LAB else 9 * HOUR_S)
    away(stage, CLOUD, 0.0, HOUR_S if back == CLOUD else 9 * HOUR_S)
    stage.play()
    assert stage.outcome("r0") == "succeeded" and stage.world.clock.now < HOUR_S + 200
    later = [name for _, name, _ in stage.fetches("r0")][2 * Policy().transfer_attempts_max + 1 :]
    assert later.count("lab") - later.count("here") in (-1, 0, 1) and len(later) > 60


def test_a_source_without_the_file_does_not_end_the_wait_for_one_that_is_away() -> None:
    """And it is not asked again."""
    stage = Stage()
    stage.submit("r0", chain("a", "lab", "here"))
    stage.world.origins[CLOUD].files.clear()
    away(stage, LAB, 0.0, HOUR_S)
    stage.play()
    assert stage.outcome("r0") == "succeeded"
    assert [name for _, name, _ in stage.fetches("r0")].count("here") == 1


def test_jobs_whose_inputs_are_there_pass_those_that_wait_for_an_origin() -> None:
    """More jobs than may be admitted wait for it, and all space would be theirs."""
    lab, here = origin("lab", LAB), origin("here", CLOUD)
    policy = Policy(admitted_waiting_max=2, fetches_ahead_max=2)
    stage = Stage(policy, capacity=250, cores=1)
    for number in range(4):
        stage.submit(f"r{number}", workflow(f"a{number}", [lab, here], [external(f"in.{number}", "lab")], "here", [[f"in.{number}"]]))
    stage.submit("last", workflow("b", [here], [external("b.in", "here")], "here", [["b.in"], []]), at=0.1)
    away(stage, LAB, 0.0, HOUR_S)
    stage.play()
    assert all(stage.outcome(run) == "succeeded" for run in stage.world.runs)
    assert stage.world.runs["last"].finished_at < 100


def test_another_run_with_a_way_of_its_own_does_not_wait() -> None:
    lab, here = origin("lab", LAB), origin("here", CLOUD)
    stage = Stage()
    stage.submit("r0", workflow("a", [lab, here], [external("in", "lab")], "here", [["in"]]))
    stage.submit("r1", workflow("b", [lab, here], [external("in", "lab", "here")], "here", [["in"]]), at=0.1)
    away(stage, LAB, 0.0, HOUR_S)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("succeeded", "succeeded")
    assert stage.world.runs["r1"].finished_at < 200


def test_two_runs_that_both_have_a_way_do_not_hand_it_to_and_fro() -> None:
    stage = Stage()
    places = [origin(name, LAB + name) for name in ("lab", "home", "here")]
    for number, other in enumerate(("home", "here")):
        files = [external("in", "lab", other)]
        stage.submit(f"r{number}", workflow(f"w{number}", places, files, "here", [["in"]]), at=number / 10)
    for name in ("lab", "home", "here"):
        away(stage, LAB + name, 0.0, HOUR_S)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("succeeded", "succeeded")
    assert len(stage.fetches("r0")) + len(stage.fetches("r1")) < 2 * HOUR_S / 40 + 50


def test_a_bad_answer_ends_the_row() -> None:
    retries = Retries(outages=3, outages_here=3, away_since=1.0)
    transfer = TransferEntry("t", "node0", "f", "r0", cmd.Purpose.FINAL, "lab", "out", 1, 0.0)
    note_failure(State(Policy(), Limits(), now=9.0), FileEntry("f", "f", "r0", 1), retries, transfer, TRANSFER_FAULTS[2])
    assert (retries.failures, retries.outages, retries.away_since) == (1, 0, None)


def test_two_runs_without_another_way_give_up_in_time() -> None:
    stage = Stage(Policy(outage_s_max=HOUR_S))
    stage.submit("r0", workflow("a", [origin("lab", LAB), origin("here", CLOUD)], [external("in", "lab")], "here", [["in"]]))
    stage.submit("r1", workflow("b", [origin("home", LAB), origin("here", CLOUD)], [external("in", "home")], "here", [["in"]]))
    away(stage, LAB, 0.0, 9 * HOUR_S)
    stage.play()
    assert (stage.outcome("r0"), stage.outcome("r1")) == ("failed", "failed")
    assert stage.world.clock.now < 2 * HOUR_S + 200


def test_a_run_that_is_drained_does_not_wait_for_its_finals_origin() -> None:
    stage = Stage()
    stage.submit("r0", chain("a", final_at="lab"))
    away(stage, LAB, 1.2, HOUR_S)
    stage.world.tell_at(100.0, lambda now: ev.RunDrained(at=now, run="r0"))
    stage.play()
    assert stage.outcome("r0") == "not_durable" and stage.world.runs["r0"].finished_at < 165


def told_while_playing(stage: Stage, run: str = "r0") -> list[tuple[float, list[str]]]:
    """After each batch, what a status would say a second later."""
    told: list[tuple[float, list[str]]] = []

    def watch(machine: Machine, events: object, commands: object) -> None:
        if run in machine.state.runs:
            now = machine.state.now
            told.append((now, [each.message for each in waiting_of(machine.state, machine.state.runs[run], now + 1)]))

    simulate(stage.world, watch)
    return told


def test_the_status_says_what_is_waited_for_and_for_how_long() -> None:
    stage = Stage()
    lab, here = origin("lab", LAB), origin("here", CLOUD)
    stage.submit("r0", workflow("a", [lab, here], [external("in.0", "lab"), external("in.1", "lab")], "lab", [["in.0"], ["in.1"]]))
    away(stage, LAB, 0.5, 100.0)
    told = told_while_playing(stage)
    assert all(not said for at, said in told if at < 0.5)
    during = [said for at, said in told if 3.0 < at < 100]
    assert during and all(len(said) == 1 and said[0].startswith("origin lab: unreachable for ") for said in during)
    assert all("(the origin does not answer), 2 transfers wait, " in said[0] for said in during)
    assert any("next try in " in said[0] for said in during) and any("tried again now" in said[0] for said in during)
    assert any("unreachable for 54 s" in said[0] for said in during) and told[-1][1] == []


def waiting_for_two() -> tuple[State, list[Retries]]:
    """A run whose two inputs are waited for."""
    stage = Stage()
    lab, here = origin("lab", LAB), origin("here", CLOUD)
    stage.submit("r0", workflow("a", [lab, here], [external("in.0", "lab"), external("in.1", "lab")], "here", [["in.0"], ["in.1"]]))
    away(stage, LAB, 0.0, HOUR_S)
    found: list[State] = []

    def watch(machine: Machine, events: object, commands: object) -> None:
        if not found and len(machine.state.retrying) == 2 and not machine.state.transfers:
            found.append(copy.deepcopy(machine.state))

    simulate(stage.world, watch)
    state = found[0]
    retries = [state.files[file].fetch for file, _ in state.retrying]
    assert all(each is not None for each in retries)
    return state, [each for each in retries if each is not None]


@pytest.mark.parametrize("final_at", ["here", "lab"])
def test_once_an_origin_is_back_nobody_sleeps_on(final_at: str) -> None:
    """The first transfer that gets through wakes the others, and the jobs that stepped aside; the last pause held up the end."""
    stage = Stage(cores=8)
    lab, here = origin("lab", LAB), origin("here", CLOUD)
    inputs = [external(f"in.{number}", "lab") for number in range(8)]
    what = workflow("a", [lab, here], inputs, final_at, [[f"in.{number}"] for number in range(8)])
    stage.submit("r0", what)
    away(stage, LAB, 0.1, HOUR_S)
    stage.play()
    assert stage.outcome("r0") == "succeeded"
    begun = [at for _, _, at in stage.fetches("r0") if at >= HOUR_S]
    assert max(begun) - min(begun) < 3, "of eight pauses of up to a minute the longest was not waited for"


def test_a_file_that_alone_meets_nobody_is_not_tried_without_a_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    """Others of its origin get through all the time."""
    stage = Stage()
    lab, here = origin("lab", LAB), origin("here", CLOUD)
    many = [external(f"in.{number}", "lab") for number in range(90)]
    stage.submit("r0", workflow("a", [lab, here], [external("odd", "lab"), *many], "here", [["odd"], *([each.lfn] for each in many)]))
    of_origin = TransferTable._source_fault

    def source_fault(transfers: TransferTable, moving: Moving) -> Fault | None:
        odd = isinstance(moving.command, cmd.Fetch) and moving.command.lfn == "odd" and stage.world.clock.now < 120
        return ORIGIN_FAULTS["timeout"] if odd else of_origin(transfers, moving)

    monkeypatch.setattr(TransferTable, "_source_fault", source_fault)
    stage.play()
    assert stage.outcome("r0") == "succeeded"
    odd = [at for lfn, _, at in stage.fetches("r0") if lfn == "odd"]
    assert 5 < len(odd) < 12, odd


def test_the_status_does_not_call_an_origin_unreachable_that_others_get_through_to() -> None:
    """As it was seen: for 17 minutes, while files moved. And the reason that is told is the newest."""
    state, [slow, stuck] = waiting_for_two()
    slow.away_since = stuck.away_since = 10.0
    slow.last_at, slow.last = 900.0, Fault(ErrorClass.TRANSIENT, "timeout", "it took too long", "in.0")
    stuck.last_at, stuck.last = 500.0, Fault(ErrorClass.TRANSIENT, "connection_lost", "the line broke", "in.1")
    [told] = waiting_of(state, state.runs["r0"], 1030.0)
    assert told.message.startswith("origin lab: unreachable for 17 min") and "(timeout), 2 transfers wait" in told.message
    state.reached[state.origin_identity("r0", "lab")] = 1000.0
    [told] = waiting_of(state, state.runs["r0"], 1030.0)
    assert told.since_s is None, told
    assert told.message.startswith("origin lab: it answers again (before: timeout), 2 transfers wait"), told.message
    slow.last_at = 1010.0
    [told] = waiting_of(state, state.runs["r0"], 1030.0)
    assert told.message.startswith("origin lab: unreachable for 30 s (timeout)"), told.message
    slow.transfer = "moves"
    state.transfers["moves"] = None  # type: ignore[assignment]
    [told] = waiting_of(state, state.runs["r0"], 1030.0, moving={"moves"})
    assert told.message.startswith("origin lab: it answers again (before: connection lost), 1 transfer waits"), told.message


def test_the_status_says_trouble_where_the_origin_answers() -> None:
    stage = Stage()
    stage.submit("r0", chain("a"))
    stage.world.transfers._faults = replace(NO_FAULTS, until_s=0.5, transfer_share=1.0, seed=17)
    told = told_while_playing(stage)
    assert any(said == ["origin lab: trouble (checksum mismatch), 1 transfer waits, tried again now"] for _, said in told)
    assert told[-1][1] == []


def test_the_other_run_that_wants_it_says_so_too() -> None:
    stage = Stage()
    for number, name in enumerate(("lab", "home")):
        places = [origin(name, LAB), origin("here", CLOUD)]
        stage.submit(f"r{number}", workflow(f"w{number}", places, [external("in", name)], "here", [["in"]]))
    away(stage, LAB, 0.0, 100.0)
    assert sum("unreachable" in "".join(said) for _, said in told_while_playing(stage, "r1")) > 5


def test_a_resume_asks_at_once() -> None:
    stage = Stage()
    stage.submit("r0", chain("a"))
    away(stage, LAB, 0.0, 500.0)
    stage.resume("r0", 501.0)
    stage.play()
    assert stage.outcome("r0") == "succeeded"
    assert any(501 <= at < 501.1 for _, _, at in stage.fetches("r0"))


def test_time_between_an_end_and_a_resume_is_known() -> None:
    stage = Stage(Policy(outage_s_max=60.0))
    stage.submit("r0", chain("a"))
    away(stage, LAB, 0.0, 300.0)
    stage.resume("r0", 1000.0)
    machine = stage.play()
    run = machine.state.runs["r0"]
    ended = next(each.at for each in stage.commands if isinstance(each, cmd.FinishRun))
    assert run.interrupted_s == pytest.approx(1000.0 - ended) and run.interrupted_s > 800


def test_pauses_stop_growing_however_often_something_is_tried() -> None:
    """A spill is tried without end."""
    decision = Decision(State(Policy(), Limits()), "e1")
    assert 30 <= decision.retry_at(5000, "x") <= 60


def test_a_policy_of_an_older_journal_is_read() -> None:
    old = {key: value for key, value in msgspec.to_builtins(Policy()).items() if key != "outage_s_max"}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(old), type=Policy) == replace(Policy())
