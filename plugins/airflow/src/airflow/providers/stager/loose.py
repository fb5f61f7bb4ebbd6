"""Files that a task moves itself, because the service is away or has no place for them: slower, and by connections of Airflow.

May know: Airflow's SDK, the providers that are installed. One rule: a product gets its name only when all of it is there.
"""

from __future__ import annotations

import hashlib
import logging
import os
import shutil
import time
import uuid
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, unquote, urlsplit

from airflow.sdk.exceptions import AirflowException

if TYPE_CHECKING:
    from airflow.sdk import ObjectStoragePath

log = logging.getLogger("airflow.task")
PORT = 22
RUNS, OBJECTS, MARKS, ENDED = "runs", "objects", "marks", "ended"
DAY_S = 86400.0


class Loose:
    """`fallback_dir`: a directory that all workers see, for `stager://` files while the service is away. Those that are `exchanged` within
    a DagRun stand below it in a directory of its own, `private`; so do marks of its other files that were put without the service.
    `objects`: the connection of a service that keeps the rest as objects; empty: it is away.
    """

    def __init__(self, fallback_dir: Path, private: str = "", exchanged: Container[str] = (), objects: str = "") -> None:
        self.fallback_dir, self.private, self.exchanged, self.objects = fallback_dir, private, exchanged, objects

    def fetch(self, uri: str, path: Path) -> Path:
        """Where the content is: `path`, or its own place if that is on this machine."""
        url = urlsplit(uri)
        if url.scheme == "file":
            return there(uri, Path(unquote(url.path)))
        if url.scheme == "stager":
            return self._kept(uri, url, path)
        path.parent.mkdir(parents=True, exist_ok=True)
        if url.scheme in ("sftp", "sshfs"):
            with sftp_of(uri, url) as hook:
                hook.retrieve_file(unquote(url.path), str(path))
        else:
            copied(storage(uri), lambda source: source.open("rb"), path)
        return path

    def put(self, path: Path, uri: str) -> None:
        url = urlsplit(uri)
        there(uri, path)
        self.mark(uri)
        if url.scheme == "file":
            laid(path, Path(unquote(url.path)))
        elif url.scheme == "stager":
            self._keep(path, uri, url)
        elif url.scheme in ("sftp", "sshfs"):
            with sftp_of(uri, url) as hook:
                put_by_sftp(hook, path, unquote(url.path))
        else:
            put_whole(path, storage(uri))

    def _kept(self, uri: str, url: SplitResult, path: Path) -> Path:
        """A file in the fallback directory is newer than an object: a task put it there while the service was away."""
        held = self._held_at(uri, url)
        if held.exists():
            return held
        try:
            copied(self._object(url), lambda source: source.open("rb"), path)
        except Exception as problem:
            text = f"{uri} is neither in the fallback directory ({held}) nor an object of the service ({problem})"
            raise AirflowException(f"{text}; clear the task that makes it") from problem
        return path

    def _keep(self, path: Path, uri: str, url: SplitResult) -> None:
        held = self._held_at(uri, url)
        if self.objects and uri not in self.exchanged:
            try:
                put_whole(path, self._object(url))
            except Exception as problem:
                log.warning("%s is put into the fallback directory (%s), for it could not be kept as an object: %s", uri, held, problem)
            else:
                held.unlink(missing_ok=True)
                return
        laid(path, held)

    def _object(self, url: SplitResult) -> ObjectStoragePath:
        connection = f"{self.objects}@" if self.objects else ""
        return storage(f"stager://{connection}{url.netloc}{url.path}")

    def _held_at(self, uri: str, url: SplitResult) -> Path:
        place = self.fallback_dir / RUNS / self.private if uri in self.exchanged else self.fallback_dir / OBJECTS
        return place / url.netloc / unquote(url.path).lstrip("/")

    def is_newer(self, uri: str) -> bool:
        """It was made after the service was given it, or fetched it, for this DagRun, if ever: what the service has of it may be old."""
        place = self._sign(uri, urlsplit(uri))
        try:
            return place is not None and place.exists()
        except OSError as problem:
            log.warning("%s is taken from the service, though nobody can see whether a task made it anew without that: %s", uri, problem)
            return False

    def held_at(self, uri: str) -> Path:
        return self._held_at(uri, urlsplit(uri))

    def is_held(self, uri: str) -> bool:
        """A task of this DagRun made it for others of it, without the service. Raises OSError where nobody can see that."""
        return uri in self.exchanged and self.held_at(uri).exists()

    def handed_over(self, uri: str) -> None:
        """The service has what was made last: what was put without it is old now."""
        place = self._sign(uri, urlsplit(uri))
        try:
            if place is not None:
                place.unlink(missing_ok=True)
        except OSError as problem:
            raise AirflowException(f"{place} is older than what the service has of {uri}, and cannot be removed: {problem}") from problem

    def mark(self, uri: str) -> None:
        """Before it is put, so that no death comes in between. A worker without a fallback directory puts it all the same."""
        place = self._sign(uri, urlsplit(uri))
        if place is None or uri in self.exchanged:
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f"{uri}\n")
        except OSError as problem:
            log.warning("tasks that read %s may get an older one from the service, for nobody can be told: %s", uri, problem)

    def _sign(self, uri: str, url: SplitResult) -> Path | None:
        """A path that exists as long as the service may have an older file. Of what tasks exchange it is the file itself; objects need
        none.
        """
        if uri in self.exchanged:
            return self._held_at(uri, url)
        return None if url.scheme == "stager" else self.fallback_dir / MARKS / self.private / hashlib.sha256(uri.encode()).hexdigest()[:32]

    def clear(self) -> None:
        """Removes the files that tasks of the DagRun exchanged, and the marks that they left."""
        for kind in (RUNS, MARKS):
            shutil.rmtree(self.fallback_dir / kind / self.private, ignore_errors=True)
        self.begun()

    def begun(self) -> None:
        """Keeps the files of the DagRun, for however long it goes on."""
        with suppress(OSError):
            (self.fallback_dir / ENDED / self.private).unlink(missing_ok=True)

    def failed(self) -> None:
        """It may be cleared and go on; if nobody does that for long, what lies here goes."""
        stamp = self.fallback_dir / ENDED / self.private
        with suppress(OSError):
            if any((self.fallback_dir / kind / self.private).exists() for kind in (RUNS, MARKS)):
                stamp.parent.mkdir(parents=True, exist_ok=True)
                stamp.touch()


def sweep(fallback_dir: Path, days: float) -> None:
    """Removes the files of DagRuns that failed so long ago, and have not begun again."""
    with suppress(OSError):
        for stamp in (fallback_dir / ENDED).iterdir() if days > 0 else ():
            if time.time() - stamp.stat().st_mtime > days * DAY_S:
                log.info("a DagRun failed %g days ago; the files that its tasks exchanged are removed from %s", days, fallback_dir)
                Loose(fallback_dir, stamp.name).clear()


def there(uri: str, path: Path) -> Path:
    if not path.exists():
        raise AirflowException(f"{uri} is not there: {path} does not exist")
    return path


def laid(path: Path, target: Path) -> None:
    """Whole, under its own name at last."""
    target.parent.mkdir(parents=True, exist_ok=True)
    beside = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}")
    try:
        with path.open("rb") as source, beside.open("xb") as sink:
            shutil.copyfileobj(source, sink)
            sink.flush()
            os.fsync(sink.fileno())
        os.replace(beside, target)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def put_whole(path: Path, target: ObjectStoragePath) -> None:
    """In one call of its file system, which has no name before its end. A stream that is closed when reading failed makes a short one."""
    target.fs.put_file(str(path), target.path)


def copied(source: ObjectStoragePath, opened: Callable[[Any], Any], path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with opened(source) as content, path.open("wb") as sink:
        shutil.copyfileobj(content, sink)


def storage(uri: str) -> ObjectStoragePath:
    from airflow.sdk import ObjectStoragePath

    try:
        path = ObjectStoragePath(uri)
        # Only now it looks for a provider.
        _ = path.fs
    except (ImportError, ValueError) as problem:
        text = f"no provider that is installed here reads or writes {uri} ({problem})"
        raise AirflowException(f"{text}; install the one of its scheme") from problem
    return path


@contextmanager
def sftp_of(uri: str, url: SplitResult) -> Iterator[Any]:
    """By the connection that is called as the host, or by `sftp_default` if that leads there."""
    try:
        from airflow.providers.sftp.hooks.sftp import SFTPHook
    except ImportError as problem:
        raise AirflowException(f"{uri} cannot be reached from here; install apache-airflow-providers-sftp") from problem
    hook = SFTPHook(ssh_conn_id=sftp_connection(uri, url))
    try:
        yield hook
    finally:
        hook.close_conn()


def sftp_connection(uri: str, url: SplitResult) -> str:
    from airflow.sdk import BaseHook
    from airflow.sdk.exceptions import AirflowNotFoundException

    for name in (url.hostname or "", "sftp_default"):
        try:
            found = BaseHook.get_connection(name)
        except (AirflowNotFoundException, ValueError):
            continue
        if (found.host, found.port or PORT) == (url.hostname, url.port or PORT):
            return name
    where = f"{url.hostname}:{url.port or PORT}"
    text = f"{uri} cannot be reached from here: no connection of Airflow leads to {where}"
    raise AirflowException(f"{text}; make one that is called 'sftp_default', or {url.hostname!r}")


def put_by_sftp(hook: Any, path: Path, target: str) -> None:
    directory, _, name = target.rpartition("/")
    beside = f"{directory}/.{name}.{uuid.uuid4().hex[:8]}"
    if directory:
        hook.create_directory(directory)
    try:
        hook.store_file(beside, str(path))
        with hook.get_managed_conn() as connection:
            connection.posix_rename(beside, target)
    except BaseException:
        with suppress(Exception):  # the line may be what failed
            hook.delete_file(beside)
        raise
