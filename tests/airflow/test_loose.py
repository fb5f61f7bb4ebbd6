"""Files that tasks move themselves, at real servers: whatever happens on the way, what is at a place is whole, old or new."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.stager import service
from airflow.providers.stager.graph import DagFact, FileFact, TaskFact
from airflow.providers.stager.handoff import Begun, Ended, Outbox
from airflow.providers.stager.loose import DAY_S, Loose
from airflow.sdk.io import fs as airflows
from airflow.sdk.io.store import _STORE_CACHE

from tests.airflow.test_dag_runs import by_airflow, url
from tests.e2e.serve_rig import Service
from tests.testbed.places import tool_cache
from tests.testbed.s3 import S3
from tests.testbed.sshd import Sshd

__all__ = ["by_airflow", "url"]
# There, open to everybody, and nobody can read it: the system says so when the first byte is asked for.
UNREADABLE = Path("/proc/self/mem")
MID = FileFact("stager://exchanged/mid")
OLD, NEW = b"what was there\n", b"what is new\n" * 500_000


@pytest.fixture
def loose(tmp_path: Path) -> Loose:
    return Loose(tmp_path / "fallback", "r1", (), "stager_default")


@pytest.fixture
def new(tmp_path: Path) -> Path:
    path = tmp_path / "new"
    path.write_bytes(NEW)
    return path


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    _STORE_CACHE.clear()
    yield
    _STORE_CACHE.clear()


def replaced_or_left(loose: Loose, uri: str, new: Path, there: Any, beside: Any) -> None:
    """`there()`: the content at its place; `beside()`: all names of its directory."""
    before = beside()
    with pytest.raises(OSError, match="Input/output error"):
        loose.put(UNREADABLE, uri)
    assert there() == OLD, "a failed put has harmed what was there"
    assert beside() == before, "a failed put has left something"
    loose.put(new, uri)
    assert there() == NEW
    assert beside() == before


def names(directory: Path) -> list[str]:
    return sorted(each.name for each in directory.iterdir())


@pytest.mark.usefixtures("by_airflow")
def test_at_an_ssh_server(lab: Sshd, url: str, loose: Loose, new: Path) -> None:
    place = lab.data / "loose"
    place.mkdir()
    (place / "product").write_bytes(OLD)
    replaced_or_left(loose, f"{url}/loose/product", new, (place / "product").read_bytes, lambda: names(place))
    with pytest.raises(OSError):
        loose.put(new, f"{url}/loose")
    assert not [name for name in names(lab.data) if name.startswith(".")], "its name was a directory's"


def test_on_this_machine(tmp_path: Path, loose: Loose, new: Path) -> None:
    place = tmp_path / "here"
    place.mkdir()
    (place / "product").write_bytes(OLD)
    replaced_or_left(loose, f"file://{place}/product", new, (place / "product").read_bytes, lambda: names(place))


@pytest.fixture
def s3fs(s3: S3, monkeypatch: pytest.MonkeyPatch) -> Any:
    """By the file system that Amazon's provider hands out, without the hundred packages that it brings."""
    (site,) = (tool_cache() / "s3clients").glob("lib/python3*/site-packages")
    monkeypatch.setattr(sys, "path", [*sys.path, str(site)])
    module = pytest.importorskip("s3fs")
    known = airflows._register_filesystems()
    # Said as an option it would be sent as the place of a new bucket, where this region has no name.
    monkeypatch.setenv("AWS_DEFAULT_REGION", s3.region)
    made = module.S3FileSystem(key=s3.access_key, secret=s3.secret_key, endpoint_url=s3.endpoint, skip_instance_cache=True)
    monkeypatch.setattr(airflows, "_register_filesystems", lambda: {**known, "s3": lambda conn_id, options: made})
    return made


def test_in_a_bucket(s3fs: Any, loose: Loose, new: Path) -> None:
    s3fs.mkdir("loose")
    s3fs.pipe_file("loose/out/product", OLD)

    def beside() -> list[str]:
        s3fs.invalidate_cache()
        return s3fs.ls("loose/out", detail=False)

    replaced_or_left(loose, "s3://loose/out/product", new, lambda: s3fs.cat_file("loose/out/product"), beside)


def test_as_an_object_of_the_service(served: Service, client: Any, loose: Loose, new: Path) -> None:
    from airflow.sdk import ObjectStoragePath

    path = ObjectStoragePath("stager://loose/product")
    path.write_bytes(OLD)
    with pytest.raises(OSError, match="Input/output error"):
        loose.put(UNREADABLE, "stager://loose/product")
    assert path.read_bytes() == OLD
    loose.put(new, "stager://loose/product")
    assert path.read_bytes() == NEW


def test_what_a_dag_run_that_failed_left_in_the_fallback_directory_stays_until_nobody_clears_it_any_more(
    new: Path, connect: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("stager.client.calls.TRIES", 1)
    connect("stager_default", "http://127.0.0.1:9", "token")
    dag = DagFact("exchanged", (TaskFact("make", True, outlets=(MID,)), TaskFact("read", True, (MID,), upstream=("make",))))
    runs = {name: service.loose_of(dag, name) for name in ("lives", "failed", "again", "succeeded", "lately")}
    for loose in runs.values():
        loose.put(new, MID.uri)
    outbox = Outbox(lambda: None)
    for name in ("failed", "again", "lately"):
        outbox.tell(Ended(dag, name, False, ""))
    outbox.drain()
    for name in ("failed", "again"):
        stamp = loose.fallback_dir / "ended" / runs[name].private
        os.utime(stamp, (time.time() - 31 * DAY_S,) * 2)
    outbox.tell(Begun(dag, "again"))
    outbox.tell(Ended(dag, "succeeded", True, ""))
    outbox.drain()
    assert [name for name, loose in runs.items() if loose.is_newer(MID.uri)] == ["lives", "again", "lately"]


def test_a_configuration_with_the_names_of_before_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert service.fallback_days() == 30.0
    monkeypatch.setenv("AIRFLOW__STAGER__FALLBACK_DIR", str(tmp_path / "now"))
    monkeypatch.setenv("AIRFLOW__STAGER__FALLBACK_DAYS", "7")
    assert (service.fallback_dir(), service.fallback_days()) == (tmp_path / "now", 7.0)
    for now, before in service.BEFORE.items():
        monkeypatch.delenv(f"AIRFLOW__STAGER__{now.upper()}")
        monkeypatch.setenv(f"AIRFLOW__STAGER__{before.upper()}", str(tmp_path / "before") if now == "fallback_dir" else "9")
    assert (service.fallback_dir(), service.fallback_days()) == (tmp_path / "before", 9.0)
