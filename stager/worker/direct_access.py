"""Inputs that a job reads directly: what the node says of their origins when the job has ended, and what that makes of the attempt.

May know: the spec, the result. One rule: a job that may have read another content than was planned, or half of one, has not succeeded;
what it made is void.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from stager.model.errors import ErrorClass, Fault, StagerError, is_unreachable
from stager.wire.node import DirectInputState
from stager.worker.attempt import AttemptResult, Outcome
from stager.worker.spec import AttemptSpec

AWAY_CODE, CHANGED_CODE = "origin_unreachable", "source_changed"


def not_staged(spec: AttemptSpec, problem: StagerError) -> Fault | None:
    """Of a stage-in that the node refused because it could not ask an origin: in its answer, not about the node. None: another matter."""
    fault = problem.fault()
    if spec.direct and problem.details and is_unreachable(fault):
        return Fault(ErrorClass.TRANSIENT, AWAY_CODE, fault.message, fault.subject)
    return None


def judged(spec: AttemptSpec, ended: AttemptResult, said: Sequence[DirectInputState] | None) -> AttemptResult:
    """`said`: of each path that it read directly `same`, `changed` or `unknown`, asked after the job; None: nobody could be asked."""
    if not spec.direct or ended.outcome not in (Outcome.OK, Outcome.FAILED):
        return ended
    states = {entry.path: entry.state for entry in said or ()}
    changed = [entry.path for entry in spec.direct if states.get(entry.path) == "changed"]
    unknown = [entry.path for entry in spec.direct if states.get(entry.path, "unknown") == "unknown"]
    if changed:
        text = f"{changed[0]}, which job {spec.job_id!r} read directly, changed at its origin meanwhile; plan again with what is there now"
        fault = Fault(ErrorClass.REFUSED, CHANGED_CODE, text, changed[0])
    elif unknown and (ended.outcome is Outcome.OK or states):
        said_before = f" ({ended.fault.message})" if ended.fault is not None else ""
        text = f"the origin of {unknown[0]}, which job {spec.job_id!r} read directly, cannot be asked whether it is the same{said_before}"
        fault = Fault(ErrorClass.TRANSIENT, AWAY_CODE, text, unknown[0])
    else:
        return ended
    return replace(ended, outcome=Outcome.FAILED, fault=fault, outputs=(), void_outputs=(*ended.void_outputs, *ended.outputs))
