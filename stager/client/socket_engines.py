"""The calls of an engine's run over the socket API.

May know: the socket's client, wire. One rule: all that is said here may be said again.
"""

from __future__ import annotations

from typing import Any

from stager import wire
from stager.client.socket import Client, RunClient

WAIT_S = 20.0


class SocketEngineRun:
    """One run whose jobs an engine runs. A call is the engine's own name of one try of a job."""

    def __init__(self, client: Client, run: str) -> None:
        self.client, self.run = client, run
        self.path = RunClient(client, run).path

    def call(self, job: str, call: str, *, pins: bool = False) -> wire.CallView:
        return self._ask("", job=job, call=call, pins=pins)

    def staged(self, job: str, call: str, *, wait_s: float = WAIT_S) -> wire.CallView:
        return self._ask("/staged", job=job, call=call, wait_s=wait_s)

    def finish(self, job: str, call: str, *, wait_s: float = WAIT_S) -> wire.CallView:
        return self._ask("/finish", job=job, call=call, wait_s=wait_s)

    def fail(self, job: str, call: str, message: str) -> wire.CallView:
        return self._ask("/fail", job=job, call=call, message=message)

    def end(self, succeeded: bool, message: str = "") -> None:
        self.client.post(f"{self.path}/end", wire.EndRequest(succeeded=succeeded, message=message).model_dump_json().encode())

    def where(self, lfn: str) -> wire.FileWhere:
        return self.client.get(wire.FileWhere, f"{self.path}/where", lfn=lfn)

    def _ask(self, what: str, **asked: Any) -> wire.CallView:
        body = wire.CallRequest(**asked).model_dump_json().encode()
        return wire.CallView.model_validate_json(self.client.post(f"{self.path}/calls{what}", body))
