"""What an attempt that read directly is worth, by what the origins say when it has ended."""

from __future__ import annotations

import pytest

from stager.model.errors import ErrorClass, Fault, Transient
from stager.wire.node import DirectInputState
from stager.worker import AttemptResult, AttemptSpec, DirectInput, Outcome
from stager.worker.direct_access import judged, not_staged

SPEC = AttemptSpec(attempt_id="a", run_id="r", job_id="j", argv=("x",), direct=(DirectInput("in", "o", "d/in", 10, "m=1;s=10"),))
MADE = ({"file_id": "f", "generation": "a"},)
OK = AttemptResult(attempt_id="a", outcome=Outcome.OK, exit_code=0, outputs=MADE)
BAD = AttemptResult(attempt_id="a", outcome=Outcome.FAILED, exit_code=1, fault=Fault(ErrorClass.TRANSIENT, "job_failed", "it failed", "j"))


def said(state: str) -> list[DirectInputState]:
    return [DirectInputState(path="in", state=state)]


def test_what_was_the_same_before_and_after_is_believed() -> None:
    assert judged(SPEC, OK, said("same")) is OK and judged(SPEC, BAD, said("same")) is BAD


@pytest.mark.parametrize("ended", [OK, BAD])
def test_what_changed_has_failed_for_good_and_made_nothing(ended: AttemptResult) -> None:
    result = judged(SPEC, ended, said("changed"))
    assert (result.outcome, result.outputs, result.void_outputs) == (Outcome.FAILED, (), ended.outputs)
    assert result.fault is not None and result.fault.code == "source_changed" and "'j'" in result.fault.message


@pytest.mark.parametrize("words", [said("unknown"), [], None])
def test_a_job_of_which_nobody_can_say_what_it_read_has_not_succeeded(words: list[DirectInputState] | None) -> None:
    result = judged(SPEC, OK, words)
    assert (result.outcome, result.outputs, result.void_outputs) == (Outcome.FAILED, (), MADE)
    assert result.fault is not None and (result.fault.error_class, result.fault.code) == (ErrorClass.TRANSIENT, "origin_unreachable")


def test_a_failure_while_its_origin_is_away_is_the_origins() -> None:
    result = judged(SPEC, BAD, said("unknown"))
    assert result.fault is not None and result.fault.code == "origin_unreachable" and "it failed" in result.fault.message
    assert judged(SPEC, BAD, []) is BAD


def test_of_an_attempt_that_reads_nothing_directly_nothing_is_asked() -> None:
    plain = AttemptSpec(attempt_id="a", run_id="r", job_id="j", argv=("x",))
    assert judged(plain, OK, None) is OK


def test_an_origin_that_the_node_could_not_ask_is_told_apart_from_a_node_that_could_not_be_asked() -> None:
    answered, silent = Transient("no", code="timeout"), Transient("no", code="timeout")
    answered.details = {"retry_after_s": None}
    fault = not_staged(SPEC, answered)
    assert fault is not None and fault.code == "origin_unreachable" and not_staged(SPEC, silent) is None


def test_an_attempt_is_found_again_with_what_it_read_directly() -> None:
    found = AttemptSpec.from_json(SPEC.to_json())
    assert found.direct == SPEC.direct
    older = {name: value for name, value in SPEC.to_json().items() if name != "direct"}
    assert AttemptSpec.from_json(older).direct == ()
