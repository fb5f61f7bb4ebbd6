"""What a task's tries make of one another, and how its waiting outlives the service and the triggerer."""

from __future__ import annotations

import asyncio
import logging
import tempfile
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.stager.hooks.stager import StagerHook
from airflow.providers.stager.operators.submit import StagerSubmitOperator
from airflow.providers.stager.sensors.stager import StagerDurableSensor
from airflow.providers.stager.submission import Attempted, attempt, key_of, read_submission
from airflow.providers.stager.triggers.stager import StagerDurableTrigger, StagerRunTrigger, StagerServiceTrigger
from airflow.providers.stager.waiting import LINES, patiently, takes_runs
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowException, AirflowFailException, TaskDeferralTimeout, TaskDeferred

from stager.client import AsyncRestClient, RestClient
from stager.model.errors import SERVICE_AWAY_CODES, Refused, StagerError, Transient
from tests.airflow.conftest import TENANT
from tests.e2e.serve_rig import NO_STORAGE, Service, small
from tests.testbed.processes import free_port
from tests.testbed.waiting import wait_until


def instance(dag: str, max_tries: int = 0, **more: Any) -> SimpleNamespace:
    return SimpleNamespace(**({"dag_id": dag, "run_id": "r 1", "task_id": "t", "map_index": -1, "max_tries": max_tries} | more))


@pytest.fixture
def client(service: Service, token: str, connect) -> Iterator[RestClient]:
    connect("stager_default", service, token)
    with RestClient(service.url, token) as client:
        yield client


def gated(data: Path, name: str, more: str = "") -> str:
    """It goes on when the file `open-NAME` is there."""
    return small(data, name, f"while ! test -e {data}/open-{name}; do sleep 0.05; done; cat a > b", more)


def open_gate(data: Path, name: str) -> None:
    (data / f"open-{name}").touch()


def tried(client: RestClient, text: str, dag: str, max_tries: int = 0, retries: int = 0, **more: Any) -> Attempted:
    return attempt(client, instance(dag, max_tries), retries, read_submission(text, (), Path("/")).model_copy(update=more))


def test_a_retry_joins_the_run_that_goes_on_and_takes_the_one_that_succeeded(client: RestClient, data: Path) -> None:
    text = gated(data, "joined")
    first = tried(client, text, "joined", 2, 2)
    assert first.taken == "submitted"
    assert tried(client, text, "joined", 2, 2) == Attempted(first.run, "joined")
    open_gate(data, "joined")
    assert client.run(first.run).wait_finished(240).state == "succeeded"
    assert tried(client, text, "joined", 2, 2) == Attempted(first.run, "succeeded")


def test_a_retry_resumes_what_failed(client: RestClient, data: Path) -> None:
    text = small(data, "mended", f"test -e {data}/open-mended && cat a > b")
    first = tried(client, text, "mended")
    assert client.run(first.run).wait_finished(240).state == "failed"
    open_gate(data, "mended")
    assert tried(client, text, "mended", 1, 0) == Attempted(first.run, "resumed"), "a task that was cleared goes on with it too"
    assert client.run(first.run).wait_finished(240).state == "succeeded"
    assert tried(client, text, "mended", 1, 0) == Attempted(first.run, "succeeded"), "its worker died after the run's end"


def test_a_task_that_is_cleared_while_its_run_goes_on_has_that_run_from_then_on(client: RestClient, data: Path) -> None:
    text = gated(data, "kept")
    first = tried(client, text, "kept", 2, 2)
    assert tried(client, text, "kept", 3, 2) == Attempted(first.run, "joined")
    open_gate(data, "kept")
    assert client.run(first.run).wait_finished(240).state == "succeeded"
    assert tried(client, text, "kept", 3, 2) == Attempted(first.run, "succeeded"), "a retry of the task that was cleared"
    again = tried(client, text, "kept", 4, 2)
    assert again.taken == "submitted" and again.run != first.run, "cleared after success"
    client.run(again.run).wait_finished(240)


def test_a_task_that_is_cleared_after_success_runs_anew(client: RestClient, data: Path) -> None:
    text = small(data, "anew")
    first = tried(client, text, "anew")
    client.run(first.run).wait_finished(240)
    again = tried(client, text, "anew", 1, 0)
    assert again.taken == "submitted" and again.run != first.run
    client.run(again.run).wait_finished(240)
    assert tried(client, text, "anew", 1, 0) == Attempted(again.run, "succeeded")


def test_a_changed_workflow_is_another_run_and_a_changed_secret_is_not(client: RestClient, data: Path) -> None:
    text = gated(data, "changed", "    env_pass: [WORD]\n")
    first = tried(client, text, "changed", env={"WORD": "one"})
    assert tried(client, text, "changed", env={"WORD": "two"}) == Attempted(first.run, "joined")
    client.run(first.run).cancel()
    assert tried(client, small(data, "changed2"), "changed").taken == "submitted"


def test_what_somebody_cancelled_is_submitted_anew_only_when_the_task_is_cleared(client: RestClient, data: Path) -> None:
    text = gated(data, "called-off")
    first = tried(client, text, "off", 3, 3)
    client.run(first.run).cancel()
    client.run(first.run).wait_finished(240)
    with pytest.raises(Refused, match=f"{first.run} of this task was cancelled; clear"):
        tried(client, text, "off", 3, 3)
    again = tried(client, text, "off", 4, 3)
    assert again.taken == "submitted"
    client.run(again.run).cancel()


def test_a_workflow_of_pegasus_with_its_catalogs(tmp_path: Path) -> None:
    (tmp_path / "catalogs").mkdir()
    (tmp_path / "catalogs" / "replicas.yml").write_text("pegasus: 5.0\n")
    (tmp_path / "diamond.yml").write_text("x: 1\n")
    read = read_submission("diamond.yml", ["catalogs/replicas.yml"], tmp_path, kind="pegasus", options={"no_direct": True})
    assert (read.file_name, read.format, read.files) == ("diamond.yml", "pegasus", {"replicas.yml": "pegasus: 5.0\n"})
    assert read.options.no_direct


def test_keys_are_what_a_service_takes_and_differ_by_all_that_names_a_task_instance() -> None:
    submission = read_submission("a: 1\n", (), Path("/"))
    keys = {
        key_of(instance("d", **more), submission, series)
        for series in (0, 1)
        for more in ({}, {"dag_id": "e"}, {"run_id": "manual__2024-01-01T00:00:00+00:00"}, {"task_id": "ü" * 300}, {"map_index": 1})
    }
    assert len(keys) == 10
    assert all(len(key) <= 200 and key.isascii() and key.isprintable() and " " not in key for key in keys)


class Background:
    """A coroutine on a thread of its own."""

    def __init__(self, coroutine: Any) -> None:
        self.future: Future[Any] = Future()
        self.thread = threading.Thread(target=lambda: self._run(coroutine), daemon=True)
        self.thread.start()

    def _run(self, coroutine: Any) -> None:
        try:
            self.future.set_result(asyncio.run(coroutine))
        except BaseException as problem:
            self.future.set_exception(problem)


async def first_event(trigger: Any) -> Any:
    async for event in trigger.run():
        return event.payload
    return None


def end_at_once(service: Service, client: RestClient, run: str) -> None:
    """A second SIGTERM counts once the first was heard."""
    assert service.process is not None
    service.process.terminate()
    wait_until(lambda: client.run(run).wait(timeout_s=0).state == "draining", "the run to drain")
    service.process.terminate()
    service.process.wait(240)


@pytest.mark.parametrize("ending", ["killed", "ended"])
def test_waiting_outlives_the_service(service: Service, client: RestClient, connect, data: Path, ending: str) -> None:
    """After kill -9 the run goes on by itself. A service that was told to end interrupts it, which is told once it is back."""
    name = f"outlived-{ending}"
    run = tried(client, gated(data, name), name).run
    wait_until(lambda: client.run(run).status().running, "the job to run")
    made, known = StagerRunTrigger(run, "stager_default").serialize()
    assert made.endswith("triggers.stager.StagerRunTrigger")
    waiting = Background(first_event(StagerRunTrigger(**known)))
    service.words = (*NO_STORAGE, "--listen", service.url.removeprefix("http://"))
    if ending == "killed":
        service.kill()
        open_gate(data, name)
    else:
        end_at_once(service, client, run)
    assert not waiting.future.done()
    service.start()
    event = waiting.future.result(240)
    assert event["run"] == run
    assert (event["state"], event["by"]) == (("succeeded", "") if ending == "killed" else ("interrupted", "service"))
    if ending == "ended":
        open_gate(data, name)
        operator = StagerSubmitOperator(task_id="t", workflow=gated(data, name), deferrable=False)
        operator.dag = DAG(name, schedule=None)
        summary = operator.run_ended({"ti": instance(name)}, event)
        assert (summary["run"], summary["outcome"]) == (run, "succeeded")


@pytest.fixture
def away(session_dir: Path, data: Path, connect, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    """A service that is known and was ended, on a port that it has again when it is started again."""
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    words = (*NO_STORAGE, "--listen", f"127.0.0.1:{free_port()}")
    made = Service(Path(tempfile.mkdtemp(dir=session_dir)), TENANT.format(data=data), words)
    try:
        connect("stager_default", made.start(), made.token("t", "submit"))
        made.kill()
        yield made
    finally:
        made.end()


def submitting(data: Path, name: str, **more: Any) -> tuple[StagerSubmitOperator, dict[str, Any]]:
    operator = StagerSubmitOperator(task_id="t", workflow=small(data, name), **more)
    operator.dag = DAG(name, schedule=None)
    return operator, {"ti": instance(name, xcom_push=lambda key, value: None)}


def test_a_submit_waits_for_a_service_that_is_away_and_says_so(away: Service, data: Path, caplog: pytest.LogCaptureFixture) -> None:
    operator, context = submitting(data, "away", deferrable=False)
    done: Future[Any] = Future()
    with caplog.at_level(logging.INFO):
        waiting = threading.Thread(target=lambda: done.set_result(operator.execute(context)), daemon=True)
        waiting.start()
        wait_until(lambda: "waiting for it for 0 s now, at most 21" in caplog.text, "the task to say that it waits")
        away.start()
        assert done.result(240)["outcome"] == "succeeded"
    waiting.join()
    assert "of 1 jobs done" in caplog.text, "what it waits for afterwards"


def test_a_submit_without_a_service_gives_its_slot_back_and_its_patience_is_bounded(away: Service, data: Path) -> None:
    operator, context = submitting(data, "away-deferred", patience_s=30.0)
    with pytest.raises(TaskDeferred) as deferred:
        operator.execute(context)
    trigger, left_s = deferred.value.trigger, deferred.value.kwargs["left_s"]
    assert isinstance(trigger, StagerServiceTrigger) and 0 < trigger.patience_s <= 30
    with pytest.raises(AirflowException, match="does not answer.*connection 'stager_default'"):
        operator.service_back(context, {"error": "x", "waited_s": 30.0}, left_s)
    away.start()
    event = asyncio.run(first_event(StagerServiceTrigger(**trigger.serialize()[1])))
    assert "error" not in event and event["waited_s"] > 0
    with pytest.raises(TaskDeferred) as submitted:
        operator.service_back(context, event, left_s)
    assert isinstance(submitted.value.trigger, StagerRunTrigger)


def refusing(monkeypatch: pytest.MonkeyPatch, connect, problem: StagerError, times: int) -> list[int]:
    """Submits are answered so, and nobody is there to be asked. How often it was asked."""
    asked: list[int] = []

    def answered(*_: Any) -> Attempted:
        asked.append(1)
        if len(asked) > times:
            raise Refused("enough", code="enough")
        raise problem

    monkeypatch.setattr("airflow.providers.stager.submission.attempt", answered)
    monkeypatch.setattr(StagerHook, "get_conn", lambda self: nullcontext())
    connect("stager_default", "http://127.0.0.1:9", "x")
    return asked


@pytest.mark.parametrize("code", ["origin_unreachable", "busy", "timeout"])
def test_what_the_service_says_itself_is_told_and_not_waited_for(data: Path, connect, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    """An origin that cannot be listed comes as 503 too. The service was ready all the time, so the task planned again and again."""
    asked = refusing(monkeypatch, connect, Transient("the lab does not answer", code=code), 1)
    operator, context = submitting(data, "own-word")
    with pytest.raises(AirflowException, match="the lab does not answer"):
        operator.execute(context)
    assert len(asked) == 1


@pytest.mark.parametrize("code", sorted(SERVICE_AWAY_CODES))
def test_a_service_that_comes_and_goes_is_waited_for_in_a_loop(data: Path, connect, monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    asked = refusing(monkeypatch, connect, Transient("away", code=code), 2000)
    operator, context = submitting(data, "comes-and-goes", deferrable=False)
    monkeypatch.setattr(operator, "_waited_here", lambda waiting: {})
    with pytest.raises(AirflowException, match="enough"):
        operator.execute(context)
    assert len(asked) == 2001


def test_patience_ends_and_is_for_what_may_come_back_only() -> None:
    async def nobody() -> None:
        async with AsyncRestClient("http://127.0.0.1:9", "x") as client:
            await patiently(lambda: takes_runs(client), patience_s=0.0)

    with pytest.raises(Transient, match="does not answer"):
        asyncio.run(nobody())


def test_what_no_waiting_mends_is_told_at_once(service: Service, connect, client: RestClient) -> None:
    connect("stranger", service, "no-such-token")
    assert "token" in asyncio.run(first_event(StagerRunTrigger("r", "stranger")))["error"]
    assert "you have no run 'r'" in asyncio.run(first_event(StagerRunTrigger("r", "stager_default")))["error"]


def refusals(service: Service) -> float:
    """How often it has said: too many open answers, come again."""
    text = service.client(service.token("t", "admin")).get(f"{service.url}/metrics").text
    lines = [line for line in text.splitlines() if line.startswith("stager_rest_requests_total") and 'status="429"' in line]
    return sum(float(line.rpartition(" ")[2]) for line in lines)


def test_many_tasks_wait_in_turn(service: Service, client: RestClient, data: Path) -> None:
    """More than the service keeps answers open for a tenant: of hundreds some would be refused until their patience is over."""
    run = tried(client, gated(data, "many"), "many").run
    waits = 60

    async def all_of_them() -> list[Any]:
        waiting = [asyncio.create_task(first_event(StagerRunTrigger(run, "stager_default"))) for _ in range(waits)]
        while sum(line.waiting for line in LINES.values()) < waits:
            await asyncio.sleep(0.02)
        assert len(LINES) == 1
        open_gate(data, "many")
        return await asyncio.wait_for(asyncio.gather(*waiting), 240)

    assert [event["state"] for event in asyncio.run(all_of_them())] == ["succeeded"] * waits
    assert not LINES and refusals(service) == 0


@pytest.mark.parametrize(("when_killed", "state"), [("stop", "interrupted"), ("cancel", "cancelled"), ("leave", "active")])
def test_a_task_that_a_user_ends_ends_its_run(client: RestClient, data: Path, when_killed: str, state: str) -> None:
    """In the triggerer, and in a worker, and when its time is up."""
    name = f"killed-{when_killed}"
    run = tried(client, gated(data, name), name).run
    asyncio.run(StagerRunTrigger(run, "stager_default", when_killed).on_kill())
    wait_until(lambda: client.run(run).wait(timeout_s=0).state == state, f"the run to be {state}")
    if when_killed == "cancel":
        with pytest.raises(AirflowFailException, match=f"{run} is cancelled"):
            StagerSubmitOperator(task_id="t", workflow="x").run_ended({}, {"run": run, "state": state, "message": ""})
    if when_killed != "cancel":
        tried(client, gated(data, name), name)
        operator = StagerSubmitOperator(task_id="t", workflow="x", when_killed=when_killed)
        pulled = instance(name, xcom_pull=lambda **_: run)
        with pytest.raises(TaskDeferralTimeout):
            operator.resume_execution("__fail__", {"error": "Trigger timeout"}, {"ti": pulled})
        wait_until(lambda: client.run(run).wait(timeout_s=0).state == state, f"the run to be {state} again")
        with pytest.raises(AirflowException, match="interrupted|active"):
            operator.run_ended({}, {"run": run, "state": state, "message": ""})
        client.run(run).cancel()


@pytest.mark.parametrize("verb", ["stop", "drain"])
def test_a_run_that_a_person_stops_stands_still_until_the_task_is_cleared(client: RestClient, data: Path, verb: str) -> None:
    """Not even a retry goes on with it; what Airflow, or the end of the service, interrupts is another thing."""
    name = f"stood-still-{verb}"
    text = gated(data, name)
    run = tried(client, text, name, 3, 3).run
    wait_until(lambda: client.run(run).status().running, "the job to run")
    getattr(client.run(run), verb)()
    if verb == "drain":
        # Its only job is done then, and so would the run be.
        client.run(run).stop("mary")
    event = asyncio.run(first_event(StagerRunTrigger(run, "stager_default")))
    told_of = "was stopped, not" if verb == "stop" else "was stopped by mary, not"
    with pytest.raises(AirflowFailException, match=f"{run} {told_of} by its task; clear the task"):
        StagerSubmitOperator(task_id="t", workflow=text).run_ended({}, event)
    with pytest.raises(Refused, match="clear the task to go on with it"):
        tried(client, text, name, 3, 3)
    assert tried(client, text, name, 4, 3) == Attempted(run, "resumed")
    client.run(run).cancel()


def test_what_airflow_stopped_late_is_gone_on_with_by_the_try_that_joined_it(client: RestClient, data: Path) -> None:
    """A task is cleared, its next try begins, and only then the triggerer ends what the one before it waited for."""
    name = "joined-and-stopped"
    text = gated(data, name)
    run = tried(client, text, name).run
    assert tried(client, text, name, 1, 0) == Attempted(run, "joined")
    asyncio.run(StagerRunTrigger(run, "stager_default").on_kill())
    event = asyncio.run(first_event(StagerRunTrigger(run, "stager_default")))
    assert (event["state"], event["by"]) == ("interrupted", "airflow")
    operator = StagerSubmitOperator(task_id="t", workflow=text)
    operator.dag = DAG(name, schedule=None)
    with pytest.raises(TaskDeferred):
        operator.run_ended({"ti": instance(name)}, event)
    assert client.run(run).wait(timeout_s=0).state == "active"
    client.run(run).cancel()


def test_a_sensor_that_pokes_says_so_too(client: RestClient, data: Path) -> None:
    run = tried(client, small(data, "never-poked", "exit 1"), "never-poked").run
    client.run(run).wait_finished(240)
    for lfns, told_of in (("b", "'b' is not durable"), ((), "0 of 1 products")):
        sensor = StagerDurableSensor(task_id="t", run=run, lfns=lfns, deferrable=False)
        with pytest.raises(AirflowException, match=told_of):
            sensor.poke({})


def test_a_task_that_is_ended_while_it_submits_leaves_no_run_going(client: RestClient, data: Path) -> None:
    class Ended(StagerSubmitOperator):
        def _submission(self, context: Any) -> Any:
            self.on_kill()
            return super()._submission(context)

    operator = Ended(task_id="t", workflow=gated(data, "early"))
    operator.dag = DAG("early", schedule=None)
    told: dict[str, Any] = {}
    pushing = instance("early", xcom_push=lambda key, value: told.update({key: value}))
    with pytest.raises(AirflowException, match="was ended while it submitted"):
        operator.execute({"ti": pushing})
    wait_until(lambda: client.run(told["stager_run"]).wait(timeout_s=0).state == "interrupted", "its run to be stopped")


def test_what_can_never_be_durable_is_said_at_once(client: RestClient, data: Path) -> None:
    run = tried(client, small(data, "never", "exit 1"), "never").run
    for lfns in (["b"], []):
        event = asyncio.run(first_event(StagerDurableTrigger(run, lfns, "stager_default")))
        assert "durable" in event["error"] and run in event["error"]
    assert "error" in asyncio.run(first_event(StagerDurableTrigger(run, ["no such file"], "stager_default")))
