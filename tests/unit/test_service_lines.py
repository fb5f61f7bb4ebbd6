"""One line of a list for several runs: what it says of them."""

from __future__ import annotations

import pytest

from stager.adapters.run_records import WORST_FIRST, RunGroup, RunRecord
from stager.scheduler.commands import RunOutcome
from stager.scheduler.states import RunState
from stager.service.views import line_info

FIRST = RunRecord("a-1", "k", "dag one", "", 10.0, 2, "succeeded", 20.0, 2, tenant="alice", part_of="dag/one")
OPEN = RunRecord("a-2", "l", "dag one after x", "", 15.0, 3, tenant="alice", part_of="dag/one")


def test_each_state_of_a_run_has_its_place_among_them() -> None:
    assert set(WORST_FIRST) == {state.value for state in (*RunState, *RunOutcome)} - {RunState.FINISHED.value}


@pytest.mark.parametrize(
    ("states", "told"),
    [({"succeeded"}, "succeeded"), ({"succeeded", "cancelled"}, "cancelled"), ({"failed", "interrupted", "not_durable"}, "failed")],
)
def test_what_has_ended_is_told_by_its_worst(states: set[str], told: str) -> None:
    info = line_info(FIRST, RunGroup(3, frozenset(states), 6, 5, 30.0, ()), {}, 100.0)
    assert (info.run, info.part_of, info.parts, info.state) == ("a-1", "dag/one", 3, told)
    assert (info.jobs_done, info.jobs_total, info.finished_at, info.took_s) == (5, 6, 30.0, 20.0)


def test_while_one_goes_on_the_line_does() -> None:
    info = line_info(FIRST, RunGroup(2, frozenset(("failed",)), 2, 2, 20.0, (OPEN,)), {}, 100.0)
    assert (info.state, info.jobs_done, info.jobs_total, info.finished_at, info.took_s) == ("active", 2, 5, None, 90.0)


def test_a_line_of_one_run_is_that_run() -> None:
    info = line_info(FIRST, RunGroup(1, frozenset(("succeeded",)), 2, 2, 20.0, ()), {}, 100.0)
    assert (info.parts, info.state, info.part_of, info.finished_at) == (1, "succeeded", "dag/one", 20.0)
