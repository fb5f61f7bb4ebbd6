"""One tenant against another, and against the service: every operation by scope and by whose it is, forged words, tokens taken back."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.serve_rig import Service, call, problem, small
from tests.testbed.waiting import wait_until

TENANTS = """
[tenants.alice]
native_jobs = true
file_roots = ["{data}/alice"]
[tenants.bob]
file_roots = ["{data}/bob"]
"""
# What each operation needs. A new one has no row, and the test says so: who may call it is to be thought of when it is written.
OPEN, READ, SUBMIT, ADMIN = "nobody", "read", "submit", "admin"
OPERATIONS = {
    ("get", "/healthz"): OPEN,
    ("get", "/readyz"): OPEN,
    ("get", "/metrics"): ADMIN,
    ("post", "/api/v1/validate"): READ,
    ("post", "/api/v1/plan"): READ,
    ("post", "/api/v1/estimate"): READ,
    ("post", "/api/v1/runs"): SUBMIT,
    ("get", "/api/v1/runs"): READ,
    ("get", "/api/v1/runs/{run}"): READ,
    ("get", "/api/v1/runs/{run}/summary"): READ,
    ("get", "/api/v1/runs/{run}/losses"): READ,
    ("get", "/api/v1/runs/{run}/wait"): READ,
    ("get", "/api/v1/runs/{run}/events"): READ,
    ("get", "/api/v1/runs/{run}/jobs"): READ,
    ("get", "/api/v1/runs/{run}/jobs/{job}/logs"): READ,
    ("get", "/api/v1/runs/{run}/files"): READ,
    ("get", "/api/v1/runs/{run}/transfers"): READ,
    ("get", "/api/v1/runs/{run}/graph"): READ,
    ("get", "/api/v1/runs/{run}/states"): READ,
    ("get", "/api/v1/runs/{run}/history"): READ,
    ("get", "/api/v1/runs/{run}/cost"): READ,
    ("get", "/api/v1/runs/{run}/explain"): READ,
    ("post", "/api/v1/runs/{run}/cancel"): SUBMIT,
    ("post", "/api/v1/runs/{run}/drain"): SUBMIT,
    ("post", "/api/v1/runs/{run}/stop"): SUBMIT,
    ("post", "/api/v1/runs/{run}/resume"): SUBMIT,
    ("post", "/api/v1/runs/{run}/keys"): SUBMIT,
    ("post", "/api/v1/engine-runs"): SUBMIT,
    ("post", "/api/v1/runs/{run}/jobs/{job}/calls"): SUBMIT,
    ("get", "/api/v1/runs/{run}/jobs/{job}/calls/{call}"): SUBMIT,
    ("post", "/api/v1/runs/{run}/jobs/{job}/calls/{call}/finish"): SUBMIT,
    ("post", "/api/v1/runs/{run}/jobs/{job}/calls/{call}/fail"): SUBMIT,
    ("get", "/api/v1/runs/{run}/calls"): READ,
    ("post", "/api/v1/runs/{run}/end"): SUBMIT,
    ("get", "/api/v1/runs/{run}/files/{lfn}/where"): READ,
    ("get", "/api/v1/runs/{run}/results/{lfn}"): READ,
    ("get", "/api/v1/nodes"): READ,
    ("post", "/api/v1/nodes/{node}/drain"): ADMIN,
    ("post", "/api/v1/nodes/{node}/forget"): ADMIN,
    ("get", "/api/v1/hosts"): READ,
    ("post", "/api/v1/hosts/{host}/drain"): ADMIN,
    ("post", "/api/v1/hosts/{host}/forget"): ADMIN,
    ("get", "/api/v1/storage"): READ,
    ("get", "/api/v1/profiles"): READ,
    ("post", "/api/v1/contents"): SUBMIT,
    ("put", "/api/v1/contents/{sha256}"): SUBMIT,
}
BODIES = {"contents": {"contents": []}, "calls": {"call": "one"}, "end": {"succeeded": True}}
HEADERS = {"keys": {"Idempotency-Key": "further"}}
# The one long answer.
QUICK = {"0" * 64: {"size_bytes": 1}, "wait": {"timeout_s": 0}, "explain": {"job": "up"}, "events": {"after": 1 << 52}}


@dataclass
class Bed:
    service: Service
    data: Path
    tokens: dict[str, str]
    run: str

    def ask(self, who: str, method: str, path: str, run: str, **more: Any) -> httpx.Response:
        """The status of a stream is known before it has ended."""
        where = path.format(run=run, job="up", call="one", lfn="b", node="nowhere", host="nowhere", sha256="0" * 64)
        last = where.rpartition("/")[2]
        body = {"json": BODIES.get(last, {})} if method == "post" else {"params": QUICK.get(last, {})}
        headers = ({"Authorization": f"Bearer {self.tokens[who]}"} if who else {}) | HEADERS.get(last, {})
        client = self.service.client("")
        request = client.build_request(method, self.service.url + where, headers=headers, **body)
        answer = client.send(request, stream=True)
        if answer.status_code != 200 or last != "events":
            answer.read()
        answer.close()
        return answer


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    place = session_dir / "attacked"
    data = place / "data"
    for name in ("alice", "bob"):
        (data / name).mkdir(parents=True)
    service = Service(place, TENANTS.format(data=data))
    who = {f"{tenant}-{scope}": (tenant, scope) for tenant in ("alice", "bob") for scope in (READ, SUBMIT, ADMIN)}
    tokens = {name: service.token(*each) for name, each in who.items()}
    try:
        service.start()
        alice = service.client(tokens["alice-submit"])
        run = alice.post("/runs", json={"workflow": small(data / "alice")}).raise_for_status().json()["run"]
        assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["finished"]
        yield Bed(service, data, tokens, run)
    finally:
        service.end()


def test_each_operation_of_the_document_has_a_row_here(bed: Bed) -> None:
    paths = call("GET", f"{bed.service.url}/api/v1/openapi.json").json()["paths"]
    assert {(verb, path) for path, verbs in paths.items() for verb in verbs} == set(OPERATIONS)


@pytest.mark.parametrize(("method", "path"), OPERATIONS, ids=lambda word: word.removeprefix("/api/v1"))
def test_an_operation_is_for_its_scope_and_for_those_whose_run_it_is(bed: Bed, method: str, path: str) -> None:
    needed = OPERATIONS[method, path]
    if needed is OPEN:
        assert bed.ask("", method, path, bed.run).status_code == 200
        return
    nobody = bed.ask("", method, path, bed.run)
    assert nobody.status_code in (401, 429), "needed on loopback too"
    for scope in (READ, SUBMIT, ADMIN):
        answer = bed.ask(f"alice-{scope}", method, path, bed.run)
        allowed = [READ, SUBMIT, ADMIN].index(scope) >= [READ, SUBMIT, ADMIN].index(needed)
        if not allowed:
            assert "--scope " + needed in problem(answer, 403, "scope")["fix"]
        else:
            assert answer.status_code not in (401, 403, 404, 405, 500) or answer.json()["code"] in ("not_found", "native_jobs"), answer.text
        if "{run}" not in path:
            continue
        theirs, absent = (bed.ask(f"bob-{scope}", method, path, run) for run in (bed.run, "nowhere-1"))
        if not allowed:
            assert (theirs.status_code, theirs.content) == (403, absent.content)
        elif scope is ADMIN:
            assert theirs.status_code == answer.status_code or theirs.status_code == 409, "an administrator's token sees all"
        else:
            assert problem(theirs, 404, "not_found")["detail"].replace(bed.run, "nowhere-1") == absent.json()["detail"]


def cursor(*parts: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).rstrip(b"=").decode()


@pytest.mark.parametrize(
    ("path", "parts"),
    [
        ("/runs", (float("nan"), "x")),
        ("/runs", (1e999, "x")),
        ("/runs", (0.0, "\ud800")),
        ("/runs", (True, "x")),
        ("/runs", (0.0, "x", 1)),
        ("/runs/{run}/jobs", (-1,)),
        ("/runs/{run}/jobs", (1 << 60,)),
        ("/runs/{run}/files", (1.5,)),
        ("/runs/{run}/calls", (0.0, "\udfff")),
    ],
)
def test_a_forged_cursor_is_refused(bed: Bed, path: str, parts: tuple[object, ...]) -> None:
    client = bed.service.client(bed.tokens["alice-read"])
    problem(client.get(path.format(run=bed.run), params={"cursor": cursor(*parts)}), 422, "bad_cursor")


def test_no_cursor_leads_to_the_runs_of_others(bed: Bed) -> None:
    bob = bed.service.client(bed.tokens["bob-read"])
    for parts in ((9e18, ""), (9e18, "~"), (0.0, "")):
        assert bob.get("/runs", params={"cursor": cursor(*parts)}).json()["runs"] == []


@pytest.mark.parametrize("last", ["-1", "1e3", "9" * 16, "0x1", "１", "1\t2", ""])
def test_a_forged_last_event_id_is_refused(bed: Bed, last: str) -> None:
    client = bed.service.client(bed.tokens["alice-read"])
    answer = client.get(f"/runs/{bed.run}/events", headers={"Last-Event-ID": last.encode()})
    problem(answer, 422, "bad_parameter")


def test_what_is_open_when_a_token_is_revoked_tells_nothing_more(bed: Bed) -> None:
    alice, gate = bed.service.client(bed.tokens["alice-submit"]), bed.data / "alice" / "gate"
    workflow = small(bed.data / "alice", "revoked", f"'until test -e {gate}; do sleep 0.05; done; cat a > b'")
    run = alice.post("/runs", json={"workflow": workflow}).raise_for_status().json()["run"]
    wait_until(lambda: alice.get(f"/runs/{run}").json()["running"], "the job to run")
    made = bed.service.stager.json("token", "create", "--tenant", "alice", "--scope", "read")
    client, told = bed.service.client(made["token"]), {}

    def poll() -> None:
        told["wait"] = client.get(f"/runs/{run}/wait", params={"timeout_s": 30})

    polling = threading.Thread(target=poll)
    with client.stream("GET", f"/runs/{run}/events") as answer:
        lines = answer.iter_lines()
        assert any("start_attempt" in line for line in lines)
        polling.start()
        wait_until(lambda: "stager_rest_open_waits 2.0" in bed.ask("alice-admin", "get", "/metrics", run).text, "both to be open")
        bed.service.stager.run("token", "revoke", made["id"])
        begun = time.monotonic()
        gate.touch()
        rest = list(lines)
    assert "attempt_ended" not in "".join(rest) and time.monotonic() - begun < 60
    polling.join(100)
    problem(told["wait"], 401, "token")
    assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"


@pytest.mark.parametrize("method", ["OPTIONS", "PUT", "DELETE", "PATCH", "HEAD", "TRACE"])
def test_other_methods_and_other_pages_get_nothing(bed: Bed, method: str) -> None:
    """No page of another site is told that it may read: a browser asks first, and has no token."""
    bearer = {"Authorization": f"Bearer {bed.tokens['alice-admin']}"}
    for headers in ({}, bearer):
        answer = call(method, f"{bed.service.url}/api/v1/runs", headers=headers | {"Origin": "https://evil.example.org"})
        assert answer.status_code == (405 if headers else 401) or answer.status_code == 429
        assert not [name for name in answer.headers if name.startswith("access-control")]


def test_a_token_in_a_url_is_no_token(bed: Bed) -> None:
    for name in ("token", "access_token", "authorization"):
        answer = call("GET", f"{bed.service.url}/api/v1/runs", params={name: bed.tokens["alice-admin"]})
        assert answer.status_code in (401, 429)


def test_a_content_is_sent_in_parts_and_only_its_sender_is_told_of_it(bed: Bed) -> None:
    alice, bob = (bed.service.client(bed.tokens[f"{name}-submit"]) for name in ("alice", "bob"))
    content = os.urandom(1000)
    sha256 = hashlib.sha256(content).hexdigest()
    asked = {"contents": [{"sha256": sha256, "size_bytes": 1000}]}
    where = f"/contents/{sha256}"
    assert alice.put(where, params={"size_bytes": 1000}, content=content[:400]).json()["received_bytes"] == 400
    problem(alice.put(where, params={"size_bytes": 1000, "offset": 500}, content=content[500:]), 409, "content_offset")
    assert alice.post("/contents", json=asked).json()["missing"] == [{"sha256": sha256, "received_bytes": 400, "complete": False}]
    assert alice.put(where, params={"size_bytes": 1000, "offset": 400}, content=content[400:]).json()["complete"]
    assert alice.post("/contents", json=asked).json()["missing"] == []
    assert [each["received_bytes"] for each in bob.post("/contents", json=asked).json()["missing"]] == [0]
    problem(bob.put(where, params={"size_bytes": 1000}, content=bytes(1000)), 422, "content_differs")
    problem(bob.put(where, params={"size_bytes": 1 << 40}, content=b"x"), 409, "directory_too_large")
    problem(bob.post("/contents", json={"contents": asked["contents"] * 10_001}), 422, "bad_parameter")
    for name in ("..%2F..%2Ftokens.sqlite", "%2Fetc%2Fpasswd", sha256.upper(), sha256[1:]):
        assert bob.put(f"/contents/{name}", params={"size_bytes": 1}, content=b"x").status_code in (404, 422)
