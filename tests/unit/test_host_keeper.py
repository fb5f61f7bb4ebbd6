"""Which process keeps a host, by the lock of its directory."""

from __future__ import annotations

import fcntl
import os
import threading
import time
from pathlib import Path

import pytest

from stager.model.errors import Refused
from stager.service import host_keeper
from stager.service.host_keeper import LOCK, keeper_pid, kept
from stager.service.host_node import HostDir


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
