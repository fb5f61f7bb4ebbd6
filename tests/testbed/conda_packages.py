"""Conda packages, made here in both of their formats, and a channel that serves them, so that tests need no other.

May know: the formats. One rule: the same arguments make the same bytes.
"""

from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow

EPOCH = (1980, 1, 1, 0, 0, 0)
# What a package was built at. An installer puts the place of the environment there.
PLACEHOLDER = "/opt/placehold" + "_placehold" * 20
SUBDIR = "linux-64"


@dataclass(frozen=True)
class Content:
    """Of one file of a package. `target`: it is a symlink. `mode`: what of the placeholder is replaced in, `text` or `binary`."""

    data: bytes = b""
    program: bool = False
    mode: str = ""
    target: str = ""


@dataclass(frozen=True, kw_only=True)
class Package:
    """`told`: what its paths.json says, where that is not what is in it. `info`: further files below info/."""

    name: str
    version: str = "1.0"
    build: str = "0"
    subdir: str = SUBDIR
    files: Mapping[str, Content] = field(default_factory=dict)
    depends: tuple[str, ...] = ()
    index: Mapping[str, Any] = field(default_factory=dict)
    info: Mapping[str, bytes] = field(default_factory=dict)
    told: list[dict[str, Any]] | None = None
    hard: str = ".conda"

    @property
    def file_name(self) -> str:
        return f"{self.name}-{self.version}-{self.build}{self.hard}"

    def members(self) -> dict[str, Content]:
        about = {"name": self.name, "version": self.version, "build": self.build, "build_number": 0, "subdir": self.subdir}
        index = about | {"depends": list(self.depends), "arch": None, "platform": None} | dict(self.index)
        paths = [told_of(path, content) for path, content in self.files.items()] if self.told is None else self.told
        found = {
            "info/index.json": json.dumps(index).encode(),
            "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}).encode(),
            "info/about.json": b"{}",
            **self.info,
        }
        return {path: Content(data) for path, data in found.items()}

    def put_into(self, channel: Path) -> Path:
        """The archive, below the subdir that it is of."""
        path = channel / self.subdir / self.file_name
        path.parent.mkdir(parents=True, exist_ok=True)
        if self.hard == ".tar.bz2":
            path.write_bytes(archived({**self.members(), **self.files}, "bz2"))
            return path
        stem = path.name.removesuffix(".conda")
        parts = {
            "metadata.json": b'{"conda_pkg_format_version": 2}',
            f"pkg-{stem}.tar.zst": squeezed(archived(self.files)),
            f"info-{stem}.tar.zst": squeezed(archived(self.members())),
        }
        with zipfile.ZipFile(path, "w") as packed:
            for name, data in parts.items():
                packed.writestr(zipfile.ZipInfo(name, EPOCH), data)
        return path


def told_of(path: str, content: Content) -> dict[str, Any]:
    said: dict[str, Any] = {"_path": path, "path_type": "softlink" if content.target else "hardlink"}
    if not content.target:
        said |= {"sha256": hashlib.sha256(content.data).hexdigest(), "size_in_bytes": len(content.data)}
    return said | ({"prefix_placeholder": PLACEHOLDER, "file_mode": content.mode} if content.mode else {})


def archived(files: Mapping[str, Content], compression: str = "") -> bytes:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode=f"w:{compression}") as tar:
        for path, content in files.items():
            entry = tarfile.TarInfo(path)
            entry.mode = 0o755 if content.program else 0o644
            if content.target:
                entry.type, entry.linkname = tarfile.SYMTYPE, content.target
            else:
                entry.size = len(content.data)
            tar.addfile(entry, io.BytesIO(content.data))
    return stream.getvalue()


def squeezed(data: bytes) -> bytes:
    packed: bytes = pyarrow.compress(data, codec="zstd", asbytes=True)
    return packed


def digest(path: Path, kind: str = "sha256") -> str:
    found = hashlib.new(kind, path.read_bytes(), usedforsecurity=False).hexdigest()
    return f"sha256:{found}" if kind == "sha256" else found


def explicit(url: str, paths: Iterable[Path], kind: str = "sha256") -> str:
    """The lock file that names them, in a channel at this URL."""
    lines = [f"{url}/{path.parent.name}/{path.name}#{digest(path, kind)}\n" for path in paths]
    return "".join([f"# platform: {SUBDIR}\n@EXPLICIT\n", *lines])


class Channel:
    """A directory of packages, by HTTP. `asked`: paths, in the order of the requests. `answers`: status codes of paths that get one."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.asked, self.answers = directory, list[str](), dict[str, int]()
        directory.mkdir(parents=True, exist_ok=True)
        channel = self

        class Handler(SimpleHTTPRequestHandler):
            def __init__(self, *words: Any) -> None:
                super().__init__(*words, directory=str(directory))

            def do_GET(self) -> None:
                channel.asked.append(self.path)
                if self.path in channel.answers:
                    self.send_error(channel.answers[self.path])
                else:
                    super().do_GET()

            def log_message(self, *words: Any) -> None:
                """Tests print what matters."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05})
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    def put(self, *packages: Package) -> list[Path]:
        return [package.put_into(self.directory) for package in packages]

    def locked(self, *packages: Package, kind: str = "sha256") -> str:
        return explicit(self.url, self.put(*packages), kind)

    def close(self) -> None:
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()
