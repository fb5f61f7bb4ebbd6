"""The pool of a tenant through its gateway: what a gateway says is of its own hosts, is bounded, and is never run. A script plays the
gateway; a real one is in tests/e2e/test_tenants_pools.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from stager.adapters.attempt_tickets import AttemptTickets
from stager.adapters.gateway_pool import Budget, GatewayPool
from stager.adapters.gateway_words import FRAME_BYTES_MAX, Answer, HostsThere, HostThere, Unanswered, frame_of
from stager.adapters.host_words import Asked, Call, HostFacts, Step
from stager.adapters.host_workers import HostPlaces
from stager.adapters.pool_gateway import Served
from stager.adapters.tenant_workers import TenantWorkers
from stager.model.errors import UNKNOWN_CODE, InvalidInput, Refused, Transient
from stager.scheduler import commands as cmd
from stager.scheduler import events as ev
from stager.wire.node import ClosedAttempt, NodeReplica
from stager.worker import AttemptResult, AttemptWaiting, Outcome
from stager.worker.attempt import NOT_BEGUN_CODE
from stager.worker.collecting import Collected

CALL = Call(attempt="a-1", step=Step.RUN, node="node0", epoch=1)
START = cmd.StartAttempt(
    id="c1", at=0.0, cause="e1", node="node0", run="r", job="j", attempt="a-1", number=1, reserve_bytes=10, inputs=(), host="alice:h1"
)


class Script:
    """The other end of a connection. `said`: what the service said, decoded."""

    def __init__(self) -> None:
        self.reader = asyncio.StreamReader()
        self.said: list[Any] = []
        self.is_cut = False
        self.transport = self

    def write(self, data: bytes) -> None:
        self.said.append(msgspec.json.decode(data[4:]))

    def abort(self) -> None:
        self.is_cut = True

    def is_closing(self) -> bool:
        return self.is_cut

    def get_write_buffer_size(self) -> int:
        return 0

    def tell(self, *messages: Any) -> None:
        for message in messages:
            self.reader.feed_data(message if isinstance(message, bytes) else frame_of(message))

    def hosts(self, *hosts: HostFacts) -> None:
        self.tell(HostsThere(hosts=[HostThere(facts=facts, met=1) for facts in hosts]))


class Tls:
    def __init__(self) -> None:
        self.scripts: list[Script] = []
        self.roles: list[str] = []

    async def connected_to(self, address: tuple[str, int], role: str) -> tuple[asyncio.StreamReader, Any]:
        self.roles.append(role)
        self.scripts.append(Script())
        return self.scripts[-1].reader, self.scripts[-1]


def played(play: Callable[[GatewayPool, Tls], Awaitable[None]]) -> list[Any]:
    """The events."""
    events: list[Any] = []

    async def main() -> None:
        tls: Any = Tls()
        pool = GatewayPool("alice", lambda event, on_durable=None: events.append(event), tls, lambda node: node == "node0")
        pool.open()
        pool.move("10.0.0.1:8787")
        await until(lambda: len(tls.scripts) > 0)
        await play(pool, tls)
        await pool.close()

    asyncio.run(main())
    return events


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.001)


def facts(host: str, **more: Any) -> HostFacts:
    return HostFacts(**{"host": host, "node": "node0", "cores": 2, "shares_files": False, **more})


def test_hosts_are_of_their_pool_whatever_they_say() -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        assert tls.roles == ["pool/alice"]
        tls.scripts[0].hosts(facts("h1", pool="bob's"), facts("h2", cores=4))
        await until(lambda: len(pool.reported) == 2)
        assert pool.answers
        tls.scripts[0].hosts(facts("h1"))
        await until(lambda: len(pool.reported) == 1)

    told = [(type(event).__name__, event.host, getattr(event, "tenant", "")) for event in played(play)]
    assert told[:2] == [("HostReported", "alice:h2", "alice"), ("HostReported", "alice:h1", "alice")], "the largest first"
    assert ("HostLost", "alice:h2", "") in told


WRONG = {
    "another tenant's": facts("bob:h1"),
    "no name": facts("../h"),
    "shared files": facts("h3", shares_files=True),
    "an unknown node": facts("h4", node="io9"),
    "no cores": facts("h5", cores=0),
    "a size below nothing": facts("h6", memory_bytes=-1),
    "another version": facts("h8", version="9.1.0"),
    "a long word": facts("h7", incarnation="x" * 1000),
}


@pytest.mark.parametrize("host", WRONG.values(), ids=WRONG.keys())
def test_a_host_that_is_none_of_its_pool_is_not_taken_and_the_others_are(host: HostFacts, caplog: pytest.LogCaptureFixture) -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        tls.scripts[0].hosts(host, facts("h1"))
        await until(lambda: len(pool.reported) == 1)
        pool._look()

    assert [event.host for event in played(play)] == ["alice:h1"]
    assert sum("is not taken" in record.message for record in caplog.records) == 1, "said once"


def test_the_names_and_the_changes_of_a_pool_are_bounded() -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        tls.scripts[0].hosts(*(facts(f"h{number}") for number in range(1500)))
        await until(lambda: len(pool.reported) == 200)
        for _ in range(10):
            pool.changes.left = 200.0
            pool._look()

    told = played(play)
    assert len(told) == 1000 == len({event.host for event in told})


@pytest.mark.parametrize(
    "said",
    [
        (FRAME_BYTES_MAX + 1).to_bytes(4, "big"),
        b"\0\0\0\x10\x80\x04\x95cposix\nsystem\n",
        (100_033).to_bytes(4, "big") + b'{"type":"answer","id":1,"answer":' + b"[" * 100_000,
        b"\0\0\0\x02{}",
        b"\0\0\0\x13" + b'{"type":"shutdown"}',
    ],
    ids=["too large", "a pickle", "too deep", "no message", "unknown"],
)
def test_what_is_no_message_ends_the_connection_and_is_named(said: bytes) -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        asking = asyncio.create_task(pool.ask("alice:h1", Asked.KILL, "a-1", 1))
        await until(lambda: bool(tls.scripts[0].said))
        tls.scripts[0].tell(said)
        with pytest.raises(Transient, match="does not answer"):
            await asking
        assert tls.scripts[0].is_cut and not pool.answers and "it says" in pool.problem

    assert played(play) == []


def test_a_call_is_asked_again_until_there_is_an_answer_and_called_off_when_nobody_waits() -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        async def make() -> Call:
            return CALL

        script = tls.scripts[0]
        script.hosts()
        calling = asyncio.create_task(pool.call("stager-a-1", make, "alice:h1", 2))
        await until(lambda: len(script.said) == 1)
        assert (script.said[0]["host"], script.said[0]["cores"], script.said[0]["key"]) == ("h1", 2, "stager-a-1")
        script.tell(Answer(id=99, answer="of nobody's question"), Unanswered(id=1, why="Dask has lost it"))
        await until(lambda: len(script.said) == 2)
        script.tell(Answer(id=2, answer={"ended": 1}))
        assert await calling == {"ended": 1}
        calling = asyncio.create_task(pool.call("stager-a-2", make, "alice:h1", 2))
        await until(lambda: len(script.said) == 3)
        calling.cancel()
        await until(lambda: len(script.said) == 4)
        assert script.said[3] == {"type": "not_wanted", "id": 3}

    played(play)


def test_a_piece_of_a_log_that_is_none_is_no_answer() -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        for said, good in (([3, "YWJj"], True), ([3, "?"], False), ([-3, "YWJj"], False), (["x"], False), ([9, "YWJj" * 400_000], False)):
            asking = asyncio.create_task(pool.ask("alice:h1", Asked.READ_LOG, "r", "j", 1, "out", 0))
            count = len(tls.scripts[0].said)
            await until(lambda count=count: len(tls.scripts[0].said) > count)  # type: ignore[misc]
            tls.scripts[0].tell(Answer(id=tls.scripts[0].said[-1]["id"], answer=said))
            if good:
                assert await asking == (3, b"abc")
            else:
                with pytest.raises(Transient):
                    await asking

    played(play)


def test_what_a_host_says_that_it_collected_is_bounded_and_harms_no_screen() -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        odd = {"images": 1, "left_bytes": 7, "problem": "\x1b[2J no disk"}
        for said, good in ((odd, True), ({"images": -1}, False), ({"problem": "x" * 5000}, False), ("all of it", False)):
            asking = asyncio.create_task(pool.ask("alice:h1", Asked.COLLECT, ["f1"], [], 1, 0))
            count = len(tls.scripts[0].said)
            await until(lambda count=count: len(tls.scripts[0].said) > count)  # type: ignore[misc]
            asked = tls.scripts[0].said[-1]
            assert (asked["host"], asked["what"], asked["args"]) == ("h1", "collect", [["f1"], [], 1, 0])
            tls.scripts[0].tell(Answer(id=asked["id"], answer=said))
            if good:
                assert await asking == Collected(images=1, left_bytes=7, problem="?[2J no disk")
            else:
                with pytest.raises(Transient):
                    await asking

    played(play)


# What a tenant's host says of an attempt.


def ended(outcome: str = "ok", **more: Any) -> dict[str, Any]:
    return {"ended": {"attempt_id": "a-1", "outcome": outcome, **more}}


def replica(file: str) -> NodeReplica:
    sums = {"blake3": "0" * 64, "crc64nvme": "", "sha256": None}
    return NodeReplica(
        file_id=file, generation="a-1", kind="file", size_bytes=1, executable=False, members=None, token=None, state="safe", **sums
    )  # type: ignore[arg-type]


def judged(tmp_path: Path, answer: Any, state: str = "committed", *, called_off: bool = False, left: float = 100.0) -> Any:
    """What comes of it. `state`: what the node says when the attempt is closed. `called_off`: somebody has asked for its end. `left`: so
    many ends that are no tries may be told at once.
    """

    class Tickets(AttemptTickets):
        async def close(self, command: cmd.StartAttempt) -> ClosedAttempt:
            if state == "unknown":
                raise Refused("no such attempt", code="ticket_closed")
            return ClosedAttempt(state=state, outputs=[replica("of-the-node")] if state == "committed" else [])

    async def main() -> Any:
        pool: Any = GatewayPool("alice", lambda event, on_durable=None: None, Tls(), lambda node: True)  # type: ignore[arg-type]
        workers = TenantWorkers(pool, HostPlaces(tmp_path / "given", tmp_path), Tickets(lambda node: None, tmp_path, 1), 1)  # type: ignore[arg-type, return-value]
        workers.uncounted = Budget(per_s=2.0, at_once=100.0)
        workers.uncounted.left = left
        workers.called_off |= {"a-1"} if called_off else set()
        return await workers.ending_in(START, answer)

    return asyncio.run(main())


def test_what_an_attempt_has_made_is_what_its_node_says(tmp_path: Path) -> None:
    lie = {"outputs": [{"file_id": "of-bob"}], "void_outputs": [{"file_id": "of-bob"}]}
    well = judged(tmp_path, ended(**lie, measures={"wall_s": 2.0}))
    assert (well.outcome, [made["file_id"] for made in well.outputs], well.void_outputs) == (Outcome.OK, ["of-the-node"], ())
    assert well.measures.wall_s == 2.0
    late = judged(tmp_path, ended("failed", exit_code=1, **lie))
    assert (late.outcome, late.outputs, [made["file_id"] for made in late.void_outputs]) == (Outcome.FAILED, (), ["of-the-node"])
    for state in ("closed", "unknown"):
        never = judged(tmp_path, ended(**lie), state)
        assert (never.outcome, never.outputs, never.void_outputs, never.fault.code) == (Outcome.FAILED, (), (), "not_committed")


DEEP: Any = []
for _ in range(50):
    DEEP = [DEEP]
NO_ENDS = {
    "an end that nobody asked for": {"ended": {"attempt_id": "a-1", "outcome": "killed"}},
    "another attempt": {"ended": {"attempt_id": "b-1", "outcome": "ok"}},
    "no outcome": {"ended": {"attempt_id": "a-1", "outcome": "perfect"}},
    "nothing": {},
    "a list": [],
    "deep": {"ended": {"attempt_id": "a-1", "outcome": "ok", "undeclared": DEEP}},
    "space below nothing": {"waits_bytes": -1},
    "an error of no class": {"unasked": {"error_class": "x", "code": "c", "message": "m", "subject": "s"}},
    "half an error": {"unasked": {"error_class": "transient"}},
}


@pytest.mark.parametrize("answer", NO_ENDS.values(), ids=NO_ENDS.keys())
def test_an_answer_that_is_none_fails_the_attempt_by_name(tmp_path: Path, answer: Any) -> None:
    said = judged(tmp_path, answer)
    assert (said.outcome, said.fault.code) == (Outcome.FAILED, "pool_answer") and "'j'" in said.fault.message
    assert [made["file_id"] for made in said.void_outputs] == ["of-the-node"], "what it has committed all the same is deleted"


def test_numbers_and_words_of_a_host_are_bounded(tmp_path: Path) -> None:
    fault = {"error_class": "transient", "code": "c", "message": "\x1b[2J" + "m" * 10_000, "subject": "j"}
    wild = {"wall_s": float("inf"), "cpu_user_s": -1.0, "read_bytes": -5, "written_bytes": 2**60}
    said: AttemptResult = judged(
        tmp_path, ended("failed", fault=fault, measures=wild, undeclared=["u"] * 1000, fitted_bytes=-1, stdout_path="/etc/shadow")
    )
    assert said.fault is not None and len(said.fault.message) == 4000 and said.fault.message.startswith("?[2J")
    assert said.measures == type(said.measures)() and len(said.undeclared) == 100 and said.fitted_bytes is None and said.stdout_path == ""
    assert judged(tmp_path, {"waits_bytes": 12}) == AttemptWaiting("a-1", 12)
    with pytest.raises(Transient, match="its node is away"):
        judged(
            tmp_path, {"unasked": {"error_class": "transient", "code": "connection_lost", "message": "its node is away", "subject": "j"}}
        )
    refused = {"unasked": {"error_class": "invalid_input", "code": "c", "message": "never", "subject": "j"}}
    assert judged(tmp_path, refused).outcome is Outcome.FAILED and not isinstance(judged(tmp_path, refused), InvalidInput)


def test_what_a_host_says_moves_no_other_job_and_no_replica(tmp_path: Path) -> None:
    assert judged(tmp_path, ended("killed"), called_off=True).outcome is Outcome.KILLED
    fault = {"error_class": "transient", "code": UNKNOWN_CODE, "message": "gone", "subject": "an input that others read, too"}
    assert judged(tmp_path, ended("failed", fault=fault)).fault.code == "pool_answer"


def test_ends_that_are_no_tries_are_bounded(tmp_path: Path) -> None:
    budget = Budget(per_s=0.001, at_once=2.0)
    assert [budget.take() for _ in range(3)] == [True, True, False]
    not_begun = {"error_class": "transient", "code": NOT_BEGUN_CODE, "message": "not begun", "subject": "j"}
    began_at = time.monotonic()
    assert judged(tmp_path, ended("failed", fault=not_begun), left=0.0).fault.code == NOT_BEGUN_CODE
    assert time.monotonic() - began_at > 0.4


def test_each_attempt_has_a_ticket_whatever_a_note_says(tmp_path: Path) -> None:
    (tmp_path / "given").mkdir()
    (tmp_path / "given" / "a-1.json").write_text('{"host": "alice:h1", "scratch": "s", "ticketed": false}')
    pool: Any = GatewayPool("alice", lambda event, on_durable=None: None, Tls(), lambda node: True)  # type: ignore[arg-type]
    workers = TenantWorkers(pool, HostPlaces(tmp_path / "given", tmp_path), None, 1)  # type: ignore[arg-type]
    assert workers.given_to(START).ticketed and workers.given_to(START).scratch == "s"


def test_the_side_of_the_service_is_no_dask() -> None:
    """A client of it unpickles what a scheduler sends."""
    code = "import stager.adapters.tenant_workers, stager.adapters.executor_dask, sys; sys.exit('distributed' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_an_event_of_a_host_names_its_tenant() -> None:
    async def play(pool: GatewayPool, tls: Tls) -> None:
        tls.scripts[0].hosts(facts("h1"))
        await until(lambda: bool(pool.reported))

    [event] = played(play)
    assert isinstance(event, ev.HostReported) and (event.tenant, event.pool) == ("alice", "10.0.0.1:8787")


def test_a_gateway_answers_whatever_becomes_of_a_question() -> None:
    """Else the service would wait for ever."""
    frames: list[bytes] = []
    writer: Any = SimpleNamespace(write=frames.append)
    nobody: Any = None
    served = Served(nobody, writer)

    async def fails() -> Any:
        raise ZeroDivisionError

    asyncio.run(served._answer(7, fails))
    assert frames == [frame_of(Unanswered(id=7, why="ZeroDivisionError"))]
