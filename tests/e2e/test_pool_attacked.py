"""Another user of the machine, on which a scheduler, a pool and a host run a job with a secret: what can they read, and what answers?"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from stager import wire
from stager.adapters.authority import SCHEDULER, Authority
from tests.e2e.hosts_rig import Hosts
from tests.testbed.processes import descendants

pytestmark = [pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")]
NOBODY, SECRET = 65534, "hunter2-of-alice"

# It tries all files below the roots, all sockets there, all that /proc tells of the processes, and the addresses. It prints what it got.
ATTACK = r"""
import json, os, socket, sys, urllib.request
roots, pids, urls, secret = json.loads(sys.stdin.read())
got, tried = [], 0
def read(path):
    global tried
    tried += 1
    try:
        with open(path, "rb") as stream:
            return stream.read(1 << 20)
    except OSError:
        return None
for root in roots:
    for place, _, names in os.walk(root):
        for path in [os.path.join(place, name) for name in names]:
            if (found := read(path)) is not None:
                got.append(["file", path, secret.encode() in found])
            with socket.socket(socket.AF_UNIX) as sock:
                try:
                    sock.connect(path)
                    got.append(["socket", path, True])
                except OSError:
                    pass
for pid in pids:
    for name in ("environ", "mem", "maps", "io", "stack", "syscall"):
        if read(f"/proc/{pid}/{name}") is not None:
            got.append(["process", f"{pid}/{name}", True])
    for name in ("cwd", "root", "exe"):
        try:
            os.readlink(f"/proc/{pid}/{name}")
            got.append(["process", f"{pid}/{name}", True])
        except OSError:
            pass
    try:
        got.append(["process", f"{pid}/fd", os.listdir(f"/proc/{pid}/fd") != []])
    except OSError:
        pass
    if secret.encode() in (read(f"/proc/{pid}/cmdline") or b""):
        got.append(["process", f"{pid}/cmdline", True])
for url in urls:
    try:
        got.append(["page", url, len(urllib.request.urlopen(url, timeout=5).read()) > 0])
    except OSError:
        pass
print(json.dumps({"got": got, "tried": tried}))
"""


def attack(roots: list[Path], pids: list[int], urls: list[str]) -> dict[str, Any]:
    said = json.dumps([[str(root) for root in roots], pids, urls, SECRET])
    become = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", sys.executable, "-c", ATTACK]
    done = subprocess.run(become, input=said, capture_output=True, text=True, check=True, cwd="/", timeout=120)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_another_user_of_the_machine_finds_no_file_socket_variable_or_page_of_a_job(short_dir: Path) -> None:
    for parent in (short_dir, short_dir.parent):
        # What lies inside has to keep others out by itself.
        parent.chmod(0o755)
    state_dir, tls = short_dir / "s", short_dir / "pool-tls"
    state_dir.mkdir(mode=0o700)
    authority = Authority(state_dir / "cluster")
    authority.make("ours")
    authority.issue(SCHEDULER, state_dir / "tls")
    authority.issue("pool/alice", tls)
    hosts = Hosts(short_dir, {"h1": 1}, tls=tls)
    try:
        rig, client = hosts.rig, hosts.client()
        shell = f'echo "$TOKEN"; echo "$TOKEN" > made; touch {short_dir}/runs; until test -e {rig.gate}; do sleep 0.05; done'
        job = rig.job("keeps", shell, (), ("made",), env_pass=("TOKEN",))
        workflow = rig.workflow("w", [rig.final("made")], [job])
        credentials = wire.Credentials(rig.credentials(workflow).origins, {"TOKEN": SECRET})
        run = rig.submit(client, workflow, credentials)
        hosts.until((short_dir / "runs").exists, "the job")
        assert hosts.pool.server is not None
        [host] = hosts.pool.hosts.values()
        scheduler = rig.stager.scheduler_pid()
        assert scheduler is not None
        tops = [scheduler, hosts.pool.server.pid, host.server.pid, *host.reaper_pids()]
        pids = sorted({pid for top in tops for pid in (top, *descendants(top))})
        pages = [
            f"{base}/{page}" for base in bases(hosts) for page in ("status", "info/main/workers.html", "info/main/logs.html", "metrics")
        ]
        roots = [state_dir, host.scratch, tls]
        assert any(map(has_secret, pids)), "the job is among the processes, and has its variable"
        assert pages and attack([], [os.getpid()], [])["got"] == [], "a process of root"
        found = attack(roots, pids, pages)
        assert found["got"] == []
        assert found["tried"] > 6 * len(pids)
        rig.gate.touch()
        assert rig.finished(client, run) == "succeeded"
        assert attack(roots, [], [])["got"] == [], "of a job that is over"
    finally:
        hosts.end()


def bases(hosts: Hosts) -> list[str]:
    """Where Dask's processes serve pages."""
    return sorted(set(re.findall(r"https?://[0-9.]+:[0-9]+", hosts.pool.log_text())))


def has_secret(pid: int) -> bool:
    try:
        return f"TOKEN={SECRET}".encode() in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    except OSError:
        # The job starts a process after the other.
        return False
