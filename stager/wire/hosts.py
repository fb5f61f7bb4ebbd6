"""Bodies about the compute hosts of a scheduler's pool. One rule: no name of a job is in any of them."""

from __future__ import annotations

from stager.wire.body import Body


class HostView(Body):
    """`state`: open | away (it does not answer, and its attempts may go on) | draining. `node`: the I/O node that its jobs read from.
    `cores_used`: of attempts that do not wait for space; `attempts`: all of them. None: not watched.
    """

    host: str
    node: str
    pool: str
    state: str
    cores: int
    cores_used: int
    memory_bytes: int | None
    memory_used_bytes: int
    scratch_bytes: int | None
    scratch_used_bytes: int
    attempts: int


class HostList(Body):
    hosts: list[HostView]


class HostForget(Body):
    """`why`: told wherever somebody asks why it is gone. `force`: also where it answers."""

    why: str = ""
    force: bool = False
