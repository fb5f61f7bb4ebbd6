"""A run whose jobs a foreign engine runs, against a real scheduler, a real I/O node and a real sshd: this test is the engine.

May know: the socket API. One rule: what is at the origin is seen on its own disk, never through stager.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.client import Client
from stager.model.errors import InvalidInput, Refused
from stager.model.files import Destination, File, Location, Source
from stager.model.topology import embedded
from stager.model.workflow import Job, JobInput, JobOutput, Origin, OriginKind, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.policy import Limits
from tests.e2e.service_rig import CAPACITY_BYTES, Rig
from tests.testbed.sshd import Sshd

INPUTS = {"a": b"one\n" * 50_000, "b": b"two\n"}


@dataclass
class Engine:
    """Calls the jobs of one run."""

    rig: Rig
    home: Path
    client: Client
    run: str = ""

    def ask(self, what: str, **body: Any) -> wire.CallView:
        path = f"/v1/runs/{self.run}/calls{what}"
        return wire.CallView.model_validate_json(self.client.post(path, json.dumps(body).encode()))

    def call(self, job: str, call: str, **more: Any) -> wire.CallView:
        self.ask("", job=job, call=call, **more)
        began = time.monotonic()
        view = self.ask("/staged", job=job, call=call, wait_s=60.0)
        assert time.monotonic() - began < 50.0, "the answer came when the wait was over, and not when there was one"
        return view

    def finish(self, job: str, call: str) -> wire.CallView:
        return self.ask("/finish", job=job, call=call, wait_s=60.0)

    def do(self, job: str, call: str, shout: str = "") -> wire.CallView:
        """The task: what it reads, in capitals, joined."""
        view = self.call(job, call)
        assert view.state is wire.CallState.STAGED, view
        content = b"".join(Path(entry.path).read_bytes().upper() for entry in view.inputs)
        for entry in view.outputs:
            Path(entry.path).write_bytes(content + shout.encode())
        return self.finish(job, call)

    def end(self, *, succeeded: bool = True) -> None:
        self.client.post(f"/v1/runs/{self.run}/end", json.dumps({"succeeded": succeeded}).encode())

    def where(self, lfn: str) -> wire.FileWhere:
        return self.client.get(wire.FileWhere, f"/v1/runs/{self.run}/where", lfn=lfn)

    def standing(self, lfn: str) -> str:
        return self.client.run(self.run).ledger(lfn=lfn)[0].state

    def finished(self) -> str:
        return self.rig.finished(self.client, self.run)

    def fetched_bytes(self) -> int:
        return self.client.run(self.run).summary().fetched_bytes

    def kill_scheduler(self) -> None:
        os.kill(self.client.health().pid, signal.SIGKILL)
        self.rig.until(lambda: self.rig.stager.scheduler_pid() is None, "the scheduler to be gone")
        self.client = self.rig.client()


def job(name: str, reads: tuple[str, ...], makes: str, **more: Any) -> Job:
    return Job(name, name, inputs=tuple(JobInput(lfn, f"in/{lfn}") for lfn in reads), outputs=(JobOutput(makes, f"out/{makes}"),), **more)


def joined(origin: Origin) -> Workflow:
    """Two jobs that read one input each, and one that joins what they made."""
    files = [File(lfn, size_bytes=len(content), sources=(Source(Location("lab", lfn), len(content)),)) for lfn, content in INPUTS.items()]
    files += [File("a.mid", size_bytes=300_000), File("b.mid", size_bytes=10)]
    files += [File("all", size_bytes=300_000, destination=Destination(Location("lab", "out/all")))]
    jobs = [job("left", ("a",), "a.mid"), job("right", ("b",), "b.mid"), job("join", ("a.mid", "b.mid"), "all")]
    return Workflow("dag", {file.lfn: file for file in files}, {each.id: each for each in jobs}, {"lab": origin}, engine="airflow")


def lab(server: Sshd) -> Origin:
    """As a scheduler that was restarted can work it out again."""
    options = (("known_hosts", str(server.known_hosts)),)
    return Origin("lab", OriginKind.SFTP, server.url(), f"key:{server.identity_file}", options)


def submit(rig: Rig, client: Client, server: Sshd, workflow: Workflow) -> str:
    plan = make_plan(workflow, embedded(CAPACITY_BYTES, cores=2), limits=Limits(cores=2))
    return client.submit(workflow, plan, wire.Credentials({"lab": server.origin()}, {}))


@pytest.fixture
def engine(short_dir: Path, sshd: Sshd) -> Iterator[Engine]:
    rig = Rig(short_dir)
    for lfn, content in INPUTS.items():
        (sshd.data / lfn).write_bytes(content)
        os.utime(sshd.data / lfn, (1_700_000_000, 1_700_000_000))
    client = rig.client()
    made = Engine(rig, sshd.data, client)
    made.run = submit(rig, client, sshd, joined(lab(sshd)))
    yield made
    rig.end()


def test_an_engine_runs_a_dag_and_its_final_is_durable_at_the_origin(engine: Engine) -> None:
    engine.rig.until(lambda: engine.where("a").nodes == ["node0"], "the input to be prefetched before anybody calls")
    assert engine.do("left", "try-1").state is wire.CallState.DONE
    assert engine.do("right", "try-1").state is wire.CallState.DONE
    place = engine.where("a.mid")
    assert (place.standing, place.nodes, place.places) == ("safe", ["node0"], [])
    assert engine.do("join", "try-1").state is wire.CallState.DONE
    engine.rig.until(lambda: engine.standing("all") == "durable", "the final to be home")
    assert engine.standing("a.mid") == "safe"
    engine.end()
    assert engine.finished() == "succeeded"
    assert (engine.home / "out" / "all").read_bytes() == b"".join(INPUTS.values()).upper()
    assert engine.fetched_bytes() == sum(map(len, INPUTS.values()))
    assert (engine.where("a").standing, engine.where("a").places) == ("external", [wire.Place(origin="lab", path="a")])


def test_killed_between_staged_and_finished_the_call_survives(engine: Engine) -> None:
    view = engine.call("left", "try-1")
    read = Path(view.inputs[0].path).read_bytes()
    engine.kill_scheduler()
    Path(view.outputs[0].path).write_bytes(read.upper())
    again = engine.call("left", "try-1")
    assert (again.state, again.directory) == (wire.CallState.STAGED, view.directory)
    assert engine.finish("left", "try-1").state is wire.CallState.DONE
    assert engine.finish("left", "try-1").state is wire.CallState.DONE
    engine.kill_scheduler()
    engine.do("right", "try-1")
    engine.do("join", "try-1")
    engine.end()
    assert engine.finished() == "succeeded"
    assert (engine.home / "out" / "all").read_bytes() == b"".join(INPUTS.values()).upper()
    assert engine.fetched_bytes() == sum(map(len, INPUTS.values()))


def test_killed_right_after_it_was_told_of_the_end_it_takes_what_was_made(engine: Engine) -> None:
    view = engine.call("left", "try-1")
    Path(view.outputs[0].path).write_bytes(b"made")
    engine.ask("/finish", job="left", call="try-1", wait_s=0.0)
    engine.kill_scheduler()
    engine.rig.until(lambda: engine.where("a.mid").nodes == ["node0"], "the output to be taken")
    assert engine.finish("left", "try-1").state is wire.CallState.DONE


def test_a_cleared_task_runs_again_and_its_final_replaces_ours_and_nobody_elses(engine: Engine) -> None:
    for name in ("left", "right", "join"):
        engine.do(name, "try-1")
    final = engine.home / "out" / "all"
    engine.rig.until(lambda: engine.standing("all") == "durable", "the final to be home")
    engine.do("join", "try-2", shout="again")
    engine.rig.until(lambda: final.read_bytes().endswith(b"again") and engine.standing("all") == "durable", "the new final to be home")
    final.write_bytes(b"somebody else's")
    engine.do("join", "try-3", shout="once more")
    engine.end()
    assert engine.finished() == "not_durable"
    assert final.read_bytes() == b"somebody else's"
    assert engine.client.run(engine.run).ledger(lfn="all")[0].fault


def test_what_was_not_published_or_not_made_is_refused_by_name(engine: Engine) -> None:
    early = engine.call("join", "try-1")
    assert early.state is wire.CallState.REFUSED and early.fault is not None
    assert early.fault.code == "not_published" and "'left'" in early.fault.message
    engine.call("left", "try-1")
    missing = engine.finish("left", "try-1")
    assert missing.state is wire.CallState.REFUSED and missing.fault is not None and missing.fault.code == "outputs_missing"
    assert engine.do("left", "try-2").state is wire.CallState.DONE


def test_a_failed_call_is_tried_again_and_a_lost_one_is_replaced(engine: Engine) -> None:
    first = engine.call("left", "try-1")
    failed = engine.ask("/fail", job="left", call="try-1", message="exit code 7")
    assert failed.state in (wire.CallState.REFUSED, wire.CallState.WAITING)
    lost = engine.call("left", "try-2")
    assert lost.state is wire.CallState.STAGED and lost.directory != first.directory
    newer = engine.call("left", "try-3")
    assert newer.state is wire.CallState.STAGED
    late = engine.ask("/finish", job="left", call="try-2", wait_s=5.0)
    assert late.state is wire.CallState.REFUSED and late.fault is not None and late.fault.code == "call_replaced"
    Path(newer.outputs[0].path).write_bytes(b"made")
    assert engine.finish("left", "try-3").state is wire.CallState.DONE


def test_a_run_that_failed_goes_on_when_a_task_of_it_is_cleared(engine: Engine) -> None:
    engine.do("left", "try-1")
    engine.call("right", "try-1")
    engine.ask("/fail", job="right", call="try-1", message="exit code 7")
    engine.end(succeeded=False)
    assert engine.finished() == "failed"
    for name in ("right", "join"):
        assert engine.do(name, "try-2").state is wire.CallState.DONE
    engine.end()
    engine.end()
    assert engine.finished() == "succeeded"
    assert (engine.home / "out" / "all").read_bytes() == b"".join(INPUTS.values()).upper()
    assert engine.fetched_bytes() == sum(map(len, INPUTS.values()))


def test_inputs_that_are_only_held_are_not_copied(engine: Engine) -> None:
    view = engine.call("left", "try-1", pins=True)
    (held,) = view.inputs
    assert (held.path, bool(held.file), bool(held.generation)) == ("", True, True)
    assert not Path(view.directory, "in").exists()
    Path(view.outputs[0].path).write_bytes(b"made")
    assert engine.finish("left", "try-1").state is wire.CallState.DONE


def test_what_is_asked_wrongly_is_said_so(engine: Engine, sshd: Sshd) -> None:
    with pytest.raises(InvalidInput, match="has no job 'nobody'"):
        engine.call("nobody", "try-1")
    with pytest.raises(InvalidInput, match="never called as 'try-9'"):
        engine.ask("/staged", job="left", call="try-9")
    with pytest.raises(InvalidInput, match="has a command, and airflow is to run the jobs"):
        workflow = joined(lab(sshd))
        workflow.jobs["left"] = job("left", ("a",), "a.mid", shell="true")
        submit(engine.rig, engine.client, sshd, workflow)
    engine.client.run(engine.run).drain()
    with pytest.raises(Refused, match="takes no calls"):
        engine.call("left", "try-1")
