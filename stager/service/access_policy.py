"""The access policy for a workflow that a tenant submitted: whose word counts for its origins, and which places it may name at all.

May know: the tenant, the OriginAccess port, how origins become configurations. One rule: a submitted file says where, and never as whom or
by which way: credentials, known hosts, endpoints and the like are those that the administrator registered, or there are none.

A path below a registered place is asked for through that place: its base becomes the registered one and the rest a part of each path, so
that the I/O node's own check (no path, and no link at a file origin, leads out of the base) stands where the administrator set it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import quote, urlsplit

from stager.adapters.origin_config import file_config, resolve
from stager.adapters.public_hosts import check_public
from stager.model.errors import Denied, Fault
from stager.model.files import File, Location
from stager.model.tenants import Registered, Tenant
from stager.model.workflow import Origin, OriginKind, Workflow
from stager.ports import DirectoryListing, OriginAccess, OriginEntry, Probe

# What a submitted file may say of its origins by itself: how it wants to be served, never as whom.
OWN_OPTIONS = frozenset(("bandwidth", "shell_checksum", "verify_source", "queries"))
PUBLIC_OPTIONS = OWN_OPTIONS | {"allow_http", "region", "addressing"}
PUBLIC_ONLY = ("public_only", "true")
# A region becomes a part of the host's name.
REGION = re.compile(r"[a-z0-9-]{1,40}")
BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,62}")
ASK = "ask your administrator to register it for you"


@dataclass(frozen=True, slots=True)
class Placed:
    """An origin as it may be used, and where below it the workflow's own paths begin."""

    origin: Origin
    below: str = ""

    def path(self, path: str) -> str:
        return "/".join(part for part in (self.below, path) if part)


class AccessPolicy:
    """Of one tenant. Blocking: names of hosts are looked up, links of directories are followed."""

    def __init__(
        self, tenant: Tenant, environ: Mapping[str, str], check_host: Callable[[str], None] = check_public, trees: str = ""
    ) -> None:
        """`trees`: below it are the directories that the tenant sent with its runs."""
        self.tenant, self.environ, self.check_host, self.trees = tenant, environ, check_host, trees
        self.sent: Mapping[str, str] = {}

    def reading(self, sent: Mapping[str, str]) -> AccessPolicy:
        """For a text that names origins: these are directories that came with it, and no directory of another run is its own."""
        found = AccessPolicy(self.tenant, self.environ, self.check_host)
        found.sent = sent
        return found

    def place(self, origin: Origin) -> Placed:
        """Raises Denied. A path that was placed before is placed the same again."""
        if origin.kind is OriginKind.FILE:
            return self._in_a_root(origin)
        found = self.tenant.registered(origin.kind, origin.url)
        if found:
            registered, below = found[0]
            return Placed(as_registered(origin, registered), below)
        return Placed(self._for_everybody(origin))

    def config(self, origin: Origin) -> dict[str, Any]:
        """The node's configuration; may hold secrets."""
        return resolve(self.place(origin).origin, self.environ)

    def _in_a_root(self, origin: Origin) -> Placed:
        only_own(origin, OWN_OPTIONS, {})
        if origin.name in self.sent:
            return Placed(replace(origin, url="file://" + quote(self.sent[origin.name]), credentials="", beside_workflow=True))
        path = os.path.realpath(file_config(origin, urlsplit(origin.url), {}, self.environ)["base_path"])
        if self.trees and path.startswith(f"{os.path.realpath(self.trees)}/"):
            return Placed(replace(origin, url="file://" + quote(path), credentials=""))
        roots = {os.path.realpath(root) for root in self.tenant.file_roots}
        for root in sorted(roots, key=len, reverse=True):
            if path == root or path.startswith(root.rstrip("/") + "/"):
                below = path[len(root) :].strip("/")
                return Placed(replace(origin, url="file://" + quote(root), credentials=""), below)
        yours = f"yours are {', '.join(self.tenant.file_roots)}" if self.tenant.file_roots else "there are none for you"
        if origin.name == "here":
            text = "the origin 'here' is the directory of the workflow file, which did not come with it: `stager submit` sends it"
            raise Denied(f"{text}; name an origin that the service can reach", code="origin_denied", subject=origin.name)
        text = f"the origin {origin.name!r} is not below a directory of this service that is open to you ({yours})"
        raise Denied(f"{text}; {ASK}", code="origin_denied", subject=origin.name)

    def _for_everybody(self, origin: Origin) -> Origin:
        """Without credentials, and only what anybody on the internet can reach."""
        anonymous = "anonymous" if origin.kind is OriginKind.S3 else ""
        if origin.kind not in (OriginKind.HTTP, OriginKind.S3) or (origin.kind is OriginKind.S3 and origin.credentials != anonymous):
            text = f"no origin of yours is registered for {origin.url}"
            raise Denied(f"origin {origin.name!r}: {text}; {ASK}", code="origin_denied", subject=origin.name)
        if origin.credentials != anonymous:
            raise said_by_itself(origin, "credentials")
        only_own(origin, PUBLIC_OPTIONS, dict([PUBLIC_ONLY]))
        url = urlsplit(origin.url)
        if origin.kind is OriginKind.S3:
            options = dict(origin.options)
            if not REGION.fullmatch(options.get("region", "us-east-1")) or not BUCKET.fullmatch(url.netloc):
                text = f"origin {origin.name!r}: this is no bucket or region of AWS; one elsewhere has to be registered"
                raise Denied(f"{text}: {ASK}", code="origin_denied", subject=origin.name)
            return replace(origin, options=tuple(sorted(({"region": "us-east-1"} | options).items())))
        self.check_host(url.hostname or "")
        return replace(origin, options=tuple(sorted({**dict(origin.options), **dict([PUBLIC_ONLY])}.items())))


def as_registered(origin: Origin, registered: Registered) -> Origin:
    """With the administrator's word for all but how it wants to be served. Raises Denied where the file says another."""
    theirs = dict(registered.options)
    if origin.credentials not in ("", registered.credentials):
        raise said_by_itself(origin, "credentials")
    only_own(origin, OWN_OPTIONS, theirs)
    options = {name: value for name, value in origin.options if name in OWN_OPTIONS} | theirs
    return Origin(origin.name, registered.kind, registered.url, registered.credentials, tuple(sorted(options.items())))


def only_own(origin: Origin, own: frozenset[str], theirs: Mapping[str, str]) -> None:
    for name, value in origin.options:
        if name not in own and theirs.get(name) != value:
            raise said_by_itself(origin, name)


def said_by_itself(origin: Origin, key: str) -> Denied:
    text = f"origin {origin.name!r} says {key!r} itself, which on this service is the word of its administrator"
    return Denied(f"{text}; take that line out, and {ASK}", code="origin_denied", subject=f"origins.{origin.name}.{key}")


def translated(workflow: Workflow, access_policy: AccessPolicy) -> Workflow:
    """With its origins as they may be used; those that it does not use are gone. Raises Denied."""
    used = {source.location.origin for file in workflow.files.values() for source in file.sources}
    used |= {file.destination.location.origin for file in workflow.files.values() if file.destination is not None}
    used |= {workflow.spill_origin} if workflow.spill_origin is not None else set()
    placed = {name: access_policy.place(origin) for name, origin in workflow.origins.items() if name in used}
    origins = {name: each.origin for name, each in placed.items()}
    if not any(each.below for each in placed.values()):
        return replace(workflow, origins=origins)
    return replace(workflow, origins=origins, files={lfn: moved(file, placed) for lfn, file in workflow.files.items()})


def moved(file: File, placed: Mapping[str, Placed]) -> File:
    def there(location: Location) -> Location:
        return replace(location, path=placed[location.origin].path(location.path))

    sources = tuple(replace(source, location=there(source.location)) for source in file.sources)
    destination = replace(file.destination, location=there(file.destination.location)) if file.destination is not None else None
    return replace(file, sources=sources, destination=destination)


class TenantAccess:
    """The OriginAccess port for a reader of a tenant's file: asks for its paths where they may be asked for, and answers by their own."""

    def __init__(self, access_policy: AccessPolicy, inner: OriginAccess) -> None:
        self.access_policy, self.inner = access_policy, inner
        self.placed: dict[Origin, Placed] = {}

    def place(self, origin: Origin) -> Placed:
        if origin not in self.placed:
            self.placed[origin] = self.access_policy.place(origin)
        return self.placed[origin]

    def stat(self, origin: Origin, paths: Sequence[str]) -> list[OriginEntry | Fault]:
        placed = self.place(origin)
        answers = self.inner.stat(placed.origin, [placed.path(path) for path in paths])
        return [replace(found, path=path) if isinstance(found, OriginEntry) else found for path, found in zip(paths, answers, strict=True)]

    def list(self, origin: Origin, prefix: str, *, recursive: bool = True, limit: int = 1_000_000) -> DirectoryListing:
        placed = self.place(origin)
        found = self.inner.list(placed.origin, placed.path(prefix), recursive=recursive, limit=limit)
        start = len(placed.below) + 1 if placed.below else 0
        files = [replace(entry, path=entry.path[start:]) for entry in found.files]
        return DirectoryListing(files, [replace(left, path=left.path[start:]) for left in found.left_out])

    def probe(self, origin: Origin, path: str, *, write: bool) -> Probe:
        placed = self.place(origin)
        return self.inner.probe(placed.origin, placed.path(path), write=write)
