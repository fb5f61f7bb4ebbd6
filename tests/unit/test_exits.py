"""Who must act, told by a number: an author is not sent to mend an origin that was away or a node that is too small."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from stager.cli.exits import Exit, exit_of
from stager.model.errors import AWAY_CODE, ErrorClass, Fault
from stager.scheduler.completion import reason_of
from stager.scheduler.states import JobState
from stager.wire import ErrorBody
from tests.scenarios.stage import play, read

AWAY = Fault(ErrorClass.TRANSIENT, AWAY_CODE, "origin 'lab' could not be reached", "lab")
ROOM = Fault(ErrorClass.REFUSED, "no_space_node", "job 'j' is larger than the node", "j")
OWN = Fault(ErrorClass.TRANSIENT, "exit_code", "job 'k' ended with exit code 1", "k")
EXISTS = Fault(ErrorClass.REFUSED, "destination_exists", "out exists", "out")


def failed(*faults: Fault, finals: tuple[Fault, ...] = (), first: Fault | None = None) -> SimpleNamespace:
    jobs = {str(number): SimpleNamespace(state=JobState.FAILED, fault=fault) for number, fault in enumerate(faults)}
    return SimpleNamespace(
        jobs=jobs, failed=len(jobs), fault=first, finals_given_up={str(number): fault for number, fault in enumerate(finals)}
    )


@pytest.mark.parametrize(
    ("run", "code"),
    [
        (failed(AWAY, AWAY), Exit.TRANSIENT),
        (failed(ROOM), Exit.REFUSED),
        (failed(AWAY, ROOM, first=AWAY), Exit.REFUSED),
        (failed(AWAY, ROOM, OWN, first=AWAY), Exit.JOB_FAILED),
        (failed(OWN), Exit.JOB_FAILED),
        (failed(AWAY, finals=(EXISTS,), first=AWAY), Exit.JOB_FAILED),
    ],
)
def test_a_run_fails_for_the_reason_that_somebody_must_mend(run: SimpleNamespace, code: Exit) -> None:
    fault = reason_of(run)  # type: ignore[arg-type]
    assert fault is not None and exit_of("failed", ErrorBody.of(fault)) is code


LARGER = """
node capacity=300 cores=1
link home fetch=100 upload=100
workflow w
  external in 100
  made end 100 final actual=500
  job a in -> end
run r0 w
"""


def test_a_job_found_larger_than_the_node_while_it_runs_is_refused() -> None:
    last = play(read(LARGER)).splitlines()[-1]
    assert last.endswith("FinishRun r0 outcome=failed fault=no_space_node")


def test_other_ends_have_their_own_code_whatever_they_name() -> None:
    assert exit_of("not_durable", ErrorBody.of(AWAY)) is Exit.NOT_DURABLE
    assert exit_of("failed") is Exit.JOB_FAILED and exit_of("succeeded") is Exit.OK and exit_of("active") is Exit.NOT_YET
