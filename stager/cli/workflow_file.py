"""The workflow file that a command is given: its workflow, its origins and their credentials.

May know: the readers, the settings. One rule: nothing is started here.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from stager.adapters.origin_access import IonodeOriginAccess
from stager.adapters.origin_config import resolve_all
from stager.model.topology import Topology
from stager.model.workflow import Origin, Workflow
from stager.ports import OriginAccess
from stager.readers.sniff import read_workflow, sniff
from stager.readers.topology import read_topology
from stager.service.prepare import reader_options
from stager.service.settings import Settings
from stager.wire import Credentials


def read_only(settings: Settings, file: Path, output_origin: str | None, access: OriginAccess | None = None) -> Workflow:
    """With globs listed and sizes found where the origins can be asked."""
    options = reader_options(sniff(file), output_origin, Path.cwd()) if output_origin is not None else {}
    return read_workflow(file, access=access or IonodeOriginAccess(settings.environ), options=options)


def cluster_topology(path: Path, workflow: Workflow) -> Topology:
    """With as many I/O nodes as the file says, at least one."""
    cluster = read_topology(path)
    return cluster.topology(workflow, max(1, cluster.io.nodes))


def credentials_of(settings: Settings, workflow: Workflow) -> Credentials:
    """Resolved in the submitter's environment: they travel over the 0600 socket and are kept in memory only."""
    return credentials_for(settings, workflow.origins.values(), {name for job in workflow.jobs.values() for name in job.env_pass})


def credentials_for(settings: Settings, origins: Iterable[Origin], env_pass: set[str]) -> Credentials:
    environ = settings.environ
    return Credentials(resolve_all(origins, environ), {name: environ[name] for name in sorted(env_pass) if name in environ})
