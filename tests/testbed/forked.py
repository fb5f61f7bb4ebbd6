"""`stager` and its scheduler as forks of a process that has imported them: processes like any other, without up to a second of imports.

May know: the modules of stager, by name. One rule: whoever looks at how a program starts (its imports, its command line, its
interpreter's environment) starts it anew; so does this where the environment says more than a fork can obey.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import selectors
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.testbed.places import PROJECT

CLI, SCHEDULER = "stager.cli", "stager.service"
MESSAGE_BYTES = 150_000
# Read by the interpreter, the C library or Dask when a process starts.
AT_START = ("PYTHON", "LC_", "LD_", "LANG", "DASK_")
_lock = threading.Lock()
_servers: dict[int, tuple[subprocess.Popen[bytes], socket.socket]] = {}


def hear_ctrl_c() -> None:
    """A shell that starts tests in the background makes them, and what they start, deaf to SIGINT; a user's terminal does not."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def started(program: str, words: Sequence[str | Path], env: Mapping[str, str], cwd: Path | None = None, **streams: Any) -> Any:
    """`python -m PROGRAM WORDS…`, as a fork where that makes no difference. `streams`: as subprocess.Popen takes them."""
    said = [str(word) for word in words]
    if env.get("PYTHONPATH") == str(PROJECT) and not any(name.startswith(AT_START) for name in env if name != "PYTHONPATH"):
        return Forked([program, *said], env=env, cwd=cwd or Path.cwd(), **streams)
    return subprocess.Popen([sys.executable, "-m", program, *said], env=env, cwd=cwd, preexec_fn=hear_ctrl_c, **streams)


class Forked(subprocess.Popen[Any]):
    """The child of the process that forks, which tells how it ended."""

    def _execute_child(self, args: Sequence[str], *more: Any) -> None:
        (cwd, env), pipes, is_leader = more[4:6], more[9:15], more[20]
        umask = next(line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("Umask:"))
        asked = {"words": args, "env": dict(env), "cwd": str(cwd), "umask": umask, "session": bool(is_leader)}
        self._ended, told = os.pipe()
        try:
            with _lock:
                control = _server()
                socket.send_fds(control, [json.dumps(asked).encode()], [pipes[0], pipes[3], pipes[5], told])
                answer = control.recv(64)
        finally:
            os.close(told)
        assert answer, "the process that forks `stager` has died; what it said is above"
        self.pid, self._child_created = int(answer), True
        self._close_pipe_fds(*pipes)  # type: ignore[attr-defined]

    def _try_wait(self, wait_flags: int) -> tuple[int, int]:
        if wait_flags & os.WNOHANG and not select.select([self._ended], [], [], 0)[0]:
            return 0, 0
        status = os.read(self._ended, 4)
        os.close(self._ended)
        return self.pid, int.from_bytes(status, "little") if status else signal.SIGKILL

    def _internal_poll(self, _deadstate: int | None = None, **_: Any) -> int | None:
        if self.returncode is None and self._waitpid_lock.acquire(False):  # type: ignore[attr-defined]
            try:
                if self.returncode is None:
                    pid, status = self._try_wait(os.WNOHANG)
                    if pid:
                        self._handle_exitstatus(status)  # type: ignore[attr-defined]
            finally:
                self._waitpid_lock.release()  # type: ignore[attr-defined]
        return self.returncode


def _server() -> socket.socket:
    """Of this process."""
    if os.getpid() not in _servers:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        kept = {name: value for name, value in os.environ.items() if name == "PATH" or name.startswith("STAGER_TEST")}
        command = [sys.executable, "-m", "tests.testbed.forked", str(theirs.fileno())]
        streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "pass_fds": [theirs.fileno()]}
        env = kept | {"PYTHONPATH": str(PROJECT)}
        process = subprocess.Popen(command, cwd=PROJECT, env=env, preexec_fn=hear_ctrl_c, **streams)
        theirs.close()
        _servers[os.getpid()] = process, ours
    return _servers[os.getpid()][1]


def end_server() -> None:
    """Before somebody looks for what tests left behind."""
    if (found := _servers.pop(os.getpid(), None)) is not None:
        process, control = found
        control.close()
        process.wait(120)


def serve(control: socket.socket) -> dict[str, Any]:
    """Comes back in a fork, with what was asked of it; never in the process that makes them."""
    selector = selectors.DefaultSelector()
    selector.register(control, selectors.EVENT_READ)
    while True:
        for key, _ in selector.select():
            if key.fileobj is not control:
                pid, told = key.data
                with contextlib.suppress(BrokenPipeError):
                    os.write(told, os.waitpid(pid, 0)[1].to_bytes(4, "little"))
                selector.unregister(key.fileobj)
                os.close(key.fd)
                os.close(told)
                continue
            message, descriptors, _, _ = socket.recv_fds(control, MESSAGE_BYTES, 4)
            if not message:
                os._exit(0)
            pid = os.fork()
            if pid == 0:
                selector.close()
                control.detach()
                asked: dict[str, Any] = json.loads(message)
                become(asked, descriptors)
                return asked
            for each in descriptors[:3]:
                os.close(each)
            selector.register(os.pidfd_open(pid), selectors.EVENT_READ, (pid, descriptors[3]))
            control.send(str(pid).encode())


def become(asked: dict[str, Any], descriptors: Sequence[int]) -> None:
    if asked["session"]:
        os.setsid()
    for number, each in enumerate(descriptors[:3]):
        os.dup2(each, number)
    os.closerange(3, max(descriptors) + 1024)
    # What Python itself has set where no locale was named.
    kept = {"LC_CTYPE": os.environ["LC_CTYPE"]} if "LC_CTYPE" in os.environ else {}
    os.environ.clear()
    os.environ.update(kept | asked["env"])
    os.chdir(asked["cwd"])
    os.umask(int(asked["umask"], 8))
    sys.path[0] = asked["cwd"]


def main() -> None:
    import stager

    # First of its modules: it says what Ctrl-C does.
    from stager.cli.start import main as program

    for module in pkgutil.walk_packages(stager.__path__, "stager."):
        if not module.name.endswith("__main__"):
            # Of extras that are not there.
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)
    gc.collect()
    gc.freeze()
    name, *words = serve(socket.socket(fileno=int(sys.argv[1])))["words"]
    # As `python -m` has it: messages name the program by that.
    sys.modules["__main__"].__package__ = name
    sys.argv = [str(PROJECT.joinpath(*name.split("."), "__main__.py")), *words]
    if name == SCHEDULER:
        # As stager/service/__main__.py, which is run and not imported.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from stager.service.command_line import main as scheduler

        sys.exit(scheduler())
    program()


if __name__ == "__main__":
    main()
