"""The parts of the OpenAPI document that FastAPI does not find out: bodies that are read by hand, and errors as they are answered.

One rule: the document is true; the tests call the service by it.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from stager import rest

BODIES: list[type[BaseModel]] = [
    rest.WorkflowText,
    rest.Submission,
    rest.EngineSubmission,
    rest.CallQuestion,
    rest.FinishQuestion,
    rest.FailQuestion,
    rest.EndQuestion,
    rest.EstimateQuestion,
    rest.Resumption,
    rest.Problem,
]
# Of the API, as in /api/v1. `/readyz` tells the version of the program.
API_VERSION = "1"
REF = "#/components/schemas/{model}"
EVERYWHERE = {
    "400": "The request is not understood",
    "401": "No good token",
    "403": "The token, or the administrator, does not allow it",
    "404": "There is no such thing, or it is not yours",
    "408": "The body came too slowly",
    "409": "Not as things are; the detail says why",
    "413": "The body is too large",
    "421": "Not a host of this service",
    "422": "The input is wrong; the key says where",
    "429": "Too many requests; Retry-After says how long to wait",
    "500": "A defect, or damage that the log says more of",
    "503": "Not now; Retry-After says how long to wait",
}
OF_THE_OPEN = ("421", "500", "503")
DESCRIPTION = "The REST API of `stager serve`. Errors are problem+json (RFC 9457) with `code`, `key` and `fix`."


def body_of(kind: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """Of a handler that takes the bytes and has them read on a thread of their own: they may be large."""
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": {"$ref": REF.format(model=kind.__name__)}}}}}


def document(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        found = get_openapi(title="stager", version=API_VERSION, description=DESCRIPTION, routes=app.routes)
        _, schemas = models_json_schema([(kind, "validation") for kind in BODIES], ref_template=REF)
        components = found.setdefault("components", {}).setdefault("schemas", {})
        components |= schemas["$defs"]
        for name in ("HTTPValidationError", "ValidationError"):
            components.pop(name, None)
        for path, operations in found["paths"].items():
            for operation in operations.values():
                declare_errors(
                    operation, EVERYWHERE if operation.get("security") else {status: EVERYWHERE[status] for status in OF_THE_OPEN}, path
                )
        app.openapi_schema = found
    return app.openapi_schema


def declare_errors(operation: dict[str, Any], errors: dict[str, str], path: str) -> None:
    schema = {"schema": {"$ref": REF.format(model="Problem")}}
    responses = operation["responses"]
    responses.pop("422", None)
    for status, description in errors.items():
        responses[status] = {"description": description, "content": {rest.PROBLEM_TYPE: schema}}
        if status in ("429", "503"):
            responses[status]["headers"] = {"Retry-After": {"schema": {"type": "integer"}, "description": "seconds"}}
        if status == "401":
            responses[status]["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}}}
