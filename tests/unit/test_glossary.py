"""The words of the documents are the words of the code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from stager.scheduler.ledger import Standing
from stager.scheduler.states import ENDED, JOB_TRANSITIONS, CopyState, JobState

GLOSSARY = (Path(__file__).parents[2] / "docs" / "glossary.md").read_text()


def rows_below(heading: str) -> set[str]:
    section = GLOSSARY.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    return set(re.findall(r"^\| ([a-z_]+) \|", section, re.MULTILINE)) - {"state"}


@pytest.mark.parametrize(("heading", "states"), [("States of a job", JobState), ("States of a copy", CopyState)])
def test_the_glossary_names_each_state_once_and_no_other(heading: str, states: type[JobState] | type[CopyState]) -> None:
    assert rows_below(heading) == {state.value for state in states}


def test_every_state_has_its_row_in_the_transition_table_and_ended_ones_are_left_only_to_run_again() -> None:
    assert set(JOB_TRANSITIONS) == set(JobState)
    assert all(JOB_TRANSITIONS[state] <= {JobState.WAITING} for state in ENDED)
    reachable = {state for row in JOB_TRANSITIONS.values() for state in row}
    assert reachable == set(JobState)


def test_the_ledgers_words_are_explained() -> None:
    for standing in (Standing.AT_RISK, Standing.SAFE, Standing.WRITTEN, Standing.DURABLE):
        assert f"**{standing.value.replace('_', ' ')}**" in GLOSSARY
