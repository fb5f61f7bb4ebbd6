"""Transfers in the virtual world: queued by priority at their origin, then moving over shared links, then committed or failed.

May know: nodes, origins, links. One rule: each transfer ends in exactly one of done, failed, cancelled or vanished with its node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heappop, heappush
from math import inf
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from stager.model.errors import NEWER_CODE, ErrorClass, Fault
from stager.planning.transport import may_begin
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.sim.assembly import Assemblies, Hop, part_content
from stager.sim.clock import Clock
from stager.sim.divided import DividedLinks
from stager.sim.faults import ORIGIN_FAULTS, Faults
from stager.sim.links import Flow, Links
from stager.sim.node import Full, SimNode
from stager.sim.origin import SimOrigin
from stager.sim.read_back import ComingBack, ReadBacks
from stager.sim.ways import LINES, way_of

BETWEEN_NODES_S = 0.001
LOST_SOURCE = Fault(ErrorClass.TRANSIENT, "connection_lost", "the node that it was copied from does not answer")
DEMAND_BELOW = 10
# A node sends what a job waits for before the rest, piece by piece, and of the rest a few all the same.
URGENT_WEIGHT = 8
UNREACHABLE_AFTER_S = 0.5


class Moving(Struct):
    """`state`: queued, connecting, moving, ended. `source`: the node that it is copied from; None for what goes from or to `origin`.
    `to_read_back`: it is an upload that has still to be read back at its origin; `coming_back`: while it is written. `left_bytes` None: all
    that it moves is under way; else that follows what the file costs.
    """

    command: cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica | cmd.Upload
    node: SimNode
    origin: SimOrigin | None
    priority: int
    begun_at: float
    state: str = "queued"
    flow: Flow | None = None
    fault: Fault | None = None
    source: SimNode | None = None
    to_read_back: bool = False
    coming_back: ComingBack | None = None
    hops: list[Hop] = []
    verified: str = "remote_checksum"
    urgent: bool = False
    left_bytes: float | None = None
    # By age, in its lane; 0: it has not come to it yet.
    place: int = 0
    # To its node, where it holds a reservation.
    is_incoming: bool = True


@dataclass(slots=True)
class Lane:
    """One node's transfers from and to one origin: (priority, order, transfer) of those that wait, and what is under way."""

    waiting: list[tuple[int, int, str]] = field(default_factory=list)
    under_way: int = 0
    under_way_bytes: int = 0
    answered_at: float = 0.0
    # By direction (of what comes in, True): what a file costs there, and until when the line is busy with files that cost most of it.
    file_s: dict[bool, float] = field(default_factory=dict)
    costs_until: dict[bool, float] = field(default_factory=dict)
    # `open_at` None: nobody has logged in yet.
    login_s: float = 0.0
    open_at: float | None = None
    bytes_per_s: dict[bool, float] = field(default_factory=dict)

    def rate(self, links: Links, moving: Moving) -> float:
        """The rate of the narrowest of its links to the origin, in or out: looked up once."""
        incoming = moving.is_incoming
        if incoming not in self.bytes_per_s:
            self.bytes_per_s[incoming] = min(links.bytes_per_s.get(link, inf) for link in way_of(moving)[:LINES])
        return self.bytes_per_s[incoming]

    def has_place(self, latency_s: float, bytes_per_s: float) -> bool:
        """For the first that waits. One place is kept for what a job waits for. What comes beside that is held back only where the line is
        full: so does a node, which counts the bytes that it has asked for, whoever waits for them.
        """
        kept = 0 if self.waiting[0][0] < DEMAND_BELOW else 1
        return may_begin(self.under_way + kept, self.under_way_bytes, latency_s, bytes_per_s)

    def answer_after_s(self, now: float, bytes_s: float, latency_s: float) -> float:
        """Small files asked for together are answered one after the other, as the line carries them: else they would all come to an end
        together, and the line would lie idle for the next round trip.
        """
        if bytes_s >= latency_s:
            return 0.0
        after_s = min(latency_s, self.answered_at - now) if self.answered_at > now else 0.0
        self.answered_at = now + after_s + bytes_s
        return after_s

    def after_s(self, now: float, moving: Moving, bytes_s: float, latency_s: float) -> float:
        """How long after its round trip the line turns to it. One that costs more than its bytes waits until the line is done with all such
        before it.
        """
        incoming = moving.is_incoming
        file_s = self.file_s.get(incoming, 0.0)
        if bytes_s >= file_s:
            return self.answer_after_s(now, bytes_s + file_s, latency_s)
        after_s = max(0.0, self.costs_until.get(incoming, 0.0) - now)
        self.costs_until[incoming] = now + after_s + bytes_s + file_s
        return after_s

    def logs_in_s(self, now: float) -> float:
        """How long it is until somebody is logged in: the first one does it for all."""
        if self.open_at is None:
            self.open_at = now + self.login_s
        return self.open_at - now if self.open_at > now else 0.0

    def begin(self, moving: Moving) -> None:
        self.under_way += 1
        self.under_way_bytes += moving.command.size_bytes

    def end(self, moving: Moving) -> None:
        self.under_way -= 1
        self.under_way_bytes -= moving.command.size_bytes


class TransferTable:
    """All nodes' transfers. `tell(node, event)` is how word gets out; `overfull` is told what did not fit."""

    def __init__(
        self, clock: Clock, links: Links, faults: Faults, tell: Callable[[SimNode, Any], None], overfull: Callable[[str], None]
    ) -> None:
        self._clock, self._links, self._faults, self._tell, self._overfull = clock, links, faults, tell, overfull
        self.latency_s: dict[str, float] = {}
        self.upload_latency_s: dict[str, float] = {}
        # By origin and direction, where files cost something.
        self.file_s: dict[str, dict[bool, float]] = {}
        self.login_s: dict[str, float] = {}
        # By origin, until a node hears of a transfer and its end is heard of.
        self.dispatch_s: dict[str, float] = {}
        self.open: dict[str, Moving] = {}
        self.results: dict[str, Any] = {}
        self.remembers = False
        self.begun = 0
        self.ended = 0
        self.vanished = 0
        self.fetched_bytes = 0
        self.uploaded_bytes = 0
        self.copied_bytes = 0
        self.divided = DividedLinks(links, clock)
        self.assemblies = Assemblies(clock, links, self._made, self._fail)
        self.read_backs = ReadBacks(clock, links, self.flow_ended)
        self._lanes: dict[tuple[str, str], Lane] = {}

    def accept(
        self, command: cmd.Fetch | cmd.Upload, node: SimNode, origin: SimOrigin, is_read_back: bool = False, behind: bool = False
    ) -> None:
        """The same id again changes nothing but the priority; of one that has ended the result is told again. `is_read_back`: as the origin
        has it of what is written there; `behind`: while it is written.
        """
        if command.transfer in self.open:
            self.reprioritize(command.transfer, command.priority)
            return
        told = self.results.get(command.transfer) if self.remembers else None
        if told is not None:
            self._tell(node, replace(told, at=self._clock.now))
            return
        if type(command) is cmd.Fetch and node.sound(command.file, command.transfer) is not None:
            self._tell(node, done_before(command, node, self._clock.now, command.token))
            return
        moving = self.open[command.transfer] = Moving(command, node, origin, command.priority, self._clock.now)
        self.begun += 1
        if type(command) is cmd.Fetch:
            try:
                node.reserve(command.transfer, command.size_bytes)
            except Full as full:
                self._overfull(str(full))
                self._fail(moving, Fault(ErrorClass.REFUSED, "no_space_node", str(full), command.lfn))
                return
        elif type(command) is cmd.Upload:
            moving.is_incoming, moving.to_read_back = False, is_read_back
            moving.coming_back = ComingBack(moving) if is_read_back and behind else None
            if node.sound(command.reads or command.file, command.generation) is None:
                message = f"{command.lfn}: replica {command.generation} is not there to be uploaded"
                self._fail(moving, Fault(ErrorClass.INVALID_INPUT, "replica_unknown", message, command.lfn))
                return
        lane = self._lanes.get((node.id, origin.url))
        if lane is None:
            lane = Lane(file_s=self.file_s.get(origin.url, {}), login_s=self.login_s.get(origin.url, 0.0))
            self._lanes[node.id, origin.url] = lane
        dispatch_s = self.dispatch_s.get(origin.url, 0.0)
        if dispatch_s:
            self._clock.after(dispatch_s, self._dispatched, moving, lane, self.begun)
        else:
            self._dispatched(moving, lane, self.begun)

    def _dispatched(self, moving: Moving, lane: Lane, place: int) -> None:
        moving.begun_at, moving.place = self._clock.now, place
        heappush(lane.waiting, (moving.priority, place, moving.command.transfer))
        self._pump(lane)

    def accept_copy(self, command: cmd.CopyReplica | cmd.AssembleStripes, node: SimNode, nodes: dict[str, SimNode]) -> None:
        """From node to node, as many at once as are asked for; of several at once what is assembled."""
        told = self.results.get(command.transfer) if self.remembers else None
        if command.transfer in self.open:
            return
        if told is not None:
            self._tell(node, replace(told, at=self._clock.now))
            return
        if node.sound(command.file, command.transfer) is not None:
            self._tell(node, done_before(command, node, self._clock.now))
            return
        source = nodes[command.source] if type(command) is cmd.CopyReplica else None
        moving = Moving(command, node, None, command.priority, self._clock.now, state="connecting", source=source)
        if type(command) is cmd.AssembleStripes:
            moving.hops = [Hop(moving, part, nodes[part.node]) for part in command.parts]
        self.open[command.transfer] = moving
        self.begun += 1
        try:
            node.reserve(command.transfer, command.size_bytes)
        except Full as full:
            self._overfull(str(full))
            self._fail(moving, Fault(ErrorClass.REFUSED, "no_space_node", str(full), command.lfn))
            return
        self._clock.after(node.copy_latency_s or BETWEEN_NODES_S, self._connected, moving)

    def reprioritize(self, transfer: str, priority: int) -> None:
        moving = self.open.get(transfer)
        if moving is None or moving.origin is None or priority >= moving.priority:
            return
        moving.priority = priority
        if moving.state == "queued":
            # It keeps its age, as on a node: of those that jobs wait for the first that was asked for goes first.
            if moving.place:
                heappush(self._lanes[moving.node.id, moving.origin.url].waiting, (priority, moving.place, transfer))
        elif priority < DEMAND_BELOW and not moving.urgent:
            moving.urgent = True
            if moving.flow is not None and moving.is_incoming:
                moving.flow = self._links.weigh(self._clock.now, moving.flow, weight_of(moving))

    def cancel(self, transfer: str) -> None:
        moving = self.open.get(transfer)
        if moving is not None:
            self._end(moving)
            self.assemblies.part_ended(transfer, well=False)
            self._tell_end(moving, ev.TransferCancelled(at=self._clock.now, node=moving.node.id, transfer=transfer))

    def vanish(self, node: SimNode) -> None:
        """The node died: what was under way there never was, what had ended is forgotten."""
        self.results = {transfer: told for transfer, told in self.results.items() if told.node != node.id}
        gone = [moving for moving in self.open.values() if moving.node is node]
        for moving in gone:
            self.vanished += 1
            self._end(moving)
        for moving in gone:
            self.assemblies.part_ended(moving.command.transfer, well=False)
        for moving in [moving for moving in self.open.values() if moving.source is node]:
            self._fail(moving, LOST_SOURCE)
        self.assemblies.node_died(node)

    def flow_ended(self, moving: Moving) -> None:
        """All its bytes, or as many as it was to have, have passed."""
        if moving.state != "moving":
            return
        moving.flow = None
        if moving.left_bytes is not None:
            size, moving.left_bytes = moving.left_bytes, None
            moving.flow = self._links.start(self._clock.now, way_of(moving), size, moving, weight_of(moving))
            self.read_backs.begin(moving)
            return
        fault, command = moving.fault or self._origin_fault(moving), moving.command
        if fault is None and moving.source is not None:
            fault = self._source_fault(moving)
        if fault is not None:
            self._fail(moving, fault)
        elif type(command) is cmd.Fetch:
            self._end_fetch(moving, command)
        elif type(command) is cmd.CopyReplica:
            assert moving.source is not None
            replica = moving.source.replicas[command.file, command.source_generation]
            self._made(moving, replica.content, replica.size_bytes)
        elif type(command) is cmd.Upload and self.read_backs.is_back(moving):
            self._end_upload(moving, command)

    def _pump(self, lane: Lane) -> None:
        """One place is kept for what a job waits for."""
        while lane.waiting:
            first = self.open.get(lane.waiting[0][2])
            if first is None or first.origin is None or first.state != "queued":
                heappop(lane.waiting)
                continue
            wait = self.latency_s if first.is_incoming else self.upload_latency_s
            latency_s, rate = wait.get(first.origin.url, 0.0), lane.rate(self._links, first)
            if not lane.has_place(latency_s, rate):
                return
            heappop(lane.waiting)
            first.state, first.urgent = "connecting", first.priority < DEMAND_BELOW
            lane.begin(first)
            self.divided.begin(first.origin.url, first.node.id)
            now = self._clock.now
            answer_s = lane.logs_in_s(now) + latency_s + lane.after_s(now, first, first.command.size_bytes / rate, latency_s)
            self._clock.after(UNREACHABLE_AFTER_S if first.origin.fault_code else answer_s, self._connected, first)

    def _connected(self, moving: Moving) -> None:
        if moving.state != "connecting":
            return
        fault = self._origin_fault(moving) or self._source_fault(moving)
        if fault is not None:
            self._fail(moving, fault)
            return
        moving.state = "moving"
        size: float = moving.command.size_bytes
        drawn = self._faults.transfer_fault(self._clock.now, moving.command.transfer)
        if drawn is not None:
            moving.fault, size = drawn[0], size * drawn[1]
        if moving.hops:
            self.assemblies.begin(moving)
            return
        way, lane = way_of(moving), self._lanes[moving.node.id, moving.origin.url] if moving.origin is not None else None
        if lane is not None and (file_s := lane.file_s.get(moving.is_incoming)):
            # Work of the lines that moves nothing, and passes no network and no disk.
            moving.left_bytes, size, way = size, file_s * lane.rate(self._links, moving), way[:LINES]
        moving.flow = self._links.start(self._clock.now, way, size, moving, weight_of(moving))
        self.read_backs.begin(moving)

    def _origin_fault(self, moving: Moving) -> Fault | None:
        origin = moving.origin
        return ORIGIN_FAULTS.get(origin.fault_code) if origin is not None and origin.fault_code else None

    def _source_fault(self, moving: Moving) -> Fault | None:
        command = moving.command
        if type(command) is cmd.CopyReplica:
            return self._copy_fault(moving, command)
        if type(command) is cmd.AssembleStripes:
            return self.assemblies.fault_of(moving, self.open)
        if type(command) is not cmd.Fetch:
            return None
        assert moving.origin is not None
        stored = moving.origin.files.get(command.path)
        if stored is None:
            return Fault(ErrorClass.INVALID_INPUT, "not_found", f"{command.lfn}: {command.path} is not at the origin", command.lfn)
        if command.token and stored.token != command.token:
            return Fault(ErrorClass.REFUSED, "source_changed", f"{command.lfn}: {command.path} changed at the origin", command.lfn)
        return None

    def _copy_fault(self, moving: Moving, command: cmd.CopyReplica) -> Fault | None:
        assert moving.source is not None
        if not moving.source.up:
            return LOST_SOURCE
        if moving.source.sound(command.file, command.source_generation) is None:
            message = f"{command.lfn}: {command.source} has no sound replica {command.source_generation}"
            return Fault(ErrorClass.INVALID_INPUT, "replica_unknown", message, command.lfn)
        return None

    def _made(self, moving: Moving, content: str, size_bytes: int) -> None:
        """Of what other nodes have."""
        self._end(moving)
        moving.node.commit(moving.command.file, moving.command.transfer, content, size_bytes)
        self.copied_bytes += size_bytes
        self._done(moving, size_bytes, content, "", "")

    def _end_fetch(self, moving: Moving, command: cmd.Fetch) -> None:
        fault = self._source_fault(moving)
        assert moving.origin is not None
        stored = moving.origin.files.get(command.path)
        if stored is not None and command.blake3 and stored.content != command.blake3:
            fault = Fault(ErrorClass.CORRUPT, "checksum_mismatch", f"{command.lfn} is not what was expected", command.lfn)
        if fault is not None or stored is None:
            self._fail(moving, fault or ORIGIN_FAULTS["origin_unreachable"])
            return
        is_part = command.stripe is not None
        size_bytes = command.size_bytes if is_part else stored.size_bytes
        content = part_content(stored.content) if is_part else stored.content
        self._end(moving)
        moving.node.commit(command.file, command.transfer, content, size_bytes, is_part)
        self.fetched_bytes += size_bytes
        self._done(moving, size_bytes, content, stored.token, "")
        self.assemblies.part_ended(command.transfer, well=True)

    def _end_upload(self, moving: Moving, command: cmd.Upload) -> None:
        assert moving.origin is not None
        replica = moving.node.sound(command.reads or command.file, command.generation)
        there = moving.origin.files.get(command.path)
        if replica is None:
            self._fail(
                moving,
                Fault(ErrorClass.INVALID_INPUT, "replica_unknown", f"{command.lfn}: replica {command.generation} is gone", command.lfn),
            )
            return
        same = there is not None and there.content == replica.content
        ours = command.replaces and there is not None and there.token == command.replaces
        if there is not None and not same and not command.replace and not ours:
            message = f"{command.path} exists at the origin with other content"
            self._fail(moving, Fault(ErrorClass.REFUSED, "destination_exists", message, command.lfn))
            return
        if there is not None and not same and not ours and command.made_at is not None and there.changed_at >= command.made_at:
            message = f"{command.path} was changed at the origin after {command.lfn} was made"
            self._fail(moving, Fault(ErrorClass.REFUSED, NEWER_CODE, message, command.lfn))
            return
        now, content = self._clock.now, replica.content
        stored = there if there is not None and same else moving.origin.put(command.path, content, replica.size_bytes, now)
        self._end(moving)
        self.uploaded_bytes += replica.size_bytes
        self._done(moving, replica.size_bytes, replica.content, stored.token, "adopted" if same else moving.verified)

    def _done(self, moving: Moving, size_bytes: int, content: str, token: str, verified: str) -> None:
        event = ev.TransferDone(
            at=self._clock.now,
            node=moving.node.id,
            transfer=moving.command.transfer,
            size_bytes=size_bytes,
            blake3=content,
            token=token,
            verified=verified,
            bytes_moved=size_bytes,
            duration_s=self._clock.now - moving.begun_at,
        )
        self._tell_end(moving, event)

    def _tell_end(self, moving: Moving, event: Any) -> None:
        if self.remembers:
            self.results[moving.command.transfer] = event
        self._tell(moving.node, event)

    def _fail(self, moving: Moving, fault: Fault) -> None:
        if moving.state == "ended":
            return
        self._end(moving)
        self.assemblies.part_ended(moving.command.transfer, well=False)
        self._tell_end(moving, ev.TransferFailed(at=self._clock.now, node=moving.node.id, transfer=moving.command.transfer, fault=fault))

    def _end(self, moving: Moving) -> None:
        """Frees its reservation, its stream and its share of the links."""
        if moving.flow is not None:
            self._links.stop(self._clock.now, moving.flow)
        self.read_backs.stop(moving)
        if moving.hops:
            self.assemblies.stop(moving)
        had_stream = moving.state in ("connecting", "moving")
        moving.state = "ended"
        self.open.pop(moving.command.transfer, None)
        self.ended += 1
        if moving.is_incoming:
            moving.node.free(moving.command.transfer)
        if had_stream and moving.origin is not None:
            lane = self._lanes[moving.node.id, moving.origin.url]
            lane.end(moving)
            self.divided.end(moving.origin.url, moving.node.id)
            self._pump(lane)


def weight_of(moving: Moving) -> int:
    """What a job waits for goes before what may come later, which goes on all the same."""
    return URGENT_WEIGHT if moving.is_incoming and moving.urgent else 1


def done_before(command: cmd.Fetch | cmd.AssembleStripes | cmd.CopyReplica, node: SimNode, at: float, token: str = "") -> ev.TransferDone:
    """Committed by an earlier life of the node."""
    there = node.replicas[command.file, command.transfer]
    return ev.TransferDone(at=at, node=node.id, transfer=command.transfer, size_bytes=there.size_bytes, blake3=there.content, token=token)
