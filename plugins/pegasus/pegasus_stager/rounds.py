"""Work in rounds: all entries, then again those that failed and may yet go well.

May know: threads and time; what an entry is, is its caller's business. One rule: no wait that cannot help: what waiting cannot mend, or has
failed for nearly all, is not tried again.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from pegasus_stager.failures import Failed
from pegasus_stager.lists import ListEntry
from pegasus_stager.log import Log

# The first wait is for a server that restarts or a limit of connections; the second is as long as a client of NFS may keep to itself that a
# file was not there (acdirmax). What these do not mend, the retries of the whole job by DAGMan must.
WAITS_S = (3.0, 60.0)
JITTER = 0.2
FAILURES_MANY, FAILURES_SHARE = 10, 0.8


def run_rounds(entries: Sequence[ListEntry], work: Callable[[ListEntry], None], threads: int, rounds: int, log: Log) -> list[ListEntry]:
    """Returns what has not gone well in the end. `work` raises Failed."""
    pending, lost = list(entries), []
    for attempt in range(1, rounds + 1):
        outcomes = list(zip(pending, run_once(pending, work, threads, log)))
        failed = [(entry, problem) for entry, problem in outcomes if problem is not None]
        lost += [entry for entry, problem in failed if problem.lasting]
        tried, pending = len(pending), [entry for entry, problem in failed if not problem.lasting]
        if not pending or attempt == rounds:
            break
        if len(failed) > FAILURES_MANY and len(failed) > FAILURES_SHARE * tried:
            log.error(f"{len(failed)} of {tried} failed: something they share is broken, so there is no further attempt")
            break
        wait_s = wait_before(attempt + 1)
        log.info(f"{len(pending)} failed that may yet go well: attempt {attempt + 1} of {rounds} in {wait_s:.0f} seconds")
        time.sleep(wait_s)
    return lost + pending


def wait_before(attempt: int) -> float:
    """Jittered: the jobs of one workflow fail together and should not come back together."""
    import random

    return WAITS_S[min(attempt - 1, len(WAITS_S)) - 1] * (1 + JITTER * random.random())


def run_once(entries: Sequence[ListEntry], work: Callable[[ListEntry], None], threads: int, log: Log) -> list[Failed | None]:
    """Each entry's problem, in the order of the entries."""
    problems: list[Failed | None] = [None] * len(entries)
    numbers = iter(range(len(entries)))
    lock = threading.Lock()

    def take() -> None:
        while True:
            with lock:
                number = next(numbers, None)
            if number is None:
                return
            try:
                work(entries[number])
            except Failed as problem:
                problems[number] = problem
            except Exception as problem:
                # In a thread it would be lost, and the entry would pass for done.
                problems[number] = Failed(f"{entries[number]}: {type(problem).__name__}: {problem}", lasting=True)
            if problems[number] is not None:
                log.error(str(problems[number]))

    helpers = started(take, min(threads, len(entries)) - 1)
    take()
    for helper in helpers:
        helper.join()
    return problems


def started(work: Callable[[], None], count: int) -> list[threading.Thread]:
    """As many as the system gives, where a user may have few processes."""
    helpers: list[threading.Thread] = []
    for _ in range(count):
        helper = threading.Thread(target=work)
        try:
            helper.start()
        except RuntimeError:
            break
        helpers.append(helper)
    return helpers
