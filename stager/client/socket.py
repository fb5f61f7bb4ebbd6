"""The socket API: what the command line uses, over the Unix socket of a state directory.

May know: wire and the model. One rule: standard library transport only, so that a plugin's environment needs nothing for it.
Errors are raised as StagerError.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import subprocess
import time
import urllib.parse
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel

from stager import wire
from stager.client.steps import POLL_S, play, until_finished
from stager.client.warm_start import WarmStart, scheduler_command
from stager.model.errors import STATE_DIR_GONE_CODE, Refused, StagerError, Transient, error_from
from stager.model.units import format_size
from stager.model.workflow import Workflow
from stager.planning.budget import Budget
from stager.planning.plan import Plan, ReusedJob, Sharing

SOCKET_NAME, LOCK_NAME = "scheduler.sock", "lock"
LOG_NAME = "scheduler.log"
LOG_LINES_SHOWN = 15
START_POLL_S = 0.02
START_AGAIN_S = 0.5
START_DEADLINE_S = 120.0
ALREADY_HELD_EXIT = 3
DISK_FULL_BYTES = 100_000
B = TypeVar("B", bound=BaseModel)


class UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket. The path may be longer than the kernel takes: the directory is then opened and named by its descriptor."""

    def __init__(self, path: Path, timeout_s: float | None) -> None:
        super().__init__(wire.HOST, timeout=timeout_s)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        directory = os.open(self.path.parent, os.O_PATH | os.O_DIRECTORY)
        try:
            self.sock.connect(f"/proc/self/fd/{directory}/{self.path.name}")
        finally:
            os.close(directory)


def of_node(node: str) -> str:
    return f"/v1/nodes/{urllib.parse.quote(node, safe='')}"


class Client:
    """One scheduler. Not for several threads at once; make one each."""

    def __init__(self, state_dir: str | Path, *, timeout_s: float = 120.0) -> None:
        self.socket_path = Path(state_dir) / SOCKET_NAME
        self.timeout_s = timeout_s
        self.connection: UnixConnection | None = None
        self.met: tuple[int, int] | None = None

    def close(self) -> None:
        if self.connection is not None:
            self.connection.close()
            self.connection = None

    def __enter__(self) -> Client:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def call(self, method: str, path: str, body: bytes | None = None, query: Mapping[str, Any] | None = None) -> bytes:
        """The answer's body. Raises the error the scheduler answered with, Transient if it cannot be asked, and Refused if its state
        directory is gone since it answered last.
        """
        try:
            data = self._call(method, path, body, query)
        except Transient:
            if self.met is not None and self.met != identity(self.socket_path.parent):
                raise state_dir_gone(self.socket_path.parent) from None
            raise
        self.met = self.met or identity(self.socket_path.parent)
        return data

    def _call(self, method: str, path: str, body: bytes | None, query: Mapping[str, Any] | None) -> bytes:
        target = path + ("?" + urllib.parse.urlencode({k: v for k, v in query.items() if v is not None}) if query else "")
        headers = {"Host": wire.HOST, "X-Stager-Api": str(wire.API_VERSION), "Content-Type": "application/json"}
        reused = self.connection is not None
        try:
            answer = self._exchange(method, target, body, headers)
        except (OSError, http.client.HTTPException) as problem:
            self.close()
            # A kept connection may have been closed in between; a read is safe to send again, a change is not.
            if not (reused and method == "GET"):
                text = f"the scheduler at {self.socket_path} does not answer ({problem}); is it running?"
                raise Transient(text, code="connection_lost") from problem
            return self._call(method, path, body, query)
        except BaseException:
            # An answer may still be on its way (Ctrl-C in the middle of a wait): the next call must not read it.
            self.close()
            raise
        status, data = answer
        if status >= 400:
            raise error_of(status, data)
        return data

    def _exchange(self, method: str, target: str, body: bytes | None, headers: Mapping[str, str]) -> tuple[int, bytes]:
        if self.connection is None:
            self.connection = UnixConnection(self.socket_path, self.timeout_s)
        # It may answer before it has read all, and go: its answer is there all the same.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.connection.request(method, target, body, dict(headers))
        response = self.connection.getresponse()
        return response.status, response.read()

    def get(self, kind: type[B], path: str, **query: Any) -> B:
        return kind.model_validate_json(self.call("GET", path, query=query))

    def post(self, path: str, body: bytes = b"{}") -> bytes:
        return self.call("POST", path, body)

    def health(self) -> wire.Health:
        return self.get(wire.Health, "/v1/health")

    def submit(
        self,
        workflow: Workflow,
        plan: Plan,
        credentials: wire.Credentials,
        *,
        submit_id: str = "",
        priority: int = 0,
        reused: tuple[ReusedJob, ...] = (),
        budget: Budget | None = None,
        sharing: Sharing | None = None,
    ) -> str:
        """The new run's id. The same `submit_id` again answers with the same run. `reused`: jobs that need not run. `sharing`: what it may
        take over while it goes on.
        """
        key = submit_id or uuid.uuid4().hex
        request = wire.SubmitRequest(workflow, plan, credentials, key, priority=priority, reused=reused, budget=budget, sharing=sharing)
        return wire.SubmitResponse.model_validate_json(self.post("/v1/runs", wire.encode(request))).run

    def run(self, run: str) -> RunClient:
        return RunClient(self, run)

    def runs(self, *, parts: bool = True) -> list[wire.RunInfo]:
        """`parts`: each by itself; else an engine's runs that are part of one thing in one."""
        return self.get(wire.RunList, "/v1/runs", parts=str(parts).lower()).runs

    def gc(self, request: wire.GcRequest) -> wire.GcReport:
        return wire.GcReport.model_validate_json(self.post("/v1/gc", request.model_dump_json().encode()))

    def nodes(self) -> list[wire.NodeView]:
        """Each with what would be lost with it now."""
        return self.get(wire.NodeViews, "/v1/nodes").nodes

    def drain_node(self, node: str, request: wire.NodeDrain) -> wire.NodeView:
        return wire.NodeView.model_validate_json(self.post(f"{of_node(node)}/drain", request.model_dump_json().encode()))

    def forget_node(self, node: str, request: wire.NodeForget) -> wire.NodeLoss:
        return wire.NodeLoss.model_validate_json(self.post(f"{of_node(node)}/forget", request.model_dump_json().encode()))

    @property
    def hosts(self) -> HostsClient:
        return HostsClient(self)

    def shutdown(self, *, now: bool = False) -> None:
        """Interrupts all runs (drains; `now` stops them at once) and ends the scheduler and its node."""
        self.call("POST", "/v1/shutdown", b"{}", {"now": int(now)})

    def give_way(self) -> None:
        """Asked by a service that is to live here. Refused by another service, and where runs of the owner's are active."""
        self.post("/v1/give-way")


class HostsClient:
    """The compute hosts of a scheduler."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def listed(self) -> list[wire.HostView]:
        return self.client.get(wire.HostList, "/v1/hosts").hosts

    def drain(self, host: str) -> wire.HostView:
        return wire.HostView.model_validate_json(self.client.post(f"/v1/hosts/{urllib.parse.quote(host, safe='')}/drain"))

    def forget(self, host: str, request: wire.HostForget) -> wire.HostView:
        path = f"/v1/hosts/{urllib.parse.quote(host, safe='')}/forget"
        return wire.HostView.model_validate_json(self.client.post(path, request.model_dump_json().encode()))


class RunClient:
    """One run of a scheduler."""

    def __init__(self, client: Client, run: str) -> None:
        self.client, self.name = client, run
        self.path = f"/v1/runs/{urllib.parse.quote(run, safe='')}"

    def status(self) -> wire.RunStatus:
        return self.client.get(wire.RunStatus, self.path)

    def summary(self) -> wire.RunSummary:
        """Refused until the run has finished."""
        return self.client.get(wire.RunSummary, f"{self.path}/summary")

    def needs(self) -> wire.RunNeeds:
        return self.client.get(wire.RunNeeds, f"{self.path}/needs")

    def workflow(self) -> Workflow:
        return wire.decode_workflow(self.client.call("GET", f"{self.path}/workflow"))

    def plan(self) -> Plan:
        return wire.decode_plan(self.client.call("GET", f"{self.path}/plan"))

    def resume(
        self, credentials: wire.Credentials, workflow: Workflow | None = None, plan: Plan | None = None, budget: str = ""
    ) -> wire.Resumed:
        """`workflow` and `plan`: as they are now. Refused, with the jobs that differ, if what is done would not stand. `budget`: what
        it may cost in all from now on.
        """
        body = wire.encode(wire.ResumeRequest(credentials, workflow, plan, budget))
        return wire.Resumed.model_validate_json(self.client.post(f"{self.path}/resume", body))

    def drain(self) -> None:
        """Start no more jobs; interrupted and resumable once running jobs and uploads ended."""
        self.client.post(f"{self.path}/drain")

    def stop(self) -> None:
        """Interrupted at once, resumable."""
        self.client.post(f"{self.path}/stop")

    def losses(self) -> wire.Losses:
        return self.client.get(wire.Losses, f"{self.path}/losses")

    def cancel(self) -> None:
        """For good. Ask with `losses` first."""
        self.client.post(f"{self.path}/cancel")

    def wait(self, *, timeout_s: float = POLL_S, lfn: str | None = None) -> wire.WaitResponse:
        """Until the run finishes, or `lfn` is durable, or the timeout: look at `finished` and `durable`. InvalidInput if `lfn` is
        no final.
        """
        timeout_s = min(timeout_s, self.client.timeout_s / 2)
        return self.client.get(wire.WaitResponse, f"{self.path}/wait", timeout_s=timeout_s, lfn=lfn)

    def wait_finished(self, deadline_s: float | None = None) -> wire.WaitResponse:
        return play(until_finished(deadline_s), lambda left_s: self.wait(timeout_s=left_s))

    def ledger(self, *, lfn: str | None = None) -> list[wire.LedgerEntry]:
        return self.client.get(wire.Ledger, f"{self.path}/ledger", lfn=lfn).files

    def jobs(self, *, state: str | None = None, job: str | None = None, limit: int = 1000) -> list[wire.JobView]:
        return self.client.get(wire.JobList, f"{self.path}/jobs", state=state, job=job, limit=limit).jobs

    def logs(
        self, job: str, *, tail_bytes: int = 65_536, attempt: str | None = None, stream: str | None = None, after: int | None = None
    ) -> wire.JobLogs:
        """`after`: instead of the end what comes behind so many bytes."""
        chosen = {"tail_bytes": tail_bytes, "attempt": attempt, "stream": stream, "after": after}
        return self.client.get(wire.JobLogs, f"{self.path}/logs", job=job, **chosen)

    def explain(self, *, lfn: str | None = None, job: str | None = None) -> wire.Explanation:
        return self.client.get(wire.Explanation, f"{self.path}/explain", lfn=lfn, job=job)

    def history(self) -> wire.RunHistory:
        """Refused until the run has finished."""
        return self.client.get(wire.RunHistory, f"{self.path}/history")

    def events(self, after: int = 0, *, wait_s: float = POLL_S) -> wire.ProgressPage:
        """The events after that number; waits for the next if there is nothing yet."""
        return self.client.get(wire.ProgressPage, f"{self.path}/events", after=after, wait_s=wait_s)

    def follow(self, after: int = 0) -> Iterator[wire.ProgressEvent]:
        """All events until the run finishes."""
        while True:
            page = self.events(after)
            yield from page.events
            after = page.next_seq - 1
            if any(event.kind == "finish_run" for event in page.events) or (not page.events and self.wait(timeout_s=0).finished):
                return


def identity(state_dir: Path) -> tuple[int, int] | None:
    """The identity of the state directory that is there, by its lock: one that `rm -r` could not remove whole, since it was written to, is
    none any more. None: none.
    """
    try:
        found = (state_dir / LOCK_NAME).stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def state_dir_gone(state_dir: Path) -> Refused:
    text = f"the state directory {state_dir} was removed or replaced while its scheduler was running, and the scheduler has ended"
    text += "; its runs cannot be resumed: submit the workflow again, with on_exists: replace if finals are at their destinations already"
    return Refused(text, code=STATE_DIR_GONE_CODE, subject=str(state_dir))


def error_of(status: int, data: bytes) -> StagerError:
    try:
        return error_from(wire.ErrorResponse.model_validate_json(data).error.fault())
    except ValueError:
        return Transient(f"the scheduler answered {status}: {data[:200].decode(errors='replace')}", code="io_error")


def connect(state_dir: str | Path) -> Client | None:
    """A client of the living scheduler of this state directory, or None if there is none."""
    client = Client(state_dir)
    try:
        client.health()
    except Transient:
        client.close()
        return None
    return client


def connect_or_start(
    state_dir: str | Path, arguments: Sequence[str] = (), warm: WarmStart | None = None, *, deadline_s: float = START_DEADLINE_S
) -> Client:
    """The scheduler of this state directory, when it is ready; starts `python -m stager.service` with these arguments where none runs.
    `warm`: a process that was started with them and waits to be told.

    Raises Refused with the last lines of its log if it does not come up.
    """
    state_dir = Path(state_dir)
    process: subprocess.Popen[bytes] | None = None
    end = time.monotonic() + deadline_s
    while True:
        client = connect(state_dir)
        if client is not None and is_ready(client):
            return client
        exit_code = process.poll() if process is not None else ALREADY_HELD_EXIT
        if exit_code not in (None, 0, ALREADY_HELD_EXIT):
            raise start_failed(state_dir, f"did not start (exit {exit_code})")
        if time.monotonic() > end:
            raise start_failed(state_dir, f"is not ready after {deadline_s:.0f} s")
        if client is None and exit_code is not None:
            # None lives, or one that is just ending or starting holds the lock: then it is this one's turn as soon as the lock is free.
            time.sleep(START_AGAIN_S if process is not None else 0.0)
            process = start_detached(state_dir, arguments, warm)
        time.sleep(START_POLL_S)


def is_ready(client: Client) -> bool:
    """False also for one that is ending."""
    try:
        return client.health().ready
    except Transient:
        return False


def start_failed(state_dir: Path, what: str) -> Refused:
    log = state_dir / LOG_NAME
    return Refused(
        f"{disk_full(state_dir)}the scheduler of {state_dir} {what}; its log {log} ends with:\n{last_lines(log)}", code="scheduler_start"
    )


def disk_full(state_dir: Path) -> str:
    """On a full disk the log breaks off before it says so."""
    try:
        disk = os.statvfs(state_dir)
    except OSError:
        return ""
    free_bytes = disk.f_bavail * disk.f_frsize
    return (
        f"the disk of {state_dir} is full ({format_size(free_bytes)} free); make room, then run the command again\n"
        if free_bytes < DISK_FULL_BYTES
        else ""
    )


def start_detached(state_dir: Path, arguments: Sequence[str], warm: WarmStart | None = None) -> subprocess.Popen[bytes]:
    """In a session of its own, so that Ctrl-C of the terminal reaches the command and not the scheduler."""
    state_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
    log = os.open(state_dir / LOG_NAME, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        told = warm.tell(log) if warm is not None else None
        return told or subprocess.Popen(
            scheduler_command(state_dir, arguments), stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True, cwd="/"
        )
    finally:
        os.close(log)


def last_lines(path: Path, count: int = LOG_LINES_SHOWN) -> str:
    try:
        lines = path.read_bytes()[-20_000:].decode(errors="replace").splitlines()
    except OSError as problem:
        return f"(no log: {problem})"
    return "\n".join("  " + line for line in lines[-count:])


def pretty(body: BaseModel) -> str:
    """The text that `--json` prints."""
    return json.dumps(body.model_dump(mode="json", by_alias=True), indent=1)
