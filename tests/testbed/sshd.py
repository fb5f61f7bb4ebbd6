"""A real OpenSSH server on a free port, on loopback or on a host of the bed, with generated host and user keys.

May know: OpenSSH's own programs. One rule: stock limits (MaxStartups and the like are Debian's), so that what works here works there.
"""

from __future__ import annotations

import contextlib
import getpass
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.testbed.places import needed_program, program
from tests.testbed.processes import HERE, Server, Where, descendants, end, is_alive, is_listening
from tests.testbed.waiting import wait_until

SFTP_SERVERS = ("/usr/lib/openssh/sftp-server", "/usr/libexec/openssh/sftp-server", "/usr/lib/ssh/sftp-server")


def make_key(path: Path, kind: str = "ed25519") -> Path:
    keygen = needed_program("ssh-keygen", "openssh-client")
    subprocess.run([keygen, "-q", "-t", kind, "-N", "", "-C", path.name, "-f", path], check=True, stdin=subprocess.DEVNULL)
    return path


def is_locked(user: str, shadow: Path = Path("/etc/shadow")) -> bool:
    """Without PAM sshd lets nobody into an account whose password is locked, as root's is where the installer was told none."""
    try:
        return any(line.startswith(f"{user}:!") for line in shadow.read_text().splitlines())
    except OSError:  # then sshd, which runs as we do, cannot see it either
        return False


@dataclass
class Sshd:
    """`directory` holds keys and logs, `data` is what it serves. `sftp_only`: ForceCommand internal-sftp, so no shell.
    `max_startups`: its limits, where they are not the stock ones."""

    directory: Path
    data: Path
    sftp_only: bool = False
    where: Where = HERE
    max_startups: str = "10:30:100"

    def __post_init__(self) -> None:
        self.user = getpass.getuser()
        self.port = 0
        self.log = self.directory / "sshd.log"
        self.identity_file = make_key(self.directory / "user_key")
        self.host_key = make_key(self.directory / "host_key")
        self.known_hosts = self.directory / "known_hosts"
        self.data.mkdir(parents=True, exist_ok=True)
        self.allow(self.identity_file)
        self.server: Server | None = None

    def allow(self, key: Path) -> None:
        """One more key that may log in."""
        with (self.directory / "authorized_keys").open("a") as keys:
            keys.write(key.with_name(key.name + ".pub").read_text())

    def config_text(self) -> str:
        subsystem = next((path for path in SFTP_SERVERS if Path(path).exists()), "internal-sftp")
        lines = [
            f"Port {self.port}",
            f"ListenAddress {self.where.address}",
            f"HostKey {self.host_key}",
            f"PidFile {self.directory}/sshd.pid",
            f"AuthorizedKeysFile {self.directory}/authorized_keys",
            "AuthenticationMethods publickey",
            "PermitRootLogin prohibit-password",
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            f"UsePAM {'yes' if is_locked(self.user) else 'no'}",
            # A shell reads what lies in its home: what is killed there in the middle may leave a lock on which all later sessions wait.
            f"SetEnv HOME={self.directory}",
            "LogLevel VERBOSE",
            f"MaxStartups {self.max_startups}",
            f"Subsystem sftp {subsystem}",
        ]
        if self.sftp_only:
            lines.append("ForceCommand internal-sftp")
        return "\n".join(lines) + "\n"

    def start(self) -> None:
        """On a new port the first time, on the same one after `stop`."""
        if os.getuid() == 0:
            self.where.outside("/run/sshd").mkdir(mode=0o755, exist_ok=True)
        sshd = needed_program("sshd", "openssh-server")
        known = self.port
        for last_try in (False, False, True):
            self.port = self.port or self.where.free_port()
            config = self.directory / "sshd_config"
            config.write_text(self.config_text())
            self.server = Server([str(sshd), "-D", "-e", "-f", str(config)], self.log, where=self.where)
            try:
                self.server.start_on(self.port)
                break
            except AssertionError:
                if last_try:
                    raise
                self.port = known
        self.write_known_hosts(self.host_key)

    def write_known_hosts(self, host_key: Path) -> None:
        kind, key = host_key.with_name(host_key.name + ".pub").read_text().split()[:2]
        self.known_hosts.write_text(f"[{self.where.address}]:{self.port} {kind} {key}\n")

    def stop(self) -> None:
        """Listener and sessions, as when the machine goes down."""
        if self.server:
            self.server.stop()
            self.server = None
            # A child that was forked as its parent was ended has the port open until it has come to close it.
            wait_until(lambda: not self.where.answers(self.port), f"port {self.port} to be closed")

    def drop_sessions(self) -> None:
        """Ends every connection; new ones are welcome."""
        assert self.server is not None, "not started"
        sessions = descendants(self.server.pid)
        end(sessions)
        wait_until(lambda: not any(map(is_alive, sessions)), "sshd's sessions to end")

    def change_host_key(self) -> None:
        """Another key on the same port; known_hosts still names the old one, as after an attack or a reinstallation."""
        self.stop()
        known = self.known_hosts.read_text()
        self.host_key = make_key(self.directory / f"host_key_{len(list(self.directory.glob('host_key*')))}")
        self.start()
        self.known_hosts.write_text(known)

    def url(self, path: Path | None = None, scheme: str = "sftp") -> str:
        return f"{scheme}://{self.user}@{self.where.address}:{self.port}{path or self.data}"

    def origin(self, **more: object) -> dict[str, object]:
        """The body of `PUT /v1/origins/ID` for this server (docs/formats/ionode-api.md)."""
        body: dict[str, object] = {
            "kind": "sftp",
            "host": self.where.address,
            "port": self.port,
            "user": self.user,
            "base_path": str(self.data),
            "known_hosts": [str(self.known_hosts)],
            "host_key_alias": None,
            "identity_files": [str(self.identity_file)],
            "identities_only": True,
            "agent_socket": None,
            "connections_max": None,
            "shell_checksum": not self.sftp_only,
        }
        return body | more

    def ssh_config_text(self, alias: str = "lab") -> str:
        """What a user would write into ~/.ssh/config for this server."""
        return (
            f"Host {alias}\n  HostName {self.where.address}\n  Port {self.port}\n  User {self.user}\n  IdentityFile {self.identity_file}\n"
            f"  IdentitiesOnly yes\n  UserKnownHostsFile {self.known_hosts}\n"
        )

    def sftp(self, *commands: str) -> str:
        """The stock sftp client on this server: an independent witness."""
        client = needed_program("sftp", "openssh-client")
        options = [f"-oUserKnownHostsFile={self.known_hosts}", "-oIdentitiesOnly=yes", "-oBatchMode=yes", "-F", "none"]
        there = ["-i", str(self.identity_file), "-P", str(self.port), "-b", "-", f"{self.user}@{self.where.address}"]
        argv = [str(client), "-q", *options, *there]
        return subprocess.run(argv, input="\n".join(commands), check=True, text=True, capture_output=True, timeout=240).stdout


@contextlib.contextmanager
def running_sshd(
    directory: Path, data: Path | None = None, *, sftp_only: bool = False, where: Where = HERE, max_startups: str = "10:30:100"
) -> Iterator[Sshd]:
    server = Sshd(directory, data or directory / "data", sftp_only, where, max_startups)
    server.start()
    try:
        yield server
    finally:
        server.stop()


@contextlib.contextmanager
def running_agent(directory: Path, *keys: Path) -> Iterator[Path]:
    """An ssh-agent that holds these keys; gives its socket."""
    agent, add = needed_program("ssh-agent", "openssh-client"), program("ssh-add")
    socket = directory / "agent.sock"
    server = Server([str(agent), "-D", "-a", str(socket)], directory / "agent.log")
    server.start()
    try:
        wait_until(lambda: is_listening(socket), "ssh-agent to listen")
        subprocess.run([str(add), "-q", *map(str, keys)], check=True, env=os.environ | {"SSH_AUTH_SOCK": str(socket)}, capture_output=True)
        yield socket
    finally:
        server.stop()
