"""The rules on services fire, and let pass what is right beside it. tests/test_tidy.py applies them."""

from __future__ import annotations

import ast

import pytest

from tests.tidy_services import service_findings


def service_of(collaborators: int, asked: int | None = None) -> str:
    names = [f"c{number}" for number in range(collaborators)]
    kept = "".join(f"        self.{name} = {name}\n" for name in names)
    asks = "".join(f"        self.{name}()\n" for name in names[:asked])
    return f"class C:\n    def __init__(self, {', '.join(names)}):\n{kept}    def f(self):\n{asks}"


CASES = [
    (
        "a service that is given the scheduler",
        "queries",
        "from stager.service.app import Scheduler",
        "from stager.service.inquiry import Inquiry",
    ),
    (
        "a router that is given all services",
        "rest.runs",
        "def f():\n    from stager.service import services",
        "from stager.service.commands import RunCommands",
    ),
    ("a reach through a scheduler", "gc", "self.scheduler.records.all()", "self.records.all()"),
    ("a reach into a scheduler", "api.runs", "await scheduler.ask(look)", "await inquiry.ask(look)"),
    ("a service with too many collaborators", "x", service_of(10), service_of(9)),
    ("a collaborator that nobody asks", "x", service_of(2, asked=1), service_of(2)),
]


@pytest.mark.parametrize(("module", "bad", "good"), [case[1:] for case in CASES], ids=[case[0] for case in CASES])
def test_each_rule_fires(module: str, bad: str, good: str) -> None:
    assert len(list(service_findings(ast.parse(bad), f"stager.service.{module}"))) == 1
    assert list(service_findings(ast.parse(good), f"stager.service.{module}")) == []
