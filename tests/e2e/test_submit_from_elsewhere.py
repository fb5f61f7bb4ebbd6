"""`stager submit --server` with what lies beside the workflow file: it goes along by content, and the finals come back beside it."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from stager.service.sent_places import SENT, TREES
from tests.e2e.serve_rig import Service, problem
from tests.testbed.workflows import copied_workflow

TENANTS = "[tenants.alice]\nnative_jobs = true\n[tenants.bob]\n"
MAX = 2 << 20
UPPER = """stager: 1
name: upper
jobs:
  up:
    run: ./up.sh < in.txt > out.txt
    inputs: {up.sh: {from: here:bin/up.sh, executable: true}, in.txt: here:in.txt}
    outputs: {out.txt: here:out/out.txt}
"""
# It reads its directory after the service was started again.
AGAIN = """  again:
    run: ./up.sh < in.txt > more.txt
    inputs: {up.sh: {from: here:bin/up.sh, executable: true}, in.txt: out.txt}
    outputs: {more.txt: here:out/more.txt}
"""


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    service = Service(session_dir / "elsewhere", TENANTS, words=("--storage", "0", "--directory-max", str(MAX)))
    for tenant in ("alice", "bob"):
        path = service.place / f"{tenant}.token"
        path.write_text(service.token(tenant, "submit"))
    try:
        yield service.start()
    finally:
        service.end()


def submit(service: Service, file: Path, **more: Any) -> subprocess.CompletedProcess[str]:
    words = ("--server", service.url, "--token-file", service.place / "alice.token", *more.pop("words", ()))
    return service.stager.run("submit", file, *words, **more)


def digests(place: Path) -> dict[str, str]:
    return {str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest() for path in place.rglob("*") if path.is_file()}


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "up.sh").write_text("#!/bin/sh\nexec tr a-z A-Z\n")
    (tmp_path / "bin" / "up.sh").chmod(0o755)
    (tmp_path / "in.txt").write_text("hello\n")
    (tmp_path / "other.txt").write_text("not taken\n")
    (tmp_path / "workflow.yml").write_text(UPPER)
    return tmp_path / "workflow.yml"


def test_an_example_makes_the_same_at_a_service_and_is_sent_once(service: Service, tmp_path: Path) -> None:
    local, remote = (copied_workflow("quickstart", tmp_path / name) for name in ("local", "remote"))
    service.stager.run("submit", local, "--state-dir", service.place / "own")
    try:
        first = submit(service, remote)
        assert digests(remote.parent) == digests(local.parent) and (remote.parent / "out" / "words.txt").stat().st_size
        assert "sends 3 of 3 files" in first.stderr and "not as a whole" not in first.stderr
        assert "sends none of 3 files" in submit(service, remote).stderr
    finally:
        service.stager.run("shutdown", "--state-dir", service.place / "own")


def test_a_service_plans_and_checks_what_it_would_be_sent(service: Service, upper: Path) -> None:
    upper.write_text(UPPER + "    env_pass: [WORD]\n")
    for name in ("in.txt", "bin/up.sh"):
        with (upper.parent / name).open("a") as file:
            file.write("# nobody has sent this yet\n")
    alice = service.client((service.place / "alice.token").read_text())
    before = alice.get("/runs").json()["runs"]
    at = ("--server", service.url, "--token-file", service.place / "alice.token")
    told = service.stager.run("plan", upper, *at)
    assert "1 job, 3 files" in told.stdout and "2 of 2 files" in told.stderr and "job type" in told.stdout
    assert service.stager.run("plan", upper, "--dot", *at).stdout.startswith("digraph plan {")
    plan = json.loads(service.stager.run("plan", upper, "--json", *at).stdout)
    assert [job["job"] for job in plan["jobs"]] == ["up"]
    assert "WORD is not set here" in service.stager.run("check", upper, *at, code=3).stdout
    assert "'nowhere' is no origin" in service.stager.run("check", upper, "--spill", "nowhere", *at, code=3).stdout
    upper.write_text(UPPER)
    assert "ok    service: it reads and plans 1 job" in service.stager.run("check", upper, *at).stdout
    service.stager.run("plan", upper, "--simulate", *at, code=2)
    assert alice.get("/runs").json()["runs"] == before


FILLED = """stager: 1
name: filled
params: {word: , times: {type: integer, default: 1}, place: in}
origins: {data: "file:{place}"}
include: lib/types.yml
jobs:
  say:
    type: echo
    inputs: ["data:in.txt"]
    outputs: {out.txt: "here:out/{times}.txt"}
  each: {foreach: sheet.tsv, run: "echo {id} > {id}.txt", outputs: {"{id}.txt": "here:out/"}}
"""
SHEET = "ID\nfirst\nsecond one\n"


TYPES = """stager: 1
types: {echo: {run: "for at in $(seq {times}); do cat in.txt; echo {word}; done > out.txt"}}
"""


def test_a_service_reads_with_the_values_that_are_given(service: Service, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "in.txt").write_text("good day\n")
    file = tmp_path / "workflow.yml"
    file.write_text(FILLED)
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "types.yml").write_text(TYPES)
    (tmp_path / "sheet.tsv").write_text(SHEET)
    at = ("--server", service.url, "--token-file", service.place / "alice.token")
    given = ("--param", "word=a 'b' $(id)", "--param", "place=data")
    assert "the parameter 'word' has no default" in service.stager.run("check", file, *at, code=3).stdout
    assert "parameters          word='a '\"'\"'b'\"'\"' $(id)' times=1 place=data" in service.stager.run("plan", file, *given, *at).stdout
    told = submit(service, file, words=(*given, "--param", "tims=2"), code=2).stderr
    assert "there is no parameter 'tims'; did you mean 'times'?" in told
    done = submit(service, file, words=(*given, "--param", "times=2", "--detach", "--json"))
    run = json.loads(done.stdout)["run"]
    service.stager.run("wait", run, *at)
    service.stager.run("bring-home", run, file, *at)
    assert (tmp_path / "out" / "second one.txt").read_text() == "second one\n"
    assert (tmp_path / "out" / "2.txt").read_text() == "good day\na 'b' $(id)\n" * 2
    alice = service.client((service.place / "alice.token").read_text())
    values = {"word": "a 'b' $(id)", "times": "2", "place": "data"}
    assert alice.get(f"/runs/{run}").json()["params"] == alice.get(f"/runs/{run}/summary").json()["params"] == values
    asked = {"workflow": FILLED.replace("data:in.txt", "here:in.txt"), "directories": {"here": [{**sent(alice, b"x"), "path": "in.txt"}]}}
    problem(alice.post("/validate", json=asked | {"params": {"word": "x"}}), 422, "workflow_invalid")
    asked["files"] = {"lib/types.yml": TYPES, "sheet.tsv": SHEET}
    assert alice.post("/validate", json=asked | {"params": {"word": True, "times": 3}}).json()["params"]["word"] == "true"
    wrong = problem(alice.post("/validate", json=asked | {"params": {"word": "x", "times": 1.5}}), 422, "workflow_invalid")
    assert wrong["findings"][0]["file"] == "params" and wrong["findings"][0]["key"] == "times"
    problem(alice.post("/validate", json=asked | {"params": {"word": ["x"]}}), 422, "workflow_invalid")
    problem(alice.post("/validate", json=asked | {"files": {"../types.yml": TYPES}}), 422, "bad_parameter")
    for name in ("/etc/hostname", "../../journal.sqlite", "lib/../../../journal.sqlite"):
        asked["workflow"] = f"stager: 1\ninclude: {name}\njobs: {{a: {{run: x}}}}\n"
        wrong = problem(alice.post("/validate", json=asked), 422, "workflow_invalid")
        assert "leads out of the workflow's directory" in wrong["detail"] and str(service.place) not in json.dumps(wrong)


def test_only_what_is_taken_goes_along_with_its_mode(service: Service, upper: Path) -> None:
    assert "sends 2 of 2 files" in submit(service, upper).stderr
    assert (upper.parent / "out" / "out.txt").read_text() == "HELLO\n"
    trees = service.stager.state_dir / SENT / "alice" / TREES
    laid = [tree / "here" for tree in trees.iterdir() if (tree / "here" / "bin").is_dir()]
    assert [(path / "bin" / "up.sh").stat().st_mode & 0o777 for path in laid] == [0o500]
    assert not (laid[0] / "other.txt").exists()


def test_finals_of_a_detached_run_are_fetched_and_overwrite_nothing(service: Service, upper: Path) -> None:
    run = submit(service, upper, words=("--detach",)).stdout.strip()
    at = ("--server", service.url, "--token-file", service.place / "alice.token")
    service.stager.run("wait", run, *at)
    out = upper.parent / "out" / "out.txt"
    out.parent.mkdir()
    out.write_text("mine\n")
    told = service.stager.run("bring-home", run, upper, *at, code=4)
    assert "was kept" in told.stdout and out.read_text() == "mine\n"
    out.unlink()
    (out.parent / f".out.txt.{run}.stager-part").write_text("left by a fetch that broke off, of other content\n")
    service.stager.run("bring-home", run, upper, *at)
    assert out.read_text() == "HELLO\n" and [path.name for path in out.parent.iterdir()] == ["out.txt"]


def test_a_file_that_is_ignored_or_leads_out_does_not_go(service: Service, upper: Path) -> None:
    (upper.parent / ".stagerignore").write_text("in.*\n")
    assert "in.txt" in submit(service, upper, code=2).stderr
    (upper.parent / ".stagerignore").unlink()
    (upper.parent / "in.txt").unlink()
    (upper.parent / "in.txt").symlink_to("/etc/hostname")
    told = submit(service, upper, code=3).stderr
    assert "here:in.txt is a link that leads out" in told


def test_too_much_is_refused_with_the_largest_files(service: Service, upper: Path) -> None:
    (upper.parent / "in.txt").write_bytes(bytes(MAX + 1))
    told = submit(service, upper, code=3).stderr
    assert "here:in.txt (2.1 MB)" in told and "--directory-max" in told and ".stagerignore" in told


def sent(client: httpx.Client, content: bytes) -> dict[str, Any]:
    sha256 = hashlib.sha256(content).hexdigest()
    client.put(f"/contents/{sha256}", params={"size_bytes": len(content)}, content=content).raise_for_status()
    return {"sha256": sha256, "size_bytes": len(content)}


@pytest.mark.parametrize("path", ["../x", "/etc/x", "a/../../x", "a//b", "./a", "a/", "a\0b", "n" * 256])
def test_no_path_leads_out_of_a_directory(service: Service, path: str) -> None:
    alice = service.client((service.place / "alice.token").read_text())
    file = {**sent(alice, b"x"), "path": path}
    problem(alice.post("/validate", json={"workflow": UPPER, "directories": {"here": [file]}}), 422, "bad_parameter")
    problem(alice.post("/validate", json={"workflow": UPPER, "directories": {"../here": []}}), 422, "bad_parameter")


def test_the_contents_and_directories_of_another_tenant_are_not_there(service: Service, upper: Path) -> None:
    alice, bob = (service.client((service.place / f"{name}.token").read_text()) for name in ("alice", "bob"))
    files = [{**sent(alice, content), "path": path} for path, content in (("bin/up.sh", b"#!/bin/sh\n"), ("in.txt", b"secret"))]
    asked = {"workflow": UPPER, "directories": {"here": files}}
    assert alice.post("/validate", json=asked).json()["finals"] == 1
    assert "2 contents" in problem(bob.post("/validate", json=asked), 422, "contents_missing")["detail"]
    submit(service, upper)
    tree = next((service.stager.state_dir / SENT / "alice" / TREES).iterdir())
    for client in (alice, bob):
        text = UPPER.replace("jobs:", f"origins: {{data: 'file://{tree}/here'}}\njobs:").replace("here:", "data:")
        problem(client.post("/validate", json={"workflow": text}), 403, "origin_denied")
    run = alice.get("/runs").json()["runs"][0]["run"]
    problem(bob.get(f"/runs/{run}/results/out.txt"), 404, "not_found")
    assert alice.get(f"/runs/{run}/results/out.txt").json()["size_bytes"] == 6
    problem(alice.get(f"/runs/{run}/results/..%2F..%2Ftokens.sqlite"), 404, "not_found")


def test_one_submit_that_came_twice_has_its_directory_where_the_run_has_it(service: Service) -> None:
    """A client that heard nothing sends it again: while it is read, and after whoever took it was killed before this was noted."""
    alice = service.client((service.place / "alice.token").read_text())
    files = [
        {**sent(alice, content), "path": path} for path, content in (("bin/up.sh", b"#!/bin/sh\ntr a-z A-Z\n"), ("in.txt", b"twice\n"))
    ]
    asked = {"workflow": UPPER, "directories": {"here": [files[0], files[1]]}}
    key = {"Idempotency-Key": "twice"}
    with ThreadPoolExecutor(2) as pool:
        runs = {answer.json()["run"] for answer in pool.map(lambda _: alice.post("/runs", json=asked, headers=key), range(2))}
    (run,) = runs
    assert alice.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    assert alice.get(f"/runs/{run}/results/out.txt").json()["size_bytes"] == 6
    (service.stager.state_dir / SENT / "alice" / "runs" / run).unlink()
    assert alice.post("/runs", json=asked, headers=key).json()["repeated"]
    assert alice.get(f"/runs/{run}/results/out.txt").json()["size_bytes"] == 6


def test_a_run_goes_on_with_its_directory_after_the_service_was_killed(service: Service, upper: Path) -> None:
    gate = upper.parent / "gate"
    script = upper.parent / "bin" / "up.sh"
    script.write_text(f"#!/bin/sh\nuntil test -e {gate}; do sleep 0.1; done\nexec tr a-z A-Z\n")
    upper.write_text(UPPER + AGAIN)
    run = submit(service, upper, words=("--detach",)).stdout.strip()
    service.kill()
    service.start()
    gate.touch()
    at = ("--server", service.url, "--token-file", service.place / "alice.token")
    service.stager.run("wait", run, *at)
    service.stager.run("bring-home", run, upper, *at)
    assert (upper.parent / "out" / "more.txt").read_text() == "HELLO\n"
