"""The real I/O node as a process, here or on a host of the bed, and a plain client for its control API.

On a private host `store` and all that the node is told are paths there. `token_file` and the log are read from here.
May know: docs/formats/ionode-api.md. One rule: it speaks as any stranger would who has read that page; nothing of stager/ is imported.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.processes import HERE, Server, Where, descendants, end
from tests.testbed.waiting import wait_until

API_VERSION = "1"


class IoNode:
    """One node on one store directory. `start` again after `kill` is a restart of the same node, with a new incarnation."""

    def __init__(
        self,
        binary: Path,
        store: Path,
        capacity_bytes: int = 1_000_000_000,
        epoch: int = 1,
        where: Where = HERE,
        options: Sequence[str] = (),
        node_id: str = "node0",
    ) -> None:
        self.binary, self.store, self.capacity_bytes, self.epoch, self.where = binary, store, capacity_bytes, epoch, where
        self.options, self.node_id = list(options), node_id
        self.server: Server | None = None
        self.rendezvous: dict[str, Any] = {}
        self._commands = itertools.count(1)
        self._http: httpx.Client | None = None

    def start(self, deadline_s: float = 120.0) -> None:
        beside = self.where.outside(self.store.parent)
        beside.mkdir(parents=True, exist_ok=True)
        argv = [str(self.binary), "serve", "--store", str(self.store), "--node-id", self.node_id, "--capacity", str(self.capacity_bytes)]
        argv += ["--socket", str(self.store.parent / f"{self.store.name}.sock"), *self.options]
        self.server = Server(argv, beside / f"{self.store.name}.log", where=self.where)
        self.server.start()
        try:
            self.rendezvous = wait_until(self._meeting_place, f"the I/O node on {self.store}", deadline_s)
        except AssertionError as late:
            raise AssertionError(f"{late}; it said:\n{self.server.log_text()[-4000:]}") from late
        transport = httpx.HTTPTransport(uds=str(self.where.outside(self.rendezvous["socket"])))
        headers = {"Authorization": f"Bearer {self.token_file.read_text().strip()}"}
        self._http = httpx.Client(transport=transport, base_url="http://node", timeout=60, headers=headers)

    def _meeting_place(self) -> dict[str, Any] | None:
        assert self.server is not None, "not started"
        if self.server.gone():
            raise AssertionError(f"the I/O node ended at its start with {self.server.returncode()}:\n{self.server.log_text()[-2000:]}")
        place = self.where.outside(self.store) / "rendezvous.json"
        # It is not synced: empty after a cut of power, until the node removes it.
        found = json.loads(place.read_text() or "{}") if place.exists() else {}
        # One that is left from a killed incarnation names another process.
        return found if found.get("pid") == self.server.pid else None

    def listen_on_its_host(self) -> None:
        """Before the start: for other hosts of the bed, which trust one another."""
        self.options += ["--tcp", f"{self.where.address}:0", "--trust-network"]

    @property
    def address(self) -> str:
        """For peers and clients: with TCP where it listens there."""
        return str(self.rendezvous["tcp"] or self.rendezvous["socket"])

    @property
    def token_file(self) -> Path:
        """As this process finds it."""
        return self.where.outside(self.rendezvous["token_file"])

    def introduce(self, *others: IoNode) -> None:
        """Tells this node where the others are."""
        for other in others:
            self.do("PUT", f"/v1/peers/{other.node_id}", {"address": other.address, "token": other.token_file.read_text().strip()})

    @property
    def pid(self) -> int:
        assert self.server is not None, "not started"
        return self.server.pid

    @property
    def incarnation(self) -> str:
        return str(self.rendezvous["incarnation"])

    def log_text(self) -> str:
        return self.server.log_text() if self.server else ""

    def wait_for_log(self, words: str) -> None:
        """Until its log has these words: a node may answer a call before it logs what it made of it."""
        wait_until(lambda: words in self.log_text(), f"the node to log {words!r}")

    def call(self, method: str, path: str, body: Any = None, *, headers: dict[str, str] | None = None) -> httpx.Response:
        """One call with all that every call carries; `headers` go over it. The caller judges the answer."""
        assert self._http is not None, "not started"
        own = {"X-Stager-Api": API_VERSION, "X-Stager-Epoch": str(self.epoch), "X-Stager-Incarnation": self.incarnation}
        if method != "GET":
            own["X-Stager-Command"] = f"test-{next(self._commands)}"
        return self._http.request(method, path, json=body, headers=own | (headers or {}))

    def get(self, path: str) -> Any:
        answer = self.call("GET", path)
        assert answer.status_code == 200, f"GET {path}: {answer.status_code} {answer.text}"
        return answer.json()

    def do(self, method: str, path: str, body: Any = None) -> Any:
        """A call that must succeed."""
        answer = self.call(method, path, body)
        assert answer.is_success, f"{method} {path}: {answer.status_code} {answer.text}"
        return answer.json() if answer.content else None

    def events(self, after: int = 0, wait_s: float = 50.0) -> Iterator[dict[str, Any]]:
        """Every event after `after`, for ever; AssertionError when none comes for `wait_s`."""
        while True:
            batch = self.get(f"/v1/events?after={after}&wait_s={wait_s:g}")
            assert batch["events"], f"no event after {after} for {wait_s:g} s"
            yield from batch["events"]
            after = batch["events"][-1]["seq"]

    def event_of(self, transfer_id: str, wait_s: float = 50.0) -> dict[str, Any]:
        """The event that ends this transfer."""
        return next(event for event in self.events(wait_s=wait_s) if event.get("transfer_id") == transfer_id)

    def kill(self) -> None:
        """kill -9."""
        if self.server:
            self.server.kill()
        self._close()

    def stop(self) -> None:
        if self.server:
            if not self.server.gone():
                end(descendants(self.server.pid))
            self.server.stop()
        self._close()

    def _close(self) -> None:
        if self._http:
            self._http.close()
            self._http = None
