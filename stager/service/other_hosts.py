"""Directories of hosts that a workflow names by their absolute paths: asked of the I/O nodes on other hosts before a run is taken, since
each node reads its own.

May know: the links to nodes, the Machine's nodes (read only). One rule: it only asks. A node that does not answer now refuses nothing.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import msgspec

from stager import wire
from stager.adapters.origin_config import resolve
from stager.model.errors import ErrorClass, Fault, Refused, StagerError, is_permanent
from stager.model.units import format_size
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.runtime.node_link import NodeLink
from stager.service.inquiry import Inquiry
from stager.service.known_runs import KnownRuns
from stager.wire.node import StatEntry

DEADLINE_S = 10.0
# Of one origin, so many of the files that are read there.
FILES_ASKED = 16
ADVICE = (
    "write the directory relative to the workflow file (file:DIR), then the scheduler's own node reads it; or name an origin that all "
    "nodes reach, as sftp or S3"
)


@dataclass(slots=True)
class Named:
    """A directory by its absolute path, with the tokens of files that are read there and nowhere else. `written`: finals go there."""

    origin: Origin
    tokens: dict[str, str] = field(default_factory=dict)
    written: bool = False


class OtherHosts:
    """On the event loop's thread."""

    def __init__(self, inquiry: Inquiry, runs: KnownRuns, links: Mapping[str, NodeLink]) -> None:
        self.inquiry, self.runs, self.links = inquiry, runs, links

    async def require_seen(self, request: wire.SubmitRequest) -> None:
        """Raises Refused with the node and the path where jobs may run beside a node that does not see what the workflow names, and for a
        file beside the workflow that no node here can hold.
        """
        apart = [link for link in self.links.values() if link.source.apart and link.up]
        if not apart:
            return
        planned = {job.node for job in request.plan.jobs}
        nodes = await self.inquiry.ask(lambda: [(node.id, node.apart, bool(node.hosts)) for node in self.runs.state.nodes.values()])
        beside = planned | {name for name, _, has_hosts in nodes if has_hosts}
        apart = [link for link in apart if link.node in beside]
        here = [link.about.capacity_bytes for link in self.links.values() if not link.source.apart and link.about is not None]
        if apart and here:
            require_held(request.workflow, max(here))
        named = named_directories(request.workflow) if apart else []
        asked = [asked_now(link, each) for link in apart for each in named]
        found = [problem for problem in await asyncio.gather(*asked) if problem is not None]
        if found:
            raise found[0]


def require_held(workflow: Workflow, capacity_bytes: int) -> None:
    """By a node on this host, through which it comes to the others."""
    for file in workflow.files.values():
        origins = [workflow.origins.get(source.location.origin) for source in file.sources]
        beside = bool(origins) and all(origin is not None and origin.beside_workflow for origin in origins)
        if beside and (file.size_bytes or 0) > capacity_bytes:
            text = f"{file.lfn} has {format_size(file.size_bytes or 0)}, and the scheduler's own I/O node, through which files beside the"
            text += f" workflow come to other hosts, has {format_size(capacity_bytes)}: give it more (--capacity)"
            raise Refused(f"{text}, or name an origin that all nodes reach", code="no_space_node", subject=file.lfn)


def named_directories(workflow: Workflow) -> list[Named]:
    found: dict[str, Named] = {}

    def of(name: str) -> Named | None:
        origin = workflow.origins.get(name)
        if origin is None or origin.kind is not OriginKind.FILE or origin.beside_workflow:
            return None
        return found.setdefault(name, Named(origin))

    for file in workflow.files.values():
        only = file.sources[0] if len(file.sources) == 1 else None
        place = of(only.location.origin) if only is not None else None
        if place is not None and only is not None and len(place.tokens) < FILES_ASKED:
            place.tokens[only.location.path] = only.token or ""
        if file.destination is not None and (place := of(file.destination.location.origin)) is not None:
            place.written = True
    return list(found.values())


async def asked_now(link: NodeLink, named: Named) -> Refused | None:
    """None: it sees them, or cannot say now."""
    try:
        async with asyncio.timeout(DEADLINE_S):
            fault = await fault_of(link, named)
    except TimeoutError:
        return None
    except StagerError as problem:
        fault = problem.fault()
    if fault is None or not is_permanent(fault):
        return None
    what = f"the origin {named.origin.name!r} ({named.origin.url})"
    text = f"the I/O node {link.node} is on another host, where {what} is not what it is here"
    return Refused(f"{text}: {fault.message.rstrip('.;')}; {ADVICE}", code="origin_elsewhere", subject=named.origin.name)


async def fault_of(link: NodeLink, named: Named) -> Fault | None:
    config = resolve(named.origin, {})
    origin_id = "seen-" + hashlib.blake2b(msgspec.json.encode(config, order="deterministic"), digest_size=16).hexdigest()
    await link.client.put_origin(origin_id, config)
    findings = await link.client.probe(origin_id, "", write=named.written)
    fault = next((fault for fault in findings if is_permanent(fault)), None)
    if fault is not None or not named.tokens:
        return fault
    return differing(await link.client.stat(origin_id, list(named.tokens)), named.tokens)


def differing(entries: Sequence[StatEntry], tokens: Mapping[str, str]) -> Fault | None:
    for entry in entries:
        if entry.error is not None and is_permanent(entry.error.fault()):
            return entry.error.fault()
        if entry.error is None and tokens[entry.path] and entry.token != tokens[entry.path]:
            return Fault(ErrorClass.INVALID_INPUT, "source_changed", f"{entry.path} is another file there", entry.path)
    return None
