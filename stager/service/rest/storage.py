"""Where a tenant's objects are, and a key for them. One rule: the key says whose it is and what it may; the I/O node holds it to that, and
no byte of an object passes here.
"""

from __future__ import annotations

import time

from fastapi import APIRouter

from stager import rest
from stager.adapters.storage_keys import LIFETIME_S
from stager.model.errors import Refused, Transient
from stager.model.tenants import Scope
from stager.service.app import Scheduler
from stager.service.rest.callers import Reader

REGION = "us-east-1"


def storage_router(scheduler: Scheduler) -> APIRouter:
    router = APIRouter(tags=["storage"])

    @router.get("/storage")
    async def storage(caller: Reader) -> rest.Storage:
        """The S3 endpoint, and a key to your buckets for an hour: to read where the token has the scope `read`, else to write too."""
        settings = scheduler.settings.storage
        if settings is None or scheduler.issuer is None:
            raise Refused("this service keeps no objects; have it served with --storage SIZE", code="storage_off", subject="storage")
        address = scheduler.node.s3_address
        if not address:
            raise Transient("the I/O node is not up yet; ask again in a moment", code="busy", subject="storage")
        may_write = caller.scope.includes(Scope.SUBMIT)
        key = scheduler.issuer.issue(caller.tenant, may_write=may_write, now=time.time())
        return rest.Storage(
            endpoint=settings.url or f"http://{address}",
            region=REGION,
            access_key_id=key.access_key_id,
            secret_access_key=key.secret_access_key,
            expires_at=key.expires_at,
            expires_in_s=LIFETIME_S,
            may_write=may_write,
        )

    return router
