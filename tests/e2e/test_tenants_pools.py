"""Two tenants of one service, each with a pool of their own: their programs run as their users, and a pool that is away holds up nobody
else.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.worker.place import write_json
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.tenants_rig import USERS, Tenants

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")]
WHO = '  who: {run: "id -u > made; cat in >> made; echo printed", inputs: {in: data:in}, outputs: {made: data:made}}\n'


@pytest.fixture(scope="module")
def tenants(session_dir: Path) -> Iterator[Tenants]:
    made = Tenants(session_dir / "tenants")
    try:
        made.start()
        for name in USERS:
            (made.data / name / "in").write_text(f"of {name}\n")
        yield made
    finally:
        made.end()


def test_programs_run_as_the_tenants_user_on_hosts_of_its_pool_alone(tenants: Tenants) -> None:
    runs = {}
    for name in USERS:
        runs[name] = tenants.submit(name, WHO)
    for name, run in runs.items():
        assert tenants.outcome(name, run) == "succeeded", tenants.logs()
        assert (tenants.data / name / "made").read_text() == f"{USERS[name]}\nof {name}\n"
        logs = tenants.client(name).get(f"/runs/{run}/jobs/who/logs").raise_for_status().text
        assert "printed" in logs
    starts = given_in(batches_of(tenants.state), cmd.StartAttempt)
    assert {(command.run, command.host) for command in starts} == {(runs[name], f"{name}:h1") for name in USERS}
    assert tenants.hosts("alice") == {"alice:h1": "open"}, "those of bob's pool are none of her business"
    # What a host keeps is its tenant's user's, who removes it.
    odd = tenants.pools["alice"].hosts["h1"].scratch / "environments" / "odd"
    odd.mkdir(parents=True)
    write_json(str(odd / "environment.json"), {"digest": "of something else"})
    for path in (odd.parent, odd, odd / "environment.json"):
        os.chown(path, USERS["alice"], USERS["alice"])
    gone = {host["host"]: (host["environments"], host["problem"]) for host in tenants.service.stager.json("gc")["hosts"]}
    assert gone == {"alice:h1": (1, ""), "bob:h1": (0, "")} and not odd.exists()
    assert tenants.told(ev.AttemptEnded) and {event.outcome for event in tenants.told(ev.AttemptEnded)} == {ev.Outcome.OK}


def test_a_pool_that_is_away_holds_up_its_tenant_alone_and_status_says_so(tenants: Tenants) -> None:
    alice = tenants.pools["alice"]
    alice.kill_scheduler()
    tenants.until(lambda: tenants.hosts("alice") == {"alice:h1": "away"}, "the host to be away")
    waits, goes = tenants.submit("alice", WHO.replace("data:made", "data:late"), "late"), tenants.submit("bob", WHO, "again")
    assert tenants.outcome("bob", goes) == "succeeded"
    said = tenants.status("alice", waits)
    assert said["state"] == "active" and "pool of hosts at 127.0.0.1" in str(said["problems"]), said
    assert tenants.status("bob", goes)["problems"] == []
    alice.start()
    assert tenants.outcome("alice", waits) == "succeeded"
    assert (tenants.data / "alice" / "late").read_text().startswith("64001")


def test_a_job_that_runs_while_the_service_is_killed_ends_once_and_whoever_loses_its_pool_runs_nowhere_else(tenants: Tenants) -> None:
    gate = tenants.pools["alice"].place / "gate"
    held = (
        f'  held: {{run: "until test -e {gate}; do sleep 0.1; done; echo $WORD > held", env_pass: [WORD], outputs: {{held: data:held}}}}\n'
    )
    run = tenants.submit("alice", held, "held", WORD="hush-hush")
    tenants.until(lambda: tenants.pools["alice"].hosts["h1"].reaper_pids(), "the job")
    tenants.service.kill()
    tenants.service.start()
    gate.touch()
    tenants.until(lambda: tenants.status("alice", run)["state"] == "succeeded", "the run's end")
    assert (tenants.data / "alice" / "held").read_text() == "hush-hush\n"
    starts = [command.host for command in given_in(batches_of(tenants.state), cmd.StartAttempt) if command.run == run]
    assert starts == ["alice:h1"]
    gate.unlink()
    run = tenants.submit("alice", held.replace("data:held", "data:lost"), "lost", WORD="hush-hush")
    tenants.until(lambda: tenants.pools["alice"].hosts["h1"].reaper_pids(), "the job")
    tenants.service.write_tenants(f'{tenants.toml("bob")}\n[tenants.alice]\nfile_roots = ["{tenants.data / "alice"}"]\n')
    tenants.until(lambda: tenants.status("alice", run)["state"] == "failed", "the end of a run without hosts")
    assert [event.host for event in tenants.told(ev.HostGone)] == ["alice:h1"]
    starts = [command.host for command in given_in(batches_of(tenants.state), cmd.StartAttempt) if command.run == run]
    assert set(starts) == {"alice:h1"} and not (tenants.data / "alice" / "lost").exists()
