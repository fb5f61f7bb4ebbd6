"""Routes of the socket API. A handler takes what is asked and returns what is answered; errors become their status here.

May know: wire, Starlette. One rule: FastAPI stays out. It is a fifth of what a scheduler imports, a command waits for that,
and these calls need neither its documents nor its validators.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeVar

from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from stager import wire
from stager.model.errors import ErrorClass, Fault, InvalidInput, StagerError
from stager.service.api.activity import Activity

STATUS_OF = {
    ErrorClass.INVALID_INPUT: 422,
    ErrorClass.REFUSED: 409,
    ErrorClass.TRANSIENT: 503,
    ErrorClass.CORRUPT: 500,
    ErrorClass.DENIED: 403,
}
TRUE, FALSE = ("true", "1"), ("false", "0")

B = TypeVar("B", bound=wire.Body)
N = TypeVar("N", int, float)


class Asked:
    """One request. Values of its query are read by type; InvalidInput names the one that cannot be."""

    def __init__(self, request: Request) -> None:
        self.request = request

    @property
    def run(self) -> str:
        return str(self.request.path_params["run"])

    @property
    def node(self) -> str:
        return str(self.request.path_params["node"])

    @property
    def host(self) -> str:
        return str(self.request.path_params["host"])

    def text(self, name: str) -> str | None:
        return self.request.query_params.get(name)

    def required(self, name: str) -> str:
        value = self.text(name)
        if value is None:
            raise InvalidInput(f"the query lacks {name}", code="bad_request", subject=name)
        return value

    def number(self, name: str, default: N) -> N:
        """Of the type of `default`."""
        return self._parsed(name, type(default)) if self.text(name) is not None else default

    def number_or_none(self, name: str) -> int | None:
        return self._parsed(name, int) if self.text(name) is not None else None

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.text(name)
        if value is None:
            return default
        if value.lower() not in TRUE + FALSE:
            raise InvalidInput(f"{name} must be true or false, not {value!r}", code="bad_request", subject=name)
        return value.lower() in TRUE

    def _parsed(self, name: str, kind: type[N]) -> N:
        value = self.required(name)
        try:
            return kind(value)
        except ValueError:
            raise InvalidInput(f"{name} must be a number, not {value!r}", code="bad_request", subject=name) from None

    async def body(self) -> bytes:
        return await self.request.body()

    async def body_as(self, kind: type[B]) -> B:
        """The places that are wrong are told, never their values, which may be secret."""
        try:
            return kind.model_validate_json(await self.body())
        except ValidationError as problem:
            places = "; ".join(f"{'.'.join(map(str, each['loc'])) or 'the body'}: {each['msg']}" for each in problem.errors())
            raise InvalidInput(f"the request is not understood: {places}", code="bad_request") from None


Handler = Callable[[Asked], Awaitable[wire.Body | bytes | None]]


class Router:
    """The calls of one resource, below /v1."""

    def __init__(self) -> None:
        self.calls: list[tuple[str, str, Handler]] = []

    def get(self, path: str) -> Callable[[Handler], Handler]:
        return self._with("GET", path)

    def post(self, path: str) -> Callable[[Handler], Handler]:
        return self._with("POST", path)

    def _with(self, method: str, path: str) -> Callable[[Handler], Handler]:
        def add(handler: Handler) -> Handler:
            self.calls.append((method, f"/v1{path}", handler))
            return handler

        return add

    def routes(self, activity: Activity) -> list[Route]:
        return [Route(path, endpoint_of(handler, activity), methods=[method]) for method, path, handler in self.calls]


def endpoint_of(handler: Handler, activity: Activity) -> Callable[[Request], Awaitable[Response]]:
    async def endpoint(request: Request) -> Response:
        refusal = refused(request)
        if refusal is not None:
            return error_response(400, refusal)
        with activity.call():
            try:
                return answer_of(await handler(Asked(request)))
            except StagerError as problem:
                return error_response(STATUS_OF[problem.error_class], problem.fault())

    return endpoint


def answer_of(answer: wire.Body | bytes | None) -> Response:
    """A body; bytes that are JSON already; or None where there is nothing to say."""
    if isinstance(answer, wire.Body):
        answer = answer.model_dump_json(by_alias=True).encode()
    return Response(b"{}" if answer is None else answer, media_type="application/json")


def refused(request: Request) -> Fault | None:
    """A browser that was talked into calling us says another host; a newer client says a newer version."""
    if request.headers.get("host", "") != wire.HOST:
        return Fault(ErrorClass.INVALID_INPUT, "bad_request", f"the Host header must be {wire.HOST!r}")
    version = request.headers.get("x-stager-api", str(wire.API_VERSION))
    if not version.isdecimal() or int(version) > wire.API_VERSION:
        text = f"this client speaks version {version} of the API and the running scheduler {wire.API_VERSION}"
        return Fault(ErrorClass.INVALID_INPUT, "api_version", f"{text}; end the scheduler with its own version (stager shutdown)")
    return None


def error_response(status: int, fault: Fault) -> JSONResponse:
    body = wire.ErrorResponse(error=wire.ErrorBody.of(fault))
    return JSONResponse(body.model_dump(mode="json", by_alias=True), status_code=status)
