"""Guesses: what need not run should the jobs that have to make what they made the last time."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from stager.model.results import MadeOutput, Result, SeenAt
from stager.model.workflow import Workflow, graph_of
from stager.planning.guess import Guess, guess
from stager.planning.job_key import key_of
from stager.planning.reuse import Known, decide
from stager.sim.origin import expected_contents
from tests.unit.test_keeping import deep

FIRST = deep(1)
MADE = expected_contents(FIRST, graph_of(FIRST))
LAST: dict[str, Result] = {}
for each in FIRST.jobs.values():
    key = key_of(FIRST, each, MADE, {})
    outputs = tuple(MadeOutput(output.path, 20, MADE[output.lfn]) for output in each.outputs)
    LAST[each.id] = Result(key.digest, "w-1", each.id, "t", "w", key.parts, outputs, 0.0, 1.0)
OUT = SeenAt("", "out1", "token", 20, MADE["out"], 0.0, "readback")


def guessed(edit: Workflow, forced: tuple[str, ...] = (), **held: SeenAt) -> dict[str, Guess]:
    known = Known({"in": MADE["in"]}, {"out": OUT} | held, {result.key: result for result in LAST.values()}.get)
    return guess(edit, known, decide(edit, known, forced), forced, LAST.get)


def edited(job: str, **words: Any) -> Workflow:
    words = words or {"env": (("COMMENT", "1"),)}
    return replace(FIRST, jobs=FIRST.jobs | {job: replace(FIRST.jobs[job], **words)})


def test_all_that_follows_from_an_edited_job_is_guessed_with_what_it_needs() -> None:
    found = guessed(edited("a"))
    assert {job_id: each.needs for job_id, each in found.items()} == {
        "b": {"mid": MADE["mid"]},
        "c1": {"mid": MADE["mid"], "late": MADE["late"]},
    }
    assert found["c1"].result is LAST["c1"]


def test_nothing_is_guessed_where_nothing_has_to_run() -> None:
    assert guessed(FIRST) == {} and guessed(edited("c1")).keys() == {"b"}, "of what is not kept, and so made again"


def test_a_job_whose_final_is_not_where_it_was_left_runs() -> None:
    other = replace(OUT, blake3="another")
    assert guessed(edited("a"), out=other).keys() == {"b"}


def test_what_is_forced_or_never_reused_runs_and_what_follows_is_guessed_all_the_same() -> None:
    assert guessed(edited("a"), forced=("b",)).keys() == {"c1"}
    assert guessed(edited("b", reuse=False)).keys() == {"c1"}


def test_two_edits_in_a_row_are_both_taken_for_what_they_made() -> None:
    edit = edited("a")
    edit = replace(edit, jobs=edit.jobs | {"b": replace(edit.jobs["b"], env=(("COMMENT", "2"),))})
    assert guessed(edit).keys() == {"c1"}
