"""docs/formats/rest-api.md lists every call that the scheduler serves, and no other."""

from __future__ import annotations

import re
from typing import Any

from fastapi.routing import APIRoute

from stager.service.api.housekeeping import housekeeping_router
from stager.service.api.inspect import inspect_router
from stager.service.api.runs import runs_router
from tests.testbed.places import PROJECT


def served() -> set[tuple[str, str]]:
    nobody: Any = None
    routers = (housekeeping_router(nobody), runs_router(nobody), inspect_router(nobody))
    routes = [route for router in routers for route in router.routes if isinstance(route, APIRoute)]
    return {(method, f"/v1{route.path}".replace("{run}", "RUN")) for route in routes for method in route.methods}


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
