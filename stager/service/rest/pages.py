"""Answers that are polled: pages with cursors, and tags that say nothing has changed. One rule: a cursor is the service's own word, and
one that it never gave is refused.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request, Response
from pydantic import BaseModel

from stager.model.errors import InvalidInput

LIMIT, LIMIT_MAX = 100, 1000
T = TypeVar("T")
Limit = Annotated[int, Query(ge=1, le=LIMIT_MAX, description="entries of a page")]
Cursor = Annotated[str | None, Query(max_length=500, description="`next_cursor` of the page before")]
Contains = Annotated[str, Query(max_length=500, description="this text, in small letters or capitals")]
# What FastAPI declares beside 200 for what `tagged` answers.
TAGGED: dict[int | str, dict[str, Any]] = {304: {"description": "Nothing has changed since the answer with that ETag"}}


def cursor_of(*parts: str | float) -> str:
    return base64.urlsafe_b64encode(json.dumps(parts).encode()).rstrip(b"=").decode()


def parts_of(cursor: str, *kinds: type) -> list[str | float]:
    """Raises InvalidInput."""
    try:
        parts = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
        json.dumps(parts, ensure_ascii=False, allow_nan=False).encode()
        good = (
            isinstance(parts, list)
            and len(parts) == len(kinds)
            and all(type(part) is kind for part, kind in zip(parts, kinds, strict=True))
        )
    except (ValueError, RecursionError):
        good = False
    if not good:
        raise InvalidInput("cursor is none that this service gave; begin again without one", code="bad_cursor", subject="cursor")
    return list(parts)


def offset_of(cursor: str | None) -> int:
    start = parts_of(cursor, int)[0] if cursor is not None else 0
    assert isinstance(start, int)
    if not 0 <= start <= 1 << 53:
        raise InvalidInput("cursor is none that this service gave; begin again without one", code="bad_cursor", subject="cursor")
    return start


def page_of(entries: Sequence[T], start: int, limit: int) -> tuple[list[T], str | None]:
    """(one page, the cursor of the next). `entries`: from `start` on; one more than the page holds is enough."""
    return list(entries[:limit]), cursor_of(start + limit) if len(entries) > limit else None


def tagged(request: Request, body: BaseModel) -> Response:
    """304 without a body where the client has it already."""
    data = body.model_dump_json(by_alias=True).encode()
    tag = f'"{hashlib.blake2b(data, digest_size=12).hexdigest()}"'
    headers = {"ETag": tag, "Cache-Control": "private, no-cache"}
    known = [word.strip().removeprefix("W/") for word in request.headers.get("if-none-match", "").split(",")]
    if tag in known or "*" in known:
        return Response(status_code=304, headers=headers)
    return Response(data, media_type="application/json", headers=headers)
