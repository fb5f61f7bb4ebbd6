"""A list of transfers, of directories to make or of files to remove, read from what the planner or PegasusLite wrote.

May know: the JSON form and the older text form ("# src ..."). One rule: a list is understood whole before anything of it is done, and what
is wrong is named by entry and key.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from pegasus_stager.failures import ListRefused
from pegasus_stager.urls import Url

# Every call reads a list, and importing typing takes longer than many a call.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

TEXT_START = "# src"
SITE = re.compile(r"^# +\w+ +\w+ +([\w\-_]+)")
YES = frozenset(("yes", "true", "t", "1"))
NO = frozenset(("no", "false", "f", "0", "none", ""))


class ListEntry:
    """`raw` is what the list says, for the program that is called for what is not done here, and `urls` all that it names."""

    __slots__ = ("raw", "urls")

    def __init__(self, raw: dict[str, object], urls: list[Url]) -> None:
        self.raw, self.urls = raw, urls


class Transfer(ListEntry):
    """One file to be at its destination. `sources`: the one to try first stands first."""

    __slots__ = ("destination", "generate_checksum", "lfn", "linkage", "sources", "verify_checksum", "verify_source")

    def __init__(self, raw: dict[str, object], sources: list[Url], destinations: list[Url]) -> None:
        super().__init__(raw, sources + destinations)
        self.lfn = str(raw.get("lfn") or "")
        self.linkage = str(raw.get("linkage") or "unknown")
        self.verify_source = bool(raw.get("verify_symlink_source", True))
        self.generate_checksum = bool(raw.get("generate_checksum", False))
        self.verify_checksum = bool(raw.get("verify_checksum_remote", False))
        # Python's sort keeps what is equal in the order of the list.
        self.sources = sorted(sources, key=lambda url: -url.priority)
        self.destination = sorted(destinations, key=lambda url: -url.priority)[0]

    def __str__(self) -> str:
        return f"{self.sources[0]} -> {self.destination}"


class Directory(ListEntry):
    """A directory to be there, with those above it."""

    __slots__ = ("url",)

    def __init__(self, raw: dict[str, object], url: Url) -> None:
        super().__init__(raw, [url])
        self.url = url

    def __str__(self) -> str:
        return f"mkdir {self.url}"


class Removal(ListEntry):
    """A file to be gone, or a directory with all below it."""

    __slots__ = ("recursive", "url")

    def __init__(self, raw: dict[str, object], url: Url, recursive: bool) -> None:
        super().__init__(raw, [url])
        self.url, self.recursive = url, recursive

    def __str__(self) -> str:
        return f"remove {self.url}"


def read_list(text: str, environ: Mapping[str, str]) -> list[ListEntry]:
    """Raises ListRefused."""
    entries = read_text(text, environ) if text.startswith(TEXT_START) else read_json(text, environ)
    kinds = {type(entry).__name__.lower() for entry in entries}
    if len(kinds) > 1:
        raise ListRefused(f"the list mixes {' and '.join(sorted(kinds))}: give each kind a list, and a call, of its own")
    return entries


def read_json(text: str, environ: Mapping[str, str]) -> list[ListEntry]:
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as problem:
        raise ListRefused(f"the list is no JSON ({problem}); it must be a JSON list of transfers, mkdirs or removes") from None
    if not isinstance(data, list):
        raise ListRefused(f"the list is a JSON {type(data).__name__}, not a list; put its entries between [ and ]")
    return [entry_of(raw, f"entry {number}", environ) for number, raw in enumerate(data, 1)]


def entry_of(raw: object, where: str, environ: Mapping[str, str]) -> ListEntry:
    kind = raw.get("type") if isinstance(raw, dict) else None
    if isinstance(raw, dict) and kind == "transfer":
        sources = urls_of(raw, "src_urls", where, environ)
        return Transfer(raw, sources, urls_of(raw, "dest_urls", where, environ))
    if isinstance(raw, dict) and kind in ("mkdir", "remove"):
        target: Any = raw.get("target")
        url = url_of(target, f"{where}, target", environ)
        if kind == "mkdir":
            return Directory(raw, url)
        return Removal(raw, url, truth(target.get("recursive", False), f"{where}, recursive"))
    raise ListRefused(f"{where} has the type {kind!r}; it must be transfer, mkdir or remove")


def urls_of(raw: Mapping[str, object], key: str, where: str, environ: Mapping[str, str]) -> list[Url]:
    given = raw.get(key)
    if not isinstance(given, list) or not given:
        raise ListRefused(f"{where}, {key}: there must be a list of at least one URL")
    return [url_of(one, f"{where}, {key} {number}", environ) for number, one in enumerate(given, 1)]


def url_of(given: object, where: str, environ: Mapping[str, str]) -> Url:
    if not isinstance(given, dict):
        raise ListRefused(f"{where}: an object with site_label and url is needed")
    for key in ("site_label", "url"):
        if not isinstance(given.get(key), str):
            raise ListRefused(f"{where}: {key} is missing or no text")
    try:
        url = Url(given["url"], given["site_label"], environ)
    except ValueError as problem:
        raise ListRefused(f"{where}: {problem}") from None
    if not is_name(url.path):
        raise ListRefused(f"{where}: {given['url']!r} holds a zero byte, or half a character; no file can be called that")
    url.kind = given.get("type")
    url.checkpoint = str(given.get("checkpoint", "")).lower() in YES
    if "priority" in given:
        try:
            url.priority = int(given["priority"])
        except (TypeError, ValueError, OverflowError):
            raise ListRefused(f"{where}: the priority {given['priority']!r} is not a number") from None
    return url


def is_name(path: str) -> bool:
    try:
        path.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return "\0" not in path


def truth(value: object, where: str) -> bool:
    """The planner writes "True"."""
    text = str(value).lower()
    if text in YES:
        return True
    if text in NO:
        return False
    raise ListRefused(f"{where}: {value!r} is neither true nor false")


def read_text(text: str, environ: Mapping[str, str]) -> list[ListEntry]:
    """Four lines a pair: "# src ID SITE", URL, "# dst ID SITE", URL. A URL without a comment above it has the site of the last."""
    entries: list[ListEntry] = []
    sites: dict[str, str] = {}
    source: tuple[str, str] | None = None
    expected = "src"
    commented = False
    for number, line in enumerate(text.replace("\r\n", "\n").split("\n"), 1):
        # Shorter lines are no URL; the older form skips them.
        if len(line) <= 4:
            continue
        if line.startswith("#") and not commented:
            found = SITE.search(line)
            if not found:
                raise ListRefused(f"line {number}: {line!r} does not name a site; write `# {expected} 1 SITE`")
            sites[expected], commented = found.group(1), True
            continue
        if expected not in sites:
            raise ListRefused(f"line {number}: no comment before {line!r} names its site; write `# {expected} 1 SITE` above it")
        commented = False
        if expected == "src":
            source, expected = (line, sites["src"]), "dst"
            continue
        raw = {
            "type": "transfer",
            "src_urls": [{"site_label": source[1], "url": source[0]}] if source else [],
            "dest_urls": [{"site_label": sites["dst"], "url": line}],
        }
        entries.append(entry_of(raw, f"line {number}", environ))
        source, expected = None, "src"
    if source is not None:
        raise ListRefused(f"the list ends after the source {source[0]!r}: its destination is missing; was the list cut off?")
    return entries
