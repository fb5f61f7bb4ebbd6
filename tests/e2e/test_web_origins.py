"""Workflows whose inputs come from a web server: read by name and by ranges, changes and damage found, nothing waited for without end."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.origin_rig import entry, methods, wait_for_bytes, wait_for_line
from tests.testbed.ionode import IoNode
from tests.testbed.letters import Letters
from tests.testbed.link import Link
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until
from tests.testbed.web import Web

WEBS = Callable[..., Web]
PRIVATE = "location / { if ($http_authorization != 'Basic YW5hOmh1c2gtaHVzaA==') { return 401; } }"
ENV = {"ARCHIVE_USER": "ana", "ARCHIVE_PASSWORD": "hush-hush"}


@pytest.fixture
def stager(short_dir: Path) -> Iterator[Stager]:
    program = Stager(short_dir / "s", short_dir / "home")
    yield program
    program.end()


@pytest.fixture
def letters(short_dir: Path) -> Letters:
    return Letters(short_dir / "wf", count=2, size_bytes=150_000, pause_s=0)


def read_from_the_web(letters: Letters, data: Path, origin: str, results: Path) -> None:
    """Inputs come from `origin`, finals go to a directory."""
    letters.make(data, origin)
    text = letters.workflow.read_text().replace('"data:out/', '"results:out/').replace("all.txt: data:", "all.txt: results:")
    letters.workflow.write_text(text.replace("jobs:\n", f"  results: file:{results}\njobs:\n", 1))
    results.mkdir()


def secure(web: Web, **options: object) -> str:
    return entry(url=web.tls_url, ca_file=str(web.ca_file), credentials="env:ARCHIVE", **options)


def one_job(short_dir: Path, origin: str, path: str, **more: str) -> Path:
    """Copies one input to a file origin."""
    (short_dir / "results").mkdir(exist_ok=True)
    workflow = short_dir / "w.yml"
    files = "".join(f", {key}: {value}" for key, value in more.items())
    workflow.write_text(
        f"stager: 1\nname: copy\norigins:\n  web: {origin}\n  results: file:{short_dir}/results\n"
        f"files: {{in.bin: {{from: 'web:{path}'{files}}}}}\n"
        "jobs:\n  copy: {run: cat in.bin > out.bin, inputs: [in.bin], outputs: {out.bin: 'results:out.bin'}, retries: 0}\n"
    )
    return workflow


def content(size_bytes: int) -> bytes:
    return b"".join(hashlib.sha256(number.to_bytes(4, "big")).digest() for number in range(size_bytes // 32 + 1))[:size_bytes]


# What is served as it should be.


def test_inputs_from_a_web_server_and_finals_to_a_directory(stager: Stager, letters: Letters, web: WEBS, short_dir: Path) -> None:
    server, results = web(PRIVATE), short_dir / "results"
    stager.env = ENV
    read_from_the_web(letters, server.data, secure(server), results)
    planned = json.loads(stager.run("plan", letters.workflow, "--json").stdout)
    assert {file["size_bytes"] for file in planned["files"] if file["lfn"].startswith("in/")} == {letters.size_bytes}
    assert "can be read" in stager.run("check", letters.workflow).stdout
    stager.run("submit", letters.workflow)
    letters.check(results)
    assert methods(stager.json("ledger", "--finals")) <= {"readback", "origin_checksum", "remote_checksum"}
    assert "fetched  0 B" in stager.run("submit", letters.workflow).stdout
    told = [path for path in stager.state_dir.rglob("*") if path.is_file() and b"hush-hush" in path.read_bytes()]
    assert not told, f"the password is in {told}"


def test_a_server_without_ranges_is_read_as_it_is(stager: Stager, letters: Letters, web: WEBS, short_dir: Path) -> None:
    server, results = web(plain=True), short_dir / "results"
    read_from_the_web(letters, server.data, server.url(), results)
    stager.run("submit", letters.workflow)
    letters.check(results)
    assert len(server.requests('"GET /in/0.txt')) == 1


def test_names_are_only_names(stager: Stager, web: WEBS, short_dir: Path) -> None:
    server = web()
    for path in ("two words & 100%41#.bin", "größe+日本.bin", "what?[1]*.bin"):
        (server.data / path).write_bytes(path.encode())
        stager.run("submit", one_job(short_dir, server.url(), path, literal="true"))
        assert (short_dir / "results" / "out.bin").read_bytes() == path.encode()
        (short_dir / "results" / "out.bin").unlink()


# What is wrong is said before anything starts.


def test_what_cannot_be_is_said_before_anything_starts(stager: Stager, web: WEBS, short_dir: Path) -> None:
    server = web(PRIVATE)
    (server.data / "in.bin").write_bytes(b"x")
    stager.env = ENV
    workflow = one_job(short_dir, secure(server), "in.bin")
    good = workflow.read_text()

    def said(text: str, code: int, *words: str) -> str:
        workflow.write_text(text)
        found = stager.run("submit", workflow, *words, code=code).stderr
        assert not stager.living() and not stager.state_dir.exists() and "hush" not in found, found
        return found

    assert f"{workflow}:8:" in said(good.replace("'results:out.bin'", "'web:out.bin'"), 2)
    assert "only be read" in said(good.replace("'results:out.bin'", "'web:out.bin'"), 2)
    assert "cannot be listed" in said(good.replace("web:in.bin", "web:*.bin"), 2)
    assert "web:other.bin" in said(good.replace("web:in.bin", "web:other.bin"), 2)
    assert "only be read" in said(good, 2, "--spill", "web")
    assert "no certificate" in said(good.replace(str(server.ca_file), "/etc/hostname"), 2)
    assert "ca_file" in said(good.replace(f', ca_file: "{server.ca_file}"', ""), 7)
    stager.env = ENV | {"ARCHIVE_PASSWORD": "hush"}
    assert "wants other credentials" in said(good, 7)
    stager.env = {}
    assert "ARCHIVE_TOKEN" in said(good, 7)


def test_a_server_that_says_nothing_ends_the_plan_and_not_its_users_patience(
    stager: Stager, web: WEBS, link: Callable[..., Link], short_dir: Path
) -> None:
    server = web()
    (server.data / "in.bin").write_bytes(b"x")
    line = link(server.port)
    line.stall()
    said = stager.run("plan", one_job(short_dir, server.url(line.port), "in.bin"), code=5)
    assert "did not answer in time" in said.stderr


# What happens on the way.


def test_a_file_that_changes_during_the_run_is_found(stager: Stager, web: WEBS, link: Callable[..., Link], short_dir: Path) -> None:
    server = web()
    line = link(server.port, bytes_per_s=300_000)
    (server.data / "in.bin").write_bytes(content(3_000_000))
    run = stager.submit(one_job(short_dir, server.url(line.port), "in.bin"))
    wait_for_bytes(stager, run)
    (server.data / "new").write_bytes(content(3_000_001))
    (server.data / "new").rename(server.data / "in.bin")
    line.bytes_per_s = None
    said = stager.run("wait", run, code=1).stderr
    assert "changed" in said and "in.bin" in said
    assert not (short_dir / "results" / "out.bin").exists()


@pytest.mark.parametrize("digest", ["Content-MD5", "Repr-Digest"])
def test_damage_on_the_way_is_found_by_the_digest_that_the_server_tells(
    stager: Stager, web: WEBS, link: Callable[..., Link], short_dir: Path, digest: str
) -> None:
    right = content(1_000_000)
    value = {
        "Content-MD5": base64.b64encode(hashlib.md5(right).digest()).decode(),
        "Repr-Digest": f"sha-256=:{base64.b64encode(hashlib.sha256(right).digest()).decode()}:",
    }[digest]
    server = web(f"add_header {digest} '{value}';")
    (server.data / "in.bin").write_bytes(right)
    line = link(server.port)
    line.flip_after(500_000)
    run = stager.submit(one_job(short_dir, server.url(line.port), "in.bin"))
    stager.run("wait", run)
    assert line.down.flipped == 1 and (short_dir / "results" / "out.bin").read_bytes() == right
    assert "damaged on its way" in stager.run("explain", run, "--file", "in.bin").stdout


@pytest.mark.parametrize("plain", [False, True], ids=["with ranges", "without"])
def test_what_came_in_part_is_gone_on_with_only_where_the_server_gives_ranges(
    ionode: Callable[..., IoNode], web: WEBS, link: Callable[..., Link], plain: bool
) -> None:
    server, right, node = web(plain=plain), content(12_000_000), ionode()
    (server.data / "in.bin").write_bytes(right)
    line = link(server.port, bytes_per_s=1_500_000)
    node.do("PUT", "/v1/origins/web", {"kind": "http", "base_url": server.url(line.port)})
    entry = node.do("POST", "/v1/origins/web/stat", {"paths": ["in.bin"]})["entries"][0]
    expected = {"size_bytes": entry["size_bytes"], "token": entry["token"], "blake3": None, "sha256": None}

    def fetch(transfer: str) -> None:
        source = {"origin_id": "web", "path": "in.bin"}
        body = {"kind": "fetch", "file_id": "f", "generation": transfer, "source": source, "expected": expected, "priority": 5}
        node.do("PUT", f"/v1/transfers/{transfer}", body | {"executable": False})

    fetch("t1")
    wait_until(lambda: node.get("/v1/transfers")["transfers"][0]["bytes_done"] >= 2_000_000, "two megabytes to arrive")
    line.go_down()
    failed = node.event_of("t1")
    assert (failed["kind"], failed["error"]["class"]) == ("transfer_failed", "transient"), failed
    line.come_up()
    line.bytes_per_s = None
    fetch("t2")
    done = node.event_of("t2")
    assert done["kind"] == "transfer_done" and (done["bytes_moved"] == len(right)) == plain, done
    assert node.call("GET", "/v1/replicas/f/t2/content").content == right


@pytest.mark.slow
def test_a_line_that_goes_dead_without_a_word_is_given_up_and_taken_anew(
    stager: Stager, letters: Letters, web: WEBS, link: Callable[..., Link], short_dir: Path
) -> None:
    server, results = web(), short_dir / "results"
    # All of it takes fifteen seconds: it is under way when it is seen to be.
    line = link(server.port, bytes_per_s=20_000)
    read_from_the_web(letters, server.data, server.url(line.port), results)
    run = stager.submit(letters.workflow)
    wait_for_bytes(stager, run)
    line.stall()
    wait_for_line(stager, run, ["in/0.txt", "in/1.txt"], "tried again", deadline_s=100)
    line.cut()
    line.flow()
    line.bytes_per_s = None
    stager.run("wait", run)
    letters.check(results)


# Catalogs of Pegasus.


def test_a_pegasus_workflow_reads_from_the_web(stager: Stager, web: WEBS, short_dir: Path) -> None:
    server = web("location /cgi/ { default_type text/plain; return 200 'asked for $query_string\n'; }")
    (server.data / "a b.txt").write_text("a file\n")
    replicas = (
        f"replicaCatalog:\n  replicas:\n  - {{lfn: file.txt, pfns: [{{site: web, pfn: '{server.url()}/a%20b.txt'}}]}}\n"
        f"  - {{lfn: asked.txt, pfns: [{{site: web, pfn: '{server.url()}/cgi/dss?r=10.68&u=a/b'}}]}}\n"
    )
    programs = "transformationCatalog:\n  transformations:\n  - {name: cat, sites: [{name: local, pfn: /bin/cat, type: installed}]}\n"
    job = (
        "jobs:\n- {type: job, name: cat, id: c, arguments: [file.txt, asked.txt], stdout: out.txt, uses: [{lfn: file.txt, type: input},"
        " {lfn: asked.txt, type: input}, {lfn: out.txt, type: output, stageOut: true}]}\n"
    )
    workflow = short_dir / "workflow.yml"
    workflow.write_text(f"pegasus: 5.0.4\nname: web\n{replicas}{programs}{job}")
    (short_dir / "results").mkdir()
    refused = stager.run("submit", workflow, "--output-origin", server.url(), code=2).stderr
    assert "only be read" in refused and not stager.living()
    done = stager.run("submit", workflow, "--output-origin", short_dir / "results")
    assert (short_dir / "results" / "out.txt").read_text() == "a file\nasked for r=10.68&u=a%2Fb\n"
    assert (
        "the size and nothing else, 'asked.txt' first" in stager.run("plan", workflow, "--output-origin", short_dir / "results").stdout
    ), done
