"""The contents that a tenant sends before a workflow: which are missing, and the bytes of one. One rule: the answer about a digest depends
on nothing that another tenant has sent.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path as FilePath
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from stager import rest
from stager.adapters.run_records import RunRecord
from stager.model.errors import Refused
from stager.scheduler.state import State
from stager.service.queries import RunQueries
from stager.service.rest.callers import Own, Reader, Submitter
from stager.service.rest.limits import Turns
from stager.service.sent_contents import SentStores
from stager.service.sent_directories import SentDirectories
from stager.service.sent_places import TREES

log = logging.getLogger(__name__)
SWEEP_EVERY_S = 600.0
PART_BYTES = 4 << 20
HOME = ("durable", "written")

OCTETS: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
Size = Annotated[int, Query(ge=0, le=1 << 53, description="of the whole content")]
Offset = Annotated[int, Query(ge=0, le=1 << 53, description="of the first byte of this part")]
Digest = Annotated[str, Path(pattern=rest.DIGEST_PATTERN)]


def contents_router(stores: SentStores) -> APIRouter:
    router = APIRouter(tags=["contents"])
    turns = Turns()

    @router.post("/contents")
    async def missing(body: rest.ContentsQuestion, caller: Submitter) -> rest.ContentsMissing:
        """The contents that you have still to send, and how much of each came already. The others are kept for an hour at least."""
        async with turns.of(caller.tenant):
            found = await asyncio.to_thread(stores.of(caller.tenant).missing, body.contents)
        return rest.ContentsMissing(missing=found, bytes_max=stores.directory_bytes_max, files_max=rest.SENT_FILES_MAX)

    @router.put("/contents/{sha256}", openapi_extra=OCTETS)
    async def receive(request: Request, sha256: Digest, caller: Submitter, size_bytes: Size, offset: Offset = 0) -> rest.ContentReceived:
        """A part of a content. The last one is answered when the digest of all was computed; a content with another is dropped."""
        body = await request.body()
        async with turns.of(caller.tenant):
            return await asyncio.to_thread(stores.of(caller.tenant).take, sha256, size_bytes, offset, body)

    return router


def results_router(own: Own, queries: RunQueries, stores: SentStores) -> APIRouter:
    router = APIRouter(tags=["contents"])

    @router.get("/runs/{run}/results/{lfn:path}")
    async def result(run: str, lfn: str, caller: Reader, offset: Offset = 0) -> rest.ResultPart:
        """Bytes of a final whose place is in a directory that came with the workflow, from `offset` on: 4 MiB at most."""
        record = await own(run, caller)
        entry = next(iter(await queries.ledger(run, lfn)), None)
        if entry is None or not entry.final or entry.state not in HOME:
            raise Refused(f"{lfn!r} is no final of run {run} that has come to its place", code="not_home", subject=lfn)
        directories = SentDirectories(stores.of(record.tenant))
        return await asyncio.to_thread(lambda: part_of(directories.of_run(run, entry.origin, entry.path), offset))

    return router


def part_of(path: FilePath, offset: int) -> rest.ResultPart:
    with path.open("rb") as file:
        file.seek(offset)
        content = file.read(PART_BYTES)
        size_bytes = os.fstat(file.fileno()).st_size
    return rest.ResultPart(content=base64.b64encode(content), sha256=hashlib.sha256(content).hexdigest(), size_bytes=size_bytes)


def trees_of(state: State, records: Iterable[RunRecord]) -> set[str]:
    """By name, those that runs have as origins."""
    removed = {record.run for record in records if record.removed}
    urls = (origin.url for run, entry in state.runs.items() if run not in removed for origin in entry.workflow.origins.values())
    return {parts[-2] for url in urls if len(parts := url.split("/")) > 3 and parts[-3] == TREES}


async def sweep_contents(stores: SentStores, needed: Callable[[], Awaitable[set[str]]]) -> None:
    """For ever. What nothing needs any more goes. `needed`: the directories of runs that there are."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await asyncio.to_thread(sweep, stores, await needed())
        except OSError as problem:
            log.warning("what tenants sent cannot be cleared up just now: %s", problem)


def sweep(stores: SentStores, needed: set[str]) -> None:
    """Directories first: they hold contents."""
    for tenant in stores.tenants():
        SentDirectories(stores.of(tenant)).sweep(needed, time.time())
    stores.sweep()
