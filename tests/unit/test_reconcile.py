"""What a node reports that the state does not know holds its space until it is gone: one report at a time."""

from __future__ import annotations

from typing import Any

import pytest

from stager.planning.policy import Limits, Policy
from stager.scheduler import events as ev
from stager.scheduler.accounting import add_garbage
from stager.scheduler.machine import Machine
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.reconcile import count_foreign
from stager.scheduler.state import State


@pytest.fixture
def accounts() -> tuple[State, NodeEntry]:
    machine = Machine(Policy(), Limits(cores=2))
    facts: dict[str, Any] = {"incarnation": "i", "capacity_bytes": 1_000, "can_link": True, "replicas": (), "transfers": ()}
    machine.step(ev.NodeReported(at=0.0, node="node0", **facts))
    return machine.state, machine.state.nodes["node0"]


def seen(file: str, generation: str) -> ev.ReplicaSeen:
    return ev.ReplicaSeen(file, generation, 100, "", quarantined=False, part=False)


def test_what_an_old_transfer_still_brings_keeps_its_space_through_a_report(accounts: tuple[State, NodeEntry]) -> None:
    state, node = accounts
    add_garbage(node, "p", "t1", 100)
    state.transfers["t1"] = None  # type: ignore[assignment]
    count_foreign(state, node, ())
    assert (node.garbage, node.present_bytes, node.deleting_bytes) == ({("p", "t1"): 100}, 100, 100), "it is on its way"
    del state.transfers["t1"]
    count_foreign(state, node, ())
    assert (node.garbage, node.present_bytes, node.deleting_bytes) == ({}, 0, 0), "nobody brings it any more, and it is not there"


def test_what_nobody_knows_holds_space_once_and_what_is_on_its_way_is_known(accounts: tuple[State, NodeEntry]) -> None:
    state, node = accounts
    state.transfers["t2"] = None  # type: ignore[assignment]
    for _ in range(2):
        count_foreign(state, node, (seen("p", "a1"), seen("p", "t2")))
    assert (node.garbage, node.present_bytes) == ({("p", "a1"): 100}, 100)
