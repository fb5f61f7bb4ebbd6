"""The life of a real `stager serve`: how it begins, how it ends, and Pegasus workflows that come with their catalogs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest

from tests.e2e.origin_rig import known_hosts_of
from tests.e2e.serve_rig import Service, problem, small
from tests.testbed.link import Link
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

TENANTS = '[tenants.alice]\nnative_jobs = true\nfile_roots = ["{place}/data/alice"]\n'
PEGASUS = """pegasus: "5.0"
name: copied
jobs:
- type: job
  name: copy
  id: one
  arguments: [a, c]
  uses: [{lfn: a, type: input}, {lfn: c, type: output, stageOut: true, registerReplica: false}]
"""
PROGRAMS = "transformations:\n- {name: copy, sites: [{name: local, pfn: /bin/cp, type: installed}]}\n"
CATALOG = "replicas:\n- {lfn: a, pfns: [{site: local, pfn: 'file://PLACE/in/a'}]}\n"


@pytest.fixture
def service(short_dir: Path) -> Iterator[Service]:
    place = short_dir / "life"
    (place / "data" / "alice").mkdir(parents=True)
    service = Service(place, TENANTS.format(place=place))
    try:
        yield service.start()
    finally:
        service.end()


def test_a_pegasus_workflow_comes_with_its_catalogs(service: Service) -> None:
    mine = service.place / "data" / "alice"
    small(mine)
    alice = service.client(service.token("alice", "submit"))
    sent = {"workflow": PEGASUS, "format": "pegasus", "options": {"output_origin": f"file://{mine}/pegasus"}}
    problem(alice.post("/validate", json=sent), 422, "workflow_invalid")
    whole = sent | {"files": {"transformations.yml": PROGRAMS, "replicas.yml": CATALOG.replace("PLACE", str(mine))}}
    answer = alice.post("/runs", json=whole)
    assert answer.status_code == 201, answer.text
    run = answer.json()["run"]
    assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    assert (mine / "pegasus" / "c").read_text() == "hello\n"
    elsewhere = {"files": whole["files"] | {"replicas.yml": CATALOG.replace("PLACE", str(service.place / "data" / "bob"))}}
    problem(alice.post("/validate", json=sent | elsewhere), 403, "origin_denied")
    assert problem(alice.post("/validate", json=whole | {"format": "native"}), 422, "invalid_input")["key"] == "format"


def test_a_service_says_why_it_cannot_begin(service: Service) -> None:
    stager = service.stager
    assert "end it with `stager shutdown`" in stager.run("serve", "--listen", "127.0.0.1:0", code=3).stderr
    taken, other = service.url.removeprefix("http://"), service.place / "other"
    assert "another program has it" in stager.run("serve", "--listen", taken, "--state-dir", other, code=3).stderr
    assert "--trust-network" in stager.run("serve", "--listen", "0.0.0.0:7433", code=3).stderr


def test_a_scheduler_that_a_command_started_meanwhile_gives_way_to_the_service(service: Service) -> None:
    """The owner asks while the service is started again. Neither what runs for tenants nor what runs for the owner is cut off."""
    alice, mine = service.client(service.token("alice", "submit")), service.place / "data" / "alice"
    gates = {name: service.place / name for name in ("alices", "owners")}
    shells = {
        name: f"'echo begun >> {gate}.log; until test -e {gate}; do sleep 0.05; done; cat a > b'\n    isolate: off"
        for name, gate in gates.items()
    }
    run = alice.post("/runs", json={"workflow": small(mine, "alices", shells["alices"])}).raise_for_status().json()["run"]
    begun = Path(f"{gates['alices']}.log")
    wait_until(begun.exists, "the job to run")
    service.kill()
    assert [each["run"] for each in service.stager.json("runs")] == [run]
    service.start()
    assert service.stager.json("status", run)["info"]["state"] == "active"
    gates["alices"].touch()
    alice = service.client(service.token("alice", "submit"))
    assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    assert begun.read_text() == "begun\n", "its job was adopted twice, and begun once"
    service.stop()
    file = service.place / "owners.yml"
    file.write_text(small(service.place / "data" / "owner", "owners", shells["owners"]))
    owners = service.stager.submit(file)
    said = service.stager.run("serve", "--listen", "127.0.0.1:0", code=3).stderr
    assert owners in said and "wait for them" in said
    gates["owners"].touch()
    assert service.stager.json("wait", owners)["state"] == "succeeded"
    service.start()


def test_sigterm_ends_a_service_in_order_also_while_answers_are_open(service: Service) -> None:
    token, gate = service.token("alice", "submit"), service.place / "gate"
    alice = service.client(token)
    later = "  later: {run: cat b > c, inputs: [b], outputs: [c]}\n"
    workflow = small(service.place / "data" / "alice", "slow", f"'until test -e {gate}; do sleep 0.05; done; cat a > b'", later)
    run = alice.post("/runs", json={"workflow": workflow}).raise_for_status().json()["run"]
    wait_until(lambda: alice.get(f"/runs/{run}").json()["running"], "the job to run")
    with alice.stream("GET", f"/runs/{run}/events") as answer:
        assert answer.status_code == 200 and service.process is not None
        service.process.terminate()
        wait_until(lambda: alice.get(f"/runs/{run}").json()["info"]["state"] == "draining", "the service to have heard it")
        gate.touch()
        kinds = [line for line in answer.iter_lines() if line.startswith("event: ")]
    assert service.process.wait(120) == 0
    assert "event: attempt_ended" in kinds, "what ran was let to its end"
    again = service.start().client(token)
    assert again.get(f"/runs/{run}").json()["info"]["state"] == "interrupted"
    assert again.post(f"/runs/{run}/resume").status_code == 200
    assert again.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"


LAB = """[tenants.alice]
[[tenants.alice.origins]]
url = "sftp://{user}@127.0.0.1:{port}/d"
credentials = "key:{key}"
known_hosts = "{known_hosts}"
"""


def test_sigterm_waits_for_no_origin_that_says_nothing(service: Service, sshd: Sshd, link: Callable[..., Link]) -> None:
    """Whoever asked is told so, or nothing more; a next service that had to wait for it could not begin."""
    line = link(sshd.port)
    line.stall()
    known_hosts = known_hosts_of(sshd, line.port, service.place / "known_hosts")
    service.write_tenants(LAB.format(user=sshd.user, port=line.port, key=sshd.identity_file, known_hosts=known_hosts))
    workflow = small(service.place / "data" / "alice").replace(
        f"file:{service.place}/data/alice", f"sftp://{sshd.user}@127.0.0.1:{line.port}/d"
    )
    alice = service.client(service.token("alice", "submit"))
    with ThreadPoolExecutor(1) as asking:
        answer = asking.submit(alice.post, "/validate", json={"workflow": workflow})
        wait_until(lambda: line.connections, "the origin to be asked")
        service.stop()
        try:
            problem(answer.result(), 503, "draining")
        except httpx.TransportError as lost:
            print("the line was closed first:", lost)
    assert "left as they are" not in service.log.read_text(), "what read the workflow ends with the service"
    assert "Traceback" not in service.log.read_text()
    service.start()
