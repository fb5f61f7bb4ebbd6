"""The REST API of a real `stager serve`: who may do what, what is refused, and answers that are polled, paged and streamed."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.serve_rig import ANSWER_S, Service, call, problem, small
from tests.testbed.waiting import wait_until

TENANTS = """
[tenants.alice]
native_jobs = true
file_roots = ["{data}/alice"]
[tenants.bob]
file_roots = ["{data}/bob"]
"""


@dataclass
class Bed:
    service: Service
    data: Path
    tokens: dict[str, str]

    def client(self, name: str) -> httpx.Client:
        return self.service.client(self.tokens[name])

    def submitted(self, name: str, **more: str) -> str:
        """A run of alice's that has ended."""
        client = self.client("alice")
        run = client.post("/runs", json={"workflow": small(self.data / "alice", name, **more)}).raise_for_status().json()["run"]
        assert client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["finished"]
        return str(run)


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    place = session_dir / "serve"
    data = place / "data"
    for name in ("alice", "bob"):
        (data / name).mkdir(parents=True)
    service = Service(place, TENANTS.format(data=data), env={"SERVICE_SECRET": "of-the-service"})
    who = {"alice": ("alice", "submit"), "reader": ("alice", "read"), "bob": ("bob", "submit"), "admin": ("bob", "admin")}
    tokens = {name: service.token(*each) for name, each in who.items()}
    try:
        yield Bed(service.start(), data, tokens)
    finally:
        service.end()


# Tokens.


@pytest.mark.parametrize("header", [None, "", "Bearer", "Bearer stg_wrong", "Basic YTpi", "Bearer stg_" + "A" * 43])
def test_without_a_good_token_nothing_is_told_on_loopback_either(bed: Bed, header: str | None) -> None:
    headers = {} if header is None else {"Authorization": header}
    for method, path in (("GET", "/api/v1/runs"), ("POST", "/api/v1/runs"), ("GET", "/api/v1/runs/x/events"), ("GET", "/nothing")):
        answer = call(method, bed.service.url + path, headers=headers)
        if answer.status_code != 429:
            problem(answer, 401, "token")
            assert answer.headers["www-authenticate"].startswith("Bearer")


def test_only_health_needs_no_token_and_metrics_need_an_administrators(bed: Bed) -> None:
    assert call("GET", f"{bed.service.url}/healthz").json() == {"status": "ok"}
    assert call("GET", f"{bed.service.url}/readyz").json()["status"] == "ready"
    for name, status in (("alice", 403), ("admin", 200)):
        answer = call("GET", f"{bed.service.url}/metrics", headers={"Authorization": f"Bearer {bed.tokens[name]}"})
        assert answer.status_code == status
    assert 'stager_node_connected{node="node0"} 1.0' in answer.text
    assert [f'stager_ledger_bytes{{state="{state}"}} 0.0' in answer.text for state in ("at_risk", "durable", "superseded")] == [True] * 3
    assert 'stager_rest_requests_total{method="GET",route="/metrics",status="403"}' in answer.text


def test_a_scope_allows_what_it_says_and_no_more(bed: Bed) -> None:
    reader = bed.client("reader")
    assert reader.get("/runs").status_code == 200
    assert reader.post("/validate", json={"workflow": small(bed.data / "alice")}).status_code == 200
    refused = problem(reader.post("/runs", json={"workflow": "x"}), 403, "scope")
    assert "'read'" in refused["detail"] and "--scope submit" in refused["fix"]
    run = bed.submitted("scoped")
    for verb in ("cancel", "drain", "stop", "resume"):
        problem(reader.post(f"/runs/{run}/{verb}"), 403, "scope")


def test_a_revoked_token_is_useless_at_once(bed: Bed) -> None:
    made = bed.service.stager.json("token", "create", "--tenant", "alice")
    client = bed.service.client(made["token"])
    assert client.get("/runs").status_code == 200
    bed.service.stager.run("token", "revoke", made["id"])
    problem(client.get("/runs"), 401, "token")


def test_a_token_is_in_no_file_and_no_log(bed: Bed) -> None:
    bed.client("alice").get("/runs")
    secret = bed.tokens["alice"].encode()
    for path in [*bed.service.stager.state_dir.rglob("*"), *bed.service.place.glob("*.log")]:
        assert not path.is_file() or secret not in path.read_bytes(), path


# Hosts, sizes, rates.


def raw(bed: Bed, head: str, body: bytes = b"") -> tuple[int, dict[str, Any]]:
    host, port = bed.service.url.removeprefix("http://").split(":")
    connection = http.client.HTTPConnection(host, int(port), timeout=30)
    connection.connect()
    connection.sock.sendall(head.replace("\n", "\r\n").encode() + b"\r\n\r\n" + body)
    response = http.client.HTTPResponse(connection.sock)
    response.begin()
    data = response.read()
    connection.close()
    return response.status, json.loads(data) if data.startswith(b"{") else {}


@pytest.mark.parametrize(
    "host", ["evil.example.org", "evil.example.org:7433", "127.0.0.1.evil.org", "169.254.169.254", "", "localhost, evil.org"]
)
def test_another_host_than_its_own_is_refused_before_anything_else(bed: Bed, host: str) -> None:
    for path in ("/healthz", "/api/v1/runs"):
        status, body = raw(bed, f"GET {path} HTTP/1.1\nHost: {host}\nAuthorization: Bearer {bed.tokens['alice']}")
        assert (status, body["code"]) == (421, "host")


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1", "[::1]:7433"])
def test_the_names_of_loopback_are_its_own(bed: Bed, host: str) -> None:
    assert raw(bed, f"GET /healthz HTTP/1.1\nHost: {host}")[0] == 200


def test_two_hosts_and_two_tokens_are_none(bed: Bed) -> None:
    good = f"Authorization: Bearer {bed.tokens['alice']}"
    assert raw(bed, "GET /healthz HTTP/1.1\nHost: localhost\nHost: localhost")[0] in (400, 421)
    assert raw(bed, f"GET /api/v1/runs HTTP/1.1\nHost: localhost\n{good}\n{good}")[0] in (401, 429)


def test_a_body_is_bounded_whatever_its_length_is_said_to_be(bed: Bed) -> None:
    alice = bed.client("alice")
    run = bed.submitted("bounded")
    problem(alice.post(f"/runs/{run}/resume", content=b" " * (9 << 20)), 413, "too_large")
    chunks = (b" " * (1 << 20) for _ in range(9))
    problem(alice.post(f"/runs/{run}/resume", content=chunks), 413, "too_large")
    head = f"POST /api/v1/runs HTTP/1.1\nHost: localhost\nAuthorization: Bearer {bed.tokens['alice']}\nContent-Length: {300 << 20}"
    assert raw(bed, head)[0] == 413


def test_a_strangers_body_is_not_read(bed: Bed) -> None:
    status, _ = raw(bed, f"POST /api/v1/runs HTTP/1.1\nHost: localhost\nContent-Length: {200 << 20}")
    assert status in (401, 429)


# What a tenant may do, and whose runs it sees.


def test_a_tenant_sees_its_own_runs_only_and_an_administrator_all(bed: Bed) -> None:
    run = bed.submitted("mine")
    owners = bed.service.stager.submit(owners_workflow(bed.data))
    bob, alice, admin = bed.client("bob"), bed.client("alice"), bed.client("admin")
    for client, name in ((bob, run), (bob, owners), (alice, owners)):
        for path in ("", "/summary", "/losses", "/wait", "/jobs", "/files", "/transfers", "/events", "/jobs/up/logs"):
            problem(client.get(f"/runs/{name}{path}"), 404, "not_found")
        for verb in ("cancel", "drain", "stop", "resume"):
            problem(client.post(f"/runs/{name}/{verb}"), 404, "not_found")
        assert name not in client.get("/runs", params={"limit": 1000}).text
    absent = alice.get("/runs/nowhere-1").json()
    there = alice.get(f"/runs/{owners}").json()
    assert absent["detail"].replace("nowhere-1", owners) == there["detail"], "what is not yours looks like what is not there"
    seen = {each["run"]: each["tenant"] for each in admin.get("/runs", params={"limit": 1000}).json()["runs"]}
    assert seen[run] == "alice" and seen[owners] == ""
    assert admin.get(f"/runs/{owners}/wait", params={"timeout_s": 60}).json()["finished"]
    problem(admin.post(f"/runs/{owners}/resume"), 403, "owners_run")
    assert bob.get("/profiles").json() == {"profiles": {}} and "mine/up" in alice.get("/profiles").json()["profiles"]


def owners_workflow(data: Path) -> Path:
    """Submitted over the socket, where nothing of the tenants' rules holds."""
    path = data / "owner" / "workflow.yml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(small(data / "owner", "owners"))
    return path


def test_native_jobs_run_for_the_one_tenant_that_may(bed: Bed) -> None:
    bob = bed.client("bob")
    workflow = small(bed.data / "bob")
    assert bob.post("/validate", json={"workflow": workflow}).json()["jobs"] == 1
    assert bob.post("/plan", json={"workflow": workflow}).status_code == 200
    assert "native_jobs" in problem(bob.post("/runs", json={"workflow": workflow}), 403, "native_jobs")["fix"]


def test_a_second_tenant_with_native_jobs_stops_all_until_the_file_is_mended(bed: Bed) -> None:
    alice = bed.client("alice")
    good = TENANTS.format(data=bed.data)
    try:
        bed.service.write_tenants(good + "[tenants.carol]\nnative_jobs = true\n")
        body = problem(alice.get("/runs"), 503, "tenants_invalid")
        assert "carol" not in json.dumps(body)
        assert "tenants.carol.native_jobs" in bed.service.log.read_text()
    finally:
        bed.service.write_tenants(good)
    assert alice.get("/runs").status_code == 200


def test_a_tenant_that_is_gone_has_no_token_any_more(bed: Bed) -> None:
    good = TENANTS.format(data=bed.data)
    try:
        bed.service.write_tenants(good + "[tenants.dave]\n")
        dave = bed.service.client(bed.service.token("dave", "admin"))
        assert dave.get("/runs").status_code == 200
    finally:
        bed.service.write_tenants(good)
    problem(dave.get("/runs"), 401, "token")


def test_files_are_read_and_written_below_its_roots_only(bed: Bed) -> None:
    alice = bed.client("alice")
    (bed.data / "bob" / "in").mkdir(exist_ok=True)
    (bed.data / "bob" / "in" / "a").write_text("bob's\n")
    (bed.data / "alice" / "way-out").symlink_to(bed.data / "bob")
    for place in (
        bed.data / "bob",
        bed.data / "alice" / ".." / "bob",
        bed.data / "alice" / "way-out",
        Path("/etc"),
        bed.service.stager.state_dir,
    ):
        workflow = small(bed.data / "alice").replace(f"file:{bed.data}/alice", f"file:{place}")
        for path in ("/runs", "/plan", "/validate"):
            assert problem(alice.post(path, json={"workflow": workflow}), 403, "origin_denied")["key"] == "data"
    inside = small(bed.data / "alice").replace("data:in/a", "data:way-out/in/a")
    assert "link" in problem(alice.post("/runs", json={"workflow": inside}), 422, "workflow_invalid")["detail"]
    written = small(bed.data / "alice").replace("data:out/small", "data:way-out/out/small")
    assert alice.post("/runs", json={"workflow": written}).status_code in (403, 409, 422)
    assert not (bed.data / "bob" / "out").exists()


@pytest.mark.parametrize(
    "url",
    ["http://127.0.0.1:1/x", "http://localhost/x", "http://[::ffff:127.0.0.1]/x", "http://169.254.169.254/latest", "http://2130706433/x"],
)
def test_the_service_asks_nothing_inside_for_a_submitted_file(bed: Bed, url: str) -> None:
    workflow = small(bed.data / "alice").replace("origins: {", f'origins: {{web: "{url}", ').replace("data:in/a", "web:in/a")
    for path in ("/runs", "/validate"):
        assert problem(bed.client("alice").post(path, json={"workflow": workflow}), 403, "host_not_public")["key"]


def test_an_input_at_a_host_that_nobody_knows_is_named_with_what_to_do(bed: Bed) -> None:
    web = 'origins: {web: "https://nowhere.invalid/x", '
    workflow = small(bed.data / "alice").replace("origins: {", web).replace("data:in/a", "web:in/a")
    engine = workflow.replace("name: small", "name: small\nengine: tests").replace("    run: tr a-z A-Z < a > b\n", "")
    for path, text in (("/runs", workflow), ("/validate", workflow), ("/engine-runs", engine)):
        told = problem(bed.client("alice").post(path, json={"workflow": text}), 503, "origin_unreachable")
        assert told["key"] == "jobs.up.inputs.a" and "input 'in/a' at https://nowhere.invalid/x/in/a" in told["detail"], told
        assert "'nowhere.invalid' is not known here" in told["detail"]
        assert told["fix"] == "check its name, and ask again later if it is right"


@pytest.mark.parametrize(
    "origin",
    [
        '{url: "sftp://root@127.0.0.1/etc"}',
        '{url: "sftp://root@127.0.0.1/etc", credentials: "key:/root/.ssh/id_ed25519"}',
        '{url: "s3://bucket/x", credentials: "env:SERVICE"}',
        '{url: "s3://bucket/x", credentials: anonymous, endpoint: "https://evil.example.org"}',
        '{url: "https://example.org/x", credentials: "env:SERVICE"}',
    ],
)
def test_the_service_lends_its_keys_to_no_submitted_file(bed: Bed, origin: str) -> None:
    workflow = small(bed.data / "alice").replace("origins: {", f"origins: {{lab: {origin}, ").replace("data:in/a", "lab:in/a")
    body = problem(bed.client("alice").post("/validate", json={"workflow": workflow}), 403, "origin_denied")
    assert "administrator" in body["fix"]


def test_env_pass_takes_the_submitters_word_and_no_variable_of_the_service(bed: Bed) -> None:
    alice = bed.client("alice")
    shell = "'echo \"[${SERVICE_SECRET:-}]\" > b'"
    workflow = small(bed.data / "alice", "passed", shell, "    env_pass: [SERVICE_SECRET]\n")
    body = problem(alice.post("/runs", json={"workflow": workflow}), 422, "env_missing")
    assert body["key"] == "env.SERVICE_SECRET"
    assert (
        problem(alice.post("/runs", json={"workflow": small(bed.data / "alice"), "env": {"X": "1"}}), 422, "bad_parameter")["key"]
        == "env.X"
    )
    run = alice.post("/runs", json={"workflow": workflow, "env": {"SERVICE_SECRET": "mine"}}).json()["run"]
    assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    assert (bed.data / "alice" / "out" / "passed").read_text() == "[mine]\n"
    bed.submitted("without", shell=shell)
    assert (bed.data / "alice" / "out" / "without").read_text() == "[]\n"


def test_catalogs_lie_beside_the_workflow_and_nowhere_else(bed: Bed) -> None:
    alice = bed.client("alice")
    for name in ("../replicas.yml", "/etc/passwd", "a/../../b.yml", "a//b.yml", "a/", ".hidden", "a/.hidden", ""):
        problem(alice.post("/validate", json={"workflow": "x", "files": {name: "x"}}), 422, "bad_parameter")
    assert not list(bed.service.stager.state_dir.glob("upload-*")), "nothing that was sent is kept"


# Submitting once.


def test_the_same_key_is_the_same_run_and_another_tenants_is_its_own(bed: Bed) -> None:
    alice, body = bed.client("alice"), {"workflow": small(bed.data / "alice", "once")}
    first = alice.post("/runs", json=body, headers={"Idempotency-Key": "k"})
    again = alice.post("/runs", json=body, headers={"Idempotency-Key": "k"})
    assert (first.status_code, again.status_code) == (201, 200)
    assert first.json()["run"] == again.json()["run"] and again.json()["repeated"]
    assert first.headers["location"] == f"/api/v1/runs/{first.json()['run']}"
    other = {"workflow": small(bed.data / "alice", "once", "cat a > b")}
    problem(alice.post("/runs", json=other, headers={"Idempotency-Key": "k"}), 409, "key_used")
    problem(bed.client("bob").post("/runs", json=body, headers={"Idempotency-Key": "k"}), 403, "native_jobs")
    assert alice.get(f"/runs/{first.json()['run']}/wait", params={"timeout_s": 60}).json()["finished"], "others look at what stands still"


def test_a_run_has_further_keys_and_none_of_another_run_or_tenant(bed: Bed) -> None:
    alice, bodies = bed.client("alice"), [{"workflow": small(bed.data / "alice", name)} for name in ("first-keyed", "next-keyed")]
    first, other = (alice.post("/runs", json=body, headers={"Idempotency-Key": f"is/{at}"}).json()["run"] for at, body in enumerate(bodies))
    for _ in range(2):
        assert alice.post(f"/runs/{first}/keys", headers={"Idempotency-Key": "is/too"}).status_code == 200
    assert [each["run"] for each in alice.get("/runs", params={"key": "is/too"}).json()["runs"]] == [first]
    again = alice.post("/runs", json=bodies[0], headers={"Idempotency-Key": "is/too"}).json()
    assert again["run"] == first and again["repeated"]
    problem(alice.post("/runs", json=bodies[1], headers={"Idempotency-Key": "is/too"}), 409, "key_used")
    for key in ("is/too", "is/0"):
        problem(alice.post(f"/runs/{other}/keys", headers={"Idempotency-Key": key}), 409, "key_used")
    problem(bed.client("bob").post(f"/runs/{first}/keys", headers={"Idempotency-Key": "mine"}), 404, "not_found")
    assert bed.client("bob").get("/runs", params={"key": "is/too"}).json()["runs"] == []
    for run in (first, other):
        assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["finished"], "others look at what stands still"


def test_what_is_wrong_with_a_workflow_is_told_with_file_line_and_key(bed: Bed) -> None:
    workflow = small(bed.data / "alice", more="jobz: 1\n")
    for path in ("/validate", "/plan", "/estimate", "/runs"):
        body = problem(bed.client("alice").post(path, json={"workflow": workflow}), 422, "workflow_invalid")
        (finding,) = body["findings"]
        assert (finding["file"], finding["line"], finding["key"]) == ("workflow.yml", 9, "jobz") and body["key"] == "jobz"
    problem(bed.client("alice").post("/runs", content=b"{"), 400, "bad_request")
    assert problem(bed.client("alice").post("/runs", json={"workflow": "x", "nonsense": 1}), 422, "bad_parameter")["key"] == "nonsense"


def test_plan_and_estimate_say_what_a_run_would_do(bed: Bed) -> None:
    alice, body = bed.client("alice"), {"workflow": small(bed.data / "alice")}
    planned = alice.post("/plan", json=body).json()
    assert planned["plan"]["format"] == "stager-plan" and planned["fault"] is None
    estimated = alice.post("/estimate", json=body | {"io_nodes": [0, 1]}).json()
    assert [choice["io_nodes"] for choice in estimated["choices"]] == [0, 1]
    huge = small(bed.data / "alice").replace("outputs: {b: ", "outputs: {b: {to: ").replace('small"}', 'small", size: 900 MB}}')
    assert alice.post("/plan", json={"workflow": huge}).json()["fault"]["code"]
    problem(alice.post("/runs", json={"workflow": huge}), 409, alice.post("/plan", json={"workflow": huge}).json()["fault"]["code"])


# Pages, tags, events.


def test_pages_hold_all_runs_once_and_cursors_are_the_services_own(bed: Bed) -> None:
    alice = bed.client("alice")
    for number in range(3):
        bed.submitted(f"page-{number}")
    whole = [each["run"] for each in alice.get("/runs", params={"limit": 1000}).json()["runs"]]
    paged, cursor = [], None
    while True:
        page = alice.get("/runs", params={"limit": 2} | ({"cursor": cursor} if cursor else {})).json()
        paged += [each["run"] for each in page["runs"]]
        cursor = page["next_cursor"]
        if cursor is None:
            break
    assert paged == whole and len(set(paged)) == len(paged) >= 3
    for wrong in ("x", "WzFd", "bnVsbA", "WyJhIiwgImIiXQ"):
        assert problem(alice.get("/runs", params={"cursor": wrong}), 422, "bad_cursor")["key"] == "cursor"
    assert problem(alice.get("/runs", params={"limit": 0}), 422, "bad_parameter")["key"] == "query.limit"
    assert problem(alice.get("/runs?limit=2&limit=3"), 422, "bad_parameter")["key"] == "query.limit"
    assert "cursor, key, limit" in problem(alice.get("/runs", params={"limits": 2}), 422, "bad_parameter")["fix"]


def test_jobs_and_files_are_paged_and_chosen(bed: Bed) -> None:
    alice = bed.client("alice")
    workflow = small(bed.data / "alice", "many", more="".join(f"  j{n}: {{run: 'echo {n} > m{n}', outputs: [m{n}]}}\n" for n in range(5)))
    run = alice.post("/runs", json={"workflow": workflow}).raise_for_status().json()["run"]
    alice.get(f"/runs/{run}/wait", params={"timeout_s": 60})
    first = alice.get(f"/runs/{run}/jobs", params={"limit": 4}).json()
    second = alice.get(f"/runs/{run}/jobs", params={"limit": 4, "cursor": first["next_cursor"]}).json()
    names = [job["job"] for page in (first, second) for job in page["jobs"]]
    assert sorted(names) == ["j0", "j1", "j2", "j3", "j4", "up"] and second["next_cursor"] is None
    assert alice.get(f"/runs/{run}/jobs", params={"state": "failed"}).json()["jobs"] == []
    finals = alice.get(f"/runs/{run}/files", params={"final": True}).json()["files"]
    assert [(file["lfn"], file["state"]) for file in finals] == [("b", "durable")]
    assert alice.get(f"/runs/{run}/files", params={"state": "durable", "lfn": "b"}).json()["files"] == finals
    logs = alice.get(f"/runs/{run}/jobs/up/logs").json()["logs"]
    assert {log["stream"] for log in logs} == {"stdout", "stderr"} and not any(log["path"] for log in logs)
    problem(alice.get(f"/runs/{run}/jobs/nobody/logs"), 404, "not_found")


def test_what_has_not_changed_is_not_sent_again(bed: Bed) -> None:
    run, alice = bed.submitted("tagged"), bed.client("alice")
    for path in ("/runs", f"/runs/{run}", f"/runs/{run}/jobs", f"/runs/{run}/files"):
        first = alice.get(path)
        again = alice.get(path, headers={"If-None-Match": first.headers["etag"]})
        assert (again.status_code, again.content) == (304, b""), path
        assert alice.get(path, headers={"If-None-Match": '"other"'}).status_code == 200
    before = alice.get("/runs").headers["etag"]
    bed.submitted("tagged-too")
    assert alice.get("/runs", headers={"If-None-Match": before}).status_code == 200


def events_of(client: httpx.Client, run: str, **headers: str) -> list[tuple[int | None, str, dict[str, Any]]]:
    with client.stream("GET", f"/runs/{run}/events", headers=headers) as answer:
        assert answer.headers["content-type"].startswith("text/event-stream")
        text = "".join(answer.iter_text())
    found = []
    for block in text.split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.splitlines() if not line.startswith(":"))
        if "event" in fields:
            found.append((int(fields["id"]) if "id" in fields else None, fields["event"], json.loads(fields["data"])))
    return found


def test_events_are_streamed_to_the_end_and_go_on_where_the_line_broke(bed: Bed) -> None:
    alice = bed.client("alice")
    run = alice.post("/runs", json={"workflow": small(bed.data / "alice", "streamed", "sleep 1; cat a > b")}).json()["run"]
    begun = time.monotonic()
    live = events_of(alice, run)
    assert time.monotonic() - begun < 60
    kinds = [kind for _, kind, _ in live]
    assert kinds[0] == "run_submitted" and kinds[-2:] == ["finish_run", "end"] and live[-1][2]["state"] == "succeeded"
    numbers = [number for number, _, _ in live if number is not None]
    assert numbers == sorted(numbers)
    assert events_of(alice, run, **{"Last-Event-ID": str(numbers[2])}) == live[3:]
    stale = events_of(alice, run, **{"Last-Event-ID": "999999999"})
    assert stale[0][1] == "gap" and stale[1:] == live, "a number of another journal is a gap, and all is told again"
    problem(alice.get(f"/runs/{run}/events", headers={"Last-Event-ID": "x"}), 422, "bad_parameter")


def test_open_answers_are_bounded_for_each_tenant(bed: Bed) -> None:
    alice = bed.client("alice")
    workflow = small(bed.data / "alice", "waited", f"'until test -e {bed.data}/go; do sleep 0.05; done; cat a > b'")
    run = alice.post("/runs", json={"workflow": workflow}).raise_for_status().json()["run"]
    streams = []
    try:
        for _ in range(32):
            opened = httpx.Client(base_url=alice.base_url, headers=alice.headers, timeout=ANSWER_S)
            streams.append((opened, opened.send(opened.build_request("GET", f"runs/{run}/events"), stream=True)))
        assert {answer.status_code for _, answer in streams} == {200}
        problem(alice.get(f"/runs/{run}/events"), 429, "too_many_open")
        problem(alice.get(f"/runs/{run}/wait"), 429, "too_many_open")
        assert alice.get(f"/runs/{run}").status_code == 200
    finally:
        for opened, answer in streams:
            answer.close()
            opened.close()
    wait_until(lambda: alice.get(f"/runs/{run}/wait", params={"timeout_s": 0}).status_code == 200, "closed streams to count no more")
    (bed.data / "go").touch()
    assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"


def test_a_run_is_drained_resumed_and_cancelled(bed: Bed) -> None:
    alice = bed.client("alice")
    workflow = small(bed.data / "alice", "ended", f"'until test -e {bed.data}/go-on; do sleep 0.05; done; cat a > b'")
    run = alice.post("/runs", json={"workflow": workflow}).raise_for_status().json()["run"]
    wait_until(lambda: alice.get(f"/runs/{run}").json()["running"], "the job to run")

    def ended() -> tuple[str, str]:
        answer = alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()
        return answer["state"], answer["interrupted_by"]

    assert alice.post(f"/runs/{run}/drain").json()["interrupted_by"] == "request"
    assert alice.post(f"/runs/{run}/stop", params={"by": "mary"}).status_code == 200
    assert ended() == ("interrupted", "mary")
    resumed = alice.post(f"/runs/{run}/resume", json={}).json()
    assert (resumed["state"], resumed["interrupted_by"]) == ("active", "")
    problem(alice.post(f"/runs/{run}/stop", params={"by": "<b>"}), 422, "bad_parameter")
    assert alice.post(f"/runs/{run}/cancel").status_code == 200
    assert ended() == ("cancelled", "")
    problem(alice.post(f"/runs/{run}/resume"), 409, "run_over")
    problem(alice.post(f"/runs/{run}/cancel"), 409, "run_over")


# What one tenant's texts cost.


def test_large_texts_of_a_tenant_that_may_only_read_keep_nobody_else_waiting(bed: Bed) -> None:
    """Three of them held every place there was, for minutes."""
    names = "".join(f"  nobody_{number:05d}: {{run: [a], after: [nobedy_{number:05d}]}}\n" for number in range(9000))
    large = {"workflow": f"stager: 1\nname: w\njobs:\n{names}"}
    assert len(large["workflow"]) > 400 * 1024
    with ThreadPoolExecutor(4) as threads:
        asked = [threads.submit(bed.client("reader").post, "/validate", json=large) for _ in range(4)]
        for _ in range(3):
            answer = bed.client("bob").post("/validate", json={"workflow": "stager: 1\nname: w\njobs: {a: {run: [a]}}\n"})
            assert answer.status_code == 200, answer.text
        statuses = {each.result().status_code for each in asked}
    assert statuses <= {422, 503} and 422 in statuses
