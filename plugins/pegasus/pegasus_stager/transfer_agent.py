"""`stager-ionode transfer`: the program of stager that moves files between this machine and others.

May know: how it is found and spoken to (docs/formats/transfer-orders.md). One rule: an order whose answer cannot come has failed.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Mapping

from pegasus_stager.ending import Ending
from pegasus_stager.failures import Failed

# lists.py says why.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

NAME = "stager-ionode"
VARIABLE = "STAGER_IONODE"
# Who must act: what is not of these waiting does not mend.
PASSING = frozenset(("transient", "corrupt"))
SAID_BYTES = 2000


def found(environ: Mapping[str, str]) -> str | None:
    """The program that the user named; else one beside this Python, where `pip install stager` puts it; else PATH. An empty STAGER_IONODE:
    none.
    """
    if VARIABLE in environ:
        return environ[VARIABLE] or None
    places = [os.path.dirname(sys.executable), *environ.get("PATH", os.defpath).split(os.pathsep)]
    for place in places:
        path = os.path.join(place, NAME)
        if place and os.path.isfile(path) and os.access(path, os.X_OK):
            return path
    return None


class Waiting:
    """One order on its way."""

    __slots__ = ("answer", "answered")

    def __init__(self) -> None:
        self.answered = threading.Event()
        self.answer: dict[str, object] = {}


class TransferAgent:
    """For all threads; started by the first order."""

    def __init__(self, program: str, ending: Ending) -> None:
        self.program, self.ending = program, ending
        self.lock = threading.Lock()
        self.process: subprocess.Popen[bytes] | None = None
        self.orders: dict[int, Waiting] = {}
        self.count = 0
        self.ended = False

    def ask(self, origin: Mapping[str, object], transfer_job: Mapping[str, object], subject: str) -> dict[str, object]:
        """Raises Failed."""
        waiting = Waiting()
        with self.lock:
            asked = self.started()
            self.count += 1
            number = self.count
            line = json.dumps({"id": number, "origin": origin, "transfer_job": transfer_job}).encode() + b"\n"
            self.orders[number] = waiting
            try:
                asked.write(line)
                asked.flush()
            except OSError:
                # Its reader sees the same end, and answers all.
                pass
        waiting.answered.wait()
        error = waiting.answer.get("error")
        if isinstance(error, dict):
            text = str(error.get("message") or error.get("code"))
            raise Failed(f"{subject}: {text}", lasting=error.get("class") not in PASSING and error.get("code") != "not_found")
        done = waiting.answer.get("done")
        return done if isinstance(done, dict) else {}

    def started(self) -> IO[bytes]:
        """The stream that the program reads."""
        if self.ended:
            raise Failed(f"{self.program} has ended before its time")
        if self.process is None:
            try:
                with self.ending:
                    self.process = subprocess.Popen([self.program, "transfer"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
            except OSError as problem:
                raise Failed(f"{self.program} cannot be started: {problem.strerror or problem}", lasting=True) from problem
            threading.Thread(target=self.read, args=(self.process,), daemon=True).start()
        assert self.process.stdin is not None
        return self.process.stdin

    def read(self, process: subprocess.Popen[bytes]) -> None:
        """Until it ends. A thread that still waits then waits in vain."""
        for line in process.stdout or ():
            try:
                answer = json.loads(line)
                waiting = self.orders.pop(answer["id"], None)
            except (ValueError, KeyError, TypeError):
                continue
            if waiting is not None:
                waiting.answer = answer
                waiting.answered.set()
        with self.lock:
            self.ended = True
            left, self.orders = list(self.orders.values()), {}
        message = f"{self.program} ended before it answered (exit code {process.wait()}); is it of the version of this plugin?"
        for waiting in left:
            waiting.answer = {"error": {"class": "transient", "message": message}}
            waiting.answered.set()

    def stop(self) -> None:
        """At once: its orders are answered, or nobody waits for them any more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
