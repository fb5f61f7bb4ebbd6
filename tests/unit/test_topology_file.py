"""Topology files: what they say, what is wrong with them, and the topologies that follow."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.cluster import Charged, Cluster, ComputeNodes, IoNodes, WanLink
from stager.model.errors import InvalidInput
from stager.model.topology import OriginLink
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.planning.links import link_plan
from stager.planning.plan import Basis
from stager.readers.topology import parse_topology

DOCUMENT = Path(__file__).parents[2] / "docs" / "formats" / "topology.md"
ORIGINS = {
    "home": Origin("home", OriginKind.SFTP, "sftp://lab/data"),
    "bucket": Origin("bucket", OriginKind.S3, "s3://bucket"),
}
GOOD = """stager-topology: 1
compute: {nodes: 3, cores: 4, memory: 15 GB, network: 100 MB/s}
io: {nodes: 2, capacity: 80 GB, disk: 300 MB/s}
links:
  home: {fetch: 1 Gbit/s}
"""


def workflow() -> Workflow:
    return Workflow("w", {}, {}, ORIGINS)


def test_the_example_of_the_document_is_read() -> None:
    text = DOCUMENT.read_text()
    cluster = parse_topology(text.split("```yaml\n")[1].split("```")[0], "topology.md")
    assert {node.sandbox_bytes for node in cluster.topology(workflow(), 2).nodes} == {8 * 10**9}
    assert parse_topology(GOOD, "t.yml").topology(workflow(), 1).nodes[0].sandbox_bytes is None
    assert {node.failures_per_hour for node in cluster.topology(workflow(), 2).nodes} == {0.01}
    assert parse_topology(GOOD, "t.yml").topology(workflow(), 1).nodes[0].failures_per_hour == 0.0
    assert (cluster.region, cluster.compute.nodes, cluster.cores, cluster.io.instance) == ("ap-northeast-1", 20, 80, "m3.xlarge")
    assert cluster.compute.network_bytes_per_s == pytest.approx(135e6)
    home = cluster.wan("home")
    told = {"node_fetch_bytes_per_s": 20e6, "fetch_file_s": 0.002, "upload_file_s": 0.1}
    assert home.link == OriginLink("home", 135e6, 135e6, 0.05, said=True, **told)
    assert {node.overhead_file_s for node in cluster.topology(workflow(), 2).nodes} == {0.002}
    assert link_plan(home.link).upload_file_basis is Basis.DECLARED
    assert (home.direct_fetch_bytes_per_s, home.direct_upload_bytes_per_s) == (20e6, 80e6)
    assert cluster.wan("elsewhere").link == OriginLink("elsewhere", 500e6, 500e6, 0.02, said=True)
    assert cluster.charged(workflow(), "bucket") is Charged.NONE


def test_the_line_of_one_node_is_no_wider_than_the_link() -> None:
    narrow = "{fetch: 1 Gbit/s, upload: 10 MB/s, node_fetch: 20 MB/s, node_upload: 1 Gbit/s}"
    link = parse_topology(GOOD.replace("{fetch: 1 Gbit/s}", narrow), "t.yml").wan("home").link
    assert (link.node_fetch_bytes_per_s, link.node_upload_bytes_per_s) == (20e6, 125e6)
    assert (link.fetch_file_s, link.upload_file_s) == (None, None)
    assert [link.fetch_by(nodes) for nodes in (1, 2, 8)] == [20e6, 40e6, 125e6]
    assert [link.upload_by(nodes) for nodes in (1, 2)] == [10e6, 10e6]
    assert OriginLink("home", 30.0, 40.0).fetch_by(1) == 30.0


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("stager-topology: 1", "stager-topology: 9", "t.yml:1:18: stager-topology: write 'stager-topology: 1'"),
        ("cores: 4", "cores: 0", "t.yml:2:28: compute.cores: '0' is not a whole number of 1 or more"),
        ("cores: 4", "core: 4", "t.yml:2:21: compute.core: unknown key; did you mean 'cores'?"),
        ("100 MB/s", "fast/s", "compute.network: 'fast/s' is not a rate"),
        ("80 GB", "0", "io.capacity: '0' leaves no room for a cache"),
        ("disk: 300 MB/s", "sandbox: much", "io.sandbox: 'much' is not a size"),
        (
            "disk: 300 MB/s",
            "failures_per_hour: -1",
            "io.failures_per_hour: '-1' is not a number of failures per hour; write one of 0 or more",
        ),
        ("disk: 300 MB/s", "failures_per_hour: nan", "io.failures_per_hour: 'nan' is not a number of failures"),
        ("disk: 300 MB/s", "failures_per_hour: 1_0", "io.failures_per_hour: '1_0' is not a number of failures"),
        ("{fetch: 1 Gbit/s}", "{upload_file: -1 s}", "links.home.upload_file: '-1 s' is not a duration"),
        ("1 Gbit/s", "0 B/s", "links.home.fetch: '0 B/s' is not a rate"),
        ("{fetch: 1 Gbit/s}", "{egress: in}", "links.home.egress: 'in' is unknown; choose none or fetch or upload or both"),
        ("compute:", "x-compute:", "the section 'compute' is missing"),
        ("cores: 4", "cores: 400000", "compute.cores: 1,200,000 cores in all are more than the 1,000,000 that can be simulated"),
        ("nodes: 3", "nodes: 10001", "compute.nodes: 10,001 nodes are more than the 10,000 that can be simulated"),
        ("nodes: 2", "nodes: 10001", "io.nodes: 10,001 nodes are more than the 10,000 that can be simulated"),
    ],
)
def test_what_is_wrong_is_said_with_line_key_and_fix(old: str, new: str, said: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_topology(GOOD.replace(old, new, 1), "t.yml")
    assert said in caught.value.message


def test_i_o_nodes_on_compute_nodes_are_at_most_as_many() -> None:
    with pytest.raises(InvalidInput, match="4 I/O nodes do not fit on 3 compute nodes, one on each"):
        parse_topology(GOOD.replace("nodes: 2", "on_compute_nodes: true, nodes: 4"), "t.yml")


def test_a_choice_divides_cores_memory_and_networks() -> None:
    cluster = parse_topology(GOOD, "t.yml")
    one, four = cluster.topology(workflow(), 1), cluster.topology(workflow(), 4)
    assert [node.cores for node in four.nodes] == [3, 3, 3, 3]
    assert (one.nodes[0].cores, one.nodes[0].memory_bytes, four.nodes[0].memory_bytes) == (12, 45 * 10**9, 45 * 10**9 // 4)
    assert one.nodes[0].disk_bytes_per_s == 300e6, "three compute nodes take 300 MB/s together, as the disk does"
    assert four.nodes[0].disk_bytes_per_s == 75e6, "a quarter of the compute nodes' 300 MB/s"
    assert (one.link("home").fetch_bytes_per_s, one.link("bucket").fetch_bytes_per_s) == (125e6, 50e6)
    assert not one.nodes[0].can_link


def test_what_runs_on_the_compute_nodes_passes_no_network_and_links() -> None:
    cluster = Cluster(ComputeNodes(2, 4, network_bytes_per_s=1e6), IoNodes(2, disk_bytes_per_s=4e8, on_compute_nodes=True))
    node = cluster.topology(workflow(), 2).nodes[1]
    assert (node.id, node.disk_bytes_per_s, node.can_link) == ("node1", 4e8, True)


def test_what_is_charged_follows_from_the_kind_of_origin_unless_said() -> None:
    plain = Cluster()
    assert (plain.charged(workflow(), "home"), plain.charged(workflow(), "bucket")) == (Charged.UPLOAD, Charged.NONE)
    said = Cluster(links={"bucket": WanLink(OriginLink("bucket"), charged=Charged.FETCH)})
    assert said.charged(workflow(), "bucket") is Charged.FETCH
