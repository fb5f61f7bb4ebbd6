"""The container of an attempt: the unpacked image that is its root directory, and the variables that the job finds in it.

May know: an attempt's files. One rule: what an attempt had is what it has noted, for whoever looks into its sandbox afterwards.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from stager.worker.environment import job_environment, with_packages
from stager.worker.place import Place, read_json
from stager.worker.spec import AttemptSpec

# Where the job finds its sandbox (ionode/reaper/src/container.rs).
SANDBOX_AT = "/sandbox"


@dataclass(frozen=True, slots=True)
class Container:
    """`root_dir`: an unpacked image. `env`: the variables that it sets."""

    root_dir: str
    env: Mapping[str, str] = field(default_factory=dict)

    def to_wire(self) -> dict[str, str]:
        return {"root_dir": self.root_dir, "sandbox_at": SANDBOX_AT}


def noted(place: Place) -> Container | None:
    """The container that an attempt had, as `Images` wrote it down."""
    said = read_json(place.container)
    return None if said is None else Container(said["root_dir"], said["env"])


def environment_in(
    spec: AttemptSpec, place: Place, inherited: Mapping[str, str], container: Container | None, packages: str = ""
) -> dict[str, str]:
    """The job's, with the variables of its image below its own. `packages`: the directory of its environment of packages; empty: it has
    none.
    """
    if container is None:
        return with_packages(job_environment(spec, place.sandbox, inherited), packages, spec.env)
    return job_environment(spec, SANDBOX_AT, inherited, container.env)
