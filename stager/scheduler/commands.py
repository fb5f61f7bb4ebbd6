"""The commands of the Machine: one frozen class for each thing that it wants done or records as decided. `id` names its effect, so that
doing it twice is doing it once; `cause` is the event it follows from.

One rule: applying a command to the state never decides anything; a journal of events and commands is enough to rebuild the state.
"""

from __future__ import annotations

from enum import StrEnum

from stager.model.errors import Fault
from stager.model.record import Record
from stager.planning.plan import Access
from stager.scheduler.sharing_commands import AwaitJob as AwaitJob
from stager.scheduler.sharing_commands import StopAwaiting as StopAwaiting
from stager.scheduler.sharing_commands import TakeOver as TakeOver


class Purpose(StrEnum):
    """Why bytes move. EXTRA_COPY: a second copy, against the loss of a node. RELAY: a final, to a node that reaches its place."""

    DEMAND = "demand"
    PREFETCH = "prefetch"
    EXTRA_COPY = "extra_copy"
    FINAL = "final"
    SPILL = "spill"
    MOVE = "move"
    RELAY = "relay"


class Stripe(Record):
    """The part of a file of `file_bytes` that is meant: stripes `index`, `index + count` and so on. `assembly`: the transfer to node
    `target` that the part is for.
    """

    index: int
    count: int
    stripe_bytes: int
    file_bytes: int
    assembly: str
    target: str


class Fetch(Record, kw_only=True):
    """Origin to node. Reserves `size_bytes`. The replica's generation is the transfer's id. With a `stripe` only that part of the
    file comes, which is no copy of it.
    """

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
    stripe: Stripe | None = None


class Part(Record):
    """`transfer` brings it and is its generation."""

    node: str
    transfer: str
    size_bytes: int


class AssembleStripes(Record, kw_only=True):
    """Makes the file on a node of its parts on several, itself among them or not, as they come from the origin named. Reserves
    `size_bytes`. The replica's generation is the transfer's id.
    """

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
    parts: tuple[Part, ...]
    attempt_number: int = 1
    blake3: str = ""
    sha256: str = ""
    executable: bool = False


class GiveUpStripes(Record, kw_only=True):
    """Recorded decision: this file is fetched whole, until it was had once. `transfer`: what was to assemble it."""

    id: str
    at: float
    cause: str
    file: str
    run: str
    transfer: str
    why: str


class CopyReplica(Record, kw_only=True):
    """Node to node: what `source` holds as `source_generation`. Reserves `size_bytes`. The replica's generation is the transfer's id."""

    id: str
    at: float
    cause: str
    node: str
    transfer: str
    file: str
    lfn: str
    run: str
    source: str
    source_generation: str
    size_bytes: int
    purpose: Purpose
    priority: int
    attempt_number: int = 1
    blake3: str = ""


class Reprioritize(Record, kw_only=True):
    """A job waits for this transfer now: let it overtake prefetch."""

    id: str
    at: float
    cause: str
    node: str
    transfer: str
    priority: int


class Upload(Record, kw_only=True):
    """Node to origin: a final, or a spilled intermediate. `replaces`: the token of an earlier making that we left there; only that may be
    written over where `replace` is not set. `made_at`: what is there and was changed since then is not replaced; None: it may be. `reads`:
    the file of another run whose replica is sent, where that has the same content and the file has none of its own.
    """

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
    replaces: str = ""
    made_at: float | None = None
    reads: str = ""


class CancelTransfer(Record, kw_only=True):
    id: str
    at: float
    cause: str
    node: str
    transfer: str


class RetryTransferAt(Record, kw_only=True):
    """Recorded decision: this file's transfer is tried again, not before `not_before`. `upload` tells the direction.

    From the next of its sources, or from that of number `source_at`; else from the same.
    """

    id: str
    at: float
    cause: str
    file: str
    run: str
    upload: bool
    not_before: float
    next_source: bool = False
    source_at: int | None = None


class GiveUpTransfer(Record, kw_only=True):
    """Recorded decision: no more tries for this file in this direction until the run is resumed.

    `origin`: which of the run's it was; older journals do not tell.
    """

    id: str
    at: float
    cause: str
    file: str
    run: str
    upload: bool
    fault: Fault
    origin: str = ""


class DeleteReplica(Record, kw_only=True):
    id: str
    at: float
    cause: str
    node: str
    file: str
    generation: str
    size_bytes: int
    why: str


class EraseSpill(Record, kw_only=True):
    """`run`: whose origin of that name is meant; older journals do not tell."""

    id: str
    at: float
    cause: str
    node: str
    file: str
    origin: str
    path: str
    token: str
    run: str = ""


class AdmitJob(Record, kw_only=True):
    """Recorded decision: space for all it needs is set aside and its inputs are pinned; it will be able to finish."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    node: str
    reserve_bytes: int


class StagedInput(Record):
    """`direct`: it has no generation, and is read at `origin` (the run's name), where it must have this size and token."""

    lfn: str
    file: str
    generation: str
    path: str
    access: Access
    origin: str = ""
    origin_path: str = ""
    size_bytes: int = 0
    token: str = ""


class StartAttempt(Record, kw_only=True):
    """All inputs are there, verified. Stage in, run, stage out. Outputs' generations are the attempt's id. `host`: the compute host; empty
    where nobody reported any.
    """

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
    host: str = ""


class GrantSpace(Record, kw_only=True):
    """Grow the attempt's reservation to this and go on with its stage-out."""

    id: str
    at: float
    cause: str
    node: str
    attempt: str
    reserve_bytes: int


class KillAttempt(Record, kw_only=True):
    """`void`: whatever it makes must not be used, even if it ends well before the kill arrives."""

    id: str
    at: float
    cause: str
    node: str
    run: str
    job: str
    attempt: str
    void: bool = False


class RequeueJob(Record, kw_only=True):
    """Recorded decision: the job goes back to waiting, not to start before `not_before`; `counts` says whether this used up one of its
    retries.
    """

    id: str
    at: float
    cause: str
    run: str
    job: str
    not_before: float
    counts: bool
    why: str
    reserve_bytes: int | None = None


class RehomeJob(Record, kw_only=True):
    """Recorded decision: the job, which has not been admitted, is to run beside another node."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    node: str
    why: str


class FailJob(Record, kw_only=True):
    """Recorded decision: no more tries; all that depend on it cannot run."""

    id: str
    at: float
    cause: str
    run: str
    job: str
    fault: Fault


class EndCall(Record, kw_only=True):
    """Recorded decision: this call of an engine is over and its job is not done; the engine is told why, and may call it again.
    `reserve_bytes`: what its outputs are known to need then.
    """

    id: str
    at: float
    cause: str
    run: str
    job: str
    call: str
    fault: Fault
    reserve_bytes: int | None = None


class RemakeFile(Record, kw_only=True):
    """Recorded decision: the only copy is gone, so its producer runs again (and, if needed, what that reads)."""

    id: str
    at: float
    cause: str
    run: str
    file: str
    job: str


class FallBackToFetch(Record, kw_only=True):
    """Recorded decision: what this run was to read directly is fetched and kept from now on, for it cannot be had directly."""

    id: str
    at: float
    cause: str
    run: str
    file: str
    lfn: str
    why: str


class PauseOrigin(Record, kw_only=True):
    """Recorded decision: the origin, which the run calls by this name, denied a job what it was to read directly. It is left alone until a
    run that uses it is resumed.
    """

    id: str
    at: float
    cause: str
    run: str
    origin: str
    fault: Fault


class PauseRun(Record, kw_only=True):
    """Recorded decision: the run takes up no more jobs, since its budget is nearly used up. `owed`: what is set aside until attempts have
    ended and finals are home; `forecast`: what all of it is expected to cost.
    """

    id: str
    at: float
    cause: str
    run: str
    spent: float
    owed: float
    forecast: float
    fault: Fault


class Forecast(StrEnum):
    COST = "cost"
    TIME = "time"


class TellForecast(Record, kw_only=True):
    """Recorded decision: somebody is to know that the run is expected to cost more, or to end later, than it may. `expected` and `allowed`
    are money, or seconds since 1970.
    """

    id: str
    at: float
    cause: str
    run: str
    about: Forecast
    expected: float
    allowed: float
    spent: float
    currency: str
    text: str


class RunOutcome(StrEnum):
    """SUCCEEDED: every job done, every final durable. NOT_DURABLE: jobs done, finals missing at the origin. The rest as named; all but
    SUCCEEDED and CANCELLED can be resumed.
    """

    SUCCEEDED = "succeeded"
    FAILED = "failed"
    NOT_DURABLE = "not_durable"
    REFUSED = "refused"
    INTERRUPTED = "interrupted"
    CANCELLED = "cancelled"


class FinishRun(Record, kw_only=True):
    id: str
    at: float
    cause: str
    run: str
    outcome: RunOutcome
    fault: Fault | None = None


class WakeAt(Record, kw_only=True):
    """Send `Woken` at this time or later."""

    id: str
    at: float
    cause: str
    wake_at: float


Command = (
    Fetch
    | AssembleStripes
    | GiveUpStripes
    | CopyReplica
    | Reprioritize
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
    | RehomeJob
    | FailJob
    | EndCall
    | RemakeFile
    | AwaitJob
    | StopAwaiting
    | TakeOver
    | FallBackToFetch
    | PauseOrigin
    | PauseRun
    | TellForecast
    | FinishRun
    | WakeAt
)
