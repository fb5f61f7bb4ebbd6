"""Two tenants of one service attack each other: alice's job, and whoever has alice's certificate, against bob's job, hosts, pool and the
service itself.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import ssl
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from stager.adapters.cluster_tls import side
from stager.adapters.gateway_words import (
    TO_GATEWAY,
    Answer,
    CallHost,
    FromGateway,
    HostsThere,
    HostThere,
    frame_of,
    read_frame,
    understood,
)
from stager.adapters.host_words import HostFacts, Step
from stager.scheduler import events as ev
from tests.e2e.tenants_rig import Tenants
from tests.e2e.test_pool_attacked import ATTACK
from tests.e2e.test_pool_under_tls import as_any, reached
from tests.testbed.processes import descendants
from tests.testbed.waiting import wait_until

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")]
SECRET = "hunter2-of-bob"
TARGETS = "targets.json"


@pytest.fixture(scope="module")
def tenants(session_dir: Path) -> Iterator[Tenants]:
    made = Tenants(session_dir / "attack")
    try:
        yield made.start()
    finally:
        for name in ("alice", "bob"):
            gate_of(made, name).touch()
        made.end()


def gate_of(tenants: Tenants, name: str) -> Path:
    return tenants.pools[name].place / "gate"


def held(tenants: Tenants, name: str) -> str:
    """A job with a secret in its variables, its sandbox, its output, its log."""
    gate = gate_of(tenants, name)
    shell = f'echo "$WORD"; echo "$WORD" > made; touch {gate}.runs; until test -e {gate}; do sleep 0.1; done'
    return f"  held: {{run: '{shell}', env_pass: [WORD], isolate: off, outputs: {{made: data:made}}}}\n"


def test_a_tenants_job_finds_nothing_of_another_tenant_nor_of_the_service(tenants: Tenants) -> None:
    run = tenants.submit("bob", held(tenants, "bob"), "held", WORD=SECRET)
    bob, alice = tenants.pools["bob"], tenants.pools["alice"]
    tenants.until(Path(f"{gate_of(tenants, 'bob')}.runs").exists, "bob's job")
    assert tenants.service.process is not None and bob.server is not None
    host = bob.hosts["h1"]
    service = [tenants.service.process.pid, *descendants(tenants.service.process.pid)]
    its = [bob.server.pid, host.server.pid, *host.reaper_pids()]
    pids = sorted({*service, *its, *(below for top in its for below in descendants(top))})
    assert any(f"WORD={SECRET}".encode() in Path(f"/proc/{pid}/environ").read_bytes() for pid in pids), "the job is among them"
    roots = [str(path) for path in (tenants.state.root, bob.place, tenants.data / "bob", Path("/dev/shm"), Path("/var/tmp"))]
    (tenants.data / "alice" / "attack.py").write_text(ATTACK)
    (tenants.data / "alice" / TARGETS).write_text(json.dumps([roots, pids, [], SECRET]))
    inputs = f"{{attack.py: data:attack.py, {TARGETS}: data:{TARGETS}}}"
    shell = f"{sys.executable} attack.py < {TARGETS} > found"
    job = f'  attack: {{run: "{shell}", inputs: {inputs}, outputs: {{found: data:found}}}}\n'
    mine = tenants.submit("alice", job, "attack")
    assert tenants.outcome("alice", mine) == "succeeded", tenants.client("alice").get(f"/runs/{mine}/jobs/attack/logs").text
    found = json.loads((tenants.data / "alice" / "found").read_text())
    assert found["got"] == [] and found["tried"] > 6 * len(pids)

    # Through the service.
    client = tenants.client("alice")
    for path in ("", "/jobs", "/jobs/held/logs", "/events", "/ledger"):
        assert client.get(f"/runs/{run}{path}").status_code == 404, path
    for verb in ("cancel", "resume"):
        assert client.post(f"/runs/{run}/{verb}").status_code == 404
    assert "bob" not in client.get("/hosts").text and client.post("/hosts/bob:h1/drain").status_code == 403

    # With her certificate.
    assert alice.tls is not None and asyncio.run(reached(bob.address, as_any(alice.tls))), "bob's Dask scheduler lets alice in"
    assert asyncio.run(said_by(tenants.gateways["bob"], alice.tls)) == b"", "bob's gateway tells alice something"
    gate_of(tenants, "bob").touch()
    assert tenants.outcome("bob", run) == "succeeded" and (tenants.data / "bob" / "made").read_text() == f"{SECRET}\n"


async def said_by(port: int, tls: Path) -> bytes:
    """The first that a gateway says to whoever shows that certificate."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=side(tls, ssl.PROTOCOL_TLS_CLIENT), server_hostname="")
        async with asyncio.timeout(10):
            said = await reader.read(1)
        writer.close()
        return said
    except OSError:
        return b""


class Bomb:
    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.place),)


class FalseGateway:
    """In place of alice's, with her certificate. It tells the service `hosts`, then answers each call with `answer`."""

    def __init__(self, tenants: Tenants, hosts: list[HostFacts], first: bytes = b"", role: str = "alice") -> None:
        self.port, self.tls = tenants.gateways["alice"], tenants.pools[role].place / "tls"
        self.hosts, self.first, self.calls, self.connections = hosts, first, list[CallHost](), 0
        self.told: dict[str, int] = {}

    def lie(self, call: CallHost) -> dict[str, Any]:
        """To each attempt another one."""
        attempt = call.call.attempt
        if call.call.step is not Step.RUN:
            return {"ended": {"attempt_id": attempt, "outcome": "killed"}}
        kind = self.told.setdefault(attempt, len(self.told) % (len(LIES) + 1))
        if kind < len(LIES):
            return LIES[kind](attempt)
        replica = {"file_id": "of-bob", "generation": "bob-1", "size_bytes": 1, "blake3": "0" * 64, "sha256": None, "executable": False}
        return {
            "ended": {"attempt_id": call.call.attempt, "outcome": "ok", "exit_code": 0, "outputs": [replica], "void_outputs": [replica]}
        }

    async def serve(self, until: Any) -> None:
        server = await asyncio.start_server(self._answer, "127.0.0.1", self.port, ssl=side(self.tls, ssl.PROTOCOL_TLS_SERVER))
        async with asyncio.timeout(60):
            while not await asyncio.to_thread(until):
                await asyncio.sleep(0.1)
        server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        def say(message: FromGateway) -> None:
            writer.write(frame_of(message))

        self.connections += 1
        writer.write(self.first)
        say(HostsThere(hosts=[HostThere(facts=facts, met=1) for facts in self.hosts]))
        try:
            while True:
                message = understood(TO_GATEWAY, await read_frame(reader))
                if isinstance(message, CallHost):
                    self.calls.append(message)
                    say(Answer(id=message.id, answer=self.lie(message)))
        except (OSError, asyncio.CancelledError):
            writer.close()


def test_a_false_gateway_runs_nothing_in_the_service_and_gets_nothing_of_others(tenants: Tenants) -> None:
    alice = tenants.pools["alice"]
    assert alice.server is not None
    alice.server.stop()
    pwned = tenants.place / "pwned"
    bomb = pickle.dumps(Bomb(pwned))

    def problems() -> str:
        return tenants.service.log.read_text()

    # Another role.
    other = FalseGateway(tenants, [], role="bob")
    asyncio.run(other.serve(lambda: "that of pool/bob" in problems()))
    # A pickle, marked as what Dask would load.
    armed = FalseGateway(tenants, [], len(bomb).to_bytes(4, "big") + bomb)
    asyncio.run(armed.serve(lambda: "it says what is no message" in problems()))
    assert armed.connections and not pwned.exists()

    # Hosts that are not its own, and one that is, which lies about what a job has made.
    facts = {"node": "node0", "cores": 1, "shares_files": False}
    hosts = [HostFacts(host=name, **{**facts, **more}) for name, more in CLAIMS.items()]  # type: ignore[arg-type]
    liar = FalseGateway(tenants, hosts)
    jobs = [f'  lied{n}: {{run: "true > made{n}", retries: 0, outputs: {{made{n}: data:lied{n}}}}}\n' for n in range(len(LIES) + 1)]
    run = tenants.submit("alice", "".join(jobs), "lied")
    asyncio.run(liar.serve(lambda: tenants.status("alice", run)["state"] == "failed"))
    assert len(liar.told) > len(LIES) and {call.host for call in liar.calls} <= {"mine", "h1"}
    ends = [event for event in tenants.told(ev.AttemptEnded) if event.run == run]
    assert len(ends) == len(liar.told) and ev.Outcome.OK not in {event.outcome for event in ends}
    assert {event.fault.code for event in ends if event.fault is not None} > {"not_committed", "pool_answer"}
    assert not [made for event in tenants.told(ev.AttemptEnded) for made in event.outputs if made.file == "of-bob"]
    assert not list((tenants.data / "alice").glob("lied*"))
    met = {(event.host, event.tenant) for event in tenants.told(ev.HostReported)}
    assert met == {("here", ""), ("alice:h1", "alice"), ("bob:h1", "bob"), ("alice:mine", "alice")}
    assert all(call.call.ticket is not None and not call.call.brief for call in liar.calls)
    assert SECRET not in str(liar.calls)

    # The others have noticed nothing.
    assert tenants.hosts("bob") == {"bob:h1": "open"} and tenants.service.process is not None and tenants.service.process.poll() is None
    still = tenants.submit("bob", '  still: {run: "echo here > still", outputs: {still: data:still}}\n', "still")
    assert tenants.outcome("bob", still) == "succeeded"
    wait_until(lambda: tenants.hosts("alice").get("alice:mine") == "away", "the false host to be away")


def end(outcome: str, **more: Any) -> Callable[[str], Any]:
    return lambda attempt: {"ended": {"attempt_id": attempt, "outcome": outcome, **more}}


GONE = {"error_class": "transient", "code": "replica_unknown", "message": "gone", "subject": "of-bob"}
LIES: list[Callable[[str], Any]] = [
    end("killed"),
    end("lost"),
    end("failed"),
    end("failed", fault=GONE),
    end("failed", exit_code=-(2**60), measures={"wall_s": -1.0}, started_at_s=1e300, fitted_bytes=2**52),
    lambda attempt: {"waits_bytes": 2**53},
    lambda attempt: {"unasked": {"error_class": "invalid_input", "code": "c", "message": "never", "subject": ""}},
    lambda attempt: {"ended": attempt},
    lambda attempt: ["nothing"],
]
CLAIMS: dict[str, dict[str, Any]] = {
    "bob:h1": {},
    "here:": {},
    "shares": {"shares_files": True},
    "elsewhere": {"node": "io7"},
    "mine": {},
}
