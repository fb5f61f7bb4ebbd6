"""Mounts of origins on a node, for jobs that read directly.

May know: the NodeClient port, the calls of one node. One rule: a mount that cannot be had while its origin answers is told apart from an
origin that is away: the one is fetched from instead, the other waited for.
"""

from __future__ import annotations

from stager.adapters.ionode import is_lost
from stager.model.errors import CANNOT_MOUNT_CODE, ErrorClass, Fault, Refused, StagerError, Transient, error_from, is_unreachable
from stager.runtime.node_calls import NodeCalls


async def mounted(calls: NodeCalls, run: str, origin: str, path: str) -> str:
    """The id at the node of the origin that the run calls so, after its mount was asked for: the same again changes nothing. `path`: a file
    to ask it for.

    Raises StagerError: lost calls as they are, `cannot_mount`, `origin_unreachable`, else what denies; the origin's name is the subject.
    """
    try:
        origin_id = await calls.origin_id(run, origin)
        await calls.client.put_mount(origin_id)
    except StagerError as problem:
        if is_lost(problem) or problem.code == "stale_epoch":
            raise
        fault = problem.fault()
        if fault.error_class == "denied":
            raise error_from(Fault(fault.error_class, fault.code, fault.message, origin)) from problem
        if is_unreachable(fault) and not await answers(calls, run, origin, path):
            raise Transient(problem.message, code="origin_unreachable", subject=origin) from problem
        text = f"{problem.message}; the run fetches the inputs that it was to read directly at {origin!r}"
        raise Refused(text, code=CANNOT_MOUNT_CODE, subject=origin) from problem
    return origin_id


async def answers(calls: NodeCalls, run: str, origin: str, path: str) -> bool:
    """Whether the origin can be asked by the way that fetches take."""
    try:
        entries = await calls.client.stat(await calls.origin_id(run, origin), [path])
    except StagerError:
        return False
    return not any(entry.error is not None and entry.error.error_class is ErrorClass.TRANSIENT for entry in entries)
