"""What one node gets of the link to an origin bounds all that it fetches, uploads and reads back there, and nothing that others do."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from stager.model.topology import Node, OriginLink, Topology
from stager.model.workflow import Workflow
from stager.planning.bounds import lower_bound
from stager.planning.make_plan import make_plan
from stager.planning.policy import Policy
from stager.planning.way_cost import going_home
from stager.scheduler.commands import Fetch, RunOutcome
from stager.sim.simulate import simulate
from stager.sim.transfers import DEMAND_BELOW, Lane, Moving
from stager.sim.world import SimWorld
from tests.sim.test_several_nodes import LAB, workflow

WIDE = OriginLink("lab", 100.0, 100.0, 0.0)
ONE = (Node("node0", 10_000, 1, disk_bytes_per_s=1e6, network_bytes_per_s=1e6),)
TWO = tuple(Node(name, 10_000, 4, disk_bytes_per_s=1e6, network_bytes_per_s=1e6) for name in ("node0", "node1"))


def simulated(what: Workflow, link: OriginLink, where: dict[str, str], nodes: tuple[Node, ...] = TWO) -> tuple[float, dict[str, float]]:
    """(seconds, seconds that each link was busy); jobs of no time run where `where` says, else on node0. Never under the lower bound."""
    topology = Topology(nodes, (link,))
    plan = make_plan(what, topology)
    plan = replace(plan, jobs=tuple(structs.replace(job, node=where.get(job.job, "node0")) for job in plan.jobs))
    world = SimWorld(topology)
    world.submit("r", what, plan)
    simulate(world)
    assert world.runs["r"].outcome is RunOutcome.SUCCEEDED
    assert lower_bound(what, topology, plan).least_s <= world.runs["r"].finished_at + 1e-9
    return world.runs["r"].finished_at, world.links.busy_s()


IN = workflow({"x": 1000, "y": 1000}, {"a": ("x", "", 0.0), "b": ("y", "", 0.0)})
OUT = workflow({}, {"a": ("", "x", 0.0), "b": ("", "y", 0.0)}, ("x", "y"))
# Its server checks nothing itself.
OUT = replace(OUT, origins={"lab": replace(LAB, options=(("shell_checksum", "false"),))})


def test_fetches_of_one_node_share_its_line_and_two_nodes_have_two() -> None:
    narrow = replace(WIDE, node_fetch_bytes_per_s=40.0)
    assert simulated(IN, WIDE, {})[0] == pytest.approx(20.0, abs=0.1)
    assert simulated(IN, narrow, {})[0] == pytest.approx(50.0, abs=0.1)
    took_s, busy_s = simulated(IN, narrow, {"b": "node1"})
    assert took_s == pytest.approx(25.0, abs=0.1)
    assert busy_s["line:fetch:sftp://lab/data:node1"] == pytest.approx(25.0, abs=0.1)


def test_what_a_job_waits_for_goes_before_what_may_come_later() -> None:
    """As a node sends it. A job that waited for a large file was predicted to wait as long as if all files had the same share."""
    two = workflow({"x": 900, "y": 900}, {"a": ("x", "one", 10.0), "b": ("y one", "", 1.0)})
    assert simulated(two, WIDE, {}, ONE)[0] == pytest.approx(900 / (100 * 8 / 9) + 11.0, abs=0.1)
    soon = workflow({"x": 1, "y": 900, "z": 900}, {"a": ("x", "one", 2.0), "b": ("y one", "two", 30.0), "c": ("z two", "", 1.0)})
    took_s = simulated(soon, WIDE, {}, ONE)[0]
    assert took_s == pytest.approx(2.0 + (900 - 100) / (100 * 8 / 9) + 31.0, abs=0.2), "from when a job waits for it, as it is under way"


def test_uploads_go_over_the_line_and_what_is_read_back_comes_over_the_other() -> None:
    """100 bytes each: out together over one line, and back."""
    out = replace(WIDE, node_upload_bytes_per_s=20.0)
    assert simulated(OUT, WIDE, {})[0] == pytest.approx(2.0 + 2.0, abs=0.1)
    assert simulated(OUT, out, {})[0] == pytest.approx(10.0 + 2.0, abs=0.1)
    assert simulated(OUT, out, {"b": "node1"})[0] == pytest.approx(5.0 + 2.0, abs=0.1)
    assert simulated(OUT, replace(WIDE, node_fetch_bytes_per_s=20.0), {})[0] == pytest.approx(2.0 + 10.0, abs=0.1)


def test_a_large_final_comes_back_over_ssh_while_it_is_written() -> None:
    """100 MB over 10 MB/s each way, and with a line in of half that."""
    files = {lfn: replace(file, size_bytes=100_000_000) for lfn, file in OUT.files.items()}
    large, node = replace(OUT, files=files), (replace(ONE[0], capacity_bytes=10**9, disk_bytes_per_s=1e12, network_bytes_per_s=1e12),)
    link = replace(WIDE, fetch_bytes_per_s=10e6, upload_bytes_per_s=10e6)
    assert simulated(large, link, {}, node)[0] == pytest.approx(20.0, abs=0.1)
    took_s, busy_s = simulated(large, replace(link, fetch_bytes_per_s=5e6), {}, node)
    assert (took_s, busy_s["upload:sftp://lab/data"]) == (pytest.approx(40.0, abs=0.1), pytest.approx(20.0, abs=0.1))
    declared = replace(link, bounded=True)
    assert simulated(large, declared, {}, node)[0] == pytest.approx(40.0, abs=0.1), "a bandwidth is that of both ways together"
    told = replace(large, origins={"lab": LAB})
    assert simulated(told, replace(link, fetch_bytes_per_s=5e6), {}, node)[0] == pytest.approx(20.0, abs=0.1)


def test_what_comes_back_meanwhile_is_no_time_of_its_own_on_the_way_home() -> None:
    """As expected of finals of 100 bytes and of 100 MB, at 10 MB/s each way."""
    link = replace(WIDE, fetch_bytes_per_s=10e6, upload_bytes_per_s=10e6)
    large = replace(OUT, files={lfn: replace(file, size_bytes=100_000_000) for lfn, file in OUT.files.items()})
    room = (replace(ONE[0], capacity_bytes=10**9),)

    def home(what: Workflow, link: OriginLink) -> float:
        topology = Topology(room, (link,))
        return going_home(what, topology, make_plan(what, topology))["home_bytes_per_s"]

    assert (home(OUT, link), home(large, link)) == (pytest.approx(5e6), pytest.approx(10e6))
    assert home(large, replace(link, bounded=True)) == pytest.approx(5e6)


def test_a_declared_bandwidth_is_divided_among_the_nodes_that_have_transfers_there() -> None:
    """As a live scheduler does it: the one file of the second node has half of it, not a third, until it is there."""
    what = workflow({"x": 1000, "y": 1000, "z": 1000}, {"a": ("x", "", 0.0), "b": ("y", "", 0.0), "c": ("z", "", 15.0)})
    took_s, _ = simulated(what, replace(WIDE, bounded=True), {"c": "node1"})
    assert took_s == pytest.approx(20.0 + 15.0, abs=0.1)
    assert simulated(what, WIDE, {"c": "node1"})[0] > 40.0


@pytest.mark.parametrize(("dispatch_s", "ahead_max"), [(None, 64), (5.0, 4)])
def test_of_files_that_jobs_wait_for_the_first_that_was_asked_for_goes_first(
    dispatch_s: float | None, ahead_max: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a node has it. One that was to come ahead, and for which a job waits now, overtook those that jobs had waited for all along. None
    begins before the node has heard of it.
    """
    roots = {f"a{number}": (f"x{number}", f"f{number}", 0.0) for number in range(40)}
    what = workflow(
        {f"{name}{number}": 100 for name in "xy" for number in range(40)},
        roots | {f"b{number}": (f"y{number} f{number}", "", 0.0) for number in range(40)},
    )
    topology = Topology(ONE, (replace(WIDE, dispatch_s=dispatch_s),))
    world, begun, passed_by = SimWorld(topology, Policy(fetches_ahead_max=ahead_max)), 0, 0
    begin, accept = Lane.begin, world.transfers.accept
    asked_at: dict[str, float] = {}

    def accepted(command: Fetch, *where: Any) -> None:
        asked_at.setdefault(command.transfer, world.clock.now)
        accept(command, *where)

    def watched(lane: Lane, moving: Moving) -> None:
        nonlocal begun, passed_by
        assert moving.begun_at >= asked_at[moving.command.transfer] + (dispatch_s or 0.0)
        if moving.priority < DEMAND_BELOW:
            begun += 1
            others = [world.transfers.open.get(transfer) for priority, _, transfer in lane.waiting if priority < DEMAND_BELOW]
            passed_by += sum(other is not None and other.state == "queued" and asked(other) < asked(moving) for other in others)
        begin(lane, moving)

    def asked(moving: Moving) -> int:
        return int(moving.command.transfer.rpartition("-")[2])

    monkeypatch.setattr(Lane, "begin", watched)
    monkeypatch.setattr(world.transfers, "accept", accepted)
    world.submit("r", what, make_plan(what, topology))
    simulate(world)
    assert world.runs["r"].outcome is RunOutcome.SUCCEEDED
    assert begun == 80 and not passed_by
