"""What a scheduler opens and closes for attempts on other hosts, at a real node on a host of its own."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.attempt_tickets import AttemptTickets, Committed, Door, NotOpened, body_of, spec_of
from stager.adapters.ionode import IoNode as NodeClient
from stager.adapters.ionode import PeerAddress
from stager.model.errors import InvalidInput, StagerError
from stager.scheduler import commands as cmd
from stager.worker import AttemptInput, AttemptOutput, AttemptSpec, DirectInput, InputAccess
from tests.conformance.test_node_port import Elsewhere, elsewhere, output, run, write

__all__ = ["elsewhere"]
pytestmark = pytest.mark.xdist_group("node_port")


class Scheduler:
    """`tickets`: as one that was just started has them."""

    def __init__(self, side: Elsewhere) -> None:
        self.side = side
        self.door: Door | None = None
        self.tickets = AttemptTickets(lambda node: self.reached(), Path("/nowhere"), epoch=1)

    def reached(self) -> Door:
        """With the incarnation that lives now."""
        if self.door is None or self.door.client.incarnation != self.side.node.incarnation:
            client: NodeClient = self.side.client()
            self.door = Door(client, PeerAddress(self.side.node.address, client.token, client.incarnation))
        return self.door


def command(attempt: str = "a1") -> cmd.StartAttempt:
    what: dict[str, Any] = {"id": "c1", "at": 0.0, "cause": "e", "run": "r", "job": "j", "number": 1, "inputs": (), "reserve_bytes": 1000}
    return cmd.StartAttempt(attempt=attempt, node="node0", host="h", **what)


def spec(**more: Any) -> AttemptSpec:
    outputs = (AttemptOutput("o-made", "a1", "made"),)
    fields: dict[str, Any] = {"attempt_id": "a1", "run_id": "r", "job_id": "j", "argv": ("true",), "reserve_bytes": 1000}
    return AttemptSpec(**fields | {"outputs": outputs, "reservation_id": "a1", "env": {"WORD": "one"}} | more)


async def made(side: Elsewhere) -> None:
    """The job's host stages in, and sends what it made."""
    await side.remote.stage_in("a1", side.in_body("a1", []))
    write(side.sandbox("a1") / "made", b"made")
    await side.remote.stage_out("a1", side.out_body("a1", [output("made") | {"generation": "a1"}]))


def test_the_same_is_opened_once_and_after_a_restart_of_the_node_it_is_told_again(elsewhere: Elsewhere) -> None:
    scheduler = Scheduler(elsewhere)

    async def timeline() -> None:
        first = await scheduler.tickets.of(command(), spec())
        assert (await Scheduler(elsewhere).tickets.of(command(), spec())).ticket == first.ticket, "another scheduler opens the same"
        elsewhere.node.kill()
        elsewhere.node.start()
        elsewhere.remote.meet(replace(first, address=elsewhere.node.address))
        with pytest.raises(StagerError) as caught:
            await elsewhere.remote.brief("a1")
        assert caught.value.code == "brief_unknown"
        await scheduler.tickets.open_again("node0")
        told = spec_of(await elsewhere.remote.brief("a1"))
        assert told.env == {"WORD": "one"} and told == spec()
        again = await scheduler.tickets.of(command(), spec(env={}))
        assert (again.ticket, again.address) == (first.ticket, elsewhere.node.address), "what was opened is opened again, as it was"
        assert (await scheduler.tickets.close(command())).state == "closed"
        assert not elsewhere.state().get("attempts") and elsewhere.state()["reservations"] == []

    run(timeline())


def test_what_is_over_is_not_opened_again_though_its_node_was_away_when_it_ended(elsewhere: Elsewhere) -> None:
    scheduler = Scheduler(elsewhere)

    async def timeline() -> None:
        await scheduler.tickets.of(command(), spec())
        elsewhere.node.kill()
        await scheduler.tickets.close_over(command())
        elsewhere.node.start()
        await elsewhere.client().close_attempt("a1")
        await scheduler.tickets.open_again("node0")
        assert not elsewhere.state().get("attempts")

    run(timeline())


def test_another_content_closes_the_first_ticket(elsewhere: Elsewhere) -> None:
    async def timeline() -> None:
        first = await Scheduler(elsewhere).tickets.of(command(), spec())
        second = await Scheduler(elsewhere).tickets.of(command(), spec(env={"WORD": "two"}))
        assert first.ticket != second.ticket
        elsewhere.remote.meet(first)
        with pytest.raises(StagerError):
            await elsewhere.remote.brief("a1")
        elsewhere.remote.meet(second)
        assert spec_of(await elsewhere.remote.brief("a1")).env == {"WORD": "two"}

    run(timeline())


def test_what_was_committed_is_the_end(elsewhere: Elsewhere) -> None:
    async def timeline() -> None:
        elsewhere.remote.meet(await Scheduler(elsewhere).tickets.of(command(), spec()))
        await made(elsewhere)
        with pytest.raises(Committed) as caught:
            await Scheduler(elsewhere).tickets.of(command(), spec(env={}))
        ending = caught.value.ending
        assert (ending.outcome, ending.exit_code, [entry["size_bytes"] for entry in ending.outputs]) == ("ok", 0, [4])
        assert (await Scheduler(elsewhere).tickets.close(command())).state == "committed"

    run(timeline())


def test_an_attempt_that_cannot_be_opened_leaves_nothing(elsewhere: Elsewhere) -> None:
    async def timeline() -> None:
        scheduler = Scheduler(elsewhere)
        with pytest.raises(NotOpened) as caught:
            await scheduler.tickets.of(command(), spec(inputs=(AttemptInput("gone", "g", "in"),)))
        assert caught.value.fault.code == "replica_unknown"
        assert elsewhere.state()["reservations"] == [] and elsewhere.state()["leases"] == []

    run(timeline())


def test_a_job_gets_copies_and_none_that_reads_at_an_origin_is_given_away() -> None:
    body = body_of(command(), spec(inputs=(AttemptInput("f", "g", "in", InputAccess.LINK),)))
    assert [entry.access for entry in spec_of(body["brief"]).inputs] == [InputAccess.COPY]
    with pytest.raises(InvalidInput, match="--no-direct"):
        body_of(command(), spec(direct=(DirectInput("in", "o", "in", 1, "t"),)))


def test_asked_at_once_it_is_opened_once(elsewhere: Elsewhere) -> None:
    async def timeline() -> None:
        scheduler = Scheduler(elsewhere)
        found = await asyncio.gather(*(scheduler.tickets.of(command(), spec(env={"WORD": str(n)})) for n in range(5)))
        assert len({each.ticket for each in found}) == 1

    run(timeline())
