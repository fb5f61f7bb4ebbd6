"""An embedded I/O node: the process of `stager-ionode serve` on one store. Adopted when it lives, ended or started when it does not answer.

May know: ionode, the store's rendezvous and lock. One rule: never two nodes on one store; only the process that serves this store is ever
ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import logging
import os
import signal
import stat
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec

from stager.adapters.ionode import IoNode, PeerAddress
from stager.model.errors import STATE_DIR_GONE_CODE, Refused, StagerError, Transient
from stager.model.ids import digest_of

log = logging.getLogger(__name__)
RENDEZVOUS = "rendezvous.json"
LOCK = "lock"
START_DEADLINE_S = 30.0
END_DEADLINE_S = 10.0
ANSWER_DEADLINE_S = 10.0
TERM_DEADLINE_S = 5.0
POLL_S = 0.01
BACKOFF_S_MAX = 5.0
GOOD_LIFE_S = 30.0
# A node whose scheduler died waits this long for the next one to adopt it.
ORPHAN_EXIT_S = 900
SOCKET_PATH_BYTES_MAX = 107


@dataclass(frozen=True, slots=True)
class Scrub:
    """How the node verifies what it holds. A living node that is adopted keeps to what it was started with."""

    bytes_per_s: int
    every_s: float


@dataclass(frozen=True, slots=True)
class Storage:
    """The S3 endpoint of the node. `listen`: the address it is to have; any port that is free where that is taken."""

    listen: str
    share_bytes: int
    key_file: Path
    trust_network: bool = False

    def words(self, listen: str) -> list[str]:
        return ["--s3-listen", listen, "--s3-any-port", "--s3-share", str(self.share_bytes), "--s3-credentials", str(self.key_file)]


@dataclass(frozen=True, slots=True)
class Listen:
    """Where other nodes are to reach it. `address`: HOST:PORT with an IP address; with port 0, any that is free. `tls_dir`: by TLS,
    with the certificate in it.
    """

    address: str
    trust_network: bool = False
    tls_dir: Path | None = None

    def fits(self, found: str) -> bool:
        """Whether a node that has this address is reached as wanted."""
        host, _, port = self.address.rpartition(":")
        return found == self.address or (port == "0" and found.rpartition(":")[0] == host)

    def words(self) -> list[str]:
        return ["--tcp", self.address, *(["--tls-dir", str(self.tls_dir)] if self.tls_dir is not None else [])]


@dataclass(frozen=True, slots=True)
class NodeSettings:
    """`umask` is the submitter's: finals at a file origin get their rights by it. `scrub` None: as the node's program does by itself.
    `storage` None: no S3 endpoint is needed, and one that a living node has stays. `listen` None: no other node needs to reach it, and
    an address that a living node has stays. `idle_exit_s` None: it never ends by itself.
    """

    program: str
    node_id: str
    store_dir: Path
    log_path: Path
    capacity_bytes: int
    umask: int = 0o022
    scrub: Scrub | None = None
    storage: Storage | None = None
    listen: Listen | None = None
    idle_exit_s: int | None = ORPHAN_EXIT_S


class NodeProcess:
    """One store, one process at a time; `client` stays the same object over restarts, so whoever holds it talks to the living one."""

    def __init__(self, settings: NodeSettings, epoch: int) -> None:
        self.settings = settings
        self.client = IoNode(socket_path(settings.store_dir), "", epoch=epoch)
        self.child: subprocess.Popen[bytes] | None = None
        self.started_at = 0.0
        self.quick_deaths = 0
        self.had_store = False
        # Of the living node, and of the last one while none lives: the next is to have its address.
        self.s3_address, self.s3_share_bytes = "", 0
        self.tcp_address = ""

    @property
    def node_id(self) -> str:
        return self.settings.node_id

    @property
    def apart(self) -> bool:
        return False

    def peer_address(self) -> PeerAddress | None:
        if not self.tcp_address:
            return None
        by_tls = self.settings.listen is not None and self.settings.listen.tls_dir is not None
        return PeerAddress(self.tcp_address, "" if by_tls else self.client.token, self.client.incarnation)

    async def contact(self) -> IoNode:
        """The client, in contact with a living node of the wanted capacity. Adopts, else ends and starts. Raises Refused or Transient."""
        self._reap()
        adopted = await self._adopt()
        if adopted and not self._is_as_wanted():
            log.info("the I/O node %s is started again, since it is to keep objects or to listen otherwise than it does", self.node_id)
            await self.stop()
            adopted = False
        if not adopted:
            await self._end_unanswering()
            await self._start()
        about = await self.client.node()
        self.had_store = True
        if about.capacity_bytes != self.settings.capacity_bytes:
            await self.client.set_capacity(self.settings.capacity_bytes)
        return self.client

    async def _adopt(self) -> bool:
        """False if nothing answers there. A node that says no (a higher epoch, a wrong token) is an error: it is not ours to end."""
        try:
            said = msgspec.json.decode((self.settings.store_dir / RENDEZVOUS).read_bytes())
            token = await asyncio.to_thread(Path(said["token_file"]).read_text)
            if not is_running(said["pid"]):
                return False
            self.client.meet(Path(said["socket"]), token.strip(), said["incarnation"])
            async with asyncio.timeout(ANSWER_DEADLINE_S):
                answer = await self.client.node()
        except (OSError, ValueError, KeyError, Transient):
            # A TimeoutError is an OSError.
            return False
        if answer.incarnation != said["incarnation"] or answer.draining:
            return False
        s3 = said.get("s3") or {"address": "", "share_bytes": 0}
        self.s3_address, self.s3_share_bytes = s3["address"], s3["share_bytes"]
        self.tcp_address = said.get("tcp") or ""
        return True

    def _is_as_wanted(self) -> bool:
        storage, listen = self.settings.storage, self.settings.listen
        stores = storage is None or (self.s3_address != "" and self.s3_share_bytes == storage.share_bytes)
        return stores and (listen is None or (listen.fits(self.tcp_address) and self._is_started_with(listen.tls_dir)))

    def _is_started_with(self, tls_dir: Path | None) -> bool:
        words = self._words_of_living()
        return ("--tls-dir" in words) == (tls_dir is not None) and (tls_dir is None or str(tls_dir) in words)

    def _words_of_living(self) -> list[str]:
        try:
            pid = int(msgspec.json.decode((self.settings.store_dir / RENDEZVOUS).read_bytes())["pid"])
            return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")]
        except (OSError, ValueError, KeyError):
            return []

    async def _end_unanswering(self) -> None:
        """Ends a process that holds the store's lock and did not answer: first it is asked, then forced."""
        if not self._locked():
            return
        pid = self._serving_pid()
        for number, deadline_s in ((signal.SIGTERM, TERM_DEADLINE_S), (signal.SIGKILL, END_DEADLINE_S)):
            end = time.monotonic() + deadline_s
            if pid is not None:
                log.warning("ending the I/O node %s (pid %d), which does not answer, with %s", self.node_id, pid, number.name)
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, number)
            while time.monotonic() < end:
                self._reap()
                if not self._locked():
                    return
                await asyncio.sleep(POLL_S)
        text = f"the store {self.settings.store_dir} is locked by a process that does not answer"
        raise Refused(f"{text}; end it, or use another state directory", code="store_locked", subject=str(self.settings.store_dir))

    def _locked(self) -> bool:
        try:
            handle = os.open(self.settings.store_dir / LOCK, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(handle)
        return False

    def _serving_pid(self) -> int | None:
        """Of the process that said it serves this store, if it still is one that does."""
        try:
            pid = int(msgspec.json.decode((self.settings.store_dir / RENDEZVOUS).read_bytes())["pid"])
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        except (OSError, ValueError, KeyError):
            return None
        return pid if b"serve" in words and os.fsencode(self.settings.store_dir) in words else None

    async def _start(self) -> None:
        await self._back_off()
        (self.settings.store_dir / RENDEZVOUS).unlink(missing_ok=True)
        settings = self.settings
        try:
            # In place of a store that was in use an empty one would be made, and what it held be lost unsaid.
            if self.had_store:
                settings.store_dir.stat()
            else:
                settings.store_dir.mkdir(mode=0o700, exist_ok=True)
        except FileNotFoundError as problem:
            text = f"the directory of the I/O node's store {settings.store_dir} is gone; its contents are lost"
            raise Refused(text, code=STATE_DIR_GONE_CODE, subject=str(settings.store_dir.parent)) from problem
        command = [settings.program, "serve", "--store", str(settings.store_dir), "--node-id", settings.node_id]
        command += ["--capacity", str(settings.capacity_bytes), "--socket", str(socket_path(settings.store_dir))]
        if settings.idle_exit_s is not None:
            command += ["--idle-exit-s", str(settings.idle_exit_s)]
        if settings.scrub is not None:
            command += ["--scrub-bytes-per-s", str(settings.scrub.bytes_per_s), "--scrub-every-s", f"{settings.scrub.every_s:.0f}"]
        if settings.storage is not None:
            command += settings.storage.words(self.s3_address or settings.storage.listen)
        if settings.listen is not None:
            command += settings.listen.words()
        if any(each is not None and each.trust_network for each in (settings.storage, settings.listen)):
            command.append("--trust-network")
        handle = os.open(settings.log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        try:
            # A session of its own: Ctrl-C and the end of the scheduler must not reach it, so that a later scheduler can adopt it.
            self.child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=handle, stderr=handle, start_new_session=True, cwd="/", umask=settings.umask
            )
        except OSError as problem:
            raise Refused(f"the I/O node cannot be started: {settings.program}: {problem}", code="ionode_missing") from problem
        finally:
            os.close(handle)
        self.started_at = time.monotonic()
        await self._await_answer()

    async def _back_off(self) -> None:
        """A node that dies soon after each start is started more and more slowly."""
        lived_s = time.monotonic() - self.started_at
        self.quick_deaths = self.quick_deaths + 1 if self.started_at and lived_s < GOOD_LIFE_S else 0
        if self.quick_deaths > 1:
            await asyncio.sleep(min(BACKOFF_S_MAX, 0.1 * 2**self.quick_deaths))

    async def _await_answer(self) -> None:
        end = time.monotonic() + START_DEADLINE_S
        while time.monotonic() < end:
            if self.child is not None and self.child.poll() is not None:
                code, self.child = self.child.returncode, None
                raise Refused(f"the I/O node ended at its start (exit {code}): {self._last_words()}", code="ionode_start")
            if await self._adopt():
                return
            await asyncio.sleep(POLL_S)
        raise Transient(f"the I/O node does not answer {START_DEADLINE_S:.0f} s after its start: {self._last_words()}", code="timeout")

    def _last_words(self) -> str:
        try:
            return self.settings.log_path.read_bytes()[-2000:].decode(errors="replace").strip() or f"see {self.settings.log_path}"
        except OSError:
            return f"no log at {self.settings.log_path}"

    def _reap(self) -> None:
        if self.child is not None and self.child.poll() is not None:
            log.log(
                logging.WARNING if self.child.returncode else logging.INFO,
                "the I/O node %s ended with exit %d",
                self.node_id,
                self.child.returncode,
            )
            self.child = None

    def is_serving(self) -> bool:
        """Whether some process has the store now."""
        self._reap()
        return self._locked()

    async def end(self) -> None:
        """In order, whoever started it: as by its terminal."""
        pid = self._serving_pid()
        if pid is not None and self._locked():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGTERM)
            end = time.monotonic() + END_DEADLINE_S
            while time.monotonic() < end and self._locked():
                self._reap()
                await asyncio.sleep(POLL_S)
        await self._end_unanswering()
        self._reap()

    async def stop(self, drain_s: float = 0.0) -> None:
        """Asks it to end and waits until the store is free; ends it by force if it takes too long."""
        try:
            await self.client.shutdown(drain_s)
        except StagerError as problem:
            log.debug("node %s: not shut down in order: %s", self.node_id, problem)
            # One that was just started cannot be asked yet.
            if self.child is not None:
                self.child.terminate()
        # A node in its orderly end waits for its callers to hang up.
        self.client.close()
        end = time.monotonic() + drain_s + END_DEADLINE_S
        while time.monotonic() < end and (self._locked() or self.child is not None):
            self._reap()
            await asyncio.sleep(POLL_S)
        await self._end_unanswering()
        if self.child is not None and self.child.poll() is None:
            # The store is free all the same: it was removed under its node.
            self.child.kill()
            await asyncio.to_thread(self.child.wait)
        self._reap()


def socket_path(store_dir: Path) -> Path:
    """In the store; for a store whose path is too long for a socket's, in a directory of this user's own."""
    inside = store_dir / "node.sock"
    if len(os.fsencode(inside)) <= SOCKET_PATH_BYTES_MAX:
        return inside
    own = Path(tempfile.gettempdir()) / f"stager-{os.geteuid()}"
    own.mkdir(mode=0o700, exist_ok=True)
    found = own.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise Refused(f"{own} must be a directory of yours that nobody else can enter; remove it", code="store_locked", subject=str(own))
    return own / f"{digest_of(os.fspath(store_dir))}.sock"


def is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
