"""The OpenAPI document is true: schemathesis calls a real `stager serve` by it, with what it allows and with what it does not."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings

from stager.service.following import WAIT_S_MAX
from stager.service.rest.openapi import EVERYWHERE
from tests.e2e.serve_rig import Service, call, small
from tests.testbed.places import PROJECT

TENANTS = '[tenants.alice]\nnative_jobs = true\nfile_roots = ["{data}"]\n'
EXAMPLES = int(os.environ.get("STAGER_SCHEMA_EXAMPLES", "8"))
# A text that the schema allows is seldom a workflow, and then it is refused: only a reader can tell.
# Many calls without a good token are slowed down (429); that each needs one is looked at below.
EXCLUDED = [
    schemathesis.checks.positive_data_acceptance,  # type: ignore[attr-defined]
    schemathesis.checks.ignored_auth,  # type: ignore[attr-defined]
    schemathesis.checks.missing_required_header,  # type: ignore[attr-defined]
]


@pytest.fixture(scope="module")
def service(session_dir: Path) -> Iterator[Service]:
    place = session_dir / "schema"
    (place / "data").mkdir(parents=True)
    service = Service(place, TENANTS.format(data=place / "data"))
    try:
        yield service.start()
    finally:
        service.end()


@pytest.fixture(scope="module")
def known(service: Service) -> dict[str, str]:
    """What a guess would hardly ever hit: a run and a job that are there, and a token."""
    token = service.token("alice", "admin")
    client = service.client(token)
    run = client.post("/runs", json={"workflow": small(service.place / "data")}).raise_for_status().json()["run"]
    assert client.get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()["state"] == "succeeded"
    return {"run": run, "job": "up", "token": token}


# The document that is checked in, so that there is one before the service runs; a test below says that it is the one that is served.
PAGE = PROJECT / "docs" / "formats" / "rest.openapi.json"
schema = schemathesis.openapi.from_dict(json.loads(PAGE.read_text()))


@pytest.mark.slow
@schema.parametrize()
@settings(max_examples=EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
def test_every_answer_is_one_that_the_document_describes(case: Any, service: Service, known: dict[str, str]) -> None:
    for name, value in (case.path_parameters or {}).items():
        if name in known and len(repr(case)) % 3:
            case.path_parameters[name] = known[name] if value is not None else value
    timeout_s = (case.query or {}).get("timeout_s")
    # One that is wrong must stay so: it is to be refused.
    if isinstance(timeout_s, (int, float)) and 0.2 < timeout_s <= WAIT_S_MAX:
        case.query["timeout_s"] = 0.2
    headers = {"Authorization": f"Bearer {known['token']}"}
    case.call_and_validate(base_url=service.url, headers=headers, excluded_checks=EXCLUDED, timeout=60)


def test_the_document_that_is_served_is_the_one_that_is_checked_in(service: Service) -> None:
    """STAGER_REWRITE=1 writes it down anew."""
    served = json.dumps(call("GET", f"{service.url}/api/v1/openapi.json").json(), indent=1, sort_keys=True) + "\n"
    if os.environ.get("STAGER_REWRITE"):
        PAGE.write_text(served)
    assert PAGE.read_text() == served


def test_every_operation_needs_a_token_but_health_and_says_its_errors(service: Service) -> None:
    found = call("GET", f"{service.url}/api/v1/openapi.json").json()
    assert found["components"]["securitySchemes"]["token"] == {
        "type": "http",
        "scheme": "bearer",
        "description": "A token of `stager token create`.",
    }
    operations = {(path, verb): each for path, verbs in found["paths"].items() for verb, each in verbs.items()}
    assert len(operations) > 20
    for (path, verb), operation in operations.items():
        is_open = path in ("/healthz", "/readyz")
        assert bool(operation.get("security")) != is_open, (path, verb)
        wanted = {"421", "500", "503"} if is_open else set(EVERYWHERE)
        assert wanted <= set(operation["responses"]), (path, verb)
        for status in wanted:
            assert list(operation["responses"][status]["content"]) == ["application/problem+json"]
        assert operation["description"] and operation["tags"], (path, verb)
        bare = call(verb, service.url + path.replace("{", "").replace("}", ""))
        assert bare.status_code in ({200} if is_open else {401, 429}), (path, verb)
        if verb == "post" and path.rpartition("/")[2] in ("runs", "plan", "validate", "estimate"):
            assert operation["requestBody"]["required"], path
