"""The entries of Pegasus catalogs that make a workflow call stager-transfer, as documents of their own or added to catalogs that are there.

May know: the shapes of the transformation and the site catalog, which variables stager-transfer reads. One rule: an entry that is there
and says something else is the user's; it is changed only when told so.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from stager.model.errors import InvalidInput, Refused
from stager.readers.lines import nearest
from stager.readers.yaml_amend import Tree, amended, document, list_at, tree_of

NAMESPACE, NAMES = "pegasus", ("transfer", "cleanup", "dirmanager")
PROGRAM = "stager-transfer"
HERE = "local"
# The planner makes these up where the site catalog does not have them.
MADE_UP = frozenset({HERE, "condorpool"})
# What stager-transfer reads of its own; True: a path.
VARIABLES = {
    "PEGASUS_TRANSFER_FALLBACK": True,
    "PEGASUS_TRANSFER_THREADS": False,
    "STAGER_ATTACHED": True,
    "STAGER_IONODE": True,
    "STAGER_SSH_CONFIG": True,
    "STAGER_TRANSFER_LEAVES": False,
}
SITE = re.compile(r"[\w.-]+")
# The planner writes the path bare into shell scripts and submit files.
UNSAFE = re.compile(r"[\s\x00-\x1f\"'\\$`;&|<>(){}*?\[\]#!]")


@dataclass(frozen=True, slots=True)
class TransferSite:
    """Where stager-transfer is at a site, and what it is to find in its environment there."""

    name: str
    program: str
    environ: Mapping[str, str] = field(default_factory=dict)


def transfer_sites(places: Sequence[str], variables: Sequence[str], beside: Sequence[Path]) -> tuple[TransferSite, ...]:
    """From `NAME[=PATH]` and `SITE:NAME=VALUE`. `beside`: directories in which this program's own may be. Raises InvalidInput."""
    programs: dict[str, str] = {}
    for place in places or (HERE,):
        name, said, path = place.partition("=")
        if not SITE.fullmatch(name):
            raise InvalidInput(f"--site {place}: {name!r} is no name of a site; write NAME=PATH", code="bad_request", subject=place)
        path = path if said else program_here(name, beside)
        check_path(f"--site {place}", path)
        if programs.setdefault(name, path) != path:
            raise InvalidInput(f"--site: {name} has two paths, {programs[name]} and {path}", code="bad_request", subject=name)
    environs: dict[str, dict[str, str]] = {name: {} for name in programs}
    for given in variables:
        site, variable, value = variable_of(given, programs)
        if environs[site].setdefault(variable, value) != value:
            text = f"--env: {variable} at {site} has two values, {environs[site][variable]!r} and {value!r}"
            raise InvalidInput(text, code="bad_request", subject=variable)
    return tuple(TransferSite(name, path, environs[name]) for name, path in programs.items())


def program_here(site: str, beside: Sequence[Path]) -> str:
    if site != HERE:
        text = f"--site {site}: say where {PROGRAM} is there: --site {site}=/PATH/bin/{PROGRAM}"
        raise InvalidInput(text, code="bad_request", subject=site)
    for directory in beside:
        if (directory / PROGRAM).is_file():
            return str(directory / PROGRAM)
    looked = " and ".join(dict.fromkeys(map(str, beside)))
    text = f"there is no {PROGRAM} in {looked}; install plugins/pegasus there, or say --site {HERE}=/PATH/bin/{PROGRAM}"
    raise InvalidInput(text, code="not_found", subject=PROGRAM)


def check_path(where: str, path: str) -> None:
    if not path.startswith("/") or path.endswith("/"):
        raise InvalidInput(f"{where}: {path!r} is not the absolute path of a program", code="bad_request", subject=path)
    if found := UNSAFE.search(path):
        text = f"{where}: Pegasus writes this path into scripts without quotes, so it cannot hold {found[0]!r}; install to another place"
        raise InvalidInput(text, code="bad_request", subject=path)


def variable_of(given: str, sites: Mapping[str, str]) -> tuple[str, str, str]:
    site, colon, rest = given.partition(":")
    name, equals, value = rest.partition("=")
    if not (colon and equals):
        raise InvalidInput(f"--env {given}: write SITE:NAME=VALUE", code="bad_request", subject=given)
    if site not in sites:
        raise InvalidInput(f"--env {given}: there is no --site {site}{nearest(site, sites)}", code="bad_request", subject=given)
    if name not in VARIABLES:
        text = f"--env {given}: {PROGRAM} does not read {name!r}{nearest(name, VARIABLES)}; it reads {', '.join(VARIABLES)}"
        raise InvalidInput(text, code="bad_request", subject=name)
    if any(ord(letter) < 32 or ord(letter) == 127 for letter in value):
        raise InvalidInput(f"--env {site}:{name}: a value is one line of text", code="bad_request", subject=name)
    if VARIABLES[name] and value:
        check_path(f"--env {given}", value)
    if name == "PEGASUS_TRANSFER_THREADS" and not (value.isascii() and value.isdigit() and 1 <= int(value) <= 1024):
        raise InvalidInput(f"--env {given}: it must be a number from 1 to 1024", code="bad_request", subject=name)
    return site, name, value


def transformation_catalog(sites: Sequence[TransferSite]) -> str:
    """A transformation catalog with nothing else in it."""
    return document({"pegasus": "5.0", "transformations": [entry(name, sites) for name in NAMES]})


def site_catalog(sites: Sequence[TransferSite]) -> str:
    """A site catalog of what these sites need; empty if that is nothing."""
    needs: list[Tree] = [{"name": site.name, "profiles": {"env": dict(site.environ)}} for site in sites if site.environ]
    return document({"pegasus": "5.0", "sites": needs}) if needs else ""


def entry(name: str, sites: Sequence[TransferSite]) -> dict[str, Tree]:
    return {"namespace": NAMESPACE, "name": name, "sites": [installed(site) for site in sites]}


def installed(site: TransferSite) -> dict[str, Tree]:
    return {"name": site.name, "pfn": site.program, "type": "installed"}


def with_transformations(text: str, sites: Sequence[TransferSite], replace: bool, shown: str) -> str:
    """The catalog, or the workflow with one in it, with the entries of these sites. Raises Refused for those that say something else."""
    top, catalog = catalog_in(text, "transformations", "transformationCatalog", shown)
    conflicts = []
    entries = list_at(catalog, "transformations", shown)
    for name in NAMES:
        mine = [old for old in entries if old.get("namespace") == NAMESPACE and old.get("name") == name and old.get("version") is None]
        for site in sites:
            there = [(old, place) for old in mine for place in list_at(old, "sites", shown) if place.get("name") == site.name]
            for _, place in there:
                other = {key: place.get(key) for key, value in installed(site).items() if place.get(key) != value}
                if other:
                    said = " and ".join(f"{key} {value}" if value else f"no {key}" for key, value in other.items())
                    conflicts.append(f"{NAMESPACE}::{name} at site {site.name} has {said}")
                    place.update(installed(site))
            if not there and mine:
                mine[0]["sites"] = [*list_at(mine[0], "sites", shown), installed(site)]
        if not mine:
            entries = [*entries, entry(name, sites)]
    catalog["transformations"] = list(entries)
    refuse(conflicts, replace, shown)
    return amended(text, top, shown)


def with_environment(text: str, sites: Sequence[TransferSite], replace: bool, shown: str) -> str:
    """The site catalog, or the workflow with one in it, with what these sites need. Raises InvalidInput for sites that it does not have."""
    top, catalog = catalog_in(text, "sites", "siteCatalog", shown)
    conflicts = []
    by_name = {str(known.get("name")): known for known in list_at(catalog, "sites", shown)}
    for site in sites:
        known = by_name.get(site.name)
        if known is None:
            if site.name in MADE_UP and not site.environ:
                continue
            advice = "; write it there, since only then it has an environment" if site.name in MADE_UP else nearest(site.name, by_name)
            raise InvalidInput(f"{shown} has no site {site.name!r}{advice}", code="bad_request", subject=site.name)
        if not site.environ:
            continue
        environ = mapping_in(mapping_in(known, "profiles", shown), "env", shown)
        for variable, value in site.environ.items():
            if environ.get(variable) not in (None, value):
                conflicts.append(f"{variable} of site {site.name} is {environ[variable]!r}")
            environ[variable] = value
    refuse(conflicts, replace, shown)
    return amended(text, top, shown)


def mapping_in(tree: dict[str, Tree], key: str, shown: str) -> dict[str, Tree]:
    if tree.get(key) is None:
        tree[key] = {}
    found = tree[key]
    if not isinstance(found, dict):
        raise InvalidInput(f"{shown}: {key} must be a mapping", code="bad_request", subject=shown)
    return found


def refuse(conflicts: Sequence[str], replace: bool, shown: str) -> None:
    if conflicts and not replace:
        raise Refused(f"{shown}: " + "; ".join(conflicts) + ". Call it with --replace to change that", code="entry_exists", subject=shown)


def catalog_in(text: str, key: str, inline: str, shown: str) -> tuple[dict[str, Tree], dict[str, Tree]]:
    """The whole document, and the mapping in it that has `key`, or may have it."""
    wanted = "transformation" if key == "transformations" else "site"
    blank = all(not line.strip() or line.lstrip().startswith("#") for line in text.splitlines())
    top = {} if blank else tree_of(text, shown)
    if not isinstance(top, dict) or "pegasus" not in top:
        text = (
            f"{shown} is no {wanted} catalog of Pegasus 5: it has no key 'pegasus' at the top. A new one: print it, and send that to a file"
        )
        raise InvalidInput(text, code="bad_request", subject=shown)
    if key in top:
        return top, top
    if inline in top:
        return top, mapping_in(top, inline, shown)
    others = [other for other in ("sites", "transformations", "replicas", "jobs") if other in top]
    if others:
        advice = f", and no {inline} in it; name the catalog that it is planned with" if others == ["jobs"] else ""
        raise InvalidInput(f"{shown} is no {wanted} catalog: it has {others[0]}{advice}", code="bad_request", subject=shown)
    return top, top
