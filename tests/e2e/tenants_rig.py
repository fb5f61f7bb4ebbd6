"""A service for two tenants, each a user of this machine with a pool of their own: `alice` and `bob`, whose hosts have one name.

One rule: the tenants' processes are not root, nor each other. What was started ends with it.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import httpx

from stager.adapters.authority import SCHEDULER, Authority
from stager.model.topology import HERE
from stager.service.state_dir import StateDir
from tests.e2e.nodes_rig import batches_of
from tests.e2e.serve_rig import NO_STORAGE, Service
from tests.testbed.places import ionode_binary
from tests.testbed.pool import Pool
from tests.testbed.processes import Where, free_port
from tests.testbed.waiting import wait_until

# No user of the system has these numbers.
USERS = {"alice": 64_001, "bob": 64_002}
HOST = "h1"


# Where the interpreter lies below a directory that is closed to others, as below root's home: "$2" is empty but for "$1".
OPENED = """
kept=$(mktemp -d) && mount --bind "$1" "$kept" && mount -t tmpfs -o mode=755 none "$2" && mkdir -p "$1" && mount --bind "$kept" "$1" &&
umount "$kept" && rmdir "$kept" && shift 2 && exec "$@"
"""


class AsUser(Where):
    """This machine, as that user."""

    def __init__(self, number: int) -> None:
        self.number = number

    def command(self, argv: Sequence[str | Path]) -> list[str]:
        become = ["setpriv", f"--reuid={self.number}", f"--regid={self.number}", "--clear-groups", "--no-new-privs"]
        return [*reached_by_others(), *become, *(str(word) for word in argv)]


def reached_by_others() -> list[str]:
    """What to start a program with, so that the interpreter of the tests can be run by another user than root."""
    path = Path(sys.executable).resolve()
    for above in reversed(path.parents):
        if not above.stat().st_mode & 0o001:
            kept = Path(*path.parts[: len(above.parts) + 1])
            return ["unshare", "-m", "sh", "-c", OPENED, "sh", str(kept), str(above)]
    return []


class Tenants:
    """`data`: a directory for each tenant, which the I/O node reads and the tenant's user does not."""

    def __init__(self, place: Path) -> None:
        self.place, self.data = place, place / "data"
        place.mkdir(exist_ok=True)
        for parent in (place, place.parent):
            # What lies inside has to keep others out by itself.
            parent.chmod(0o755)
        self.binary = place / "stager-ionode"
        shutil.copy(ionode_binary(), self.binary)
        self.gateways = {name: free_port() for name in USERS}
        words = (*NO_STORAGE, "--cluster-listen", f"127.0.0.1:{free_port()}")
        self.service = Service(place / "serve", self.toml(), words)
        self.state = StateDir(self.service.stager.state_dir)
        self.authority = Authority(self.state.authority)
        self.authority.make("c1")
        for role, directory in ((SCHEDULER, self.state.tls), ("node/node0", self.state.node_tls)):
            self.authority.issue(role, directory)
        self.pools = {name: self.pool_of(name, number) for name, number in USERS.items()}
        self.tokens: dict[str, str] = {}

    def toml(self, *names: str) -> str:
        lines = []
        for name in names or USERS:
            (self.data / name).mkdir(mode=0o700, parents=True, exist_ok=True)
            lines += [f"[tenants.{name}]", f'pool = "127.0.0.1:{self.gateways[name]}"', f'file_roots = ["{self.data / name}"]']
        return "\n".join(lines)

    def pool_of(self, name: str, number: int) -> Pool:
        home = self.place / name
        home.mkdir(mode=0o700)
        self.authority.issue(f"pool/{name}", home / "tls")
        for path in (home, *home.rglob("*")):
            os.chown(path, number, number)
        env = {"HOME": str(home), "STAGER_IONODE": str(self.binary)}
        return Pool(home, tls=home / "tls", where=AsUser(number), env=env, gateway=self.gateways[name])

    def start(self) -> Tenants:
        for name in USERS:
            self.start_pool(name)
        self.service.start()
        self.tokens = {name: self.service.token(name, "submit") for name in USERS} | {"admin": self.service.token("alice", "admin")}
        there = {HERE: "open"} | {f"{name}:{HOST}": "open" for name in USERS}
        self.until(lambda: self.hosts("admin") == there, "the hosts of both")
        return self

    def start_pool(self, name: str) -> None:
        pool = self.pools[name]
        pool.start()
        pool.host_apart(HOST, 2, "node0", pool.where, str(pool.place / HOST), str(pool.tls))

    def client(self, name: str) -> httpx.Client:
        return self.service.client(self.tokens[name])

    def hosts(self, name: str) -> dict[str, str]:
        said = self.client(name).get("/hosts").raise_for_status().json()["hosts"]
        return {host["host"]: host["state"] for host in said}

    def workflow(self, name: str, jobs: str, run: str = "w") -> str:
        return f'stager: 1\nname: {run}\norigins: {{data: "file:{self.data / name}"}}\njobs:\n{jobs}'

    def submit(self, name: str, jobs: str, run: str = "w", **env: str) -> str:
        body = {"workflow": self.workflow(name, jobs, run), "env": env}
        answer = self.client(name).post("/runs", json=body)
        assert answer.is_success, answer.text
        return str(answer.json()["run"])

    def outcome(self, name: str, run: str) -> str:
        waited = self.client(name).get(f"/runs/{run}/wait", params={"timeout_s": 60}).json()
        assert waited["finished"], f"{waited}\n{self.logs()}"
        return str(waited["state"])

    def status(self, name: str, run: str) -> dict[str, Any]:
        said = self.client(name).get(f"/runs/{run}").raise_for_status().json()
        return {"state": said["info"]["state"], "problems": said["problems"]}

    def told(self, kind: type[Any]) -> list[Any]:
        return [event for batch in batches_of(self.state) for event in batch.events if isinstance(event, kind)]

    def until(self, condition: Any, what: str, deadline_s: float = 120.0) -> Any:
        try:
            return wait_until(condition, what, deadline_s)
        except AssertionError as late:
            raise AssertionError(f"{late}\n{self.logs()}") from None

    def logs(self) -> str:
        return "\n".join([self.service.log.read_text()[-4000:], *(pool.log_text() for pool in self.pools.values())])

    def end(self) -> None:
        try:
            self.service.end()
        finally:
            for pool in self.pools.values():
                pool.end()
