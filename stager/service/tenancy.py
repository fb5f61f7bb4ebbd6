"""The tenants of now, the owner of each run, and whose word counts for the origins of a run.

May know: tenants.toml through the reader that it is given, the run records. One rule: a file that is wrong, or that others could have
written, gives nobody anything; after a restart the runs of tenants wait until it is mended and they are resumed.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from stager.adapters.origin_config import needs_secrets, resolve
from stager.model.errors import Denied, Refused, StagerError
from stager.model.tenants import Tenant, Tenants
from stager.model.workflow import Origin
from stager.service.access_policy import AccessPolicy
from stager.service.sent_places import SENT, TREES

log = logging.getLogger(__name__)


class Tenancy:
    """Asked on any thread. `read_tenants`: as that of readers/tenants.py."""

    def __init__(self, path: Path, state_dir: Path, environ: Mapping[str, str], read_tenants: Callable[[Path], Tenants]) -> None:
        self.path, self.state_dir, self.environ, self.read_tenants = path, state_dir, environ, read_tenants
        self.of_runs: dict[str, str] = {}
        self.lock = threading.Lock()
        self.seen: object = None
        self.read: Tenants | StagerError = Tenants()

    def now(self) -> Tenants:
        """As the file says at this moment. Raises Refused where it cannot be used; why is in the log, not in an answer."""
        with self.lock:
            seen = stamp_of(self.path)
            if seen != self.seen:
                self.seen, self.read = seen, self._read()
            found = self.read
        if isinstance(found, StagerError):
            text = "the service does not know its tenants just now, since their file cannot be used"
            raise Refused(f"{text}; its administrator finds the reason in the service's log", code="tenants_invalid")
        return found

    def _read(self) -> Tenants | StagerError:
        try:
            tenants = self.read_tenants(self.path)
            for tenant in tenants.by_name.values():
                check_roots(tenant, self.state_dir)
        except StagerError as problem:
            log.error("no tenant may do anything: %s", problem.message)
            return problem
        return tenants

    def tenant(self, name: str) -> Tenant:
        found = self.now().get(name)
        if found is None:
            raise Denied(f"there is no tenant {name!r} any more", code="tenant_unknown", subject=name)
        return found

    def access_policy(self, name: str) -> AccessPolicy:
        return AccessPolicy(self.tenant(name), self.environ, trees=str(self.state_dir / SENT / name / TREES))

    def of_run(self, run: str) -> str:
        """Empty: submitted over the owner's socket."""
        return self.of_runs.get(run, "")

    def resolve(self, run: str, origin: Origin) -> dict[str, Any]:
        """The node's configuration of a run's origin: a tenant's as its administrator says now, the owner's as the environment says."""
        tenant = self.of_run(run)
        return self.access_policy(tenant).config(origin) if tenant else resolve(origin, self.environ)

    def needs_secrets(self, run: str, origin: Origin) -> bool:
        """Whether only the submitter could say it: never of a tenant's."""
        return not self.of_run(run) and needs_secrets(origin)


def stamp_of(path: Path) -> object:
    try:
        found = os.lstat(path)
    except OSError as problem:
        return problem.errno
    return (found.st_ino, found.st_mtime_ns, found.st_ctime_ns, found.st_size)


def check_roots(tenant: Tenant, state_dir: Path) -> None:
    """A tenant that could write there would be the service."""
    own = os.path.realpath(state_dir)
    for root in tenant.file_roots:
        real = os.path.realpath(root)
        if any(f"{inner}/".startswith(f"{outer.rstrip('/')}/") for inner, outer in ((own, real), (real, own))):
            text = f"tenants.{tenant.name}.file_roots: {root} and the state directory of this service ({own}) lie one inside the other"
            raise Refused(f"{text}; give tenants other directories", code="tenants_invalid", subject=root)
