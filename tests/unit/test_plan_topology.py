"""Topologies as values."""

from __future__ import annotations

import pytest

from stager.model.topology import DEFAULT_WAN_BYTES_PER_S, Node, OriginLink, Topology, embedded


def test_embedded_is_a_topology_of_one() -> None:
    topology = embedded(10, cores=3)
    assert [node.cores for node in topology.nodes] == [3]
    assert topology.capacity_bytes == 10


def test_an_origin_without_a_link_gets_the_defaults() -> None:
    topology = embedded(1, links=(OriginLink("near", 1e9, measured=True),))
    assert topology.link("near").measured
    assert topology.link("far") == OriginLink("far", DEFAULT_WAN_BYTES_PER_S)


def test_a_topology_needs_nodes_with_ids_of_their_own() -> None:
    with pytest.raises(ValueError, match="at least one"):
        Topology(())
    with pytest.raises(ValueError, match="same id"):
        Topology((Node("a", 1), Node("a", 2)))
