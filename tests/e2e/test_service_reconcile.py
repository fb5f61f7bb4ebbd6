"""The reconcile table of docs/semantics.md: what the journal says, what is found after a restart, and what comes of it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from stager import wire
from stager.adapters.executor_local import attempt_spec
from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.run_records import RunRecord, RunRecords
from stager.client import Client
from stager.model.errors import InvalidInput
from stager.model.files import File
from stager.model.topology import embedded
from stager.model.workflow import Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits, Policy
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service import replaying
from stager.service.state_dir import StateDir
from stager.service.stores import open_stores
from stager.worker.place import Place, write_json
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary
from tests.testbed.processes import end, is_alive


@pytest.fixture
def rig(short_dir: Path) -> Iterator[Rig]:
    made = Rig(short_dir)
    yield made
    made.end()


def kill_scheduler(rig: Rig) -> None:
    pid = rig.stager.scheduler_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    rig.until(lambda: not is_alive(pid), "the scheduler to be gone")


def kill_node(rig: Rig) -> None:
    pid = rig.stager.node_pid()
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    rig.until(lambda: not is_alive(pid), "the node to be gone")


def journaled(rig: Rig, kind: type) -> list[Any]:
    """Of that kind, from the journal as it lies there."""
    journal = SqliteJournal(rig.stager.state_dir / "journal.sqlite", "test")
    try:
        return [value for batch in journal.read_beside() for value in (*batch.events, *batch.commands) if type(value) is kind]
    finally:
        journal.close()


def running(rig: Rig, client: Client, run: str, count: int) -> None:
    rig.until(lambda: len(rig.stager.reaper_pids()) == count and len(client.run(run).status().running) == count, f"{count} jobs to run")


def write_journal(rig: Rig, run: str, workflow: Workflow, done: bool) -> None:
    """What a scheduler leaves that died right after it journaled a new run: its fetches or, if `done`, its first jobs were told."""
    place = StateDir(rig.stager.state_dir)
    place.make()
    machine, journal = Machine(Policy(), Limits(cores=2)), SqliteJournal(place.journal, "another version")
    now = time.time()
    records = RunRecords(place.runs)
    records.next_number("epoch")
    records.add(RunRecord(run, "s1", workflow.name, "", now, len(workflow.jobs)))
    records.close()
    plan = make_plan(workflow, embedded(CAPACITY_BYTES, cores=2), limits=Limits(cores=2))
    happened: list[ev.Event] = [
        ev.SchedulerStarted(at=now, epoch=1, version="another version"),
        ev.PolicySet(at=now, policy=Policy(), limits=Limits(cores=2)),
        ev.NodeReported(at=now, node="node0", incarnation="x", capacity_bytes=CAPACITY_BYTES, can_link=True, replicas=(), transfers=()),
        ev.RunSubmitted(at=now, run=run, workflow=workflow, plan=plan),
    ]
    for event in happened:
        commands = machine.step(event)
        journal.append([event], commands)
    expected = cmd.StartAttempt if done else cmd.Fetch
    assert any(type(command) is expected for command in commands)
    journal.close()


def test_attempt_told_to_start_and_never_begun_is_started(rig: Rig) -> None:
    workflow = rig.workflow("w", [rig.final("f")], [rig.job("make", "echo yes > f", (), ("f",))])
    write_journal(rig, "w-1", workflow, done=True)
    client = rig.client()
    assert rig.finished(client, "w-1") == "succeeded"
    assert rig.ran() == Counter(make=1) and client.run("w-1").jobs()[0].attempts == 1


def test_attempt_that_was_being_started_counts_for_nothing(rig: Rig) -> None:
    """The scheduler died before its reaper took the lock: what its job did is known, nothing."""
    job = rig.job("make", "echo yes > f", (), ("f",), idempotent=False, retries=0)
    workflow = rig.workflow("w", [rig.final("f")], [job])
    write_journal(rig, "w-1", workflow, done=True)
    (told,) = journaled(rig, cmd.StartAttempt)
    place = Place.of(rig.stager.state_dir, told.attempt)
    place.make()
    write_json(place.attempt, attempt_spec(told, workflow, {}).to_json())
    client = rig.client()
    assert rig.finished(client, "w-1") == "succeeded"
    assert rig.ran() == Counter(make=1) and client.run("w-1").jobs()[0].attempts == 2


def test_transfers_told_and_unknown_to_the_node_are_asked_for_again(rig: Rig) -> None:
    write_journal(rig, "three-1", rig.three(), done=False)
    told = {command.transfer for command in journaled(rig, cmd.Fetch)}
    client = rig.client()
    assert rig.finished(client, "three-1") == "succeeded"
    done = {event.transfer for event in journaled(rig, ev.TransferDone)}
    assert len(told) == 2 and not told & done


def test_attempt_that_lives_is_adopted(rig: Rig) -> None:
    client = rig.client()
    go = rig.data / "go"
    job = rig.job("make", f"until test -e {go}; do sleep 0.05; done; echo yes > f", (), ("f",))
    run = rig.submit(client, rig.workflow("w", [rig.final("f")], [job]))
    running(rig, client, run, 1)
    reapers = rig.stager.reaper_pids()
    kill_scheduler(rig)
    client = rig.client()
    assert rig.stager.reaper_pids() == reapers
    go.touch()
    assert rig.finished(client, run) == "succeeded" and rig.ran() == Counter(make=1)


def test_attempt_that_ended_meanwhile_gives_its_result(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    running(rig, client, run, 2)
    kill_scheduler(rig)
    rig.gate.touch()
    rig.until(lambda: not rig.stager.reaper_pids(), "the jobs to end on their own")
    client = rig.client()
    assert rig.finished(client, run) == "succeeded" and rig.ran() == Counter(first=1, second=1, join=1)


@pytest.mark.parametrize("idempotent", [True, False])
def test_attempt_that_is_gone_is_lost_and_run_again_only_if_it_may(rig: Rig, idempotent: bool) -> None:
    client = rig.client()
    job = rig.job("make", f"test $(wc -l < {rig.trace}) -gt 1 || sleep 60; echo yes > f", (), ("f",), idempotent=idempotent)
    run = rig.submit(client, rig.workflow("w", [rig.final("f")], [job]))
    running(rig, client, run, 1)
    rig.until(lambda: rig.ran()["make"] == 1, "the job to begin")
    kill_scheduler(rig)
    end(rig.stager.reaper_pids())
    rig.until(lambda: not rig.stager.reaper_pids(), "the reaper to be gone")
    client = rig.client()
    assert rig.finished(client, run) == ("succeeded" if idempotent else "failed")
    assert rig.ran() == Counter(make=2 if idempotent else 1)


def slow_workflow(rig: Rig) -> tuple[Workflow, wire.Credentials]:
    """One fetch that takes about four seconds."""
    files = [rig.source("big", b"x" * 4_000_000), rig.final("f")]
    workflow = rig.workflow("w", files, [rig.job("read", "wc -c < big > f", ("big",), ("f",))])
    config = {"kind": "file", "base_path": str(rig.data), "bandwidth_bytes_per_s_max": 1_000_000}
    return workflow, wire.Credentials({"lab": config})


def moving(client: Client, run: str) -> bool:
    return any(transfer.state == "running" for transfer in client.run(run).status().transfers)


def test_transfer_under_way_is_waited_for(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, *slow_workflow(rig))
    rig.until(lambda: moving(client, run), "the fetch to be under way")
    kill_scheduler(rig)
    client = rig.client()
    assert rig.finished(client, run) == "succeeded"
    assert len(journaled(rig, cmd.Fetch)) == 1 and client.run(run).summary().fetched_bytes == 4_000_000


def test_transfer_that_ended_meanwhile_is_told_by_its_event(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, *slow_workflow(rig))
    rig.until(lambda: moving(client, run), "the fetch to be under way")
    kill_scheduler(rig)
    node = IoNode(ionode_binary(), rig.stager.state_dir / "node")
    node.rendezvous = json.loads((rig.stager.state_dir / "node" / "rendezvous.json").read_text())
    states = lambda: [entry["state"] for entry in transfers_of(node)]  # noqa: E731
    rig.until(lambda: states() == ["done"], "the node to end it on its own")
    client = rig.client()
    assert rig.finished(client, run) == "succeeded"
    assert len(journaled(rig, cmd.Fetch)) == 1 and client.run(run).summary().fetched_bytes == 4_000_000


def transfers_of(node: IoNode) -> list[dict[str, Any]]:
    token = Path(node.rendezvous["token_file"]).read_text().strip()
    headers = {"Authorization": f"Bearer {token}", "X-Stager-Api": "1", "X-Stager-Epoch": "1", "X-Stager-Incarnation": node.incarnation}
    with httpx.Client(transport=httpx.HTTPTransport(uds=node.rendezvous["socket"]), base_url="http://node", timeout=60) as client:
        return list(client.get("/v1/transfers", headers=headers).json()["transfers"])


def test_transfer_of_a_dead_node_is_asked_for_again(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, *slow_workflow(rig))
    rig.until(lambda: moving(client, run), "the fetch to be under way")
    kill_node(rig)
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "f").read_text().strip() == "4000000"


def slow_upload(rig: Rig) -> tuple[Workflow, wire.Credentials]:
    """One final whose upload takes about four seconds."""
    job = rig.job("make", "head -c 4000000 /dev/zero > f", (), ("f",))
    config = {"kind": "file", "base_path": str(rig.data), "bandwidth_bytes_per_s_max": 1_000_000}
    return rig.workflow("w", [rig.final("f", 4_000_000)], [job]), wire.Credentials({"lab": config})


@pytest.mark.parametrize("meanwhile", ["goes on", "ends"])
def test_upload_that_went_on_without_the_scheduler_is_not_sent_twice(rig: Rig, meanwhile: str) -> None:
    client = rig.client()
    run = rig.submit(client, *slow_upload(rig))
    rig.until(lambda: moving(client, run), "the upload to be under way")
    kill_scheduler(rig)
    if meanwhile == "ends":
        rig.until(lambda: (rig.data / "out" / "f").exists(), "the final to be there")
    client = rig.client()
    assert rig.finished(client, run) == "succeeded"
    assert len(journaled(rig, cmd.Upload)) == 1 and len(journaled(rig, ev.TransferDone)) == 1
    assert client.run(run).ledger(lfn="f")[0].state == "durable"


def test_upload_of_a_dead_node_is_asked_for_again(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, *slow_upload(rig))
    rig.until(lambda: moving(client, run), "the upload to be under way")
    kill_node(rig)
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "f").read_bytes() == bytes(4_000_000)
    assert [path.name for path in (rig.data / "out").iterdir()] == ["f"]


@pytest.mark.slow
def test_node_that_cannot_be_asked_is_not_taken_for_empty(rig: Rig) -> None:
    """It hangs: it is ended and started again, and what it held still counts."""
    client = rig.client()
    jobs = [rig.job("make", "echo m > m", (), ("m",)), rig.job("slow", "sleep 2; cat m > f", ("m",), ("f",))]
    run = rig.submit(client, rig.workflow("w", [File("m", size_bytes=10), rig.final("f")], jobs))
    rig.until(lambda: rig.ran()["slow"] == 1, "the second job to run")
    kill_scheduler(rig)
    node = rig.stager.node_pid()
    assert node is not None
    os.kill(node, signal.SIGSTOP)
    client = rig.client()
    assert rig.finished(client, run) == "succeeded" and rig.ran() == Counter(make=1, slow=1)


def test_node_and_scheduler_dead_together(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    running(rig, client, run, 2)
    kill_scheduler(rig)
    kill_node(rig)
    client = rig.client()
    rig.gate.touch()
    assert rig.finished(client, run) == "succeeded" and rig.ran() == Counter(first=1, second=1, join=1)


def test_replicas_that_are_gone_are_fetched_or_made_again(rig: Rig) -> None:
    """The disk of the node was lost: k = 1 does not survive that, but the run does."""
    client = rig.client()
    jobs = [
        rig.job("make", "cat a > m", ("a",), ("m",)),
        rig.job("slow", f"test $(wc -l < {rig.trace}) -gt 2 || sleep 60; cat a m > f", ("a", "m"), ("f",)),
    ]
    run = rig.submit(client, rig.workflow("w", [rig.source("a", b"a\n"), File("m", size_bytes=10), rig.final("f")], jobs))
    rig.until(lambda: rig.ran()["slow"] == 1, "the second job to run")
    kill_scheduler(rig)
    end(rig.stager.reaper_pids())
    kill_node(rig)
    shutil.rmtree(rig.stager.state_dir / "node")
    client = rig.client()
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "f").read_bytes() == b"a\na\n" and rig.ran() == Counter(make=2, slow=2)


def test_a_damaged_replica_is_found_and_made_good(rig: Rig) -> None:
    """A job's linked input was changed behind everybody's back: the job is not believed, and the input is fetched anew."""
    client = rig.client()
    job = rig.job("read", f"test $(wc -l < {rig.trace}) -gt 1 || sleep 3; cat a > f", ("a",), ("f",))
    run = rig.submit(client, rig.workflow("w", [rig.source("a", b"right\n" * 50_000), rig.final("f")], [job]))
    running(rig, client, run, 1)
    rig.until(lambda: rig.ran()["read"] == 1, "the job to begin")
    [replica] = [path for path in (rig.stager.state_dir / "node" / "data").rglob("*") if path.is_file() and path.stat().st_size == 300_000]
    replica.chmod(0o600)
    with replica.open("r+b") as stream:
        stream.write(b"wrong")
    assert rig.finished(client, run) == "succeeded"
    assert (rig.data / "out" / "f").read_bytes() == b"right\n" * 50_000


def test_a_run_that_finished_in_the_last_instant_still_gets_its_summary(rig: Rig) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three())
    assert rig.finished(client, run) == "succeeded"
    client.shutdown()
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to end")
    with sqlite3.connect(rig.stager.state_dir / "runs.sqlite") as db:
        db.execute("UPDATE runs SET summary = NULL, finished_at = NULL, state = 'active'")
    db.close()
    client = rig.client()
    assert client.run(run).summary().outcome == "succeeded" and client.runs()[0].state == "succeeded"


def test_a_submit_that_never_reached_the_journal_never_happened(rig: Rig) -> None:
    place = StateDir(rig.stager.state_dir)
    place.make()
    records = RunRecords(place.runs)
    records.add(RunRecord("w-1", "s1", "w", "", time.time(), 1))
    records.close()
    client = rig.client()
    assert client.runs() == []


def test_epochs_grow_even_if_the_journal_is_taken_away(rig: Rig) -> None:
    before = rig.client().health().epoch
    kill_scheduler(rig)
    for path in rig.stager.state_dir.glob("journal.sqlite*"):
        path.unlink()
    client = rig.client()
    assert client.health().epoch > before
    run = rig.submit(client, rig.three())
    assert rig.finished(client, run) == "succeeded"


def replayed_here(rig: Rig) -> replaying.Replayed:
    """What a scheduler in this process finds."""
    stores = open_stores(StateDir(rig.stager.state_dir))
    found = replaying.replayed(stores, Limits(cores=2))
    stores.close()
    return found


def test_a_long_journal_of_runs_that_are_over_is_folded_away(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """Their summaries, ledgers of finals and logs are kept; the next start is quick."""
    client = rig.client()
    run = rig.submit(client, rig.three())
    assert rig.finished(client, run) == "succeeded"
    before = (client.run(run).summary(), client.run(run).ledger(lfn="all"))
    client.shutdown()
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to end")
    monkeypatch.setattr(replaying, "FOLD_OVER_BATCHES", 3)
    scheduler = replayed_here(rig)
    assert scheduler.machine.state.runs == {} and journaled(rig, ev.RunSubmitted) == []
    client = rig.client()
    told = client.run(run)
    assert (told.summary(), told.ledger(lfn="all")) == before
    assert told.status().info.state == "succeeded" and told.wait(lfn="all").durable is True and len(told.logs("join").logs) == 2
    with pytest.raises(InvalidInput, match="folded away"):
        told.explain(lfn="all")
    assert [info.state for info in client.runs()] == ["succeeded"]
    assert rig.finished(client, rig.submit(client, rig.three())) == "succeeded"


def test_a_journal_with_a_run_that_could_be_resumed_is_never_folded(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    client = rig.client()
    run = rig.submit(client, rig.three(held=True))
    client.run(run).stop()
    assert rig.finished(client, run) == "interrupted"
    client.shutdown()
    rig.until(lambda: rig.stager.scheduler_pid() is None, "the scheduler to end")
    monkeypatch.setattr(replaying, "FOLD_OVER_BATCHES", 3)
    scheduler = replayed_here(rig)
    assert list(scheduler.machine.state.runs) == [run]
