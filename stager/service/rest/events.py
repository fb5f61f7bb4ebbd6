"""The events of a run, as server-sent events. One rule: an event's id is its number, so who lost the line goes on where it broke; what is
no longer kept is told as a gap, never left out without a word.
"""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from stager.model.errors import Transient
from stager.service.following import Following
from stager.service.rest.callers import Own, Reader
from stager.service.rest.limits import Waits
from stager.service.timeline import progress_event

HEARTBEAT_S = 15.0
RETRY_MS = 2000
ABOUT = "ProgressEvents, named by their kind; `gap`: some are no longer kept; `end`: the run has finished"
# Of one event, as parsers give it: `data` is JSON.
FIELDS = {"data": {"type": "string"}, "event": {"type": "string"}, "id": {"type": "string"}, "retry": {"type": "integer"}}
EVENT = {"type": "object", "properties": FIELDS}
STREAM: dict[int | str, dict[str, Any]] = {200: {"description": ABOUT, "content": {"text/event-stream": {"schema": EVENT}}}}
After = Annotated[int | None, Query(ge=0, le=1 << 53, description="the number of the last event known")]
Last = Annotated[str | None, Header(alias="Last-Event-ID", pattern=r"^[0-9]{1,15}$", description="the same, as browsers send it")]


def events_router(own: Own, following: Following, waits: Waits) -> APIRouter:
    router = APIRouter(tags=["runs"])

    @router.get("/runs/{run}/events", response_class=StreamingResponse, responses=STREAM)
    async def events(run: str, caller: Reader, after: After = None, last_event_id: Last = None) -> StreamingResponse:
        """Until the run has finished. The header wins over the query: a browser that comes again still has the query in its URL."""
        await own(run, caller)
        await following.require(run)
        start = int(last_event_id) if last_event_id is not None else after or 0
        with contextlib.ExitStack() as stack:
            stack.enter_context(waits.one(caller.tenant))
            return Stream(stream(following, run, start), stack.pop_all())

    return router


class Stream(StreamingResponse):
    """Counts as open until it has ended, however it ends: its reader may be gone before the first word."""

    def __init__(self, content: AsyncIterator[str], opened: contextlib.ExitStack) -> None:
        super().__init__(content, media_type="text/event-stream")
        self.opened = opened

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self.opened:
            await super().__call__(scope, receive, send)


async def stream(following: Following, run: str, after: int) -> AsyncIterator[str]:
    yield f"retry: {RETRY_MS}\n\n"
    try:
        async for text in told(following, run, after):
            yield text
    except Transient:
        # The service ends; the reader comes again and finds the next one.
        return


async def told(following: Following, run: str, after: int) -> AsyncIterator[str]:
    if await following.is_folded(run):
        yield event_text("gap", {"after": after})
        yield event_text("end", (await following.ended_or(run, None, 0)).model_dump(mode="json", by_alias=True))
        return
    if after >= await following.next_seq():
        # A number of a journal that is no longer there.
        yield event_text("gap", {"after": after})
        after = 0
    while not following.has_ended():
        begun = time.monotonic()
        answer = await following.ended_or(run, None, 0)
        steps, gap, next_seq = await following.steps_after(run, after, 0 if answer.finished else HEARTBEAT_S)
        if gap:
            yield event_text("gap", {"after": after})
        for step in steps:
            yield event_text(step.kind, progress_event(step).model_dump(mode="json"), step.seq)
        if not steps and answer.finished:
            yield event_text("end", answer.model_dump(mode="json", by_alias=True))
            return
        if not steps and time.monotonic() - begun >= HEARTBEAT_S:
            yield ": still here\n\n"
        after = next_seq - 1


def event_text(kind: str, data: dict[str, Any], number: int | None = None) -> str:
    """JSON has no line breaks outside of strings, and none unescaped inside."""
    head = f"id: {number}\n" if number is not None else ""
    return f"{head}event: {kind}\ndata: {json.dumps(data)}\n\n"
