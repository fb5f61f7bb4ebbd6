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
from collections.abc import Callable, Sequence
from pathlib import Path

WHEN_TOLD = "--when-told"
# Its standard input, until it is told.
LINE = 0
TOLD, TAKEN = b"t", b"y"
# Of a process that may still be importing. One that is stopped would hold the command for ever.
TAKE_DEADLINE_S = 60.0


def scheduler_command(state_dir: Path, arguments: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "stager.service", "--state-dir", str(state_dir), *arguments]


class WarmStart:
    """The process as the command sees it."""

    def __init__(self, state_dir: Path, arguments: Sequence[str]) -> None:
        """Raises OSError where no process can be made."""
        self.line, theirs = socket.socketpair()
        self.line.settimeout(TAKE_DEADLINE_S)
        command = [*scheduler_command(state_dir, arguments), WHEN_TOLD]
        try:
            self.process: subprocess.Popen[bytes] | None = subprocess.Popen(
                command, stdin=theirs.fileno(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, cwd="/"
            )
        except OSError:
            self.line.close()
            raise
        finally:
            theirs.close()

    def __enter__(self) -> WarmStart:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def tell(self, log: int) -> subprocess.Popen[bytes] | None:
        """The process that is the scheduler from now on and writes to `log`. None: it cannot be, because it failed, was stopped or runs
        other code than there is now. It is ended then, so that it does not become a second scheduler later.
        """
        if self.process is None:
            return None
        try:
            socket.send_fds(self.line, [TOLD], [log])
            taken = self.line.recv(1)
        except OSError:
            taken = b""
        if taken != TAKEN:
            self.close()
            return None
        told, self.process = self.process, None
        return told

    def close(self) -> None:
        """Ends a process that was not told, since nobody needs it. Does nothing to a process that was told."""
        self.line.close()
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


def wait_until_told(is_current: Callable[[], bool]) -> bool:
    """In the process itself. False: the command needs no scheduler, or is gone, or by now this process has other code than there is."""
    with socket.socket(fileno=os.dup(LINE)) as line:
        try:
            said, logs, _, _ = socket.recv_fds(line, 1, 1)
            if said != TOLD or not is_current():
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
        trial.setblocking(False)
        try:
            trial.connect(f"/proc/self/fd/{directory}/{path.name}")
        except BlockingIOError:
            # Somebody listens, and has too many callers just now.
            return True
        except OSError:
            return False
        finally:
            os.close(directory)
    return True
