"""The state directory: its layout, and the lock that says who the scheduler is.

May know: paths. One rule: whoever holds the lock is the scheduler; the lock ends with the process, however that ends.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from stager.model.errors import Denied, Refused

# File systems whose locks and shared memory SQLite cannot rely on.
NETWORK_FILE_SYSTEMS = frozenset(
    "nfs nfs4 cifs smb3 smbfs lustre gpfs beegfs ceph afs 9p fuse.sshfs fuse.s3fs fuse.rclone fuse.glusterfs fuse.mountpoint-s3".split()
)


class LockHeld(Refused):
    """Another scheduler lives on this state directory."""


@dataclass(frozen=True, slots=True)
class StateDir:
    root: Path

    @property
    def lock(self) -> Path:
        return self.root / "lock"

    @property
    def socket(self) -> Path:
        return self.root / "scheduler.sock"

    @property
    def log(self) -> Path:
        return self.root / "scheduler.log"

    @property
    def journal(self) -> Path:
        return self.root / "journal.sqlite"

    @property
    def runs(self) -> Path:
        return self.root / "runs.sqlite"

    @property
    def profiles(self) -> Path:
        return self.root / "profiles.sqlite"

    @property
    def tokens(self) -> Path:
        return self.root / "tokens.sqlite"

    @property
    def tenants(self) -> Path:
        """Written by the administrator of a service."""
        return self.root / "tenants.toml"

    @property
    def storage_key(self) -> Path:
        """The secret by which keys of the I/O node's S3 endpoint are issued."""
        return self.root / "storage-key.json"

    @property
    def authority(self) -> Path:
        """Of the cluster: whoever reads its key can be every host. `invites` is in it, and `address`: where hosts that join call."""
        return self.root / "cluster"

    @property
    def nodes(self) -> Path:
        """The registry: a file for each I/O node that has joined."""
        return self.root / "nodes"

    @property
    def tls(self) -> Path:
        """The scheduler's certificate in the cluster."""
        return self.root / "tls"

    @property
    def node_tls(self) -> Path:
        """The embedded node's certificate, which it needs where it has peers by TLS."""
        return self.root / "node-tls"

    @property
    def logs(self) -> Path:
        """`logs/RUN/JOB.NUMBER.out` and `.err`, written by the worker."""
        return self.root / "logs"

    @property
    def hosts(self) -> Path:
        """Of a scheduler with a pool: which host each attempt was given to, the hosts that were there last, and the socket that hands out
        specs of attempts.
        """
        return self.root / "hosts"

    @property
    def node_store(self) -> Path:
        return self.root / "node"

    @property
    def node_log(self) -> Path:
        return self.root / "node.log"

    def lock_file(self) -> tuple[int, int] | None:
        """The identity of the lock file; None where there is none. One that was made anew in its place is another. Raises OSError where
        nobody can tell.
        """
        try:
            found = self.lock.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return found.st_dev, found.st_ino

    def make(self) -> None:
        """Raises Denied or Refused if it cannot be a state directory."""
        try:
            self.root.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as problem:
            raise Denied(f"the state directory {self.root} cannot be made: {problem.strerror}", subject=str(self.root)) from problem
        found = self.root.stat()
        if found.st_uid != os.geteuid():
            raise Denied(f"the state directory {self.root} belongs to another user; choose one of your own", subject=str(self.root))
        if found.st_mode & 0o077:
            self.root.chmod(0o700)
        kind = file_system_of(self.root)
        if kind in NETWORK_FILE_SYSTEMS:
            text = f"the state directory {self.root} is on a network file system ({kind}), where its journal could be damaged"
            text += "; choose a local one with --state-dir or STAGER_STATE_DIR"
            raise Refused(text, code="network_file_system", subject=str(self.root))

    @contextmanager
    def held(self) -> Iterator[None]:
        """Raises LockHeld at once if another process holds it."""
        handle = os.open(self.lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                pid = os.pread(handle, 32, 0).decode(errors="replace").strip() or "unknown"
                raise LockHeld(f"the scheduler of {self.root} runs already (pid {pid})", code="lock_held", subject=str(self.root)) from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
            yield
        finally:
            os.close(handle)


def file_system_of(path: Path, mounts: str | None = None) -> str:
    """The type of the mount that holds the path; empty where it cannot be told."""
    try:
        lines = (Path("/proc/self/mounts").read_text() if mounts is None else mounts).split("\n")
    except OSError:
        return ""
    best, kind = -1, ""
    resolved = os.fspath(path.resolve())
    for line in lines:
        words = line.split(" ")
        if len(words) < 3:
            continue
        point = words[1].replace("\\040", " ").rstrip("/") or "/"
        inside = point == "/" or resolved == point or resolved.startswith(point + "/")
        # The later of two mounts on one point is the one on top.
        if inside and len(point) >= best:
            best, kind = len(point), words[2]
    return kind


def notify_file_of(state_dir: StateDir) -> Path:
    """The file that says who is told of what; written by the owner."""
    return state_dir.root / "notify.toml"


def notices_of(state_dir: StateDir) -> Path:
    """The box of what they were not told yet."""
    return state_dir.root / "notices.sqlite"


def pool_tls_of(state_dir: StateDir) -> Path:
    """The certificate of the pool of whoever runs the scheduler."""
    return state_dir.root / "pool-tls"


def results_of(state_dir: StateDir) -> Path:
    """What jobs made, by what it was made of."""
    return state_dir.root / "results.sqlite"
