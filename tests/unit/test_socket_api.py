"""The socket API reads queries and bodies by type, refuses strangers, and answers errors with their status."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Mapping
from typing import Any

import pytest
from starlette.requests import Request

from stager import wire
from stager.model.errors import Denied, InvalidInput
from stager.service.api.activity import Activity
from stager.service.api.routing import Asked, Handler, endpoint_of

OURS = {"host": wire.HOST}


def request(query: str = "", body: bytes = b"", headers: Mapping[str, str] = OURS) -> Request:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "path_params": {"run": "r1"},
        "query_string": query.encode(),
        "headers": [(name.encode(), value.encode()) for name, value in headers.items()],
    }
    return Request(scope, receive)


def answered(handler: Handler, *, activity: Activity | None = None, **asked: Any) -> tuple[int, bytes]:
    response = asyncio.run(_answer(handler, activity or Activity(), asked))
    return response


async def _answer(handler: Handler, activity: Activity, asked: Mapping[str, Any]) -> tuple[int, bytes]:
    response = await endpoint_of(handler, activity)(request(**asked))
    return response.status_code, bytes(response.body)


def test_values_of_a_query_have_the_type_of_their_default() -> None:
    asked = Asked(request("limit=7&wait_s=0.5&parts=FALSE&after=3&lfn=a%26b"))
    assert asked.number("limit", 1000) == 7 and asked.number("wait_s", 20.0) == 0.5
    assert asked.number_or_none("after") == 3 and asked.flag("parts", default=True) is False
    assert asked.required("lfn") == "a&b" and asked.run == "r1"


def test_what_a_query_lacks_has_its_default() -> None:
    asked = Asked(request())
    assert asked.number("limit", 1000) == 1000 and asked.number_or_none("after") is None
    assert asked.flag("parts", default=True) is True and asked.text("lfn") is None


@pytest.mark.parametrize(
    ("query", "read"),
    [
        ("limit=many", lambda asked: asked.number("limit", 1)),
        ("limit=1.5", lambda asked: asked.number("limit", 1)),
        ("after=", lambda asked: asked.number_or_none("after")),
        ("parts=perhaps", lambda asked: asked.flag("parts", default=True)),
        ("", lambda asked: asked.required("job")),
    ],
)
def test_the_value_that_cannot_be_read_is_named(query: str, read: Any) -> None:
    with pytest.raises(InvalidInput) as refusal:
        read(Asked(request(query)))
    assert refusal.value.subject in ("limit", "after", "parts", "job") and refusal.value.subject in refusal.value.message


def test_a_body_that_is_not_understood_is_told_by_its_places_only() -> None:
    async def gc(asked: Asked) -> wire.Body:
        return await asked.body_as(wire.GcRequest)

    status, body = answered(gc, body=b'{"run_days": {"secret": "hunter2"}, "dry_run": "hunter2"}')
    assert status == 422 and b"hunter2" not in body and b"dry_run" in body


def test_an_error_has_its_status_and_its_class() -> None:
    async def denied(asked: Asked) -> None:
        raise Denied("not yours", code="no", subject="r1")

    status, body = answered(denied)
    assert status == 403 and wire.ErrorResponse.model_validate_json(body).error.message == "not yours"


@pytest.mark.parametrize("headers", [{}, {"host": "example.org"}, {**OURS, "x-stager-api": str(wire.API_VERSION + 1)}])
def test_a_stranger_is_refused_before_anything_happens(headers: dict[str, str]) -> None:
    async def never(asked: Asked) -> None:
        raise AssertionError

    status, _ = answered(never, headers=headers)
    assert status == 400


def test_an_open_call_is_activity_whether_or_not_it_fails() -> None:
    activity, seen = Activity(), []

    async def fails(asked: Asked) -> None:
        seen.append(activity.open_calls)
        raise InvalidInput("no", code="bad_request")

    assert answered(fails, activity=activity)[0] == 422
    assert seen == [1] and activity.open_calls == 0


def test_an_embedded_scheduler_imports_no_fastapi() -> None:
    """A command waits for these imports, and FastAPI is a fifth of them."""
    code = "import sys, stager.service.process; print(sorted(n for n in sys.modules if n.split('.')[0] == 'fastapi'))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
