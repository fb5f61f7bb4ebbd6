"""The tables of transitions: complete, drawn in the docs as they are, and what breaks them is found."""

from __future__ import annotations

import os
from collections.abc import Callable

import pytest

from scripts import state_diagrams
from stager.planning.policy import Limits, Policy
from stager.scheduler import accounting
from stager.scheduler.commands import Purpose
from stager.scheduler.invariants import broken_invariants
from stager.scheduler.node_entry import NodeEntry
from stager.scheduler.state import Copy, FileEntry, State, TransferEntry
from stager.scheduler.states import COPY_TRANSITIONS, RUN_TRANSITIONS, TRANSFER_TRANSITIONS, CopyState, RunState, TransferState


def test_the_diagrams_are_those_of_the_tables() -> None:
    """STAGER_REWRITE=1 draws them anew."""
    if os.environ.get("STAGER_REWRITE") == "1":
        state_diagrams.main()
    page = state_diagrams.PAGE.read_text()
    assert page == state_diagrams.drawn(page)


@pytest.mark.parametrize(
    ("table", "states"), [(COPY_TRANSITIONS, CopyState), (TRANSFER_TRANSITIONS, TransferState), (RUN_TRANSITIONS, RunState)]
)
def test_every_state_has_its_row_and_can_be_reached(
    table: dict[object, frozenset[object]], states: type[CopyState] | type[TransferState] | type[RunState]
) -> None:
    assert set(table) == {None, *states}
    assert {state for row in table.values() for state in row} - {None} == set(states)


def test_whatever_is_on_a_node_may_be_gone_from_any_state() -> None:
    """So nobody asks the tables when a copy or a transfer ends."""
    tables: list[dict[object, frozenset[object]]] = [{**COPY_TRANSITIONS}, {**TRANSFER_TRANSITIONS}]
    assert all(None in row for table in tables for state, row in table.items() if state is not None)
    assert all(None not in table[None] for table in tables)


def test_a_transfer_begins_as_its_table_says() -> None:
    assert transfer().state in TRANSFER_TRANSITIONS[None]


def state_with(copy: CopyState) -> tuple[State, FileEntry]:
    state = State(Policy(), Limits(cores=1, memory_bytes=None))
    state.nodes["n"] = NodeEntry("n", capacity_bytes=100)
    file = state.files["x1"] = FileEntry("x1", "in", "r", 10)
    accounting.add_copy(state, file, "n", Copy(copy, "g", 10))
    return state, file


def transfer() -> TransferEntry:
    return TransferEntry("t1", "n", "x1", "r", Purpose.DEMAND, "o", "in", 10, 0.0)


def deleted_while_wanted() -> State:
    state, file = state_with(CopyState.WANTED)
    accounting.move_copy(state, file, "n", CopyState.DELETING)
    return state


def begun_as_deleting() -> State:
    return state_with(CopyState.DELETING)[0]


def called_off_twice() -> State:
    state, _ = state_with(CopyState.FETCHING)
    entry = accounting.begin_transfer(state, transfer())
    accounting.call_off(state, entry)
    accounting.call_off(state, entry)
    return state


def begun_twice() -> State:
    state, _ = state_with(CopyState.FETCHING)
    accounting.begin_transfer(state, transfer())
    accounting.begin_transfer(state, transfer())
    return state


@pytest.mark.parametrize(
    ("case", "told"),
    [
        (deleted_while_wanted, "a copy went from wanted to deleting, 1 times"),
        (begun_as_deleting, "a copy went from nothing to deleting, 1 times"),
        (called_off_twice, "a transfer went from cancelling to cancelling, 1 times"),
        (begun_twice, "a transfer went from under_way to under_way, 1 times"),
    ],
)
def test_what_no_table_allows_is_found(case: Callable[[], State], told: str) -> None:
    assert told in broken_invariants(case())


def test_what_the_tables_allow_is_not_found() -> None:
    state, file = state_with(CopyState.FETCHING)
    accounting.call_off(state, accounting.begin_transfer(state, transfer()))
    state.transfers.pop("t1")
    for new in (CopyState.PRESENT, CopyState.DELETING):
        accounting.move_copy(state, file, "n", new)
    assert state.illegal == {}
