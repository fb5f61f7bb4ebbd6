"""Who is told when those who are told are slow, odd or away: real servers and programs, and the threads that tell."""

from __future__ import annotations

import contextlib
import email
import json
import os
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from stager.adapters import notice_ways
from stager.adapters.journal_sqlite import SqliteJournal
from stager.adapters.notice_box import NoticeBox, Owed, owed_in
from stager.adapters.notice_ways import Undelivered, Ways, mail_of
from stager.model.notices import Notice, NoticeKind, NotifyRules, Target, WorkflowRules
from stager.model.workflow import RunTarget
from stager.planning.policy import Limits, Policy
from stager.runtime.deciding import deciding_digest
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.scheduler.machine import Machine
from stager.service import notifying
from stager.service.notices import RUNS_OVER_MAX, body_of
from stager.service.notifying import REFUSALS_MAX, Notifier
from stager.service.run_targets import name_of
from tests.testbed.processes import free_port
from tests.testbed.waiting import wait_until
from tests.unit.test_wire import PLAN, WORKFLOW

BODY = body_of(Notice("s-1-2-e0", NoticeKind.RUN_ENDED, 0.0, "run w-1 has ended", "w-1", "w", "", {"outcome": "succeeded", "code": ""}))
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"


class Server:
    """Takes one connection after the other. `answer`: gets each, and what was asked."""

    def __init__(self, answer: Callable[[socket.socket, bytes], None], port: int = 0) -> None:
        self.listening = socket.create_server(("127.0.0.1", port))
        self.port = self.listening.getsockname()[1]
        self.asked: list[bytes] = []
        self.answer = answer
        self.thread = threading.Thread(target=self.serve, daemon=True)
        self.thread.start()

    def serve(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self.listening.accept()
                with here, contextlib.suppress(OSError):
                    asked = b""
                    while b"}}" not in asked and (more := here.recv(65536)):
                        asked += more
                    self.asked.append(asked)
                    self.answer(here, asked)

    def close(self) -> None:
        # Wakes the accept.
        self.listening.shutdown(socket.SHUT_RDWR)
        self.listening.close()
        self.thread.join(20)


@contextlib.contextmanager
def serving(answer: Callable[[socket.socket, bytes], None], port: int = 0) -> Iterator[Server]:
    server = Server(answer, port)
    try:
        yield server
    finally:
        server.close()


def dripping(words: bytes, every_s: float = 0.05) -> Callable[[socket.socket, bytes], None]:
    """Byte for byte, for as long as anybody reads it."""

    def answer(here: socket.socket, _: bytes) -> None:
        while True:
            for letter in words:
                here.sendall(bytes((letter,)))
                time.sleep(every_s)

    return answer


def deliver(webhook: str) -> None:
    Ways({}, "/bin/false").deliver(Target("t", frozenset(), webhook=webhook), "n", BODY)


@pytest.mark.parametrize("words", [b"HTTP/1.1 100 Continue\r\n\r\n", b"HTTP/1.1 200 OK\r\nX: " + b"y" * 100_000])
def test_a_webhook_that_drips_is_given_up_for_this_time(monkeypatch: pytest.MonkeyPatch, words: bytes) -> None:
    """However often it sends another byte: all of it has a deadline."""
    monkeypatch.setattr(notice_ways, "HTTP_S", 1.0)
    with serving(dripping(words)) as server:
        begun = time.monotonic()
        with pytest.raises(Undelivered, match="no whole answer in 1 s"):
            deliver(f"http://127.0.0.1:{server.port}/in")
        assert time.monotonic() - begun < 10


def test_an_answer_of_success_is_one_whatever_its_body_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_ways, "HTTP_S", 1.0)

    def answer(here: socket.socket, asked: bytes) -> None:
        here.sendall(HEAD)
        dripping(b"x")(here, asked)

    with serving(answer) as server:
        deliver(f"http://127.0.0.1:{server.port}/in")
        assert len(server.asked) == 1


def test_a_program_that_leaves_another_behind_has_told_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a mail program does that delivers in the background: what is left has its stderr still open, and goes on."""
    monkeypatch.setattr(notice_ways, "COMMAND_S", 20.0)
    script = f"(echo $BASHPID; exec sleep 600) >{tmp_path}/pid & echo beside >&2; cat >{tmp_path}/told"
    begun = time.monotonic()
    try:
        Ways({"PATH": os.environ["PATH"]}, "").deliver(Target("t", frozenset(), command=("/bin/bash", "-c", script)), "n", BODY)
        assert (tmp_path / "told").read_bytes() == BODY and time.monotonic() - begun < 20
    finally:
        # It lives, whatever came of the other one.
        pid = tmp_path / "pid"
        os.kill(int(wait_until(lambda: pid.exists() and pid.read_text().strip(), "it to begin")), signal.SIGKILL)


def test_a_program_that_takes_too_long_ends_with_all_that_it_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notice_ways, "COMMAND_S", 1.0)
    script = f"(echo $BASHPID >{tmp_path}/pid; exec sleep 600) & sleep 600"
    with pytest.raises(Undelivered, match="did not end in 1 s"):
        Ways({"PATH": os.environ["PATH"]}, "").deliver(Target("t", frozenset(), command=("/bin/bash", "-c", script)), "n", BODY)
    left = Path("/proc", (tmp_path / "pid").read_text().strip(), "stat")
    wait_until(lambda: not left.exists() or " Z " in left.read_text(), "what it started to be gone")


def test_each_fact_stands_in_a_mail_once() -> None:
    text = email.message_from_bytes(mail_of("me@example.org", "s-1-2-e0", BODY)).get_payload()
    assert text == (
        "run w-1 has ended\n\nid: s-1-2-e0\nkind: run_ended\nat: 0.0\ntime: 1970-01-01T00:00:00Z\n"
        "run: w-1\nworkflow: w\noutcome: succeeded\n"
    )


class Telling:
    """The threads that tell, with a box of their own and no runs."""

    def __init__(self, place: Path, *targets: Target, sendmail: str = "/bin/false") -> None:
        self.box_file = place / "notices.sqlite"
        rules = NotifyRules(targets, 600.0, sendmail, WorkflowRules(frozenset(("mail",))))
        self.journal = SqliteJournal(place / "journal.sqlite", deciding_digest())
        self.notifier = Notifier(NoticeBox(self.box_file), rules, {"PATH": os.environ["PATH"]}, self.journal)
        self.notifier.catch_up()

    def owe(self, *targets: str) -> None:
        self.notifier.box.add([(f"n{at}", target, time.time(), BODY) for at, target in enumerate(targets)], 0, b"")

    def left(self) -> list[Owed]:
        return owed_in(self.box_file)


@contextlib.contextmanager
def begun(telling: Telling, *owed: str) -> Iterator[Telling]:
    telling.owe(*owed)
    telling.notifier.begin(Machine(Policy(), Limits()).state)
    try:
        yield telling
    finally:
        telling.notifier.close()
        telling.journal.close()


def test_who_was_away_and_then_refuses_is_not_given_up_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a proxy does whose service is only just starting: a refusal is an answer, and a try that met nobody is none."""
    monkeypatch.setattr(notifying, "AGAIN_S_MIN", 0.001)
    monkeypatch.setattr(notifying, "AGAIN_S_MAX", 0.01)
    port, refused = free_port(), 0

    def answer(here: socket.socket, _: bytes) -> None:
        nonlocal refused
        refused += 1
        words = b"404 Not Found" if refused < REFUSALS_MAX else b"204 No Content"
        here.sendall(b"HTTP/1.1 " + words + b"\r\nContent-Length: 0\r\n\r\n")

    telling = Telling(tmp_path, Target("hook", frozenset(NoticeKind), webhook=f"http://127.0.0.1:{port}/in"))
    with begun(telling, "hook"):
        wait_until(lambda: telling.left()[0].tries > 2 * REFUSALS_MAX, "tries that meet nobody")
        with serving(answer, port):
            wait_until(lambda: not telling.left() or telling.left()[0].given_up, "it to be told or given up")
    assert telling.left() == [] and refused == REFUSALS_MAX


def test_who_refuses_for_good_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifying, "AGAIN_S_MIN", 0.001)

    def answer(here: socket.socket, _: bytes) -> None:
        here.sendall(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n")

    with serving(answer) as server:
        telling = Telling(tmp_path, Target("hook", frozenset(NoticeKind), webhook=f"http://127.0.0.1:{server.port}/in"))
        with begun(telling, "hook"):
            wait_until(lambda: telling.left()[0].given_up, "it to be given up")
        assert len(server.asked) == telling.left()[0].tries == REFUSALS_MAX


def test_a_target_that_cannot_be_told_at_all_keeps_nobody_else_from_being_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An address with a NUL in it came from a workflow once: no program can be started with it."""
    monkeypatch.setattr(notifying, "AGAIN_S_MIN", 0.001)
    sendmail = tmp_path / "sendmail"
    sendmail.write_text(f'#!/bin/sh\ncat >"{tmp_path}/$3"\n')
    sendmail.chmod(0o755)
    odd = [name_of(RunTarget(mail=f"a\0{number}@example.org", on=("run_ended",))) for number in range(notifying.WORKFLOW_THREADS)]
    telling = Telling(tmp_path, sendmail=str(sendmail))
    with begun(telling, *odd, name_of(RunTarget(mail="you@example.org", on=("run_ended",)))):
        wait_until((tmp_path / "you@example.org").exists, "the last one to be told")
        wait_until(lambda: all(each.given_up for each in telling.left()), "the others to be given up")
        assert [each.problem.partition(",")[0] for each in telling.left()] == ["a defect of stager (ValueError)"] * len(odd)


def test_a_box_is_read_beside_its_scheduler_wherever_it_lies(tmp_path: Path) -> None:
    """In the URI of a database `?`, `#` and `%` mean something else."""
    place = tmp_path / "what? 50%41 #1"
    place.mkdir()
    box = NoticeBox(place / "notices.sqlite")
    box.add([("1", "a", 1.0, b"one")], 7, b"kept")
    assert [each.id for each in owed_in(place / "notices.sqlite")] == ["1"]
    box.close()
    journal = SqliteJournal(place / "journal.sqlite", deciding_digest())
    assert list(journal.read_beside()) == []
    journal.close()


def test_whose_a_run_is_that_was_resumed_just_before_a_kill_is_known(tmp_path: Path) -> None:
    """Of runs that are over only the newest are remembered beside the box. What an older one is, its journal says."""
    bob = Target("bob", frozenset((NoticeKind.RUN_ENDED,)), command=("/bin/false",), tenants=("bob",))
    workflow = replace(WORKFLOW, notify=(RunTarget(mail="you@example.org", on=("run_ended",)),))
    runs = [f"w-{number}" for number in range(RUNS_OVER_MAX + 3)]
    telling = Telling(tmp_path, bob)
    notifier, journal = telling.notifier, telling.journal

    def happens(events: list[ev.Event], commands: list[cmd.Command], *, seen: Notifier | None) -> None:
        journal.append(events, commands)
        if seen is not None:
            seen.saw(events, commands)

    def ends(run: str, outcome: cmd.RunOutcome) -> list[cmd.Command]:
        return [cmd.FinishRun(id=f"f-{run}", at=2.0, cause="", run=run, outcome=outcome)]

    for run in runs:
        begins: list[ev.Event] = [ev.RunSubmitted(at=1.0, run=run, workflow=workflow, plan=PLAN, tenant="bob" if run == "w-0" else "alice")]
        happens(begins, ends(run, cmd.RunOutcome.INTERRUPTED), seen=notifier)
    happens([ev.RunResumed(at=3.0, run="w-0")], [], seen=None)
    notifier.close()
    after = Notifier(NoticeBox(telling.box_file), notifier.rules, {}, journal)
    after.catch_up()
    happens([ev.Woken(at=4.0)], ends("w-0", cmd.RunOutcome.SUCCEEDED), seen=after)
    after.close()
    journal.close()
    told = [(each.target, json.loads(each.body)["tenant"]) for each in telling.left() if b'"succeeded"' in each.body]
    assert told == [("bob", "bob"), (name_of(workflow.notify[0]), "bob")]
