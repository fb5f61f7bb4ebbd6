"""A worker beside a real I/O node, with a file origin to fill the store from.

May know: the testbed, the worker and its adapter to the node. One rule: what a test sees of the store it sees through the node's API.
"""

from __future__ import annotations

import itertools
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, TypeVar

from stager.adapters.ionode import IoNode as NodeClient
from stager.worker import AttemptInput, AttemptOutput, AttemptResult, AttemptSpec, AttemptWaiting, InputAccess, Worker
from tests.testbed.ionode import IoNode
from tests.testbed.places import ionode_binary

T = TypeVar("T")


class Rig:
    def __init__(self, node: IoNode, state_dir: Path, origin_dir: Path) -> None:
        self.node, self.state_dir, self.origin_dir = node, state_dir, origin_dir
        self.count = itertools.count(1)
        state_dir.mkdir(mode=0o700, exist_ok=True)
        origin_dir.mkdir(exist_ok=True)
        self.declare_origin()

    def declare_origin(self) -> None:
        self.node.do("PUT", "/v1/origins/home", {"kind": "file", "base_path": str(self.origin_dir)})

    def client(self) -> NodeClient:
        token = Path(self.node.rendezvous["token_file"]).read_text().strip()
        return NodeClient(Path(self.node.rendezvous["socket"]), token, epoch=1, incarnation=self.node.incarnation)

    def worker(self, client: NodeClient, inherited: Mapping[str, str] | None = None) -> Worker:
        return Worker(self.state_dir, client, binary=str(ionode_binary()), inherited=inherited or {}, epoch=1)

    def stored(self, content: bytes, path: str, access: InputAccess = InputAccess.LINK, *, executable: bool = False) -> AttemptInput:
        """A replica with this content, as an input at this path."""
        number = next(self.count)
        source = self.origin_dir / f"source{number}"
        source.write_bytes(content)
        body = {
            "kind": "fetch",
            "file_id": f"f{number}",
            "generation": f"t{number}",
            "source": {"origin_id": "home", "path": source.name},
            "expected": {"size_bytes": len(content), "token": None, "blake3": None, "sha256": None},
            "priority": 0,
            "executable": executable,
        }
        self.node.do("PUT", f"/v1/transfers/t{number}", body)
        event = self.node.event_of(f"t{number}")
        assert event["kind"] == "transfer_done", event
        return AttemptInput(f"f{number}", f"t{number}", path, access)

    def content(self, replica: AttemptInput | AttemptOutput, member: str = "") -> bytes:
        query = f"?member={member}" if member else ""
        answer = self.node.call("GET", f"/v1/replicas/{replica.file_id}/{replica.generation}/content{query}")
        assert answer.status_code == 200, answer.text
        return answer.content

    def is_stored(self, replica: AttemptInput | AttemptOutput) -> bool:
        return self.node.call("GET", f"/v1/replicas/{replica.file_id}/{replica.generation}").status_code == 200

    def leases(self) -> list[str]:
        return [lease["attempt_id"] for lease in self.node.get("/v1/state")["leases"]]

    def stderr_log(self) -> Path:
        """Of the attempts that `attempt` makes."""
        return self.state_dir / "logs" / "r1" / "job one.1.err"

    def attempt_dir(self, attempt_id: str) -> Path:
        return self.state_dir / "attempts" / attempt_id


def output(path: str, attempt_id: str = "a1", **fields: Any) -> AttemptOutput:
    return AttemptOutput(f"o-{path.replace('/', '-')}", attempt_id, path, **fields)


def attempt(script: str, attempt_id: str = "a1", **fields: Any) -> AttemptSpec:
    return AttemptSpec(
        **(
            {"attempt_id": attempt_id, "run_id": "r1", "job_id": "job one", "argv": ("/bin/sh", "-c", script), "reserve_bytes": 1 << 20}
            | fields
        )
    )


async def ended(ending: Coroutine[Any, Any, AttemptResult | AttemptWaiting]) -> AttemptResult:
    result = await ending
    assert isinstance(result, AttemptResult), result
    return result
