"""Which process keeps a host, by the lock of its directory; and what ends it."""

from __future__ import annotations

import errno
import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from stager.model.errors import Denied, Refused, StagerError, Transient
from stager.service import host_keeper
from stager.service.host_keeper import LOCK, HostKeeper, KeeperState, keeper_pid, kept, state_of
from stager.service.host_node import HostDir, Record, WorkerRecord


@pytest.fixture
def place(tmp_path: Path) -> HostDir:
    return HostDir(tmp_path)


def test_a_second_keeper_is_refused_and_the_first_is_named(place: HostDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(host_keeper, "ASKED_FOR_S", 0.1)
    assert keeper_pid(place) is None
    with kept(place):
        assert keeper_pid(place) == os.getpid()
        with pytest.raises(Refused, match="another `stager host run` keeps the host"), kept(place):
            pass
    assert keeper_pid(place) is None


def test_who_asks_for_a_keeper_is_not_taken_for_one(place: HostDir) -> None:
    """The question is a lock of a moment. Here it lasts as long as on a machine that stands still for a while."""
    (place.root / LOCK).touch()
    asks = os.open(place.root / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    fcntl.flock(asks, fcntl.LOCK_SH)
    over = threading.Timer(0.2, os.close, [asks])
    over.start()
    began = time.monotonic()
    with kept(place):
        assert time.monotonic() - began > 0.1 and keeper_pid(place) == os.getpid()
    over.join()


RECORD = Record("10.0.0.1:7435", "a", 1000, "10.0.0.2:7411", worker=WorkerRecord("a"), said="once")
NOT_FOR_GOOD = [
    Refused("this scheduler has no pool of hosts", code="no_pool"),
    Denied("the scheduler is not spoken to: its certificate has expired", code="peer_refused"),
    Transient("the scheduler does not answer", code="connection_lost"),
]


def asked_by(place: HostDir, monkeypatch: pytest.MonkeyPatch, problem: StagerError) -> HostKeeper:
    """A keeper whose scheduler says that, whenever it is asked."""

    def says(*_: object) -> None:
        raise problem

    monkeypatch.setattr(host_keeper, "pool_joined", says)
    monkeypatch.setattr(host_keeper.host_join, "renew", lambda *_: False)
    place.write(RECORD)
    return HostKeeper(place, {})


@pytest.mark.parametrize("problem", NOT_FOR_GOOD, ids=lambda problem: problem.code)
def test_what_passes_ends_no_keeper_and_so_neither_node_nor_worker(
    place: HostDir, monkeypatch: pytest.MonkeyPatch, problem: StagerError
) -> None:
    """A host that stores for a scheduler without a pool ended a day after it had joined. All hosts did when the scheduler's certificate
    had expired.
    """
    keeper = asked_by(place, monkeypatch, problem)
    keeper._renew(RECORD)
    keeper._keep_worker(RECORD)
    assert keeper.worker is None


def test_a_host_that_was_forgotten_ends(place: HostDir, monkeypatch: pytest.MonkeyPatch) -> None:
    forgotten = Denied("the certificate of the node a is not in the registry", code="not_registered")
    keeper = asked_by(place, monkeypatch, forgotten)
    for asks in (keeper._renew, keeper._keep_worker):
        with pytest.raises(Denied, match="not in the registry"):
            asks(RECORD)


def test_a_full_disk_ends_no_keeper(place: HostDir, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    keeper, state = HostKeeper(place, {}), KeeperState(1, "once", 2)
    with monkeypatch.context() as patched:
        patched.setattr(host_keeper, "write_private", full)
        keeper._tell(state)
    keeper._tell(state)
    assert state_of(place) == state
