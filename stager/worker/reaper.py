"""The reaper seen from here: its spec, its process, its lock, its result (docs/formats/ionode-api.md).

May know: processes and files of one attempt. One rule: a signal goes to a reaper only while its lock proves that the pid is still its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from stager.worker.container import Container
from stager.worker.place import Place, json_bytes, publish_json, read_json, write_all
from stager.worker.spec import SCRATCH, AttemptSpec

R = TypeVar("R")

EXIT_USAGE, EXIT_TAKEN, EXIT_NO_RESULT = 2, 3, 4
# Stand for the result of a reaper that never came to write one: what its job did nobody knows; it never took its lock, so there was no job.
FENCED = {"outcome": "not_started", "code": "fenced", "message": "its reaper is gone and left no result"}
NOT_BEGUN = {"outcome": "not_started", "code": "not_begun", "message": "given up before it began"}
# A reaper writes its pid right after it has taken its lock.
PID_WAIT_S, PID_PAUSE_S = 2.0, 0.01
# In which control group those of attempts are to be made; all else that a reaper knows is in its spec.
CGROUP = "STAGER_CGROUP"


def reaper_spec(
    spec: AttemptSpec,
    place: Place,
    env: Mapping[str, str],
    mounts: Sequence[Mapping[str, Any]],
    logs: tuple[str, str],
    epoch: int,
    container: Container | None = None,
) -> dict[str, Any]:
    """Its image is the root directory of the job, and none of its inputs."""
    image = f"{place.sandbox}/{spec.image.path}" if spec.image is not None else None
    return {
        "attempt_id": spec.attempt_id,
        "epoch": epoch,
        "argv": list(spec.argv),
        "env": dict(env),
        "cwd": f"{place.sandbox}/{spec.cwd}" if spec.cwd else place.sandbox,
        "sandbox_dir": place.sandbox,
        "stdin": f"{place.sandbox}/{spec.stdin}" if spec.stdin else None,
        "stdout": logs[0],
        "stderr": logs[1],
        "mounts": [mount for mount in mounts if mount["target"] != image],
        "timeout_s": spec.timeout_s,
        "grace_s": spec.grace_s,
        "result_path": place.result,
        "lock_path": place.lock,
        **({"unprivileged": True} if spec.unprivileged else {}),
        **(isolation(spec, place) if spec.isolate else {}),
        **({"container": container.to_wire(), "scratch_dir": f"{place.sandbox}/{SCRATCH}"} if container is not None else {}),
        **({"memory_limit_bytes": spec.memory_limit_bytes} if spec.memory_limit_bytes is not None else {}),
    }


def isolation(spec: AttemptSpec, place: Place) -> dict[str, Any]:
    """The kernel names files without symlinks, so origins are named so here."""
    origins = [os.path.realpath(base) for base in spec.origins]
    return {"isolate": True, "scratch_dir": f"{place.sandbox}/{SCRATCH}", "origins": origins, "watch": spec.watch}


class Reaper:
    """A reaper that this process started. It lives on when this process dies."""

    def __init__(self, binary: str, orders: Mapping[str, Any], complaints_path: str, cgroup: str = "") -> None:
        """`orders`: as `reaper_spec` gives them; they hold the job's environment, so they lie in memory and on no disk.

        `cgroup`: where control groups of attempts are made; empty: where systemd delegates some, if at all.

        `complaints_path`: the job's own stderr log; a reaper that cannot even start the job says why there.
        """
        spec = in_memory(json_bytes(orders))
        files = [
            (os.POSIX_SPAWN_DUP2, spec, 0),
            (os.POSIX_SPAWN_OPEN, 1, "/dev/null", os.O_WRONLY, 0),
            (os.POSIX_SPAWN_OPEN, 2, complaints_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
        ]
        try:
            # posix_spawn, since it copies no page tables of a large scheduler; every descriptor of Python's closes by itself.
            command = [binary, "run", "--spec", "/dev/stdin"]
            variables = {CGROUP: cgroup} if cgroup else {}
            self.pid = os.posix_spawn(binary, command, variables, file_actions=files, setsid=True, setsigmask=[])
        finally:
            os.close(spec)
        self.pidfd = open_pidfd(self.pid)
        self.asked_to_end = False
        self.copied_bytes: int | None = None

    def terminate(self) -> None:
        """It is our child and unreaped until `wait` returns: the pid cannot have passed to another."""
        self.asked_to_end = True
        os.kill(self.pid, signal.SIGTERM)

    async def wait(self) -> int:
        """The exit code, negative for a signal. Cancelling it leaves the reaper alone."""
        if self.pidfd is None:
            return await in_thread(self._reap)
        try:
            await readable(self.pidfd)
        finally:
            os.close(self.pidfd)
        return self._reap()

    def _reap(self) -> int:
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def in_memory(content: bytes) -> int:
    """A descriptor of a file that has no name."""
    descriptor = os.memfd_create("spec")
    write_all(descriptor, content)
    return descriptor


def open_pidfd(pid: int) -> int | None:
    """None on kernels before 5.3, and while this process has no descriptor to spare. Raises ProcessLookupError."""
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        return None


async def readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = loop.create_future()

    def tell() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(descriptor, tell)
    try:
        await ready
    finally:
        loop.remove_reader(descriptor)


async def in_thread(call: Callable[[], R]) -> R:
    """A thread of its own that may block for days: the shared pool would run out of threads, and its end would be waited for."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[R] = loop.create_future()

    def settle(give: Callable[[], None]) -> None:
        if not answer.done():
            give()

    def work() -> None:
        give: Callable[[], None]
        try:
            give = partial(answer.set_result, call())
        except OSError as problem:
            give = partial(answer.set_exception, problem)
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(settle, give)

    threading.Thread(target=work, daemon=True, name="stager-wait").start()
    return await answer


def is_held(lock_path: str) -> bool:
    try:
        descriptor = os.open(lock_path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


async def wait_until_free(lock_path: str) -> None:
    """Returns when the reaper has ended."""

    def block() -> None:
        with open(lock_path, "rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH)

    await in_thread(block)


def fence(place: Place) -> dict[str, Any] | None:
    """Makes sure that no reaper starts here any more, a spawned one that has not taken its lock yet included.

    The result if there is one after all; None while a reaper lives.
    """
    descriptor = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        found = read_json(place.result)
        if found is None:
            found = FENCED if os.fstat(descriptor).st_size else NOT_BEGUN
            publish_json(place.result, found)
        return found
    except BlockingIOError:
        return None
    finally:
        os.close(descriptor)


async def terminate_holder(lock_path: str) -> bool:
    """TERM to the reaper that holds this lock; False if none does."""
    loop = asyncio.get_running_loop()
    end = loop.time() + PID_WAIT_S
    while is_held(lock_path):
        pid = holder_of(lock_path)
        if pid and signal_holder(lock_path, pid):
            return True
        if loop.time() > end:
            return False
        await asyncio.sleep(PID_PAUSE_S)
    return False


def signal_holder(lock_path: str, pid: int) -> bool:
    """Opened first, looked at then: a lock that is held now and names this pid has had a living holder all the while.

    So the descriptor means the reaper, and nobody who got its pid after it.
    """
    try:
        pidfd = open_pidfd(pid)
    except ProcessLookupError:
        return False
    try:
        if not is_held(lock_path) or holder_of(lock_path) != pid:
            return False
        if pidfd is None:
            os.kill(pid, signal.SIGTERM)
        else:
            signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        return True
    except ProcessLookupError:
        return False
    finally:
        if pidfd is not None:
            os.close(pidfd)


def holder_of(lock_path: str) -> int | None:
    with contextlib.suppress(FileNotFoundError, ValueError), open(lock_path, encoding="ascii") as stream:
        return int(stream.read())
    return None
