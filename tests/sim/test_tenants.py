"""Tenants in the simulated world: cores by weight, quotas, priorities, and that nobody starves."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

import pytest
from msgspec import structs

from stager.model.files import File
from stager.model.topology import Host, Node, OriginLink, Topology
from stager.model.workflow import Job, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import TenantShare
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.sim.checkers import all_checkers
from stager.sim.simulate import simulate
from stager.sim.world import SimWorld
from tests.sim.cases import check_replay, watch_invariants

LINKS = (OriginLink("home", 1e6, 1e6, 0.0),)


def wide(name: str, count: int, cores: int = 1, size_bytes: int = 10, takes_s: int = 1) -> Workflow:
    """So many jobs beside each other."""
    jobs = {}
    for n in range(count):
        jobs[f"j{n}"] = Job(f"j{n}", "work", ("work",), outputs=(JobOutput(f"{name}.{n}", f"o{n}"),), cores=cores, compute_s=float(takes_s))
    files = {f"{name}.{n}": File(f"{name}.{n}", size_bytes=size_bytes) for n in range(count)}
    return Workflow(name, files, jobs, {})


class Stage:
    """One node; what was started when, and by whom."""

    def __init__(self, cores: int = 4, capacity: int = 1_000_000, shares: Mapping[str, TenantShare] | None = None, **hosts: str) -> None:
        its = tuple(Host(name, 2) for name in hosts)
        self.topology = Topology((Node("node0", capacity, cores, hosts=its),), LINKS)
        checkers = all_checkers()
        self.world = SimWorld(self.topology, checkers=checkers, keep_journal=True, shares=shares, host_tenants=hosts)
        self.started: list[tuple[float, str, str]] = []
        self.most_held: Counter[str] = Counter()

    def submit(
        self, run: str, tenant: str, count: int, at: float = 0.0, priority: int = 0, expected_s: float | None = None, **facts: int
    ) -> None:
        """`expected_s`: by its plan, of each job."""
        what = wide(run, count, **facts)
        truth = make_plan(what, self.topology)
        plan = replace(truth, jobs=tuple(structs.replace(job, compute_s=expected_s or job.compute_s) for job in truth.jobs))
        self.world.submit(run, what, plan, at, truth, tenant=tenant, priority=priority)

    def play(self) -> Machine:
        def watch(machine: Machine, events: object, commands: list[object]) -> None:
            watch_invariants(machine, events, commands)
            for command in commands:
                if type(command) is cmd.StartAttempt:
                    self.started.append((machine.state.now, machine.state.runs[command.run].tenant, command.host or command.run))
            for name, tenant in machine.state.tenants.items():
                self.most_held[name] = max(self.most_held[name], tenant.cores_used)

        machine = simulate(self.world, watch)
        check_replay(self.world, machine)
        assert {run.outcome for run in self.world.runs.values()} == {cmd.RunOutcome.SUCCEEDED}
        return machine

    def among_first(self, count: int) -> Counter[str]:
        return Counter(tenant for _, tenant, _ in self.started[:count])


@pytest.mark.parametrize(("heavy", "expected_s"), [(1.0, 1.0), (3.0, 1.0), (1.0, 10.0)])
def test_two_tenants_share_cores_by_weight_whoever_came_first(heavy: float, expected_s: float) -> None:
    """And whatever their plans expect of their jobs."""
    stage = Stage(shares={"alice": TenantShare(), "bob": TenantShare(weight=heavy)})
    stage.submit("first", "alice", 200)
    stage.submit("second", "bob", 200, at=2.5, expected_s=expected_s)
    stage.play()
    # By then the charges that came ahead for a plan that is ten times off are as large for both.
    both = [tenant for at, tenant, _ in stage.started if 25 <= at < 60]
    assert both.count("bob") / both.count("alice") == pytest.approx(heavy, rel=0.1)


def test_what_a_tenant_did_not_use_while_it_was_away_is_no_credit() -> None:
    stage = Stage()
    stage.submit("long", "alice", 200)
    stage.submit("late", "bob", 40, at=20.5)
    stage.play()
    after = Counter(tenant for at, tenant, _ in stage.started if 20.5 <= at < 30.5)
    assert abs(after["alice"] - after["bob"]) <= 4


def test_a_stream_of_small_runs_of_one_tenant_starves_nobody() -> None:
    """Also where the others have a hundred times the weight."""
    stage = Stage(cores=1, shares={"bob": TenantShare(weight=100.0)})
    stage.submit("one", "alice", 3)
    for number in range(60):
        stage.submit(f"small{number}", "bob", 3, at=number)
    machine = stage.play()
    assert machine.state.runs["one"].finished_at < machine.state.runs["small59"].finished_at


def test_a_tenant_has_no_more_cores_than_its_quota_and_leaves_the_others_no_core_idle() -> None:
    stage = Stage(shares={"alice": TenantShare(quota_cores=1)})
    stage.submit("mine", "alice", 20)
    stage.submit("theirs", "bob", 60)
    stage.play()
    assert stage.most_held["alice"] == 1
    assert max(at for at, tenant, _ in stage.started if tenant == "bob") == pytest.approx(19, abs=1.5)


def test_a_job_that_is_larger_than_its_tenants_quota_runs_alone() -> None:
    stage = Stage(shares={"alice": TenantShare(quota_cores=1, quota_bytes=5)})
    stage.submit("mine", "alice", 5, cores=2)
    stage.play()
    times = [at for at, _, _ in stage.started]
    assert all(later - earlier >= 1.0 for earlier, later in zip(times, times[1:], strict=False))


def test_a_tenant_that_holds_more_than_its_quota_has_one_job_at_a_time_and_the_others_go_on() -> None:
    stage = Stage(shares={"alice": TenantShare(quota_bytes=25)})
    stage.submit("mine", "alice", 10)
    stage.submit("theirs", "bob", 10)
    stage.play()
    mine = [at for at, tenant, _ in stage.started if tenant == "alice"]
    assert len([at for at in mine if at < 0.5]) == 2, "two outputs of 10 bytes fit"
    assert max(at for at, tenant, _ in stage.started if tenant == "bob") < 5


def test_of_one_tenants_runs_that_with_the_higher_priority_comes_first_and_of_others_none() -> None:
    stage = Stage(cores=1)
    stage.submit("old", "alice", 10)
    stage.submit("urgent", "alice", 5, at=3.5, priority=7)
    stage.submit("other", "bob", 10, at=3.5)
    machine = stage.play()
    runs = machine.state.runs
    assert runs["urgent"].finished_at < runs["old"].finished_at
    between = [tenant for at, tenant, _ in stage.started if 3.5 <= at < 13]
    assert abs(between.count("alice") - between.count("bob")) <= 2


def test_jobs_run_on_the_hosts_of_their_tenant_alone_and_wait_for_none_of_anothers() -> None:
    shares = {"alice": TenantShare(has_pool=True), "bob": TenantShare(has_pool=True)}
    stage = Stage(shares=shares, h1="alice", h2="bob", h3="")
    stage.submit("mine", "alice", 100, takes_s=30)
    stage.submit("theirs", "bob", 6, at=3.0)
    stage.submit("own", "", 6, at=3.0)
    machine = stage.play()
    assert {(tenant, host) for _, tenant, host in stage.started} == {("alice", "h1"), ("bob", "h2"), ("", "h3")}
    runs = machine.state.runs
    assert runs["theirs"].finished_at < 8 and runs["own"].finished_at < 8, "alice's jobs that wait stand in nobody's way"


def test_a_tenant_without_a_host_that_is_large_enough_fails_by_name_whatever_others_have() -> None:
    stage = Stage(shares={"alice": TenantShare(has_pool=True)}, h1="", h2="alice")
    stage.world.hosts["h1"].size = replace(stage.world.hosts["h1"].size, cores=8)
    what = wide("big", 1, cores=3)
    stage.world.submit("big", what, make_plan(what, stage.topology), tenant="alice")
    simulate(stage.world)
    assert stage.world.runs["big"].fault.code == "no_host"


def test_shares_that_change_count_at_once() -> None:
    stage = Stage(shares={"alice": TenantShare(quota_cores=1)})
    stage.submit("mine", "alice", 20)
    stage.world.tell_at(5.5, lambda now: ev.TenantsSet(at=now, shares={}))
    stage.play()
    assert stage.most_held["alice"] == 4
