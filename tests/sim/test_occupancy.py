"""What is told of a node's room adds up, at every step of simulated runs: on several nodes, in stripes, with nodes that die."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from stager.scheduler import commands as cmd
from stager.scheduler.machine import Machine
from stager.scheduler.state import FileEntry
from stager.scheduler.states import CopyState
from stager.service.occupancy import occupancy_of
from stager.sim.simulate import simulate
from tests.sim.cases import KINDS, world_of


def is_loose(file: FileEntry, node: str) -> bool:
    """It lies there, and nobody uses it."""
    copy = file.copies.get(node)
    return copy is not None and copy.state is CopyState.PRESENT and not copy.pins


PARTS = ("pinned_bytes", "dirty_bytes", "clean_bytes", "reserved_bytes", "free_bytes")


@pytest.mark.parametrize("kind", ["full", "nodes", "stripes", "node_losses"])
def test_the_parts_of_a_node_make_its_capacity_at_every_step(kind: str) -> None:
    seen: Counter[str] = Counter()

    def watch(machine: Machine, events: Any, commands: Any) -> None:
        held = occupancy_of(machine.state)
        for node, found in held.items():
            sizes = {part: getattr(found, part) for part in PARTS}
            assert min(sizes.values()) >= 0, (node, sizes)
            assert sum(sizes.values()) == found.capacity_bytes == machine.state.nodes[node].capacity_bytes
            loose = [(file, file.copies[node].size_bytes) for file in machine.state.files.values() if is_loose(file, node)]
            assert found.clean_bytes >= sum(size_bytes for file, size_bytes in loose if file.is_external), "it can be fetched again"
            owed = [size_bytes for file, size_bytes in loose if machine.state.owes_upload(file) and len(file.copies) == 1]
            assert found.dirty_bytes >= sum(owed), "it is nowhere else"
            seen.update(part for part, size_bytes in sizes.items() if size_bytes)
        for command in commands:
            if type(command) is cmd.DeleteReplica:
                assert held[command.node].clean_bytes >= command.size_bytes, "what is deleted was clean"

    for seed in range(1, 9):
        simulate(world_of(KINDS[kind](seed)), watch)
    assert set(seen) == set(PARTS), "each part was there at some time"
