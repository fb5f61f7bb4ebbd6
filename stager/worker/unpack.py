"""`python -m stager.worker.unpack IMAGE DIRECTORY`: unpacks an image into the directory of its identity, and prints where that is.

May know: image files, one directory. A process of its own, in which an image can do no harm: layers are unpacked with the new directory
as root directory. One rule: a directory of that name is whole; whatever ends before that leaves another name.
"""

from __future__ import annotations

import ctypes
import fcntl
import gzip
import hashlib
import json
import os
import re
import shutil
import stat
import subprocess
import sys
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from stager.model.errors import Refused, StagerError, Transient
from stager.worker.container import SANDBOX_AT
from stager.worker.image_file import VARIABLE, Archive, ImageFile, Layer, image_of, invalid, plain, require_architecture
from stager.worker.installing import is_full
from stager.worker.kept_directory import FRESH, is_whole, locked, used_now
from stager.worker.removal import remove_tree

TOLD = "image.json"
ROOT = "root"
# What the reaper mounts (ionode/reaper/src/container.rs).
DIRECTORIES = ("proc", "sys", "dev", "tmp", "var/tmp", SANDBOX_AT[1:])
FILES = ("etc/resolv.conf", "etc/hosts")
WHITEOUT, OPAQUE = ".wh.", ".wh..wh..opq"
NEW_USER, NEW_MOUNTS = 0x10000000, 0x00020000
PIECE_BYTES = 1 << 20
GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
# How SIF files that were made of Docker images set theirs.
EXPORT = re.compile(r"""\s*export\s+([A-Za-z_]\w*)=(["']?)(.*)\2\s*""")
DEFAULTED = re.compile(r"""\$\{[A-Za-z_]\w*:-"?([^"}]*)"?\}""")
SCRIPT_BYTES_MAX = 1 << 20
# What readers of archives raise over what they read. One is an OSError too.
DAMAGES = (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, ValueError, OverflowError, RecursionError)
ENDED_CODE, NOT_UNPACKED_CODE = "image_unpack_ended", "image_not_unpacked"
# Asked before any namespace is entered.
OWNS_ALL = os.geteuid() == 0


def unpacked(path: Path, directory: Path) -> dict[str, Any]:
    """Raises StagerError."""
    image = image_of(path)
    require_architecture(image)
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    place = directory / image.identity
    with locked(place, fcntl.LOCK_EX):
        if is_whole(place, TOLD):
            # So that it stays until an attempt names it.
            used_now(place)
        else:
            for left in directory.glob(f"{FRESH}{image.identity}.*"):
                remove_tree(left)
            fresh = directory / f"{FRESH}{image.identity}.{os.getpid()}"
            try:
                unpack(image, path, fresh)
                # Of one that lost its note nobody knows what else it lost.
                remove_tree(place)
                os.rename(fresh, place)
            except BaseException:
                remove_tree(fresh)
                raise
    told: dict[str, Any] = json.loads((place / TOLD).read_text())
    return {"root_dir": str(place / ROOT)} | told


def unpack(image: ImageFile, path: Path, place: Path) -> None:
    root = place / ROOT
    root.mkdir(parents=True)
    # Whatever this process may leave to others: programs in it may run as another user.
    root.chmod(0o755)
    env = dict(image.env)
    if image.squashfs is None:
        with path.open("rb") as archive:
            in_root(root, lambda: unpack_layers(image.layers, archive))
    else:
        unsquash(path, image.squashfs, root)
        in_root(root, make_mount_points)
        env |= sif_variables(root)
    (place / TOLD).write_text(json.dumps({"env": env}))
    # Before it has its name: a power cut leaves no half of it behind.
    os.sync()


def in_root(root: Path, work: Callable[[], None]) -> None:
    """In a child whose root directory this is. Raises StagerError."""
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        # Nothing of what this process would do next is the child's to do, whatever befalls it.
        try:
            os.close(told)
            os.write(tells, json.dumps(outcome_of(root, work)).encode())
        finally:
            os._exit(0)
    os.close(tells)
    with open(told, "rb") as stream:
        said = stream.read()
    os.waitpid(child, 0)
    if not said:
        raise Transient("the process that unpacks an image was ended", code=ENDED_CODE)
    kind, message = json.loads(said)
    if kind == "invalid":
        raise invalid(message)
    if kind:
        raise Transient(f"the image could not be unpacked: {message}", code=NOT_UNPACKED_CODE)


def outcome_of(root: Path, work: Callable[[], None]) -> tuple[str, str]:
    try:
        become_root(root)
        os.umask(0o022)
        work()
    except StagerError as problem:
        return "invalid", problem.message
    except DAMAGES as problem:
        return "invalid", f"a layer of the image is damaged: {problem}"
    except OSError as problem:
        return "failed", str(problem)
    return "", ""


def become_root(root: Path) -> None:
    """An ordinary user may in a user namespace of his own."""
    if os.geteuid() != 0:
        uid, gid = os.geteuid(), os.getegid()
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.unshare(NEW_USER | NEW_MOUNTS) != 0:
            raise OSError(ctypes.get_errno(), "this host gives this user no namespace, and containers need one")
        for name, text in (("setgroups", "deny"), ("uid_map", f"0 {uid} 1"), ("gid_map", f"0 {gid} 1")):
            Path(f"/proc/self/{name}").write_text(text)
    os.chroot(root)
    os.chdir("/")


def unpack_layers(layers: tuple[Layer, ...], archive: IO[bytes]) -> None:
    """In the image's root directory. `archive` was opened outside of it."""
    with tarfile.open(fileobj=archive, mode="r:") as members:
        found = Archive(members)
        for layer in layers:
            stream = members.extractfile(found.member(layer.member))
            assert stream is not None
            unpack_layer(stream, layer)
    make_mount_points()


class Hashed:
    """A stream of which it is known what was read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.digest = stream, hashlib.sha256()

    def read(self, size: int = -1) -> bytes:
        piece = self.stream.read(size)
        self.digest.update(piece)
        return piece


def unpack_layer(stream: IO[bytes], layer: Layer) -> None:
    start = stream.read(4)
    stream.seek(0)
    if start == ZSTD:
        raise invalid("a layer of the image is compressed with zstd, which is not read here; write the image with gzip or without")
    hashed = Hashed(gzip.GzipFile(fileobj=stream) if start[:2] == GZIP else stream)  # type: ignore[arg-type]
    with tarfile.open(fileobj=hashed, mode="r|") as members:  # type: ignore[call-overload]
        put_all(members)
    while hashed.read(PIECE_BYTES):
        pass
    if hashed.digest.hexdigest() != layer.digest:
        raise invalid(f"the layer {layer.member} of the image has another content than its configuration says")


def put_all(members: tarfile.TarFile) -> None:
    """Over the layers before it. Whiteouts take away what those brought, and nothing of this one."""
    made: set[str] = set()
    for member in members:
        path = plain(member.name)
        above, _, name = path.rpartition("/")
        if not path:
            continue
        if name == OPAQUE:
            for other in os.listdir(f"/{above}") if os.path.isdir(f"/{above}") else ():
                if plain(f"{above}/{other}") not in made:
                    remove(f"/{above}/{other}")
        elif name.startswith(WHITEOUT):
            remove(f"/{above}/{name[len(WHITEOUT) :]}")
        else:
            os.makedirs(f"/{above}", mode=0o755, exist_ok=True)
            put(members, member, f"/{path}")
            while path:
                made.add(path)
                path = path.rpartition("/")[0]


def put(members: tarfile.TarFile, member: tarfile.TarInfo, path: str) -> None:
    """Devices are left out: nothing of an image's own can be used as one."""
    mode = member.mode & 0o777
    if member.isdir():
        if not is_directory(path):
            remove(path)
            os.mkdir(path)
        # So that it can be removed again.
        settle(path, member, mode | 0o700)
        return
    if not (member.isfile() or member.issym() or member.islnk() or member.isfifo()):
        return
    remove(path)
    if member.issym():
        os.symlink(member.linkname, path)
    elif member.islnk():
        os.link(f"/{plain(member.linkname)}", path, follow_symlinks=False)
    elif member.isfifo():
        os.mkfifo(path)
        settle(path, member, mode)
    else:
        stream = members.extractfile(member)
        assert stream is not None
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600), "wb") as file:
            shutil.copyfileobj(stream, file, PIECE_BYTES)
        settle(path, member, mode)


def settle(path: str, member: tarfile.TarInfo, mode: int) -> None:
    """Its owner counts where we may say so: an ordinary user has all of it."""
    if OWNS_ALL:
        os.chown(path, member.uid, member.gid)
    os.chmod(path, mode)


def is_directory(path: str) -> bool:
    try:
        return stat.S_ISDIR(os.lstat(path).st_mode)
    except FileNotFoundError:
        return False


def remove(path: str) -> None:
    if is_directory(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def make_mount_points() -> None:
    """In the image's root directory: no symlink on the way to any."""
    for name in (*DIRECTORIES, *(os.path.dirname(file) for file in FILES)):
        path = ""
        for part in name.split("/"):
            path = f"{path}/{part}"
            if not is_directory(path):
                remove(path)
                os.mkdir(path, 0o755)
    for name in FILES:
        if os.path.islink(f"/{name}") or not os.path.isfile(f"/{name}"):
            remove(f"/{name}")
            os.close(os.open(f"/{name}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644))


def unsquash(path: Path, offset: int, root: Path) -> None:
    """By the program that makes and unpacks squashfs. Raises StagerError."""
    program = shutil.which("unsquashfs")
    if program is None:
        text = "SIF files are unpacked by unsquashfs, which this host lacks; whoever looks after it installs squashfs-tools"
        raise Refused(f"{text}, or give the image as a Docker or OCI archive", code="unsquashfs_missing")
    command = [program, "-no-progress", "-no-xattrs", "-force", "-dest", str(root), "-offset", str(offset), str(path)]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace")
    if done.returncode < 0:
        raise Transient(f"unsquashfs was ended by signal {-done.returncode}", code=ENDED_CODE)
    if is_full(done.stderr):
        raise Transient(f"the image could not be unpacked: no space is left for it below {root}", code=NOT_UNPACKED_CODE)
    # 2: owners or devices that this user may not make.
    if done.returncode not in (0, 2) or not any(root.iterdir()):
        said = (done.stderr.strip() or done.stdout.strip()).rpartition("\n")[2]
        raise invalid(f"the file system of the SIF file cannot be unpacked: {said}")


def sif_variables(root: Path) -> dict[str, str]:
    """What its start scripts set to a plain value. They are not run: only a shell could."""
    env: dict[str, str] = {}
    for line in script_lines(root):
        match = EXPORT.fullmatch(line)
        if match is not None:
            value = DEFAULTED.sub(lambda found: found[1], match[3])
            if "$" not in value and "`" not in value and VARIABLE.fullmatch(match[1]):
                env[match[1]] = value
    return env


def script_lines(root: Path) -> Iterator[str]:
    scripts = root / ".singularity.d" / "env"
    for above in (scripts.parent, scripts):
        if above.is_symlink():
            return
    for script in sorted(scripts.glob("*.sh")):
        if not script.is_symlink() and script.is_file() and script.stat().st_size <= SCRIPT_BYTES_MAX:
            yield from script.read_text(errors="replace").splitlines()


def main(arguments: list[str]) -> int:
    """Prints what Images reads."""
    path, directory = map(Path, arguments)
    try:
        said: Mapping[str, Any] = unpacked(path, directory)
    except StagerError as problem:
        fault = problem.fault()
        said = {"fault": {"error_class": fault.error_class.value, "code": fault.code, "message": fault.message, "subject": ""}}
    except OSError as problem:
        said = {"fault": {"error_class": "transient", "code": NOT_UNPACKED_CODE, "message": str(problem), "subject": ""}}
    sys.stdout.write(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
