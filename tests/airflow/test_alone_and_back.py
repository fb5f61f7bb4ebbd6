"""Tries of one DagRun that run with the service and without it by turns: whoever reads gets what was made last.

One rule: the service is real, dies by SIGKILL, and is started again with all that it knew.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.stager import service
from airflow.providers.stager.calls import Calls, Try
from airflow.providers.stager.facts import dag_fact
from airflow.providers.stager.files import TaskFiles
from airflow.providers.stager.graph import DagFact, FileFact, TaskFact
from airflow.providers.stager.handoff import Ended, Outbox
from airflow.providers.stager.listener import submit_readers
from airflow.providers.stager.operators.stage import StagerOperator
from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset
from airflow.sdk.exceptions import AirflowException

from stager.client import RestClient
from tests.airflow.test_dag_runs import by_airflow, mortal_service, url
from tests.e2e.serve_rig import Service
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

__all__ = ["by_airflow", "url"]
MID = "stager://turns/mid"
LARGE_BYTES = 5_000_000


class Turns:
    """A DAG of a maker, whose files are a product and one that only tasks exchange, and a reader of both."""

    def __init__(self, url: str) -> None:
        self.product = f"{url}/out/turns"
        self.files = (self.product, MID)
        facts = tuple(FileFact(uri) for uri in self.files)
        self.dag = DagFact("turns", (TaskFact("make", True, outlets=facts), TaskFact("read", True, facts, upstream=("make",))))
        self.tries = 0

    def task(self, name: str) -> TaskFiles:
        """Another try of it, as after a clear."""
        self.tries += 1
        return TaskFiles(Calls(Try("turns", "r1", name, -1, self.tries, f"try{self.tries}"), self.dag))

    def make(self, content: str, *, staged: bool) -> None:
        files = self.task("make")
        files.stage([], self.files)
        assert bool(files.calls.staged) is staged
        for uri in self.files:
            files[uri].write_text(content)
        files.finish()

    def read(self, uris: tuple[str, ...] = ()) -> list[str]:
        files = self.task("read")
        try:
            files.stage(uris or self.files, [])
            return [files[uri].read_text() for uri in uris or self.files]
        finally:
            files.finish()


def test_what_another_task_made_anew_is_fetched_anew(lab: Sshd, url: str, client: RestClient) -> None:
    """By a service that alone has the way to it: no connection of Airflow leads there."""
    seen = Asset("seen", uri=f"{url}/out/seen")
    with DAG("anew", schedule=None) as dag:
        observe = EmptyOperator(task_id="observe", outlets=[seen])
        observe >> StagerOperator(task_id="read", python_callable=print, inlets=[seen])
    place = lab.data / "out/seen"
    place.parent.mkdir(exist_ok=True)
    for number, content in enumerate(("one", "two", "six")):
        place.write_text(content)
        os.utime(place, (1_700_000_000 + number,) * 2)
        submit_readers(observe, "r1")
        for reader in ("a", "b"):
            files = TaskFiles(Calls(Try("anew", "r1", "read", -1, number, f"{reader}{number}"), dag_fact(dag)))
            files.stage([seen.uri], [])
            assert files[seen].read_text() == content
            files.finish()
    (first,) = [each for each in client.runs() if each.workflow == "anew r1 after observe"]
    assert client.run(first.run).status().fetched_bytes == 3, "what was read first was prefetched"


def test_what_a_task_made_is_home_when_it_has_succeeded(lab: Sshd, url: str, client: RestClient) -> None:
    """Tasks and DAGs that know nothing of stager begin then, and read it there."""
    product, mid = FileFact(f"{url}/out/home"), FileFact(MID)
    reader = TaskFact("read", True, (product, mid), upstream=("make",))
    dag = DagFact("home", (TaskFact("make", True, outlets=(product, mid)), reader))
    for number in range(3):
        content = f"{number}" * LARGE_BYTES
        files = TaskFiles(Calls(Try("home", "r1", "make", -1, number, f"home{number}"), dag))
        files.stage([], [product.uri, mid.uri])
        for each in (product, mid):
            files[each.uri].write_text(content)
        files.finish()
        assert (lab.data / "out/home").read_text() == content


@pytest.mark.parametrize("waits", [True, False])
def test_what_does_not_get_home_fails_its_task_unless_nobody_waits_for_it(
    waits: bool, lab: Sshd, url: str, client: RestClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__STAGER__WAIT_FOR_HOME", str(waits))
    name = f"barred-{waits}"
    product, place = FileFact(f"{url}/{name}/product"), lab.data / name
    place.mkdir()
    dag = DagFact(name, (TaskFact("make", True, outlets=(product,)),))
    files = TaskFiles(Calls(Try(name, "r1", "make", -1, 1, name), dag))
    files.stage([], [product.uri])
    files[product.uri].write_text("never home")
    place.rmdir()
    place.write_text("no directory any more")
    if waits:
        with pytest.raises(AirflowException, match="product was made and did not get to its place"):
            files.finish()
    else:
        files.finish()


def test_what_a_mapped_task_made_is_home_when_it_has_succeeded(lab: Sshd, url: str, client: RestClient) -> None:
    """Its readers get it from there, also when it is cleared."""
    tile = FileFact(f"{url}/out/tile")
    dag = DagFact("tile", (TaskFact("cut", True, outlets=(tile,), many=True), TaskFact("read", True, (tile,), upstream=("cut",))))
    for number in range(3):
        content = f"{number}" * LARGE_BYTES
        files = TaskFiles(Calls(Try("tile", "r1", "cut", 0, number, f"cut{number}"), dag))
        files.stage([], [tile.uri])
        assert files.calls.staged
        files[tile.uri].write_text(content)
        files.finish()
        assert (lab.data / "out/tile").read_text() == content
        files = TaskFiles(Calls(Try("tile", "r1", "read", -1, number, f"read{number}"), dag))
        files.stage([tile.uri], [])
        assert files.calls.staged and files[tile.uri].read_text() == content
        files.finish()


@pytest.fixture
def mortal(session_dir: Path, lab: Sshd, connect: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    monkeypatch.setenv("AIRFLOW__STAGER__PATIENCE_S", "0")
    monkeypatch.setenv("AIRFLOW__STAGER__AWAY_TIMEOUT_S", "0")
    made = mortal_service(session_dir, lab)
    try:
        connect("stager_default", made.start(), made.token("t", "submit"))
        yield made
    finally:
        made.end()


def at_home(lab: Sshd, content: str) -> None:
    place = lab.data / "out/turns"
    wait_until(lambda: place.is_file() and place.read_text() == content, f"the product to be {content!r} at home")


@pytest.mark.usefixtures("by_airflow")
def test_who_reads_gets_what_was_made_last_whether_the_service_was_there_or_not(lab: Sshd, url: str, mortal: Service) -> None:
    turns = Turns(url)
    turns.make("by the service", staged=True)
    at_home(lab, "by the service")
    mortal.kill()
    turns.make("alone", staged=False)
    assert turns.read() == ["alone", "alone"]
    mortal.start()
    assert turns.read() == ["alone", "alone"], "and not what the service was given before"
    turns.make("again by it", staged=True)
    at_home(lab, "again by it")
    assert turns.read() == ["again by it", "again by it"]
    mortal.kill()
    assert turns.read((turns.product,)) == ["again by it"]
    with pytest.raises(AirflowException, match=f"{MID} .*is held by the service, which is away.*Nothing has to be made again"):
        turns.read((MID,))
    turns.make("alone at last", staged=False)
    loose = service.loose_of(turns.dag, "r1")
    assert all(loose.is_newer(uri) for uri in turns.files)
    outbox = Outbox(lambda: None)
    outbox.tell(Ended(turns.dag, "r1", True, ""))
    outbox.drain()
    assert not any(loose.is_newer(uri) for uri in turns.files), "gone with the DagRun"


PARTS = [f"stager://parts/{number}" for number in range(4)]


def tried(dag: DagFact, task: str, number: int) -> TaskFiles:
    return TaskFiles(Calls(Try(dag.dag_id, "r1", task, -1, number, f"{dag.dag_id}{task}{number}"), dag))


def makes(dag: DagFact, task: str, *, staged: bool, content: str = "") -> None:
    files = tried(dag, task, 1)
    fact = next(each for each in dag.tasks if each.task_id == task)
    files.stage([each.uri for each in fact.inlets], [each.uri for each in fact.outlets])
    assert bool(files.calls.staged) is staged, files.calls.refused
    read = "".join(files[each.uri].read_text() for each in fact.inlets)
    for each in fact.outlets:
        files[each.uri].write_text(f"{read}{content or task} ")
    files.finish()


def of_parts(name: str, product: str) -> DagFact:
    """`one` and `two` make a part each, `three` makes one of what `two` made, and `total` reads all of them."""
    files = [FileFact(uri.replace("parts", name)) for uri in PARTS]
    three = TaskFact("three", True, (files[1],), (files[2],), ("two",))
    total = TaskFact("total", True, (files[0], files[1], files[2]), (FileFact(product),), ("one", "three"))
    return DagFact(name, (TaskFact("one", True, outlets=(files[0],)), TaskFact("two", True, outlets=(files[1],)), three, total))


def test_parts_made_with_the_service_and_without_it_come_together(lab: Sshd, url: str, mortal: Service) -> None:
    dag = of_parts("together", f"{url}/out/together")
    makes(dag, "one", staged=True)
    mortal.kill()
    makes(dag, "two", staged=False)
    makes(dag, "three", staged=False)
    mortal.start()
    makes(dag, "total", staged=True)
    assert (lab.data / "out/together").read_text() == "one two two three total "


def test_a_service_that_alone_has_a_part_is_waited_for(
    lab: Sshd, url: str, mortal: Service, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    dag = of_parts("waited", f"{url}/out/waited")
    makes(dag, "one", staged=True)
    mortal.kill()
    for task in ("two", "three"):
        makes(dag, task, staged=False)
    monkeypatch.setenv("AIRFLOW__STAGER__AWAY_TIMEOUT_S", "120")
    total = threading.Thread(target=lambda: makes(dag, "total", staged=True))
    total.start()
    wait_until(lambda: f"which alone has {dag.tasks[0].outlets[0].uri}, at most" in caplog.text, "the task to say what it waits for")
    mortal.start()
    total.join(120)
    assert (lab.data / "out/waited").read_text() == "one two two three total "


def test_a_task_that_cannot_hand_over_gives_its_slot_back_in_time(lab: Sshd, url: str, mortal: Service) -> None:
    dag = of_parts("bounded", f"{url}/out/bounded")
    files = tried(dag, "one", 1)
    files.stage([], [dag.tasks[0].outlets[0].uri])
    mortal.kill()
    for called in files.calls.staged:
        called.of.run.patience_s = 0.0
    with pytest.raises(AirflowException, match="the files that one made could not be handed over.*does not answer.*next try of this task"):
        files.finish()
