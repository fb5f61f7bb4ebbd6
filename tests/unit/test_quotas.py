"""Quotas of tenants at the door: one clear message for a submit or a resume that is too much; what jobs wait for inside; and that the
Machine is told what the file says.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from stager import wire
from stager.model.errors import Refused
from stager.model.files import File
from stager.model.tenants import Tenant, Tenants
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import TenantShare
from stager.scheduler import events as ev
from stager.service.run_service import Sender
from stager.service.shares import ShareBook
from stager.service.tenancy import Tenancy
from stager.service.waiting import waiting_of
from tests.unit.test_run_service import CAPACITY, LIMITS, Bench

ALICE, BOB = Sender("alice"), Sender("bob")


def making(name: str, count: int = 1, size_bytes: int = 1000) -> Workflow:
    """Jobs side by side; one more reads what all of them make."""
    jobs = {f"j{n}": Job(f"j{n}", "make", shell="x", outputs=(JobOutput(f"{n}", f"{n}"),)) for n in range(count)}
    jobs["last"] = Job("last", "make", shell="x", inputs=tuple(JobInput(f"{n}", f"{n}") for n in range(count)))
    return Workflow(name, {f"{n}": File(f"{n}", size_bytes=size_bytes) for n in range(count)}, jobs, {})


class Quotas(Bench):
    def __init__(self, place: Path, **tenants: Tenant) -> None:
        super().__init__(place)
        self.run_service.tenant_named = tenants.__getitem__
        shares = {name: TenantShare(quota_cores=tenant.quota_cores, quota_bytes=tenant.quota_bytes) for name, tenant in tenants.items()}
        self.machine.step(ev.TenantsSet(at=0.0, shares=shares))

    def send(self, workflow: Workflow, sender: Sender) -> str:
        plan = make_plan(workflow, embedded(CAPACITY, cores=2), limits=LIMITS)
        return self.run_service.submit(wire.SubmitRequest(workflow, plan), 0.0, lambda: None, sender)


def test_a_submit_over_the_quota_of_runs_is_refused_with_what_to_do_and_others_go_on(tmp_path: Path) -> None:
    bench = Quotas(tmp_path, alice=Tenant("alice", quota_runs=1), bob=Tenant("bob"))
    first = bench.send(making("w"), ALICE)
    with pytest.raises(Refused) as caught:
        bench.send(making("w"), ALICE)
    assert caught.value.code == "quota_runs"
    assert caught.value.message == (
        f"the tenant alice may have 1 active at a time, and 1 run is active ({first}); wait for one (stager wait {first}), or cancel one"
    )
    assert bench.send(making("w"), BOB) and bench.submit(making("w")), "the quota is nobody else's"
    bench.machine.step(ev.RunCancelled(at=1.0, run=first))
    for name, attempt in list(bench.machine.state.attempts.items()):
        if attempt.run == first:
            bench.machine.step(ev.AttemptEnded(at=2.0, run=first, job=attempt.job, attempt=name, outcome=ev.Outcome.LOST))
    assert bench.send(making("w"), ALICE)


def test_a_run_that_is_accepted_and_not_seen_yet_counts_and_so_does_one_that_is_resumed(tmp_path: Path) -> None:
    bench = Quotas(tmp_path, alice=Tenant("alice", quota_runs=1))
    first = bench.send(making("w"), ALICE)
    bench.machine.step(ev.RunDrained(at=1.0, run=first))
    for name, attempt in list(bench.machine.state.attempts.items()):
        bench.machine.step(ev.AttemptEnded(at=2.0, run=first, job=attempt.job, attempt=name, outcome=ev.Outcome.LOST))
    assert bench.machine.state.runs[first].outcome == "interrupted"
    bench.slow = True
    bench.send(making("w"), ALICE)
    with pytest.raises(Refused, match="may have 1 active"):
        bench.send(making("w"), ALICE)
    with pytest.raises(Refused, match="may have 1 active"):
        bench.run_service.resume(first, wire.ResumeRequest(), lambda: None)


def test_a_workflow_that_holds_more_than_its_tenant_may_is_refused_unless_it_can_be_put_elsewhere(tmp_path: Path) -> None:
    bench = Quotas(tmp_path, alice=Tenant("alice", quota_bytes=2500))
    with pytest.raises(
        Refused, match="holds 3 kB of what it makes at a time, and the tenant alice may hold 2.5 kB; name a spill"
    ) as caught:
        bench.send(making("w", 3), ALICE)
    assert caught.value.code == "quota_bytes"
    assert bench.send(making("w", 2), ALICE)


def test_status_says_which_quota_a_run_waits_for(tmp_path: Path) -> None:
    bench = Quotas(tmp_path, alice=Tenant("alice", quota_cores=1), bob=Tenant("bob", quota_bytes=1500))
    cores, room = bench.send(making("w", 2), ALICE), bench.send(making("w", 1), BOB)
    more = bench.send(making("w", 1), BOB)
    state = bench.machine.state
    [waiting] = waiting_of(state, state.runs[cores], 1.0)
    assert (waiting.code, waiting.message) == ("quota_cores", "the quota of the tenant alice: 1 of the 1 core that it may have are in use")
    [waiting] = waiting_of(state, state.runs[more], 1.0)
    assert (waiting.code, waiting.message) == ("quota_bytes", "the quota of the tenant bob: it holds 1 kB of the 1.5 kB that it may hold")
    assert waiting_of(state, state.runs[room], 1.0) == []


def test_the_machine_is_told_what_the_file_says_when_it_says_something_else(tmp_path: Path) -> None:
    bench, told = Quotas(tmp_path), list[ev.Event]()
    path = tmp_path / "tenants.toml"
    path.touch()
    named = {"alice": Tenant("alice", weight=2.0), "bob": Tenant("bob")}
    tenancy = Tenancy(path, tmp_path / "state", {}, lambda _: Tenants(dict(named)))
    book = ShareBook(tenancy, lambda event, *_: told.append(event), bench.machine.state)
    book.tell()
    book.tell()
    assert told == [ev.TenantsSet(at=0.0, cause="tenants", shares={"alice": TenantShare(weight=2.0)})]
    bench.machine.step(told.pop())
    again = ShareBook(tenancy, lambda event, *_: told.append(event), bench.machine.state)
    again.tell()
    assert told == [], "after a restart the journal holds it already"
    named["alice"] = replace(named["alice"], quota_cores=3)
    path.write_text("other")
    again.tell()
    assert told == [ev.TenantsSet(at=0.0, cause="tenants", shares={"alice": TenantShare(weight=2.0, quota_cores=3)})]


def test_who_had_a_pool_runs_on_no_hosts_of_others_without_it(tmp_path: Path) -> None:
    bench, told = Quotas(tmp_path), list[ev.Event]()
    path = tmp_path / "tenants.toml"
    named = {"alice": Tenant("alice", pool="h:1"), "bob": Tenant("bob", pool="h:2"), "carol": Tenant("carol", pool="h:3")}
    tenancy = Tenancy(path, tmp_path / "state", {}, lambda _: Tenants(dict(named)))
    book = ShareBook(tenancy, lambda event, *_: told.append(event), bench.machine.state)
    path.touch()
    assert book.tell() == named
    named["alice"], named["bob"] = Tenant("alice"), Tenant("bob", native_jobs=True)
    del named["carol"]
    path.write_text("other")
    book.tell()
    apart = TenantShare(has_pool=True)
    assert [event.shares for event in told if isinstance(event, ev.TenantsSet)] == [
        {"alice": apart, "bob": apart, "carol": apart},
        {"alice": apart, "carol": apart},
    ]
