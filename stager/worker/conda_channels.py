"""Where conda packages come from on this host: their channel, or what this host has instead of it.

May know: rattler's client, this host's settings. One rule: a URL that is told is the one of the lock file, which holds no password: what a
client says may name one that was put into it.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from stager.model.errors import Denied, InvalidInput, Refused, StagerError, Transient
from stager.worker.explicit_file import Wanted
from stager.worker.installing import AWAY_CODE, full, is_full
from stager.worker.lock_file import INVALID_CODE

if TYPE_CHECKING:
    from rattler import Client

MIRRORS = "STAGER_CONDA_MIRRORS"
RATTLER = "rattler"
AT_ONCE, TRIES, STALL_S = 8, 2, 60.0
STATUS = re.compile(r"\((\d{3})\b")
GONE, DENIED = (404, 410), (401, 403, 407)


def mirrors_of(environ: Mapping[str, str]) -> dict[str, str]:
    """By the beginning of a URL, what stands in its place. Raises Refused."""
    found = {}
    for word in environ.get(MIRRORS, "").split():
        begins, equals, instead = word.partition("=")
        if not equals or "://" not in begins or "://" not in instead:
            raise Refused(f"{MIRRORS} of this host is not URL=URL, with spaces between such pairs", code="mirrors_wrong")
        found[begins.rstrip("/")] = instead.rstrip("/")
    return found


def place_of(url: str, mirrors: Mapping[str, str]) -> str:
    """Where it is got: the longest beginning counts."""
    for begins in sorted(mirrors, key=len, reverse=True):
        if url.startswith(f"{begins}/"):
            return mirrors[begins] + url.removeprefix(begins)
    return url


async def fetch_all(wanted: Iterable[Wanted], directory: Path, mirrors: Mapping[str, str]) -> list[Path]:
    """Each with the digest that its lock file has, in its order. Raises StagerError."""
    client, few = client_of_host(), asyncio.Semaphore(AT_ONCE)

    async def one(each: Wanted) -> Path:
        async with few:
            path = directory / each.file_name
            await fetch(client, each.url, place_of(each.url, mirrors), path)
            await asyncio.to_thread(verify, each, path)
            return path

    return list(await asyncio.gather(*map(one, wanted)))


def client_of_host() -> Client:
    """As rattler is configured here: certificates, proxies, logins, mirrors."""
    from rattler import Client, Config
    from rattler.exceptions import ConfigError

    try:
        return Client.from_config(Config.load_from_default_locations(RATTLER), max_retries=TRIES)
    except ConfigError:
        files = ", ".join(str(path) for path, _ in Config.config_search_paths(RATTLER))
        text = f"the configuration of rattler on this host cannot be read; whoever looks after it mends {files}"
        raise Refused(text, code="rattler_configured_wrong") from None


async def fetch(client: Client, url: str, place: str, path: Path) -> None:
    try:
        if place.startswith("file:"):
            await asyncio.to_thread(shutil.copyfile, unquote(urlsplit(place).path), path)
        else:
            await download(client, place, path)
    except FileNotFoundError:
        raise gone(url, place) from None
    except TimeoutError:
        raise Transient(f"{answering(url, place)} sent nothing for {STALL_S:g} s", code=AWAY_CODE) from None
    except (OSError, RuntimeError) as problem:
        raise of_download(url, place, str(problem)) from None


async def download(client: Client, place: str, path: Path) -> None:
    """However long it takes, as long as something comes. Raises TimeoutError."""
    from rattler.package_streaming import download_to_writer

    loop = asyncio.get_running_loop()
    with path.open("wb") as stream:
        async with asyncio.timeout(STALL_S) as limit:

            class Writer:
                """Called on a thread of rattler's."""

                def write(self, piece: bytes) -> int:
                    loop.call_soon_threadsafe(put_off)
                    return stream.write(piece)

            def put_off() -> None:
                # What came last may be heard of when all is over.
                with contextlib.suppress(RuntimeError):
                    limit.reschedule(loop.time() + STALL_S)

            await download_to_writer(client, place, Writer())


def of_download(url: str, place: str, said: str) -> StagerError:
    """Sorted by who must act. Nothing of `said` is told but a number."""
    if is_full(said):
        return full(f"No space left on device: {url}")
    status = int(found[1]) if (found := STATUS.search(said)) is not None else 0
    if status in GONE:
        return gone(url, place)
    if status in DENIED:
        how = "whoever looks after this host gives it a login for the channel (RATTLER_AUTH_FILE)"
        return Denied(f"{answering(url, place)} wants a login ({status}); {how}", code="channel_denied")
    return Transient(f"{answering(url, place)} cannot be asked{f' ({status})' if status else ''}", code=AWAY_CODE)


def gone(url: str, place: str) -> StagerError:
    if place == url:
        return InvalidInput(f"its lock file names {url}, which is not there", code=INVALID_CODE)
    return Refused(f"{answering(url, place)} does not have it; whoever looks after this host adds it there", code="package_missing")


def answering(url: str, place: str) -> str:
    return f"the channel of {url}" if place == url else f"what this host has instead of the channel of {url} ({MIRRORS})"


def verify(wanted: Wanted, path: Path) -> None:
    with path.open("rb") as stream:
        found = hashlib.file_digest(stream, lambda: hashlib.new(wanted.algorithm, usedforsecurity=False)).hexdigest()
    if found != wanted.digest:
        text = f"{wanted.url} is {wanted.algorithm} {found}, not {wanted.digest}"
        raise InvalidInput(f"a package has another digest than its lock file says: {text}", code=INVALID_CODE)
