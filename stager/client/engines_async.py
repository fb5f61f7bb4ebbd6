"""An engine's words about a run whose jobs it runs itself, over HTTP, for programs that run an event loop.

May know: the calls. One rule: whatever is said may be said again, so a service that is started again meanwhile is waited for.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from stager import wire
from stager.client import calls
from stager.client.steps import all_pages, play_async

if TYPE_CHECKING:
    from stager.client.rest_async import AsyncRestClient


class AsyncEngineRun:
    """One run. A call is one try of a job, by a name of the engine's own (letters, digits and `. _ : + @ ~ -`, 200 of them at most)."""

    def __init__(self, client: AsyncRestClient, run: str, patience_s: float) -> None:
        self.client, self.name, self.patience_s = client, run, patience_s

    async def call(self, job: str, call: str, *, pins: bool = False) -> wire.CallView:
        """The engine begins a try of the job. The same name again changes nothing, another takes the place of a try that was lost. `pins`:
        its inputs are to be held on their node only, not copied into a directory.
        """
        return await self.client.send(calls.call(self.name, job, call, pins, self.patience_s))

    async def staged(self, job: str, call: str, *, wait_s: float = 20.0) -> wire.CallView:
        """As soon as it is staged or over, or after `wait_s` as it is then: look at `state`."""
        return await self.client.send(calls.staged(self.name, job, call, wait_s, self.patience_s))

    async def finish(self, job: str, call: str, *, wait_s: float = 20.0) -> wire.CallView:
        """Its task ended well, and what it made in its directory is taken: `publishing` until that is done."""
        return await self.client.send(calls.finish(self.name, job, call, wait_s, self.patience_s))

    async def fail(self, job: str, call: str, message: str) -> wire.CallView:
        """Its task came to nothing. A call that is over already stays as it is."""
        return await self.client.send(calls.fail(self.name, job, call, message, self.patience_s))

    async def open_calls(self) -> list[wire.OpenCall]:
        """All that are not over, whether they are staged or wait."""
        call_of = partial(calls.open_calls, self.name, self.patience_s)
        return await play_async(all_pages(call_of, lambda page: page.calls, calls.PAGE), self.client.send)

    async def end(self, succeeded: bool, message: str = "") -> None:
        """The engine calls no more jobs: what nobody else needs may go, and the run ends once its finals are home."""
        await self.client.send(calls.end_engines(self.name, succeeded, message, self.patience_s))

    async def where(self, lfn: str) -> wire.FileWhere:
        return await self.client.send(calls.where(self.name, lfn, self.patience_s))
