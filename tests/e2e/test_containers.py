"""Jobs in containers, by real processes: what they find, how their ends are told, and what becomes of their image."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.service.state_dir import StateDir
from stager.worker.image_file import own_architecture
from stager.worker.images import DIRECTORY
from tests.e2e.made_bed import GATE, MadeBed
from tests.e2e.nodes_rig import batches_of, given_in
from tests.e2e.serve_rig import Service
from tests.testbed.images import PROGRAMS, docker_archive, programs
from tests.testbed.processes import all_pids, command_line
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.xdist_group("containers")


def is_running(token: str) -> bool:
    return any(token in command_line(pid) for pid in all_pids())


class Bed(MadeBed):
    def __init__(self, place: Path) -> None:
        super().__init__(place, DIRECTORY)
        self.env = {"PATH": "/bin", "OF_IMAGE": "yes", "LANG": "image"}
        self.files = programs("bash", *PROGRAMS)
        docker_archive(place / "tools.tar", self.files, {"etc/of-the-image": b"it is\n"}, env=self.env)


@pytest.fixture(scope="module")
def bed(session_dir: Path) -> Iterator[Bed]:
    place = session_dir / "containers"
    place.mkdir()
    made = Bed(place)
    yield made
    made.stager.end()


LOOK = """
defaults: {container: here:tools.tar, retries: 0}
jobs:
  look:
    run: |
      ls -A / > root.txt; env > env.txt; ls -A . > sandbox.txt; id -u >> sandbox.txt
      cat /etc/of-the-image given.txt > read.txt; echo x > /tmp/t; ls .tmp >> read.txt; pwd >> read.txt
      for place in / /etc; do if echo x > $place/new; then echo wrote >> read.txt; fi; done
      if ls PLACE; then echo "the host's" >> read.txt; fi
      echo printed; echo complained >&2
    inputs: [here:given.txt]
    env: {LANG: job}
    outputs: {root.txt: "here:out/", env.txt: "here:out/", sandbox.txt: "here:out/", read.txt: "here:out/"}
  more: {foreach: {number: 1..3}, run: "echo {number} > {number}.txt", outputs: ["{number}.txt"]}
  host: {run: "cat *.txt > all.txt; test -d PLACE", inputs: ["[1-3].txt"], container: none, outputs: {all.txt: "here:out/"}}
"""


def test_a_job_finds_its_image_its_sandbox_and_nothing_of_the_host(bed: Bed) -> None:
    (bed.place / "given.txt").write_text("given\n")
    bed.submitted("look", LOOK.replace("PLACE", str(bed.place)))
    found = dict(line.split("=", 1) for line in bed.out("env.txt").splitlines())
    assert found["OF_IMAGE"] == "yes" and found["LANG"] == "job" and found["PATH"] == "/bin", "the job's variables win over the image's"
    assert found["HOME"] == "/sandbox" and found["TMPDIR"] == "/sandbox/.tmp" and found["STAGER_JOB"] == "look"
    assert not {"home", "root", "srv", "mnt"} & set(bed.out("root.txt").split())
    assert bed.out("read.txt") == "it is\ngiven\nt\n/sandbox\n"
    assert bed.out("sandbox.txt").split()[-1] == str(os.getuid()) and "given.txt" in bed.out("sandbox.txt")
    assert bed.out("all.txt") == "1\n2\n3\n"
    logs = bed.stager.run("logs", "look", "look")
    assert "printed" in logs.stdout and "complained" in logs.stdout + logs.stderr
    fetched = [each for each in given_in(batches_of(StateDir(bed.stager.state_dir)), cmd.Fetch) if each.lfn == "tools.tar"]
    assert len(fetched) == 1, "one fetch for four jobs"
    assert len(bed.made()) == 1


ENDS = """
defaults: {container: here:tools.tar, retries: 0}
jobs:
  code: {run: "exit 7"}
  signal: {run: "kill -9 $$"}
  large: {run: "x=$(head -c 90000000 /dev/zero | cat -v); sleep 60", memory: 40 MB}
  late: {run: "sleep 60", timeout: 0.5 s}
  missing: {run: [no-such-program]}
  bashless: {run: "true", container: here:bare.tar}
  other: {run: "true", container: here:other.tar}
  broken: {run: "true", container: here:given.tar}
"""


def test_ends_are_told_as_without_a_container_and_images_that_do_not_do_by_name(bed: Bed) -> None:
    other = "arm64" if own_architecture() != "arm64" else "amd64"
    docker_archive(bed.place / "bare.tar", programs("sh"))
    docker_archive(bed.place / "other.tar", programs("sh"), architecture=other)
    (bed.place / "given.tar").write_text("no image\n" * 99)
    bed.submitted("ends", ENDS, code=1)
    told = {job["job"]: str(job) for job in bed.stager.json("jobs", "ends")}
    for job, word in {
        "code": "ended with exit code 7",
        "signal": "signal 9",
        "large": "where memory: 40 MB is declared; it was ended",
        "late": "timeout",
        "missing": "'no-such-program'",
        "bashless": "`shell: sh` is for images without bash",
        "other": f"the image is for {other}, and this host is {own_architecture()}",
        "broken": "this is no image: neither a Docker archive, an OCI archive or a SIF file",
    }.items():
        assert word.replace("'", "") in told[job].replace("'", "").replace('"', "").replace("\\", ""), told[job]
    shell = bed.stager.run("shell", "ends", "code", "--", "cat", "/etc/of-the-image", cwd=bed.place)
    assert shell.stdout == "it is\n", "a shell in its sandbox is in its container"


def test_images_that_no_job_uses_give_way_to_others_and_gc_takes_them(short_dir: Path) -> None:
    """One that a job runs in stays, whatever the limit."""
    bed = Bed(short_dir)
    bed.stager.env = {"STAGER_KEEP_IMAGES": "1 kB"}
    for name in ("one", "two"):
        docker_archive(short_dir / f"{name}.tar", bed.files, {"etc/name": name.encode()}, env=bed.env)
    text = 'jobs: {a: {run: "%s", container: "here:%s.tar", outputs: {a.txt: "here:out/"}}}\n'
    try:
        bed.submitted("first", (text % (f"touch a.txt; {GATE}", "one")).replace("a.txt", "first.txt"), "--detach")
        sandbox = bed.begun()
        [first] = bed.made_at_rest()
        bed.submitted("second", text % ("cat /etc/name > a.txt", "two"))
        assert bed.out("a.txt") == "two" and first in bed.made_at_rest() and len(bed.made()) == 2
        (sandbox / "go").touch()
        bed.stager.run("wait", "first")
        bed.made_at_rest()
        bed.submitted("third", text % ("cat /etc/of-the-image > a.txt", "tools"))
        assert bed.out("a.txt") == "it is\n" and len(bed.made_at_rest()) == 1, "both went"
        bed.submitted("fourth", text % ("cat /etc/name > a.txt", "one"))
        assert bed.out("a.txt") == "one" and bed.made_at_rest() == [first], "unpacked once more"
        told = bed.stager.json("gc", "--cache", "--dry-run")
        assert told["images"] == 1 and bed.made_at_rest() == [first]
        assert "1 image: " in bed.stager.run("gc", "--cache").stdout and bed.made() == []
    finally:
        bed.stager.end()


def test_a_cancelled_job_leaves_no_process(bed: Bed) -> None:
    token = f"3000.{os.getpid()}"
    bed.submitted("long", f'jobs: {{a: {{run: "sleep {token} & sleep {token}", container: "here:tools.tar"}}}}\n', "--detach")
    wait_until(lambda: is_running(token), "the job to run")
    bed.stager.run("cancel", "long", "--yes")
    wait_until(lambda: not is_running(token), "the job to end")
    wait_until(
        lambda: [run["state"] for run in bed.stager.json("runs") if run["run"].startswith("long")] == ["cancelled"], "its run to end"
    )


def test_another_image_runs_its_jobs_again_and_explain_says_so(bed: Bed) -> None:
    docker_archive(bed.place / "own.tar", bed.files, env=bed.env)
    text = 'jobs: {a: {run: "echo x > a.txt", container: "here:own.tar", outputs: {a.txt: "here:out/"}}}\n'
    bed.submitted("again", text, "--reuse")
    assert re.search(r"1 of 1 job reused", bed.submitted("again", text, "--reuse"))
    docker_archive(bed.place / "own.tar", bed.files, {"etc/new": b""}, env=bed.env)
    told = bed.stager.run("plan", "again.yml", "--reuse", "--explain", "a", cwd=bed.place)
    assert "container: " in told.stdout + told.stderr
    assert "0 of 1 job reused" in bed.submitted("again", text, "--reuse")


PEGASUS = """
pegasus: "5.0"
name: boxed
replicaCatalog: {replicas: [{lfn: given.txt, pfns: [{site: local, pfn: given.txt}]}]}
transformationCatalog:
  transformations:
  - {name: copy, sites: [{name: incontainer, pfn: /bin/sh, type: installed, container: tools}]}
  containers:
  - {name: tools, type: docker, image: tools.tar, profiles: {env: {OF_CATALOG: word}}}
jobs:
- type: job
  name: copy
  id: one
  arguments: [-c, "'cat given.txt /etc/of-the-image; echo $OF_CATALOG'"]
  stdout: made.txt
  uses: [{lfn: given.txt, type: input}, {lfn: made.txt, type: output, stageOut: true}]
"""


def test_a_pegasus_workflow_with_a_container_runs(bed: Bed) -> None:
    (bed.place / "given.txt").write_text("given\n")
    (bed.place / "boxed.yml").write_text(PEGASUS)
    bed.stager.run("submit", "boxed.yml", "--output-origin", str(bed.place / "out"), cwd=bed.place)
    assert bed.out("made.txt") == "given\nit is\nword\n"


def test_a_tenants_job_runs_in_the_image_that_came_along_and_no_image_is_pulled_for_it(short_dir: Path) -> None:
    service = Service(short_dir / "serve", "[tenants.alice]\nnative_jobs = true\n")
    (short_dir / "token").write_text(service.token("alice", "submit"))
    docker_archive(short_dir / "tools.tar", programs("sh", "cat"), {"etc/of-the-image": b"it is\n"})
    text = "stager: 1\njobs: {a: {run: 'cat /etc/of-the-image > a.txt', shell: sh, container: \"%s\", outputs: {a.txt: 'here:out/'}}}\n"
    at = ("--server", service.start().url, "--token-file", short_dir / "token")
    try:
        (short_dir / "w.yml").write_text(text % "here:tools.tar")
        service.stager.run("submit", short_dir / "w.yml", *at)
        assert (short_dir / "out" / "a.txt").read_text() == "it is\n"
        (short_dir / "w.yml").write_text(text % "docker://127.0.0.1:1/tools:1")
        assert "no images of registries are pulled here" in service.stager.run("submit", short_dir / "w.yml", *at, code=2).stderr
    finally:
        service.end()
