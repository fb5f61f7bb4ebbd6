"""Tenants: whose runs they are, which origins their administrator registered for them, and what a token may do.

May know: URLs as text. One rule: a place is below another only by whole names of its path, so `/data-secret` is not below `/data`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from stager.model.places import PORTS, parts_of_url, unescaped, user_of_url
from stager.model.workflow import OriginKind

TENANT_NAME = re.compile(r"[a-z][a-z0-9-]{0,39}")
# Between a tenant and a host of its pool. No name of a host or of a tenant has it.
SCOPE = ":"


def host_in_pool(tenant: str, host: str) -> str:
    """The id of a host here: two pools may have hosts with one name."""
    return f"{tenant}{SCOPE}{host}"


def tenant_of_host(host: str) -> str:
    """Whose pool it is of; empty: the owner's."""
    return host.partition(SCOPE)[0] if SCOPE in host else ""


def name_in_pool(host: str) -> str:
    return host.rpartition(SCOPE)[2]


class Scope(StrEnum):
    """Each includes those before it. `admin` sees the runs of all tenants, and those that belong to none."""

    READ = "read"
    SUBMIT = "submit"
    ADMIN = "admin"

    def includes(self, other: Scope) -> bool:
        ranks = list(Scope)
        return ranks.index(self) >= ranks.index(other)


@dataclass(frozen=True, slots=True)
class Registered:
    """An origin as its administrator set it: what it says of credentials and options holds for all that lies below its URL."""

    kind: OriginKind
    url: str
    credentials: str = ""
    options: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Tenant:
    """`native_jobs`: the programs of its workflows may run here, as the user of the service. `pool`: HOST:PORT of the gateway of the
    tenant's own pool, on whose hosts they run instead; empty: it has none. `file_roots` are absolute. `weight`: of its share beside those
    of others. Of each quota None: as much as there is.
    """

    name: str
    native_jobs: bool = False
    file_roots: tuple[str, ...] = ()
    origins: tuple[Registered, ...] = ()
    weight: float = 1.0
    quota_cores: int | None = None
    quota_bytes: int | None = None
    quota_runs: int | None = None
    pool: str = ""

    @property
    def runs_programs(self) -> bool:
        return self.native_jobs or self.pool != ""

    def registered(self, kind: OriginKind, url: str) -> list[tuple[Registered, str]]:
        """Those that the URL is the same as or lies below, with the path below them; the nearest first."""
        found = [(each, path) for each in self.origins if each.kind is kind and (path := path_below(each.url, url)) is not None]
        return sorted(found, key=lambda pair: len(pair[1]))


@dataclass(frozen=True, slots=True)
class Tenants:
    by_name: Mapping[str, Tenant] = field(default_factory=dict)

    def get(self, name: str) -> Tenant | None:
        return self.by_name.get(name)


def path_below(prefix: str, url: str) -> str | None:
    """`sftp://lab/data` and `sftp://lab/data/a/b` -> `a/b`; empty: the same place; None: elsewhere, or a path that climbs. A URL that names
    no user is anybody's.
    """
    above, scheme_above, server_above = spelled(prefix)
    names, scheme, server = spelled(url)
    user = user_of_url(url)
    if (scheme, server) != (scheme_above, server_above) or user not in ("", user_of_url(prefix)):
        return None
    if ".." in names or any("\0" in name for name in names) or names[: len(above)] != above:
        return None
    return "/".join(names[len(above) :])


def spelled(url: str) -> tuple[list[str], str, str]:
    """(names of the path, scheme, host with port) in one spelling."""
    scheme = url.partition(":")[0]
    _, server, path = parts_of_url(url)
    host, colon, port = server.rpartition(":") if not server.endswith("]") else ("", "", "")
    host, port = (host, port) if colon else (server, PORTS.get("sftp" if scheme == "sshfs" else scheme, ""))
    # The name of a bucket is what it is, that of a host is not.
    host = host if scheme == "s3" else host.lower()
    return [name for name in unescaped(path).split("/") if name not in ("", ".")], scheme, f"{host}:{port}"
