"""Talks with what was sent to another host (`far_side`), over one ssh session.

May know: ssh_link, far_side's words. One rule: no word of ours but the name of a Python is in a command line there, and what start files
print is taken for no answer.
"""

from __future__ import annotations

import base64
import errno
import inspect
import json
import re
import secrets
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from stager.adapters import far_side
from stager.adapters.own_software import Software
from stager.adapters.ssh_link import SshLink
from stager.model.errors import Denied, InvalidInput, Refused, StagerError, Transient

# Words that every shell takes as they are: sh, csh and fish differ in all the rest.
PLAIN = re.compile(r"[A-Za-z0-9._/+-]+", re.ASCII)
BEGIN = "import sys;exec(sys.stdin.buffer.readline())"
OLDEST = (3, 8)
ANSWER_DEADLINE_S = 120.0
NOISE_BYTES_MAX = 1 << 20
LAST_WORDS = 500
PACKED_AT = 1


class FarHost:
    """`program`: of its Python."""

    def __init__(self, link: SshLink, channel: Any, program: str) -> None:
        self.link, self.channel, self.program = link, channel, program
        self.stream = channel.makefile("rb")
        self.mark = secrets.token_hex(16)
        self.noise = b""

    def begin(self) -> None:
        source = base64.b64encode(zlib.compress(inspect.getsource(far_side).encode())).decode()
        text = (
            f"import sys\nif sys.version_info < {OLDEST}:\n"
            f'    sys.stdout.write("\\n{self.mark} {{\\"problem\\": \\"old\\", \\"python\\": \\"%d.%d\\"}}\\n" % sys.version_info[:2])\n'
            f"else:\n    import base64, zlib\n    space = {{'__name__': 'far_side'}}\n"
            f"    exec(compile(zlib.decompress(base64.b64decode('{source}')), 'far_side', 'exec'), space)\n"
            f"    space['serve']('{self.mark}')\n"
        )
        self.channel.sendall(f"exec({text!r})\n".encode())

    def ask(self, what: str, wait_s: float = ANSWER_DEADLINE_S, **more: Any) -> dict[str, Any]:
        self._send(json.dumps({"do": what, **more}).encode() + b"\n")
        return self._answer(wait_s)

    def put(self, root: str, software: Software, numbers: Sequence[int], tell: Callable[[int], None]) -> None:
        """`tell` hears of the bytes that are sent, packed, as they go."""
        packed = [zlib.compress(software.files[number].data, PACKED_AT) for number in numbers]
        told = [
            {
                "path": software.files[number].path,
                "sha256": software.digests[number],
                "mode": software.files[number].mode,
                "sent_bytes": len(data),
            }
            for number, data in zip(numbers, packed, strict=True)
        ]
        self._send(json.dumps({"do": "put", "root": root, "software": software.name, "files": told}).encode() + b"\n")
        for data in packed:
            if not self._send(data):
                break
            tell(len(data))
        self._answer(ANSWER_DEADLINE_S)

    def run(self, root: str, words: Sequence[str], given: str = "", deadline_s: float = 240.0) -> tuple[int, str, str]:
        """`given` goes over ssh to the standard input of that program, and nowhere else."""
        said = self.ask("run", deadline_s + ANSWER_DEADLINE_S, root=root, words=list(words), input=given, deadline_s=deadline_s)
        return said["code"], said["out"], said["err"]

    def _send(self, data: bytes) -> bool:
        """False: nobody takes it any more, and an answer says why."""
        try:
            self.channel.settimeout(ANSWER_DEADLINE_S)
            self.channel.sendall(data)
            return True
        except TimeoutError as problem:
            raise self._late(ANSWER_DEADLINE_S) from problem
        except OSError:
            return False

    def _answer(self, deadline_s: float) -> dict[str, Any]:
        self.channel.settimeout(deadline_s)
        mark = self.mark.encode() + b" "
        try:
            for line in self.stream:
                if line.startswith(mark):
                    answer: dict[str, Any] = json.loads(line[len(mark) :])
                    if "problem" in answer:
                        raise self._problem(answer)
                    return answer
                self.noise = (self.noise + line)[-NOISE_BYTES_MAX:]
        except TimeoutError as problem:
            raise self._late(deadline_s) from problem
        raise self._ended()

    def _problem(self, answer: Mapping[str, Any]) -> StagerError:
        where, subject = self.link.endpoint, str(self.link.endpoint)
        if answer["problem"] == "busy":
            return Refused(f"another command brings {where} up just now", code="busy", subject=subject)
        if answer["problem"] == "old":
            text = f"{self.program} on {where} is Python {answer['python']}"
            return Refused(f"{text}; name one like the one here with --python", code="python_differs", subject=subject)
        text = f"{where}: {answer['path']}: {answer['text']}"
        if answer["errno"] in (errno.EACCES, errno.EPERM, errno.EROFS):
            return Denied(f"{text}; give a directory that {where.user} may write", code="denied", subject=subject)
        if answer["errno"] in (errno.ENOSPC, errno.EDQUOT):
            return Refused(f"{text}; free some space there, or name a directory on another disk", code="no_space", subject=subject)
        return Transient(text, code="io_error", subject=subject)

    def _late(self, deadline_s: float) -> Transient:
        text = f"{self.link.endpoint} does not answer for {deadline_s:.0f} s"
        return Transient(f"{text}; does `ssh {self.link.endpoint.given} true` end there?", code="timeout", subject=str(self.link.endpoint))

    def _ended(self) -> StagerError:
        where, subject = self.link.endpoint, str(self.link.endpoint)
        self.channel.settimeout(ANSWER_DEADLINE_S)
        status, words = self.channel.recv_exit_status(), last_words(self.channel.makefile_stderr("rb").read() or self.noise)
        if status == 127 or "not found" in words.lower():
            return Missing(f"there is no {self.program} for {where.user} on {where.host}: {words}", code="python_missing", subject=subject)
        if status == -1:
            return Transient(f"the connection to {where} broke off: {words}", code="connection_lost", subject=subject)
        text = f"{self.program} on {where} ended with {status}: {words or 'it said nothing'}"
        return Refused(f"{text}; the account has to have a shell", code="far_side", subject=subject)


class Missing(Refused):
    """There is no such Python."""


@contextmanager
def far_host(link: SshLink, program: str) -> Iterator[FarHost]:
    """Raises InvalidInput where a shell might take the program's name for something else."""
    if not PLAIN.fullmatch(program) or program.startswith("-"):
        raise InvalidInput(f"--python {program!r} may hold letters, digits and ._/+- only", subject="python")
    channel = link.transport.open_session(timeout=ANSWER_DEADLINE_S)
    try:
        channel.exec_command(f"{program} -I -c '{BEGIN}'")
        far = FarHost(link, channel, program)
        far.begin()
        yield far
    finally:
        channel.close()


def last_words(data: bytes) -> str:
    return data[-LAST_WORDS:].decode(errors="replace").strip()
