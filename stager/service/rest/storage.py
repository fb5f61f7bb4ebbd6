"""Where a tenant's objects are, and a key for them. One rule: the key says whose it is and what it may; the I/O node holds it to that, and
no byte of an object passes here.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time

from fastapi import APIRouter

from stager import rest
from stager.adapters.storage_keys import KeyIssuer
from stager.adapters.tokens import TokenStore
from stager.model.errors import Refused, StagerError, Transient
from stager.model.tenants import Scope
from stager.service.objects import Objects
from stager.service.rest.callers import Reader
from stager.service.tenancy import Tenancy

log = logging.getLogger(__name__)
REGION = "us-east-1"
POLL_S = 2.0


def storage_router(objects: Objects | None) -> APIRouter:
    """`objects` None: the service keeps none."""
    router = APIRouter(tags=["storage"])

    @router.get("/storage")
    async def storage(caller: Reader) -> rest.Storage:
        """The S3 endpoint, and a key to your buckets for an hour: to read where the token has the scope `read`, else to write too."""
        if objects is None:
            raise Refused("this service keeps no objects; have it served with --storage SIZE", code="storage_off", subject="storage")
        endpoint = objects.endpoint()
        if not endpoint:
            raise Transient(f"the I/O node {objects.node.node_id} is not up yet; ask again in a moment", code="busy", subject="storage")
        may_write = caller.scope.includes(Scope.SUBMIT)
        now = time.time()
        key = objects.issuer.issue(caller.tenant, caller.token, may_write=may_write, now=now, until=caller.until)
        return rest.Storage(
            endpoint=endpoint,
            region=REGION,
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            expires_at=key.expires_at,
            expires_in_s=max(0, key.expires_at - int(now)),
            may_write=may_write,
        )

    return router


async def maintain_keys(issuer: KeyIssuer, tenancy: Tenancy, tokens: TokenStore) -> None:
    """For ever. `stager token revoke` takes keys back by itself; here is seen that a tenant is gone, or that a key was given just then.

    On the loop, as keys are issued: on a thread it would take back what is issued to who has just become good.
    """
    while True:
        try:
            issuer.sweep(lambda: good_tokens(tenancy, tokens), time.time())
        except (OSError, sqlite3.Error) as problem:
            log.warning("keys to objects cannot be taken back just now: %s", problem)
        await asyncio.sleep(POLL_S)


def good_tokens(tenancy: Tenancy, tokens: TokenStore) -> set[str]:
    """None, while nobody can tell who the tenants are."""
    now = time.time()
    try:
        known = tenancy.now()
    except StagerError:
        return set()
    return {token.id for token in tokens.all() if token.is_good(now) and known.get(token.tenant) is not None}
