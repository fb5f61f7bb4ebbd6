"""`stager serve` over HTTP, one call at a time.

May know: the calls, httpx. One rule: it decides nothing; what is asked and what is made of the answer stands in `calls`.
"""

# Written from rest_async.py by scripts/sync_clients.py: change that one.
from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from functools import partial
from typing import TypeVar

import httpx
from pydantic import BaseModel

from stager import rest, wire
from stager.client import calls
from stager.client.calls import Call, EventLines, Retries
from stager.client.engines import EngineRun
from stager.client.proxies import mounts_for
from stager.client.steps import POLL_S, all_pages, play, until_finished

B = TypeVar("B", bound=BaseModel)


class RestClient:
    """One service, as one tenant. `token` is a secret of `stager token create`."""

    def __init__(self, server: str, token: str, *, timeout_s: float = 120.0) -> None:
        self.server = server.rstrip("/")
        headers = {"Authorization": f"Bearer {token}"}
        self.http = httpx.Client(base_url=self.server + "/", headers=headers, timeout=timeout_s, mounts=mounts_for(server))
        self.contents = Contents(self)

    def close(self) -> None:
        self.http.close()

    def __enter__(self) -> RestClient:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def send(self, call: Call[B]) -> B:
        """Raises StagerError. A request that was not answered is sent again where that cannot do it twice."""
        retries = Retries(call, self.server)
        while True:
            try:
                answer = self.http.request(**call.request())
            except httpx.TransportError as problem:
                pause_s = retries.unanswered(problem)
            else:
                if answer.is_success:
                    return call.answer.model_validate_json(answer.content)
                pause_s = retries.refused(answer.status_code, answer.content, answer.headers.get("Retry-After"))
            time.sleep(pause_s)

    def submit(self, submission: rest.Submission, *, key: str = "") -> str:
        """The run's id."""
        return self.send(calls.submit(submission, key)).run

    def engine_run(self, submission: rest.EngineSubmission, *, key: str = "") -> str:
        """The id of a run whose jobs an engine runs. A caller with the same `key` gets the same run."""
        return self.send(calls.engine_run(submission, key)).run

    def run_of_key(self, key: str) -> str | None:
        """The run that a submit with this key has made, if there is one."""
        found = self.send(calls.run_of_key(key)).runs
        return found[0].run if found else None

    def engine(self, run: str, *, patience_s: float = calls.PATIENCE_S) -> EngineRun:
        """Of the engine that runs the jobs of this run. `patience_s`: how long a service that does not answer is waited for."""
        return EngineRun(self, run, patience_s)

    def validate(self, upload: rest.WorkflowText) -> rest.Validated:
        return self.send(calls.validate(upload))

    def plan(self, upload: rest.WorkflowText) -> rest.Planned:
        return self.send(calls.plan(upload))

    def estimate(self, question: rest.EstimateQuestion) -> rest.Estimated:
        return self.send(calls.estimate(question))

    def runs(self, *, parts: bool = True) -> list[wire.RunInfo]:
        """All that the token may see, the newest first. `parts`: as in `Client.runs`."""
        steps: Generator[Call[rest.RunPage], rest.RunPage, list[wire.RunInfo]]
        steps = all_pages(partial(calls.runs, parts=parts), lambda page: page.runs, calls.PAGE)
        return play(steps, self.send)

    def nodes(self) -> list[rest.Node]:
        return self.send(calls.nodes()).nodes

    def drain_node(self, node: str, request: wire.NodeDrain) -> wire.NodeView:
        """For an administrator. With `undo` it takes work again."""
        return self.send(calls.drain_node(node, request))

    def forget_node(self, node: str, request: wire.NodeForget) -> wire.NodeLoss:
        """For an administrator. The node is gone for good; one of its name that comes later is a stranger."""
        return self.send(calls.forget_node(node, request))

    @property
    def hosts(self) -> Hosts:
        return Hosts(self)

    def storage(self) -> rest.Storage:
        """The S3 endpoint of the service, and a key for an hour."""
        return self.send(calls.storage())

    def profiles(self) -> rest.ProfileList:
        return self.send(calls.profiles())

    def run(self, run: str) -> RestRun:
        return RestRun(self, run)


class Contents:
    """What one sends before the workflow that needs it."""

    def __init__(self, client: RestClient) -> None:
        self.client = client

    def missing(self, contents: Sequence[rest.Content]) -> rest.ContentsMissing:
        """Those that the service still needs, and how much of each it has. The others it keeps for an hour at least."""
        return self.client.send(calls.missing_contents(rest.ContentsQuestion(contents=list(contents))))

    def send_part(self, content: rest.Content, offset: int, part: bytes) -> rest.ContentReceived:
        """Some bytes of a content, 8 MiB at most. With the last of them the service checks its digest."""
        return self.client.send(calls.send_part(content, offset, part))

    def result_part(self, run: str, lfn: str, offset: int) -> rest.ResultPart:
        """Bytes of a final of this run whose place is in a directory that came with its workflow, 4 MiB at most."""
        return self.client.send(calls.result_part(run, lfn, offset))


class Hosts:
    """The compute hosts of the service's pool. Draining and forgetting one is for administrators."""

    def __init__(self, client: RestClient) -> None:
        self.client = client

    def listed(self) -> list[wire.HostView]:
        return self.client.send(calls.hosts()).hosts

    def drain(self, host: str) -> wire.HostView:
        """Nothing more is started there."""
        return self.client.send(calls.drain_host(host))

    def forget(self, host: str, request: wire.HostForget) -> wire.HostView:
        """It does not come back, and its attempts are lost."""
        return self.client.send(calls.forget_host(host, request))


class RestRun:
    """One run. Methods that a run over the socket has, too, have the same names."""

    def __init__(self, client: RestClient, run: str) -> None:
        self.client, self.name = client, run

    def status(self) -> wire.RunStatus:
        return self.client.send(calls.status(self.name))

    def summary(self) -> wire.RunSummary:
        """Refused until the run has finished."""
        return self.client.send(calls.summary(self.name))

    def losses(self) -> wire.Losses:
        return self.client.send(calls.losses(self.name))

    def cancel(self) -> None:
        """For good. Ask with `losses` first."""
        self.client.send(calls.end(self.name, "cancel"))

    def drain(self, by: str | None = None) -> None:
        """Start no more jobs; interrupted and resumable once running jobs and uploads ended. `by`: told to all who wait for the run."""
        self.client.send(calls.end(self.name, "drain", by))

    def stop(self, by: str | None = None) -> None:
        """Interrupted at once, resumable."""
        self.client.send(calls.end(self.name, "stop", by))

    def resume(self, env: Mapping[str, str] | None = None, budget: str = "") -> None:
        self.client.send(calls.resume(self.name, env or {}, budget))

    def add_key(self, key: str) -> None:
        """`run_of_key` finds it by this one too, and a submit with it makes no other. Refused if it is another run's."""
        self.client.send(calls.add_key(self.name, key))

    def wait(self, *, timeout_s: float = POLL_S, lfn: str | None = None) -> wire.WaitResponse:
        """Until the run finishes, or `lfn` is durable, or the timeout: look at `finished` and `durable`."""
        return self.client.send(calls.wait(self.name, timeout_s, lfn))

    def wait_finished(self, deadline_s: float | None = None) -> wire.WaitResponse:
        return play(until_finished(deadline_s), lambda left_s: self.wait(timeout_s=left_s))

    def jobs(self, *, state: str | None = None, job: str | None = None, limit: int = 1000) -> list[wire.JobView]:
        call_of = partial(calls.jobs, self.name, state, job)
        return play(all_pages(call_of, lambda page: page.jobs, calls.PAGE, limit), self.client.send)

    def ledger(self, *, lfn: str | None = None, state: str | None = None) -> list[wire.LedgerEntry]:
        call_of = partial(calls.files, self.name, state, lfn)
        return play(all_pages(call_of, lambda page: page.files, calls.PAGE), self.client.send)

    def transfers(self) -> list[wire.TransferView]:
        return self.client.send(calls.transfers(self.name, None)).transfers

    def logs(
        self, job: str, *, tail_bytes: int = 65_536, attempt: str | None = None, stream: str | None = None, after: int | None = None
    ) -> wire.JobLogs:
        """`after`: instead of the end what comes behind so many bytes."""
        asked = calls.logs(self.name, job, tail_bytes=tail_bytes, attempt=attempt, stream=stream, after=after)
        return self.client.send(asked)

    def explain(self, *, lfn: str | None = None, job: str | None = None) -> wire.Explanation:
        """The timeline of a file or a job, in order."""
        return self.client.send(calls.explain(self.name, lfn, job))

    def follow(self, after: int = 0) -> Iterator[wire.ProgressEvent]:
        """All events until the run finishes; a line that breaks is taken up where it broke. A `gap`: some are no longer kept."""
        call = calls.events(self.name)
        lines, retries = EventLines(after), Retries(call, self.client.server)
        while not lines.ended:
            opened = False
            try:
                with self.client.http.stream(**call.request() | {"headers": lines.headers()}) as answer:
                    if answer.is_error:
                        pause_s = retries.refused(answer.status_code, answer.read(), answer.headers.get("Retry-After"))
                    else:
                        # Where it is closed before the end, the service ends, or something between here and there did.
                        opened, pause_s = True, calls.PAUSE_S
                        for line in answer.iter_lines():
                            if (event := lines.feed(line)) is not None:
                                yield event
            except httpx.TransportError as problem:
                pause_s = calls.PAUSE_S if opened else retries.unanswered(problem)
            if opened:
                retries.begin()
            if not lines.ended:
                time.sleep(pause_s)
