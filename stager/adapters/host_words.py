"""What the scheduler and the worker of a compute host say to each other through Dask. No environment of a job is in any of it, and no
secret but the tickets of attempts, each of which is good for its own attempt alone.

May know: the model, the worker's results. One rule: everything is plain values, so that neither side runs what the other one sent.
"""

from __future__ import annotations

import json
import time
from dataclasses import replace
from enum import StrEnum
from typing import Any

import msgspec

from stager import __version__
from stager.adapters.remote_node import Ticket
from stager.model.errors import ErrorClass, Fault, StagerError, error_from
from stager.wire.cluster import fit
from stager.worker import AttemptResult, AttemptWaiting
from stager.worker.attempt import fault_from

RESOURCE = "stager@"


class Step(StrEnum):
    """RUN: from the start, or from where an earlier call of it is. ADOPT: the same of one that has begun, else it is lost."""

    RUN = "run"
    ADOPT = "adopt"
    COMMIT = "commit"
    ABANDON = "abandon"


class Asked(StrEnum):
    """The functions of the agent on a host that are called beside what runs there, by their names in `host_preload`."""

    LOOK = "look"
    KILL = "kill"
    FORGET = "forget"
    SWEEP = "sweep"
    READ_LOG = "read_log"
    COLLECT = "collect"


ANSWER_DEADLINE_S = 5.0
# Large directories are read and removed.
COLLECT_DEADLINE_S = 60.0


def answer_deadline_s(what: Asked) -> float:
    return COLLECT_DEADLINE_S if what is Asked.COLLECT else ANSWER_DEADLINE_S


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """`brief`: the socket that hands out the attempt's spec. `scratch`: the identity of the disk that the attempt was given to.
    `called_off`: it is to be ended, and not to begin. `ticket`: of a host that shares no files with the node, which hands out the spec
    then; None there: the host has met it.
    """

    attempt: str
    step: Step
    node: str
    epoch: int
    brief: str = ""
    scratch: str = ""
    reserve_bytes: int = 0
    called_off: bool = False
    ticket: Ticket | None = None


class HostFacts(msgspec.Struct, frozen=True, kw_only=True):
    """`incarnation`: of the worker that somebody started; its processes may be started again. `scratch`: which disk its sandboxes are on,
    by an id that was written there. `shares_files`: with its I/O node and with the scheduler. `version`: of stager there.
    """

    host: str
    node: str
    cores: int
    pool: str = ""
    memory_bytes: int | None = None
    scratch_bytes: int | None = None
    incarnation: str = ""
    scratch: str = ""
    shares_files: bool = True
    version: str = ""

    @property
    def why_unfit(self) -> str:
        """Empty: it can work with this stager. Another one may leave out what it does not know of a job."""
        if not self.version or fit(self.version, __version__):
            return ""
        return f"it runs stager {self.version}, and here is {__version__}: install the same version on both"


def plain(value: Any) -> dict[str, Any]:
    made: dict[str, Any] = msgspec.to_builtins(value)
    return made


def told(ending: AttemptResult | AttemptWaiting) -> dict[str, Any]:
    if isinstance(ending, AttemptWaiting):
        return {"waits_bytes": ending.needed_bytes}
    said: dict[str, Any] = json.loads(json.dumps(ending.to_json()))
    return {"ended": said}


def untold(problem: StagerError) -> dict[str, Any]:
    """The node or the scheduler could not be asked."""
    fault = problem.fault()
    return {"unasked": {name: str(getattr(fault, name)) for name in ("error_class", "code", "message", "subject")}}


def ending_of(attempt: str, answer: dict[str, Any]) -> AttemptResult | AttemptWaiting:
    """Raises the StagerError that was told, or ValueError for no answer of ours."""
    if "unasked" in answer:
        raise error_from(fault_from(answer["unasked"]))
    if "waits_bytes" in answer:
        return AttemptWaiting(attempt, int(answer["waits_bytes"]))
    if "ended" not in answer:
        raise ValueError(f"no answer about attempt {attempt}: {sorted(answer)}")
    return AttemptResult.from_json(answer["ended"])


def by_our_clock(ended: AttemptResult, now_s: float | None) -> AttemptResult:
    """`now_s`: what the host's clock said when it answered. Where it is off, so are the times that its job was stamped with."""
    if now_s is None or ended.started_at_s is None:
        return ended
    return replace(ended, started_at_s=max(0.0, ended.started_at_s + time.time() - now_s))


def stale_epoch(epoch: int, newest: int) -> StagerError:
    text = f"a scheduler of epoch {epoch} asks, and this host obeys epoch {newest}"
    return error_from(Fault(ErrorClass.REFUSED, "stale_epoch", text, ""))
