"""The directories of runs that tenants sent: what lies beside a workflow file on its author's machine, as an origin of the service.

May know: the sent contents. Blocking. One rule: no path that a tenant names leads out of the directory that is made for it.

`sent/TENANT/trees/ID/ORIGIN/PATH`: each submit has directories of its own, of hard links to contents. Finals go there, too.
"""

from __future__ import annotations

import os
import re
import secrets
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

from stager import rest
from stager.model.errors import InvalidInput, Refused
from stager.model.units import format_size
from stager.model.workflow import Workflow
from stager.service.sent_contents import SentContents, digest_of, sync_directory
from stager.service.sent_places import TREES

NAME_BYTES_MAX = 255
# Of a run that is over or removed: its finals can be fetched so long.
OVER_S = 86_400.0
RUN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


class SentDirectories:
    """Of one tenant."""

    def __init__(self, contents: SentContents) -> None:
        self.contents = contents
        self.trees, self.runs = contents.root / TREES, contents.root / "runs"

    def lay(self, directories: Mapping[str, Sequence[rest.SentFile]]) -> Path:
        """Raises InvalidInput for a path that is none and for contents that are not here, Refused for too much."""
        self.check(directories)
        tree = self.trees / secrets.token_hex(16)
        tree.mkdir(mode=0o700, parents=True)
        try:
            with self.contents.one_at_a_time():
                absent = [each.sha256 for name, files in directories.items() for each in files if not self.link(each, tree / name)]
            for name in directories:
                (tree / name).mkdir(mode=0o700, exist_ok=True)
            if absent:
                text = f"{len(set(absent))} contents of the directory are not here, {absent[0]} first"
                raise InvalidInput(f"{text}; ask /contents and send them", code="contents_missing", subject="directories")
            sync_directory(tree)
        except BaseException:
            shutil.rmtree(tree, ignore_errors=True)
            raise
        return tree

    def check(self, directories: Mapping[str, Sequence[rest.SentFile]]) -> None:
        files = [each for listed in directories.values() for each in listed]
        size_bytes, most = sum(each.size_bytes for each in files), self.contents.directory_bytes_max
        if size_bytes > most or len(files) > rest.SENT_FILES_MAX:
            text = f"{len(files)} files with {format_size(size_bytes)} are more than this service takes with a workflow"
            text += f" ({rest.SENT_FILES_MAX} files, {format_size(most)}); its administrator changes that (stager serve --directory-max)"
            raise Refused(text, code="directory_too_large", subject="directories")
        for name, listed in directories.items():
            check_paths(name, [each.path for each in listed])

    def link(self, file: rest.SentFile, place: Path) -> bool:
        """False where its content is not here, or is no longer what was sent."""
        content = self.contents.path(file.sha256)
        if not self.contents.keep(file.sha256, file.size_bytes):
            return False
        if digest_of(content) != file.sha256:
            content.unlink(missing_ok=True)
            return False
        path = place / file.path
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.link(self.executable(content) if file.executable else content, path)
        return True

    def executable(self, content: Path) -> Path:
        """A second file of the same bytes, since hard links share their mode."""
        beside = content.with_name(f"{content.name}.x")
        if not beside.exists():
            made = self.contents.root / "parts" / beside.name
            shutil.copy2(content, made)
            made.chmod(0o500)
            made.rename(beside)
        os.utime(beside, ns=(content.stat().st_atime_ns, beside.stat().st_mtime_ns))
        return beside

    def drop(self, tree: Path) -> None:
        shutil.rmtree(tree, ignore_errors=True)

    def note_of(self, run: str, workflow: Workflow) -> None:
        """Where it has such directories."""
        below = f"file://{quote(str(self.trees))}/"
        trees = {origin.url.removeprefix(below).partition("/")[0] for origin in workflow.origins.values() if origin.url.startswith(below)}
        for tree in trees:
            self.note(run, tree)

    def note(self, run: str, tree: str) -> None:
        """By this run its directories are found, also when nothing else of it is known any more."""
        self.runs.mkdir(mode=0o700, exist_ok=True)
        made = self.runs / f".{run}"
        made.write_text(tree)
        made.rename(self.runs / run)

    def of_run(self, run: str, origin: str, path: str) -> Path:
        """A file there. Raises InvalidInput where there is none."""
        noted = self.runs / run
        if RUN_NAME.fullmatch(run) and noted.is_file():
            check_paths(origin, [path])
            root = self.trees / noted.read_text() / origin
            found = root / path
            if not found.is_symlink() and found.is_file() and found.resolve().is_relative_to(root.resolve()):
                return found
        text = f"the service keeps no file {origin}:{path} of run {run}: its place is another, or it went a day after the run was over"
        raise InvalidInput(text, code="not_found", subject=path)

    def sweep(self, needed: set[str], now: float) -> None:
        """`needed`: the trees of runs that are not over for good."""
        for tree in list(self.trees.iterdir()) if self.trees.is_dir() else []:
            if tree.name in needed:
                os.utime(tree, (now, now))
            elif now - tree.stat().st_mtime > OVER_S:
                shutil.rmtree(tree, ignore_errors=True)
        for noted in list(self.runs.iterdir()) if self.runs.is_dir() else []:
            if not (self.trees / noted.read_text()).is_dir():
                noted.unlink(missing_ok=True)


def check_paths(origin: str, paths: Sequence[str]) -> None:
    """Raises InvalidInput."""
    known: set[str] = set()
    directories = {"/".join(path.split("/")[:number]) for path in paths for number in range(1, path.count("/") + 1)}
    for path in paths:
        why = fault_of(path) or ("twice" if path in known else "a file and a directory" if path in directories else "")
        if why:
            text = f"directories.{origin}: {path[:200]!r} is {why}; write paths below the directory, each once"
            raise InvalidInput(text, code="bad_parameter", subject=f"directories.{origin}")
        known.add(path)


def fault_of(path: str) -> str:
    parts = path.split("/")
    try:
        sizes = [len(part.encode()) for part in parts]
    except UnicodeEncodeError:
        return "no UTF-8"
    if path.startswith("/"):
        return "an absolute path"
    if "\0" in path or any(part in ("", ".", "..") for part in parts):
        return "no plain path"
    return "too long" if max(sizes) > NAME_BYTES_MAX or sum(sizes) > rest.PATH_MAX else ""
