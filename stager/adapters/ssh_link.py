"""A connection to another host by ssh, as OpenSSH would make it: its settings from `ssh -G`, its keys, its agent, its jump hosts.

May know: paramiko, which is imported when a connection is made, and OpenSSH's own programs. One rule: nothing is sent to a host whose key
is not in known_hosts, whatever the configuration says of that.
"""

from __future__ import annotations

import base64
import contextlib
import getpass
import hashlib
import logging
import re
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from stager.adapters.ssh_config import agent_socket, config_words, expanded, split_paths, ssh_settings
from stager.model.errors import Denied, InvalidInput, Refused, Transient

CONNECT_DEADLINE_S = 20.0
KEEPALIVE_S = 15
HOST = re.compile(r"[A-Za-z0-9._:%-]+", re.ASCII)
# What OpenSSH takes in no user either: a ProxyCommand has it in a line for a shell.
NOT_IN_USER = re.compile(r"[\s'`\"$\\;&<>|(){}]|^-")
ALGORITHMS = {"ssh-rsa": ("rsa-sha2-512", "rsa-sha2-256")}
WORD_OF = {"%h": "host", "%n": "given", "%p": "port", "%r": "user", "%%": "percent"}


@dataclass(frozen=True, slots=True)
class SshTarget:
    """As a person wrote it: the host may be an alias of their configuration. `path`: empty where none was named."""

    host: str
    port: int | None = None
    user: str | None = None
    path: str = ""

    @classmethod
    def of(cls, url: str) -> SshTarget:
        """Raises InvalidInput."""
        parts = urlsplit(url)
        form = "write ssh://USER@HOST[:PORT][/STORE/DIRECTORY]"
        if parts.password is not None:
            raise InvalidInput(f"take the password out of the URL; use an ssh key or agent; {form}", subject="url")
        try:
            port = parts.port
        except ValueError:
            raise InvalidInput(f"the port in {url!r} is none; {form}", subject="url") from None
        if parts.scheme != "ssh" or not parts.hostname or parts.query or parts.fragment:
            raise InvalidInput(f"{url!r} is no address of an ssh server; {form}", subject="url")
        # urlsplit has it in lower case; aliases of a configuration may be in any.
        host = re.sub(r":\d*$", "", parts.netloc.rpartition("@")[2]) if "[" not in parts.netloc else parts.hostname
        user = unquote(parts.username) if parts.username else None
        if not HOST.fullmatch(host) or host.startswith("-") or NOT_IN_USER.search(user or ""):
            raise InvalidInput(f"{url!r} names no host and user that ssh could take; {form}", subject="url")
        path = unquote(parts.path).rstrip("/")
        if not path.isprintable():
            raise InvalidInput(f"the directory in {url!r} has control characters; choose another", subject="url")
        return cls(host, port, user, path)

    def __str__(self) -> str:
        return f"{self.user}@{self.host}" if self.user else self.host


@dataclass(frozen=True, slots=True)
class Endpoint:
    """What the target is in the end. `name`: by which known_hosts knows its key."""

    given: str
    host: str
    port: int
    user: str
    name: str

    @classmethod
    def of(cls, target: SshTarget, said: Mapping[str, list[str]]) -> Endpoint:
        host, port = said.get("hostname", [target.host])[0], int(said.get("port", ["22"])[0])
        alias = said.get("hostkeyalias", ["none"])[0]
        name = alias if alias not in ("none", "") else host if port == 22 else f"[{host}]:{port}"
        return cls(target.host, host, port, said.get("user", [target.user or getpass.getuser()])[0], name.lower())

    def __str__(self) -> str:
        return f"{self.user}@{self.host}:{self.port}" if ":" not in self.host else f"{self.user}@[{self.host}]:{self.port}"


@dataclass(slots=True)
class SshLink:
    """A connection whose host is who it should be, and that lets us in."""

    endpoint: Endpoint
    transport: Any


@contextlib.contextmanager
def ssh_link(target: SshTarget, environ: Mapping[str, str]) -> Iterator[SshLink]:
    """Raises InvalidInput, Refused, Denied or Transient with what to do."""
    paramiko = need_paramiko()
    said = ssh_settings(target.host, target.port, target.user, environ, str(target), target.host)
    endpoint = Endpoint.of(target, said)
    files = [Path(expanded(path, environ)) for path in split_paths(said, "userknownhostsfile", "globalknownhostsfile")]
    known = known_keys(endpoint.name, files)
    with contextlib.ExitStack() as stack:
        way = Way(endpoint, said, environ)
        plain = stack.enter_context(way.opened())
        transport = paramiko.Transport(plain)
        stack.callback(transport.close)
        transport.banner_timeout = transport.auth_timeout = CONNECT_DEADLINE_S
        options = transport.get_security_options()
        first = [algorithm for key in known for algorithm in ALGORITHMS.get(key.kind, (key.kind,)) if algorithm in options.key_types]
        options.key_types = list(dict.fromkeys([*first, *options.key_types]))
        try:
            transport.start_client(timeout=CONNECT_DEADLINE_S)
        except (paramiko.SSHException, OSError, EOFError) as problem:
            text = f"no ssh server answers at {endpoint}: {way.words() or problem}"
            raise Transient(text, code="connection_lost", subject=target.host) from problem
        shown = transport.get_remote_server_key()
        check_host_key(endpoint, shown.get_name(), shown.asbytes(), known, files)
        authenticate(transport, endpoint, said, environ)
        transport.set_keepalive(KEEPALIVE_S)
        yield SshLink(endpoint, transport)


def need_paramiko() -> Any:
    """Raises InvalidInput that says what to install."""
    try:
        import paramiko
    except ImportError as problem:
        text = "other hosts are reached with paramiko, which is not installed here; `pip install 'stager[cluster]'`"
        raise InvalidInput(text, code="not_installed", subject="paramiko") from problem
    # It logs the tracebacks of what it raises, too.
    logging.getLogger("paramiko").setLevel(logging.CRITICAL)
    return paramiko


class Way:
    """How packets get there: straight, by a jump host, or by a program that the configuration names."""

    def __init__(self, endpoint: Endpoint, said: Mapping[str, list[str]], environ: Mapping[str, str]) -> None:
        self.endpoint, self.said, self.environ = endpoint, said, environ
        self.log: IO[bytes] | None = None

    @contextlib.contextmanager
    def opened(self) -> Iterator[socket.socket]:
        argv = self.program()
        if argv is None:
            try:
                straight = socket.create_connection((self.endpoint.host, self.endpoint.port), timeout=CONNECT_DEADLINE_S)
            except OSError as problem:
                text = f"nothing answers at {self.endpoint}: {problem.strerror or problem}"
                raise Transient(
                    f"{text}; is the host on, and its ssh port open?", code="connection_lost", subject=str(self.endpoint)
                ) from problem
            with straight:
                yield straight
            return
        ours, theirs = socket.socketpair()
        with ours, tempfile.TemporaryFile() as self.log:
            with theirs:
                child = subprocess.Popen(
                    argv, stdin=theirs.fileno(), stdout=theirs.fileno(), stderr=self.log, env=dict(self.environ), start_new_session=True
                )
            try:
                yield ours
            finally:
                child.terminate()
                child.wait()

    def program(self) -> list[str] | None:
        """None: there is none. A jump host is reached by ssh itself, which never asks anything here."""
        jump = self.said.get("proxyjump", ["none"])[0]
        if jump.lower() not in ("none", ""):
            *before, last = jump.split(",")
            host, port = self.endpoint.host, self.endpoint.port
            words = ["ssh", *config_words(self.environ), "-o", "BatchMode=yes", *(["-J", ",".join(before)] if before else [])]
            return [*words, "-W", f"[{host}]:{port}", "--", last if last.startswith("ssh://") else f"ssh://{last}"]
        command = self.said.get("proxycommand", ["none"])[0]
        if command.lower() in ("none", ""):
            return None
        facts = {"host": self.endpoint.host, "given": self.endpoint.given, "port": str(self.endpoint.port), "user": self.endpoint.user}
        whole = re.sub("%[hnpr%]", lambda found: ({**facts, "percent": "%"})[WORD_OF[found[0]]], command)
        # It is of the person's own configuration, and a line for their shell, as for OpenSSH.
        return [self.environ.get("SHELL") or "/bin/sh", "-c", f"exec {whole}"]

    def words(self) -> str:
        """What that program said last."""
        if self.log is None:
            return ""
        self.log.seek(0)
        return self.log.read()[-500:].decode(errors="replace").strip()


@dataclass(frozen=True, slots=True)
class KnownKey:
    kind: str
    blob: bytes
    is_revoked: bool = False


def known_keys(name: str, files: list[Path]) -> list[KnownKey]:
    """Found by OpenSSH's own rules: hashed names, patterns, marks. Authorities of certificates are left out."""
    found = []
    for path in files:
        if not path.is_file():
            continue
        argv = ["ssh-keygen", "-F", name, "-f", str(path)]
        try:
            done = subprocess.run(argv, capture_output=True, text=True, errors="replace", timeout=CONNECT_DEADLINE_S, check=False)
        except (OSError, subprocess.TimeoutExpired) as problem:
            raise Refused(f"`ssh-keygen -F` cannot be run ({problem}); install the OpenSSH client", code="unsupported") from problem
        for line in done.stdout.splitlines():
            words = line.split()
            mark = words.pop(0) if words and words[0].startswith("@") else ""
            if len(words) < 3 or words[0].startswith("#") or mark == "@cert-authority":
                continue
            with contextlib.suppress(ValueError):
                found.append(KnownKey(words[1], base64.b64decode(words[2], validate=True), mark == "@revoked"))
    return found


def check_host_key(endpoint: Endpoint, kind: str, blob: bytes, known: list[KnownKey], files: list[Path]) -> None:
    """Raises Denied with the fingerprint that the host shows."""
    shown = f"{kind} {fingerprint_of(blob)}"
    same = [key for key in known if key.blob == blob]
    if any(key.is_revoked for key in same):
        raise Denied(f"the key {shown} of {endpoint} is marked as revoked in known_hosts", code="host_key_changed", subject=endpoint.given)
    if same:
        return
    places = ", ".join(map(str, files)) or "no file"
    if known:
        held = ", ".join(f"{key.kind} {fingerprint_of(key.blob)}" for key in known)
        text = f"the key of {endpoint} is not the one in {places}: it shows {shown}, and {held} is known"
        advice = f"somebody may be in between, or it was installed anew. If so: ssh-keygen -R '{endpoint.name}', then add its new key"
        raise Denied(f"{text}; {advice}", code="host_key_changed", subject=endpoint.given)
    text = f"the key of {endpoint} is unknown: it shows {shown}, and {places} has none for {endpoint.name}"
    advice = "on that host `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints the right one (of an rsa or ecdsa key, with that name)"
    add = f"if they are the same: ssh-keyscan -p {endpoint.port} {endpoint.host} >> ~/.ssh/known_hosts"
    raise Denied(f"{text}; {advice}; {add}", code="host_key_unknown", subject=endpoint.given)


def fingerprint_of(blob: bytes) -> str:
    """As ssh-keygen prints it."""
    return "SHA256:" + base64.b64encode(hashlib.sha256(blob).digest()).decode().rstrip("=")


def authenticate(transport: Any, endpoint: Endpoint, said: Mapping[str, list[str]], environ: Mapping[str, str]) -> None:
    """By each key in turn, those that the configuration names first. Raises Denied that names what was tried."""
    paramiko = need_paramiko()
    keys = KeyRing(said, environ)
    tried = []
    try:
        for label, key in keys.keys():
            tried.append(label)
            try:
                if not transport.auth_publickey(endpoint.user, key):
                    return
                text = f"{endpoint} takes the key {label}, and then asks for more, such as a code, which stager cannot give"
                raise Denied(text, code="auth_failed", subject=endpoint.given)
            except paramiko.AuthenticationException:
                continue
    except (paramiko.SSHException, EOFError, OSError):
        # It has hung up after too many.
        tried.append("no more of them, since it hung up")
    finally:
        keys.close()
    what = f"it took none of {', '.join(tried)}" if tried else "there is no key to show"
    locked = f"; {', '.join(keys.locked)} wants a passphrase: ssh-add it" if keys.locked else ""
    advice = f"`ssh -o BatchMode=yes {endpoint.given} true` has to work first: ssh-copy-id adds a key there"
    raise Denied(f"{endpoint} does not let us in: {what}{locked}; {advice}", code="auth_failed", subject=endpoint.given)


class KeyRing:
    """Keys of the agent and of files. `locked`: files that want a passphrase."""

    def __init__(self, said: Mapping[str, list[str]], environ: Mapping[str, str]) -> None:
        self.files = [Path(expanded(path, environ)) for path in split_paths(said, "identityfile")]
        self.only = said.get("identitiesonly", ["no"])[0] == "yes"
        self.locked: list[str] = []
        self.agent: Any = None
        self.held: dict[bytes, Any] = {}
        path = agent_socket(said, environ)
        if path is not None:
            self._ask_agent(path)

    def _ask_agent(self, path: str) -> None:
        from paramiko.agent import AgentSSH

        connected = socket.socket(socket.AF_UNIX)
        try:
            connected.connect(path)
            self.agent = AgentSSH()
            self.agent._connect(connected)
            self.held = {key.asbytes(): key for key in self.agent.get_keys()}
        except Exception:  # an agent that is gone or speaks otherwise gives no keys, as for ssh
            connected.close()

    def keys(self) -> Iterator[tuple[str, Any]]:
        left = dict(self.held)
        for path in self.files:
            named = left.pop(public_blob(path), None)
            if named is not None:
                yield f"{path} (agent)", named
            elif (key := self._read(path)) is not None:
                left.pop(key.asbytes(), None)
                yield str(path), key
        if not self.only:
            for number, key in enumerate(left.values(), 1):
                yield f"key {number} of the agent", key

    def _read(self, path: Path) -> Any:
        paramiko = need_paramiko()
        try:
            return paramiko.PKey.from_path(path)
        except (FileNotFoundError, PermissionError, IsADirectoryError):
            return None
        except (TypeError, paramiko.PasswordRequiredException):
            self.locked.append(str(path))
        except (paramiko.SSHException, ValueError):
            return None
        return None

    def close(self) -> None:
        if self.agent is not None:
            self.agent._close()


def public_blob(path: Path) -> bytes:
    """Of the file beside a key; empty where there is none."""
    try:
        return base64.b64decode(path.with_name(f"{path.name}.pub").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return b""
