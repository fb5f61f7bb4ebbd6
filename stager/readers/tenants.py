"""Reads tenants.toml: who may use the service, and which origins its administrator registered for whom (docs/operating/serve.md).

May know: the model, TOML. One rule: only the administrator's own file counts, and whatever is wrong in it gives nobody anything.
"""

from __future__ import annotations

import os
import re
import stat
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from stager.model.errors import Denied, InvalidInput
from stager.model.tenants import TENANT_NAME, Registered, Tenant, Tenants
from stager.model.units import parse_size_bytes
from stager.model.workflow import OriginKind
from stager.readers.lines import nearest
from stager.readers.native_origins import CREDENTIAL_KINDS, CREDENTIALS, OPTION_READERS, addressing_of, endpoint_of, parse_url
from stager.readers.native_spec import ORIGIN_KEYS

QUOTA_KEYS = ("quota_cores", "quota_runs")
TENANT_KEYS = ("native_jobs", "pool", "file_roots", "origins", "weight", "quota_bytes", *QUOTA_KEYS)
# Its name is that of the pool whose certificates the hosts of the service's owner have (`adapters.authority.OWN_POOL`).
OWNER = "owner"
POOL = re.compile(r"(\[[0-9a-fA-F:.]+\]|[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*):([1-9][0-9]{0,4})")
WEIGHT_MIN, WEIGHT_MAX = 0.001, 1000.0
FILE_BYTES_MAX = 8 * 2**20


def read_tenants(path: Path) -> Tenants:
    """No file: no tenants. Raises Denied for one that others could have written or may read, InvalidInput for what is wrong in it."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
    except FileNotFoundError:
        return Tenants()
    except OSError as problem:
        raise Denied(f"{path} cannot be read: {problem.strerror}; it must be a file of your own", subject=str(path)) from problem
    try:
        check_owner(path, os.fstat(handle))
        with open(handle, "rb", closefd=False) as stream:
            text = stream.read(FILE_BYTES_MAX)
    finally:
        os.close(handle)
    try:
        document = tomllib.loads(text.decode())
    except ValueError as problem:
        raise InvalidInput(f"{path} is not valid TOML: {problem}", code="tenants_invalid", subject=str(path)) from problem
    return parse_tenants(document, str(path))


def check_owner(path: Path, found: os.stat_result, code: str = "tenants_denied") -> None:
    """Raises Denied."""
    if not stat.S_ISREG(found.st_mode):
        raise Denied(f"{path} is not a file", code=code, subject=str(path))
    if found.st_uid not in (os.geteuid(), 0):
        raise Denied(f"{path} belongs to another user; make it your own", code=code, subject=str(path))
    if found.st_mode & 0o077:
        raise Denied(f"{path} is open to other users; chmod 600 {path}", code=code, subject=str(path))


def parse_tenants(document: Mapping[str, Any], source: str) -> Tenants:
    check_keys(document, ("tenants",), source, "")
    section = document.get("tenants", {})
    if not isinstance(section, dict):
        raise wrong(source, "tenants", "should be tables; write [tenants.NAME]")
    found = {name: tenant_of(name, value, source) for name, value in section.items()}
    native = [tenant.name for tenant in found.values() if tenant.native_jobs]
    if len(native) > 1:
        text = f"{native[0]!r} has native_jobs too; jobs run as the user of the service, so only one tenant may have them"
        raise wrong(source, f"tenants.{native[1]}.native_jobs", f"{text}: give each other one a pool, of a user of its own")
    by_pool: dict[str, str] = {}
    for tenant in found.values():
        other = by_pool.setdefault(tenant.pool, tenant.name) if tenant.pool else tenant.name
        if other != tenant.name:
            raise wrong(source, f"tenants.{tenant.name}.pool", f"is that of {other!r} too; a pool runs programs of one tenant")
    return Tenants(found)


def tenant_of(name: str, value: Any, source: str) -> Tenant:
    key = f"tenants.{name}"
    if not TENANT_NAME.fullmatch(name):
        raise wrong(source, key, "is no name of a tenant; use up to 40 of a-z, 0-9 and -, a letter first")
    if not isinstance(value, dict):
        raise wrong(source, key, f"should be a table; write [{key}]")
    check_keys(value, TENANT_KEYS, source, key)
    native_jobs = value.get("native_jobs", False)
    if not isinstance(native_jobs, bool):
        raise wrong(source, f"{key}.native_jobs", "should be true or false")
    roots = value.get("file_roots", [])
    if not isinstance(roots, list) or not all(isinstance(root, str) and root.startswith("/") and "\0" not in root for root in roots):
        raise wrong(source, f"{key}.file_roots", 'should be a list of absolute directories, as in ["/data/alice"]')
    origins = value.get("origins", [])
    if not isinstance(origins, list):
        raise wrong(source, f"{key}.origins", f"should be tables; write [[{key}.origins]]")
    registered = tuple(origin_of(each, source, f"{key}.origins[{number}]") for number, each in enumerate(origins))
    quotas = {each: count_of(value.get(each), source, f"{key}.{each}") for each in QUOTA_KEYS}
    weight, quota_bytes = weight_of(value, source, key), size_of(value.get("quota_bytes"), source, f"{key}.quota_bytes")
    pool = pool_of(name, value, source, key, native_jobs=native_jobs)
    return Tenant(name, native_jobs, tuple(roots), registered, weight=weight, quota_bytes=quota_bytes, pool=pool, **quotas)


def pool_of(name: str, value: Mapping[str, Any], source: str, key: str, *, native_jobs: bool) -> str:
    """HOST:PORT, or empty."""
    pool = value.get("pool", "")
    if not pool and "pool" not in value:
        return ""
    found = POOL.fullmatch(pool) if isinstance(pool, str) else None
    if found is None or int(found[2]) > 65_535:
        raise wrong(source, f"{key}.pool", 'should be where the gateway of its pool listens, as in "10.0.0.1:8787"')
    if native_jobs:
        raise wrong(source, f"{key}.pool", "does not go with native_jobs: programs run in the pool, or here as the user of the service")
    if name == OWNER:
        raise wrong(
            source, f"{key}.pool", f"cannot be of a tenant {OWNER!r}: hosts of the service's owner have the certificate pool/{OWNER}"
        )
    return str(pool)


def weight_of(value: Mapping[str, Any], source: str, key: str) -> float:
    weight = value.get("weight", 1.0)
    if isinstance(weight, bool) or not isinstance(weight, int | float) or not WEIGHT_MIN <= weight <= WEIGHT_MAX:
        raise wrong(source, f"{key}.weight", f"should be a number from {WEIGHT_MIN:g} to {WEIGHT_MAX:g}, and is 1 where it is not said")
    return float(weight)


def count_of(said: Any, source: str, key: str) -> int | None:
    if said is not None and (isinstance(said, bool) or not isinstance(said, int) or said < 1):
        raise wrong(source, key, "should be a whole number above 0; leave it out for as many as there are")
    return said


def size_of(said: Any, source: str, key: str) -> int | None:
    if said is None:
        return None
    try:
        size_bytes = parse_size_bytes(said) if isinstance(said, str) else count_of(said, source, key)
    except ValueError as problem:
        raise wrong(source, key, str(problem)) from None
    if size_bytes is not None and size_bytes < 1:
        raise wrong(source, key, 'should be a size above 0, as "500 GB"')
    return size_bytes


def origin_of(value: Any, source: str, key: str) -> Registered:
    if not isinstance(value, dict) or not isinstance(value.get("url"), str):
        raise wrong(source, f"{key}.url", "is missing; write url = 'sftp://USER@HOST/DIR', 's3://BUCKET/PREFIX' or 'https://HOST/DIR'")
    try:
        kind, url = parse_url(value["url"], Path("/"))
    except ValueError as problem:
        raise wrong(source, f"{key}.url", str(problem)) from None
    if kind is OriginKind.FILE:
        raise wrong(source, f"{key}.url", "is a directory of this machine; those go to file_roots")
    check_keys(value, ORIGIN_KEYS[kind.value], source, key)
    credentials = value.get("credentials", "")
    if credentials and (not isinstance(credentials, str) or not CREDENTIALS.fullmatch(credentials)):
        raise wrong(
            source, f"{key}.credentials", "is no reference to credentials; write env:PREFIX, profile:NAME, agent, anonymous or key:PATH"
        )
    if credentials and credentials.partition(":")[0] not in CREDENTIAL_KINDS[kind]:
        known = " or ".join(CREDENTIAL_KINDS[kind])
        raise wrong(source, f"{key}.credentials", f"does not fit a {kind.value} origin; use {known}")
    return Registered(kind, url, credentials, options_of(value, source, key))


def options_of(value: Mapping[str, Any], source: str, key: str) -> tuple[tuple[str, str], ...]:
    """As a workflow's options are written down: sorted pairs of text."""
    options: dict[str, str] = {}
    for name, said in value.items():
        if name in ("url", "credentials"):
            continue
        text = str(said).lower() if isinstance(said, bool) else str(said)
        try:
            if name == "endpoint":
                options[name] = endpoint_of(text, value.get("allow_http") is True)
            else:
                options[name] = addressing_of(text) if name == "addressing" else OPTION_READERS[name](text)
        except ValueError as problem:
            raise wrong(source, f"{key}.{name}", str(problem)) from None
    return tuple(sorted(options.items()))


def check_keys(value: Mapping[str, Any], known: tuple[str, ...], source: str, key: str) -> None:
    for name in value:
        if name not in known:
            there = f"there are {', '.join(known)}"
            raise wrong(source, f"{key}.{name}".lstrip("."), f"is not a key here{nearest(name, known)}; {there}")


def wrong(source: str, key: str, what: str) -> InvalidInput:
    return InvalidInput(f"{source}: {key} {what}", code="tenants_invalid", subject=key)
