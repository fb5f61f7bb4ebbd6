"""Bodies about runs whose jobs a foreign engine runs. One rule: a call is known by the engine's own name of it."""

from __future__ import annotations

from enum import StrEnum

from stager.wire.body import Body, ErrorBody


class CallRequest(Body):
    """`pins`: its inputs are to be held on their node, not copied. `message`: of one that failed."""

    job: str
    call: str
    pins: bool = False
    wait_s: float = 20.0
    message: str = ""


class EndRequest(Body):
    succeeded: bool
    message: str = ""


class CallState(StrEnum):
    """WAITING: for its inputs, for room, or for another call that is to publish. STAGED: its task may go on. PUBLISHING: it ended well, and
    what it made is being taken. DONE: that is there. REFUSED: the call is over without that, see its fault.
    """

    WAITING = "waiting"
    STAGED = "staged"
    PUBLISHING = "publishing"
    DONE = "done"
    REFUSED = "refused"


class CalledFile(Body):
    """`path`: in the call's directory, absolute; empty for an input that is only held on the node, as this replica of it."""

    lfn: str
    path: str
    file: str = ""
    generation: str = ""


class CallView(Body):
    """One call of an engine. `directory`: for its task, as long as it is staged: its inputs are there, its outputs are taken from there."""

    run: str
    job: str
    call: str
    state: CallState
    node: str = ""
    directory: str = ""
    inputs: list[CalledFile] = []
    outputs: list[CalledFile] = []
    fault: ErrorBody | None = None


class OpenCall(Body):
    """A call that is not over: waiting, staged or publishing, `since` the engine made it, `open_s` ago. Both by the clock of the service,
    which may differ from the clock of who asks.
    """

    job: str
    call: str
    state: CallState
    since: float
    open_s: float


class Place(Body):
    origin: str
    path: str


class FileWhere(Body):
    """`standing`: as in the ledger, or `external`. `places`: where an external is, or a final is to be. `nodes`: that hold it."""

    run: str
    lfn: str
    standing: str
    nodes: list[str]
    places: list[Place]
    size_bytes: int | None
