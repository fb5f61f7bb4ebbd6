"""Reads a topology file: compute nodes, I/O nodes, links, instance types. docs/formats/topology.md is the format.

May know: lines, the form, the model. One rule: what is wrong is said all at once, by line and key; what is left out has the default that
the document names.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from stager.model.cluster import ANY_ORIGIN, DEFAULT_INSTANCE, Charged, Cluster, ComputeNodes, IoNodes, NamedNode, WanLink
from stager.model.topology import DEFAULT_DISK_BYTES_PER_S, DEFAULT_LATENCY_S, DEFAULT_OVERHEAD_S, DEFAULT_WAN_BYTES_PER_S, Host, OriginLink
from stager.model.units import parse_number, parse_rate_bytes_per_s, parse_size_bytes
from stager.readers.lines import Findings, compose, read_text
from stager.readers.native_form import Fields, Form, choice_of

VERSION = "1"
TOP = ("stager-topology", "region", "compute", "io", "nodes", "links")
COMPUTE = ("nodes", "cores", "memory", "network", "instance", "overhead", "overhead_file")
IO = ("nodes", "capacity", "disk", "network", "instance", "on_compute_nodes", "sandbox", "failures_per_hour")
NODE, HOST = ("capacity", "hosts", "cores", "memory", "scratch"), ("cores", "memory", "scratch")
# The keys of `compute` and `io` that the named nodes say.
SAID_BY_NODES = {"compute": ("nodes", "cores", "memory"), "io": ("nodes", "capacity")}
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
    compute, io = section(form, top, "compute", COMPUTE), section(form, top, "io", IO)
    cluster = Cluster(
        compute=compute_of(compute),
        io=io_of(io),
        links={
            key.text: link_of(form.fields(node, f"links.{key.text}", LINK), key.text) for key, node in form.pairs(top.get("links"), "links")
        },
        region=top.text("region"),
        assumed=False,
    )
    if "nodes" in top:
        cluster = with_nodes(form, cluster, named_nodes(form, top), (compute, io))
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
    cores = cluster.cores
    if cores > CORES_MAX:
        text = f"{cores:,} cores in all are more than the {CORES_MAX:,} that can be simulated"
        findings.note(top.place("compute"), "compute.cores", text)


def named_nodes(form: Form, top: Fields) -> list[NamedNode]:
    """Each with its hosts; one that says its cores itself is a host, too."""
    found, known = [], dict[str, str]()
    for key, node in form.pairs(top.get("nodes"), "nodes"):
        at = f"nodes.{key.text}"
        fields = form.fields(node, at, NODE)
        hosts = [
            (name, form.fields(host, f"{at}.hosts.{name.text}", HOST)) for name, host in form.pairs(fields.get("hosts"), f"{at}.hosts")
        ]
        if hosts and any(word in fields for word in HOST):
            form.findings.note(fields.place("hosts"), f"{at}.hosts", "name hosts, or the cores of the node, not both")
        elif any(word in fields for word in HOST):
            hosts = [(key, fields)]
        for name, _ in hosts:
            if name.text in known:
                form.findings.note(name.place, f"{at}.hosts.{name.text}", f"a host of that name is beside {known[name.text]!r}, too")
            known[name.text] = key.text
        capacity_bytes = fields.parsed("capacity", space_of, IoNodes().capacity_bytes)
        found.append(NamedNode(key.text, capacity_bytes, tuple([host_of(name.text, host) for name, host in hosts])))
    if not known and not form.findings:
        form.findings.note(top.place("nodes"), "nodes", "no node has a host, so no job could run; give one of them `cores` or `hosts`")
    return found


def host_of(name: str, fields: Fields) -> Host:
    return Host(name, fields.integer("cores", 1, least=1), fields.size("memory"), fields.size("scratch"))


def with_nodes(form: Form, cluster: Cluster, nodes: list[NamedNode], sections: tuple[Fields, Fields]) -> Cluster:
    for fields in sections:
        for name in SAID_BY_NODES[fields.key]:
            if name in fields:
                form.findings.note(fields.place(name), fields.at(name), "`nodes` says it for each of them; leave it out")
    hosts = [host for node in nodes for host in node.hosts] or [Host("")]
    memory = [host.memory_bytes for host in hosts]
    compute = replace(
        cluster.compute,
        nodes=len(hosts),
        cores=max([host.cores for host in hosts]),
        memory_bytes=None if None in memory else max([each or 0 for each in memory]),
    )
    capacity_bytes = sum([node.capacity_bytes for node in nodes]) // max(1, len(nodes))
    return replace(cluster, compute=compute, io=replace(cluster.io, nodes=len(nodes), capacity_bytes=capacity_bytes), nodes=tuple(nodes))


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
        rate = parse_number(text)
    except ValueError:
        rate = -1.0
    if rate < 0:
        raise ValueError(f"{text!r} is not a number of failures per hour; write one of 0 or more, as in '0.01'")
    return rate
