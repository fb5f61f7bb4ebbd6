"""A service that is killed and started again: its tenants' runs go on by themselves, with the credentials that are registered now.

The origin is a real ssh server behind a line that is slow when a phase is to last, so that the kill comes while bytes are under way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from stager import rest
from stager.client import RestClient
from stager.model.errors import Denied, StagerError
from tests.e2e.kill_phases import Phase
from tests.e2e.origin_rig import known_hosts_of, methods
from tests.e2e.serve_rig import Service, call
from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

TENANTS = """
[tenants.alice]
native_jobs = true
[[tenants.alice.origins]]
url = "sftp://{user}@127.0.0.1:{port}{data}"
credentials = "key:{key}"
known_hosts = "{known_hosts}"
"""


@pytest.fixture
def lab(short_dir: Path, sshd: Sshd, link: Callable[..., Link]) -> Iterator[tuple[Service, Letters, Link, Path]]:
    """The workflow names a directory below the registered one, and no key."""
    line = link(sshd.port)
    known_hosts = known_hosts_of(sshd, line.port, short_dir / "known_hosts")
    registered = sshd.data / "home"
    data = registered / "letters"
    letters = Letters(short_dir / "wf", count=3, size_bytes=1_500_000, pause_s=0.5)
    letters.make(data, f'"sftp://127.0.0.1:{line.port}{data}"')
    about = {"user": sshd.user, "port": line.port, "data": registered, "key": sshd.identity_file, "known_hosts": known_hosts}
    service = Service(short_dir / "serve", TENANTS.format(**about))
    yield service, letters, line, data
    service.end()


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["fetching", "running", "uploading"])
def test_killed_at_any_instant_a_run_over_rest_goes_on_and_its_finals_are_durable(
    lab: tuple[Service, Letters, Link, Path], phase: str
) -> None:
    service, letters, line, data = lab
    token = service.token("alice", "submit")
    held = Phase(phase, letters, line)
    service.start()
    wanted = rest.Submission(workflow=letters.workflow.read_text())
    with RestClient(service.url, token) as client:
        run = client.submit(wanted, key="the-letters")
        held.begin()
        wait_until(lambda: phase_is(client, run, phase), f"the phase {phase}")
        seen = seen_events(client, run)
    service.kill()
    held.let_go()
    service.start()
    with RestClient(service.url, token) as client:
        assert client.submit(wanted, key="the-letters") == run, "what was taken was taken for good"
        after = list(client.run(run).follow(seen))
        assert after[-1].kind == "finish_run" and [event.seq for event in after] == sorted(event.seq for event in after)
        assert all(event.seq > seen for event in after), "a reader goes on where it was, over the restart"
        assert client.run(run).wait_finished(90).state == "succeeded"
        finals = [entry for entry in client.run(run).ledger() if entry.final]
        assert methods([entry.model_dump() for entry in finals]) <= {"readback", "remote_checksum"} and len(finals) == 4
        assert client.run(run).status().info.tenant == "alice"
    letters.check(data)
    assert all(count <= 2 for count in letters.ended().values()), letters.ended()
    problem = call("GET", f"{service.url}/api/v1/runs/{run}", headers={"Authorization": "Bearer stg_other"})
    assert problem.status_code == 401


def phase_is(client: RestClient, run: str, phase: str) -> bool:
    with contextlib.suppress(StagerError):
        status = client.run(run).status()
        moving = {each.direction for each in status.transfers if 0 < each.bytes_done < each.bytes_total}
        return {"fetching": "fetch" in moving, "running": bool(status.running), "uploading": "upload" in moving}[phase]
    return False


def seen_events(client: RestClient, run: str) -> int:
    """The number of the newest that a reader had when the line broke."""
    for event in client.run(run).follow():
        if event.kind == "fetch":
            return event.seq
    raise AssertionError("the run ended before it fetched anything")


def test_a_registration_that_is_taken_back_is_taken_from_runs_too(lab: tuple[Service, Letters, Link, Path]) -> None:
    service, letters, _, data = lab
    token = service.token("alice", "submit")
    service.start()
    gate = letters.hold("stamp")
    with RestClient(service.url, token) as client:
        run = client.submit(rest.Submission(workflow=letters.workflow.read_text()))
        wait_until(lambda: "digest 0" in letters.ended(), "a job to have ended")
    service.kill()
    good = (service.stager.state_dir / "tenants.toml").read_text()
    service.write_tenants("[tenants.alice]\nnative_jobs = true\n")
    service.start()
    with RestClient(service.url, token) as client:
        gate.touch()
        found = client.run(run)
        wait_until(lambda: any("register" in each.message for each in found.status().problems), "the origin to be denied")
        service.write_tenants(good)
        if found.wait(timeout_s=0).finished:
            assert found.wait(timeout_s=0).state != "succeeded"
        service.write_tenants(good.replace("native_jobs = true", "native_jobs = false"))
        with pytest.raises(Denied, match="native_jobs"):
            found.resume()
        service.write_tenants(good)
        found.resume()
        assert found.wait_finished(90).state == "succeeded"
    letters.check(data)
