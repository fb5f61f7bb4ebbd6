"""The link to one node, whose answers a script gives: what it does when the node is lost, and when it refuses this scheduler."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

import pytest

from stager.adapters.ionode import PeerAddress
from stager.model.errors import Refused, StagerError, Transient
from stager.runtime.allowances import Allowances
from stager.runtime.credentials import CredentialBook
from stager.runtime.inbox import Inbox
from stager.runtime.live_world import LiveWorld
from stager.runtime.node_link import NodeLink
from stager.runtime.outstanding import Outstanding
from stager.runtime.peering import Peering
from stager.runtime.store_owners import StoreOwners
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.wire.node import AttemptElsewhere, EventPage, NodeAbout, NodeState, TransferAnswer

OTHER_RULES = Refused("this node obeys epoch 3 and the call came from epoch 2; another scheduler has taken over", code="stale_epoch")
STORE_LOCKED = Refused("the store is locked by a process that does not answer", code="store_locked")
GONE = Transient("the I/O node does not answer", code="connection_lost")
OTHER_INCARNATION = Transient("this is another incarnation", code="stale_incarnation")


class ScriptedNode:
    """Source and client in one. Each contact raises what is next in `at_contact`, if anything; polls wait for what `polled` brings."""

    def __init__(self, node_id: str, *at_contact: StagerError | None) -> None:
        self.node_id, self.at_contact = node_id, list(at_contact)
        self.incarnation, self.contacts, self.store_id = "", 0, ""
        self.polled: asyncio.Queue[StagerError] = asyncio.Queue()
        self.deleting: StagerError | None = None
        self.deleted: list[str] = []
        self.address = f"{node_id}:1"
        # (its own incarnation, peer, the peer's address and incarnation) that it was told, and that with each copy that it was asked for.
        self.peers: list[tuple[str, str, str, str]] = []
        self.copies: list[tuple[str, list[Any]]] = []
        self.telling: StagerError | None = None
        # Attempts on other hosts that it has open, and those of them that it was told to close.
        self.open: list[str] = []
        self.closed: list[str] = []

    @property
    def client(self) -> Any:
        return self

    @property
    def apart(self) -> bool:
        return False

    def peer_address(self) -> PeerAddress | None:
        return PeerAddress(self.address, f"token of {self.node_id}", self.incarnation) if self.address else None

    async def put_peer(self, node_id: str, peer: PeerAddress) -> None:
        if self.telling is not None:
            raise self.telling
        self.peers.append((self.incarnation, node_id, peer.address, peer.incarnation))

    async def put_transfer(self, transfer_id: str, body: Any, *, command_id: str) -> TransferAnswer:
        self.copies.append((transfer_id, list(self.peers)))
        return TransferAnswer(state="queued")

    async def contact(self) -> Any:
        self.contacts += 1
        problem = self.at_contact.pop(0) if self.at_contact else None
        if problem is not None:
            raise problem
        self.incarnation = f"i{self.contacts}"

    async def node(self) -> NodeAbout:
        numbers = {"pid": 1, "capacity_bytes": 10, "used_bytes": 0, "reserved_bytes": 0}
        return NodeAbout(
            node_id=self.node_id, incarnation=self.incarnation, can_link=True, draining=False, store_id=self.store_id, **numbers
        )

    async def state(self) -> NodeState:
        attempts = [AttemptElsewhere(attempt_id=name, epoch=1, state="open") for name in self.open]
        return NodeState(incarnation=self.incarnation, next_seq=1, replicas=[], transfers=[], attempts=attempts)

    async def close_attempt(self, attempt_id: str) -> None:
        self.closed.append(attempt_id)

    async def poll_events(self, after: int, *, wait_s: float) -> EventPage:
        raise await self.polled.get()

    async def delete_replicas(self, asked: Sequence[tuple[str, str, str]]) -> list[StagerError | None]:
        if self.deleting is not None:
            raise self.deleting
        self.deleted += [command_id for _, _, command_id in asked]
        return [None] * len(asked)


class Bed:
    """A live world with a link to each of these nodes. Its Machine takes each event at once, and decides nothing."""

    def __init__(self, *nodes: ScriptedNode) -> None:
        self.told: list[ev.Event] = []
        self.refused: list[tuple[str, str]] = []
        self.outstanding = outstanding = Outstanding()
        book = CredentialBook(lambda run, origin: {}, lambda run, origin: False)
        journal: Any = None
        attempts: Any = None
        self.world = LiveWorld(journal, Inbox(lambda: 1.0), outstanding, asyncio.get_running_loop(), lambda events: None)
        peering, stores, allowances = Peering(), StoreOwners({}), Allowances(lambda: 1.0)
        sources: Sequence[Any] = nodes
        self.links = [
            NodeLink(
                node, self.put, outstanding, book, self.world.fatal, self.left_out(node.node_id), lambda: 1.0, peering, stores, allowances
            )
            for node in sources
        ]
        self.world.open(self.links, attempts)

    def put(self, event: ev.Event, on_durable: Callable[[], None] | None = None) -> None:
        self.told.append(event)
        self.world._carry_out([event], [], [])

    def left_out(self, node: str) -> Callable[[StagerError], None]:
        return lambda problem: self.refused.append((node, problem.code))

    def seen(self, node: str) -> list[str]:
        """What the Machine heard of this node, by kind."""
        return [type(event).__name__ for event in self.told if getattr(event, "node", "") == node]

    async def until(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(5):
            while not holds():
                await asyncio.sleep(0.005)


def play(steps: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(steps())


def delete(number: int, node: str) -> cmd.DeleteReplica:
    return cmd.DeleteReplica(id=f"c{number}", at=0.0, cause="e", node=node, file="f", generation=f"g{number}", size_bytes=1, why="evicted")


@pytest.mark.parametrize("refusal", [OTHER_RULES, STORE_LOCKED], ids=["epoch", "locked"])
def test_a_node_that_refuses_at_first_contact_excludes_itself_alone(refusal: StagerError) -> None:
    """It ended the scheduler, whatever other nodes it had."""

    async def main() -> None:
        good, bad = ScriptedNode("io0"), ScriptedNode("io1", refusal)
        bed = Bed(good, bad)
        await bed.until(lambda: bed.links[0].up and bed.links[1].excluded)
        assert bed.refused == [("io1", refusal.code)] and bed.world.failure is None
        assert bed.links[1].problem is not None and bed.links[1].problem.message == refusal.message
        assert bed.seen("io1") == [], "the Machine never knew it"
        bed.world._carry_out([], [delete(1, "io1"), delete(2, "io0")], [])
        await bed.until(lambda: good.deleted == ["c2"])
        await asyncio.sleep(0.1)
        assert bad.contacts == 1 and not bad.deleted, "it is left alone"
        await bed.world.close()

    play(main)


def test_a_node_that_another_scheduler_took_over_is_lost_and_left_alone() -> None:
    async def main() -> None:
        taken, good = ScriptedNode("io0"), ScriptedNode("io1")
        bed = Bed(taken, good)
        await bed.until(lambda: all(link.up for link in bed.links))
        taken.polled.put_nowait(OTHER_RULES)
        await bed.until(lambda: bed.links[0].excluded)
        assert bed.seen("io0") == ["NodeReported", "NodeLost"] and bed.seen("io1") == ["NodeReported"]
        assert bed.refused == [("io0", "stale_epoch")] and bed.world.failure is None and bed.links[1].up
        await bed.world.close()

    play(main)


def test_a_call_that_another_scheduler_forbade_excludes_the_node_once() -> None:
    async def main() -> None:
        taken = ScriptedNode("io0")
        bed = Bed(taken)
        await bed.until(lambda: bed.links[0].up)
        taken.deleting = OTHER_RULES
        bed.world._carry_out([], [delete(1, "io0"), delete(2, "io0")], [])
        await bed.until(lambda: bed.links[0].excluded and not bed.world.tasks.under_way)
        assert bed.seen("io0") == ["NodeReported", "NodeLost"] and bed.refused == [("io0", "stale_epoch")]
        await bed.world.close()

    play(main)


def test_a_node_that_excluded_itself_while_its_report_was_on_the_way_is_lost_again() -> None:
    async def main() -> None:
        bed = Bed(ScriptedNode("io0", OTHER_RULES))
        (link,) = bed.links
        await bed.until(lambda: link.excluded)
        bed.put(ev.NodeReported(at=0.0, node="io0", incarnation="i", capacity_bytes=1, can_link=True, replicas=(), transfers=()))
        assert not link.up and bed.seen("io0") == ["NodeReported", "NodeLost"]
        await bed.world.close()

    play(main)


@pytest.mark.parametrize("problem", [GONE, OTHER_INCARNATION], ids=["gone", "incarnation"])
def test_a_node_that_is_lost_or_is_another_incarnation_is_met_again(problem: StagerError) -> None:
    async def main() -> None:
        node, away = ScriptedNode("io0"), ScriptedNode("io1", GONE, GONE)
        bed = Bed(node, away)
        await bed.until(lambda: all(link.up for link in bed.links))
        assert away.contacts == 3 and bed.seen("io1") == ["NodeReported"]
        node.polled.put_nowait(problem)
        await bed.until(lambda: bed.seen("io0") == ["NodeReported", "NodeLost", "NodeReported"])
        assert node.contacts == 2 and bed.links[0].up and not bed.refused and bed.seen("io1") == ["NodeReported"]
        # It was reached before, so a refusal is no reason to give it up.
        node.at_contact.append(STORE_LOCKED)
        node.polled.put_nowait(GONE)
        await bed.until(lambda: node.contacts == 4 and bed.links[0].up)
        await bed.world.close()

    play(main)


def test_a_node_with_the_store_of_another_is_refused_until_that_one_is_given_up() -> None:
    """Also one that is away just now: what it held would count twice."""

    async def main() -> None:
        first, second = ScriptedNode("io0"), ScriptedNode("io1", GONE)
        first.store_id = second.store_id = "s"
        bed = Bed(first, second)
        link = bed.links[1]
        await bed.until(lambda: bed.links[0].up and link.problem is not None and link.problem.code == "store_taken")
        assert link.problem is not None and "io0" in link.problem.message and link.problem.subject == "io1"
        first.at_contact += [GONE] * 1000
        first.polled.put_nowait(GONE)
        await bed.until(lambda: not bed.links[0].up and second.contacts >= 4)
        assert bed.seen("io1") == [] and not link.excluded and not first.peers and not second.peers
        bed.put(ev.NodeGone(at=0.0, node="io0", why="its host burnt"))
        await bed.until(lambda: link.up)
        assert link.problem is None
        await bed.world.close()

    play(main)


def test_a_defect_of_one_link_ends_the_world() -> None:
    async def main() -> None:
        broken = ScriptedNode("io0")
        bed = Bed(broken, ScriptedNode("io1"))
        defect: Any = ValueError("a defect")
        broken.polled.put_nowait(defect)
        await bed.until(lambda: bed.world.failure is defect)
        await bed.world.close()

    play(main)


def copy(number: int, node: str, source: str) -> cmd.CopyReplica:
    where: dict[str, Any] = {"node": node, "source": source, "source_generation": "g"}
    what: dict[str, Any] = {"id": f"c{number}", "transfer": f"t{number}", "file": "f", "lfn": "f", "run": "r", "size_bytes": 1}
    return cmd.CopyReplica(at=0.0, cause="e", purpose=cmd.Purpose.DEMAND, priority=1, **what, **where)


def test_each_node_is_told_of_all_others_and_again_in_each_incarnation() -> None:
    """Of those that it can reach: a node without an address is told of others, and nobody is told of it."""

    async def main() -> None:
        one, other, mute = ScriptedNode("io0"), ScriptedNode("io1"), ScriptedNode("io2")
        mute.address = ""
        bed = Bed(one, other, mute)
        await bed.until(lambda: all(link.up for link in bed.links) and len(mute.peers) == 2)
        assert one.peers == [("i1", "io1", "io1:1", "i1")] and other.peers == [("i1", "io0", "io0:1", "i1")]
        assert {peer for _, peer, _, _ in mute.peers} == {"io0", "io1"}
        other.address = "io1:2"
        other.polled.put_nowait(OTHER_INCARNATION)
        await bed.until(lambda: len(one.peers) == 2 and len(other.peers) == 2 and len(mute.peers) == 3)
        assert one.peers[-1] == ("i1", "io1", "io1:2", "i2") and other.peers[-1] == ("i2", "io0", "io0:1", "i1")
        assert mute.peers[-1] == ("i1", "io1", "io1:2", "i2")
        await bed.world.close()

    play(main)


def test_a_copy_is_asked_for_when_the_node_knows_the_source() -> None:
    """Where it could not be told before, it is told then. What it cannot be told is no copy, and no reason to call the node lost."""

    async def main() -> None:
        one, other = ScriptedNode("io0"), ScriptedNode("io1")
        one.telling = Transient("a server error", code="io_error")
        bed = Bed(one, other)
        await bed.until(lambda: all(link.up for link in bed.links))
        refused, works = copy(1, "io0", "io1"), copy(2, "io0", "io1")
        bed.world._carry_out([], [refused], [])
        await bed.until(lambda: "TransferFailed" in bed.seen("io0"))
        assert not one.copies and bed.links[0].up
        one.telling = None
        bed.world._carry_out([], [works], [])
        await bed.until(lambda: len(one.copies) == 1)
        assert one.copies == [("t2", [("i1", "io1", "io1:1", "i1")])]
        await bed.world.close()

    play(main)


def test_attempts_that_are_over_and_that_the_node_has_open_are_closed_at_its_report_and_no_others() -> None:
    """Nobody else ends their leases and tickets: the scheduler that knew of them was killed, or the node was away when they ended."""

    async def main() -> None:
        node = ScriptedNode("io0")
        node.open = ["a-1", "a-2", "a-3"]
        bed = Bed(node)
        what: dict[str, Any] = {"id": "c1", "at": 0.0, "cause": "e", "run": "r", "job": "j", "number": 1, "inputs": (), "reserve_bytes": 1}
        bed.outstanding.gave([cmd.StartAttempt(attempt="a-2", node="io0", host="h", **what)])
        await bed.until(lambda: len(node.closed) == 2)
        assert node.closed == ["a-1", "a-3"]
        await bed.world.close()

    play(main)
