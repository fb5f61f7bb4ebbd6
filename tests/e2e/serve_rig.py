"""`stager serve` as its administrator runs it: tenants, tokens, and clients that speak HTTP and nothing else.

One rule: what it started ends with it; what is known of it is what its log and its answers say.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.forked import CLI, started
from tests.testbed.processes import free_port
from tests.testbed.stager import Stager
from tests.testbed.waiting import wait_until

# Objects of tenants have tests of their own; words of a test's own are all that is said.
NO_STORAGE = ("--storage", "0")
START_S = END_S = 120.0
# Of one answer: httpx gives up after five seconds by itself, which a busy machine takes at times.
ANSWER_S = 90.0
ADDRESS = re.compile(r"the REST API is at (http://\S+)/api/v1")


@dataclass
class Service:
    """One state directory. `tenants` is the text of tenants.toml."""

    place: Path
    tenants: str = ""
    words: tuple[str, ...] = ()
    env: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    starts: int = 0
    clients: list[httpx.Client] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.stager = Stager(self.place / "s", self.place / "home", self.env)
        self.stager.state_dir.mkdir(mode=0o700, parents=True)
        self.write_tenants(self.tenants)

    def write_tenants(self, text: str) -> None:
        path = self.stager.state_dir / "tenants.toml"
        beside = path.with_suffix(".new")
        beside.touch(mode=0o600)
        beside.write_text(text)
        beside.replace(path)

    def token(self, tenant: str, scope: str) -> str:
        return self.stager.run("token", "create", "--tenant", tenant, "--scope", scope).stdout.strip()

    @property
    def log(self) -> Path:
        return self.place / f"serve-{self.starts}.log"

    def start(self) -> Service:
        self.starts += 1
        words = ["serve", "--listen", f"127.0.0.1:{free_port()}", "--capacity", "200 MB", *(self.words or NO_STORAGE)]
        with self.log.open("wb") as log:
            streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": log, "stderr": log}
            self.process = started(CLI, words, self.stager.environment(), start_new_session=True, **streams)
        self.url = wait_until(self._address, "the service to say where it is", START_S)
        wait_until(self._ready, "the service to be ready", START_S)
        return self

    def _address(self) -> str:
        assert self.process is not None and self.process.poll() is None, self.log.read_text()
        found = ADDRESS.search(self.log.read_text())
        return found[1] if found else ""

    def _ready(self) -> bool:
        with contextlib.suppress(httpx.TransportError):
            return call("GET", f"{self.url}/readyz").status_code == 200
        return False

    def client(self, token: str) -> httpx.Client:
        """Of /api/v1."""
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        self.clients.append(httpx.Client(base_url=f"{self.url}/api/v1", headers=headers, timeout=ANSWER_S))
        return self.clients[-1]

    def kill(self) -> None:
        assert self.process is not None
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.wait(120)

    def stop(self) -> None:
        """As its administrator ends it: in order."""
        assert self.process is not None
        self.process.terminate()
        assert self.process.wait(END_S) == 0, self.log.read_text()

    def end(self) -> None:
        """A service that is asked to end waits for its jobs: whoever holds one lets it go before."""
        for client in self.clients:
            client.close()
        late = ""
        if self.process is not None and self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(END_S)
            except subprocess.TimeoutExpired:
                late = f"{self.log.read_text()[-5000:]}\n{self.stager.log_tail()}"
        self.stager.end()
        assert not late, f"the service did not end in {END_S:g} s; what it and its node said last:\n{late}"


def call(method: str, url: str, **more: Any) -> httpx.Response:
    """On a line of its own, with no more than is said."""
    return httpx.request(method, url, timeout=ANSWER_S, **more)


def small(data: Path, name: str = "small", shell: str = "tr a-z A-Z < a > b", more: str = "") -> str:
    """A workflow of one job, whose input is there."""
    (data / "in").mkdir(parents=True, exist_ok=True)
    source = data / "in" / "a"
    if not source.exists():
        source.write_text("hello\n")
        os.utime(source, (1_700_000_000, 1_700_000_000))
    return f"""stager: 1
name: {name}
origins: {{data: "file:{data}"}}
jobs:
  up:
    run: {shell}
    inputs: {{a: "data:in/a"}}
    outputs: {{b: "data:out/{name}"}}
{more}"""


def problem(response: httpx.Response, status: int, code: str) -> dict[str, Any]:
    """Every refusal says what it is, about what, and what to do."""
    assert (response.status_code, response.headers["content-type"]) == (status, "application/problem+json"), response.text
    body = response.json()
    assert body["status"] == status and body["code"] == code and body["type"].endswith(code), body
    assert body["title"] and body["detail"] and body["fix"], body
    return dict(body)
