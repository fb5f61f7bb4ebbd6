"""Physical file names of Pegasus catalogs, grouped into origins: one for each scheme and host (s3: bucket), based above all its files.

May know: the model, URLs. One rule: no secret gets in and none is repeated in a message.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote, unquote

from stager.model.files import Location
from stager.model.workflow import Origin, OriginKind
from stager.readers.native_origins import REMOTE, check_no_secret, check_query
from stager.readers.paths import clean_path

SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://(.*)", re.DOTALL)
SERVED = "file, sftp, scp, s3, http and https are"
AMAZON = frozenset({"amazon", "aws"})
QUERY_MAX = 2000
NAME_SIGN = re.compile(r"[^A-Za-z0-9]+")


class NotServed(Exception):
    """A place that exists, and that stager does not reach."""


@dataclass(frozen=True, slots=True)
class Pfn:
    """`root` tells origins apart: a URL without path, and with a `?` where paths have queries. `path` is absolute and starts with a
    slash."""

    kind: OriginKind
    root: str
    path: str


def parse_pfn(text: str, base: Path) -> Pfn:
    """Raises ValueError on what is no place, NotServed on what is one elsewhere. A URL with a secret is not repeated."""
    if "\0" in text or not text.strip():
        raise ValueError("the pfn is empty" if not text.strip() else "the pfn holds a NUL character")
    match = SCHEME.fullmatch(text)
    if match is None:
        if "$" in text:
            raise ValueError(f"{text!r} has a variable; write the path itself")
        return file_pfn(text if text.startswith("/") else str(base / text))
    scheme, rest = match[1].lower(), match[2]
    if scheme in ("file", "symlink"):
        host, slash, path = rest.partition("/")
        if host not in ("", "localhost"):
            raise NotServed(f"file://{host} is another machine's disk; write sftp://{host}/…")
        return file_pfn(slash + unquote(path))
    if scheme in ("sftp", "scp", "http", "https"):
        return remote_pfn("sftp" if scheme == "scp" else scheme, rest)
    if scheme == "s3":
        return s3_pfn(rest)
    raise NotServed(f"{scheme}:// is not served; {SERVED}")


def file_pfn(path: str) -> Pfn:
    return Pfn(OriginKind.FILE, "file://", plain(path))


def remote_pfn(scheme: str, rest: str) -> Pfn:
    if scheme != "sftp":
        return web_pfn(scheme, rest)
    parts = REMOTE.fullmatch("//" + rest)
    check_no_secret(OriginKind.SFTP, "//" + rest, parts)
    if parts is None or not parts["path"]:
        raise ValueError("the pfn should be sftp://HOST/PATH")
    host, _, path = rest.partition("/")
    return Pfn(OriginKind.SFTP, f"sftp://{host}", plain("/" + unquote(path)))


def web_pfn(scheme: str, rest: str) -> Pfn:
    """A query belongs to what is asked for, as `?v=poss2&r=10.68` of an image server does; one that holds a secret is refused."""
    names, sign, query = rest.partition("?")
    parts = REMOTE.fullmatch("//" + names)
    check_no_secret(OriginKind.HTTP, "//" + names, parts)
    if parts is None or not parts["path"] or "#" in query:
        raise ValueError(f"the pfn should be {scheme}://HOST/PATH, or {scheme}://HOST/PATH?QUERY")
    check_query(query)
    host, _, path = names.partition("/")
    path = plain("/" + unquote(path))
    if not sign:
        return Pfn(OriginKind.HTTP, f"{scheme}://{host}", path)
    if "?" in path or len(query) > QUERY_MAX:
        raise ValueError(f"the pfn has a '?' in its name besides that of its query, or a query of more than {QUERY_MAX} characters")
    # A slash means the same encoded, and would look like a directory.
    return Pfn(OriginKind.HTTP, f"{scheme}://{host}?", f"{path}?{query.replace('/', '%2F')}")


def s3_pfn(rest: str) -> Pfn:
    """`bucket/key`, or as Pegasus writes it `identity@site/bucket/key`, where the site's endpoint is in Pegasus' credentials file."""
    host, _, path = rest.partition("/")
    if "@" in host:
        identity, _, site = host.rpartition("@")
        if ":" in identity:
            raise ValueError("the pfn holds a key before '@'; take it out and use an AWS profile or the AWS_ variables")
        if site.lower() not in AMAZON:
            reason = f"the endpoint of s3 site {site!r} is in Pegasus' credentials file, which is not read"
            raise NotServed(f"{reason}; write s3://BUCKET/KEY and set AWS_ENDPOINT_URL")
        host, _, path = path.partition("/")
    if not host or not path or "?" in rest:
        raise ValueError("the pfn should be s3://BUCKET/KEY, without a query")
    return Pfn(OriginKind.S3, f"s3://{host}", plain("/" + path))


def plain(path: str) -> str:
    """Absolute, no double slashes. Raises ValueError where '..' leads through what may be a symlink."""
    if ".." in path.split("/"):
        raise ValueError(f"{path!r} has '..'; write the path without it")
    return "/" + clean_path(path.lstrip("/"))


class Places:
    """Origins of all places, in the order they first appear, and where in them each place is."""

    def __init__(self, pfns: Iterable[Pfn], taken: Iterable[str] = ()) -> None:
        directories: dict[str, list[str]] = {}
        kinds: dict[str, OriginKind] = {}
        for pfn in pfns:
            kinds[pfn.root] = pfn.kind
            directories.setdefault(pfn.root, []).append(posixpath.dirname(pfn.path))
        self.base = {root: posixpath.commonpath(set(paths)) for root, paths in directories.items()}
        self.names: dict[str, str] = {}
        self.origins: dict[str, Origin] = {}
        for root, base in self.base.items():
            name = fresh_name(root, {*taken, *self.origins})
            self.names[root] = name
            server, queries = root.removesuffix("?"), (("queries", "true"),) if root.endswith("?") else ()
            url = server + quote(base, safe="/~") if base != "/" or kinds[root] is OriginKind.FILE else server
            self.origins[name] = Origin(name, kinds[root], url, options=queries)

    def locate(self, pfn: Pfn) -> Location:
        return Location(self.names[pfn.root], posixpath.relpath(pfn.path, self.base[pfn.root]))


def fresh_name(root: str, taken: set[str]) -> str:
    """`local` for files of this machine, else the scheme and the host: `sftp-lab-example-org`."""
    scheme, _, host = root.partition("://")
    wanted = "local" if scheme == "file" else f"{scheme}-{NAME_SIGN.sub('-', host.rpartition('@')[2]).strip('-')}"[:50]
    name, number = wanted, 2
    while name in taken:
        name, number = f"{wanted}-{number}", number + 1
    return name
