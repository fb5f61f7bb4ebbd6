"""Runs on two hosts that share no file with the scheduler nor with each other, each with an I/O node and a worker, all by TLS."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.apart_rig import SCRATCH, Apart
from tests.e2e.nodes_rig import batches_of, given_in
from tests.testbed.conda_packages import PLACEHOLDER, Content, Package, explicit
from tests.testbed.images import docker_archive, programs
from tests.testbed.network import Network, needs_network
from tests.testbed.wheels import locked, wheel

# One worker starts the hosts once for all of them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("hosts-without-shared-files"), pytest.mark.timeout(600)]
WORD = "hush-hush-in-no-file"

SMALL = """
stager: 1
name: small
origins:
  lab: ORIGIN
jobs:
  loud:
    run: 'test "$WORD" = hush-hush-in-no-file && tr a-z A-Z < in'
    env_pass: [WORD]
    inputs: {in: lab:in}
    stdout: loud
  tree:
    run: "mkdir -p tree/deep && cp loud tree/deep/first && touch tree/second && chmod 755 tree/second && echo printed; echo complained >&2"
    inputs: [loud]
    outputs: [tree/]
  list:
    run: "find tree -type f | sort > list; cat tree/deep/first >> list; test -x tree/second && echo runs >> list"
    inputs: [tree/]
    outputs: {list: {to: lab:list, on_exists: replace}}
"""
FAILS = """
stager: 1
name: fails
origins:
  lab: ORIGIN
defaults: {retries: 0}
jobs:
  wrong:
    run: "echo why it failed; exit 7"
    inputs: {in: lab:in}
    outputs: {never: {to: lab:never}}
"""


@pytest.fixture(scope="module")
def apart(session_dir: Path) -> Iterator[Apart]:
    needs_network()
    with Network() as net:
        made = Apart(net, Path(tempfile.mkdtemp(dir=session_dir)), {"WORD": WORD})
        try:
            made.start()
            yield made
        finally:
            made.end()


def starts_of(apart: Apart, run: str) -> list[cmd.StartAttempt]:
    return [command for command in given_in(batches_of(apart.state), cmd.StartAttempt) if command.run == run]


def ends_of(apart: Apart, run: str) -> list[ev.AttemptEnded]:
    return [event for event in apart.ends() if event.run == run]


def written(apart: Apart, text: str) -> Path:
    path = apart.place / "workflow.yml"
    path.write_text(text.replace("ORIGIN", apart.origin()))
    return path


def test_a_small_workflow_runs_and_its_variable_is_in_no_file(apart: Apart) -> None:
    apart.put("in", b"said once\n")
    done = apart.stager.run("submit", written(apart, SMALL))
    assert "3 of 3 done, 0 failed, 3 attempts" in done.stdout, done.stdout
    assert apart.stored()["list"] == b"tree/deep/first\ntree/second\nSAID ONCE\nruns\n"
    run = given_in(batches_of(apart.state), cmd.StartAttempt)[-1].run
    starts = starts_of(apart, run)
    assert {command.host for command in starts} <= {"ha", "hb"} and {command.node for command in starts} <= {"a", "b"}
    said = apart.stager.run("logs", run, "tree").stdout
    assert "printed" in said and "complained" in said
    for name, host in apart.sites.items():
        apart.until(lambda name=name: apart.left(name) == {}, f"what node {name} has of attempts to go")
        scratch = host.outside(SCRATCH)
        apart.until(lambda scratch=scratch: not list(scratch.glob("attempts/*")), "the sandboxes to go")
        holding = [path for path in host.outside("/srv").rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
        assert not holding
    assert WORD not in apart.logs()


def test_an_exit_code_comes_with_what_the_job_printed(apart: Apart) -> None:
    apart.put("in", b"given\n")
    done = apart.stager.run("submit", written(apart, FAILS), code=None)
    assert done.returncode != 0 and "exit code 7" in done.stdout + done.stderr, done
    ended = apart.ends()[-1]
    assert (ended.outcome, ended.exit_code) == (ev.Outcome.FAILED, 7)
    assert "why it failed" in apart.stager.run("logs", ended.run, "wrong").stdout
    assert "never" not in apart.stored()


BOXED = """
stager: 1
name: boxed
origins:
  lab: ORIGIN
jobs:
  boxed:
    run: 'cat /etc/of-the-image in > made; if ls /srv; then exit 9; fi'
    shell: sh
    container: lab:tools.tar
    inputs: {in: lab:in}
    outputs: {made: {to: lab:boxed}}
"""


def test_a_host_gets_the_image_of_a_container_as_an_input(apart: Apart, short_dir: Path) -> None:
    image = docker_archive(short_dir / "tools.tar", programs("sh", "cat", "ls"), {"etc/of-the-image": b"it is\n"})
    apart.put("in", b"given\n")
    apart.put("tools.tar", image.read_bytes())
    apart.stager.run("submit", written(apart, BOXED))
    assert apart.stored()["boxed"] == b"it is\ngiven\n"
    assert sum(len(list(host.outside(SCRATCH).glob("images/sha256-*"))) for host in apart.sites.values()) == 1


PACKED = """
stager: 1
name: packed
origins:
  lab: ORIGIN
jobs:
  packed: {run: 'probe > made', venv: 'lab:packages.lock', outputs: {made: {to: lab:packed}}}
"""


def test_a_host_makes_the_environment_of_a_lock_file(apart: Apart) -> None:
    module = 'import sys\n\ndef main():\n    print("packed", sys.prefix)\n'
    for host in apart.sites.values():
        apart.put("packages.lock", locked(wheel(host.outside("/srv/wheels"), "probe", "1.0", module)).encode())
        told = host.outside("/srv/.config/pip/pip.conf")
        told.parent.mkdir(parents=True)
        told.write_text("[global]\nno-index = true\nfind-links = /srv/wheels\n")
    apart.stager.run("submit", written(apart, PACKED))
    said, prefix = apart.stored()["packed"].decode().split()
    made = [path for host in apart.sites.values() for path in host.outside(SCRATCH).glob("environments/*/environment.json")]
    assert said == "packed" and len(made) == 1 and prefix == f"{SCRATCH}/environments/{made[0].parent.name}"


SOLVED = """
stager: 1
name: solved
origins:
  lab: ORIGIN
jobs:
  solved: {run: 'tool > made', conda: 'lab:conda.lock', outputs: {made: {to: lab:solved}}}
"""


def test_a_host_makes_the_environment_of_conda_packages(apart: Apart) -> None:
    tool = Package(name="tool", files={"bin/tool": Content(f"#!/bin/sh\necho solved {PLACEHOLDER}\n".encode(), True, "text")})
    for host in apart.sites.values():
        archive = tool.put_into(host.outside("/srv/channel"))
        apart.put("conda.lock", explicit("file:///srv/channel", [archive]).encode())
    apart.stager.run("submit", written(apart, SOLVED))
    said, prefix = apart.stored()["solved"].decode().split()
    made = [path.parent for host in apart.sites.values() for path in host.outside(SCRATCH).glob("environments/*/conda-meta/tool-*.json")]
    assert said == "solved" and len(made) == 1 and prefix == f"{SCRATCH}/environments/{made[0].parent.name}"


HELD = """
stager: 1
name: held
origins:
  lab: ORIGIN
jobs:
  held:
    run: 'until test -e /srv/gate; do sleep 0.1; done; echo "$WORD" > held'
    env_pass: [WORD]
    inputs: {in: lab:in}
    outputs: {held: {to: lab:held, on_exists: replace}}
"""
SLOW = """
stager: 1
name: slow
origins:
  lab: ORIGIN
jobs:
  slow:
    run: 'until test -e /srv/late; do sleep 0.1; done; cat /srv/mark > slow'
    cores: 4
    inputs: {in: lab:in}
    outputs: {slow: {to: lab:slow, on_exists: replace}}
"""


@pytest.mark.parametrize("workers_too", [False, True], ids=["scheduler", "scheduler and workers"])
def test_a_restart_that_forgot_the_variables_takes_up_what_runs(apart: Apart, *, workers_too: bool) -> None:
    """Where its host has lost the ticket too, the attempt is closed and opened anew."""
    apart.put("in", b"given\n")
    for site in apart.sites.values():
        site.outside("/srv/gate").unlink(missing_ok=True)
    run = apart.stager.submit(written(apart, HELD))
    hosts = list(apart.pool.hosts.values())
    apart.until(lambda: any(host.reaper_pids() for host in hosts), "the job")
    apart.kill_scheduler()
    if workers_too:
        for host in hosts:
            host.kill_worker()
    apart.start_scheduler()
    for site in apart.sites.values():
        site.outside("/srv/gate").touch()
    apart.until(lambda: [event.outcome for event in ends_of(apart, run)] == [ev.Outcome.OK], "the job's end")
    assert len(starts_of(apart, run)) == 1
    (made,) = ends_of(apart, run)[0].outputs
    assert made.size_bytes == len(WORD) + 1


def test_a_worker_that_is_cut_off_and_forgotten_commits_nothing(apart: Apart) -> None:
    """It is beside a node on another host, which it still reaches. Its job goes on, and comes too late."""
    apart.put("in", b"given\n")
    cut_off = apart.add_worker("hc", "a", 4)
    cut_off.outside("/srv/mark").write_bytes(b"from the one that is cut off\n")
    apart.until(lambda: apart.hosts().get("hc") == "open", "the third host")
    run = apart.stager.submit(written(apart, SLOW))
    apart.until(lambda: apart.pool.hosts["hc"].reaper_pids(), "the job")
    other = apart.add_worker("hd", "b", 4)
    other.outside("/srv/mark").write_bytes(b"from the other one\n")
    apart.until(lambda: apart.hosts().get("hd") == "open", "the fourth host")
    (attempt,) = (command.attempt for command in starts_of(apart, run))
    with apart.net.parted(apart.here, cut_off):
        apart.stager.run("host", "forget", "hc", "--force", "--why", "its line is cut")
        apart.until(lambda: len(starts_of(apart, run)) == 2, "the second attempt")
        for host in (cut_off, other):
            host.outside("/srv/late").touch()
        outcome = cut_off.outside(SCRATCH) / "attempts" / attempt / "outcome.json"
        apart.until(outcome.exists, "the end of the job that nobody waits for")
        assert "ticket_closed" in outcome.read_text()
        apart.until(lambda: "slow" in apart.stored(), "the final")
    assert apart.stored()["slow"] == b"from the other one\n"
    assert [(event.attempt == attempt, event.outcome) for event in ends_of(apart, run)] == [(True, ev.Outcome.LOST), (False, ev.Outcome.OK)]
    apart.until(lambda: not (cut_off.outside(SCRATCH) / "attempts" / attempt).exists(), "what it left to go")
