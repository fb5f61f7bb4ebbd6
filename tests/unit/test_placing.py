"""Plans that name nodes which are not here, as a submit places them anew."""

from __future__ import annotations

from dataclasses import replace

from msgspec import structs

from stager.model.files import File
from stager.model.topology import Node, Topology
from stager.model.workflow import Job, JobInput, JobOutput, Workflow
from stager.planning.make_plan import make_plan
from stager.planning.plan import Plan
from stager.planning.policy import Limits
from stager.scheduler.node_entry import NodeEntry
from stager.service.placing import placed_here

FILES = {"mid": File("mid", size_bytes=10), "end": File("end", size_bytes=10)}
JOBS = {
    "first": Job("first", "first", shell="x", outputs=(JobOutput("mid", "mid"),)),
    "last": Job("last", "last", shell="x", inputs=(JobInput("mid", "mid"),), outputs=(JobOutput("end", "end"),)),
}


def plan(**on: str) -> Plan:
    topology = Topology(tuple(Node(name, 1000) for name in ("a", "b", "c")))
    made = make_plan(Workflow("w", FILES, JOBS, {}), topology, limits=Limits(cores=1))
    files = tuple(structs.replace(file, node=on["first"], nodes=tuple(dict.fromkeys(on.values()))) for file in made.files)
    return replace(made, jobs=tuple(structs.replace(job, node=on[job.job]) for job in made.jobs), files=files)


def nodes(**capacities: int) -> dict[str, NodeEntry]:
    """Those of 0 bytes are known and cannot be reached."""
    return {name: NodeEntry(name, capacity, reachable=capacity > 0) for name, capacity in capacities.items()}


def places(found: Plan) -> dict[str, str]:
    return {job.job: job.node for job in found.jobs}


def test_a_plan_whose_nodes_are_here_stays_as_it_is() -> None:
    given = plan(first="a", last="b")
    assert placed_here(given, nodes(a=1, b=1)) is given
    assert placed_here(given, nodes(a=0)) is given, "where no node is here it waits, or is refused"


def test_jobs_of_a_missing_node_go_together_to_the_largest_that_is_here() -> None:
    """Of two missing nodes to two."""
    found = placed_here(plan(first="c", last="c"), nodes(a=1, b=2))
    assert places(found) == {"first": "b", "last": "b"}
    assert {(file.node, file.nodes) for file in found.files} == {("b", ("b",))}
    found = placed_here(plan(first="b", last="c"), nodes(a=1, b=0, d=2))
    assert places(found) == {"first": "d", "last": "a"}
    assert {(file.node, file.nodes) for file in found.files} == {("d", ("d", "a"))}
