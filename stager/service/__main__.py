"""`python -m stager.service --state-dir D`: the scheduler process. Started by clients where none runs, ends when nobody needs it.

One rule: SIGTERM or SIGINT interrupts the runs in order (drains), a second one at once; both leave them resumable.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import uvicorn

from stager.client import ALREADY_HELD_EXIT
from stager.model.errors import StagerError
from stager.model.units import parse_size_bytes
from stager.service.api import make_api
from stager.service.api.activity import Activity
from stager.service.app import Scheduler
from stager.service.settings import Settings, read_settings
from stager.service.state_dir import LockHeld, StateDir

log = logging.getLogger("stager.service")
IDLE_LOOK_S = 0.25
SERVER_END_S = 3.0


class Server(uvicorn.Server):
    """Signals are ours."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


def main(arguments: Sequence[str] | None = None) -> int:
    settings = settings_of(arguments)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    state_dir = StateDir(settings.state_dir)
    try:
        state_dir.make()
        os.umask(0o077)
        with state_dir.held():
            return asyncio.run(serve(settings, state_dir))
    except LockHeld as problem:
        log.info("%s", problem.message)
        return ALREADY_HELD_EXIT
    except StagerError as problem:
        log.error("%s", problem.message)
        return 1


def settings_of(arguments: Sequence[str] | None) -> Settings:
    parser = argparse.ArgumentParser(prog="python -m stager.service", description="The scheduler of one state directory.")
    parser.add_argument("--state-dir", type=Path)
    parser.add_argument("--capacity", type=parse_size_bytes, help="space of the embedded I/O node")
    parser.add_argument("--cores", type=int)
    parser.add_argument("--memory", type=parse_size_bytes)
    parser.add_argument("--idle-exit-s", type=float, help="end when no run is active and nobody called for so long")
    parser.add_argument("--scrub-bytes-per-s", type=int, help="how fast the I/O node verifies what it holds; 0: not at all")
    parser.add_argument("--scrub-every-s", type=float, help="the least time between two looks at one replica")
    given = parser.parse_args(arguments)
    return read_settings(
        state_dir=given.state_dir,
        capacity_bytes=given.capacity,
        cores=given.cores,
        memory_bytes=given.memory,
        idle_exit_s=given.idle_exit_s,
        scrub_bytes_per_s=given.scrub_bytes_per_s,
        scrub_every_s=given.scrub_every_s,
    )


async def serve(settings: Settings, state_dir: StateDir) -> int:
    loop = asyncio.get_running_loop()
    scheduler = Scheduler(settings, loop)
    await asyncio.to_thread(scheduler.replay)
    scheduler.open()
    activity = Activity()
    listening = listen(state_dir.socket)
    api = make_api(scheduler, activity)
    server = Server(uvicorn.Config(api, log_config=None, access_log=False, lifespan="off", timeout_keep_alive=3600))
    serving = asyncio.create_task(server.serve(sockets=[listening]))
    idling = asyncio.create_task(end_when_idle(scheduler, activity, settings.idle_exit_s))
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, lambda: interrupt(scheduler))
    log.info("the scheduler of %s is here (pid %d, epoch %d)", state_dir.root, os.getpid(), scheduler.epoch)
    await scheduler.ended.wait()
    idling.cancel()
    failure = scheduler.failure
    # The socket goes first: whoever calls from now on finds nobody and starts the next scheduler, which waits for the lock.
    state_dir.socket.unlink(missing_ok=True)
    server.should_exit = True
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SERVER_END_S):
            await serving
    await scheduler.close(stop_node=failure is None)
    if failure is not None:
        log.error("the scheduler ended: %s", failure)
        return 1
    return 0


def listen(path: Path) -> socket.socket:
    """0600 from its first moment; a path too long for a socket is named through its directory's descriptor."""
    path.unlink(missing_ok=True)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    directory = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    before = os.umask(0o177)
    try:
        listening.bind(f"/proc/self/fd/{directory}/{path.name}")
    finally:
        os.umask(before)
        os.close(directory)
    listening.listen(128)
    listening.setblocking(False)
    return listening


def interrupt(scheduler: Scheduler) -> None:
    log.info("asked to end: %s", "at once" if scheduler.ending else "running jobs and uploads end first")
    scheduler.background = asyncio.create_task(scheduler.shut_down(now=scheduler.ending))


async def end_when_idle(scheduler: Scheduler, activity: Activity, idle_exit_s: float) -> None:
    quiet_since = time.monotonic()
    while True:
        await asyncio.sleep(IDLE_LOOK_S)
        if await scheduler.has_active():
            quiet_since = time.monotonic()
        if min(time.monotonic() - quiet_since, activity.idle_s()) >= idle_exit_s:
            log.info("no run is active and nobody called for %g s", idle_exit_s)
            await scheduler.shut_down()


if __name__ == "__main__":
    sys.exit(main())
