"""stager.client over HTTP, at once and async, and the command line with --server: against a real `stager serve`."""

from __future__ import annotations

import asyncio
import inspect
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stager import rest
from stager.client import AsyncRestClient, AsyncRestRun, RestClient, RestRun
from stager.client.rest import Contents, Hosts
from stager.client.rest_async import AsyncContents, AsyncHosts
from stager.model.errors import Denied, InvalidInput, Refused, StagerError, Transient
from tests.e2e.serve_rig import Service, small
from tests.testbed.waiting import wait_until

TENANTS = '[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}"]\n'


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    place = session_dir / "rest"
    (place / "data").mkdir(parents=True)
    service = Service(place, TENANTS.format(data=place / "data"), env={"GREETING": "hello from here", "PRIVATE": "never sent"})
    try:
        yield service.start()
    finally:
        service.end()


@pytest.fixture(scope="module")
def token(service: Service) -> str:
    return service.token("alice", "submit")


@pytest.fixture
def client(service: Service, token: str) -> Iterator[RestClient]:
    with RestClient(service.url, token) as client:
        yield client


def submission(service: Service, name: str, shell: str = "tr a-z A-Z < a > b", more: str = "") -> rest.Submission:
    return rest.Submission(workflow=small(service.place / "data", name, shell, more))


def test_both_clients_have_the_same_calls() -> None:
    for one, other, least in (
        (RestClient, AsyncRestClient, 9),
        (RestRun, AsyncRestRun, 9),
        (Hosts, AsyncHosts, 3),
        (Contents, AsyncContents, 3),
    ):
        assert calls_of(one) == calls_of(other) and len(calls_of(one)) >= least


def calls_of(client: type) -> dict[str, list[str]]:
    """A property, which gives further calls, has no parameters."""
    public = {name: value for name, value in vars(client).items() if name[0] != "_"}
    return {name: list(inspect.signature(value).parameters) if callable(value) else [] for name, value in public.items()}


def test_what_talks_http_is_imported_when_it_is_asked_for() -> None:
    code = "import sys, stager.client; assert 'httpx' not in sys.modules; stager.client.RestClient; assert 'httpx' in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_run_is_submitted_followed_and_looked_at(service: Service, client: RestClient) -> None:
    wanted = submission(service, "sync", "sleep 0.5; cat a > b")
    assert client.validate(rest.WorkflowText(workflow=wanted.workflow)).finals == 1
    assert client.plan(rest.WorkflowText(workflow=wanted.workflow)).plan["format"] == "stager-plan"
    assert client.estimate(rest.EstimateQuestion(workflow=wanted.workflow)).choices
    name = client.submit(wanted, key="one")
    assert client.submit(wanted, key="one") == name
    run = client.run(name)
    run.add_key("another")
    assert client.run_of_key("another") == name == client.submit(wanted, key="another")
    kinds = [event.kind for event in run.follow()]
    assert kinds[0] == "run_submitted" and kinds[-1] == "finish_run"
    assert run.wait_finished(60).state == "succeeded" and run.wait(lfn="b").durable
    assert run.status().info.tenant == "alice" and run.summary().finals_durable == 1
    assert [entry.state for entry in run.ledger(lfn="b")] == ["durable"]
    assert any("durable" in line or "verified" in line for line in run.explain(lfn="b").lines) and run.explain(job="up").subject == "up"
    with pytest.raises(InvalidInput, match="name a file"):
        run.explain()
    assert [job.job for job in run.jobs()] == ["up"] and run.logs("up").logs and run.transfers() == [] and run.losses().files == []
    [measured] = run.jobs(job="up")
    assert measured.started_at and measured.duration_s is not None and measured.memory_peak_bytes and run.jobs(job="nosuch") == []
    assert [log.stream for log in run.logs("up", attempt="1", stream="stderr", after=0).logs] == ["stderr"]
    assert (
        name in [info.run for info in client.runs()]
        and client.nodes()[0].connected
        and any(name.endswith("/up") for name in client.profiles().profiles)
    )


def test_the_same_async(service: Service, token: str) -> None:
    async def play() -> None:
        async with AsyncRestClient(service.url, token) as client:
            name = await client.submit(submission(service, "async"))
            run = client.run(name)
            kinds = [event.kind async for event in run.follow()]
            assert kinds[-1] == "finish_run" and (await run.wait_finished(60)).state == "succeeded"
            assert [entry.state for entry in await run.ledger()] == ["durable"]
            assert name in [info.run for info in await client.runs()]
            await run.add_key("async/too")
            assert await client.run_of_key("async/too") == name
            with pytest.raises(Refused):
                await run.cancel()

    asyncio.run(play())


def test_errors_are_those_of_the_command_line(service: Service, client: RestClient) -> None:
    with pytest.raises(InvalidInput, match="no run 'nowhere'") as absent:
        client.run("nowhere").status()
    assert absent.value.code == "not_found"
    with pytest.raises(InvalidInput, match="unknown key"):
        client.submit(submission(service, "wrong", more="nonsense: 1\n"))
    with RestClient(service.url, "stg_wrong") as stranger, pytest.raises(StagerError) as refused:
        stranger.runs()
    assert isinstance(refused.value, (Denied, Transient))


def test_a_service_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stager.client.calls.PAUSE_S", 0.01)
    with RestClient("http://127.0.0.1:9", "t") as client, pytest.raises(Transient, match="http://127.0.0.1:9 does not answer"):
        client.runs()


def words(service: Service, token: str) -> list[str]:
    path = service.place / "token"
    path.touch(mode=0o600)
    path.write_text(token + "\n")
    return ["--server", service.url, "--token-file", str(path)]


def test_the_commands_serve_a_service_as_they_do_a_state_directory(service: Service, token: str) -> None:
    stager, where = service.stager, words(service, token)
    file = service.place / "workflow.yml"
    file.write_text(small(service.place / "data", "commanded", "'echo \"$GREETING\" > b; echo said'", "    env_pass: [GREETING]\n"))
    done = stager.run("submit", file, *where)
    assert "succeeded" in done.stdout and "1 of 1 final," in done.stdout
    assert (service.place / "data" / "out" / "commanded").read_text() == "hello from here\n"
    run = stager.json("runs", *where)[0]["run"]
    assert stager.json("status", run, *where)["info"]["tenant"] == "alice"
    assert stager.json("ledger", run, *where)[0]["state"] == "durable"
    assert "up" in stager.run("jobs", run, *where).stdout and "said" in stager.run("logs", run, "up", *where).stdout
    assert stager.json("wait", run, *where)["state"] == "succeeded"
    assert "attempt" in stager.run("explain", run, "--job", "up", *where).stdout
    assert "has succeeded" in stager.run("resume", run, *where).stdout
    stager.run("cancel", run, *where, code=3)
    stager.run("submit", file, "--cores", "1", *where, code=2)


def test_ctrl_c_drains_a_run_at_a_service_and_resume_goes_on(service: Service, token: str) -> None:
    stager, where = service.stager, words(service, token)
    gate, file = service.place / "gate", service.place / "held.yml"
    file.write_text(small(service.place / "data", "held", f"'until test -e {gate}; do sleep 0.05; done; cat a > b'"))
    command = stager.start("submit", file, *where)
    with RestClient(service.url, token) as client:
        run = wait_until(lambda: next((info for info in client.runs() if info.workflow == "held"), None), "the run to be there")
        wait_until(lambda: client.run(run.run).status().running, "its job to run")
        command.send_signal(signal.SIGINT)
        wait_until(lambda: client.run(run.run).status().info.state == "draining", "the run to drain")
        client.run(run.run).stop()
        out, err = command.communicate(timeout=120)
        assert command.returncode == 6 or "interrupted" in out + err, (command.returncode, out, err)
        gate.touch()
        assert "succeeded" in stager.run("resume", run.run, *where).stdout


def test_a_variable_leaves_this_machine_only_if_the_file_names_it(service: Service, token: str) -> None:
    from stager.cli.remote import is_named

    assert is_named("env_pass: [GREETING]", "GREETING")
    assert not is_named("env_pass: [GREETING]", "PRIVATE") and not is_named("env_pass: [GREETINGS]", "GREETING")
    assert not is_named("run: echo PRIVATE", "PRIVATE")


def test_a_token_is_needed_and_never_shown(service: Service, token: str) -> None:
    bad = service.place / "two"
    bad.write_text(f"{token} {token}")
    done = service.stager.run("runs", "--server", service.url, "--token-file", bad, code=2)
    assert "a token and nothing else" in done.stderr and token not in done.stderr
    assert "STAGER_TOKEN" in service.stager.run("runs", "--server", service.url, code=2).stderr
    assert "is no URL" in service.stager.run("runs", "--server", "lab:7433", "--token-file", bad, code=2).stderr
