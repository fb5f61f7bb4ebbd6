"""DAGs by dag.test(): what their tasks read and make goes through a real service, whose origin is a real sshd.

One rule: what is at the origin is seen on its own disk, never through stager.
"""

from __future__ import annotations

import json
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.stager.calls import Calls, Try
from airflow.providers.stager.files import TaskFiles
from airflow.providers.stager.graph import DagFact, FileFact, TaskFact

from stager import rest
from stager.client import RestClient
from tests.airflow.conftest import at_the_lab
from tests.airflow.dag_rig import load_dag, run_dag, state_of
from tests.e2e.origin_rig import known_hosts_of
from tests.e2e.serve_rig import NO_STORAGE, Service
from tests.testbed.link import Link
from tests.testbed.processes import free_port
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

HERE = Path(__file__).parent
INPUTS = {"region.hdr": b"header\n", "raw/t1.fits": b"one\n" * 50_000, "raw/t2.fits": b"two\n" * 50_000}
MOSAIC = b"".join(INPUTS["region.hdr"] + INPUTS[f"raw/t{n}.fits"] for n in (1, 2))
LARGE_BYTES = 40_000_000
# One name for one URI, whichever DAG says it: Airflow wants that.
READS_AND_MAKES = """
LAB = {lab!r}
raw, header, product = (Asset(name, uri=f"{{LAB}}/{{path}}") for name, path in
    [("raw1", "raw/t1.fits"), ("header", "region.hdr"), ("product-{name}", "out/{name}")])
"""


@pytest.fixture
def url(lab: Sshd, monkeypatch: pytest.MonkeyPatch) -> str:
    found = f"sftp://127.0.0.1:{lab.port}{lab.data}"
    monkeypatch.setenv("STAGER_TEST_LAB", found)
    return found


@pytest.fixture
def by_airflow(lab: Sshd, monkeypatch: pytest.MonkeyPatch) -> None:
    """The user's own connection to the lab."""
    key = lab.host_key.with_name(lab.host_key.name + ".pub").read_text().split()
    extra = {"key_file": str(lab.identity_file), "host_key": " ".join(key[:2]), "no_host_key_check": False}
    fields = {"conn_type": "sftp", "host": "127.0.0.1", "port": lab.port, "login": lab.user, "extra": extra}
    monkeypatch.setenv("AIRFLOW_CONN_SFTP_DEFAULT", json.dumps(fields))


def dag_of(name: str) -> Any:
    return load_dag(Path(shutil.copy(HERE / name, Path(os.environ["AIRFLOW_HOME"], "dags"))))


def ended(client: RestClient, dag_id: str) -> Any:
    """The newest run of that DAG, when the service has been told that it is over."""

    def look() -> Any:
        titles = {each.workflow: each for each in reversed(client.runs()) if len(each.workflow.split()) == 2}
        info = next((each for title, each in titles.items() if title.startswith(f"{dag_id} ")), None)
        return info if info is not None and info.state in ("succeeded", "failed") else None

    return wait_until(look, f"the run of {dag_id} to end: {client.runs()}", 240)


def staged(lab: Sshd, url: str, name: str, body: str) -> Any:
    (lab.data / "out" / name).unlink(missing_ok=True)
    return run_dag(name, READS_AND_MAKES.format(lab=url, name=name) + body)


def test_a_dag_reads_each_file_once_and_its_final_is_home_verified(lab: Sshd, url: str, client: RestClient) -> None:
    result = dag_of("montage_dag.py").test()
    assert result.state == "success"
    run = client.run(ended(client, "montage").run)
    summary = run.summary()
    assert (lab.data / "out/mosaic.fits").read_bytes() == MOSAIC
    assert (summary.outcome, summary.fetched_bytes, summary.jobs_done) == ("succeeded", sum(map(len, INPUTS.values())), 3)
    (final,) = [entry for entry in run.ledger() if entry.final]
    assert (final.state, bool(final.verified)) == ("durable", True)


@pytest.mark.usefixtures("by_airflow")
def test_without_the_service_it_does_the_same_with_one_warning_in_each_task(
    lab: Sshd, url: str, connect: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    connect("stager_default", "http://127.0.0.1:9", "token")
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    monkeypatch.setenv("AIRFLOW__STAGER__PATIENCE_S", "0")
    (lab.data / "out/mosaic.fits").unlink(missing_ok=True)
    exchanged = Path(os.environ["AIRFLOW_HOME"], "stager", "runs")
    # Of DagRuns of other tests, whose service has gone.
    before = {each.name for each in exchanged.iterdir()} if exchanged.exists() else set()
    with caplog.at_level(logging.WARNING):
        assert dag_of("montage_dag.py").test().state == "success"
    assert (lab.data / "out/mosaic.fits").read_bytes() == MOSAIC
    said = [record.getMessage() for record in caplog.records if "moves its files itself" in record.getMessage()]
    assert sorted(line.split()[0] for line in said) == ["add", "project", "project_by_command"]
    assert all("http://127.0.0.1:9" in line for line in said)
    assert not list((lab.data / "out").glob(".*")), "a name of its own until it is whole"
    wait_until(lambda: {each.name for each in exchanged.iterdir()} <= before, "what tasks exchanged to be gone with their DagRun")


def test_a_task_that_fails_gives_back_what_it_was_given(lab: Sshd, url: str, client: RestClient) -> None:
    result = staged(
        lab,
        url,
        "fails",
        """
@task.stager(inlets=[raw], outlets=[product])
def half(files):
    files[product].write_bytes(files[raw].read_bytes()[:10])
    raise RuntimeError("no more")

half()
""",
    )
    assert result.state == "failed"
    run = client.run(ended(client, "fails").run)
    assert (run.summary().outcome, run.summary().jobs_done) == ("failed", 0)
    assert not (lab.data / "out/fails").exists()


def test_a_task_that_does_not_write_what_it_said_has_failed(lab: Sshd, url: str, client: RestClient) -> None:
    """Also where nothing but templates knows of stager."""
    result = staged(
        lab,
        url,
        "forgets",
        """
BashOperator(task_id="by_command", bash_command="wc {{ macros.stager.input('%s') }}; true {{ macros.stager.output('%s') }}"
    % (raw.uri, product.uri), inlets=[raw], outlets=[product])
""",
    )
    assert (result.state, state_of(result, "by_command")) == ("failed", "failed")
    ended(client, "forgets")


@pytest.fixture
def line(lab: Sshd, served: Service, link: Callable[..., Link], short_dir: Path) -> Iterator[Link]:
    """Another way to the lab, on which something large is long under way."""
    made = link(lab.port, bytes_per_s=LARGE_BYTES / 60)
    url, known_hosts = lab.url().replace(f":{lab.port}/", f":{made.port}/"), known_hosts_of(lab, made.port, short_dir / "known_hosts")
    origin = f'[[tenants.t.origins]]\nurl = "{url}"\ncredentials = "key:{lab.identity_file}"\nknown_hosts = "{known_hosts}"\n'
    served.write_tenants(at_the_lab(lab) + origin)
    yield made
    served.write_tenants(at_the_lab(lab))


def let_go(line: Link, client: RestClient, dag_id: str, job: str, told: Callable[[], bool]) -> None:
    """When the job was called, and so was told that its input is not there, and its trigger has told what is on its way."""

    def called() -> bool:
        runs = [each.run for each in client.runs() if each.workflow.startswith(f"{dag_id} ")]
        return any(call.job == job for run in runs for call in client.engine(run).open_calls())

    wait_until(called, f"{job} to be called", 240)
    wait_until(told, "the trigger to tell what is on its way", 240)
    line.bytes_per_s = None


def test_a_deferred_task_is_called_once(
    lab: Sshd, url: str, client: RestClient, line: Link, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """One that waits for a large input so, and one that defers by itself after its templates were rendered."""
    (lab.data / "large").write_bytes(bytes(LARGE_BYTES))
    os.utime(lab.data / "large", (1_700_000_000, 1_700_000_000))
    told = lambda: "on their way: " in caplog.text  # noqa: E731
    letting = threading.Thread(target=let_go, args=(line, client, "waits", "look", told))
    letting.start()
    caplog.set_level(logging.INFO)
    result = staged(
        lab,
        url,
        "waits",
        """
from datetime import timedelta
from pathlib import Path
from airflow.providers.standard.triggers.temporal import TimeDeltaTrigger
from airflow.sdk import BaseOperator

class Later(BaseOperator):
    template_fields = ("source", "sink")
    def __init__(self, source, sink, **more):
        super().__init__(**more)
        self.source, self.sink = source, sink
    def execute(self, context):
        Path(self.sink).write_bytes(Path(self.source).read_bytes())
        self.defer(trigger=TimeDeltaTrigger(timedelta(seconds=0)), method_name="resume")
    def resume(self, context, event):
        assert Path(self.sink).read_bytes() == Path(self.source).read_bytes()

later = Later(task_id="later", source="{{ macros.stager.input('raw1') }}", sink="{{ macros.stager.output('product-waits') }}",
    inlets=[raw], outlets=[product])

large = Asset("large", uri="FAR/large")

@task.stager(inlets=[large], deferrable=True)
def look(files):
    assert files[large].stat().st_size == 40_000_000

look() >> later
""".replace("FAR", url.replace(f":{lab.port}/", f":{line.port}/")),
    )
    letting.join()
    assert result.state == "success"
    run = client.run(ended(client, "waits").run)
    assert {job.job: job.attempts for job in run.jobs()} == {"later": 1, "look": 1}
    assert (lab.data / "out/waits").read_bytes() == INPUTS["raw/t1.fits"]
    assert capsys.readouterr().out.count("Pausing task as DEFERRED") == 2
    assert f"on their way: sftp://127.0.0.1:{line.port}{lab.data}/large: " in caplog.text, "by the trigger, at once"
    assert "stager staged 1 inlets (40 MB) of look in " in caplog.text


def test_mapped_tasks_are_served_one_by_one(lab: Sshd, url: str, client: RestClient, caplog: pytest.LogCaptureFixture) -> None:
    result = staged(
        lab,
        url,
        "tiles",
        """
from airflow.providers.stager.operators.stage import StagerOperator

def shrink(files, tile):
    small = files[f"{LAB}/raw/t{tile}.fits"].read_bytes()[:4] + files[header].read_bytes()
    files[f"{LAB}/out/tile{tile}"].write_bytes(small)
    files[f"stager://tiles/{tile}"].write_bytes(small)

@task.stager(inlets=[Asset(f"stager://tiles/{n}") for n in (1, 2)], outlets=[product])
def together(files):
    files[product].write_text("".join(files[f"stager://tiles/{n}"].read_text() for n in (1, 2)))

StagerOperator.partial(task_id="shrink", python_callable=shrink, inlets=[header]).expand_kwargs([
    {"op_kwargs": {"tile": n}, "more_inputs": [f"{LAB}/raw/t{n}.fits"], "more_outputs": [f"{LAB}/out/tile{n}", f"stager://tiles/{n}"]}
    for n in (1, 2)]) >> together()
""",
    )
    assert result.state == "success"
    runs = [each.run for each in client.runs() if each.workflow.startswith("tiles ")]
    assert [client.run(run).wait_finished(240).state for run in runs] == ["succeeded", "succeeded", "succeeded"]
    (line,) = [each for each in client.runs(parts=False) if each.part_of == f"tiles/{result.run_id}"]
    assert (line.parts, line.state) == (3, "succeeded"), "one line for the DagRun"
    assert (lab.data / "out/tiles").read_text() == "one\nheader\ntwo\nheader\n", "exchanged as objects of the service"
    assert "fallback directory" not in caplog.text
    assert [(lab.data / f"out/tile{n}").read_text() for n in (1, 2)] == ["one\nheader\n", "two\nheader\n"]


def test_a_task_that_waits_in_its_slot_tells_its_run_at_once_and_what_keeps_it(
    lab: Sshd, url: str, client: RestClient, line: Link, caplog: pytest.LogCaptureFixture
) -> None:
    uri = f"{url}/slow".replace(f":{lab.port}/", f":{line.port}/")
    (lab.data / "slow").write_bytes(bytes(LARGE_BYTES))
    os.utime(lab.data / "slow", (1_700_000_000, 1_700_000_000))
    caplog.set_level(logging.INFO)
    told: list[tuple[str, str]] = []
    dag = DagFact("slot", (TaskFact("look", True, (FileFact(uri),)),))
    files = TaskFiles(Calls(Try("slot", "r1", "look", -1, 1, "slot1"), dag))
    files.calls.tell = lambda run, job: told.append((run, job))
    waiting = threading.Thread(target=lambda: files.stage([uri], []))
    waiting.start()
    wait_until(lambda: f"waiting for the 1 inlets of look to be staged by run {client.runs()[0].run}: " in caplog.text, "it to be said")
    assert told == [(client.runs()[0].run, "look")] and uri not in files.inputs
    line.bytes_per_s = None
    waiting.join()
    assert files[uri].stat().st_size == LARGE_BYTES
    files.finish()
    client.run(told[0][0]).cancel()


def test_mapped_tasks_of_the_decorator_name_their_files_when_they_run(
    lab: Sshd, url: str, client: RestClient, caplog: pytest.LogCaptureFixture
) -> None:
    """As docs/operating/airflow-files.md shows it."""
    caplog.set_level(logging.WARNING)
    result = staged(
        lab,
        url,
        "mapped_files",
        """
@task.stager(inlets=[header])
def shrink(files, tile):
    raw = files.input(f"{LAB}/raw/{tile}.fits")
    files.output(f"{LAB}/out/small-{tile}.fits").write_bytes(raw.read_bytes()[:4] + files[header].read_bytes())

shrink.expand(tile=["t1", "t2"])
""",
    )
    assert result.state == "success"
    assert [(lab.data / f"out/small-t{n}.fits").read_text() for n in (1, 2)] == ["one\nheader\n", "two\nheader\n"]
    assert not [each for each in caplog.records if each.levelno >= logging.WARNING and "stager" in each.name]


@pytest.mark.usefixtures("by_airflow")
def test_what_the_service_refuses_is_moved_by_the_task_and_the_rest_by_the_service(
    lab: Sshd, url: str, client: RestClient, short_dir: Path
) -> None:
    """One file is not there yet when the DagRun begins, and one is where this tenant has nothing to do."""
    (short_dir / "elsewhere").write_text("else\n")
    result = staged(
        lab,
        url,
        "partly",
        f"""
from pathlib import Path
late, other = Asset("late", uri=f"{{LAB}}/late"), Asset("other", uri="file://{short_dir}/elsewhere")
arrives = BashOperator(task_id="arrives", bash_command="echo late > {lab.data}/late")

@task.stager(inlets=[raw])
def first(files):
    assert files[raw].stat().st_size == 200_000

@task.stager(inlets=[late, other, header], outlets=[product])
def join(files):
    files[product].write_text(files[late].read_text() + files[other].read_text() + files["header"].read_text())

first() >> arrives >> join()
""",
    )
    assert result.state == "success"
    info = ended(client, "partly")
    assert (lab.data / "out/partly").read_text() == "late\nelse\nheader\n"
    assert sorted(job.job for job in client.run(info.run).jobs(state="done")) == ["first", "join"]
    (own,) = [each for each in client.runs() if each.workflow.startswith(f"{info.workflow} of try-1.join.")]
    assert client.run(own.run).wait_finished(240).state == "succeeded", "by then the service could fetch the one that came late"


@pytest.mark.usefixtures("by_airflow")
def test_while_another_run_writes_to_the_same_place_all_else_is_staged(lab: Sshd, url: str, client: RestClient) -> None:
    jobs = {"j": {"outputs": {"x": {"to": "lab:shared"}}}}
    other = {"stager": 1, "name": "other", "engine": "airflow", "origins": {"lab": f"{url}/out"}, "jobs": jobs}
    held = client.engine_run(rest.EngineSubmission(workflow=json.dumps(other)), key="other")
    result = staged(
        lab,
        url,
        "shared",
        """
@task.stager(inlets=[raw], outlets=[product, Asset("stager://shared/mid")])
def copy(files):
    files["stager://shared/mid"].write_bytes(files[raw].read_bytes())
    files[product].write_bytes(files[raw].read_bytes())

@task.stager(inlets=[Asset("stager://shared/mid")])
def look(files):
    assert files["stager://shared/mid"].stat().st_size == 200_000

copy() >> look()
""",
    )
    assert result.state == "success"
    assert (lab.data / "out/shared").read_bytes() == INPUTS["raw/t1.fits"]
    run = client.run(ended(client, "shared").run)
    assert (run.summary().jobs_done, run.summary().finals_total) == (2, 0)
    client.engine(held).end(False)


LOSES_THE_SERVICE = """
import time
from pathlib import Path

def lose_the_service(name):
    Path({place!r}, name).touch()
    end = time.monotonic() + 120
    while not Path({place!r}, name + ".gone").exists():
        assert time.monotonic() < end, "nobody took the service away"
        time.sleep(0.05)

@task.stager(inlets=[raw], outlets=[product])
def slow(files):
    files[product].write_bytes(files[raw].read_bytes())
    lose_the_service("first")

@task
def between():
    lose_the_service("second")

@task.stager(inlets=[product, header])
def look(files):
    assert files[product].stat().st_size == 200_000

slow() >> between() >> look()
"""


def die_and_return(service: Service, place: Path, caplog: pytest.LogCaptureFixture, over: threading.Event) -> None:
    """While each of the two tasks runs. Until `over`, with which the test ends, however."""

    def wait(condition: Callable[[], bool], what: str) -> bool:
        return wait_until(lambda: over.is_set() or condition(), what) and not over.is_set()

    for name in ("first", "second"):
        if not wait((place / name).exists, f"the {name} task to run"):
            return
        service.kill()
        said = len(caplog.text)
        (place / f"{name}.gone").touch()
        # The next task begins, or this one hands over, while nobody is there.
        if not wait(lambda said=said: "waiting for it, at most" in caplog.text[said:], "a task to wait for the service"):
            return
        service.start()


def test_the_service_may_die_while_a_task_runs_and_be_away_when_the_next_begins(
    lab: Sshd, url: str, session_dir: Path, short_dir: Path, connect: Any, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = mortal_service(session_dir, lab)
    # A few tries more than one may be enough for a service that starts fast, and then it would not be the provider that waits.
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    # The client itself waits for a minute before the provider does.
    monkeypatch.setitem(RestClient.engine.__kwdefaults__, "patience_s", 1.0)

    over = threading.Event()
    threads = ThreadPoolExecutor(1)
    try:
        token = service.start().token("t", "submit")
        connect("stager_default", service, token)
        dying = threads.submit(die_and_return, service, short_dir, caplog, over)
        result = staged(
            lab,
            url,
            "survives",
            LOSES_THE_SERVICE.format(place=str(short_dir)),
        )
        assert result.state == "success"
        dying.result(120)
        assert "moves its files itself" not in caplog.text
        with RestClient(service.url, token) as client:
            run = client.run(ended(client, "survives").run)
            assert {job.job: job.attempts for job in run.jobs()} == {"slow": 1, "look": 1}
        assert (lab.data / "out/survives").read_bytes() == INPUTS["raw/t1.fits"]
    finally:
        # Nobody starts it again once it has been ended.
        over.set()
        threads.shutdown()
        service.end()


def mortal_service(session_dir: Path, lab: Sshd) -> Service:
    """On a port that it has again when it is started again."""
    words = ("--listen", f"127.0.0.1:{free_port()}", *NO_STORAGE)
    return Service(Path(tempfile.mkdtemp(dir=session_dir)), at_the_lab(lab), words)
