"""One suite for both NodePorts of the worker: of a node that shares its host's files, and of one on another host that shares none.

May know: the ports, the testbed. One rule: what is stored is looked at through the node's API, and what is in a sandbox where it lies.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import shlex
from collections.abc import Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from stager.adapters.ionode import IoNode as NodeClient
from stager.adapters.remote_node import RemoteNode, Ticket
from stager.model.errors import StagerError
from stager.wire import node as said
from stager.worker.node_port import NodePort
from tests.testbed.ionode import IoNode
from tests.testbed.network import Network
from tests.testbed.places import ionode_binary
from tests.testbed.processes import HERE, Where

pytestmark = pytest.mark.xdist_group("node_port")
T = TypeVar("T")
LARGE = bytes(range(256)) * 8192


class Side:
    """A node, a port to it, and the host on which sandboxes are. `open`: what a scheduler does before an attempt, where that is needed."""

    def __init__(self, node: IoNode, host: Where, top: Path) -> None:
        self.node, self.host, self.top = node, host, top
        self.count = 0
        host.outside(top).mkdir(parents=True, exist_ok=True)
        self.home = node.where.outside(top) / "home"
        self.home.mkdir(parents=True, exist_ok=True)
        node.do("PUT", "/v1/origins/home", {"kind": "file", "base_path": str(top / "home")})

    def client(self) -> NodeClient:
        """The scheduler's."""
        socket = self.node.where.outside(self.node.rendezvous["socket"])
        return NodeClient(socket, self.node.token_file.read_text().strip(), epoch=1, incarnation=self.node.incarnation)

    def port(self) -> NodePort:
        return self.client()

    def sandbox(self, attempt: str) -> Path:
        """As this process finds it."""
        return self.host.outside(self.top / "attempts" / attempt / "sandbox")

    def in_body(self, attempt: str, inputs: list[dict[str, object]], reserved: int = 8 << 20) -> dict[str, object]:
        directory = str(self.top / "attempts" / attempt / "sandbox")
        return {"sandbox_dir": directory, "inputs": inputs, "direct": [], "reservation": {"id": attempt, "bytes": reserved}}

    def out_body(self, attempt: str, outputs: list[dict[str, object]], **fields: object) -> dict[str, object]:
        directory = str(self.top / "attempts" / attempt / "sandbox")
        release = {"sandbox_dir": directory, "remove_sandbox": True, "reservation_id": attempt}
        body = {"sandbox_dir": directory, "reservation_id": attempt, "outputs": outputs, "mounts": [], "keep": [], "want_sha256": False}
        return {**body, "release": release, **fields}

    async def open(self, attempt: str, inputs: list[dict[str, object]], outputs: list[dict[str, object]], reserved: int = 8 << 20) -> None:
        """Nothing, where the node sees the sandbox itself."""

    def stored(self, content: bytes, path: str, *, executable: bool = False) -> dict[str, object]:
        self.count += 1
        name = f"f{self.count}"
        (self.home / name).write_bytes(content)
        expected = {"size_bytes": len(content), "token": None, "blake3": None, "sha256": None}
        source = {"origin_id": "home", "path": name}
        body = {"kind": "fetch", "file_id": name, "generation": name, "source": source, "expected": expected, "priority": 0}
        self.node.do("PUT", f"/v1/transfers/{name}", body | {"executable": executable})
        assert self.node.event_of(name)["kind"] == "transfer_done"
        return {"file_id": name, "generation": name, "path": path, "access": "copy"}

    def content(self, output: dict[str, object], member: str = "") -> bytes:
        query = f"?member={member}" if member else ""
        answer = self.node.call("GET", f"/v1/replicas/{output['file_id']}/{output['generation']}/content{query}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def state(self) -> Any:
        return self.node.get("/v1/state")


class Elsewhere(Side):
    """Node and job on two hosts of the bed, each with files of its own."""

    def __init__(self, node: IoNode, host: Where, top: Path, here: Path) -> None:
        super().__init__(node, host, top)
        program = here / "ionode-on-its-host"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(host.command([ionode_binary()]))} "$@"\n')
        program.chmod(0o755)
        self.remote = RemoteNode(str(program))

    def port(self) -> NodePort:
        return self.remote

    async def open(self, attempt: str, inputs: list[dict[str, object]], outputs: list[dict[str, object]], reserved: int = 8 << 20) -> None:
        body = {"inputs": inputs, "outputs": outputs, "reservation_id": attempt, "brief": {"of": attempt}}
        opened = await self.client().open_attempt(attempt, body | {"reservation": {"id": attempt, "bytes": reserved}})
        self.remote.meet(Ticket(attempt, self.node.address, opened.ticket, epoch=1, node_id=self.node.node_id))


@pytest.fixture
def elsewhere(net: Network, short_dir: Path) -> Iterator[Elsewhere]:
    node = IoNode(ionode_binary(), Path("/srv/store"), where=net.host("node", private=True))
    node.listen_on_its_host()
    node.start()
    yield Elsewhere(node, net.host("job", private=True), Path("/srv/work"), short_dir)
    node.stop()


@pytest.fixture(params=["shared", "remote"])
def side(request: pytest.FixtureRequest, ionode: Callable[..., IoNode], short_dir: Path) -> Side:
    if request.param == "remote":
        found: Elsewhere = request.getfixturevalue("elsewhere")
        return found
    return Side(ionode(), HERE, short_dir / "work")


def output(path: str, attempt: str = "a1", *, kind: str = "file", optional: bool = False) -> dict[str, object]:
    return {"file_id": f"o-{path.replace('/', '-')}", "generation": attempt, "path": path, "kind": kind, "optional": optional}


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


async def refused(work: Coroutine[Any, Any, Any], code: str) -> StagerError:
    with pytest.raises(StagerError) as caught:
        await work
    assert caught.value.code == code, caught.value
    return caught.value


def write(path: Path, content: bytes, mode: int = 0o644) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    path.chmod(mode)


def test_inputs_come_and_outputs_go_and_nothing_is_held_after(side: Side) -> None:
    inputs = [
        side.stored(b"small\n", "in/deep/small"),
        side.stored(LARGE, "in/large"),
        side.stored(b"#!/bin/sh\n", "tool", executable=True),
    ]
    outputs = [output("out/made"), output("tree", kind="directory"), output("not/there", optional=True), output("empty", kind="directory")]

    async def timeline() -> said.StagedOut:
        await side.open("a1", inputs, outputs)
        port = side.port()
        staged = await port.stage_in("a1", side.in_body("a1", inputs))
        assert staged == await port.stage_in("a1", side.in_body("a1", inputs)), "the same again is answered again"
        assert staged.copied_bytes == len(LARGE) + 16 and staged.mounts == []
        top = side.sandbox("a1")
        assert (top / "in/deep/small").read_bytes() == b"small\n" and (top / "in/large").read_bytes() == LARGE
        assert os.access(top / "tool", os.X_OK) and not (top / "in/large").stat().st_mode & 0o111
        assert top.stat().st_mode & 0o777 == 0o700
        assert [lease["attempt_id"] for lease in side.state()["leases"]] == ["a1"]
        write(top / "out/made", LARGE + b"!", 0o755)
        for name, content in (("a", b"a"), ("sub/b", b""), ("sub/c", LARGE)):
            write(top / "tree" / name, content)
        (top / "tree/sub/nothing").mkdir()
        (top / "empty").mkdir()
        (top / "scrap").touch()
        body = side.out_body("a1", outputs, keep=[str(entry["path"]) for entry in inputs], want_sha256=True)
        taken = await port.stage_out("a1", body)
        again = await port.stage_out("a1", body)
        assert taken.outputs == again.outputs
        return taken

    taken = run(timeline())
    made, tree, empty = taken.outputs
    assert (made.size_bytes, made.executable, made.kind) == (len(LARGE) + 1, True, "file")
    whole = side.node.get("/v1/replicas/o-out-made/a1")
    assert whole["sha256"] == hashlib.sha256(LARGE + b"!").hexdigest()
    assert (tree.kind, empty.kind) == ("directory", "directory")
    assert side.content(outputs[0]) == LARGE + b"!"
    assert side.content(outputs[1], "sub/c") == LARGE and side.content(outputs[1], "sub/b") == b""
    assert (taken.undeclared, taken.undeclared_count) == (["scrap"], 1)
    assert taken.released is not None and taken.released.changed == []
    assert not side.sandbox("a1").exists()
    assert side.state()["leases"] == [] and side.state()["reservations"] == []


def test_both_ports_make_the_same_replicas(ionode: Callable[..., IoNode], elsewhere: Elsewhere, short_dir: Path) -> None:
    outputs = [output("one"), output("tree", kind="directory")]

    async def made(side: Side) -> list[tuple[str, int, bool]]:
        await side.open("a1", [], outputs)
        await side.port().stage_in("a1", side.in_body("a1", []))
        write(side.sandbox("a1") / "one", b"one", 0o700)
        for name in ("x", "d/y", "d/e/z"):
            write(side.sandbox("a1") / "tree" / name, name.encode())
        taken = await side.port().stage_out("a1", side.out_body("a1", outputs))
        return [(entry.blake3, entry.size_bytes, entry.executable) for entry in taken.outputs]

    assert run(made(Side(ionode(), HERE, short_dir / "work"))) == run(made(elsewhere))


def test_outputs_that_are_missing_or_lead_out_are_refused_by_name_and_can_be_made(side: Side) -> None:
    outputs = [output("made"), output("also")]

    async def timeline() -> None:
        await side.open("a1", [], outputs)
        port = side.port()
        await port.stage_in("a1", side.in_body("a1", []))
        top = side.sandbox("a1")
        missing = await refused(port.stage_out("a1", side.out_body("a1", outputs)), "outputs_missing")
        assert missing.details["paths"] == ["made", "also"]
        write(top / "made", b"made")
        (top / "also").symlink_to("/etc/passwd")
        escaped = await refused(port.stage_out("a1", side.out_body("a1", outputs)), "output_escapes")
        assert escaped.details["paths"] == ["also"]
        (top / "also").unlink()
        write(top / "also", b"also")
        assert len((await port.stage_out("a1", side.out_body("a1", outputs))).outputs) == 2

    run(timeline())


def test_outputs_larger_than_their_reservation_wait_for_more(side: Side) -> None:
    outputs = [output("made")]

    async def timeline() -> None:
        await side.open("a1", [], outputs, reserved=10)
        port = side.port()
        await port.stage_in("a1", side.in_body("a1", [], reserved=10))
        write(side.sandbox("a1") / "made", LARGE)
        waits = await refused(port.stage_out("a1", side.out_body("a1", outputs)), "exceeds_reservation")
        assert waits.details["needed_bytes"] == len(LARGE)
        await side.client().put_reservation("a1", len(LARGE))
        await port.put_reservation("a1", len(LARGE))
        assert len((await port.stage_out("a1", side.out_body("a1", outputs))).outputs) == 1
        assert side.content(outputs[0]) == LARGE

    run(timeline())


def test_a_sandbox_of_somebody_else_is_left_alone_and_a_release_can_keep_its_own(side: Side) -> None:
    async def timeline() -> None:
        await side.open("a1", [], [])
        port = side.port()
        write(side.sandbox("a1") / "mine", b"mine")
        await refused(port.stage_in("a1", side.in_body("a1", [])), "destination_exists")
        assert (side.sandbox("a1") / "mine").exists()
        await side.open("a2", [], [])
        await port.stage_in("a2", side.in_body("a2", []))
        write(side.sandbox("a2") / "kept", b"kept")
        body = {"sandbox_dir": side.in_body("a2", [])["sandbox_dir"], "remove_sandbox": False, "reservation_id": "a2"}
        assert (await port.release("a2", body)).changed == []
        assert (side.sandbox("a2") / "kept").exists()
        assert (await port.release("a2", body | {"remove_sandbox": True})).changed == []

    run(timeline())


def test_an_input_that_the_node_lost_is_refused(side: Side) -> None:
    gone: dict[str, object] = {"file_id": "gone", "generation": "g", "path": "in", "access": "copy"}

    async def timeline() -> None:
        await side.open("a1", [gone], [])
        await side.port().stage_in("a1", side.in_body("a1", [gone]))

    run(refused(timeline(), "replica_unknown"))
    assert side.state()["leases"] == []


def test_an_input_that_changed_on_the_node_is_refused_before_a_job_reads_it(side: Side) -> None:
    inputs = [side.stored(LARGE, "in")]
    data = side.node.where.outside(side.node.store) / "data"
    changed = next(path for path in data.rglob("*") if path.is_file() and path.stat().st_size == len(LARGE))
    changed.chmod(0o600)
    with open(changed, "r+b") as stream:
        stream.write(b"another")

    async def timeline() -> None:
        await side.open("a1", inputs, [])
        await side.port().stage_in("a1", side.in_body("a1", inputs))

    run(refused(timeline(), "checksum_mismatch"))
    assert not side.sandbox("a1").exists() and side.state()["leases"] == []


def test_a_closed_attempt_takes_nothing_and_its_host_can_still_clear_away(elsewhere: Elsewhere) -> None:
    side, outputs = elsewhere, [output("made")]

    async def timeline() -> None:
        await side.open("a1", [], outputs)
        await side.remote.stage_in("a1", side.in_body("a1", []))
        assert await side.remote.brief("a1") == {"of": "a1"}
        write(side.sandbox("a1") / "made", b"made")
        assert [entry.attempt_id for entry in (await side.client().state()).attempts] == ["a1"]
        assert (await side.client().close_attempt("a1")).state == "closed"
        await refused(side.remote.stage_out("a1", side.out_body("a1", outputs)), "ticket_closed")
        body = {"sandbox_dir": side.in_body("a1", [])["sandbox_dir"], "remove_sandbox": True, "reservation_id": "a1"}
        assert (await side.remote.release("a1", body)).changed == []
        assert not side.sandbox("a1").exists()
        assert (await side.client().state()).attempts == []

    run(timeline())


def test_a_ticket_of_another_attempt_or_an_older_epoch_is_refused(elsewhere: Elsewhere) -> None:
    side = elsewhere
    secret, own = side.stored(b"of the other", "in"), side.stored(b"own", "in")

    async def timeline() -> None:
        await side.open("a1", [own], [])
        await side.open("a2", [secret], [])
        mine, other = side.remote.tickets["a1"], side.remote.tickets["a2"]
        side.remote.meet(Ticket("a2", mine.address, mine.ticket, epoch=1))
        await refused(side.remote.stage_in("a2", side.in_body("a2", [secret])), "role_refused")
        side.remote.meet(Ticket("a2", mine.address, other.ticket, epoch=0))
        await refused(side.remote.stage_in("a2", side.in_body("a2", [secret])), "stale_epoch")
        await refused(side.remote.stage_in("a1", side.in_body("a1", [secret])), "bad_request")
        side.remote.forget("a1")
        await refused(side.remote.brief("a1"), "ticket_unknown")
        assert not side.sandbox("a1").exists() and not side.sandbox("a2").exists()

    run(timeline())


@pytest.mark.slow
def test_a_line_that_is_cut_holds_nobody_up(net: Network, elsewhere: Elsewhere) -> None:
    side, inputs, outputs = elsewhere, [elsewhere.stored(b"in", "in")], [output("made")]
    node, job = net.hosts

    async def timeline() -> None:
        await side.open("a1", inputs, outputs)
        await side.remote.stage_in("a1", side.in_body("a1", inputs))
        write(side.sandbox("a1") / "made", LARGE)
        await side.open("a2", inputs, [])
        with net.parted(node, job):
            # Both at once: each waits until the line counts as dead.
            ways = (side.remote.stage_out("a1", side.out_body("a1", outputs)), side.remote.stage_in("a2", side.in_body("a2", inputs)))
            await asyncio.wait_for(asyncio.gather(*(refused(way, "connection_lost") for way in ways)), 100)
        await side.remote.stage_in("a2", side.in_body("a2", inputs))
        assert len((await side.remote.stage_out("a1", side.out_body("a1", outputs))).outputs) == 1

    run(timeline())


def test_the_programs_and_the_node_are_killed_and_all_goes_on(elsewhere: Elsewhere) -> None:
    """kill -9 of the program at ever later instants, and of the node in between: in the end the attempt is whole."""
    side = elsewhere
    inputs = [side.stored(LARGE, "large"), *(side.stored(b"%d" % n, f"small/{n}") for n in range(20))]
    outputs = [output("made"), output("tree", kind="directory")]

    async def killed_at(work: Coroutine[Any, Any, T], after_s: float) -> T | None:
        try:
            return await asyncio.wait_for(work, after_s)
        except TimeoutError:
            return None

    async def timeline() -> None:
        await side.open("a1", inputs, outputs)
        staged = None
        after_s = 0.01
        while staged is None:
            staged = await killed_at(side.remote.stage_in("a1", side.in_body("a1", inputs)), after_s)
            after_s *= 1.6
        top = side.sandbox("a1")
        assert (top / "large").read_bytes() == LARGE and (top / "small/19").read_bytes() == b"19"
        write(top / "made", LARGE)
        for n in range(50):
            write(top / "tree" / str(n), b"%d" % n * 1000)
        side.node.kill()
        side.node.start()
        await side.open("a1", inputs, outputs)
        taken, after_s, killed = None, 0.01, False
        while taken is None:
            taken = await killed_at(side.remote.stage_out("a1", side.out_body("a1", outputs)), after_s)
            if taken is None and not killed and after_s > 0.1:
                side.node.kill()
                side.node.start()
                # It has another port now.
                await side.open("a1", inputs, outputs)
                killed = True
            after_s *= 1.6
        assert len(taken.outputs) == 2 and side.content(outputs[0]) == LARGE and side.content(outputs[1], "7") == b"7" * 1000
        assert side.state()["leases"] == []
        assert (await side.client().close_attempt("a1")).state == "committed"

    run(timeline())
