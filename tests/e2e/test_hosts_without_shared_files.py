"""Runs on two hosts that share no file with the scheduler nor with each other, each with an I/O node and a worker, all by TLS."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from tests.e2e.apart_rig import SCRATCH, Apart
from tests.e2e.nodes_rig import batches_of, given_in
from tests.testbed.network import Network

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
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


@pytest.fixture
def apart(net: Network, short_dir: Path) -> Iterator[Apart]:
    made = Apart(net, short_dir, {"WORD": WORD})
    try:
        made.start()
        yield made
    finally:
        made.end()


def written(apart: Apart, text: str) -> Path:
    path = apart.place / "workflow.yml"
    path.write_text(text.replace("ORIGIN", apart.origin()))
    return path


def test_a_small_workflow_runs_and_its_variable_is_in_no_file(apart: Apart) -> None:
    apart.put("in", b"said once\n")
    done = apart.stager.run("submit", written(apart, SMALL))
    assert "3 of 3 done, 0 failed, 3 attempts" in done.stdout, done.stdout
    assert apart.stored()["list"] == b"tree/deep/first\ntree/second\nSAID ONCE\nruns\n"
    starts = given_in(batches_of(apart.state), cmd.StartAttempt)
    assert {command.host for command in starts} <= {"ha", "hb"} and {command.node for command in starts} <= {"a", "b"}
    run = starts[0].run
    said = apart.stager.run("logs", run, "tree").stdout
    assert "printed" in said and "complained" in said
    for name, host in apart.sites.items():
        apart.until(lambda name=name: apart.left(name) == {}, f"what node {name} has of attempts to go", 20)
        scratch = host.outside(SCRATCH)
        apart.until(lambda scratch=scratch: not list(scratch.glob("attempts/*")), "the sandboxes to go", 20)
        holding = [path for path in host.outside("/srv").rglob("*") if path.is_file() and WORD.encode() in path.read_bytes()]
        assert not holding
    assert WORD not in apart.logs()


def test_an_exit_code_comes_with_what_the_job_printed(apart: Apart) -> None:
    apart.put("in", b"given\n")
    done = apart.stager.run("submit", written(apart, FAILS), code=None)
    assert done.returncode != 0 and "exit code 7" in done.stdout + done.stderr, done
    (ended,) = apart.ends()
    assert (ended.outcome, ended.exit_code) == (ev.Outcome.FAILED, 7)
    assert "why it failed" in apart.stager.run("logs", ended.run, "wrong").stdout
    assert "never" not in apart.stored()
