"""What tasks made while the service was away is handed in to it by those that read it: several may do so at the same time."""

from __future__ import annotations

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from airflow.providers.stager.hand_in import hand_in_outputs
from airflow.providers.stager.loose import Loose

from stager import wire
from tests.testbed.waiting import wait_until

URI = "stager://d/mid"


class Service:
    """One call, whose directory goes when it is done. `finish` takes the output while `go` is waited for, and sees whether it changes."""

    def __init__(self, place: Path) -> None:
        self.place, self.state = place / "call", wire.CallState.STAGED
        self.place.mkdir()
        self.taking, self.go, self.taken, self.asked = threading.Event(), threading.Event(), b"", 0

    def view(self) -> wire.CallView:
        outputs = [wire.CalledFile(lfn="mid", path=str(self.place / "mid"))]
        return wire.CallView(run="r", job="make", call="c", state=self.state, directory=str(self.place), outputs=outputs)

    def call(self, *_: Any, **__: Any) -> wire.CallView:
        self.asked += 1
        return self.view()

    def staged(self, *_: Any, **__: Any) -> wire.CallView:
        return self.view()

    def finish(self, *_: Any) -> wire.CallView:
        before = (self.place / "mid").stat()
        self.taking.set()
        self.go.wait(30)
        after = (self.place / "mid").stat()
        assert (before.st_ino, before.st_ctime_ns) == (after.st_ino, after.st_ctime_ns), "the node refuses what changes"
        self.taken = (self.place / "mid").read_bytes()
        shutil.rmtree(self.place)
        self.state = wire.CallState.DONE
        return self.view()

    def fail(self, *_: Any) -> None:
        raise AssertionError("nothing failed")


def test_two_tasks_that_hand_in_the_same_do_it_one_after_the_other(tmp_path: Path) -> None:
    loose = Loose(tmp_path / "fallback", "p", {URI})
    held = loose.held_at(URI)
    held.parent.mkdir(parents=True)
    held.write_bytes(b"made\n")
    service = Service(tmp_path)
    part: Any = SimpleNamespace(part=SimpleNamespace(makes=lambda job: {"mid": URI}), run=service)
    with ThreadPoolExecutor(2) as threads:
        try:
            first = threads.submit(hand_in_outputs, part, "make", loose)
            assert service.taking.wait(30)
            second = threads.submit(hand_in_outputs, part, "make", loose)
            wait_until(lambda: service.asked == 2, "the second to find the call staged")
            # Long enough for it to lay the file once more, if it does.
            assert not second.done() and not threading.Event().wait(0.5)
        finally:
            service.go.set()
        first.result(30)
        second.result(30)
    assert service.taken == b"made\n" and not service.place.exists(), "and no directory is made anew"
