"""What runs on another host while it is brought up by ssh: this file is sent there, and executed by whatever Python 3.8 or newer is there.

May know: the standard library. One rule: it does what it is asked over its standard input and ends with it; nothing that it is told is in
a command line or a file, but for the files that it is given to keep.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import pwd
import shutil
import ssl
import subprocess
import sys
import zlib
from typing import Any, BinaryIO

BLOCK_BYTES = 1 << 20
LAST_WORDS_BYTES = 4000
# Of whoever logs in there: they would change which Python and which stager this one runs.
OTHERS_VARIABLES = ("PYTHON", "STAGER_")


class Busy(Exception):
    pass


class FarSide:
    def __init__(self, mark: str, requests: BinaryIO, answers: BinaryIO) -> None:
        self.mark, self.requests, self.answers = mark.encode(), requests, answers
        self.lock = -1

    def serve(self) -> None:
        for line in self.requests:
            request = json.loads(line)
            try:
                answer = getattr(self, "do_" + request["do"])(request)
            except Busy:
                answer = {"problem": "busy"}
            except OSError as problem:
                answer = {"problem": "os", "errno": problem.errno, "text": problem.strerror, "path": problem.filename}
            # What start files printed may have left a line open.
            self.answers.write(b"\n" + self.mark + b" " + json.dumps(answer).encode() + b"\n")
            self.answers.flush()
            if "problem" in answer:
                return

    def do_look(self, request: dict[str, Any]) -> dict[str, Any]:
        """Nothing is changed. `root` empty: the directory that `stager host join` takes by itself."""
        root = request["root"] or default_root()
        software = os.path.join(root, "software", request["software"])
        return {
            "root": root,
            "python": list(sys.version_info[:2]),
            "program": sys.executable,
            "machine": platform.machine(),
            "user": pwd.getpwuid(os.getuid()).pw_name,
            "free_bytes": shutil.disk_usage(nearest(root)).free,
            "record": read_json(os.path.join(root, "host.json")),
            "ca_sha256": authority_of(root),
            "is_kept": is_held(os.path.join(root, "keeper.lock")),
            "current": current_of(root),
            "unit": unit_of(root),
            "lacks": [number for number, each in enumerate(request["files"]) if not is_whole(software, each)],
        }

    def do_put(self, request: dict[str, Any]) -> dict[str, Any]:
        """Files follow on the line, each packed. One is there whole, or as it was before."""
        root = request["root"]
        self._hold(root)
        software = os.path.join(root, "software", request["software"])
        make_environment(software)
        for each in request["files"]:
            self._take(software, each)
        return {}

    def _take(self, software: str, each: dict[str, Any]) -> None:
        path = os.path.join(software, each["path"])
        os.makedirs(os.path.dirname(path), exist_ok=True)
        made, unpack, digest, left = path + ".new", zlib.decompressobj(), hashlib.sha256(), each["sent_bytes"]
        with open(made, "wb") as stream:
            while left:
                block = self.requests.read(min(left, BLOCK_BYTES))
                if not block:
                    raise OSError(0, "the connection ended in the middle", path)
                left -= len(block)
                data = unpack.decompress(block)
                digest.update(data)
                stream.write(data)
            stream.write(unpack.flush())
            os.fchmod(stream.fileno(), each["mode"])
        if digest.hexdigest() != each["sha256"]:
            os.unlink(made)
            raise OSError(0, "did not arrive as it was sent", path)
        os.replace(made, path)

    def do_run(self, request: dict[str, Any]) -> dict[str, Any]:
        """`input`: for its standard input, and nowhere else."""
        self._hold(request["root"])
        own = {name: value for name, value in os.environ.items() if not name.startswith(OTHERS_VARIABLES)}
        # `systemctl --user` asks for it, and not every ssh server sets it.
        own.setdefault("XDG_RUNTIME_DIR", f"/run/user/{os.getuid()}")
        try:
            done = subprocess.run(
                request["words"],
                input=request["input"].encode(),
                capture_output=True,
                env=own,
                cwd="/",
                timeout=request["deadline_s"],
            )
        except subprocess.TimeoutExpired:
            return {"code": -1, "out": "", "err": f"it did not end in {request['deadline_s']:.0f} s"}
        return {"code": done.returncode, "out": text_of(done.stdout), "err": text_of(done.stderr[-LAST_WORDS_BYTES:])}

    def do_use(self, request: dict[str, Any]) -> dict[str, Any]:
        """This software is what runs here now. What no process runs any more is removed."""
        root, name = request["root"], request["software"]
        place = os.path.join(root, "software")
        made = os.path.join(place, "current.new")
        if os.path.lexists(made):
            os.unlink(made)
        os.symlink(name, made)
        os.replace(made, os.path.join(place, "current"))
        for each in os.listdir(place):
            path = os.path.join(place, each)
            if each not in (name, "current") and os.path.isdir(path) and not os.path.islink(path) and not is_run(path):
                shutil.rmtree(path, ignore_errors=True)
        return {}

    def _hold(self, root: str) -> None:
        """One at a time, until this program ends."""
        if self.lock >= 0:
            return
        os.makedirs(root, mode=0o700, exist_ok=True)
        place = os.path.join(root, "software")
        os.makedirs(place, mode=0o700, exist_ok=True)
        self.lock = os.open(os.path.join(place, "lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(self.lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Busy() from None


def default_root() -> str:
    home = os.environ.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir
    return os.path.join(os.environ.get("XDG_STATE_HOME") or os.path.join(home, ".local", "state"), "stager-node")


def nearest(path: str) -> str:
    """Of the directories above it, the lowest that is there."""
    while not os.path.isdir(path) and path != "/":
        path = os.path.dirname(path)
    return path or "/"


def read_json(path: str) -> Any:
    try:
        with open(path, "rb") as stream:
            return json.load(stream)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None


def authority_of(root: str) -> str:
    """The digest of the certificate of the cluster that this host has joined; empty where it has joined none."""
    try:
        with open(os.path.join(root, "tls", "ca.pem")) as stream:
            return hashlib.sha256(ssl.PEM_cert_to_DER_cert(stream.read())).hexdigest()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return ""


def is_held(path: str) -> bool:
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    finally:
        os.close(handle)


def current_of(root: str) -> str:
    try:
        return os.readlink(os.path.join(root, "software", "current"))
    except OSError:
        return ""


def unit_of(root: str) -> str:
    """`user` or `system`, of the unit by which systemd starts the host of this directory; empty where there is none."""
    own = os.environ.get("XDG_CONFIG_HOME") or os.path.join(os.environ.get("HOME", "/"), ".config")
    for kind, place in (("user", os.path.join(own, "systemd", "user")), ("system", "/etc/systemd/system")):
        try:
            with open(os.path.join(place, "stager-host.service")) as stream:
                if f'"--store" "{root}"' in stream.read():
                    return kind
        except OSError:
            continue
    return ""


def is_whole(software: str, each: list[Any]) -> bool:
    """`each`: path, size, digest, mode."""
    name, size_bytes, digest, mode = each
    path = os.path.join(software, name)
    try:
        about = os.lstat(path)
        if about.st_size != size_bytes or about.st_mode & 0o7777 != mode:
            return False
        found = hashlib.sha256()
        with open(path, "rb") as stream:
            for block in iter(lambda: stream.read(BLOCK_BYTES), b""):
                found.update(block)
    except OSError:
        return False
    return found.hexdigest() == str(digest)


def make_environment(software: str) -> None:
    """A virtual environment of this Python, without pip: a link and three lines."""
    base = getattr(sys, "_base_executable", None) or sys.executable
    os.makedirs(os.path.join(software, "bin"), mode=0o700, exist_ok=True)
    text = f"home = {os.path.dirname(base)}\ninclude-system-site-packages = false\nversion = {platform.python_version()}\n"
    with open(os.path.join(software, "pyvenv.cfg"), "w") as stream:
        stream.write(text)
    link = os.path.join(software, "bin", "python")
    if os.path.lexists(link):
        os.unlink(link)
    os.symlink(base, link)


def is_run(path: str) -> bool:
    """A process of ours runs a program from there."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as stream:
                if path.encode() + b"/" in stream.read():
                    return True
        except OSError:
            continue
    return False


def text_of(data: bytes) -> str:
    return data.decode("utf-8", "replace")


def serve(mark: str) -> None:
    """What children print goes where nobody takes it for an answer."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    FarSide(mark, sys.stdin.buffer, answers).serve()
