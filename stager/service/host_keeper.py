"""What keeps the I/O node and the worker of a host running: `stager host run`.

May know: host_node, the command line of `stager worker`. One rule: what ends is started again, more slowly each time it ends soon; jobs
outlive all of it.
"""

from __future__ import annotations

import ctypes
import fcntl
import logging
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from stager.adapters import host_join
from stager.adapters.node_process import NodeProcess
from stager.adapters.node_remote import NOT_ACCEPTED_CODE
from stager.adapters.whole_file import write_private
from stager.model.errors import Denied, InvalidInput, Refused, StagerError, Transient
from stager.service.host_node import HostDir, Record, node_started, node_stopped
from stager.worker.reaper import is_held

log = logging.getLogger(__name__)
LOCK, STATE = "keeper.lock", "keeper.json"
POLL_S = 0.5
PAUSE_S, PAUSE_S_MAX, GOOD_LIFE_S = 0.5, 60.0, 60.0
RENEWAL_EVERY_S = 86_400.0
END_DEADLINE_S = 20.0
UP_DEADLINE_S = 60.0
# A keeper is asked for by a lock that is held for microseconds, again and again while somebody waits for it.
ASKED_FOR_S = 1.0
STOP_DEADLINE_S = 120.0
LAST_WORDS_BYTES = 2000
PR_SET_PDEATHSIG = 1
# What the cluster says for good.
FINAL_CODES = frozenset({"another_store", "store_taken", "version_differs", "state_dir_gone"})


class KeeperState(msgspec.Struct, frozen=True):
    """`said`: of the record that is kept to. `worker_pid` None: none runs just now."""

    pid: int
    said: str
    worker_pid: int | None = None


@dataclass(slots=True)
class Pause:
    """Between an end and the next start."""

    began_at: float = 0.0
    quick: int = 0
    until: float = 0.0

    def is_over(self) -> bool:
        return time.monotonic() >= self.until

    def begun(self) -> None:
        self.began_at = time.monotonic()

    def ended(self) -> float:
        """Seconds until the next try."""
        now = time.monotonic()
        self.quick = self.quick + 1 if now - self.began_at < GOOD_LIFE_S else 0
        pause_s = min(PAUSE_S_MAX, PAUSE_S * 2**self.quick) if self.quick else 0.0
        self.until = now + pause_s
        return pause_s


@dataclass
class HostKeeper:
    """Of one host's directory. On the main thread alone."""

    place: HostDir
    environ: Mapping[str, str] = field(repr=False)
    node: NodeProcess | None = None
    worker: subprocess.Popen[bytes] | None = None
    record: Record | None = None
    is_wanted: bool = True
    told: KeeperState | None = None
    words: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.node_pause, self.worker_pause = Pause(), Pause()
        self.renewed_at = time.monotonic()

    def run(self) -> None:
        """Until it is asked to end; node and worker end with it. Raises Refused where another one keeps this host, or where the
        cluster does not take it any more.
        """
        with kept(self.place):
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, self._end)
            try:
                while self.is_wanted:
                    self._step()
                    time.sleep(POLL_S)
            finally:
                self._stop_worker()
                if self.record is not None and self.record.has_node:
                    node_stopped(self.place, self.record, self.environ)
                (self.place.root / STATE).unlink(missing_ok=True)

    def _end(self, *_: object) -> None:
        self.is_wanted = False

    def _step(self) -> None:
        record = self.place.read()
        if record is None:
            raise Refused(f"{self.place.record} is gone", code="not_joined", subject=str(self.place.root))
        if self.worker is not None and (record.worker is None or worker_words(self.place, record) != self.words):
            self._stop_worker()
            self.worker_pause = Pause()
        if self.record is not None and self.record.has_node and not record.has_node:
            node_stopped(self.place, self.record, self.environ)
        self.record = record
        if record.has_node:
            self._keep_node(record)
        if record.worker is not None:
            self._keep_worker(record)
        if time.monotonic() - self.renewed_at > RENEWAL_EVERY_S:
            self._renew(record)
        self._tell(KeeperState(os.getpid(), record.said, self.worker.pid if self.worker is not None else None))

    def _keep_node(self, record: Record) -> None:
        if self.node is not None and self.node.is_serving():
            return
        if not self.node_pause.is_over():
            return
        if self.node is not None:
            log.warning("the I/O node %s has ended, and is started again", record.node_id)
        self.node_pause.begun()
        try:
            with self.place.held():
                # As a person said it last: they may have changed it meanwhile.
                record = self.place.read() or record
                self.node, self.record, about = node_started(self.place, record, self.environ)
            log.info("the I/O node %s is at %s (pid %d)", record.node_id, self.record.listen, about.pid)
        except StagerError as problem:
            if is_final(problem):
                raise
            log.warning("the I/O node %s: %s; tried again in %.0f s", record.node_id, problem, self.node_pause.ended())

    def _keep_worker(self, record: Record) -> None:
        if self.worker is not None:
            code = self.worker.poll()
            if code is None:
                return
            self.worker = None
            log.warning("the worker of %s ended with %d; started again in %.1f s", record.node_id, code, self.worker_pause.ended())
        if not self.worker_pause.is_over():
            return
        self.worker_pause.begun()
        try:
            record = self._met_pool(record)
        except StagerError as problem:
            if is_final(problem):
                raise
            log.warning("the worker of %s: %s; tried again in %.0f s", record.node_id, problem, self.worker_pause.ended())
            return
        self.words = worker_words(self.place, record)
        words = [sys.executable, "-P", "-m", "stager.cli", *self.words]
        self.worker = subprocess.Popen(
            words, stdin=subprocess.DEVNULL, env=dict(self.environ), start_new_session=True, preexec_fn=end_with_keeper
        )
        log.info("the worker of %s has started (pid %d)", record.node_id, self.worker.pid)

    def _met_pool(self, record: Record) -> Record:
        """With the pool's address as it is now, and a certificate for it; as it was where the scheduler is away."""
        try:
            with self.place.held():
                return pool_joined(self.place, self.place.read() or record)
        except Transient:
            if record.worker is None or not record.worker.pool:
                raise
            return record

    def _renew(self, record: Record) -> None:
        self.renewed_at = time.monotonic()
        try:
            host_join.renew(record.scheduler, record.node_id, self.place.tls)
            if record.worker is not None:
                self._met_pool(record)
        except StagerError as problem:
            if is_final(problem):
                raise
            log.warning("the certificate of %s is as it was: %s", record.node_id, problem)

    def _stop_worker(self) -> None:
        """Its jobs go on."""
        if self.worker is None:
            return
        self.worker.terminate()
        try:
            self.worker.wait(END_DEADLINE_S)
        except subprocess.TimeoutExpired:
            self.worker.kill()
            self.worker.wait()
        self.worker = None

    def _tell(self, state: KeeperState) -> None:
        if state == self.told:
            return
        try:
            write_private(self.place.root / STATE, msgspec.json.encode(state))
            self.told = state
        except OSError as problem:
            # A disk that is full ends neither node nor worker.
            log.warning("what runs here cannot be written down, and is tried again: %s", problem)


def pool_joined(place: HostDir, record: Record) -> Record:
    """The record says where the pool is, and this host has a certificate for it. Raises Refused where the cluster has none."""
    assert record.worker is not None
    address = host_join.join_pool(record.scheduler, record.node_id, place.tls, place.pool_tls)
    if address != record.worker.pool:
        record = msgspec.structs.replace(record, worker=msgspec.structs.replace(record.worker, pool=address))
        place.write(record)
    return record


def worker_words(place: HostDir, record: Record) -> list[str]:
    """Of `stager worker`."""
    worker = record.worker
    assert worker is not None
    words = ["worker", worker.pool, "--tls-dir", str(place.pool_tls), "--name", record.node_id, "--node", worker.beside]
    words += ["--scratch", worker.scratch or str(place.jobs)]
    for option, value in (("--cores", worker.cores), ("--memory", worker.memory_bytes), ("--scratch-size", worker.scratch_bytes)):
        words += [option, str(value)] if value is not None else []
    return words


def is_final(problem: StagerError) -> bool:
    """The cluster itself says so. One that is not spoken to, since its certificate or ours has expired, has said nothing."""
    return (isinstance(problem, Denied) and problem.code != NOT_ACCEPTED_CODE) or problem.code in FINAL_CODES


def end_with_keeper() -> None:
    """In the child: SIGTERM when whoever started it is gone, so that no second worker meets it in its scratch directory."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


@contextmanager
def kept(place: HostDir) -> Iterator[None]:
    """Raises Refused where another one keeps this host."""
    handle = os.open(place.root / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        take(handle)
        os.ftruncate(handle, 0)
        os.write(handle, str(os.getpid()).encode())
        yield
    except BlockingIOError as problem:
        text = f"another `stager host run` keeps the host of {place.root}"
        raise Refused(f"{text}; end it with `stager host stop`", code="kept", subject=str(place.root)) from problem
    finally:
        os.close(handle)


def take(handle: int) -> None:
    """Raises BlockingIOError where another one has the lock. Who asks for it (`is_held`) has it for a moment, and is waited for."""
    end = time.monotonic() + ASKED_FOR_S
    while True:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            if time.monotonic() > end:
                raise
        time.sleep(ASKED_FOR_S / 100)


def keeper_pid(place: HostDir) -> int | None:
    """Of the process that keeps this host, if one does."""
    lock = place.root / LOCK
    return int(lock.read_bytes() or b"0") or None if is_held(str(lock)) else None


def keep(place: HostDir, record: Record, environ: Mapping[str, str]) -> KeeperState:
    """A keeper that keeps to this record: the one that is there, else one that outlives us. Raises Refused where it ends, Transient where
    it takes too long.
    """
    child = None
    if keeper_pid(place) is None:
        child = started([sys.executable, "-m", "stager.cli", "host", "run", "--store", str(place.root)], place.root / "host.log", environ)
    end = time.monotonic() + UP_DEADLINE_S
    while time.monotonic() < end:
        state = state_of(place)
        if state is not None and state.said == record.said and (child is None or state.pid == child.pid):
            return state
        if child is not None and child.poll() is not None:
            text = f"what keeps this host running ended at its start: {last_words(place.root / 'host.log')}"
            raise Refused(text, code="keeper_ended", subject=str(place.root))
        time.sleep(POLL_S / 10)
    text = f"what keeps this host running is not ready after {UP_DEADLINE_S:.0f} s; see {place.root / 'host.log'}"
    raise Transient(text, code="timeout", subject=str(place.root))


def started(words: Sequence[str], log_path: Path, environ: Mapping[str, str]) -> subprocess.Popen[bytes]:
    """In a session of its own."""
    handle = os.open(log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        return subprocess.Popen(
            words, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, env=dict(environ), cwd="/", start_new_session=True
        )
    finally:
        os.close(handle)


def stop(place: HostDir, environ: Mapping[str, str]) -> bool:
    """Node and worker have ended, and their jobs go on. False: nothing ran. Raises Transient where it takes too long."""
    record, pid = place.read(), keeper_pid(place)
    if record is None:
        raise InvalidInput(f"no host of {place.root} has joined a cluster", code="not_joined", subject="store")
    if pid is None:
        return _node_alone_stopped(place, record, environ)
    os.kill(pid, signal.SIGTERM)
    end = time.monotonic() + STOP_DEADLINE_S
    while time.monotonic() < end:
        if keeper_pid(place) is None:
            return True
        time.sleep(POLL_S / 10)
    raise Transient(f"what keeps this host running (pid {pid}) does not end", code="timeout", subject=str(place.root))


def _node_alone_stopped(place: HostDir, record: Record, environ: Mapping[str, str]) -> bool:
    """One whose keeper was killed."""
    from stager.service.host_node import node_settings

    if not record.has_node or not NodeProcess(node_settings(place, record, environ), 0).is_serving():
        return False
    node_stopped(place, record, environ)
    return True


def state_of(place: HostDir) -> KeeperState | None:
    try:
        return msgspec.json.decode((place.root / STATE).read_bytes(), type=KeeperState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None


def last_words(path: Path) -> str:
    try:
        return path.read_bytes()[-LAST_WORDS_BYTES:].decode(errors="replace").strip()
    except OSError:
        return f"no log at {path}"
