"""The contents that a tenant sends before a workflow: which are missing, and the bytes of one. One rule: the answer about a digest depends
on nothing that another tenant has sent.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Annotated, Any

from fastapi import APIRouter, Path, Query, Request

from stager import rest
from stager.service.rest.callers import Submitter
from stager.service.sent_contents import SentStores

log = logging.getLogger(__name__)
SWEEP_EVERY_S = 600.0

OCTETS: dict[str, Any] = {
    "requestBody": {"required": True, "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}
Size = Annotated[int, Query(ge=0, le=1 << 53, description="of the whole content")]
Offset = Annotated[int, Query(ge=0, le=1 << 53, description="of the first byte of this part")]
Digest = Annotated[str, Path(pattern=rest.DIGEST_PATTERN)]


def contents_router(stores: SentStores) -> APIRouter:
    router = APIRouter(tags=["contents"])
    # A tenant has one thread at a time: all share them.
    locks: dict[str, asyncio.Lock] = {}

    @router.post("/contents/missing")
    async def missing(body: rest.ContentsQuestion, caller: Submitter) -> rest.ContentsMissing:
        """The contents that you have still to send, and how much of each came already. The others are kept for an hour at least."""
        async with locks.setdefault(caller.tenant, asyncio.Lock()):
            found = await asyncio.to_thread(stores.of(caller.tenant).missing, body.contents)
        return rest.ContentsMissing(missing=found, bytes_max=stores.directory_bytes_max, files_max=rest.SENT_FILES_MAX)

    @router.put("/contents/{sha256}", openapi_extra=OCTETS)
    async def receive(request: Request, sha256: Digest, caller: Submitter, size_bytes: Size, offset: Offset = 0) -> rest.ContentReceived:
        """A part of a content. The last one is answered when the digest of all was computed; a content with another is dropped."""
        body = await request.body()
        async with locks.setdefault(caller.tenant, asyncio.Lock()):
            return await asyncio.to_thread(stores.of(caller.tenant).take, sha256, size_bytes, offset, body)

    return router


async def sweep_contents(stores: SentStores) -> None:
    """For ever. What nothing needs any more goes."""
    while True:
        await asyncio.sleep(SWEEP_EVERY_S)
        try:
            await asyncio.to_thread(stores.sweep)
        except OSError as problem:
            log.warning("what tenants sent cannot be cleared up just now: %s", problem)
