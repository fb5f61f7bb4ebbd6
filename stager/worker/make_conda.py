"""Makes an environment of conda packages with rattler, a library: no conda program is needed, or called.

May know: rattler, one directory. One rule: nothing that is installed is run. Archives have the digests of their lock file before they are
opened, and are unpacked and linked where conda_paths allows it; what a package would run then is left out, and told.
"""

from __future__ import annotations

import asyncio
import json
import platform
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.model.errors import Refused, StagerError, Transient
from stager.worker.conda_channels import fetch_all, mirrors_of
from stager.worker.conda_paths import ARCHIVES, READ, Inside, check, cleaned, inside_of, untrue
from stager.worker.explicit_file import Wanted, packages_in
from stager.worker.installing import NO_RATTLER, NOT_MADE_CODE, full, is_full, tail

# Another version makes its own.
FORMAT = "conda-1"
LIBC = "__glibc"
ACTIVATE, VARIABLES = "etc/conda/activate.d/*.sh", "etc/conda/env_vars.d/*.json"


def read(raw: bytes) -> list[Wanted]:
    return packages_in(raw, platform.machine())


def words_of(packages: list[Wanted]) -> list[str]:
    """Wherever they come from, and in whatever order they stand."""
    return [FORMAT, platform.machine(), *sorted(f"{each.file_name} {each.algorithm}:{each.digest}" for each in packages)]


def make(root: Path, packages: list[Wanted], lock: int, environ: Mapping[str, str]) -> dict[str, Any]:
    """It is at its place from the start, since its files name it. What is to be told of it. It starts no other process: `lock` is ours."""
    try:
        import rattler  # noqa: F401
    except ImportError:
        raise Refused(NO_RATTLER, code="conda_missing") from None
    archives = root / ARCHIVES
    root.mkdir(mode=0o700)
    archives.mkdir()
    found = asyncio.run(installed(root, archives, packages, mirrors_of(environ)))
    # Files of the environment were links to these.
    shutil.rmtree(archives)
    unrun = sorted(str(each.index.get("name")) for each in found if each.scripts)
    return {
        "conda": True,
        "packages": len(packages),
        "variables": variables_of(root),
        "activate": any(root.glob(ACTIVATE)),
        "unrun": unrun,
    }


async def installed(root: Path, archives: Path, packages: list[Wanted], mirrors: Mapping[str, str]) -> list[Inside]:
    from rattler import RepoDataRecord, install
    from rattler.exceptions import InstallerError

    paths = await fetch_all(packages, archives, mirrors)
    try:
        found = await asyncio.gather(*map(opened, paths))
        await asyncio.to_thread(check, found, str(root))
        require_libc(found, platform.libc_ver()[1])
        records = await asyncio.gather(*map(RepoDataRecord.from_package_archive, paths))
        await install(records, root, cache_dir=archives / "unpacked", execute_link_scripts=False, show_progress=False)
    except StagerError:
        raise
    except (InstallerError, OSError, RuntimeError, ValueError) as problem:
        raise of_rattler(str(problem)) from None
    return found


async def opened(path: Path) -> Inside:
    """What is in an archive, all of it: its digest says that it is the one that is meant, and not what is in it."""
    from rattler.package_streaming import PackageArchive

    entries: list[tuple[str, bool]] = []
    texts: dict[str, bytes] = {}
    try:
        archive = await PackageArchive.from_path(path)
        for section in ("info", "pkg"):
            async for entry in archive.stream(section):
                entries.append((entry.name, entry.is_link))
                name = cleaned(entry.name)
                if name in READ and not entry.is_link:
                    texts.setdefault(name, await entry.read())
    except (OSError, RuntimeError, ValueError) as problem:
        raise untrue(path.name, tail(str(problem))) from None
    return inside_of(path.name, entries, texts)


def require_libc(packages: list[Inside], version: str) -> None:
    """Of what packages want of a host, this alone can come to no good end: a GPU that is not here may be where another job runs."""
    from rattler import BuildString, MatchSpec, PackageRecord

    libc = PackageRecord(LIBC, version or "0", BuildString("0"), 0, "linux")
    for package in packages:
        depends = package.index.get("depends")
        for text in depends if isinstance(depends, list) else ():
            if isinstance(text, str) and text.startswith(f"{LIBC} ") and not MatchSpec(text).matches(libc):
                had = f"this host has {version}" if version else "this host has another C library"
                raise Refused(f"{package.file_name} needs {text}, and {had}", code="host_too_old")


def variables_of(root: Path) -> dict[str, str]:
    """That packages set without a program."""
    found: dict[str, str] = {}
    for path in sorted(root.glob(VARIABLES)):
        try:
            said = json.loads(path.read_bytes())
        except ValueError:
            continue
        if isinstance(said, dict):
            found |= {name: value for name, value in said.items() if isinstance(value, str)}
    return found


def of_rattler(said: str) -> StagerError:
    if is_full(said):
        return full(said)
    return Transient(f"its packages could not be installed: {tail(said)}", code=NOT_MADE_CODE)
