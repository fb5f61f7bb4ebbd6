"""The job's environment: little, known, and the same wherever it runs.

May know: an attempt's spec. One rule: nothing of the scheduler's own environment gets in but what `inherited` was given on purpose.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from stager.worker.spec import SCRATCH, AttemptSpec

DEFAULT = {"PATH": "/usr/local/bin:/usr/bin:/bin", "LANG": "C.UTF-8"}


def job_environment(
    spec: AttemptSpec, sandbox: str, inherited: Mapping[str, str], images: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Declared variables win over inherited ones, ours that name the attempt over all. `images`: those that its image sets. `sandbox`: as
    the job finds it.
    """
    own = {"STAGER_RUN": spec.run_id, "STAGER_JOB": spec.job_id, "STAGER_ATTEMPT": spec.attempt_id}
    return DEFAULT | dict(images) | dict(inherited) | {"HOME": sandbox, "TMPDIR": f"{sandbox}/{SCRATCH}"} | dict(spec.env) | own


def with_packages(env: dict[str, str], directory: str) -> dict[str, str]:
    """As the `activate` of a virtual environment has it."""
    if not directory:
        return env
    path = env.get("PATH")
    return env | {"VIRTUAL_ENV": directory, "PATH": f"{directory}/bin:{path}" if path else f"{directory}/bin"}
