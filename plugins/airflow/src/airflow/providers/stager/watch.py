"""A process beside a try, which gives back what that was given when it is gone without a word: killed, or out of memory.

May know: the standard library, and stager's client once there is something to say: it waits for as long as the task runs, and must cost
next to nothing. One rule: its standard input lives as long as the try does. A line is a call, `null` is a farewell, and an end without
one is a death.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stager.client import RestClient

log = logging.getLogger("airflow.task")
GONE = "the process of its task is gone without a word"
LEAVE_S = 10.0


class Watch:
    """The side of the try. Nothing here fails it: without a watch, calls of a try that died are given back later."""

    def __init__(self) -> None:
        self.process: subprocess.Popen[str] | None = None

    def note(self, client: RestClient, run: str, job: str, call: str, *, own: bool) -> None:
        """`own`: the run ends with the call."""
        token = client.http.headers["Authorization"].removeprefix("Bearer ")
        try:
            if self.process is None:
                self.process = beside()
            self._say({"server": client.server, "token": token, "run": run, "job": job, "call": call, "own": own})
        except OSError as problem:
            log.warning("nobody will tell stager at once if this task is killed: %s", problem)

    def leave(self) -> None:
        if self.process is not None:
            with suppress(OSError):
                self._say(None)
            with suppress(OSError, subprocess.TimeoutExpired):
                self.process.communicate(timeout=LEAVE_S)

    def _say(self, what: dict[str, Any] | None) -> None:
        assert self.process is not None and self.process.stdin is not None
        self.process.stdin.write(f"{json.dumps(what)}\n")
        self.process.stdin.flush()


def beside() -> subprocess.Popen[str]:
    """In a session of its own: what ends the group of the task is not to end it. By its file, for to import this package takes a second."""
    return subprocess.Popen(
        [sys.executable, "-P", __file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd="/",
        start_new_session=True,
    )


def main() -> None:
    noted = []
    for line in sys.stdin:
        said = json.loads(line)
        if said is None:
            return
        noted.append(said)
    for said in noted:
        give_back(**said)


def give_back(*, server: str, token: str, run: str, job: str, call: str, own: bool) -> None:
    from stager.client import RestClient
    from stager.model.errors import StagerError

    with RestClient(server, token) as client, suppress(StagerError):
        client.engine(run).fail(job, call, GONE)
        if own:
            client.engine(run).end(False, GONE)


if __name__ == "__main__":
    main()
