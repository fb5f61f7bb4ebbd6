"""What the Machine wants done or records as decided: one frozen class per command. `id` names its effect, so that doing it twice is doing it once; `cause` is the event it follows from.

One rule: applying a command to the state never decides anything; a journal of events and commands is enough to rebuild the state.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from stager.model.errors import Fault
from stager.planning.plan import Access


class Purpose(StrEnum):
    """Why bytes move."""

    DEMAND = "demand"
    PREFETCH = "prefetch"
    FINAL = "final"
    SPILL = "spill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Fetch:
    """Origin to node. Reserves `size_bytes`. The replica's generation is the transfer's id."""

    id: str
    at: float
    cause: str
    node: str
    transfer: str
    file: str
    lfn: str
    run: str
    origin: str
    path: str
    size_bytes: int
    token: str
    purpose: Purpose
    priority: int
    attempt_number: int = 1
    blake3: str = ""
    sha256: str = ""
    executable: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Hasten:
    """A job waits for this transfer now: let it overtake prefetch."""

    id: str
    at: float
    cause: str
    node: str
    transfer: str
    priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """Node to origin: a final, or a spilled intermediate."""

    id: str
    at: float
    cause: str
    node: str
    transfer: str
    file: str
    generation: str
    lfn: str
    run: str
    origin: str
    path: str
    size_bytes: int
    purpose: Purpose
    priority: int
    replace: bool = False
    executable: bool = False
    attempt_number: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelTransfer:
    id: str
    at: float
    cause: str
    node: str
    transfer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryTransferAt:
    """Recorded decision: this file's transfer is tried again, not before `not_before`. `upload` tells the direction."""

    id: str
    at: float
    cause: str
    file: str
    run: str
    upload: bool
    not_before: float
    next_source: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GiveUpTransfer:
    """Recorded decision: no more tries for this file in this direction until the run is resumed."""

    id: str
    at: float
    cause: str
    file: str
    run: str
    upload: bool
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteReplica:
    id: str
    at: float
    cause: str
    node: str
    file: str
    generation: str
    size_bytes: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class EraseSpill:
    id: str
    at: float
    cause: str
    node: str
    file: str
    origin: str
    path: str
    token: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmitJob:
    """Recorded decision: space for all it needs is set aside and its inputs are pinned; it will be able to finish."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    node: str
    reserve_bytes: int


@dataclass(frozen=True, slots=True)
class StagedInput:
    lfn: str
    file: str
    generation: str
    path: str
    access: Access


@dataclass(frozen=True, slots=True, kw_only=True)
class StartAttempt:
    """All inputs are there, verified. Stage in, run, stage out. Outputs' generations are the attempt's id."""

    id: str
    at: float
    cause: str
    node: str
    run: str
    job: str
    attempt: str
    number: int
    reserve_bytes: int
    inputs: tuple[StagedInput, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GrantSpace:
    """Grow the attempt's reservation to this and go on with its stage-out."""

    id: str
    at: float
    cause: str
    node: str
    attempt: str
    reserve_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class KillAttempt:
    """`void`: whatever it makes must not be used, even if it ends well before the kill arrives."""

    id: str
    at: float
    cause: str
    node: str
    run: str
    job: str
    attempt: str
    void: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RequeueJob:
    """Recorded decision: the job goes back to waiting, not to start before `not_before`; `counts` says whether this used up one of its retries."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    not_before: float
    counts: bool
    why: str
    reserve_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailJob:
    """Recorded decision: no more tries; all that depend on it cannot run."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    fault: Fault


@dataclass(frozen=True, slots=True, kw_only=True)
class RemakeFile:
    """Recorded decision: the only copy is gone, so its producer runs again (and, if needed, what that reads)."""

    id: str
    at: float
    cause: str
    run: str
    file: str
    job: str


class RunOutcome(StrEnum):
    """SUCCEEDED: every job done, every final durable. NOT_DURABLE: jobs done, finals missing at the origin. The rest as named; all but SUCCEEDED and CANCELLED can be resumed."""

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NOT_DURABLE = "not_durable"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishRun:
    id: str
    at: float
    cause: str
    run: str
    outcome: RunOutcome
    fault: Fault | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WakeAt:
    """Send `Woken` at this time or later."""

    id: str
    at: float
    cause: str
    wake_at: float


Command = (
    Fetch
    | Hasten
    | Upload
    | CancelTransfer
    | RetryTransferAt
    | GiveUpTransfer
    | DeleteReplica
    | EraseSpill
    | AdmitJob
    | StartAttempt
    | GrantSpace
    | KillAttempt
    | RequeueJob
    | FailJob
    | RemakeFile
    | FinishRun
    | WakeAt
)
