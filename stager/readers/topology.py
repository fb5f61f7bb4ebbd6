"""Reads a topology file: compute nodes, I/O nodes, links, instance types. docs/formats/topology.md is the format.

May know: lines, the form, the model. One rule: what is wrong is said all at once, by line and key; what is left out has the default that
the document names.
"""

from __future__ import annotations

from math import inf
from pathlib import Path

from stager.model.cluster import ANY_ORIGIN, DEFAULT_INSTANCE, Charged, Cluster, ComputeNodes, IoNodes, WanLink
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, DEFAULT_LATENCY_S, DEFAULT_OVERHEAD_S, DEFAULT_WAN_BYTES_PER_S, OriginLink
from stager.model.units import parse_rate_bytes_per_s, parse_size_bytes
from stager.readers.lines import Findings, compose, read_text
from stager.readers.native_form import Fields, Form, choice_of

VERSION = "1"
TOP = ("stager-topology", "region", "compute", "io", "links")
COMPUTE = ("nodes", "cores", "memory", "network", "instance", "overhead", "overhead_file")
IO = ("nodes", "capacity", "disk", "network", "instance", "on_compute_nodes", "sandbox", "failures_per_hour")
NODES_MAX, CORES_MAX = 10_000, 1_000_000
LINK = ("fetch", "upload", "latency", "node_fetch", "node_upload", "direct_fetch", "direct_upload", "egress", "fetch_file", "upload_file")


def read_topology(path: Path) -> Cluster:
    """Raises InvalidInput with everything that is wrong with it."""
    return parse_topology(read_text(path, str(path)), str(path))


def parse_topology(text: str, shown: str) -> Cluster:
    findings = Findings(shown)
    form = Form(findings)
    top = form.fields(compose(text if text.strip() else "{}", shown, findings), "", TOP)
    if top.text("stager-topology") != VERSION:
        findings.note(top.place("stager-topology"), "stager-topology", f"write 'stager-topology: {VERSION}', the version of the format")
    cluster = Cluster(
        compute=compute_of(section(form, top, "compute", COMPUTE)),
        io=io_of(section(form, top, "io", IO)),
        links={
            key.text: link_of(form.fields(node, f"links.{key.text}", LINK), key.text) for key, node in form.pairs(top.get("links"), "links")
        },
        region=top.text("region"),
        assumed=False,
    )
    check_size(findings, top, cluster)
    if cluster.io.on_compute_nodes and cluster.io.nodes > cluster.compute.nodes:
        place = top.place("io")
        findings.note(place, "io.nodes", f"{cluster.io.nodes} I/O nodes do not fit on {cluster.compute.nodes} compute nodes, one on each")
    findings.raise_if_any()
    return cluster


def check_size(findings: Findings, top: Fields, cluster: Cluster) -> None:
    """Each node and core is simulated by itself."""
    for name, nodes in (("compute", cluster.compute.nodes), ("io", cluster.io.nodes)):
        if nodes > NODES_MAX:
            findings.note(top.place(name), f"{name}.nodes", f"{nodes:,} nodes are more than the {NODES_MAX:,} that can be simulated")
    cores = cluster.compute.nodes * cluster.compute.cores
    if cores > CORES_MAX:
        text = f"{cores:,} cores in all are more than the {CORES_MAX:,} that can be simulated"
        findings.note(top.place("compute"), "compute.cores", text)


def section(form: Form, top: Fields, name: str, known: tuple[str, ...]) -> Fields:
    node = top.get(name)
    if node is None:
        form.findings.note(top.node.place, name, f"the section {name!r} is missing")
        node = top.node
        return Fields(Form(Findings("")), node, name, known)
    return form.fields(node, name, known)


def compute_of(fields: Fields) -> ComputeNodes:
    return ComputeNodes(
        nodes=fields.integer("nodes", 1, least=1),
        cores=fields.integer("cores", 1, least=1),
        memory_bytes=fields.size("memory"),
        network_bytes_per_s=fields.parsed("network", parse_rate_bytes_per_s, DEFAULT_DISK_BYTES_PER_S),
        instance=fields.text("instance", DEFAULT_INSTANCE),
        overhead_s=fields.duration("overhead", DEFAULT_OVERHEAD_S) or 0.0,
        overhead_file_s=fields.duration("overhead_file", 0.0) or 0.0,
    )


def io_of(fields: Fields) -> IoNodes:
    return IoNodes(
        nodes=fields.integer("nodes", 1),
        capacity_bytes=fields.parsed("capacity", space_of, IoNodes().capacity_bytes),
        disk_bytes_per_s=fields.parsed("disk", parse_rate_bytes_per_s, DEFAULT_DISK_BYTES_PER_S),
        network_bytes_per_s=fields.parsed("network", parse_rate_bytes_per_s, DEFAULT_DISK_BYTES_PER_S),
        instance=fields.text("instance", DEFAULT_INSTANCE),
        on_compute_nodes=fields.boolean("on_compute_nodes", False),
        sandbox_bytes=fields.size("sandbox"),
        failures_per_hour=fields.parsed("failures_per_hour", rate_per_hour, 0.0),
    )


def link_of(fields: Fields, origin: str) -> WanLink:
    link = OriginLink(
        origin="" if origin == ANY_ORIGIN else origin,
        fetch_bytes_per_s=fields.parsed("fetch", parse_rate_bytes_per_s, DEFAULT_WAN_BYTES_PER_S),
        upload_bytes_per_s=fields.parsed("upload", parse_rate_bytes_per_s, DEFAULT_WAN_BYTES_PER_S),
        latency_s=fields.duration("latency", DEFAULT_LATENCY_S) or 0.0,
        node_fetch_bytes_per_s=fields.parsed("node_fetch", parse_rate_bytes_per_s, None),
        node_upload_bytes_per_s=fields.parsed("node_upload", parse_rate_bytes_per_s, None),
        fetch_file_s=fields.duration("fetch_file", None),
        upload_file_s=fields.duration("upload_file", None),
        said=True,
    )
    return WanLink(
        link,
        direct_fetch_bytes_per_s=fields.parsed("direct_fetch", parse_rate_bytes_per_s, None),
        direct_upload_bytes_per_s=fields.parsed("direct_upload", parse_rate_bytes_per_s, None),
        charged=fields.parsed("egress", lambda text: choice_of(text, Charged), None),
    )


def space_of(text: str) -> int:
    size_bytes = parse_size_bytes(text)
    if size_bytes <= 0:
        raise ValueError(f"{text!r} leaves no room for a cache; write a size, as in '80 GB'")
    return size_bytes


def rate_per_hour(text: str) -> float:
    try:
        rate = float(text)
    except ValueError:
        rate = -1.0
    if not 0 <= rate < inf:
        raise ValueError(f"{text!r} is not a number of failures per hour; write one of 0 or more, as in '0.01'")
    return rate
