"""A node is told to get ready for the finals of a job that begins: once for many jobs, again for more files, and never instead of work."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from stager.model.errors import Transient
from stager.model.files import Destination, File, Location
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.runtime.allowances import Allowances
from stager.runtime.credentials import CredentialBook
from stager.runtime.node_calls import READY_AGAIN_S, NodeCalls
from stager.runtime.outstanding import Outstanding
from stager.scheduler import commands as cmd


class FakeNode:
    def __init__(self, *, away: bool = False) -> None:
        self.told: list[tuple[str, int]] = []
        self.away = away

    async def put_origin(self, origin_id: str, config: Any) -> None:
        self.kinds = config["kind"]

    async def get_ready(self, origin_id: str, files: int) -> None:
        if self.away:
            raise Transient("gone", code="connection_lost")
        self.told.append((origin_id, files))


def workflow() -> Workflow:
    finals = {f"f{number}": File(f"f{number}", destination=Destination(Location("lab", f"f{number}"))) for number in range(8)}
    jobs = {
        "few": Job("few", "t", ("true",), outputs=(JobOutput("f0", "f0"), JobOutput("kept", "kept"))),
        "many": Job("many", "t", ("true",), outputs=tuple(JobOutput(f"f{number}", f"f{number}") for number in range(1, 8))),
        "none": Job("none", "t", ("true",), outputs=(JobOutput("other", "other"),)),
    }
    files = {**finals, "kept": File("kept"), "other": File("other")}
    return Workflow(name="w", origins={"lab": Origin("lab", OriginKind.SFTP, "sftp://lab/x")}, files=files, jobs=jobs)


def calls_of(node: FakeNode, clock: list[float]) -> NodeCalls:
    outstanding = Outstanding()
    outstanding.workflows["r"] = workflow()
    book = CredentialBook(lambda run, origin: {"kind": "sftp"}, lambda run, origin: False)
    peers, anything = cast(Any, None), cast(Any, node)
    alone = Allowances(lambda: clock[0]).of("node0", anything)
    return NodeCalls("node0", node, lambda event, *_: None, outstanding, book, lambda problem: None, lambda: clock[0], peers, alone)  # type: ignore[arg-type]


def test_an_origin_is_named_once_in_a_while_and_again_for_more_files() -> None:
    node, clock = FakeNode(), [100.0]
    calls = calls_of(node, clock)

    async def begin(*jobs: str) -> list[int]:
        before = len(node.told)
        for job in jobs:
            await calls.get_ready("r", job)
        return [files for _, files in node.told[before:]]

    async def main() -> None:
        assert await begin("few", "few", "none") == [1]
        assert await begin("many", "few") == [7]
        clock[0] += READY_AGAIN_S
        assert await begin("few", "unknown") == [1]
        assert len({origin for origin, _ in node.told}) == 1

    asyncio.run(main())


def test_a_node_that_is_away_costs_no_more_than_the_head_start() -> None:
    calls = calls_of(FakeNode(away=True), [0.0])
    asyncio.run(calls.get_ready("r", "few"))
    asyncio.run(calls.get_ready("another run", "few"))


class NotToBeRead(Exception):
    """What nobody foresaw."""


@pytest.mark.parametrize(
    ("problem", "code"), [(PermissionError(13, "Permission denied", "/home/a/.ssh/id"), "io_error"), (NotToBeRead(), "internal")]
)
def test_a_transfer_whose_origin_cannot_be_worked_out_fails_and_is_tried_again(problem: Exception, code: str) -> None:
    """A home without a ticket just now. Nobody was told, and the transfer counted as under way until the node reported again."""

    def resolver(run: str, origin: Origin) -> dict[str, Any]:
        raise problem

    told: list[Any] = []
    node: Any = FakeNode()
    outstanding, alone = Outstanding(), Allowances(lambda: 0.0).of("node0", node)
    outstanding.workflows["r"] = workflow()
    fetch = cmd.Fetch(
        id="c1", at=0.0, cause="e1", node="node0", transfer="t1", purpose=cmd.Purpose.DEMAND, priority=1,
        file="x", lfn="in", run="r", origin="lab", path="in", size_bytes=8, token="t",
    )  # fmt: skip
    outstanding.gave([fetch])
    book = CredentialBook(resolver, lambda run, origin: False)
    calls = NodeCalls(
        "node0", node, lambda event, *_: told.append(event), outstanding, book, lambda problem: None, lambda: 0.0, cast(Any, None), alone
    )
    asyncio.run(calls.put_transfer(fetch))
    [failed] = told
    assert (failed.transfer, failed.fault.code, failed.fault.error_class) == ("t1", code, "transient")
