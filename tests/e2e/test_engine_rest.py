"""An engine's run over REST, as a plugin drives it: a real `stager serve`, a real sshd, and this test in the place of the engine.

One rule: what is at the origin is seen on its own disk, never through stager.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TypeVar

import pytest
from click.testing import CliRunner

from stager import rest, wire
from stager.cli.runs import command as runs_command
from stager.client import AsyncEngineRun, AsyncRestClient, EngineRun, RestClient
from stager.client.calls import Retries
from stager.model.errors import Denied, InvalidInput, Refused
from tests.e2e.serve_rig import Service, problem
from tests.testbed.processes import free_port
from tests.testbed.sshd import Sshd, running_sshd
from tests.testbed.waiting import wait_until

INPUTS = {"a": b"one\n" * 50_000, "b": b"two\n"}
TENANTS = """
[tenants.alice]
[[tenants.alice.origins]]
url = "{url}"
credentials = "key:{key}"
known_hosts = "{known_hosts}"
[tenants.bob]
native_jobs = true
[[tenants.bob.origins]]
url = "{url}"
credentials = "key:{key}"
known_hosts = "{known_hosts}"
"""
JOBS = ("dag.left", "dag.right", "dag.join")
# All restarts together, on a busy machine: an engine that is answered between two of them by chance begins anew.
PATIENCE_S = 250.0
T = TypeVar("T")
STAGED, DONE, REFUSED = wire.CallState.STAGED, wire.CallState.DONE, wire.CallState.REFUSED


@dataclass
class Lab:
    """A service whose tenant alice may use the origin, and may run no programs."""

    service: Service
    sshd: Sshd
    token: str
    client: RestClient

    @property
    def home(self) -> Path:
        return self.sshd.data

    def workflow(self, name: str = "dag", part_of: str = "") -> rest.EngineSubmission:
        """Two jobs that read one input each, and one that joins what they made."""
        return rest.EngineSubmission(
            part_of=part_of,
            workflow=f"""stager: 1
name: {name}
engine: airflow
origins: {{lab: "{self.sshd.url()}"}}
files: {{a: "lab:a", b: "lab:b"}}
jobs:
  dag.left: {{inputs: {{in/a: a}}, outputs: [mid/a]}}
  dag.right: {{inputs: {{in/b: b}}, outputs: [mid/b]}}
  dag.join: {{inputs: [mid/a, mid/b], outputs: {{all: "lab:out/{name}"}}}}
""",
        )

    def restart(self, *, kill: bool = True, while_away: Callable[[], object] = lambda: None) -> None:
        """Killed or ended in order, and started again, where its port is another."""
        if kill:
            self.service.kill()
        else:
            self.service.stop()
        while_away()
        self.service.start()
        self.client.close()
        self.client = RestClient(self.service.url, self.token)


@pytest.fixture(scope="module")
def lab(session_dir: Path) -> Iterator[Lab]:
    place = session_dir / "engine-rest"
    (place / "sshd").mkdir(mode=0o700, parents=True)
    with running_sshd(place / "sshd") as sshd:
        for lfn, content in INPUTS.items():
            (sshd.data / lfn).write_bytes(content)
            os.utime(sshd.data / lfn, (1_700_000_000, 1_700_000_000))
        about = {"url": sshd.url(), "key": sshd.identity_file, "known_hosts": sshd.known_hosts}
        service = Service(place / "serve", TENANTS.format(**about))
        try:
            token = service.token("alice", "submit")
            service.start()
            made = Lab(service, sshd, token, RestClient(service.url, token))
            yield made
            made.client.close()
        finally:
            service.end()


def do(engine: EngineRun, job: str, call: str, shout: bytes = b"") -> wire.CallView:
    """The task: what it reads, in capitals, joined."""
    engine.call(job, call)
    view = engine.staged(job, call, wait_s=60.0)
    assert view.state is STAGED, view
    made = b"".join(Path(entry.path).read_bytes().upper() for entry in view.inputs)
    for entry in view.outputs:
        Path(entry.path).write_bytes(made + shout)
    return engine.finish(job, call, wait_s=60.0)


def test_an_engines_dag_over_rest_ends_with_its_final_durable(lab: Lab) -> None:
    run = lab.client.engine_run(lab.workflow("whole"), key="whole/1")
    assert lab.client.engine_run(lab.workflow("whole"), key="whole/1") == run == lab.client.run_of_key("whole/1")
    assert lab.client.run_of_key("whole/2") is None
    engine = lab.client.engine(run)
    wait_until(lambda: engine.where("a").nodes == ["node0"], "the input to be prefetched before anybody calls")
    assert [do(engine, job, "try-1").state for job in ("dag.left", "dag.right")] == [DONE, DONE]
    assert (engine.where("mid/a").standing, engine.where("mid/a").places) == ("safe", [])
    assert do(engine, "dag.join", "manual__2026-11-22T10:00:00+00:00.1").state is DONE
    engine.end(True)
    engine.end(True)
    assert lab.client.run(run).wait_finished(60).state == "succeeded"
    assert (lab.home / "out" / "whole").read_bytes() == b"".join(INPUTS.values()).upper()
    assert lab.client.run(run).summary().fetched_bytes == sum(map(len, INPUTS.values()))
    assert lab.client.run(run).status().info.tenant == "alice"


def test_runs_that_are_part_of_one_dagrun_are_one_line_of_a_list(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """In the REST API, for its clients, and for `stager runs` both of a service and of a state directory."""
    dag = "lines/manual__2026-11-22T10:00:00+00:00"
    first, second, alone = (
        lab.client.engine_run(lab.workflow(name, part_of), key=f"{name}/1")
        for name, part_of in (("lines.first", dag), ("lines.second", dag), ("lines.alone", ""))
    )
    page = lab.service.client(lab.token)

    def listed(**query: str | int) -> list[tuple[str, int]]:
        found = page.get("/runs", params={"contains": "lines", **query}).raise_for_status().json()["runs"]
        return [(each["run"], each["parts"]) for each in found]

    assert listed() == listed(state="active") == [(alone, 1), (first, 2)]
    assert listed(parts="true") == [(alone, 1), (second, 1), (first, 1)] and listed(part_of=dag) == [(second, 1), (first, 1)]
    assert listed(contains="lines.second") == [(first, 2)], "found by any of its parts"
    lab.client.run(second).cancel()
    lab.client.run(second).wait_finished(60)
    (line,) = [info for info in lab.client.runs(parts=False) if info.part_of == dag]
    assert (line.run, line.state, line.jobs_total, line.finished_at) == (first, "active", 6, None)
    engine = lab.client.engine(first)
    assert [do(engine, job, "one").state for job in ("dag.left", "dag.right", "dag.join")] == [DONE, DONE, DONE]
    engine.end(True)
    ends = [lab.client.run(run).wait_finished(60) and lab.client.run(run).status().info.finished_at for run in (first, second)]
    (line,) = [info for info in lab.client.runs(parts=False) if info.part_of == dag]
    assert (line.state, line.jobs_done, line.finished_at) == ("cancelled", 3, max(end for end in ends if end is not None))
    assert {first, second, alone} <= {info.run for info in lab.client.runs()}, "clients see each unless they ask otherwise"
    lab.client.run(alone).cancel()
    monkeypatch.setenv("STAGER_TOKEN", lab.token)
    for where in (("--server", lab.service.url), ("--state-dir", str(lab.service.stager.state_dir))):
        told = CliRunner().invoke(runs_command, [*where]).output.splitlines()
        (row,) = [line for line in told if dag in line]
        assert told[0].split()[-1] == "runs" and row.split()[:3] == [first, dag, "cancelled"] and row.split()[-1] == "2", row
        told = CliRunner().invoke(runs_command, [*where, "--parts"]).output.splitlines()
        assert {line.split()[0] for line in told if line.endswith(dag)} == {first, second}


def test_the_name_of_what_a_run_is_part_of_is_bounded_and_plain(lab: Lab) -> None:
    page = lab.service.client(lab.token)
    text = lab.workflow("named").workflow
    for name in ("a\x1b[2J", "line\nline", "x" * (rest.PART_OF_MAX + 1)):
        refused = page.post("/engine-runs", json={"workflow": text, "part_of": name})
        assert refused.status_code == 422 and "part_of" in refused.text
    assert page.post("/runs", json={"workflow": text, "part_of": "x"}).status_code == 422, "only an engine has parts"


def test_the_same_async(lab: Lab) -> None:
    async def play() -> None:
        async with AsyncRestClient(lab.service.url, lab.token) as client:
            run = await client.engine_run(lab.workflow("async"), key="async/1")
            assert await client.run_of_key("async/1") == run
            engine = client.engine(run)
            await engine.call("dag.left", "one", pins=True)
            view = await engine.staged("dag.left", "one", wait_s=60.0)
            assert view.state is STAGED and [(entry.path, bool(entry.generation)) for entry in view.inputs] == [("", True)]
            assert (await engine.fail("dag.left", "one", "exit code 7")).state is not DONE
            await engine.call("dag.join", "one")
            early = await engine.staged("dag.join", "one", wait_s=60.0)
            assert early.fault is not None and early.fault.code == "not_published" and await engine.finish("dag.join", "one") == early
            await engine.end(False, "the rest of it")
            ended = await client.run(run).wait_finished(60)
            assert ended.state == "failed" and ended.fault is not None and "the rest of it" in ended.fault.message
            assert await engine.open_calls() == []
            assert (await engine.where("b")).standing == "external"

    asyncio.run(play())


def test_both_clients_have_the_same_words_for_engines() -> None:
    mine, theirs = (
        {name: inspect.signature(value).parameters.keys() for name, value in vars(kind).items() if name[0] != "_"}
        for kind in (EngineRun, AsyncEngineRun)
    )
    assert mine == theirs and len(mine) == 7


def described(calls: list[wire.OpenCall]) -> list[tuple[str, str, wire.CallState, float]]:
    return [(each.job, each.call, each.state, each.since) for each in calls]


def test_killed_between_staged_and_finished_the_call_survives_and_its_engine_knows_nothing_of_it(lab: Lab) -> None:
    run = lab.client.engine_run(lab.workflow("killed"), key="killed/1")
    engine = lab.client.engine(run)
    engine.call("dag.left", "one")
    view = engine.staged("dag.left", "one", wait_s=60.0)
    read = Path(view.inputs[0].path).read_bytes()
    before = described(engine.open_calls())
    lab.restart()
    Path(view.outputs[0].path).write_bytes(read.upper())
    engine = lab.client.engine(run)
    again = engine.staged("dag.left", "one", wait_s=60.0)
    assert (again.state, again.directory) == (STAGED, view.directory)
    assert described(engine.open_calls()) == before and [each[:3] for each in before] == [("dag.left", "one", STAGED)]
    assert engine.finish("dag.left", "one", wait_s=60.0).state is DONE
    lab.restart()
    engine = lab.client.engine(run)
    assert engine.finish("dag.left", "one").state is DONE, "said again"
    assert [do(engine, job, "one").state for job in ("dag.right", "dag.join")] == [DONE, DONE]
    engine.end(True)
    assert lab.client.run(run).wait_finished(60).state == "succeeded"
    assert (lab.home / "out" / "killed").read_bytes() == b"".join(INPUTS.values()).upper()
    assert lab.client.run(run).summary().fetched_bytes <= sum(map(len, INPUTS.values()))


def test_ended_in_order_and_started_again_the_service_goes_on_with_what_no_person_stopped(lab: Lab) -> None:
    run, stopped = (lab.client.engine_run(lab.workflow(name), key=f"{name}/1") for name in ("ended", "stopped"))
    lab.client.run(stopped).drain()
    engine = lab.client.engine(run)
    engine.call("dag.left", "one")
    view = engine.staged("dag.left", "one", wait_s=60.0)
    read = Path(view.inputs[0].path).read_bytes()
    lab.restart(kill=False)
    Path(view.outputs[0].path).write_bytes(read.upper())
    engine = lab.client.engine(run)
    assert engine.finish("dag.left", "one", wait_s=60.0).state is DONE
    assert [do(engine, job, "one").state for job in ("dag.right", "dag.join")] == [DONE, DONE]
    engine.end(True)
    lab.restart(kill=False)
    assert lab.client.run(run).wait_finished(60).state == "succeeded"
    assert (lab.home / "out" / "ended").read_bytes() == b"".join(INPUTS.values()).upper()
    assert lab.client.run(stopped).status().info.state == "interrupted"
    with pytest.raises(Refused, match="resume it first"):
        lab.client.engine(stopped).call("dag.left", "one")
    lab.client.run(stopped).resume()
    assert lab.client.engine(stopped).call("dag.left", "one").state in (wire.CallState.WAITING, STAGED)
    lab.client.run(stopped).cancel()


@pytest.mark.timeout(900)
def test_an_engine_that_only_waits_sees_nothing_of_restarts_at_any_instant(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    """It speaks to one address, and is answered late. Ends in order and kills take turns, one at each step that the engine takes: it meets
    the step, and the begin of the next.
    """
    lab.service.words = ("--listen", f"127.0.0.1:{free_port()}")
    lab.restart()
    run = lab.client.engine_run(lab.workflow("patient"), key="patient/1")
    begun: list[str] = []
    restarts = [threading.Event() for _ in (*JOBS, "end")]
    met: Counter[int] = Counter()
    threads = ThreadPoolExecutor(1)
    unanswered = Retries.unanswered

    def counted(retries: Retries, problem: Exception) -> float:
        if threading.current_thread() in threads._threads:
            met[sum(each.is_set() for each in restarts)] += 1
        return unanswered(retries, problem)

    def step(number: int, name: str, take: Callable[[], T]) -> T:
        begun.append(name)
        taken = take()
        assert restarts[number].wait(PATIENCE_S)
        return taken

    def let_it_be_met(number: int) -> None:
        restarts[number].set()
        wait_until(lambda: met[number + 1] or playing.done(), f"the engine to meet restart {number}", PATIENCE_S)

    def play() -> list[wire.CallState]:
        with RestClient(lab.service.url, lab.token) as client:
            engine = client.engine(run, patience_s=PATIENCE_S)
            done = [step(number, job, lambda job=job: do(engine, job, "one")).state for number, job in enumerate(JOBS)]
            step(len(JOBS), "end", lambda: engine.end(True))
            assert engine.open_calls() == []
            return done

    monkeypatch.setattr(Retries, "unanswered", counted)
    with threads:
        playing = threads.submit(play)
        for number in range(len(restarts)):
            wait_until(lambda number=number: len(begun) > number or playing.done(), f"step {number} of the engine", PATIENCE_S)
            if playing.done():
                break
            lab.restart(kill=number % 2 == 0, while_away=partial(let_it_be_met, number))
        assert playing.result(PATIENCE_S) == [DONE] * len(JOBS)
    assert met.keys() >= {1, 2, 3, 4}, f"each restart was met: {met}"
    assert lab.client.run(run).wait_finished(60).state == "succeeded"
    assert (lab.home / "out" / "patient").read_bytes() == b"".join(INPUTS.values()).upper()


def test_a_run_goes_on_when_a_task_is_cleared_if_its_tenant_still_may(lab: Lab) -> None:
    run = lab.client.engine_run(lab.workflow("cleared"), key="cleared/1")
    engine = lab.client.engine(run)
    do(engine, "dag.left", "one")
    engine.end(False)
    assert lab.client.run(run).wait_finished(60).state == "failed"
    good = (lab.service.stager.state_dir / "tenants.toml").read_text()
    try:
        lab.service.write_tenants("[tenants.alice]\n")
        with pytest.raises(Denied, match="no origin of yours is registered"):
            engine.call("dag.right", "two")
        assert lab.client.run(run).wait(timeout_s=0).state == "failed", "nothing has begun"
    finally:
        lab.service.write_tenants(good)
    assert [do(engine, job, "two").state for job in ("dag.right", "dag.join")] == [DONE, DONE]
    engine.end(True)
    assert lab.client.run(run).wait_finished(60).state == "succeeded"


def test_runs_and_calls_are_their_tenants_own_and_each_kind_has_its_door(lab: Lab) -> None:
    run = lab.client.engine_run(lab.workflow("own"), key="own/1")
    stranger, reader = lab.service.client(lab.service.token("bob", "submit")), lab.service.client(lab.service.token("alice", "read"))
    mine = lab.service.client(lab.token)
    for verb, path in (
        ("post", "jobs/dag.left/calls"),
        ("get", "jobs/dag.left/calls/one"),
        ("post", "end"),
        ("get", "files/a/where"),
        ("get", "calls"),
    ):
        body = {"json": {"call": "one"}} if verb == "post" else {}
        problem(stranger.request(verb, f"/runs/{run}/{path}", **body), 404, "not_found")
    assert stranger.get("/runs", params={"key": "own/1"}).json()["runs"] == []
    problem(reader.post(f"/runs/{run}/jobs/dag.left/calls", json={"call": "one"}), 403, "scope")
    assert reader.get(f"/runs/{run}/files/a/where").json()["standing"] == "external"
    problem(mine.post(f"/runs/{run}/jobs/dag.left/calls", json={"call": "../one"}), 422, "bad_parameter")
    problem(mine.post(f"/runs/{run}/jobs/nobody/calls", json={"call": "one"}), 404, "not_found")
    problem(mine.get(f"/runs/{run}/jobs/dag.left/calls/never"), 404, "not_found")
    problem(mine.post("/runs", json=lab.workflow().model_dump(exclude={"part_of"})), 403, "native_jobs")
    problem(stranger.post("/runs", json=lab.workflow().model_dump(exclude={"part_of"})), 422, "engines_workflow")
    ours = lab.workflow().workflow.replace("engine: airflow\n", "").replace("outputs: ", "run: 'true', outputs: ")
    problem(mine.post("/engine-runs", json={"workflow": ours}), 422, "no_engine")
    problem(mine.post("/engine-runs", json=lab.workflow("other").model_dump(), headers={"Idempotency-Key": "own/1"}), 409, "key_used")
    with pytest.raises(InvalidInput, match="airflow runs the jobs of this workflow"):
        lab.client.engine_run(rest.EngineSubmission(workflow=lab.workflow().workflow.replace("outputs: [mid/a]", "run: rm -rf /")))
    lab.client.run(run).cancel()
