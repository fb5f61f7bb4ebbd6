"""A lock file of conda packages: the URL of each with its digest, for one platform, as `conda list --explicit --sha256` prints it.

May know: text. One rule: an installer gets what was understood here, line by line. No password gets through, and no line is passed over
that names a package.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from stager.worker.lock_file import LOCK_BYTES_MAX, PACKAGES_MAX, invalid, shown

EXPLICIT = "@EXPLICIT"
NOARCH = "noarch"
# As conda calls them, by what the kernel does.
SUBDIRS = {
    "x86_64": "linux-64",
    "aarch64": "linux-aarch64",
    "ppc64le": "linux-ppc64le",
    "s390x": "linux-s390x",
    "riscv64": "linux-riscv64",
    "i686": "linux-32",
}
HOW = "write it with `conda list --explicit --sha256`, `micromamba env export --explicit` or `conda-lock -k explicit`"
LINE = re.compile(r"(?P<url>[^\s#]+)#(?:(?P<md5>[0-9a-f]{32})|(?:sha256:)?(?P<sha256>[0-9a-f]{64}))")
FILE_NAME = re.compile(r"(?P<name>[A-Za-z0-9_][A-Za-z0-9_.+-]*)-[A-Za-z0-9_.!+]+-[A-Za-z0-9_.!+]+(?:\.conda|\.tar\.bz2)")
SCHEMES = ("https", "http", "file")
# Of a password in a URL, as anaconda.org has them.
TOKEN = re.compile(r"(?:^|/)t/[^/]+/")
# What conda says of a package that it knows no URL of, and conda-lock of one of pip: in comments.
UNLISTED = re.compile(r"#\s*no URL for:\s*(?P<conda>\S+)|# pip (?P<pip>\S+) @ ")
# Files that are no lock file of this kind, by a line of theirs, and what makes one of them.
OTHERS = (
    (re.compile(r"environments:"), "it is a lock file of pixi; `pixi workspace export conda-explicit-spec DIRECTORY` writes one for conda"),
    (re.compile(r"metadata:|package:"), "it is the lock file of conda-lock; `conda-lock render -k explicit` writes one for conda"),
    (
        re.compile(r"dependencies:|channels:"),
        "it is an environment file, which says what to install, and not what exactly; make that environment once, and "
        "write down what is in it: `conda list --explicit --sha256 > conda.lock`, or lock the file with `conda-lock -k explicit -f`",
    ),
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """One package. `algorithm`: of its digest."""

    url: str
    file_name: str
    name: str
    algorithm: str
    digest: str


def packages_in(raw: bytes, machine: str) -> list[Wanted]:
    """In the order of the file. `machine`: as the kernel calls it. Raises InvalidInput that names the line."""
    if len(raw) > LOCK_BYTES_MAX:
        raise invalid(f"it is larger than {LOCK_BYTES_MAX >> 20} MiB")
    try:
        lines = [line.strip() for line in raw.decode("utf-8-sig").splitlines()]
    except UnicodeDecodeError:
        raise invalid("it is not UTF-8") from None
    if EXPLICIT not in lines:
        raise invalid(other_kind(lines))
    found = list(understood_lines(lines, SUBDIRS.get(machine, machine)))
    if not found:
        raise invalid(f"it names no package; {HOW}")
    if len(found) > PACKAGES_MAX:
        raise invalid(f"it names more than {PACKAGES_MAX:,} packages")
    seen: dict[str, Wanted] = {}
    for each in found:
        if (first := seen.setdefault(each.name, each)) is not each:
            raise invalid(f"it names {each.name} twice: {first.file_name} and {each.file_name}")
    return found


def other_kind(lines: list[str]) -> str:
    for means, told in OTHERS:
        if any(means.match(line) for line in lines):
            return told
    return f"it has no line {EXPLICIT}; {HOW}"


def understood_lines(lines: list[str], subdir: str) -> Iterator[Wanted]:
    for number, line in enumerate(lines, start=1):
        if (left_out := UNLISTED.match(line)) is not None:
            name, why = (left_out["pip"], "is one of pip") if left_out["pip"] else (left_out["conda"], "has no URL")
            raise invalid(f"line {number}: {name} {why}, so it is not installed; build a conda package of it, or use venv: or container:")
        if line and line != EXPLICIT and not line.startswith("#"):
            yield understood(number, line, subdir)


def understood(number: int, line: str, subdir: str) -> Wanted:
    match = LINE.fullmatch(line)
    if match is None:
        if "#" not in line and "://" in line:
            raise invalid(f"line {number} has no digest: {name_in(line)}; {HOW}")
        raise invalid(f"line {number} is not URL#DIGEST: {shown(line)}; {HOW}")
    try:
        parts = urlsplit(match["url"])
        _ = parts.port
    except ValueError:
        raise invalid(f"line {number} is not URL#DIGEST; {HOW}") from None
    path = unquote(parts.path)
    *above, file_name = path.split("/")
    if parts.scheme not in SCHEMES or not path.startswith("/") or ".." in above or (parts.netloc == "") != (parts.scheme == "file"):
        raise invalid(f"line {number} is no URL of a channel (https, http or file): {shown(line)}")
    if "@" in parts.netloc or TOKEN.search(path) or parts.query:
        where = "conda list prints URLs without it; a host finds it by RATTLER_AUTH_FILE"
        raise invalid(f"line {number} has a password in its URL, and everybody who reads the workflow would have it; {where}")
    named = FILE_NAME.fullmatch(file_name)
    if named is None:
        raise invalid(f"line {number} names no package (NAME-VERSION-BUILD.conda or .tar.bz2): {name_in(line)}")
    if above[-1] not in (subdir, NOARCH):
        told = f"{above[-1]} and this host is {subdir}"
        raise invalid(f"line {number}: {file_name} is for {told}; lock it for each platform, and have a job for each")
    algorithm = "sha256" if match["sha256"] else "md5"
    return Wanted(match["url"], file_name, named["name"].lower(), algorithm, match[algorithm])


def name_in(line: str) -> str:
    """Of a package; nothing else of a URL, which may hold a password."""
    last = re.split(r"[?#]", line)[0].rpartition("/")[2]
    return last if FILE_NAME.fullmatch(last) else "a URL"
