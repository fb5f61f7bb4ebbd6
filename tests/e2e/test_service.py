"""The scheduler process with a real I/O node, asked over its socket: one owner, resumable whatever died, no secret anywhere."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.adapters.profiles_store import read_profiles
from stager.client import UnixConnection, connect_or_start
from stager.model.errors import InvalidInput, Refused, StagerError
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import embedded
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.places import PROJECT
from tests.testbed.processes import is_alive


@pytest.fixture
def rig(short_dir: Path) -> Iterator[Rig]:
    made = Rig(short_dir)
    yield made
    made.end()


def test_a_run_ends_with_its_final_there_verified_and_accounted_for(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three())
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "all").read_bytes() == b"ONE\nTWO\n"
    ledger = {entry.lfn: entry for entry in client.run(run).ledger()}
    assert (ledger["all"].state, ledger["all"].path, ledger["a.mid"].state) == ("durable", "out/all", "kept")
    assert ledger["all"].verified in ("readback", "origin_checksum", "remote_checksum") and ledger["all"].token
    assert ledger["all"].synced == "content_and_name"
    summary = client.run(run).summary()
    assert (summary.outcome, summary.jobs_done, summary.attempts, summary.finals_durable) == ("succeeded", 3, 3, 1)
    assert (summary.fetched_bytes, summary.uploaded_bytes) == (8, 8) and summary.finals == {ledger["all"].verified: 1}
    assert client.run(run).wait(lfn="all").durable is True
    assert [info.state for info in client.runs()] == ["succeeded"]


def test_submitting_again_with_the_same_id_is_submitting_once(rig: Rig) -> None:
    client, workflow = rig.client(), rig.three()
    plan = make_plan(workflow, embedded(CAPACITY_BYTES, cores=2), limits=Limits(cores=2))
    runs = {client.submit(workflow, plan, rig.credentials(workflow), submit_id="same") for _ in range(3)}
    assert len(runs) == 1 and len(client.runs()) == 1
    rig.finished(client, runs.pop())


def test_a_second_scheduler_on_one_state_directory_is_refused(rig: Rig) -> None:
    rig.stager.idle_exit_s = 60.0  # longer than the second one takes to start on a busy machine
    client = rig.client()
    command = [sys.executable, "-m", "stager.service", "--state-dir", str(rig.stager.state_dir)]
    done = subprocess.run(command, env=rig.stager.environment(), capture_output=True, text=True, timeout=60)
    assert done.returncode == 3 and f"runs already (pid {client.health().pid})" in done.stderr


def test_a_second_node_is_never_started_on_one_store(rig: Rig) -> None:
    first = rig.client().health()
    os.kill(first.pid, signal.SIGKILL)
    rig.until(lambda: not is_alive(first.pid), "the scheduler to be gone")
    second = rig.client().health()
    assert second.nodes[0].pid == first.nodes[0].pid and second.nodes[0].incarnation == first.nodes[0].incarnation
    assert second.epoch > first.epoch


def test_a_node_that_does_not_answer_is_ended_before_another_is_started(rig: Rig) -> None:
    first = rig.client().health()
    node = first.nodes[0].pid
    assert node is not None
    os.kill(first.pid, signal.SIGKILL)
    (rig.stager.state_dir / "node" / "node.sock").unlink()
    rig.until(lambda: not is_alive(first.pid), "the scheduler to be gone")
    second = rig.client().health().nodes[0]
    assert second.pid != node and not is_alive(node) and second.incarnation != first.nodes[0].incarnation


def test_killed_in_the_middle_it_goes_on_and_nothing_finished_runs_again(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    rig.until(lambda: client.run(run).status().jobs.get("running") == 2, "both jobs to run")
    os.kill(client.health().pid, signal.SIGKILL)
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to be gone")
    client = rig.client()
    rig.gate.touch()
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "all").read_bytes() == b"ONE\nTWO\n"
    assert rig.ran() == Counter(first=1, second=1, join=1)


def test_a_killed_node_comes_back_and_the_run_goes_on(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    rig.until(lambda: client.run(run).status().jobs.get("running") == 2, "both jobs to run")
    node = client.health().nodes[0]
    assert node.pid is not None
    os.kill(node.pid, signal.SIGKILL)
    rig.gate.touch()
    assert rig.finished(client, run) == "succeeded"
    assert client.health().nodes[0].incarnation != node.incarnation
    assert (rig.data / "out" / "all").read_bytes() == b"ONE\nTWO\n"
    assert rig.ran() == Counter(first=1, second=1, join=1)


def test_two_active_runs_may_not_write_to_one_place(rig: Rig) -> None:
    client = rig.client()
    first = rig.submit(client, rig.three("one", held=True))
    other = rig.workflow("two", [rig.final("all")], [rig.job("make", "echo x > all", (), ("all",))], [rig.origin("store")])
    other = Workflow(
        other.name, {"all": File("all", size_bytes=2, destination=Destination(Location("store", "out/all")))}, other.jobs, other.origins
    )
    with pytest.raises(Refused, match=f"active run {first} writes to .*out/all"):
        rig.submit(client, other)
    client.run(first).stop()
    rig.finished(client, first)
    second = rig.submit(client, other)
    assert rig.finished(client, second) in ("succeeded", "not_durable")


def test_a_drained_run_is_interrupted_and_resumed(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    rig.until(lambda: client.run(run).status().jobs.get("running") == 2, "both jobs to run")
    client.run(run).drain()
    rig.gate.touch()
    assert rig.finished(client, run) == "interrupted"
    assert rig.ran() == Counter(first=1, second=1)
    client.run(run).resume(rig.credentials(rig.three()))
    assert rig.finished(client, run) == "succeeded"
    assert rig.ran() == Counter(first=1, second=1, join=1)


@pytest.mark.parametrize("signals", [1, 2])
def test_sigterm_drains_a_second_one_stops_and_both_are_resumable(rig: Rig, signals: int) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    rig.until(lambda: len(client.run(run).status().running) == 2 and len(rig.stager.reaper_pids()) == 2, "both jobs to run")
    pid = client.health().pid
    os.kill(pid, signal.SIGTERM)
    rig.until(lambda: client.runs()[0].state == "draining", "the run to drain")
    if signals == 2:
        os.kill(pid, signal.SIGTERM)
    else:
        rig.gate.touch()
    rig.until(lambda: not is_alive(pid), "the scheduler to end")
    rig.until(lambda: rig.stager.node_pid() is None, "its node to end with it")
    assert not rig.stager.reaper_pids()
    client = rig.client()
    assert client.runs()[0].state == "interrupted"
    if signals == 1:
        client.run(run).resume(rig.credentials(rig.three()))
        assert rig.finished(client, run) == "succeeded"
        assert rig.ran() == Counter(first=1, second=1, join=1)


def test_cancel_names_what_would_be_lost_and_ends_for_good(rig: Rig) -> None:
    client = rig.client()
    jobs = [rig.job("make", "echo hello > m", (), ("m",)), rig.job("slow", "sleep 60; cat m > f", ("m",), ("f",))]
    run = rig.submit(client, rig.workflow("w", [File("m", size_bytes=10), rig.final("f")], jobs))
    rig.until(lambda: client.run(run).status().jobs.get("running") == 1 and rig.ran()["slow"], "the slow job to run")
    losses = client.run(run).losses()
    assert (losses.files, losses.size_bytes, losses.jobs_running) == (["m"], 6, 1)
    client.run(run).cancel()
    assert rig.finished(client, run) == "cancelled"
    with pytest.raises(Refused, match="cancelled for good"):
        client.run(run).resume(wire.Credentials())
    rig.until(lambda: client.health().nodes[0].used_bytes == 0, "what it made to be dropped")


def test_outputs_larger_than_planned_wait_for_space_and_are_committed(rig: Rig) -> None:
    client = rig.client()
    job = rig.job("grow", "head -c 5000000 /dev/zero > big", (), ("big",))
    run = rig.submit(client, rig.workflow("w", [rig.final("big", size_bytes=1000)], [job]))
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "big").stat().st_size == 5_000_000
    assert rig.ran() == Counter(grow=1)
    assert any("waits for" in line for line in client.run(run).explain(job="grow").lines)


SECRET = "hush-d1f7e2"


def test_no_secret_reaches_journal_logs_or_plan(rig: Rig) -> None:
    """Neither of an origin nor of a variable that a job takes from its submitter; the job gets it all the same."""
    client = rig.client()
    origins = [rig.origin(), Origin("vault", OriginKind.S3, "s3://bucket/x", "env:VAULT")]
    there = File("there", sources=(Source(Location("vault", "there"), 3, 'etag:"x";s=3'),), size_bytes=3)
    jobs = [
        rig.job("told", 'test "$TOKEN" = ' + f'"{SECRET[:4]}""{SECRET[4:]}" && echo yes > f', (), ("f",), env_pass=("TOKEN",)),
        rig.job("read", "cat there > g", ("there",), ("g",), retries=0),
    ]
    workflow = rig.workflow("w", [rig.final("f"), rig.final("g"), there], jobs, origins)
    vault = {
        "kind": "s3", "bucket": "bucket", "prefix": "x", "region": "us-east-1", "endpoint": "http://127.0.0.1:9", "addressing": "path",
        "access_key_id": "id", "secret_access_key": SECRET, "session_token": SECRET, "allow_http": True,
    }  # fmt: skip
    credentials = wire.Credentials({"lab": {"kind": "file", "base_path": str(rig.data)}, "vault": vault}, {"TOKEN": SECRET})
    run = rig.submit(client, workflow, credentials)
    rig.until(lambda: client.run(run).status().jobs.get("done") == 1, "the job that wants the variable to end well")
    rig.until(lambda: any("tried again" in line for line in client.run(run).explain(lfn="there").lines), "the origin to have been tried")
    said = [client.run(run).status(), client.run(run).needs(), *client.run(run).ledger(), *client.run(run).events().events]
    assert not any(SECRET in body.model_dump_json() for body in said)
    client.run(run).stop()
    rig.finished(client, run)
    client.shutdown()
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to end")
    found = [str(path) for path in rig.stager.state_dir.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert found == []


def test_jobs_that_want_the_submitters_variables_wait_for_a_resume_after_a_restart(rig: Rig) -> None:
    client = rig.client()
    jobs = [
        rig.job("slow", f"until test -e {rig.gate}; do sleep 0.05; done; echo x > m", (), ("m",)),
        rig.job("told", 'test "$WORD" = yes; cat m > f', ("m",), ("f",), env_pass=("WORD",)),
    ]
    workflow = rig.workflow("w", [File("m", size_bytes=10), rig.final("f")], jobs)
    origins = {"lab": {"kind": "file", "base_path": str(rig.data)}}
    run = rig.submit(client, workflow, wire.Credentials(origins, {"WORD": "yes"}))
    rig.until(lambda: rig.ran()["slow"], "the first job to run")
    os.kill(client.health().pid, signal.SIGKILL)
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to be gone")
    client = rig.client()
    rig.gate.touch()
    rig.until(
        lambda: any("stager resume" in problem.message for problem in client.run(run).status().problems), "it to say what it waits for"
    )
    assert client.run(run).needs().env_pass == ["WORD"]
    client.run(run).resume(wire.Credentials(origins, {"WORD": "yes"}))
    assert rig.finished(client, run) == "succeeded" and rig.ran() == Counter(slow=1, told=1)


def test_a_restart_does_not_guess_secrets(rig: Rig) -> None:
    """The fetch is denied with what to do, and a resume that brings them goes on."""
    client = rig.client()
    there = File("there", sources=(Source(Location("vault", "there"), 3, 'etag:"x";s=3'),), size_bytes=3)
    jobs = [rig.job("slow", "sleep 1; echo x > m", (), ("m",)), rig.job("read", "cat m there > f", ("m", "there"), ("f",), retries=0)]
    origins = [rig.origin(), Origin("vault", OriginKind.S3, "s3://bucket/x", "env:VAULT")]
    workflow = rig.workflow("w", [File("m", size_bytes=10), rig.final("f"), there], jobs, origins)
    vault = {
        "kind": "s3",
        "bucket": "b",
        "region": "us-east-1",
        "endpoint": "http://127.0.0.1:9",
        "access_key_id": "i",
        "secret_access_key": "s",
        "allow_http": True,
    }
    run = rig.submit(client, workflow, wire.Credentials({"lab": {"kind": "file", "base_path": str(rig.data)}, "vault": vault}))
    os.kill(client.health().pid, signal.SIGKILL)
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to be gone")
    node = rig.stager.node_pid()
    assert node is not None
    os.kill(node, signal.SIGKILL)
    client = rig.client(VAULT_ACCESS_KEY_ID="of somebody", VAULT_SECRET_ACCESS_KEY="else")
    assert rig.finished(client, run) == "failed"
    fault = client.run(run).summary().fault
    assert fault is not None and fault.error_class == "denied" and f"stager resume {run}" in fault.message


def test_it_ends_by_itself_when_nobody_needs_it(rig: Rig) -> None:
    rig.stager.idle_exit_s = 3.0  # longer than it takes on a busy machine to ask who is there
    client = rig.client()
    pid, node = client.health().pid, client.health().nodes[0].pid
    assert node is not None
    client.close()
    rig.until(lambda: not is_alive(pid) and not is_alive(node), "both to end")
    assert not (rig.stager.state_dir / "scheduler.sock").exists()


def test_a_scheduler_that_cannot_start_says_why(rig: Rig) -> None:
    (rig.stager.state_dir / "journal.sqlite").parent.mkdir(mode=0o700)
    (rig.stager.state_dir / "journal.sqlite").write_bytes(b"this is no database, it is a letter to you" * 100)
    with pytest.raises(Refused, match=r"did not start(.|\n)*not a database"):
        connect_or_start(rig.stager.state_dir, ["--capacity", "1000000"])


def test_a_full_disk_under_the_state_directory_is_named_though_the_log_cannot_say_it(tiny_disk: Callable[[int], Path]) -> None:
    state_dir = tiny_disk(1) / "s"
    state_dir.mkdir(mode=0o700)
    with contextlib.suppress(OSError), (state_dir / "full").open("wb", buffering=0) as filler:
        while True:
            filler.write(b"x" * 4096)
    with pytest.raises(Refused, match=r"the disk of .* is full \(0 B free\); make room(.|\n)*did not start"):
        connect_or_start(state_dir, ["--capacity", "1000000"])


def test_a_node_that_cannot_start_is_said_at_once(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STAGER_IONODE", "/bin/false")
    with pytest.raises(Refused, match=r"did not start(.|\n)*the I/O node ended at its start \(exit 1\)"):
        connect_or_start(rig.stager.state_dir, ["--capacity", "1000000"])


def test_a_scheduler_that_is_ending_is_waited_for_and_followed_by_the_next(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    rig.until(lambda: client.run(run).status().jobs.get("running") == 2, "both jobs to run")
    first = client.health()
    client.shutdown()
    rig.until(lambda: not client.health().ready, "it to drain")
    threading.Timer(0.5, rig.gate.touch).start()
    with connect_or_start(rig.stager.state_dir, ["--capacity", str(CAPACITY_BYTES), "--cores", "2"]) as again:
        assert again.health().epoch > first.epoch and again.runs()[0].state == "interrupted"


def test_only_its_own_host_name_and_api_version_are_served(rig: Rig) -> None:
    rig.client()

    def status(headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        connection = UnixConnection(rig.stager.state_dir / "scheduler.sock", 30)
        connection.putrequest("GET", "/v1/health", skip_host=True)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer: http.client.HTTPResponse = connection.getresponse()
        body = json.loads(answer.read())
        connection.close()
        return answer.status, body

    assert status({"Host": wire.HOST})[0] == 200
    assert status({"Host": "evil.example.org"})[0] == 400
    code, body = status({"Host": wire.HOST, "X-Stager-Api": "99"})
    assert (code, body["error"]["code"]) == (400, "api_version")
    assert (rig.stager.state_dir / "scheduler.sock").stat().st_mode & 0o777 == 0o600


def test_what_does_not_exist_is_named(rig: Rig) -> None:
    client = rig.client()
    for call in (
        client.run("nope-1").status,
        client.run("nope-1").summary,
        client.run("nope-1").cancel,
        lambda: client.run("nope-1").logs("j"),
    ):
        with pytest.raises(InvalidInput, match="no run 'nope-1'"):
            call()
    run = rig.submit(client, rig.three())
    with pytest.raises(InvalidInput, match="no job 'nobody'"):
        client.run(run).logs("nobody")
    with pytest.raises(InvalidInput, match="'a.mid' is no final"):
        client.run(run).wait(lfn="a.mid")
    rig.finished(client, run)


def test_a_workflow_too_large_for_the_node_is_refused_before_it_starts(rig: Rig) -> None:
    client = rig.client()
    job = rig.job("big", "echo > f", (), ("f",))
    workflow = rig.workflow("w", [rig.final("f", size_bytes=10 * CAPACITY_BYTES)], [job])
    with pytest.raises(Refused, match="at least 500 MB"):
        rig.submit(client, workflow)
    assert client.runs() == [] and not rig.ran()


def test_progress_can_be_followed_and_jobs_explain_themselves(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three())
    kinds = [event.kind for event in client.run(run).follow()]
    assert kinds[0] == "run_submitted" and kinds[-1] == "finish_run" and kinds.count("attempt_ended") == 3
    timeline = client.run(run).explain(lfn="all").lines
    assert any("upload" in line for line in timeline) and any("verified by" in line for line in timeline)
    logs = client.run(run).logs("join").logs
    assert [log.stream for log in logs] == ["stdout", "stderr"] and all(Path(log.path).exists() for log in logs)


def test_gc_removes_what_finished_runs_left_and_the_cache_when_asked(rig: Rig) -> None:
    client, workflow = rig.client(), rig.three()
    run = rig.submit(client, workflow)
    rig.finished(client, run)
    rig.until(lambda: client.health().nodes[0].used_bytes == 4 + 4 + 4 + 4 + 8, "inputs, the final and what later runs may read to be kept")
    planned = client.gc(wire.GcRequest(cache=True, dry_run=True))
    assert (planned.runs, planned.logs, planned.replicas) == ([], 1, 5) and (rig.stager.state_dir / "logs" / run).is_dir()
    report = client.gc(wire.GcRequest(cache=True))
    assert (report.runs, report.logs, report.replicas, report.journal_compacted) == ([], 1, 5, False)
    rig.until(lambda: client.health().nodes[0].used_bytes == 0, "the cache to be empty")
    assert not (rig.stager.state_dir / "logs" / run).exists()
    kept = client.run(run)
    assert {entry.lfn: entry.state for entry in kept.ledger()}["all"] == "durable" and kept.history().attempts and kept.summary()
    assert client.gc(wire.GcRequest(cache=True)).logs == 0
    told = client.gc(wire.GcRequest(records=True))
    assert (told.runs, told.journal_compacted) == ([run], True) and client.runs() == []
    assert (rig.data / "out" / "all").read_bytes() == b"ONE\nTWO\n"
    again = rig.submit(client, workflow)
    assert again != run and rig.finished(client, again) == "succeeded"
    summary = client.run(again).summary()
    assert (summary.fetched_bytes, summary.attempts) == (8, 3)


def test_profiles_are_measured_and_used_for_the_next_plan(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(pause_s=0.2))
    rig.finished(client, run)
    found = read_profiles(rig.stager.state_dir / "profiles.sqlite")
    assert set(found) == {"first", "second", "join"} and found["join"].samples == 1
    join = found["join"]
    assert join.output_bytes is not None and join.wall_s is not None and join.cpu_s is not None and join.read_bytes is not None
    assert join.output_bytes.median == 8 and join.wall_s.median >= 0.2 and join.read_bytes.median >= 8
    assert join.cpu_s.median < join.wall_s.median - 0.1, "it slept"
    counted = [join.written_bytes, join.memory_peak_bytes, join.input_bytes, join.input_files, join.output_files]
    medians = [quantity.median for quantity in counted if quantity is not None]
    assert medians[0] >= 8 and medians[1] > 100_000 and medians[2:] == [8, 2, 1]
    sizes = {pattern: made.size_bytes.median for pattern, made in (join.inputs | join.outputs).items() if made.size_bytes}
    assert sizes == {"a.mid": 4, "b.mid": 4, "all": 8}


def test_a_long_path_of_the_state_directory_is_no_obstacle(rig: Rig, tmp_path: Path) -> None:
    rig.stager.state_dir = tmp_path / ("long" * 20) / ("longer" * 10)
    rig.stager.state_dir.parent.mkdir()
    client = rig.client()
    run = rig.submit(client, rig.three())
    assert rig.finished(client, run) == "succeeded"


def test_a_client_survives_ctrl_c_in_the_middle_of_a_wait(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))

    def interrupt(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with pytest.raises(KeyboardInterrupt):
            signal.setitimer(signal.ITIMER_REAL, 0.5)
            client.run(run).wait_finished(30)
    finally:
        signal.signal(signal.SIGALRM, before)
    client.run(run).drain()
    rig.gate.touch()
    assert rig.finished(client, run) == "interrupted"


def test_errors_of_the_api_are_stagers_own(rig: Rig) -> None:
    client = rig.client()
    with pytest.raises(StagerError) as caught:
        client.call("POST", "/v1/runs", b'{"workflow": 1}')
    assert caught.value.error_class == "invalid_input"
    assert str(PROJECT) not in caught.value.message
