"""Waiting for a run, over restarts of the service that runs it. Triggers wait so, and tasks that keep their slot.

May know: stager's async client. One rule: nothing is changed by waiting, and only what trying again can mend is waited for.

A triggerer waits for hundreds of runs at a time, and a service keeps a few answers open for each tenant. So all waits of a process for one
service share a line: one client, and so many calls at a time, in turn. With few waits each call stays open until something happens; with
many they ask briefly, one after the other.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from airflow.providers.stager import progress
from airflow.providers.stager.progress import Pulse

from stager.model.errors import NEWER_CODE, StagerError, Transient

if TYPE_CHECKING:
    from airflow.providers.stager.hooks.stager import ServiceAddress

    from stager import wire
    from stager.client import AsyncRestClient

T = TypeVar("T")
LOG = logging.getLogger(__name__)
POLL_S = 20.0
OPEN_MAX, TURN_S = 8, 0.8
PAUSE_S, PAUSE_MAX_S = 1.0, 30.0
# As long as stager itself waits for an origin.
PATIENCE_S = 6 * 3600.0
INTERRUPTED = "interrupted"
# As whom a task stops its run when Airflow ends the task. The next try goes on with that, as with what the service's end has interrupted.
BY_AIRFLOW = "airflow"
GONE_ON_WITH = ("", "service", BY_AIRFLOW)
ENDED = ("succeeded", "failed", "not_durable", "refused", "interrupted", "cancelled")


@dataclass(slots=True)
class SharedClient:
    """To one service, of one event loop."""

    client: AsyncRestClient
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(OPEN_MAX))
    waiting: int = 0
    users: int = 0

    async def wait(self, run: str, lfn: str | None = None) -> wire.WaitResponse:
        """Long if few wait, and else the state of now, in its turn. Raises StagerError."""
        self.waiting += 1
        try:
            async with self.slots:
                crowded = self.waiting > OPEN_MAX
                answer = await self.client.run(run).wait(timeout_s=0 if crowded else POLL_S, lfn=lfn)
                if crowded and not (answer.finished or answer.durable):
                    await asyncio.sleep(TURN_S)
                return answer
        finally:
            self.waiting -= 1

    async def say(self, run: str, pulse: Pulse, text_of: Callable[[wire.RunStatus], str]) -> None:
        """Into the log of the task that waits, in its turn. Who cannot be asked is told of by those who wait."""
        if pulse.is_due():
            with suppress(StagerError):
                async with self.slots:
                    status = await self.client.run(run).status()
                LOG.info("%s", text_of(status))


LINES: dict[tuple[asyncio.AbstractEventLoop, str, str], SharedClient] = {}


@asynccontextmanager
async def shared_client(address: ServiceAddress) -> AsyncIterator[SharedClient]:
    """Closed when the last who waits leaves."""
    from stager.client import AsyncRestClient

    key = (asyncio.get_running_loop(), address.server, address.token)
    if key not in LINES:
        LINES[key] = SharedClient(AsyncRestClient(address.server, address.token))
    line = LINES[key]
    line.users += 1
    try:
        yield line
    finally:
        line.users -= 1
        if not line.users:
            del LINES[key]
            await line.client.close()


async def patiently(ask: Callable[[], Awaitable[T]], patience_s: float) -> T:
    """The answer, as soon as there is one. Raises the last Transient once the service has been away for so long, and other StagerErrors at
    once.
    """
    away_since: float | None = None
    pause_s = PAUSE_S
    pulse = Pulse()
    while True:
        try:
            return await ask()
        except Transient as problem:
            away_since = time.monotonic() if away_since is None else away_since
            away_s = time.monotonic() - away_since
            if away_s >= patience_s:
                raise
            if pulse.is_due():
                LOG.warning("%s; waiting for it for %.0f s now, at most %.0f s", problem.message, away_s, patience_s)
        await asyncio.sleep(pause_s)
        pause_s = min(PAUSE_MAX_S, pause_s * 2)


async def ended(line: SharedClient, run: str, patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """How the run ended, as the event of a trigger. Interrupted: told when the service is there to resume it."""
    pulse = Pulse()
    try:
        while True:
            await line.say(run, pulse, progress.of_run)
            answer = await patiently(lambda: line.wait(run), patience_s)
            if answer.finished:
                break
        if answer.state == INTERRUPTED:
            await patiently(lambda: takes_runs(line.client), patience_s)
            # It may have gone on by itself meanwhile.
            answer = await patiently(lambda: line.client.run(run).wait(timeout_s=0), patience_s)
            if not answer.finished:
                return await ended(line, run, patience_s)
    except StagerError as problem:
        return {"run": run, "error": problem.message}
    told = answer.fault.message if answer.fault else ""
    return {"run": run, "state": answer.state, "by": answer.interrupted_by, "message": told}


def is_stopped(state: str, by: str) -> bool:
    """By somebody who wants it to stand still."""
    return state == INTERRUPTED and by not in GONE_ON_WITH


def stopped(run: str, by: str) -> str:
    who = "" if by == "request" else f" by {by}"
    return f"run {run} was stopped{who}, not by its task; clear the task to go on with it"


async def back(line: SharedClient, patience_s: float) -> dict[str, Any]:
    """When a service that was away takes runs again, or the patience with it is over. `waited_s`: time that passed, which no setting of a
    clock changes.
    """
    began = time.monotonic()
    told: dict[str, Any] = {}
    try:
        await patiently(lambda: takes_runs(line.client), patience_s)
    except StagerError as problem:
        told["error"] = problem.message
    return told | {"waited_s": time.monotonic() - began}


async def takes_runs(client: AsyncRestClient) -> None:
    """Raises Transient while it does not: it ends, or has just begun."""
    import httpx

    try:
        answer = await client.http.get("readyz")
    except httpx.TransportError as problem:
        raise Transient(f"the service at {client.server} does not answer ({problem or type(problem).__name__})") from problem
    if answer.status_code != 200:
        raise Transient(f"the service at {client.server} takes no runs now")


async def durable(line: SharedClient, run: str, lfns: Sequence[str], patience_s: float = PATIENCE_S) -> dict[str, Any]:
    """Until these finals of the run are durable, or never will be; without a name: all of them. A file that was superseded is told, and
    not waited for.
    """
    superseded: list[str] = []
    pulse = Pulse()
    try:
        for lfn in lfns:
            while True:
                await line.say(run, pulse, partial(until_durable, lfn))
                answer = await patiently(partial(line.wait, run, lfn), patience_s)
                if answer.durable or answer.superseded or answer.finished:
                    break
            if answer.superseded:
                superseded.append(answer.superseded)
            elif not answer.durable:
                return {"run": run, "error": never(run, answer, lfn)}
        while not lfns:
            status = await patiently(line.client.run(run).status, patience_s)
            if status.finals_durable == status.finals_total:
                superseded = told_superseded(status)
                break
            if status.info.state in ENDED:
                return {"run": run, "error": not_all(run, status)}
            if pulse.is_due():
                LOG.info("waiting until all products are durable; %s", progress.of_run(status))
            await patiently(lambda: line.wait(run), patience_s)
    except StagerError as problem:
        return {"run": run, "error": problem.message}
    return {"run": run, "durable": list(lfns), "superseded": superseded}


def told_superseded(status: wire.RunStatus) -> list[str]:
    """Of products that do not go home, since something newer is there."""
    return [problem.message for problem in status.problems if problem.code == NEWER_CODE]


def until_durable(lfn: str, status: wire.RunStatus) -> str:
    return f"waiting until {lfn} is durable; {progress.of_run(status)}"


def never(run: str, answer: wire.WaitResponse, lfn: str) -> str:
    why = f": {answer.fault.message}" if answer.fault else ""
    return f"run {run} is {answer.state}, and {lfn!r} is not durable{why}; resume the run, then clear this task"


def not_all(run: str, status: wire.RunStatus) -> str:
    told = f"{status.finals_durable} of {status.finals_total} products are durable"
    return f"run {run} is {status.info.state}, and {told}; resume the run, then clear this task"
