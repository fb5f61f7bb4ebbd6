"""Plans and simulations for nodes that are not alike: hosts of their own cores and memory, capacities of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stager import wire
from stager.cli.main import stager
from stager.model.cluster import NamedNode
from stager.model.errors import InvalidInput, Refused
from stager.model.files import Destination, File, Location
from stager.model.topology import Host, Node, Topology
from stager.model.workflow import Job, JobOutput, Origin, OriginKind, Workflow
from stager.planning.bounds import lower_bound
from stager.planning.fitting import check_hosts
from stager.planning.make_plan import check_capacity, make_plan
from stager.readers.topology import parse_topology
from stager.scheduler.commands import RunOutcome
from stager.service.comparison import cluster_of, estimate_of
from tests.unit.test_simulate import record

HEAD = "stager-topology: 1\ncompute: {overhead: 0 s, network: 100 MB/s}\nio: {disk: 300 MB/s}\n"
NAMED = f"""{HEAD}nodes:
  big: {{capacity: 4 GB, hosts: {{big-a: {{cores: 4, memory: 16 GB, scratch: 50 GB}}, big-b: {{cores: 2}}}}}}
  small: {{capacity: 1 GB, cores: 1, memory: 2 GB}}
  archive: {{capacity: 20 GB}}
"""


def bag(jobs: int, **asked: Any) -> Workflow:
    """Jobs of one kind that read nothing and make 10 bytes each."""
    made = {f"j{number}": f"f{number}" for number in range(jobs)}
    files = {lfn: File(lfn, size_bytes=10, destination=Destination(Location("lab", lfn))) for lfn in made.values()}
    specs = {name: Job(name, "work", ("work",), outputs=(JobOutput(lfn, lfn),), compute_s=10.0, **asked) for name, lfn in made.items()}
    return Workflow("bag", files, specs, {"lab": Origin("lab", OriginKind.SFTP, "sftp://lab/data")})


def beside(name: str, *cores: int, capacity: int = 10_000, memory: int | None = None) -> Node:
    return Node(name, capacity, hosts=tuple(Host(f"{name}-{number}", count, memory) for number, count in enumerate(cores)))


def test_named_nodes_have_their_own_hosts_and_capacity() -> None:
    cluster = parse_topology(NAMED, "t.yml")
    assert cluster.nodes[1] == NamedNode("small", 10**9, (Host("small", 1, 2 * 10**9),))
    big, small, archive = cluster.topology(bag(1), 3).nodes
    assert big.hosts == (Host("big-a", 4, 16 * 10**9, 50 * 10**9), Host("big-b", 2))
    assert (big.cores, big.capacity_bytes, small.capacity_bytes, archive.hosts) == (6, 4 * 10**9, 10**9, ())
    assert (big.disk_bytes_per_s, small.disk_bytes_per_s) == (200e6, 100e6), "two hosts, and one, take 100 MB/s each"
    assert (cluster.cores, cluster.compute.nodes, cluster.compute.cores, cluster.io.nodes) == (7, 3, 4, 3)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("cores: 1,", "cores: 0,", "nodes.small.cores: '0' is not a whole number of 1 or more"),
        ("big-b:", "small:", "nodes.small.hosts.small: a host of that name is beside 'big', too"),
        ("cores: 1, ", "cores: 1, hosts: {s: {}}, ", "nodes.small.hosts: name hosts, or the cores of the node, not both"),
        ("{overhead: 0 s,", "{cores: 4,", "compute.cores: `nodes` says it for each of them; leave it out"),
        ("{disk:", "{capacity: 1 GB, disk:", "io.capacity: `nodes` says it for each of them; leave it out"),
        ("4 GB", "0 GB", "nodes.big.capacity: '0 GB' leaves no room for a cache"),
        ("scratch", "scratches", "nodes.big.hosts.big-a.scratches: unknown key"),
    ],
)
def test_what_is_wrong_with_named_nodes_is_said(old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_topology(NAMED.replace(old, new, 1), "t.yml")
    assert said in caught.value.message


def test_nodes_without_any_host_are_refused() -> None:
    with pytest.raises(InvalidInput, match="no node has a host, so no job could run"):
        parse_topology(f"{HEAD}nodes: {{a: {{capacity: 1 GB}}}}", "t.yml")


def test_jobs_are_shared_out_as_cores_are() -> None:
    topology = Topology((beside("large", 4, 2), beside("small", 2), beside("archive")))
    plan = make_plan(bag(64), topology)
    counts = {node.id: sum(job.node == node.id for job in plan.jobs) for node in topology.nodes}
    assert counts == {"large": 48, "small": 16, "archive": 0}
    assert plan.makespan_s == pytest.approx(80.0, abs=1.0)
    assert lower_bound(bag(64), topology, plan).least_s <= plan.makespan_s


def test_a_wide_job_is_planned_where_one_host_has_its_cores_and_its_memory() -> None:
    topology = Topology((beside("many", 2, 2, 2), beside("wide", 4), beside("poor", 8, memory=5)))
    plan = make_plan(bag(8, cores=3, memory_bytes=10), topology)
    assert {job.node for job in plan.jobs} == {"wide"}


def test_a_job_larger_than_every_host_is_refused_with_the_numbers() -> None:
    topology = Topology((beside("a", 2, 4), beside("b", 2)))
    check_both(bag(1, cores=4), topology)
    with pytest.raises(Refused) as caught:
        check_both(bag(1, cores=5), topology)
    assert "job 'j0' needs 5 cores on one host; of 3 hosts none has that (at most 4 cores)" in caught.value.message
    # One number of cores for all: it runs alone on them, as it always did.
    check_both(bag(1, cores=5), Topology((Node("a", 10, 2),)))


def test_a_job_is_refused_whose_only_hosts_are_beside_nodes_too_small_for_it() -> None:
    """It fitted one node, and the hosts beside another: it was taken, and failed at its turn."""
    check_both(bag(1, cores=4), Topology((beside("roomy", 2), beside("small", 4, capacity=10))))
    with pytest.raises(Refused) as caught:
        check_both(bag(1, cores=4), Topology((beside("roomy", 2), beside("small", 4, capacity=9))))
    assert "job 'j0' needs 4 cores on one host; of 1 host beside a node that can hold 10 B none has that" in caught.value.message
    assert "give it a larger host, or more capacity to its node" in caught.value.message


def check_both(workflow: Workflow, topology: Topology) -> None:
    plan = make_plan(workflow, topology)
    check_capacity(plan)
    check_hosts(workflow, topology, plan)


def test_the_room_of_nodes_that_are_not_alike_counts_together() -> None:
    def fits(*capacities: int, spill: str | None = None) -> bool:
        plan = make_plan(bag(1), Topology(tuple(Node(f"n{at}", size) for at, size in enumerate(capacities))), spill_origin=spill)
        try:
            check_capacity(plan)
        except Refused:
            return False
        return True

    # One job makes 10 bytes: the larger node holds them, whatever the smaller one has.
    assert fits(1, 10) and fits(10, 1) and fits(1, 10, spill="lab")
    assert not fits(1, 9) and not fits(9, 9)


def run(tmp_path: Path, *words: str) -> Result:
    (tmp_path / "cluster.yml").write_text(NAMED)
    options = ["--state-dir", str(tmp_path / "state"), "--topology", str(tmp_path / "cluster.yml")]
    return CliRunner().invoke(stager, [words[0], str(record(tmp_path)), *options, *words[1:]], standalone_mode=False)


def test_a_plan_is_made_and_simulated_for_named_nodes(tmp_path: Path) -> None:
    assert {job["node"] for job in json.loads(run(tmp_path, "plan", "--json").output)["jobs"]} <= {"big", "small"}
    assert "simulated: succeeded" in run(tmp_path, "plan", "--simulate").output


def test_simulate_takes_a_topology(tmp_path: Path) -> None:
    rows = json.loads(run(tmp_path, "simulate", "--failures", "1", "--failures", "2", "--json").output)["rows"]
    assert [(row["failures"], row["outcome"]) for row in rows] == [(1, "succeeded"), (2, "succeeded")]
    assert "cores" not in rows[0]
    assert "topology " in run(tmp_path, "simulate").output
    refused = run(tmp_path, "simulate", "--cores", "4", "--wan", "1 MB/s")
    assert "leave out --cores, --wan" in str(getattr(refused.exception, "message", ""))


def test_the_cost_of_named_nodes_is_that_of_all_of_them(tmp_path: Path) -> None:
    def outcomes(*words: str) -> dict[int, str]:
        choices = json.loads(run(tmp_path, "cost-estimate", *words, "--json").output)["choices"]
        return {choice["io_nodes"]: choice["outcome"] for choice in choices}

    assert outcomes() == {3: "succeeded"}
    assert outcomes("--io-nodes", "0,2") == {0: "refused", 2: "refused"}


def test_a_report_has_the_nodes_that_the_run_had_whatever_the_topology_names() -> None:
    parts = {"attempts": [], "moves": [], "occupancy": [], "belady_hit_rate": None, "best_hit_rate": None}
    history = wire.RunHistory(run="r", nodes=["node0"], cores=2, memory_bytes=None, capacity_bytes=1000, **parts)
    there = cluster_of(history, parse_topology(NAMED, "t.yml"), make_plan(bag(1), Topology((Node("node0", 1000, 2),))))
    assert [(node.id, node.cores, node.capacity_bytes, node.hosts) for node in there.topology(bag(1), 1).nodes] == [("node0", 2, 1000, ())]


def test_a_report_has_the_hosts_that_the_run_had_beside_their_nodes() -> None:
    """Without them an estimate had no place for a job whose home is not `node0`, and stood still."""
    parts = {"attempts": [], "moves": [], "occupancy": [], "belady_hit_rate": None, "best_hit_rate": None}
    hosts = [wire.HostOfRun(host="h1", node="a", cores=1), wire.HostOfRun(host="h2", node="b", cores=3, memory_bytes=5000)]
    capacities = {"a": 1000, "b": 3000, "node0": 500}
    there = {"nodes": sorted(capacities), "capacities": capacities, "hosts": hosts, "capacity_bytes": 4500}
    history = wire.RunHistory(run="r", cores=2, memory_bytes=None, **there, **parts)
    had = Topology((Node("a", 1000, hosts=(Host("h1"),)), Node("b", 3000, hosts=(Host("h2", 3),)), Node("node0", 500)))
    plan = make_plan(bag(2), had)
    cluster = cluster_of(history, None, plan)
    assert [
        (node.id, node.capacity_bytes, [(host.id, host.cores) for host in node.hosts]) for node in cluster.topology(bag(2), 3).nodes
    ] == [
        ("a", 1000, [("h1", 1)]),
        ("b", 3000, [("h2", 3)]),
        ("node0", 500, []),
    ]
    assert estimate_of(bag(2), plan, history, cluster).report.outcome is RunOutcome.SUCCEEDED
