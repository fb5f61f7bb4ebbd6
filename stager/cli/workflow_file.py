"""The workflow file that a command is given: its workflow, its origins and their credentials.

May know: the readers, the settings. One rule: nothing is started here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from stager.adapters.origin_access import IonodeOriginAccess
from stager.adapters.origin_config import resolve_all
from stager.cli.mended import digest_of_file
from stager.cli.options import Given
from stager.cli.pulling import images_for
from stager.model.topology import Topology
from stager.model.workflow import Origin, Workflow
from stager.ports import OriginAccess
from stager.readers.native_beside import Beside
from stager.readers.native_params import given_values
from stager.readers.sniff import WorkflowFormat, read_workflow, sniff
from stager.readers.topology import read_topology
from stager.service.prepare import reader_options
from stager.service.settings import Settings
from stager.wire import Credentials


def read_only(settings: Settings, file: Path, output_origin: str | None, given: Given, access: OriginAccess | None = None) -> Workflow:
    """With globs listed and sizes found where the origins can be asked."""
    options = options_for(file, output_origin, given) | images_for(settings, file)
    return read_workflow(file, access=access or IonodeOriginAccess(settings.environ), options=options)


def read_to_run(settings: Settings, file: Path, output_origin: str | None, given: Given, access: OriginAccess) -> Workflow:
    """As `read_only`, with the path and the digest of the file, so that a resume finds it again and sees whether it changed."""
    is_native = sniff(file) is WorkflowFormat.NATIVE
    digest, beside = digest_of_file(file), Beside()
    more = images_for(settings, file, pulls=True) | ({"beside": beside} if is_native else {})
    workflow = read_workflow(file, access=access, options=options_for(file, output_origin, given) | more)
    return replace(workflow, source_path=str(file.absolute()), source_digest=beside.with_digest(digest))


def options_for(file: Path, output_origin: str | None, given: Given) -> dict[str, Any]:
    """Of the reader. Raises InvalidInput where they do not fit the file."""
    if output_origin is None and given == Given():
        return {}
    return reader_options(sniff(file), output_origin, Path.cwd(), given_values(given.pairs, given.file))


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
