"""`ObjectStoragePath("stager://…")`: objects of a service over a connection of Airflow."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from airflow.sdk import ObjectStoragePath
from airflow.sdk.io.store import _STORE_CACHE

from tests.airflow.dag_rig import run_dag, state_of, told
from tests.e2e.serve_rig import Service


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    service = Service(Path(tempfile.mkdtemp(dir=session_dir)), "[tenants.t]\n", ("--storage", "50 MB", "--storage-listen", "127.0.0.1:0"))
    try:
        yield service.start()
    finally:
        service.end()


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    """Airflow keeps one store for each connection as long as the process lives; tests before these have had theirs."""
    _STORE_CACHE.clear()
    yield
    _STORE_CACHE.clear()


@pytest.mark.filterwarnings("error::UserWarning")
def test_a_path_with_a_connection_and_one_without(service: Service, token: str, connect: Callable[..., None]) -> None:
    connect("lab", service, token)
    connect("stager_default", service, token)
    path = ObjectStoragePath("stager://lab@survey/night/one.txt")
    path.write_text("hello")
    assert ObjectStoragePath("stager://survey/night/one.txt").read_text() == "hello"
    assert [str(each) for each in ObjectStoragePath("stager://lab@survey/night").iterdir()] == ["stager://lab@survey/night/one.txt"]
    assert path.exists() and path.stat().st_size == 5 and not (path / "no").exists()
    path.unlink()
    assert not path.exists()


def test_who_may_only_read_may_not_write(service: Service, token: str, connect: Callable[..., None]) -> None:
    connect("stager_default", service, token)
    connect("reader", service, service.token("t", "read"))
    ObjectStoragePath("stager://shared/a").write_text("x")
    assert ObjectStoragePath("stager://reader@shared/a").read_text() == "x"
    with pytest.raises(PermissionError):
        ObjectStoragePath("stager://reader@shared/b").write_text("x")


def test_tasks_hand_objects_to_each_other(service: Service, token: str, connect: Callable[..., None]) -> None:
    """A path is returned by one task and used by the next; the token is in no XCom."""
    connect("stager_default", service, token)
    run = run_dag(
        "objects",
        """
@task
def make():
    path = ObjectStoragePath("stager://handed/over.txt")
    with path.open("w") as stream:
        stream.write("hello")
    return path

@task
def shout(path):
    target = path.parent / "shouted.txt"
    target.write_text(path.read_text().upper())
    return target.read_text()

shout(make())
""",
    )
    assert (state_of(run, "make"), told(run, "shout")) == ("success", "HELLO")
    assert token not in repr(told(run, "make")) and "handed/over.txt" in str(told(run, "make"))
