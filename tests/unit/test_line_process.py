"""A program that answers line by line is started again when it has ended, and nobody waits for one that is silent or ends for good."""

from __future__ import annotations

import gc
import os
import sys
import threading
from pathlib import Path

import pytest

from stager.adapters.line_process import Broken, LineProcess, Silent
from tests.testbed.waiting import wait_until

ANSWERS = """
import os, sys
for number, line in enumerate(sys.stdin):
    if number == int(sys.argv[1]):
        break
    print(os.getpid(), line.strip() * int(sys.argv[2]), flush=True)
print("these are my last words", file=sys.stderr)
sys.exit(7)
"""


def answering(*words: str) -> LineProcess:
    return LineProcess([sys.executable, "-I", "-S", "-c", ANSWERS, *words])


def pid_and_text(answer: bytes) -> tuple[int, bytes]:
    pid, text = answer.split(b" ", 1)
    return int(pid), text


def test_one_process_answers_and_another_one_when_it_has_ended() -> None:
    process = answering("2", "1")
    answers = [pid_and_text(process.ask(b"line %d" % number, 60)) for number in range(5)]
    assert [text for _, text in answers] == [b"line %d" % number for number in range(5)]
    first, second, third = dict.fromkeys(pid for pid, _ in answers)
    assert [pid for pid, _ in answers] == [first, first, second, second, third]


def test_lines_of_megabytes_go_both_ways() -> None:
    line = b"x" * (3 << 20)
    assert pid_and_text(answering("9", "2").ask(line, 60))[1] == line * 2


def test_one_that_ends_at_each_start_is_told_with_its_last_words() -> None:
    with pytest.raises(Broken, match=r"ended with 7: these are my last words"):
        answering("0", "1").ask(b"line", 60)


def test_one_that_says_nothing_is_killed() -> None:
    process = LineProcess([sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"])
    with pytest.raises(Silent):
        process.ask(b"line", 0.05)
    assert process.running is not None and process.running.process.returncode == -9


def test_who_is_interrupted_leaves_no_answer_for_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    process = answering("9", "1")

    def interrupted(answer: object, until: float) -> bytes | None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("stager.adapters.line_process.waited_for", interrupted)
        with pytest.raises(KeyboardInterrupt):
            process.ask(b"first", 60)
    assert pid_and_text(process.ask(b"second", 60))[1] == b"second"


def test_who_asks_at_once_gets_the_own_answer_and_one_process_answers_all() -> None:
    process, answers = answering("1000", "1"), dict[int, bytes]()

    def ask(number: int) -> None:
        answers[number] = process.ask(b"line %d" % number, 60)

    process.ask(b"begin", 60)
    threads = [threading.Thread(target=ask, args=(number,)) for number in range(50)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    told = {number: pid_and_text(answer) for number, answer in answers.items()}
    assert {number: text for number, (_, text) in told.items()} == {number: b"line %d" % number for number in range(50)}
    assert len({pid for pid, _ in told.values()}) == 1


def test_of_many_who_find_that_it_has_ended_one_starts_another() -> None:
    process, answers = answering("3", "1"), list[bytes]()
    threads = [threading.Thread(target=lambda: answers.append(process.ask(b"line", 60))) for _ in range(3)]
    process.ask(b"begin", 60)
    process.ask(b"and", 60)
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [pid_and_text(answer)[1] for answer in answers] == [b"line"] * 3
    assert len({pid_and_text(answer)[0] for answer in answers}) == 2


def test_it_ends_with_who_asks_and_leaves_no_descriptor() -> None:
    # What other tests left may go meanwhile.
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    process = answering("1", "1")
    pids = [pid_and_text(process.ask(b"line", 60))[0] for _ in range(3)]
    del process
    gc.collect()
    for pid in pids:
        wait_until(lambda pid=pid: not Path(f"/proc/{pid}").exists(), "the program is gone")
    assert len(os.listdir("/proc/self/fd")) <= before
