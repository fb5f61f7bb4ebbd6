"""`stager serve` over HTTP, for programs that run an event loop.

May know: the calls, httpx. One rule: it decides nothing; what is asked and what is made of the answer stands in `calls`.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import httpx
from pydantic import BaseModel

from stager import rest, wire
from stager.client import calls
from stager.client.calls import Call, EventLines, Retries
from stager.client.engines_async import AsyncEngineRun
from stager.client.proxies import mounts_for
from stager.client.steps import POLL_S, all_pages, play_async, until_finished

B = TypeVar("B", bound=BaseModel)


class AsyncRestClient:
    """One service, as one tenant. `token` is a secret of `stager token create`."""

    def __init__(self, server: str, token: str, *, timeout_s: float = 120.0) -> None:
        self.server = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.AsyncClient(base_url=self.server + "/", headers=headers, timeout=timeout_s, mounts=mounts_for(server))
        self.contents = AsyncContents(self)

    async def close(self) -> None:
        await self.http.aclose()

    async def __aenter__(self) -> AsyncRestClient:
        return self

    async def __aexit__(self, *exc: object) -> None:
        await self.close()

    async def send(self, call: Call[B]) -> B:
        """Raises StagerError. A request that was not answered is sent again where that cannot do it twice."""
        retries = Retries(call, self.server)
        while True:
            try:
                answer = await self.http.request(**call.request())
            except httpx.TransportError as problem:
                pause_s = retries.unanswered(problem)
            else:
                if answer.is_success:
                    return call.answer.model_validate_json(answer.content)
                pause_s = retries.refused(answer.status_code, answer.content, answer.headers.get("Retry-After"))
            await asyncio.sleep(pause_s)

    async def submit(self, submission: rest.Submission, *, key: str = "") -> str:
        """The run's id."""
        return (await self.send(calls.submit(submission, key))).run

    async def engine_run(self, submission: rest.EngineSubmission, *, key: str = "") -> str:
        """The id of a run whose jobs an engine runs. A caller with the same `key` gets the same run."""
        return (await self.send(calls.engine_run(submission, key))).run

    async def run_of_key(self, key: str) -> str | None:
        """The run that a submit with this key has made, if there is one."""
        found = (await self.send(calls.run_of_key(key))).runs
        return found[0].run if found else None

    def engine(self, run: str, *, patience_s: float = calls.PATIENCE_S) -> AsyncEngineRun:
        """Of the engine that runs the jobs of this run. `patience_s`: how long a service that does not answer is waited for."""
        return AsyncEngineRun(self, run, patience_s)

    async def validate(self, upload: rest.WorkflowText) -> rest.Validated:
        return await self.send(calls.validate(upload))

    async def plan(self, upload: rest.WorkflowText) -> rest.Planned:
        return await self.send(calls.plan(upload))

    async def estimate(self, question: rest.EstimateQuestion) -> rest.Estimated:
        return await self.send(calls.estimate(question))

    async def runs(self, *, parts: bool = True) -> list[wire.RunInfo]:
        """All that the token may see, the newest first. `parts`: as in `Client.runs`."""
        steps: Generator[Call[rest.RunPage], rest.RunPage, list[wire.RunInfo]]
        steps = all_pages(partial(calls.runs, parts=parts), lambda page: page.runs, calls.PAGE)
        return await play_async(steps, self.send)

    async def nodes(self) -> list[rest.Node]:
        return (await self.send(calls.nodes())).nodes

    async def drain_node(self, node: str, request: wire.NodeDrain) -> wire.NodeView:
        """For an administrator. With `undo` it takes work again."""
        return await self.send(calls.drain_node(node, request))

    async def forget_node(self, node: str, request: wire.NodeForget) -> wire.NodeLoss:
        """For an administrator. The node is gone for good; one of its name that comes later is a stranger."""
        return await self.send(calls.forget_node(node, request))

    @property
    def hosts(self) -> AsyncHosts:
        return AsyncHosts(self)

    async def storage(self) -> rest.Storage:
        """The S3 endpoint of the service, and a key for an hour."""
        return await self.send(calls.storage())

    async def profiles(self) -> rest.ProfileList:
        return await self.send(calls.profiles())

    def run(self, run: str) -> AsyncRestRun:
        return AsyncRestRun(self, run)


class AsyncContents:
    """What one sends before the workflow that needs it."""

    def __init__(self, client: AsyncRestClient) -> None:
        self.client = client

    async def missing(self, contents: Sequence[rest.Content]) -> rest.ContentsMissing:
        """Those that the service still needs, and how much of each it has. The others it keeps for an hour at least."""
        return await self.client.send(calls.missing_contents(rest.ContentsQuestion(contents=list(contents))))

    async def send_part(self, content: rest.Content, offset: int, part: bytes) -> rest.ContentReceived:
        """Some bytes of a content, 8 MiB at most. With the last of them the service checks its digest."""
        return await self.client.send(calls.send_part(content, offset, part))

    async def result_part(self, run: str, lfn: str, offset: int) -> rest.ResultPart:
        """Bytes of a final of this run whose place is in a directory that came with its workflow, 4 MiB at most."""
        return await self.client.send(calls.result_part(run, lfn, offset))


class AsyncHosts:
    """The compute hosts of the service's pool. Draining and forgetting one is for administrators."""

    def __init__(self, client: AsyncRestClient) -> None:
        self.client = client

    async def listed(self) -> list[wire.HostView]:
        return (await self.client.send(calls.hosts())).hosts

    async def drain(self, host: str) -> wire.HostView:
        """Nothing more is started there."""
        return await self.client.send(calls.drain_host(host))

    async def forget(self, host: str, request: wire.HostForget) -> wire.HostView:
        """It does not come back, and its attempts are lost."""
        return await self.client.send(calls.forget_host(host, request))


class AsyncRestRun:
    """One run. Methods that a run over the socket has, too, have the same names."""

    def __init__(self, client: AsyncRestClient, run: str) -> None:
        self.client, self.name = client, run

    async def status(self) -> wire.RunStatus:
        return await self.client.send(calls.status(self.name))

    async def summary(self) -> wire.RunSummary:
        """Refused until the run has finished."""
        return await self.client.send(calls.summary(self.name))

    async def losses(self) -> wire.Losses:
        return await self.client.send(calls.losses(self.name))

    async def cancel(self) -> None:
        """For good. Ask with `losses` first."""
        await self.client.send(calls.end(self.name, "cancel"))

    async def drain(self, by: str | None = None) -> None:
        """Start no more jobs; interrupted and resumable once running jobs and uploads ended. `by`: told to all who wait for the run."""
        await self.client.send(calls.end(self.name, "drain", by))

    async def stop(self, by: str | None = None) -> None:
        """Interrupted at once, resumable."""
        await self.client.send(calls.end(self.name, "stop", by))

    async def resume(self, env: Mapping[str, str] | None = None, budget: str = "") -> None:
        await self.client.send(calls.resume(self.name, env or {}, budget))

    async def add_key(self, key: str) -> None:
        """`run_of_key` finds it by this one too, and a submit with it makes no other. Refused if it is another run's."""
        await self.client.send(calls.add_key(self.name, key))

    async def wait(self, *, timeout_s: float = POLL_S, lfn: str | None = None) -> wire.WaitResponse:
        """Until the run finishes, or `lfn` is durable, or the timeout: look at `finished` and `durable`."""
        return await self.client.send(calls.wait(self.name, timeout_s, lfn))

    async def wait_finished(self, deadline_s: float | None = None) -> wire.WaitResponse:
        return await play_async(until_finished(deadline_s), lambda left_s: self.wait(timeout_s=left_s))

    async def jobs(self, *, state: str | None = None, job: str | None = None, limit: int = 1000) -> list[wire.JobView]:
        call_of = partial(calls.jobs, self.name, state, job)
        return await play_async(all_pages(call_of, lambda page: page.jobs, calls.PAGE, limit), self.client.send)

    async def ledger(self, *, lfn: str | None = None, state: str | None = None) -> list[wire.LedgerEntry]:
        call_of = partial(calls.files, self.name, state, lfn)
        return await play_async(all_pages(call_of, lambda page: page.files, calls.PAGE), self.client.send)

    async def transfers(self) -> list[wire.TransferView]:
        return (await self.client.send(calls.transfers(self.name, None))).transfers

    async def logs(
        self, job: str, *, tail_bytes: int = 65_536, attempt: str | None = None, stream: str | None = None, after: int | None = None
    ) -> wire.JobLogs:
        """`after`: instead of the end what comes behind so many bytes."""
        asked = calls.logs(self.name, job, tail_bytes=tail_bytes, attempt=attempt, stream=stream, after=after)
        return await self.client.send(asked)

    async def explain(self, *, lfn: str | None = None, job: str | None = None) -> wire.Explanation:
        """The timeline of a file or a job, in order."""
        return await self.client.send(calls.explain(self.name, lfn, job))

    async def follow(self, after: int = 0) -> AsyncIterator[wire.ProgressEvent]:
        """All events until the run finishes; a line that breaks is taken up where it broke. A `gap`: some are no longer kept."""
        call = calls.events(self.name)
        lines, retries = EventLines(after), Retries(call, self.client.server)
        while not lines.ended:
            opened = False
            try:
                async with self.client.http.stream(**call.request() | {"headers": lines.headers()}) as answer:
                    if answer.is_error:
                        pause_s = retries.refused(answer.status_code, await answer.aread(), answer.headers.get("Retry-After"))
                    else:
                        # Where it is closed before the end, the service ends, or something between here and there did.
                        opened, pause_s = True, calls.PAUSE_S
                        async for line in answer.aiter_lines():
                            if (event := lines.feed(line)) is not None:
                                yield event
            except httpx.TransportError as problem:
                pause_s = calls.PAUSE_S if opened else retries.unanswered(problem)
            if opened:
                retries.begin()
            if not lines.ended:
                await asyncio.sleep(pause_s)
