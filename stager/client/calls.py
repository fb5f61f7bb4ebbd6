"""The calls of the REST API as values: what is asked, and what is made of the answer. Both HTTP clients are thin over this.

May know: rest.py, wire, the model. One rule: a call is sent again only if that cannot do it twice.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar
from urllib.parse import quote

from pydantic import BaseModel

from stager import rest, wire
from stager.model.errors import NO_REASON_CODE, Corrupt, Denied, InvalidInput, Refused, StagerError, Transient

B = TypeVar("B", bound=BaseModel)
TRIES = 5
PAUSE_S, PAUSE_MAX_S = 0.5, 20.0
# Of a call with patience: who waits for a service that starts again wants to know soon that it has.
PATIENT_PAUSE_MAX_S = 2.0
# A service that is started again is back by then.
PATIENCE_S = 60.0
# Pages are as large as the service gives them.
PAGE = 1000
CLASS_OF_STATUS: dict[int, type[StagerError]] = {401: Denied, 403: Denied, 409: Refused, 408: Transient, 429: Transient, 503: Transient}

# As a proxy in front of a service says that it is away.
NOT_THERE = (502, 503, 504)


@dataclass(frozen=True)
class Call(Generic[B]):
    """`safe`: sending it twice does what sending it once does. `patience_s`: so long at least it is sent again while no answer comes."""

    method: str
    path: str
    answer: type[B]
    query: Mapping[str, Any] = field(default_factory=dict)
    body: BaseModel | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    safe: bool = True
    patience_s: float = 0.0

    def request(self) -> dict[str, Any]:
        """As httpx takes it."""
        found: dict[str, Any] = {"method": self.method, "url": rest.API_PREFIX.lstrip("/") + self.path, "headers": dict(self.headers)}
        found["params"] = {name: plain(value) for name, value in self.query.items() if value is not None}
        if isinstance(self.body, bytes):
            found["content"] = self.body
            found["headers"]["Content-Type"] = "application/octet-stream"
        elif self.body is not None:
            found["content"] = self.body.model_dump_json().encode()
            found["headers"]["Content-Type"] = "application/json"
        return found


def plain(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def submit(submission: rest.Submission, key: str = "") -> Call[rest.Submitted]:
    """With a key of its own where none is given, so that it may be sent again when an answer is lost."""
    return Call("POST", "/runs", rest.Submitted, body=submission, headers={"Idempotency-Key": key or uuid.uuid4().hex})


def engine_run(submission: rest.EngineSubmission, key: str) -> Call[rest.Submitted]:
    return Call("POST", "/engine-runs", rest.Submitted, body=submission, headers={"Idempotency-Key": key or uuid.uuid4().hex})


def run_of_key(key: str) -> Call[rest.RunPage]:
    return Call("GET", "/runs", rest.RunPage, {"key": key})


def validate(upload: rest.WorkflowText) -> Call[rest.Validated]:
    return Call("POST", "/validate", rest.Validated, body=upload)


def plan(upload: rest.WorkflowText) -> Call[rest.Planned]:
    return Call("POST", "/plan", rest.Planned, body=upload)


def estimate(question: rest.EstimateQuestion) -> Call[rest.Estimated]:
    return Call("POST", "/estimate", rest.Estimated, body=question)


def missing_contents(question: rest.ContentsQuestion) -> Call[rest.ContentsMissing]:
    return Call("POST", "/contents", rest.ContentsMissing, body=question)


def send_part(content: rest.Content, offset: int, part: bytes) -> Call[rest.ContentReceived]:
    """Sent twice it is received once."""
    query = {"size_bytes": content.size_bytes, "offset": offset}
    return Call("PUT", f"/contents/{content.sha256}", rest.ContentReceived, query, body=part)


def result_part(run: str, lfn: str, offset: int) -> Call[rest.ResultPart]:
    return Call("GET", f"{of_run(run)}/results/{quote(lfn, safe='')}", rest.ResultPart, {"offset": offset})


def runs(cursor: str | None = None, limit: int = PAGE, parts: bool = True) -> Call[rest.RunPage]:
    return Call("GET", "/runs", rest.RunPage, {"cursor": cursor, "limit": limit, "parts": parts})


def nodes() -> Call[rest.NodeList]:
    return Call("GET", "/nodes", rest.NodeList)


def of_node(node: str) -> str:
    return f"/nodes/{quote(node, safe='')}"


def drain_node(node: str, request: wire.NodeDrain) -> Call[wire.NodeView]:
    return Call("POST", f"{of_node(node)}/drain", wire.NodeView, body=request)


def forget_node(node: str, request: wire.NodeForget) -> Call[wire.NodeLoss]:
    return Call("POST", f"{of_node(node)}/forget", wire.NodeLoss, body=request, safe=False)


def hosts() -> Call[wire.HostList]:
    return Call("GET", "/hosts", wire.HostList)


def drain_host(host: str) -> Call[wire.HostView]:
    return Call("POST", f"/hosts/{quote(host, safe='')}/drain", wire.HostView)


def forget_host(host: str, request: wire.HostForget) -> Call[wire.HostView]:
    return Call("POST", f"/hosts/{quote(host, safe='')}/forget", wire.HostView, body=request, safe=False)


def storage() -> Call[rest.Storage]:
    return Call("GET", "/storage", rest.Storage)


def profiles() -> Call[rest.ProfileList]:
    return Call("GET", "/profiles", rest.ProfileList)


def of_run(run: str) -> str:
    return f"/runs/{quote(run, safe='')}"


def status(run: str) -> Call[wire.RunStatus]:
    return Call("GET", of_run(run), wire.RunStatus)


def events(run: str) -> Call[wire.ProgressEvent]:
    """A stream of them. A service that is started again is waited for."""
    return Call("GET", f"{of_run(run)}/events", wire.ProgressEvent, patience_s=PATIENCE_S)


def summary(run: str) -> Call[wire.RunSummary]:
    return Call("GET", f"{of_run(run)}/summary", wire.RunSummary)


def losses(run: str) -> Call[wire.Losses]:
    return Call("GET", f"{of_run(run)}/losses", wire.Losses)


def wait(run: str, timeout_s: float, lfn: str | None) -> Call[wire.WaitResponse]:
    return Call("GET", f"{of_run(run)}/wait", wire.WaitResponse, {"timeout_s": within(timeout_s), "lfn": lfn})


def within(wait_s: float) -> float:
    """The longest time that the service lets an answer wait."""
    return max(0.0, min(wait_s, 60.0))


def end(run: str, verb: str, by: str | None = None) -> Call[wire.WaitResponse]:
    """cancel, drain or stop."""
    return Call("POST", f"{of_run(run)}/{verb}", wire.WaitResponse, {"by": by}, safe=False)


def resume(run: str, env: Mapping[str, str], budget: str = "") -> Call[wire.WaitResponse]:
    return Call("POST", f"{of_run(run)}/resume", wire.WaitResponse, body=rest.Resumption(env=dict(env), budget=budget), safe=False)


def add_key(run: str, key: str) -> Call[wire.WaitResponse]:
    return Call("POST", f"{of_run(run)}/keys", wire.WaitResponse, headers={"Idempotency-Key": key})


def jobs(run: str, state: str | None, job: str | None, cursor: str | None, limit: int = PAGE) -> Call[rest.JobPage]:
    return Call("GET", f"{of_run(run)}/jobs", rest.JobPage, {"state": state, "job": job, "cursor": cursor, "limit": limit})


def files(run: str, state: str | None, lfn: str | None, cursor: str | None, limit: int = PAGE) -> Call[rest.FilePage]:
    return Call("GET", f"{of_run(run)}/files", rest.FilePage, {"state": state, "lfn": lfn, "cursor": cursor, "limit": limit})


def transfers(run: str, cursor: str | None, limit: int = PAGE) -> Call[rest.TransferPage]:
    return Call("GET", f"{of_run(run)}/transfers", rest.TransferPage, {"cursor": cursor, "limit": limit})


def logs(run: str, job: str, **chosen: Any) -> Call[wire.JobLogs]:
    """`tail_bytes`, `attempt`, `stream`, `after`."""
    return Call("GET", f"{of_job(run, job)}/logs", wire.JobLogs, chosen)


def explain(run: str, lfn: str | None, job: str | None) -> Call[wire.Explanation]:
    return Call("GET", f"{of_run(run)}/explain", wire.Explanation, {"lfn": lfn, "job": job})


def of_job(run: str, job: str) -> str:
    return f"{of_run(run)}/jobs/{quote(job, safe='')}"


def of_call(run: str, job: str, call: str) -> str:
    return f"{of_job(run, job)}/calls/{quote(call, safe='')}"


def call(run: str, job: str, call: str, pins: bool, patience_s: float) -> Call[wire.CallView]:
    asked = rest.CallQuestion(call=call, stage="pins" if pins else "paths")
    return Call("POST", f"{of_job(run, job)}/calls", wire.CallView, body=asked, patience_s=patience_s)


def staged(run: str, job: str, call: str, wait_s: float, patience_s: float) -> Call[wire.CallView]:
    return Call("GET", of_call(run, job, call), wire.CallView, {"wait_s": within(wait_s)}, patience_s=patience_s)


def finish(run: str, job: str, call: str, wait_s: float, patience_s: float) -> Call[wire.CallView]:
    asked = rest.FinishQuestion(wait_s=within(wait_s))
    return Call("POST", f"{of_call(run, job, call)}/finish", wire.CallView, body=asked, patience_s=patience_s)


def fail(run: str, job: str, call: str, message: str, patience_s: float) -> Call[wire.CallView]:
    asked = rest.FailQuestion(message=message[: rest.MESSAGE_MAX])
    return Call("POST", f"{of_call(run, job, call)}/fail", wire.CallView, body=asked, patience_s=patience_s)


def end_engines(run: str, succeeded: bool, message: str, patience_s: float) -> Call[wire.WaitResponse]:
    asked = rest.EndQuestion(succeeded=succeeded, message=message[: rest.MESSAGE_MAX])
    return Call("POST", f"{of_run(run)}/end", wire.WaitResponse, body=asked, patience_s=patience_s)


def open_calls(run: str, patience_s: float, cursor: str | None, limit: int = PAGE) -> Call[rest.CallPage]:
    return Call("GET", f"{of_run(run)}/calls", rest.CallPage, {"cursor": cursor, "limit": limit}, patience_s=patience_s)


def where(run: str, lfn: str, patience_s: float) -> Call[wire.FileWhere]:
    return Call("GET", f"{of_run(run)}/files/{quote(lfn, safe='')}/where", wire.FileWhere, patience_s=patience_s)


def error_from_answer(status_code: int, body: bytes) -> StagerError:
    """An error answer of the service, as the error that the command line and programs know."""
    kind = CLASS_OF_STATUS.get(status_code, Corrupt if status_code >= 500 else InvalidInput)
    try:
        problem = rest.Problem.model_validate_json(body)
    except ValueError:
        code = NO_REASON_CODE if status_code in NOT_THERE else "io_error"
        return Transient(f"the service answered {status_code} without a reason; is this the address of `stager serve`?", code=code)
    text = problem.detail if problem.fix in problem.detail else f"{problem.detail}; {problem.fix}"
    error = kind(text, code=problem.code, subject=problem.key)
    error.details["findings"] = [finding.model_dump() for finding in problem.findings]
    return error


def unreachable(server: str, problem: Exception) -> Transient:
    text = f"the service at {server} does not answer ({problem or type(problem).__name__}); is `stager serve` running there?"
    return Transient(text, code="connection_lost", subject=server)


class Retries:
    """Of one call: after each that failed, the seconds until it is sent again, or its error. 429 and 503 did nothing, so they are sent
    again; what was not answered, where that cannot do it twice.
    """

    def __init__(self, call: Call[Any], server: str) -> None:
        self.call, self.server = call, server
        self.begin()

    def begin(self) -> None:
        """Also where something came of it and it is to go on."""
        self.count, self.began = 0, time.monotonic()

    def unanswered(self, problem: Exception) -> float:
        pause_s = self._pause() if self.call.safe else None
        if pause_s is None:
            raise unreachable(self.server, problem) from problem
        return pause_s

    def refused(self, status_code: int, body: bytes, retry_after: str | None) -> float:
        said = float(retry_after) if retry_after is not None and retry_after.isdecimal() else 0.0
        pause_s = self._pause(said) if status_code in (429, 503) else None
        if pause_s is None:
            raise error_from_answer(status_code, body)
        return pause_s

    def _pause(self, said_s: float = 0.0) -> float | None:
        self.count += 1
        if self.count >= TRIES and time.monotonic() - self.began >= self.call.patience_s:
            return None
        most = PATIENT_PAUSE_MAX_S if self.call.patience_s else PAUSE_MAX_S
        return min(most, max(said_s, PAUSE_S * 2.0 ** min(self.count - 1, 10)))


class EventLines:
    """Server-sent events from lines, remembering the last id for when the line breaks."""

    def __init__(self, after: int = 0) -> None:
        self.after = after
        self.kind, self.data = "", ""
        self.ended = False

    def headers(self) -> dict[str, str]:
        return {"Accept": "text/event-stream", "Last-Event-ID": str(self.after)}

    def feed(self, line: str) -> wire.ProgressEvent | None:
        """The event that ends with this line."""
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self.kind = value
        elif name == "data":
            self.data = value
        elif not line and self.data:
            kind, data, self.kind, self.data = self.kind, self.data, "", ""
            if kind == "end":
                self.ended = True
            elif kind == "gap":
                # What is told next may begin anew.
                self.after = 0
                return wire.ProgressEvent(seq=0, at=0.0, run="", kind="gap", text="some events are no longer kept; look at the status")
            else:
                event = wire.ProgressEvent.model_validate_json(data)
                self.after = event.seq
                return event
        return None
