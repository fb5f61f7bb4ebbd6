"""What a sandbox held beside an output that was not made: names only, in order, and no more than a screen of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from stager.model.errors import ErrorClass, Fault
from stager.worker import AttemptInput, AttemptSpec, Place
from stager.worker.leftover import ENTRIES_MAX, NAMES_SHOWN, with_found
from tests.testbed.deep import LEVELS, chain, gone_after

FAULT = Fault(ErrorClass.INVALID_INPUT, "outputs_missing", "the job did not write out; all declared outputs must exist", "a1")


def told(tmp_path: Path, *names: str) -> str:
    place = Place.of(tmp_path, "a1")
    for name in (".tmp/scratch", "in", "set/x", *names):
        path = Path(place.sandbox) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    inputs = (AttemptInput("f", "g", "in"), AttemptInput("f2", "g", "set"))
    spec = AttemptSpec(attempt_id="a1", run_id="r", job_id="j", argv=("x",), inputs=inputs)
    found = with_found(FAULT, spec, place)
    assert (found.code, found.error_class) == (FAULT.code, FAULT.error_class)
    return found.message


def test_what_is_no_input_is_named(tmp_path: Path) -> None:
    said = told(tmp_path, "ot", "d/deep/y")
    assert said.startswith("job 'j' did not write out") and said.endswith("beside its inputs its sandbox held 'ot', 'd/deep/y'")


def test_nothing_is_said_too(tmp_path: Path) -> None:
    assert told(tmp_path).endswith("its sandbox held nothing")


def test_names_are_told_of_a_sandbox_however_deep_it_is(tmp_path: Path) -> None:
    with gone_after(tmp_path / "attempts"):
        chain(Path(Place.of(tmp_path, "a1").sandbox), LEVELS)
        assert told(tmp_path, "z").endswith("beside its inputs its sandbox held 'z'")


@pytest.mark.slow
def test_a_full_sandbox_costs_no_more_than_a_few_names(tmp_path: Path) -> None:
    said = told(tmp_path, *(f"many/{number:05d}/x" for number in range(ENTRIES_MAX + 10)))
    assert said.count("'many/") <= NAMES_SHOWN and len(said) < 1000
