"""Errors as problem+json. One rule: whoever reads one knows what of the request it is about and what to do; nothing inside is shown."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.routing import Match

from stager import rest
from stager.model.errors import ErrorClass, StagerError
from stager.readers.lines import WorkflowInvalid

STATUS_OF_CLASS = {
    ErrorClass.INVALID_INPUT: 422,
    ErrorClass.REFUSED: 409,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.CORRUPT: 500,
    ErrorClass.DENIED: 403,
}
STATUS_OF_CODE = {"not_found": 404, "bad_request": 400, "tenants_invalid": 503, "draining": 503, "busy": 503, "reading_limit": 413}
TITLES = {
    400: "The request is not understood",
    401: "No good token",
    403: "Not allowed",
    404: "There is no such thing",
    405: "Not this method",
    408: "Too slow",
    409: "Not as things are",
    413: "Too large",
    421: "Not this host",
    422: "The input is wrong",
    429: "Too many requests",
    500: "The service failed",
    503: "Not now",
}
FIXES = {
    ErrorClass.INVALID_INPUT: "mend what is named and send it again",
    ErrorClass.REFUSED: "change what stands against it, then ask again",
    ErrorClass.TRANSIENT: "ask again in a moment",
    ErrorClass.CORRUPT: "tell the administrator of the service",
    ErrorClass.DENIED: "ask the administrator of the service",
}
RETRY_AFTER_S = 5


def problem_response(
    status: int,
    code: str,
    detail: str,
    *,
    key: str = "",
    fix: str = "",
    findings: Sequence[rest.Finding] = (),
    headers: Mapping[str, str] | None = None,
) -> Response:
    body = rest.Problem(
        type=f"urn:stager:problem:{code}",
        title=TITLES.get(status, "It did not work"),
        status=status,
        detail=detail,
        code=code,
        key=key,
        fix=fix,
        findings=list(findings),
    )
    more = dict(headers or {}) | ({"Retry-After": str(RETRY_AFTER_S)} if status == 503 else {})
    return Response(body.model_dump_json(), status_code=status, media_type=rest.PROBLEM_TYPE, headers=more)


def response_of(problem: StagerError) -> Response:
    """The project's messages say what happened, and behind a semicolon what to do."""
    status = STATUS_OF_CODE.get(problem.code, STATUS_OF_CLASS[problem.error_class])
    fix = problem.message.rpartition("; ")[2] if "; " in problem.message else FIXES[problem.error_class]
    findings = [
        rest.Finding(file=each.file, line=each.place.line, column=each.place.column, key=each.key, message=each.message)
        for each in (problem.findings if isinstance(problem, WorkflowInvalid) else ())
    ]
    key = next((each.key for each in findings if each.key), problem.subject)
    return problem_response(status, problem.code, problem.message, key=key, fix=fix, findings=findings)


async def on_stager_error(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, StagerError)
    return response_of(problem)


async def on_too_many_open(request: Request, problem: Exception) -> Response:
    assert isinstance(problem, StagerError)
    return too_many_open(problem)


def too_many_open(problem: StagerError) -> Response:
    return problem_response(429, problem.code, problem.message, fix=problem.message.rpartition("; ")[2], headers={"Retry-After": "1"})


async def on_invalid_parameters(request: Request, problem: Exception) -> Response:
    """Of the path, the query or a header; what was sent is not repeated, since it may be secret."""
    assert isinstance(problem, RequestValidationError)
    return invalid(problem.errors())


def invalid(errors: Sequence[Any]) -> Response:
    first = errors[0]
    key = ".".join(str(part) for part in first["loc"] if part != "body")
    more = f", and {len(errors) - 1} more like it" if len(errors) > 1 else ""
    return problem_response(422, "bad_parameter", f"{key}: {first['msg']}{more}", key=key, fix=f"write {key} as docs/formats/rest.md says")


async def on_http_error(request: Request, problem: Exception) -> Response:
    """Of the router: no such path, not this method."""
    assert isinstance(problem, HTTPException)
    code = {404: "not_found", 405: "method_not_allowed"}.get(problem.status_code, "bad_request")
    text = f"{request.method} {request.url.path}: {problem.detail}"
    headers = {"Allow": ", ".join(methods_of(request))} if problem.status_code == 405 else problem.headers
    return problem_response(problem.status_code, code, text, fix="see /api/v1/openapi.json", headers=headers)


def methods_of(request: Request) -> list[str]:
    """Of all routes of the path: the router tells of the first only."""
    matching = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in matching for method in getattr(route, "methods", None) or ()})


async def on_defect(request: Request, problem: Exception) -> Response:
    text = f"{request.method} {request.url.path} failed by a defect of the service"
    return problem_response(500, "defect", text, fix="tell the administrator of the service, whose log says more")
