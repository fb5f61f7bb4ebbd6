"""What the soak does to two nodes, and what it knows of them: names that were acknowledged, with the seed and the size of their contents.

May know: docs/formats/ionode-api.md, the testbed. The one rule: a name is written down as in doubt before the call that makes or deletes it
is sent, and as acknowledged only after its answer.
"""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary
from tests.testbed.s3_face import S3Face
from tests.testbed.sshd import Sshd
from tests.testbed.waiting import wait_until

SIZES = (0, 1, 700, 5_000, 65_536, 65_537, 200_000, 3_000_000)
FILES_OF_ORIGIN = {f"file{number}": size for number, size in enumerate((0, 10, 5_000, 70_000, 1_000_000, 5_000_000) * 3)}
# Deletes begin above the first; above the second nothing is made until they have come after.
REPLICAS_MAX, REPLICAS_MOST, OBJECTS_MAX = 400, 600, 150
CAPACITY_BYTES = 2_000_000_000
BUCKET = "soak"
IDLE_S, DELETES_AT_ONCE = 0.1, 50


class Lost(Exception):
    """What was acknowledged is not there, or something else is."""


@dataclass(frozen=True)
class Content:
    seed: int
    size: int

    def made(self) -> bytes:
        return random.Random(self.seed).randbytes(self.size)


class Known:
    """Names of one place and what is known of them. Taken names are nobody else's until they are given back."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.acked: dict[str, Content] = {}
        self.in_doubt: dict[str, Content] = {}

    def doubt(self, name: str, content: Content) -> None:
        with self.lock:
            self.acked.pop(name, None)
            self.in_doubt[name] = content

    def ack(self, name: str) -> None:
        with self.lock:
            self.acked[name] = self.in_doubt.pop(name)

    def forget(self, name: str) -> None:
        with self.lock:
            self.in_doubt.pop(name, None)

    def take(self, dice: random.Random) -> tuple[str, Content] | None:
        """One that was acknowledged; in doubt from now on, so that nobody deletes it meanwhile."""
        with self.lock:
            if not self.acked:
                return None
            name = dice.choice(list(self.acked))
            self.in_doubt[name] = self.acked.pop(name)
            return name, self.in_doubt[name]


class Bed:
    """Two nodes that know each other, the first with an S3 endpoint and killed now and then, and an sftp origin."""

    def __init__(self, place: Path, sshd: Sshd, origin: dict[str, Content]) -> None:
        self.place, self.sshd, self.origin = place, sshd, origin
        self.face = S3Face(place / "a", share_bytes=CAPACITY_BYTES)
        self.face.node.node_id, self.face.node.capacity_bytes = "a", CAPACITY_BYTES
        self.nodes = [self.face.node, IoNode(ionode_binary(), place / "b" / "store", CAPACITY_BYTES, node_id="b")]
        self.replicas = {node.node_id: Known() for node in self.nodes}
        self.objects = Known()
        self.numbers = itertools.count(1)
        self.pushing = threading.Lock()
        self.open_attempts: dict[str, IoNode] = {}
        self.tokens: dict[str, str] = {}
        self.s3: Any = None
        self.kills = self.compared_bytes = 0
        self.closing: Callable[[], bool] = lambda: False

    def start(self) -> None:
        self.face.start()
        self.nodes[1].start()
        self.introduce()
        self.s3 = self.face.client()
        self.s3.create_bucket(Bucket=BUCKET)

    def introduce(self) -> None:
        """Said again to every incarnation."""
        for node, other in (self.nodes, self.nodes[::-1]):
            node.introduce(other)
            node.do("PUT", "/v1/origins/lab", self.sshd.origin())
        found = self.nodes[0].do("POST", "/v1/origins/lab/stat", {"paths": list(self.origin)})["entries"]
        self.tokens = {name: entry["token"] for name, entry in zip(self.origin, found, strict=True)}

    def stop(self) -> None:
        self.face.stop()
        self.nodes[1].stop()

    def kill(self) -> None:
        """Its client stays open: calls that wait for a connection of it hear of the end from the others."""
        assert self.face.node.server is not None
        self.face.node.server.kill()
        self.kills += 1

    def restart(self) -> None:
        """While nobody works."""
        self.face.kill()
        self.face.start()
        self.introduce()
        for attempt, node in list(self.open_attempts.items()):
            self.release(node, attempt)

    def release(self, node: IoNode, attempt: str) -> None:
        # Without its path: a node that was killed before it staged in knows of no sandbox.
        body = {"sandbox_dir": None, "remove_sandbox": True, "reservation_id": attempt}
        node.do("POST", f"/v1/attempts/{attempt}/release", body)
        shutil.rmtree(self.sandbox(attempt), ignore_errors=True)
        self.open_attempts.pop(attempt, None)

    def sandbox(self, attempt: str) -> Path:
        return self.place / f"sandbox-{attempt}"

    def acknowledge_events(self) -> None:
        """Else they are kept. Not under a push: its client asks how it ended, which the node forgets with its event."""
        with self.pushing:
            self._acknowledge_events()

    def _acknowledge_events(self) -> None:
        for node in self.nodes:
            page = node.get("/v1/events?after=0&wait_s=0")
            if page["events"]:
                bad = [event for event in page["events"] if event["kind"] == "replica_corrupt"]
                if bad:
                    raise Lost(f"the node {node.node_id} found damage: {bad}")
                node.do("POST", "/v1/events/ack", {"seq": page["events"][-1]["seq"]})

    def expect(self, found: bytes, content: Content, what: str) -> None:
        self.compared_bytes += len(found)
        if found != content.made():
            raise Lost(f"{what} has another content than was written ({len(found)} bytes, written {content.size})")

    def maker(self, dice: random.Random) -> IoNode:
        """A node to make something on; not before there is room."""
        node = dice.choice(self.nodes)
        self.room(node)
        return node

    def room(self, node: IoNode) -> None:
        known = self.replicas[node.node_id]
        wait_until(lambda: self.closing() or len(known.acked) < REPLICAS_MOST, f"replicas of {node.node_id} to be deleted", 60, IDLE_S)

    def read(self, node: IoNode, name: str) -> bytes | None:
        """None where it is unknown."""
        answer = node.call("GET", f"/v1/replicas/{name}/g/content")
        if answer.status_code == 404:
            return None
        assert answer.status_code == 200, f"{name} of {node.node_id}: {answer.status_code} {answer.text[:500]}"
        return answer.content

    def check_all(self) -> str:
        """While nobody works: all that was acknowledged, and that nothing else is there; settles what was in doubt."""
        for node in self.nodes:
            known = self.replicas[node.node_id]
            there = {replica["file_id"] for replica in node.get("/v1/state")["replicas"]}
            if strangers := there - known.acked.keys() - known.in_doubt.keys():
                raise Lost(f"the node {node.node_id} has replicas that nobody made or that were deleted: {sorted(strangers)[:5]}")
            self.settle(known, lambda name, node=node: self.read(node, name), f"replica of {node.node_id}")
        self.settle(self.objects, self.read_object, "object")
        count = sum(len(known.acked) for known in self.replicas.values())
        return f"{count} replicas and {len(self.objects.acked)} objects"

    def settle(self, known: Known, read: Callable[[str], bytes | None], what: str) -> None:
        for name, content in {**known.acked, **known.in_doubt}.items():
            found = read(name)
            if found is not None:
                self.expect(found, content, f"{what} {name}")
            elif name in known.acked:
                raise Lost(f"{what} {name} was acknowledged and is gone")
            if name in known.in_doubt:
                (known.forget if found is None else known.ack)(name)

    def read_object(self, key: str) -> bytes | None:
        try:
            return self.s3.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        except self.s3.exceptions.NoSuchKey:
            return None

    def begun(self, node: IoNode, transfer: str, body: dict[str, Any]) -> dict[str, Any]:
        """A name that was deleted cannot be read any more a moment before the delete has ended; until then it is busy."""
        answers: list[httpx.Response] = []

        def is_taken() -> bool:
            answers.append(node.call("PUT", f"/v1/transfers/{transfer}", body))
            return "replica_busy" not in answers[-1].text

        wait_until(is_taken, f"the delete of {body['file_id']} on {node.node_id} to end", 60, IDLE_S)
        assert answers[-1].is_success, f"transfer {transfer}: {answers[-1].status_code} {answers[-1].text}"
        return answers[-1].json()

    def ended(self, node: IoNode, transfer: str, body: dict[str, Any]) -> None:
        """Until the transfer is done; its end may have been acknowledged before it was seen here."""
        state = self.begun(node, transfer, body)
        while state["state"] in ("queued", "running"):
            answer = node.call("GET", f"/v1/transfers/{transfer}?wait_s=5")
            if answer.status_code == 404:
                node.get(f"/v1/replicas/{body['file_id']}/{body['generation']}")
                return
            state = answer.json()
        assert state["state"] == "done", state


def job(bed: Bed, dice: random.Random) -> None:
    """Stages an input in, reads it, leaves outputs, stages them out."""
    node, attempt = bed.maker(dice), f"j{next(bed.numbers)}"
    known, sandbox = bed.replicas[node.node_id], bed.sandbox(attempt)
    bed.open_attempts[attempt] = node
    taken = known.take(dice)
    inputs = [{"file_id": taken[0], "generation": "g", "path": "in", "access": "copy"}] if taken else []
    node.do("PUT", f"/v1/reservations/{attempt}", {"bytes": 3 * max(SIZES)})
    node.do("POST", f"/v1/attempts/{attempt}/stage-in", {"sandbox_dir": str(sandbox), "inputs": inputs})
    if taken:
        bed.expect((sandbox / "in").read_bytes(), taken[1], f"the staged input {taken[0]}")
    made = {f"{attempt}-{number}": Content(dice.getrandbits(32), dice.choice(SIZES)) for number in range(dice.randint(1, 3))}
    for name, content in made.items():
        (sandbox / name).write_bytes(content.made())
        known.doubt(name, content)
    outputs = [{"file_id": name, "generation": "g", "path": name, "kind": "file", "optional": False} for name in made]
    body = {"sandbox_dir": str(sandbox), "reservation_id": attempt, "outputs": outputs, "mounts": [], "keep": [], "want_sha256": False}
    node.do("POST", f"/v1/attempts/{attempt}/stage-out", body)
    for name in made:
        known.ack(name)
    bed.release(node, attempt)
    if taken:
        known.ack(taken[0])


def push(bed: Bed, dice: random.Random) -> None:
    node, name = bed.maker(dice), f"p{next(bed.numbers)}"
    known, content, path = bed.replicas[node.node_id], Content(dice.getrandbits(32), dice.choice(SIZES)), bed.place / name
    path.write_bytes(content.made())
    known.doubt(name, content)
    try:
        argv = [ionode_binary(), "push", path, "--node", f"{node.address}@{node.token_file}", "--file", name, "--generation", "g"]
        with bed.pushing:
            done = subprocess.run([str(word) for word in argv], capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, done.stderr
    finally:
        path.unlink()
    known.ack(name)


def fetch(bed: Bed, dice: random.Random) -> None:
    """From the sftp origin."""
    node, name, path = bed.maker(dice), f"f{next(bed.numbers)}", dice.choice(list(bed.origin))
    known, content = bed.replicas[node.node_id], bed.origin[path]
    known.doubt(name, content)
    expected = {"size_bytes": content.size, "token": bed.tokens[path], "blake3": None, "sha256": None}
    body = {"kind": "fetch", "file_id": name, "generation": "g", "source": {"origin_id": "lab", "path": path}}
    bed.ended(node, f"t{name}", body | {"expected": expected, "priority": dice.randint(0, 20), "executable": False})
    known.ack(name)


def get(bed: Bed, dice: random.Random) -> None:
    for _ in range(10):
        node = dice.choice(bed.nodes)
        known = bed.replicas[node.node_id]
        taken = known.take(dice)
        if taken is None:
            return
        found = bed.read(node, taken[0])
        if found is None:
            raise Lost(f"{taken[0]} of {node.node_id} was acknowledged and is unknown")
        bed.expect(found, taken[1], f"the replica {taken[0]} of {node.node_id}")
        known.ack(taken[0])


def copy(bed: Bed, dice: random.Random) -> None:
    """A replica of one node becomes one of the other, with the name that it has."""
    source, target = dice.sample(bed.nodes, 2)
    here, there = bed.replicas[source.node_id], bed.replicas[target.node_id]
    bed.room(target)
    taken = here.take(dice)
    if taken is None:
        return
    name, content = taken
    with there.lock:
        known = name in there.acked or name in there.in_doubt
    if not known:
        there.doubt(name, content)
        digest = source.get(f"/v1/replicas/{name}/g")["blake3"]
        expected = {"size_bytes": content.size, "blake3": digest}
        body = {"kind": "copy", "file_id": name, "generation": "g", "sources": [{"node_id": source.node_id, "generation": "g"}]}
        bed.ended(target, f"c{next(bed.numbers)}", body | {"expected": expected, "priority": 5})
        there.ack(name)
    here.ack(name)


def delete(bed: Bed, dice: random.Random) -> None:
    """Down to a bounded number, so that the nodes have no reason to grow."""
    deleted: list[tuple[IoNode, str]] = []
    for node in bed.nodes:
        known = bed.replicas[node.node_id]
        while len(known.acked) > REPLICAS_MAX and len(deleted) < DELETES_AT_ONCE and (taken := known.take(dice)):
            node.do("DELETE", f"/v1/replicas/{taken[0]}/g")
            deleted.append((node, taken[0]))
    if not deleted:
        time.sleep(IDLE_S)
        return
    wait_until(lambda: all(gone(node, name) for node, name in deleted), f"{len(deleted)} replicas to be gone", 60, IDLE_S)
    for node, name in deleted:
        bed.replicas[node.node_id].forget(name)


def gone(node: IoNode, name: str) -> bool:
    return node.call("GET", f"/v1/replicas/{name}/g").status_code == 404


def s3(bed: Bed, dice: random.Random) -> None:
    """Puts, reads back, deletes."""
    key, content = f"o{next(bed.numbers)}", Content(dice.getrandbits(32), dice.choice(SIZES))
    bed.objects.doubt(key, content)
    bed.s3.put_object(Bucket=BUCKET, Key=key, Body=content.made())
    bed.objects.ack(key)
    if taken := bed.objects.take(dice):
        found = bed.read_object(taken[0])
        if found is None:
            raise Lost(f"the object {taken[0]} was acknowledged and is unknown")
        bed.expect(found, taken[1], f"the object {taken[0]}")
        bed.objects.ack(taken[0])
    if len(bed.objects.acked) > OBJECTS_MAX and (taken := bed.objects.take(dice)):
        bed.s3.delete_object(Bucket=BUCKET, Key=taken[0])
        bed.objects.forget(taken[0])


WORK: dict[str, Callable[[Bed, random.Random], None]] = {
    "jobs": job,
    "pushes": push,
    "fetches": fetch,
    "gets": get,
    "copies": copy,
    "deletes": delete,
    "s3": s3,
}
