"""Inputs read directly: what they spare, and what becomes of them where they cannot be had so."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from stager.estimate import estimate
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import IoHint, Job, JobInput, JobOutput, Origin, OriginKind, Workflow, graph_of
from stager.planning.make_plan import make_plan
from stager.planning.plan import Access, Plan
from stager.planning.policy import Policy
from stager.planning.space import serial_usage
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.apply_runs import direct_access, planned_files
from stager.scheduler.direct_access import predicted
from stager.scheduler.state import RunEntry
from stager.service.measuring import wall_at_node_s
from stager.sim.checkers import all_checkers
from stager.sim.faults import Faults
from stager.sim.simulate import rebuilt, simulate
from stager.sim.world import SimWorld
from tests.sim.cases import watch_invariants

MB = 10**6
URL = "sshfs://lab/data"


def survey(jobs: int = 2) -> Workflow:
    """Each job looks at a hundredth of a large file of its own and of one that all share."""
    files = {"sky": File("sky", size_bytes=100 * MB, sources=(Source(Location("lab", "sky"), 100 * MB, "m=1"),))}
    made = {}
    for number in range(jobs):
        own, out = f"own{number}", f"out{number}"
        files[own] = File(own, size_bytes=50 * MB, sources=(Source(Location("lab", own), 50 * MB, "m=1"),))
        files[out] = File(out, size_bytes=1000, destination=Destination(Location("lab", out)))
        inputs = (JobInput("sky", "sky"), JobInput(own, "own"))
        made[f"look{number}"] = Job(f"look{number}", "look", ("x",), inputs=inputs, outputs=(JobOutput(out, "o"),), compute_s=2.0)
    return Workflow(
        "survey", files, made, {"lab": Origin("lab", OriginKind.SSHFS, URL)}, hints={"look": IoHint("look", read_fraction=0.01)}
    )


def topology(capacity_bytes: int = 1000 * MB, cores: int = 2, **of_node: Any) -> Topology:
    link = OriginLink("lab", fetch_bytes_per_s=10e6, upload_bytes_per_s=10e6, latency_s=0.01)
    return Topology((Node("node0", capacity_bytes, cores, **of_node),), (link,))


def live(
    happens: Callable[[SimWorld], None] | None = None, policy: Policy | None = None, faults: Faults | None = None, **of_node: Any
) -> tuple[SimWorld, list[Any]]:
    """Under all checkers, and decided again from its journal."""
    workflow, plan = survey(), make_plan(survey(), topology())
    assert {file.lfn for file in plan.files if file.access is Access.DIRECT} == {"sky", "own0", "own1"}
    more = {} if faults is None else {"faults": faults}
    world = SimWorld(topology(**of_node), policy, checkers=all_checkers(), keep_journal=True, **more)
    world.submit("r0", workflow, plan)
    if happens is not None:
        happens(world)
    given: list[Any] = []

    def watch(machine: Any, events: Any, commands: Any) -> None:
        watch_invariants(machine, events, commands)
        given.extend(commands)

    simulate(world, watch)
    rebuilt(world)
    return world, given


def kinds(given: list[Any]) -> set[type]:
    return {type(command) for command in given}


def of_kind(given: list[Any], kind: type) -> list[Any]:
    return [command for command in given if type(command) is kind]


def test_what_is_read_directly_takes_no_room_and_little_of_the_line() -> None:
    world, given = live()
    assert world.runs["r0"].outcome == "succeeded" and cmd.Fetch not in kinds(given)
    assert sum(world.executor.direct_bytes.values()) == 2 * (MB + MB // 2)
    assert all(
        entry.access is Access.DIRECT and entry.token == "m=1" for start in of_kind(given, cmd.StartAttempt) for entry in start.inputs
    )


def test_an_estimate_counts_it_as_bytes_over_the_line_and_as_misses() -> None:
    report, kept = estimate(survey(), topology()), estimate(survey(), topology(), plan=made_plan(Policy(direct_access=False)))
    assert (report.direct_read_bytes, report.fetched_bytes, report.hit_rate) == (3 * MB, 0, 0.0)
    assert report.traffic[0].fetched_bytes == 3 * MB and kept.traffic[0].fetched_bytes == kept.fetched_bytes == 200 * MB
    assert report.wall_s < 5 < 20 < kept.wall_s
    assert not any(link.startswith("reader:") for link in report.busy_s)


def made_plan(policy: Policy) -> Plan:
    return make_plan(survey(), topology(), policy=policy)


def test_a_reader_is_no_faster_than_one_reader_is_however_wide_the_line() -> None:
    """Reads here and there, a round trip for each 16 KiB: 1.5 MB take most of a second."""
    plan = make_plan(survey(1), topology())
    read_s = sum(read.read_s for file in plan.files if file.direct_access is not None for read in file.direct_access.reads)
    wide = replace(topology(), links=(OriginLink("lab", 1e9, 1e9, 0.01),))
    report = estimate(survey(1), wide, plan=plan)
    assert report.direct_read_bytes == 3 * MB // 2 and read_s > 0.9 and read_s + 2 < report.wall_s < read_s + 2.2


def test_a_changed_file_fails_its_jobs_before_they_begin_or_after_they_ended() -> None:
    def change(world: SimWorld) -> None:
        world.clock.at(1.0, lambda: world.origins[URL].put("own0", "other", 50 * MB))

    world, given = live(change)
    failed = of_kind(given, cmd.FailJob)
    assert world.runs["r0"].outcome == "failed" and [(each.job, each.fault.code) for each in failed] == [("look0", "source_changed")]
    assert "out0" not in world.origins[URL].files and "out1" in world.origins[URL].files


def test_a_denial_pauses_the_origin_and_who_would_read_there_fails_by_its_name() -> None:
    world, given = live(lambda world: setattr(world.origins[URL], "fault_code", "denied"), cores=1)
    assert [pause.origin for pause in of_kind(given, cmd.PauseOrigin)] == ["lab"]
    assert len(of_kind(given, cmd.StartAttempt)) == 1 and len(of_kind(given, cmd.FailJob)) == 2
    assert world.runs["r0"].outcome == "failed" and {each.fault.code for each in of_kind(given, cmd.FailJob)} == {"denied"}


def test_an_origin_that_is_away_is_waited_for_and_costs_no_tries() -> None:
    def away(world: SimWorld) -> None:
        world.origins[URL].fault_code = "origin_unreachable"
        world.clock.at(600.0, lambda: setattr(world.origins[URL], "fault_code", ""))

    world, given = live(away)
    assert world.runs["r0"].outcome == "succeeded" and 600 < world.clock.now < 700
    assert not any(requeue.counts for requeue in of_kind(given, cmd.RequeueJob))


def test_an_origin_that_never_comes_back_is_not_waited_for_longer_than_for_a_fetch() -> None:
    world, given = live(lambda world: setattr(world.origins[URL], "fault_code", "timeout"), Policy(outage_s_max=300.0))
    assert world.runs["r0"].outcome == "failed" and {each.fault.code for each in of_kind(given, cmd.FailJob)} == {"origin_away"}
    assert 300 < world.clock.now < 400


def test_what_cannot_be_mounted_is_fetched_instead_and_for_all_of_the_run() -> None:
    world, given = live(faults=Faults(1, until_s=1.0, transfer_share=1.0))
    assert world.runs["r0"].outcome == "succeeded"
    assert sorted(each.lfn for each in of_kind(given, cmd.FallBackToFetch)) == ["own0", "own1", "sky"]
    assert {each.lfn for each in of_kind(given, cmd.Fetch)} == {"own0", "own1", "sky"}


def test_where_jobs_cannot_be_given_mounts_all_is_fetched_from_the_start() -> None:
    world, given = live(can_link=False)
    assert world.runs["r0"].outcome == "succeeded" and given[0].lfn == "own0" and type(given[0]) is cmd.FallBackToFetch
    assert len(of_kind(given, cmd.StartAttempt)) == 2


def test_what_cannot_be_read_directly_and_does_not_fit_is_refused_by_name() -> None:
    world, given = live(can_link=False, capacity_bytes=120 * MB)
    assert world.runs["r0"].outcome in ("failed", "refused")
    assert {each.fault.code for each in of_kind(given, cmd.FailJob)} == {"no_space_node"}


def test_a_job_runs_whose_inputs_are_larger_than_the_node() -> None:
    workflow = replace(survey(), hints={})
    tight = topology(10 * MB)
    plan = make_plan(workflow, tight)
    assert all(file.access is Access.DIRECT for file in plan.files if workflow.files[file.lfn].is_external)
    assert estimate(workflow, tight, plan=plan).outcome == "succeeded"
    assert estimate(workflow, tight, plan=make_plan(workflow, tight, policy=Policy(direct_access=False))).outcome == "failed"


def test_what_a_job_stood_still_for_directly_is_not_its_own_time() -> None:
    """A later plan adds it again where it reads directly, and the file's own reading where it keeps it."""
    plan = make_plan(survey(1), topology())
    run = RunEntry("r", 1, survey(1), plan, graph_of(survey(1)), 0.0, {}, {}, [], planned_files(plan), direct_access(plan))
    job, stood_s = run.workflow.jobs["look0"], predicted(run, "look0")[1]
    assert 0.9 < stood_s < 1.1
    assert wall_at_node_s(run, job, ev.Measures(wall_s=5.0, cpu_s=1.0)) == pytest.approx(5.0 - stood_s)
    assert wall_at_node_s(run, job, ev.Measures(wall_s=5.0, cpu_s=4.9)) == 4.9
    assert wall_at_node_s(run, job, ev.Measures()) is None
    run.fell_back |= dict.fromkeys(plan_file.lfn for plan_file in plan.files)
    assert wall_at_node_s(run, job, ev.Measures(wall_s=5.0, cpu_s=1.0)) == 5.0


def test_what_is_fetched_instead_is_reckoned_with_as_if_it_had_been_planned_so() -> None:
    workflow, plan = survey(), make_plan(survey(), topology(190 * MB))
    kept = replace(plan, files=tuple(structs.replace(file, access=Access.LINK) for file in plan.files))
    world = SimWorld(topology(190 * MB, can_link=False), checkers=all_checkers(), keep_journal=True)
    world.submit("r0", workflow, plan)
    seen: list[list[int]] = []

    def watch(machine: Any, events: Any, commands: Any) -> None:
        watch_invariants(machine, events, commands)
        run = machine.state.runs.get("r0")
        if not seen and run is not None and run.safety is not None:
            seen.append(run.safety.values())

    simulate(world, watch)
    assert seen == [serial_usage(workflow, graph_of(workflow), kept)] and max(seen[0]) > 150 * MB
    assert world.runs["r0"].outcome == "succeeded"
