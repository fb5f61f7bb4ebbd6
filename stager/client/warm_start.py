"""A process that becomes the scheduler of a state directory once it is told to. It imports what the scheduler is made of while the command
that made it reads and plans a workflow.

May know: the standard library. One rule: until it is told, it touches nothing: no state directory, no lock, no log. A process that is
never told ends with the command that made it.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

WHEN_TOLD = "--when-told"
# Its standard input, until it is told.
LINE = 0
TOLD, TAKEN = b"t", b"y"


def scheduler_command(state_dir: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "stager.service", "--state-dir", str(state_dir), *arguments]


class WarmStart:
    """The process as the command sees it."""

    def __init__(self, state_dir: Path, arguments: Sequence[str]) -> None:
        self.line, theirs = socket.socketpair()
        command = [*scheduler_command(state_dir, arguments), WHEN_TOLD]
        with theirs:
            self.process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
            )

    def __enter__(self) -> WarmStart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, log: int) -> subprocess.Popen[bytes] | None:
        """The process that is the scheduler from now on and writes to `log`. None: it cannot be, because it has failed before."""
        if self.process is None:
            return None
        try:
            socket.send_fds(self.line, [TOLD], [log])
            taken = self.line.recv(1)
        except OSError:
            return None
        if taken != TAKEN:
            return None
        told, self.process = self.process, None
        return told

    def close(self) -> None:
        """Whoever was not told is not needed."""
        self.line.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def wait_until_told() -> bool:
    """In the process itself. False: the command needs no scheduler, or is gone."""
    with socket.socket(fileno=os.dup(LINE)) as line:
        try:
            said, logs, _, _ = socket.recv_fds(line, 1, 1)
            if said != TOLD:
                return False
            for stream in (1, 2):
                os.dup2(logs[0], stream)
            os.close(logs[0])
            line.sendall(TAKEN)
        except OSError:
            return False
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, LINE)
    os.close(nothing)
    return True


def is_listened_on(path: Path) -> bool:
    """Whether somebody answers at a Unix socket. The path may be longer than the kernel takes."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as trial:
        try:
            directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
        except OSError:
            return False
        try:
            trial.connect(f"/proc/self/fd/{directory}/{path.name}")
        except OSError:
            return False
        finally:
            os.close(directory)
    return True
