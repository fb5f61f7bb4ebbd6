"""docs/formats/rest-api.md lists every call of the socket API and no other, docs/formats/rest.md every call of the REST API."""

from __future__ import annotations

import json
import re
from typing import Any

from stager.service.api.hosts import hosts_router
from stager.service.api.housekeeping import housekeeping_router, nodes_router
from stager.service.api.inspect import inspect_router, parts_router, sandbox_router, timelines_router
from stager.service.api.runs import runs_router
from tests.testbed.places import PROJECT


def served() -> set[tuple[str, str]]:
    nobody: Any = None
    routers = (
        housekeeping_router(nobody, nobody, nobody, nobody),
        nodes_router(nobody),
        runs_router(nobody, nobody, nobody, nobody, nobody),
        inspect_router(nobody, nobody),
        parts_router(nobody, nobody),
        timelines_router(nobody, nobody, nobody),
        sandbox_router(nobody, nobody),
        hosts_router(nobody),
    )
    return {
        (method, path.replace("{run}", "RUN").replace("{host}", "HOST").replace("{node}", "NODE"))
        for router in routers
        for method, path, _ in router.calls
    }


def documented() -> set[tuple[str, str]]:
    found = set()
    for line in (PROJECT / "docs/formats/rest-api.md").read_text().splitlines():
        if not line.startswith("| `"):
            continue
        first, *more = re.findall(r"`([^`]+)`", line.split("|")[1])
        method, path = first.split()
        found |= {(method, path)} | {(method, path.rpartition("/")[0] + other) for other in more}
    return found


def test_the_page_and_the_routes_are_the_same() -> None:
    assert documented() == served() and len(served()) > 15


def test_the_page_of_the_rest_api_lists_its_calls_with_their_queries() -> None:
    """rest.openapi.json is what the service gives: tests/e2e/test_rest_schema.py."""
    document = json.loads((PROJECT / "docs/formats/rest.openapi.json").read_text())
    calls = {}
    for path, verbs in document["paths"].items():
        for verb, operation in verbs.items():
            calls[f"{verb.upper()} {path}"] = {each["name"] for each in operation.get("parameters", []) if each["in"] != "path"}
    page = {}
    for line in (PROJECT / "docs/formats/rest.md").read_text().splitlines():
        if line.startswith("| `"):
            first, query = line.split("|")[1:3]
            page[first.strip(" `")] = set(re.findall(r"`([A-Za-z-]+|[a-z_]+)`", query))
    assert page.keys() == calls.keys() and len(page) > 20
    for call, names in calls.items():
        assert {name for name in names if name != "If-None-Match"} <= page[call], call
