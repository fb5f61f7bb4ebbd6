"""The processes of a pool: the Dask scheduler of one OS user, and the worker of a compute host, which is started again whenever it ends.

May know: Dask's command line, the words of hosts. One rule: nothing listens beyond loopback without TLS, and jobs outlive every process
that is started here: each has a reaper in a session of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import secrets
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from stager import __version__
from stager.adapters.cluster_tls import CA, CERTIFICATE, KEY
from stager.adapters.host_agent import identity_of, set_free
from stager.adapters.host_words import RESOURCE, HostFacts, plain
from stager.adapters.own_address import own_address
from stager.model.errors import InvalidInput, Refused
from stager.model.keep_limits import KeepLimits
from stager.worker.place import publish_json
from stager.worker.reaper import CGROUP

log = logging.getLogger(__name__)
FACTS = "agent.json"
LOCK = "lock"
# Commits take no cores, and a slot of a thread all the same.
MORE_THREADS = 4
QUICK_DEATH_S = 5.0
PAUSE_S, PAUSE_S_MAX = 0.2, 5.0
END_DEADLINE_S = 10.0
# A task whose worker is killed is asked for again for ever: what becomes of it its host's disk says.
DASK_ENVIRONMENT = {
    "DASK_DISTRIBUTED__SCHEDULER__ALLOWED_FAILURES": "1000000",
    "DASK_DISTRIBUTED__WORKER__PROFILE__ENABLED": "False",
    # Their pages would tell every user of this machine what runs, and what was logged.
    "DASK_DISTRIBUTED__SCHEDULER__HTTP__ROUTES": "[]",
    "DASK_DISTRIBUTED__WORKER__HTTP__ROUTES": "[]",
}


@dataclass(frozen=True, slots=True)
class HostSettings:
    """`node`: the I/O node that jobs read from. `linked`: the stores of those that share this host's files, by id; empty: it shares none
    with any, nor with the scheduler. `scratch`: where sandboxes are. `tls` None: the pool is reached over loopback.
    """

    address: str
    host: str
    node: str
    linked: Mapping[str, Path]
    scratch: Path
    cores: int
    memory_bytes: int | None
    scratch_bytes: int | None
    binary: str
    tls: Path | None = None
    keep: KeepLimits = KeepLimits()
    environ: Mapping[str, str] = field(default_factory=dict, repr=False)

    def facts(self) -> HostFacts:
        """A new incarnation each time."""
        return HostFacts(
            host=self.host,
            node=self.node,
            cores=self.cores,
            pool=self.address,
            memory_bytes=self.memory_bytes,
            scratch_bytes=self.scratch_bytes,
            incarnation=secrets.token_hex(8),
            scratch=identity_of(self.scratch),
            shares_files=bool(self.linked),
            version=__version__,
        )

    def command(self) -> list[str]:
        words = [*dask_words(self.tls), "worker", self.address, "--name", self.host]
        words += ["--nthreads", str(self.cores + MORE_THREADS), "--resources", f"{RESOURCE}{self.host}={self.cores}"]
        words += ["--no-nanny", "--no-dashboard", "--memory-limit", "0", "--local-directory", str(self.scratch / "dask")]
        own = "127.0.0.1" if is_loopback(self.address) else own_address(*host_and_port(self.address))
        words += ["--host", own] if own is not None else []
        words += tls_words(self.tls)
        return [*words, "--preload", "stager.adapters.host_preload", str(self.scratch / FACTS)]


class HostWorker:
    """The worker's process, as long as it is wanted."""

    def __init__(self, settings: HostSettings) -> None:
        self.settings = settings
        self.wanted = True
        self.child: subprocess.Popen[bytes] | None = None

    def run(self) -> None:
        """Until it is asked to end. Raises Refused where another one has the scratch directory."""
        scratch = self.settings.scratch
        scratch.mkdir(mode=0o700, parents=True, exist_ok=True)
        with held(scratch):
            set_free(scratch)
            facts = plain(self.settings.facts())
            linked = {node: str(store) for node, store in self.settings.linked.items()}
            said: dict[str, Any] = {"facts": facts, "scratch": str(scratch), "linked": linked, "binary": self.settings.binary}
            said |= {"cgroup": self.settings.environ.get(CGROUP, ""), "keep": plain(self.settings.keep)}
            publish_json(str(scratch / FACTS), said)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._end)
            quick_deaths = 0
            while self.wanted:
                started = time.monotonic()
                code = self._live_once()
                quick_deaths = quick_deaths + 1 if time.monotonic() - started < QUICK_DEATH_S else 0
                if self.wanted:
                    log.warning("the worker of host %s has ended with %d, and is started again", self.settings.host, code)
                    time.sleep(min(PAUSE_S_MAX, PAUSE_S * 2**quick_deaths))

    def _live_once(self) -> int:
        """It ends when the pipe to it does, so that none is left of a `stager worker` that was killed."""
        environ = {**self.settings.environ, **DASK_ENVIRONMENT}
        self.child = subprocess.Popen(self.settings.command(), stdin=subprocess.PIPE, env=environ, start_new_session=True)
        if not self.wanted:
            self.child.terminate()
        try:
            return self.child.wait()
        finally:
            assert self.child.stdin is not None
            self.child.stdin.close()

    def _end(self, number: int, _: object) -> None:
        """Jobs go on."""
        self.wanted = False
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError):
                self.child.send_signal(signal.SIGKILL if number == signal.SIGALRM else signal.SIGTERM)
            signal.signal(signal.SIGALRM, self._end)
            signal.alarm(int(END_DEADLINE_S))


@contextlib.contextmanager
def held(scratch: Path) -> Iterator[None]:
    handle = os.open(scratch / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as problem:
        text = f"another `stager worker` has the scratch directory {scratch}; give this one another with --scratch"
        raise Refused(text, code="scratch_held", subject=str(scratch)) from problem
    finally:
        os.close(handle)


def end_with_parent() -> None:
    """For a thread of the worker's process: whoever started it holds the other end of this pipe."""
    with contextlib.suppress(OSError):
        while os.read(0, 4096):
            pass
    os._exit(0)


def serve_pool(host: str, port: int, tls: Path | None, environ: Mapping[str, str], gateway: str = "") -> None:
    """Becomes the Dask scheduler. `gateway`: HOST:PORT for the service, empty: it is a client itself. Raises Refused for plain text over
    a network.
    """
    protocol = "tcp" if tls is None else "tls"
    if tls is None and not is_loopback(f"tcp://{host}:{port}"):
        text = f"{host} can be reached from other machines, and whoever reaches a pool runs programs as its user"
        raise Refused(
            f"{text}; make a certificate with `stager cluster init`, name one with --tls-dir, or serve 127.0.0.1",
            code="not_loopback",
            subject=host,
        )
    if gateway and tls is None:
        text = "the gateway of a pool knows the service by its certificate"
        raise Refused(
            f"{text}; name the pool's with --tls-dir (`stager cluster certify pool/NAME`)", code="no_certificate", subject=gateway
        )
    words = [*dask_words(tls), "scheduler", "--host", f"{protocol}://{host}", "--port", str(port)]
    # Without a dashboard it listens there all the same.
    words += ["--no-dashboard", "--dashboard-address", "127.0.0.1:0", *tls_words(tls)]
    words += ["--preload", "stager.adapters.pool_gateway", gateway, str(tls)] if gateway else []
    os.execve(sys.executable, words, {**environ, **DASK_ENVIRONMENT})


def dask_words(tls: Path | None) -> list[str]:
    """Dask's command line, which under TLS knows the members of the pool by their certificates. -P: without what is called like a module
    where it is started.
    """
    return [sys.executable, "-P", "-m", *(["dask"] if tls is None else ["stager.adapters.dask_member", str(tls)])]


def tls_words(tls: Path | None) -> list[str]:
    """Raises InvalidInput where the certificate is not whole."""
    if tls is None:
        return []
    for name in (CA, CERTIFICATE, KEY):
        if not (tls / name).is_file():
            text = f"{tls} has no {name}; make the certificate with `stager cluster certify pool/NAME --out {tls}`"
            raise InvalidInput(text, subject=str(tls))
    return ["--tls-ca-file", str(tls / CA), "--tls-cert", str(tls / CERTIFICATE), "--tls-key", str(tls / KEY)]


def host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.partition("://")[2].rpartition(":")
    return host.removeprefix("[").removesuffix("]"), int(port)


def is_loopback(address: str) -> bool:
    host = host_and_port(address)[0]
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def memory_here() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def free_at(place: Path) -> int:
    while not place.exists():
        place = place.parent
    return shutil.disk_usage(place).free
