"""The end of a service while a thread waits for somebody who says nothing: the process ends all the same, with its exit code."""

from __future__ import annotations

import subprocess
import sys

WAITS = """
import asyncio, threading
from stager.service import process
from stager.service.threads import Threads

process.THREADS_END_S = 0.1

async def main():
    beside = [Threads("beside"), Threads("reading", 1)]
    started = threading.Event()
    beside[1].submit(lambda: (started.set(), threading.Event().wait()))
    started.wait()
    await process.leave(beside, 7)

asyncio.run(main())
"""


def test_a_thread_that_waits_for_ever_keeps_no_service_from_its_end() -> None:
    done = subprocess.run([sys.executable, "-c", WAITS], capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, "left as they are: 1" in done.stderr) == (7, True), done.stderr
