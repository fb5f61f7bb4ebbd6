"""Ctrl-C while a run is followed: whenever it comes, it is a wish that reaches the run, and never a traceback or a death by signal."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest

from stager import rest, wire
from stager.cli import remote, running
from stager.cli.progress import follow
from stager.model.errors import Refused


@pytest.fixture(autouse=True)
def ctrl_c_as_on_a_terminal() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def press() -> None:
    os.kill(os.getpid(), signal.SIGINT)


class FakeRun:
    """Ctrl-C is pressed while it does what `presses` names."""

    name = "w-1"

    def __init__(self, *presses: str) -> None:
        self.presses, self.told = list(presses), list[str]()

    def did(self, what: str) -> None:
        self.told.append(what)
        if self.presses and self.presses[0] == what:
            self.presses.pop(0)
            press()

    def wait_finished(self) -> wire.WaitResponse:
        self.did("watch")
        return wire.WaitResponse(run=self.name, finished=True, state="interrupted")

    def drain(self) -> None:
        self.did("drain")

    def stop(self) -> None:
        self.did("stop")


def test_a_second_ctrl_c_is_heard_while_the_first_is_passed_on() -> None:
    run = FakeRun("watch", "drain")
    assert follow(run, quiet=True).finished  # type: ignore[arg-type]
    assert run.told == ["watch", "drain", "stop", "watch"]


def test_from_the_first_on_none_kills_the_program_while_it_ends() -> None:
    run = FakeRun("watch")
    follow(run, quiet=True)  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    press()


def test_a_run_that_ended_in_between_is_no_error() -> None:
    class Ended(FakeRun):
        def drain(self) -> None:
            raise Refused("run w-1 has ended already: it is succeeded", code="run_over")

    run = Ended("watch")
    assert follow(run, quiet=True).finished  # type: ignore[arg-type]


def test_a_third_gives_up_waiting_whatever_hangs() -> None:
    with pytest.raises((click.exceptions.Abort, KeyboardInterrupt)):
        follow(FakeRun("watch", "drain", "stop"), quiet=True)  # type: ignore[arg-type]


def test_without_one_all_is_as_before() -> None:
    follow(FakeRun(), quiet=True)  # type: ignore[arg-type]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


class FakeClient:
    """Ctrl-C is pressed when the run is there, and nobody here knows its name yet."""

    def __init__(self, run: FakeRun) -> None:
        self.found = run

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *problem: object) -> None: ...

    def submit(self, *what: object, priority: int = 0, reused: object = (), budget: object = None, sharing: object = None) -> str:
        press()
        return self.found.name

    def send(self, what: object) -> rest.Submitted:
        press()
        return rest.Submitted(run=self.found.name, workflow="w", jobs=1)

    def run(self, name: str) -> FakeRun:
        return self.found


@pytest.mark.parametrize("where", [running, remote])
def test_one_that_comes_while_the_run_is_submitted_reaches_it(where: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It died of it, and the run went on alone."""
    run = FakeRun()
    monkeypatch.setattr(where, "print_summary", lambda *what, **how: 6)
    settings: Any = SimpleNamespace(state_dir=tmp_path, scheduler_arguments=list, capacity_given=False, environ={})
    if where is running:
        monkeypatch.setattr(running, "connect_or_start", lambda *what: FakeClient(run))
        monkeypatch.setattr(running, "tell_capacity", lambda *what: None)
        workflow: Any = SimpleNamespace(name="w", jobs=())
        plan: Any = SimpleNamespace(makespan_s=1.0, makespan_least_s=None, makespan_most_s=None)
        code = running.run_to_end(settings, workflow, plan, None, quiet=True)
    else:
        monkeypatch.setattr(remote, "reach_service", lambda where: FakeClient(run))
        (tmp_path / "w.yml").write_text("stager: 1\nname: w\njobs: {a: {run: x}}\n")
        code = remote.submit_to(None, settings, tmp_path / "w.yml", rest.Options(), quiet=True)  # type: ignore[arg-type]
    assert code == 6 and run.told == ["drain", "watch"]
