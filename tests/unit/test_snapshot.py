"""Single facts of a snapshot that simulations meet too rarely; the property is in tests/sim/test_snapshots.py."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from stager.planning.policy import Limits, Policy
from stager.planning.space import SpaceProfile
from stager.scheduler.snapshot import KeptState, kept_state, restored
from stager.scheduler.state import FileEntry, HeldAt, State


def again(state: State) -> State:
    return restored(msgspec.msgpack.decode(msgspec.msgpack.encode(kept_state(state)), type=KeptState), {})


@pytest.mark.parametrize("own", [True, False])
def test_a_spill_to_erase_is_its_files_own_or_one_of_before(own: bool) -> None:
    """Only the file's own is erased; an equal one that took its place since is not."""
    state = State(Policy(), Limits())
    held = HeldAt("home", "spill/f", "t", "")
    state.files["f"] = FileEntry("f", "f", "r", 1, spilled=held if own else replace(held))
    state.spills_to_erase.append(("f", held, "node0"))
    found = again(state)
    assert found.spills_to_erase == state.spills_to_erase and found.files == state.files
    assert (found.files["f"].spilled is found.spills_to_erase[0][1]) is own


Change = tuple[int, int, int]
changes = st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20), st.integers(-50, 50)), max_size=20)


@given(st.lists(st.integers(0, 100), max_size=20), changes, changes)
def test_a_profile_made_of_a_profiles_values_is_that_profile(base: list[int], before: list[Change], after: list[Change]) -> None:
    profile = SpaceProfile(base)

    def add(to: SpaceProfile, change: Change) -> None:
        to.add(min(change[0], len(base)), min(change[1], len(base)), change[2])

    for change in before:
        add(profile, change)
    second = SpaceProfile(profile.values())
    for change in after:
        add(profile, change)
        add(second, change)
    assert profile.values() == second.values()
    for lo in range(len(base)):
        for hi in range(lo, len(base) + 1):
            assert profile.max(lo, hi) == second.max(lo, hi) == max(profile.values()[lo:hi], default=0)
