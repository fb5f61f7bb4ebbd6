"""Places: where data lies, in one spelling, so that two names of one directory can be seen to be one.

May know: URLs as text. One rule: equal places are one place for certain; different ones may still be (a link, another name of the host),
which only the origin could tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

PORTS = {"sftp": "22", "http": "80", "https": "443"}
ESCAPED = re.compile(rb"%([0-9A-Fa-f]{2})")


def place_of_url(url: str, endpoint: str = "") -> str:
    """`sshfs` moves its bytes over sftp; a user matters only below a login directory (`/~/`); a bucket means something at its endpoint."""
    scheme, server, path = parts_of_url(url)
    path = unescaped(path)
    if scheme == "s3":
        return "/".join(("s3:/", *([place_of_url(endpoint)] if endpoint else []), server, path.strip("/"))).rstrip("/")
    names = [name for name in path.split("/") if name not in ("", ".")]
    host, colon, port = server.rpartition(":") if not server.endswith("]") else ("", "", "")
    host, port = (host, port) if colon else (server, PORTS.get(scheme, ""))
    host = "" if scheme == "file" else host.lower() + (f":{port}" if port else "")
    user = user_of_url(url) if names[:1] == ["~"] else ""
    return "/".join((f"{scheme}://{user}@{host}" if user else f"{scheme}://{host}", *names))


def server_of_url(url: str, endpoint: str = "") -> str:
    """Its place without directories: the host with its port, or the bucket at its endpoint."""
    scheme, server, _ = parts_of_url(url)
    return place_of_url(f"{scheme}://{server}", endpoint)


def ancestors(path: str) -> Iterable[str]:
    """`a/b/c` -> `a/b`, `a`."""
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def overlaps(mine: Iterable[str], theirs: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Pairs (of mine, of theirs) that are one place or lie one inside the other; one pair for each of theirs."""
    own = dict.fromkeys(mine)
    above = {directory: place for place in own for directory in ancestors(place)}
    for place in theirs:
        if place in own:
            yield place, place
        elif place in above:
            yield above[place], place
        else:
            inside = next((directory for directory in ancestors(place) if directory in own), None)
            if inside is not None:
                yield inside, place


def user_of_url(url: str) -> str:
    return url.partition("://")[2].partition("/")[0].rpartition("@")[0]


def parts_of_url(url: str) -> tuple[str, str, str]:
    """(scheme, host with port, path as it is written). A text without a scheme is a path on this machine."""
    scheme, colon, rest = url.partition(":")
    if not colon or "/" in scheme:
        return "file", "", url
    server, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    return "sftp" if scheme == "sshfs" else scheme, server.rpartition("@")[2], slash + path


def unescaped(text: str) -> str:
    """`%20` is a space."""
    raw = ESCAPED.sub(lambda match: bytes((int(match[1], 16),)), text.encode("utf-8", "surrogateescape"))
    return raw.decode("utf-8", "backslashreplace")
