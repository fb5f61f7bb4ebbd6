"""Whether what conda packages say of their files stays within the environment that they are put into.

May know: names of files, what a package says of itself. One rule: an installer believes a package; so a package is believed only where what
it says is in it, and where no name leads through a link.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from stager.model.errors import InvalidInput, Refused
from stager.worker.lock_file import INVALID_CODE
from stager.worker.place import TOLD

INDEX, PATHS, FILES, LINKS = "info/index.json", "info/paths.json", "info/files", "info/link.json"
# What is read of each package, by its name in it.
READ = (INDEX, PATHS, FILES, LINKS)
# Where archives lie until all of them are installed.
ARCHIVES = ".stager-packages"
# What the installer writes itself.
INSTALLERS = ("conda-meta", "__clobbers__")
NOARCH_PLACES = {"site-packages": "", "python-scripts": "bin"}
MAJOR_MINOR = re.compile(r"([0-9]+)\.([0-9]+)")
SCRIPT_ENDS = ("-pre-link.sh", "-post-link.sh")


@dataclass(frozen=True, slots=True)
class Declared:
    """A file as its package declares it. `placeholder_bytes`: of the prefix in a binary file, that the one of the environment replaces."""

    path: str
    directory: bool = False
    symlink: bool = False
    placeholder_bytes: int | None = None


@dataclass(frozen=True)
class Inside:
    """What is in an archive. `entries`: all names; `links`: those of symlinks and of hard links."""

    file_name: str
    entries: frozenset[str]
    links: frozenset[str]
    texts: Mapping[str, bytes] = field(default_factory=dict)

    def parsed(self, name: str) -> dict[str, Any]:
        try:
            found = json.loads(self.texts.get(name, b"{}"))
        except ValueError:
            found = None
        if not isinstance(found, dict):
            raise untrue(self.file_name, f"its {name} cannot be read")
        return found

    @cached_property
    def index(self) -> dict[str, Any]:
        return self.parsed(INDEX)

    @cached_property
    def is_noarch_python(self) -> bool:
        return self.index.get("noarch") == "python"

    @cached_property
    def declared(self) -> list[Declared]:
        if PATHS not in self.texts:
            lines = self.texts.get(FILES, b"").decode(errors="surrogateescape").split("\n")
            return [Declared(name) for line in lines if (name := line.removesuffix("\r"))]
        entries = self.parsed(PATHS).get("paths")
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise untrue(self.file_name, f"its {PATHS} cannot be read")
        return [declared_of(entry) for entry in entries]

    @cached_property
    def entry_points(self) -> list[str]:
        """The programs that are made for it."""
        said = self.parsed(LINKS).get("noarch") if self.is_noarch_python else None
        found = said.get("entry_points") if isinstance(said, dict) else None
        return [str(each).partition("=")[0].strip() for each in found] if isinstance(found, list) else []

    @property
    def scripts(self) -> list[str]:
        """What it would run when it is installed."""
        return sorted(name for name in self.entries if name.startswith("bin/.") and name.endswith(SCRIPT_ENDS))


def declared_of(entry: Mapping[str, Any]) -> Declared:
    placeholder = entry.get("prefix_placeholder") if entry.get("file_mode") == "binary" else None
    room = None if placeholder is None else len(str(placeholder).encode())
    kind = entry.get("path_type")
    return Declared(str(entry.get("_path")), kind == "directory", kind == "softlink", room)


def inside_of(file_name: str, entries: Iterable[tuple[str, bool]], texts: Mapping[str, bytes]) -> Inside:
    """`entries`: each name in the archive, and whether it is a link. `texts`: of those in READ."""
    names: set[str] = set()
    links: set[str] = set()
    for written, is_link in entries:
        name = cleaned(written)
        if ".." in name.split("/"):
            raise untrue(file_name, f"it has a file {written!r}")
        if name in names and (is_link or name in links or name in READ):
            raise untrue(file_name, f"it has {name!r} twice")
        names.add(name)
        if is_link:
            links.add(name)
    through = next((name for name in names if not links.isdisjoint(above(name))), None)
    if through is not None:
        raise untrue(file_name, f"it has {through!r}, which leads through a link of its own")
    return Inside(file_name, frozenset(names), frozenset(links), texts)


def cleaned(name: str) -> str:
    """As it is once it is unpacked."""
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def check(packages: Iterable[Inside], prefix: str) -> None:
    """Raises InvalidInput for a package that says what is not so, Refused where `prefix` is too long for one."""
    packages = list(packages)
    for package in packages:
        named = "-".join(str(package.index.get(word)) for word in ("name", "version", "build"))
        if package.file_name not in (f"{named}.conda", f"{named}.tar.bz2"):
            raise untrue(package.file_name, f"it says that it is {named}")
    site = site_packages(packages)
    owners: dict[str, Inside] = {}
    links: set[str] = set()
    for package in packages:
        check_declared(package, prefix)
        mapped = {each: destination(package, each.path, site) for each in package.declared}
        leaves = [path for each, path in mapped.items() if not each.directory or each.path in package.links]
        links |= {path for each, path in mapped.items() if each.path in package.links}
        owners |= dict.fromkeys(leaves, package)
    for package in packages:
        made = [f"bin/{name}" for name in package.entry_points]
        for path in [*(destination(package, each.path, site) for each in package.declared), *made]:
            for parent in above(path):
                if parent in owners:
                    raise untrue(package.file_name, f"it puts {path!r} below {parent!r}, which is a file of {owners[parent].file_name}")
        if (wrong := next((path for path in made if path in links or path.count("/") != 1), None)) is not None:
            raise untrue(package.file_name, f"its program {wrong!r} would be written where a link leads")


def check_declared(package: Inside, prefix: str) -> None:
    seen: set[str] = set()
    for each in package.declared:
        parts = each.path.split("/")
        if {"", ".", ".."} & {*parts} or "\0" in each.path or each.path in (TOLD, ARCHIVES) or parts[0] == ARCHIVES:
            raise untrue(package.file_name, f"it has a file {each.path!r}")
        if each.path in seen:
            raise untrue(package.file_name, f"it declares {each.path!r} twice")
        seen.add(each.path)
        if not each.directory and each.path not in package.entries or not package.links.isdisjoint(above(each.path)):
            raise untrue(package.file_name, f"it declares {each.path!r}, which is not in it")
        if each.symlink and each.path not in package.links:
            raise untrue(package.file_name, f"it declares {each.path!r} as a link, and it is none")
        if each.path in package.links and parts[0] in INSTALLERS:
            raise untrue(package.file_name, f"it has a link {each.path!r}")
        if each.placeholder_bytes is not None and len(prefix.encode()) > each.placeholder_bytes:
            text = f"{package.file_name} allows {each.placeholder_bytes} bytes for the path of its environment, and {prefix} is longer"
            raise Refused(f"{text}; use a state directory with a shorter path", code="prefix_too_long")


def site_packages(packages: list[Inside]) -> str:
    """Where modules lie. Raises InvalidInput where a package has some, and there is no Python."""
    python = next((package for package in packages if package.index.get("name") == "python"), None)
    if python is None:
        if (needing := next((package for package in packages if package.is_noarch_python), None)) is not None:
            raise InvalidInput(f"{needing.file_name} needs python, which its lock file does not name", code=INVALID_CODE)
        return "site-packages"
    index = python.index
    version = MAJOR_MINOR.match(str(index.get("version")))
    if version is None:
        raise untrue(python.file_name, f"its version is {index.get('version')!r}")
    path = str(index.get("python_site_packages_path") or f"lib/python{int(version[1])}.{int(version[2])}/site-packages")
    if {"", ".", ".."} & {*path.split("/")}:
        raise untrue(python.file_name, f"its modules would be put into {path!r}")
    return path


def destination(package: Inside, path: str, site: str) -> str:
    """Where it is put."""
    first, slash, rest = path.partition("/")
    if not package.is_noarch_python or first not in NOARCH_PLACES:
        return path
    return (NOARCH_PLACES[first] or site) + slash + rest


def above(path: str) -> Iterator[str]:
    while "/" in path:
        path = path.rpartition("/")[0]
        yield path


def untrue(file_name: str, what: str) -> InvalidInput:
    return InvalidInput(f"{file_name} is no package that can be installed safely: {what}", code="package_unsafe")
