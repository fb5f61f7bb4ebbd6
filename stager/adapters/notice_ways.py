"""The ways to tell somebody: a signed POST, a program, a mail. Blocking, each with an end.

May know: sockets, processes, the references of secrets. One rule: neither a secret nor a URL is in what it raises; of a URL only the host.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import io
import json
import os
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from email.message import EmailMessage
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from urllib.parse import urlsplit

from stager import __version__
from stager.adapters.public_hosts import check_public, look_up
from stager.model.errors import Denied, Transient
from stager.model.notices import Target

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

# HTTP_S: to reach one address, and for all of an answer's head. CONNECT_S: for all addresses together, of which a stranger may name many.
HTTP_S, CONNECT_S, COMMAND_S = 10.0, 20.0, 60.0
ERRORS_BYTES = 4096
# What says that the same again may do later; all else that is no success says no.
LATER = frozenset((408, 425, 429))
TEMPFAIL_EXIT = 75
PASSED = ("PATH", "HOME", "USER", "LOGNAME", "LANG", "LC_ALL", "TZ", "TMPDIR")
SUBJECT_MAX = 150


class Undelivered(Exception):
    """`refused`: the other side answered and does not want it; more tries help seldom."""

    def __init__(self, message: str, *, refused: bool = False) -> None:
        super().__init__(message)
        self.refused = refused


@dataclass(frozen=True, slots=True)
class Ways:
    environ: Mapping[str, str]
    sendmail: str

    def deliver(self, target: Target, notice_id: str, body: bytes, *, public_only: bool = False) -> None:
        """Raises Undelivered. `public_only`: no webhook that is not of the public internet."""
        if target.webhook:
            addresses = public_addresses(target.webhook) if public_only else ()
            post(target.webhook, notice_id, body, secret_of(target.secret, self.environ), addresses)
        elif target.command:
            run(target.command, body, self._environment(body))
        else:
            run((self.sendmail, "-i", "--", target.mail), mail_of(target.mail, notice_id, body), self._passed())

    def _passed(self) -> dict[str, str]:
        return {name: self.environ[name] for name in PASSED if name in self.environ}

    def _environment(self, body: bytes) -> dict[str, str]:
        """Each fact as a variable, for programs that read no JSON."""
        told = json.loads(body)
        named = {f"STAGER_{name.upper()}": value for name, value in (told | told.pop("facts")).items()}
        return self._passed() | {name: str(value).replace("\0", "") for name, value in named.items()}


def secret_of(reference: str, environ: Mapping[str, str]) -> bytes:
    """Read anew for each try: a secret may be changed. Empty: there is none."""
    kind, _, where = reference.partition(":")
    if kind == "env" and not environ.get(where):
        raise Undelivered(f"its secret is to be in the scheduler's environment as {where}, and is not")
    if kind == "env":
        return environ[where].encode()
    if kind != "file":
        return b""
    try:
        found = Path(where).read_bytes().strip()
    except OSError as problem:
        raise Undelivered(f"its secret cannot be read from {where}: {problem.strerror}") from None
    if not found:
        raise Undelivered(f"its secret is to be in {where}, which is empty")
    return found


def signature(secret: bytes, timestamp: str, body: bytes) -> str:
    """Over the time as well, so that nobody can send an old notice again."""
    return "v1=" + hmac.new(secret, timestamp.encode() + b"." + body, hashlib.sha256).hexdigest()


def public_addresses(webhook: str) -> Sequence[str]:
    """The addresses to call it at: asked for once, and called by, so that its name cannot mean something else meanwhile."""
    host = urlsplit(webhook).hostname or ""
    try:
        found = look_up(host)
        check_public(host, lambda _: found)
    except Transient:
        raise Undelivered(f"{host} is not known here") from None
    except Denied:
        raise Undelivered(f"{host} is not of the public internet", refused=True) from None
    return found


class AtAddresses(http.client.HTTPSConnection):
    """To a host at the first of these addresses that answers, and at no other: not each machine reaches those of IPv6."""

    def __init__(self, host: str, port: int, addresses: Sequence[str], context: ssl.SSLContext) -> None:
        super().__init__(host, port, timeout=HTTP_S, context=context)
        self.addresses, self.of_host = addresses, context

    def connect(self) -> None:
        self.sock = self.of_host.wrap_socket(self.reached(), server_hostname=self.host)

    def reached(self) -> socket.socket:
        end, problem = time.monotonic() + CONNECT_S, OSError("it has no address")
        for address in self.addresses:
            left_s = end - time.monotonic()
            if left_s <= 0:
                break
            try:
                plain = socket.create_connection((address, self.port), min(HTTP_S, left_s))
            except OSError as found:
                problem = found
                continue
            plain.settimeout(HTTP_S)
            return plain
        raise problem


class Until(io.RawIOBase):
    """The bytes that come over a socket until a time. By itself a socket waits as long for each of them."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        super().__init__()
        self.sock, self.end = sock, end

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        left_s = self.end - time.monotonic()
        if left_s <= 0:
            raise TimeoutError
        self.sock.settimeout(left_s)
        return self.sock.recv_into(buffer)


class Head(http.client.HTTPResponse):
    """An answer whose head has to be there at a time. Its body says nothing, and is not read."""

    def __init__(self, sock: socket.socket, end: float) -> None:
        super().__init__(sock, method="POST")
        self.fp.close()
        self.fp = io.BufferedReader(Until(sock, end))


def post(webhook: str, notice_id: str, body: bytes, secret: bytes, addresses: Sequence[str] = ()) -> None:
    """Follows no redirection and uses no proxy: the signed words are for whom the file names. `addresses`: where its host is."""
    url = urlsplit(webhook)
    timestamp = str(int(time.time()))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"stager/{__version__}",
        "Stager-Notice": notice_id,
        "Stager-Timestamp": timestamp,
    }
    if secret:
        headers["Stager-Signature"] = signature(secret, timestamp, body)
    host = url.hostname or ""
    connection: http.client.HTTPConnection
    try:
        # Without it http.client takes the end of an IPv6 address for it.
        port = url.port or (443 if url.scheme == "https" else 80)
        if addresses:
            connection = AtAddresses(host, port, addresses, ssl.create_default_context())
        elif url.scheme == "https":
            connection = http.client.HTTPSConnection(host, port, timeout=HTTP_S, context=ssl.create_default_context())
        else:
            connection = http.client.HTTPConnection(host, port, timeout=HTTP_S)
        try:
            connection.request("POST", (url.path or "/") + (f"?{url.query}" if url.query else ""), body, headers)
            answer = Head(connection.sock, time.monotonic() + HTTP_S)
            answer.begin()
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError) as problem:
        raise Undelivered(f"{host} does not answer: {reason(problem)}") from None
    if not 200 <= answer.status < 300:
        raise Undelivered(f"{host} answers {answer.status}", refused=300 <= answer.status < 500 and answer.status not in LATER)


def reason(problem: Exception) -> str:
    """Without what was asked for."""
    if isinstance(problem, (TimeoutError, socket.timeout)):
        return f"no whole answer in {HTTP_S:g} s"
    if isinstance(problem, ssl.SSLError):
        return f"TLS: {problem.reason or 'the certificate is not accepted'}"
    return getattr(problem, "strerror", None) or type(problem).__name__


def run(words: tuple[str, ...], given: bytes, environment: dict[str, str]) -> None:
    """Without a shell. What it started ends with it where it takes too long; a mail program may leave something behind that goes on."""
    try:
        # A file: the end of a pipe comes when the last of those that it left behind has ended.
        with tempfile.TemporaryFile() as errors:
            status = ended(words, given, environment, errors)
            errors.seek(max(0, errors.seek(0, os.SEEK_END) - ERRORS_BYTES))
            last = errors.read().decode(errors="replace").strip().rpartition("\n")[2]
    except OSError as problem:
        raise Undelivered(f"{words[0]} cannot be started: {problem.strerror}") from None
    if status:
        said = f": {last[:120]}" if last else ""
        raise Undelivered(f"{words[0]} ended with {status}{said}", refused=status != TEMPFAIL_EXIT)


def ended(words: tuple[str, ...], given: bytes, environment: dict[str, str], errors: IO[bytes]) -> int:
    process = subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=errors,
        env=environment,
        cwd="/",
        start_new_session=True,
    )
    try:
        process.communicate(given, timeout=COMMAND_S)
    except subprocess.TimeoutExpired:
        raise Undelivered(f"{words[0]} did not end in {COMMAND_S:g} s") from None
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    return process.returncode


def mail_of(address: str, notice_id: str, body: bytes) -> bytes:
    told: dict[str, Any] = json.loads(body)
    message = EmailMessage()
    message["To"] = address
    message["Subject"] = one_line(f"stager: {told['text']}")[:SUBJECT_MAX]
    message["Stager-Notice"] = notice_id
    message["Auto-Submitted"] = "auto-generated"
    facts = told.pop("facts")
    lines = [f"{name}: {one_line(str(value))}" for name, value in (told | facts).items() if value != "" and name != "text"]
    message.set_content("\n".join([one_line(told["text"]), "", *lines, ""]))
    return message.as_bytes()


def one_line(text: str) -> str:
    return "".join([letter if letter.isprintable() else " " for letter in text])
